"""Plans and memory profiles as people read them: rich tables, and the same as plain text."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from stablehlo_mem.memory import LiveValue, Measured, MemoryProfile, Refused
from stablehlo_mem.plan import Plan, Refusal

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_PARTS = (
    ("arguments", "argument_bytes"),
    ("outputs", "output_bytes"),
    ("temporaries", "temp_bytes"),
    ("constants", "constant_bytes"),
    ("aliased", "alias_bytes"),
)
_TEXT_WIDTH = 120
_SHOWN = 6
"""Rows of a list of values or refusals: the largest few matter, the rest is in `Plan.to_json`."""


def format_bytes(nbytes: int) -> str:
    """Bytes in binary units to three digits: "1.5 GiB", "512 MiB", "17 B", "-64 KiB"."""
    size = abs(nbytes)
    unit = 0
    # Rounding must not print "1024 MiB" for a byte less than a GiB.
    while unit < len(_UNITS) - 1 and size >= 1023.5 * 1024**unit:
        unit += 1
    scaled = size / 1024**unit
    digits = 0 if scaled >= 100 or unit == 0 else 1 if scaled >= 10 else 2
    number = f"{scaled:.{digits}f}"
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return f"{'-' if nbytes < 0 else ''}{number} {_UNITS[unit]}"


def _apart(*sizes: int) -> list[str]:
    """Sizes as one reads them, to the byte where different ones would read the same."""
    short = [format_bytes(size) for size in sizes]
    return short if len(set(short)) == len(set(sizes)) else [f"{size:,} B" for size in sizes]


def format_value(live: LiveValue) -> str:
    """A live value as one reads it: "dot_general f32[8,16384,16384]"."""
    shape = ",".join(str(size) for size in live.shape)
    return f"{live.op_name} {live.dtype}[{shape}]"


def profile_report(profile: MemoryProfile, title: str = "Memory of one execution") -> RenderableType:
    """Rich tables of a profile: the peak with its parts, where it is, and the values live there."""
    parts: list[RenderableType] = [
        _memory_table(title, {"": profile}),
        *_refused_notes({"the program": profile}),
        *_live_section(profile, "Live at the peak"),
    ]
    return Group(*parts)


def profile_text(profile: MemoryProfile) -> str:
    """`profile_report` as plain text."""
    return render_text(profile_report(profile))


def profile_json(profile: MemoryProfile) -> str:
    """A profile as JSON text."""
    return json.dumps({"peak_bytes": profile.peak_bytes, **dataclasses.asdict(profile)}, indent=2)


def plan_report(plan: Plan) -> RenderableType:
    """Rich tables of a plan: headline, memory before and after, decisions, live values, refusals, effort."""
    profiles = {"before": plan.before, "after": plan.after}
    parts: list[RenderableType] = [
        Text(headline(plan), style="bold green" if plan.fits else "bold red"),
        _memory_table("Memory of one execution", profiles),
        *_refused_notes(profiles),
        *_decisions(plan),
        *_live_section(plan.before, "Live at the peak before"),
        *(_live_section(plan.after, "Live at the peak after") if plan.steps else ()),
        *_refusal_section(plan.refusals),
        Text(f"\n{_effort(plan)}", style="dim"),
    ]
    return Group(*parts)


def plan_text(plan: Plan) -> str:
    """`plan_report` as plain text, without colours and independent of the terminal."""
    return render_text(plan_report(plan))


def headline(plan: Plan) -> str:
    """One line: the targets, the peak before and after, and whether the budget is kept."""
    peaks = f"{format_bytes(plan.before.peak_bytes)} → {format_bytes(plan.after.peak_bytes)}"
    if plan.budget_bytes is None:
        verdict = "no limit"
    else:
        verdict = f"{'within' if plan.fits else 'OVER'} the budget of {format_bytes(plan.budget_bytes)}"
    return f"{', '.join(plan.target)}: {peaks}, {verdict}"


def budget_error_text(plan: Plan) -> str:
    """The message of a `BudgetError`: what was asked, needed and reached, and what stands in the way, with lines."""
    after = plan.after
    budget, needed, reached = _apart(plan.budget_bytes or 0, plan.before.peak_bytes, after.peak_bytes)
    lines = [
        f"the budget of {budget} cannot be kept on {', '.join(plan.target)}: needed {needed}, reached {reached}",
        f"  at the smallest peak: {_parts_text(after)}",
    ]
    if after.live:
        lines.append("largest values live there:")
        lines += [f"  {_live_line(live)}" for live in after.live[:_SHOWN]]
    if plan.refusals:
        lines.append("what stands in the way:")
        refusals = dict.fromkeys(_refusal_line(refusal) for refusal in plan.refusals)
        lines += [f"  {line}" for line in list(refusals)[:_SHOWN]]
    return "\n".join(lines)


def render_text(renderable: RenderableType, width: int = _TEXT_WIDTH) -> str:
    """A rich renderable as plain text of a fixed width, trailing spaces dropped."""
    buffer = io.StringIO()
    console = Console(file=buffer, width=width, color_system=None, force_terminal=False, highlight=False)
    console.print(renderable, soft_wrap=False)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())


def _memory_table(title: str, profiles: dict[str, MemoryProfile]) -> Table:
    table = _table(title, title_style="bold")
    table.add_column("")
    for name, profile in profiles.items():
        for source, asked in (("static", True), ("measured", profile.measured is not None)):
            if asked:
                table.add_column(f"{name} {source}".strip(), justify="right")
    for label, attribute in _PARTS:
        table.add_row("- " + label if attribute == "alias_bytes" else label, *_row(profiles.values(), attribute))
    table.add_row("peak", *_row(profiles.values(), "peak_bytes"), style="bold")
    return table


def _row(profiles: Iterable[MemoryProfile], attribute: str) -> list[str]:
    cells: list[str] = []
    for profile in profiles:
        cells.append(format_bytes(_static(profile, attribute)))
        if profile.measured is not None:
            cells.append(_measured(profile.measured, attribute))
    return cells


def _static(profile: MemoryProfile, attribute: str) -> int:
    if attribute != "peak_bytes":
        return getattr(profile, attribute)
    # `MemoryProfile.peak_bytes` prefers the measured figure; the static column wants the estimate.
    return sum(getattr(profile, name) for _, name in _PARTS) - 2 * profile.alias_bytes


def _measured(measured: Measured | Refused, attribute: str) -> str:
    if isinstance(measured, Measured):
        return format_bytes(getattr(measured, attribute))
    if attribute != "peak_bytes":
        return "-"
    return "refused" if measured.needed_bytes is None else f"{format_bytes(measured.needed_bytes)} (refused)"


def _refused_notes(profiles: dict[str, MemoryProfile]) -> Iterable[Text]:
    for name, profile in profiles.items():
        if isinstance(profile.measured, Refused):
            message = " ".join(profile.measured.message.split())
            yield Text(f"The compiler refused {name}: {_shortened(message, 300)}", style="yellow")


def _decisions(plan: Plan) -> Iterable[RenderableType]:
    if not plan.steps:
        yield Text("No decision was needed." if plan.fits else "Nothing could be done.")
        return
    table = _table("Decisions", title_style="bold")
    table.add_column("", justify="right")
    table.add_column("pass", no_wrap=True)
    table.add_column("what", overflow="fold")
    # A plan replayed from a cache may carry fewer summaries than steps.
    summaries = (*plan.summaries, *[""] * (len(plan.steps) - len(plan.summaries)))
    for number, (step, summary) in enumerate(zip(plan.steps, summaries, strict=False), 1):
        table.add_row(str(number), step.pass_name, Text(summary))
    yield table


def _live_section(profile: MemoryProfile, title: str) -> Iterable[RenderableType]:
    if not profile.live:
        return
    table = _table(title + (f": {profile.point}" if profile.point else ""), title_style="bold")
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("source", overflow="fold")
    for live in profile.live[:_SHOWN]:
        table.add_row(format_bytes(live.nbytes), Text(format_value(live)), Text(live.source or "unknown"))
    yield table
    yield from _more(len(profile.live))


def _refusal_section(refusals: Sequence[Refusal]) -> Iterable[RenderableType]:
    if not refusals:
        return
    table = _table("Not made smaller", title_style="bold")
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("why", overflow="fold")
    table.add_column("source", overflow="fold")
    for refusal in refusals[:_SHOWN]:
        why = Text(f"{_dimension(refusal)}{refusal.message} [{refusal.code}]")
        table.add_row(format_bytes(refusal.nbytes), Text(refusal.value), why, Text(refusal.location or "unknown"))
    yield table
    yield from _more(len(refusals))


def _more(count: int) -> Iterable[Text]:
    if count > _SHOWN:
        yield Text(f"… and {count - _SHOWN} more", style="dim")


def _table(title: str, title_style: str) -> Table:
    return Table(title=Text(f"\n{title}"), title_justify="left", title_style=title_style, box=None, pad_edge=False)


def _effort(plan: Plan) -> str:
    compiles = "1 compile" if plan.compiles == 1 else f"{plan.compiles} compiles"
    return f"{compiles}, {plan.planning_seconds:.2f} s of planning"


def _parts_text(profile: MemoryProfile) -> str:
    source = profile.measured if isinstance(profile.measured, Measured) else profile
    return ", ".join(f"{label} {format_bytes(getattr(source, attribute))}" for label, attribute in _PARTS)


def _live_line(live: LiveValue) -> str:
    return f"{format_bytes(live.nbytes)}  {format_value(live)}{_at(live.source)}"


def _refusal_line(refusal: Refusal) -> str:
    size = format_bytes(refusal.nbytes)
    return f"{size}  {refusal.value}{_at(refusal.location)}: {_dimension(refusal)}{refusal.message}"


def _dimension(refusal: Refusal) -> str:
    return f"dimension {refusal.dimension}: " if refusal.dimension >= 0 else ""


def _at(location: str) -> str:
    return f"  at {location}" if location else ""


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
