"""Reports for terminals: rich tables for the command line, and the plain text that `str` of a result returns."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from stablehlo_mem.reports.phrases import SHOWN, advice, effort_text, headline, how_text
from stablehlo_mem.reports.tables import (
    Section,
    check_headline,
    check_notes,
    check_section,
    decision_entries,
    explanation_sections,
    live_section,
    measured_sections,
    memory_sections,
    outcome,
    peak_sections,
    refused_notes,
)
from stablehlo_mem.results.check import Check
from stablehlo_mem.results.explanation import Explanation
from stablehlo_mem.results.memory_profile import MemoryProfile
from stablehlo_mem.results.memory_time_curve import CurvePoint
from stablehlo_mem.results.plan import Plan
from stablehlo_mem.targets.chips import CHIPS, Chip
from stablehlo_mem.targets.known_targets import KnownTarget
from stablehlo_mem.utils.plain_data import plain_data
from stablehlo_mem.utils.units import format_bytes, format_flops, format_seconds

_TEXT_WIDTH = 120
"""Columns of plain text: a wide terminal, and the lines of a source file."""


def profile_report(profile: MemoryProfile) -> RenderableType:
    """Rich tables of a profile: the parts of the peak, its source line, and the values live there."""
    return _spaced(
        *map(_table_block, memory_sections({"": profile})),
        _refused_block({"the program": profile}),
        *map(_table_block, live_section(profile, "Live at the peak", SHOWN)),
    )


def profile_json(profile: MemoryProfile) -> str:
    """A profile as JSON text."""
    return json.dumps({"peak_bytes": profile.peak_bytes, **plain_data(profile)}, indent=2)


def plan_report(plan: Plan) -> RenderableType:
    """Rich tables of a plan: headline, memory before and after, decisions, live values, refusals, effort."""
    profiles = {"before": plan.before, "after": plan.after}
    return _spaced(
        [Text(headline(plan), style="bold green" if plan.fits else "bold red")],
        *map(_table_block, (*memory_sections(profiles), *measured_sections(plan))),
        _refused_block(profiles),
        _decisions_block(plan),
        *map(_table_block, peak_sections(plan, SHOWN)),
        _advice_block(plan),
        [Text(effort_text(plan), style="dim")],
    )


def check_report(check: Check) -> RenderableType:
    """A rich table of a check: each result's errors and limit, and notes to the figures."""
    _, *table = _table_block(check_section(check, 2 * SHOWN))
    title = Text(check_headline(check), style="bold green" if check.ok else "bold red")
    return _spaced([title, *table], (Text(note, style="dim") for note in check_notes(check)))


def explanation_report(explanation: Explanation) -> RenderableType:
    """Rich tables of an explanation: the memory, the steps that are offered, and the refusals."""
    impossible = [Text(explanation.impossible, style="bold red")] if explanation.impossible else []
    return _spaced(impossible, *map(_table_block, explanation_sections(explanation, SHOWN)))


def targets_report(targets: Sequence[KnownTarget]) -> RenderableType:
    """A rich table of all targets: whether this machine has or can compile for them, and their speeds."""
    rows: list[Sequence[str]] = []
    for target in targets:
        chip = target.chip
        here = f"{target.attached} attached" if target.attached else "compiles" if target.compiles else target.missing
        memory = format_bytes(chip.memory_bytes) if chip.memory_bytes else "the host's"
        rates = (chip.matmul_rate(2), chip.matmul_rate(4), chip.flops_per_second)
        speeds = (f"{format_flops(rate)}/s" for rate in rates)
        rows.append((chip.name, here, memory, *speeds, f"{chip.bytes_per_second / 1e9:,.0f} GB/s"))
    heads = ("target", "here", "memory", "bf16 matmuls", "f32 matmuls", "f32 in full", "reads and writes")
    return _table(Section("", heads, rows, range(2, len(heads))))


def chip_report(chip: Chip) -> RenderableType:
    """A rich table of what `calibrate` measures, in words, and what it is good for."""
    typical = CHIPS[chip.name]
    figures = (
        ("matmuls of float32", "flops_per_second", lambda rate: f"{format_flops(rate)}/s"),
        ("reads and writes of memory", "bytes_per_second", lambda rate: f"{rate / 1e9:,.3g} GB/s"),
        ("an iteration of a loop", "step_seconds", format_seconds),
        ("a result of a reduction", "reduced_seconds", lambda seconds: f"{seconds * 1e9:.2g} ns"),
        ("cores", "cores", str),
        ("cache for a loop's values", "cache_bytes", format_bytes),
    )
    shown = [(what, form(getattr(chip, name)), form(getattr(typical, name))) for what, name, form in figures]
    title = f"{chip.name}: plans are now compared by these figures; estimated times change, peaks do not"
    return Group(*_table_block(Section(title, ("", "measured here", "typical"), shown, (1, 2))))


def curve_report(points: Sequence[CurvePoint]) -> RenderableType:
    """A rich table of a curve's points."""
    rows: list[Sequence[str]] = []
    for point in points:
        steps = "\n".join(d.what + how_text(d) for d in point.decisions) or "as it is"
        figures = (format_bytes(point.peak_bytes), format_seconds(point.seconds), f"×{point.slowdown:.2f}")
        rows.append((*figures, steps))
    title = "Memory against time, both estimated; ×1 is the program as it is"
    return Group(*_table_block(Section(title, ("peak", "time", "× as written", "steps"), rows, (0, 1, 2))))


def plain_text(result: Plan | MemoryProfile | Explanation | Check) -> str:
    """The report of a result as plain text, without colours and independent of the terminal."""
    match result:
        case Plan():
            return render_text(plan_report(result))
        case MemoryProfile():
            return render_text(profile_report(result))
        case Explanation():
            return render_text(explanation_report(result))
        case Check():
            return render_text(check_report(result))


def render_text(renderable: RenderableType) -> str:
    """A rich renderable as plain text: no colours, a fixed width whatever the terminal, no trailing spaces."""
    buffer = io.StringIO()
    console = Console(file=buffer, width=_TEXT_WIDTH, color_system=None, force_terminal=False, highlight=False)
    console.print(renderable, soft_wrap=False)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())


def _spaced(*blocks: Iterable[RenderableType]) -> RenderableType:
    """Blocks separated by empty lines, without the empty ones."""
    parts: list[RenderableType] = []
    for block in map(list, blocks):
        parts += [Text(), *block] if parts and block else block
    return Group(*parts)


def _table_block(section: Section) -> Iterable[RenderableType]:
    yield _title(": ".join(filter(None, (section.title, section.note))))
    if section.rows:
        yield _table(section)
    if section.more:
        yield Text(f"… and {section.more} more", style="dim")


def _table(section: Section) -> Table:
    table = Table(box=None, pad_edge=False)
    for i, head in enumerate(section.heads):
        if i in section.numbers:
            table.add_column(head, justify="right", no_wrap=True)
        else:
            table.add_column(head, overflow="fold")
    for row in section.rows:
        table.add_row(*map(Text, row), style="bold" if section.sums and row is section.rows[-1] else None)
    return table


def _refused_block(profiles: dict[str, MemoryProfile]) -> Iterable[Text]:
    return (Text(note, style="yellow") for note in refused_notes(profiles))


def _decisions_block(plan: Plan) -> Iterable[RenderableType]:
    if plan.steps:
        yield _title("Decisions")
    for what, lines in decision_entries(plan):
        yield Text(what, style="cyan")
        yield from (Padding(Text(line), (0, 0, 0, 3)) for line in lines)
    if outcome(plan):
        yield Text(outcome(plan))


def _advice_block(plan: Plan) -> Iterable[RenderableType]:
    lines = advice(plan)
    if lines:
        yield _title("What may help")
        yield from (Text(f"- {line}") for line in lines)


def _title(text: str) -> Text:
    return Text(text, style="bold")
