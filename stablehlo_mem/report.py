"""Plans and memory profiles as people read them in a terminal: rich tables, and the same as plain text."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from stablehlo_mem.curves import CurvePoint
from stablehlo_mem.explanation import Explanation
from stablehlo_mem.memory import MemoryProfile
from stablehlo_mem.plan import Candidate, Decision, Figures, Plan, Refusal, plain_data
from stablehlo_mem.targets.known import KnownTarget
from stablehlo_mem.wording import (
    PARTS,
    SHOWN,
    advice,
    cost_text,
    distinct,
    effort_text,
    format_bytes,
    format_seconds,
    format_source,
    format_value,
    grouped,
    headline,
    how_text,
    measured_part,
    numerics_text,
    refused_text,
    static_part,
    why_text,
    worth_text,
)

_TEXT_WIDTH = 120


def profile_report(profile: MemoryProfile) -> RenderableType:
    """Rich tables of a profile: the peak with its parts, where it is, and the values live there."""
    parts: list[RenderableType] = [
        *_memory_table({"": profile}),
        *_refused_notes({"the program": profile}),
        *_live_section(profile, "Live at the peak"),
    ]
    return Group(*parts)


def profile_text(profile: MemoryProfile) -> str:
    """`profile_report` as plain text."""
    return render_text(profile_report(profile))


def profile_json(profile: MemoryProfile) -> str:
    """A profile as JSON text."""
    return json.dumps({"peak_bytes": profile.peak_bytes, **plain_data(profile)}, indent=2)


def plan_report(plan: Plan) -> RenderableType:
    """Rich tables of a plan: headline, memory before and after, decisions, live values, refusals, effort."""
    profiles = {"before": plan.before, "after": plan.after}
    parts: list[RenderableType] = [
        Text(headline(plan), style="bold green" if plan.fits else "bold red"),
        *_memory_table(profiles),
        *_figures_section(plan.figures),
        *_refused_notes(profiles),
        *_decisions(plan),
        *_live_section(plan.before, "Live at the peak before"),
        *(_live_section(plan.after, "Live at the peak after") if plan.steps else ()),
        *_refusal_section(plan.refusals),
        *_advice_section(plan),
        Text(f"\n{effort_text(plan)}", style="dim"),
    ]
    return Group(*parts)


def plan_text(plan: Plan) -> str:
    """`plan_report` as plain text, without colours and independent of the terminal."""
    return render_text(plan_report(plan))


def explanation_report(explanation: Explanation) -> RenderableType:
    """Rich tables of an explanation: where the memory is, what could be done there, what not and why."""
    asked = f"temporaries of at most {format_bytes(explanation.goal_bytes)}"
    parts: list[RenderableType] = [
        *_memory_table({"": explanation.profile}),
        *_live_section(explanation.profile, "Live at the peak"),
        *_offers_section(explanation.quicker, "Steps that save time, taken first"),
        *_offers_section(explanation.offers, f"Steps offered at this peak for {asked}, the ones to try first in front"),
        *_refusal_section(explanation.refusals),
    ]
    return Group(*parts)


def targets_report(targets: Sequence[KnownTarget]) -> RenderableType:
    """A rich table of the targets there are, whether they are here, and what the analyses know about them."""
    table = _table()
    for name in ("target", "here"):
        table.add_column(name, no_wrap=True)
    for name in ("memory", "FLOP/s", "bytes/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in targets:
        chip = one.chip
        here = f"{one.attached} attached" if one.attached else "compiles" if one.compiles else one.missing
        memory = format_bytes(chip.memory_bytes) if chip.memory_bytes else "the host's"
        table.add_row(chip.name, Text(here), memory, f"{chip.flops_per_second:.2g}", f"{chip.bytes_per_second:.2g}")
    return table


def curve_report(points: Sequence[CurvePoint]) -> RenderableType:
    """A rich table of the budgets that are reachable, the highest peak first."""
    table = _table()
    for name in ("peak", "time", "slower"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("steps", overflow="fold")
    for point in points:
        steps = "\n".join(d.what + how_text(d) for d in point.decisions) or "as it is"
        worth = (format_bytes(point.peak_bytes), format_seconds(point.seconds), f"×{point.slowdown:.2f}")
        table.add_row(*worth, Text(steps))
    return Group(_title("Memory against time, both estimated; ×1 is the program as it is"), table)


def render_text(renderable: RenderableType, width: int = _TEXT_WIDTH) -> str:
    """A rich renderable as plain text of a fixed width, trailing spaces dropped."""
    buffer = io.StringIO()
    console = Console(file=buffer, width=width, color_system=None, force_terminal=False, highlight=False)
    console.print(renderable, soft_wrap=False)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())


def _memory_table(profiles: dict[str, MemoryProfile]) -> Iterable[RenderableType]:
    yield _title("Memory of one execution")
    table = _table()
    table.add_column("")
    for name, profile in profiles.items():
        for source, asked in (("static", True), ("measured", profile.measured is not None)):
            if asked:
                table.add_column(f"{name} {source}".strip(), justify="right")
    for label, attribute in PARTS:
        table.add_row("- " + label if attribute == "alias_bytes" else label, *_row(profiles.values(), attribute))
    table.add_row("peak", *_row(profiles.values(), "peak_bytes"), style="bold")
    yield table


def _row(profiles: Iterable[MemoryProfile], attribute: str) -> list[str]:
    cells: list[str] = []
    for profile in profiles:
        cells.append(format_bytes(static_part(profile, attribute)))
        if profile.measured is not None:
            cells.append(measured_part(profile.measured, attribute))
    return cells


def _figures_section(figures: Sequence[Figures]) -> Iterable[RenderableType]:
    if len(figures) < 2:
        return
    yield _title("Measured by each target's compiler: the highest peak counts")
    table = _table()
    table.add_column("target")
    table.add_column("before", justify="right")
    table.add_column("after", justify="right")
    for one in figures:
        table.add_row(one.target, measured_part(one.before, "peak_bytes"), measured_part(one.after, "peak_bytes"))
    yield table


def _refused_notes(profiles: dict[str, MemoryProfile]) -> Iterable[Text]:
    for name, profile in profiles.items():
        note = refused_text(name, profile.measured)
        if note:
            yield Text(note, style="yellow")


def _decisions(plan: Plan) -> Iterable[RenderableType]:
    if not plan.steps:
        yield Text("No decision was needed." if plan.fits else "Nothing could be done.")
        return
    yield _title("Decisions")
    for number, decision in enumerate(plan.decisions, 1):
        yield from _decision(number, decision)
    # A plan read from a file may carry summaries alone.
    yield from (Text(f"- {summary}") for summary in plan.summaries[len(plan.decisions) :])
    if plan.cost_before is not None and plan.cost_after is not None:
        yield Text(f"Estimated {cost_text(plan.cost_before, plan.cost_after)}")


def _decision(number: int, decision: Decision) -> Iterable[RenderableType]:
    yield Text(f"{number}. {decision.what}", style="cyan")
    lines = (
        f"{decision.pass_name}, {numerics_text(decision.numerics)}{how_text(decision)}",
        f"at {format_source(decision.location)}",
        f"estimated: {worth_text(decision)}",
    )
    for line in lines:
        yield Padding(Text(line), (0, 0, 0, 3))


def _live_section(profile: MemoryProfile, title: str) -> Iterable[RenderableType]:
    if not profile.live:
        return
    place = format_source(profile.point) if profile.point else ""
    yield _title(title + (f": {place}" if place else ""))
    table = _table()
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("source", overflow="fold")
    rows = grouped(profile.live)
    for size, live in rows[:SHOWN]:
        table.add_row(size, Text(format_value(live)), Text(format_source(live.source)))
    yield table
    yield from _more(len(rows))


def _offers_section(offers: Sequence[Candidate], title: str) -> Iterable[RenderableType]:
    if not offers:
        yield _title(f"{title}: none")
        return
    yield _title(title)
    table = _table()
    for name in ("frees", "adds"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("numerics", no_wrap=True)
    table.add_column("what", overflow="fold")
    table.add_column("source", overflow="fold")
    for offer in offers[: 2 * SHOWN]:
        worth = (format_bytes(offer.saved_bytes), format_seconds(offer.added_seconds))
        what = Text(f"{offer.summary} [{offer.step.pass_name}]")
        table.add_row(*worth, numerics_text(offer.numerics), what, Text(format_source(offer.otherwise.location)))
    yield table
    yield from _more(len(offers), 2 * SHOWN)


def _refusal_section(refusals: Sequence[Refusal]) -> Iterable[RenderableType]:
    different = distinct(refusals)
    if not different:
        return
    yield _title("Not made smaller")
    table = _table()
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("why", overflow="fold")
    table.add_column("source", overflow="fold")
    for refusal in different[:SHOWN]:
        why = Text(f"{why_text(refusal)} [{refusal.code}]")
        table.add_row(format_bytes(refusal.nbytes), Text(refusal.value), why, Text(format_source(refusal.location)))
    yield table
    yield from _more(len(different))


def _advice_section(plan: Plan) -> Iterable[RenderableType]:
    lines = advice(plan)
    if lines:
        yield _title("What may help")
        yield from (Text(f"- {line}") for line in lines)


def _more(count: int, shown: int = SHOWN) -> Iterable[Text]:
    if count > shown:
        yield Text(f"… and {count - shown} more", style="dim")


def _table() -> Table:
    return Table(box=None, pad_edge=False)


def _title(text: str) -> Text:
    return Text(f"\n{text}", style="bold")
