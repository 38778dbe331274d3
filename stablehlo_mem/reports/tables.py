"""The sections of reports as plain data. `reports.text` and `reports.html` lay them out for terminals and browsers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

from stablehlo_mem.pass_api.candidate import Candidate, Numerics, Refusal
from stablehlo_mem.reports.phrases import (
    PARTS,
    distinct,
    format_source,
    format_value,
    how_text,
    refusal_text,
    worth_showing,
)
from stablehlo_mem.results.check import Check, CheckedResult
from stablehlo_mem.results.decision import Decision
from stablehlo_mem.results.explanation import Explanation
from stablehlo_mem.results.memory_profile import MemoryProfile
from stablehlo_mem.results.plan import Figures, Plan, Timing
from stablehlo_mem.targets.measurement import Measured, Refused
from stablehlo_mem.utils.units import byte_unit, format_bytes, format_flops, format_seconds

_MESSAGE_LENGTH = 300
"""Characters shown of a compiler's message: the reason is in the first sentences, a dump of buffers follows."""


@dataclasses.dataclass(frozen=True)
class Section:
    """A table under a title.

    Attributes:
        heads: one for each column.
        rows: the texts of the cells.
        numbers: the columns that are aligned as numbers.
        note: an addition to the title such as a source line, or "".
        more: the number of rows that are left out.
        sums: whether the last row is the sum of the others.
    """

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Container[int]
    note: str = ""
    more: int = 0
    sums: bool = False

    def first(self, count: int) -> Section:
        """The section with at most so many rows."""
        return dataclasses.replace(self, rows=self.rows[:count], more=max(0, len(self.rows) - count))


def memory_sections(profiles: Mapping[str, MemoryProfile]) -> Iterator[Section]:
    """The parts of each profile's peak on the device; and what is in the host's memory, if anything is."""
    parts = {f"− {label}" if attribute == "alias_bytes" else label: attribute for label, attribute in PARTS}
    heads, rows = _parts_table(profiles, {**parts, "peak": "peak_bytes"})
    yield Section(_memory_title(profiles.values()), heads, rows, range(1, len(heads)), sums=True)
    if any(profile.host_bytes for profile in profiles.values()):
        parts = {"arguments and outputs": "host_fixed_bytes", "temporaries": "host_temp_bytes"}
        heads, rows = _parts_table(profiles, parts)
        yield Section("In the host's memory", heads, rows, range(1, len(heads)))


def _memory_title(profiles: Iterable[MemoryProfile]) -> str:
    """On which target, and on how many devices of it."""
    origin = next((profile.origin for profile in profiles if profile.origin is not None), None)
    devices = max((profile.devices for profile in profiles), default=1)
    where = f" on {origin.target.name}" if origin is not None else ""
    return f"Memory of one execution{where}" + (f", on each of {devices} devices" if devices > 1 else "")


def told_apart_section(section: Section, profiles: Mapping[str, MemoryProfile]) -> Section:
    """The device's section with a row for what the compiler adds: the measured temporaries beyond the static."""
    row = ["of these the compiler's own: padding, scratch"]
    for profile in profiles.values():
        row.append("")
        if profile.measured is not None:
            own = own_bytes(profile)
            row.append(format_bytes(own) if own > 0 else "-")
    after = 1 + [attribute for _, attribute in PARTS].index("temp_bytes")
    if not any(own_bytes(profile) > 0 for profile in profiles.values()):
        return section
    return dataclasses.replace(section, rows=[*section.rows[:after], row, *section.rows[after:]])


def own_bytes(profile: MemoryProfile) -> int:
    """Measured temporaries that the static profile does not have; 0 or negative if there are none."""
    return profile.measured.temp_bytes - profile.temp_bytes if isinstance(profile.measured, Measured) else 0


def _parts_table(
    profiles: Mapping[str, MemoryProfile], parts: Mapping[str, str]
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Heads and rows: parts as estimated and, if the program was compiled, as the compiler reports them.

    Args:
        parts: the attribute of each part in `MemoryProfile` and `Measured`, by its label.
    """
    heads, columns = [""], [list(parts)]
    for name, profile in profiles.items():
        heads.append(f"{name} static".strip())
        estimates = ("static_peak_bytes" if attribute == "peak_bytes" else attribute for attribute in parts.values())
        columns.append([format_bytes(getattr(profile, attribute)) for attribute in estimates])
        if profile.measured is not None:
            heads.append(f"{name} measured".strip())
            columns.append([_measured_text(profile.measured, attribute) for attribute in parts.values()])
    return heads, list(zip(*columns, strict=True))


def _measured_text(measured: Measured | Refused, attribute: str) -> str:
    if isinstance(measured, Measured):
        return format_bytes(getattr(measured, attribute))
    if attribute != "peak_bytes":
        return "-"
    return "refused" if measured.needed_bytes is None else f"{format_bytes(measured.needed_bytes)} (refused)"


def refused_notes(profiles: Mapping[str, MemoryProfile]) -> Iterator[str]:
    """The messages of compilers that refused a program."""
    for name, profile in profiles.items():
        if isinstance(profile.measured, Refused):
            message = " ".join(profile.measured.message.split())
            short = message if len(message) <= _MESSAGE_LENGTH else message[: _MESSAGE_LENGTH - 1] + "…"
            yield f"The compiler refused {name}: {short}"


def measured_sections(plan: Plan) -> Iterator[Section]:
    """The peaks that the compilers of several targets report, and the plans that were timed."""
    if len(plan.figures) > 1:
        rows = [_figures_row(figures) for figures in plan.figures]
        heads = ("target", "before", "after")
        yield Section("Measured by each target's compiler", heads, rows, (1, 2), note="the highest peak counts")
    if plan.timings:
        rows = [_timing_row(timing) for timing in plan.timings]
        yield Section("Timed on this machine's device", ("plan", "estimated", "measured"), rows, (1, 2))


def _figures_row(figures: Figures) -> Sequence[str]:
    return (figures.target, *(_measured_text(side, "peak_bytes") for side in (figures.before, figures.after)))


def _timing_row(timing: Timing) -> Sequence[str]:
    times = map(format_seconds, (timing.estimated, timing.measured))
    return (("taken: " if timing.is_taken else "") + timing.what, *times)


def peak_sections(plan: Plan, shown: int) -> Iterator[Section]:
    """The values live at a plan's peaks, and why the last peak is not lower; at most `shown` rows each."""
    yield from live_section(plan.before, "Live at the peak before", shown)
    if plan.steps:
        yield from live_section(plan.after, "Live at the peak after", shown)
    yield from _refusals_section(plan.refusals, shown)


def explanation_sections(explanation: Explanation, shown: int) -> Iterator[Section]:
    """All sections of an explanation; at most `shown` rows of values and refusals, twice as many of steps."""
    yield from memory_sections({"": explanation.profile})
    yield from live_section(explanation.profile, "Live at the peak", shown)
    yield _offers_section(explanation.quicker, "Steps that save time, taken first", 2 * shown)
    goal = f"temporaries of at most {format_bytes(explanation.goal_bytes)}"
    title = f"Steps offered at this peak for {goal}, the ones to try first in front"
    yield _offers_section(explanation.offers, title, 2 * shown)
    yield from _refusals_section(explanation.refusals, shown)


def live_section(profile: MemoryProfile, title: str, shown: int) -> Iterator[Section]:
    """The largest values live at a profile's peak; no section if none are known."""
    rows = [(n, format_value(value), format_source(value.source)) for n, value in worth_showing(profile.live)]
    if rows:
        source = format_source(profile.point) if profile.point else ""
        yield Section(title, ("bytes", "value", "source"), rows, (0,), source).first(shown)


def _offers_section(offers: Sequence[Candidate], title: str, shown: int) -> Section:
    heads = ("frees", "adds", "numerics", "what", "source")
    return Section(title, heads, [*map(_offer_row, offers)], (0, 1), "" if offers else "none").first(shown)


def _offer_row(offer: Candidate) -> Sequence[str]:
    return (
        format_bytes(offer.saved_bytes),
        format_seconds(offer.added_seconds),
        _numerics_text(offer.numerics),
        f"{offer.summary} [{offer.step.pass_name}]",
        format_source(offer.refusal_if_useless.location),
    )


def _refusals_section(refusals: Sequence[Refusal], shown: int) -> Iterator[Section]:
    rows = [
        (format_bytes(r.nbytes), r.value, f"{refusal_text(r)} [{r.code}]", format_source(r.location))
        for r in distinct(refusals)
    ]
    if rows:
        yield Section("Not made smaller", ("bytes", "value", "why", "source"), rows, (0,)).first(shown)


def decision_entries(plan: Plan) -> Iterator[tuple[str, Sequence[str]]]:
    """A numbered title for each step, and the lines that say how, where and at what estimated cost it was done."""
    # A plan read from a file may have summaries without decisions.
    entries = [(decision.what, _decision_lines(decision)) for decision in plan.decisions]
    entries += [(summary, ()) for summary in plan.summaries[len(plan.decisions) :]]
    for number, (what, lines) in enumerate(entries[: len(plan.steps)], 1):
        yield f"{number}. {what}", lines


def _decision_lines(decision: Decision) -> Sequence[str]:
    changes = {
        "peak": format_bytes(-decision.saved_bytes),
        "time": format_seconds(decision.added_seconds),
        "arithmetic": format_flops(decision.added_flops),
    }
    estimates = (f"{name} {text if text.startswith('-') else '+' + text}" for name, text in changes.items())
    return (
        f"{decision.pass_name}, {_numerics_text(decision.numerics)}{how_text(decision)}",
        f"at {format_source(decision.location)}",
        f"estimated: {', '.join((*estimates, *_price(decision)))}",
    )


def _price(decision: Decision) -> Sequence[str]:
    """What a byte costs, for a decision that buys memory with time."""
    if decision.saved_bytes <= 0 or decision.added_seconds <= 0:
        return ()
    size, unit = byte_unit(decision.saved_bytes)
    return (f"{format_seconds(decision.added_seconds / decision.saved_bytes * size)} a {unit}",)


def _numerics_text(numerics: Numerics) -> str:
    return "reassociated" if numerics == "reassociate" else numerics


def outcome(plan: Plan) -> str:
    """The estimated effect of all steps, or why there are none; "" if there is no estimate."""
    if not plan.steps:
        return "No decision was needed." if plan.fits else "Nothing could be done."
    before, after = plan.cost_before, plan.cost_after
    if before is None or after is None:
        return ""
    times = _before_after(before.seconds, after.seconds, format_seconds)
    return f"Estimated time {times}, arithmetic {_before_after(before.flops, after.flops, format_flops)}"


def _before_after(before: float, after: float, form: Callable[[float], str]) -> str:
    ratio = f" (×{after / before:.2f})" if before else ""
    return f"{form(before)} → {form(after)}{ratio}"


def check_section(check: Check, shown: int) -> Section:
    """The errors of a check's results. Of more than `shown`, the wrong ones and those nearest to their limits."""
    heads = ("result", "type", "new − original", "original − f64", "new − f64", "limit", "")
    results = check.results
    if len(results) > shown:
        results = sorted(results, key=lambda result: (result.ok, -result.share))
    return Section(check_headline(check), heads, [*map(_check_row, results)], (2, 3, 4, 5)).first(shown)


def check_headline(check: Check) -> str:
    """One line: whether the results are right, on which device and arguments."""
    wrong, count = sum(not result.ok for result in check.results), len(check.results)
    verdict = f"WRONG: {wrong} of {count} results" if wrong else f"Checked: {count} result{'s' * (count != 1)} right"
    return f"{verdict}, on {check.where}{f' ({check.why})' if check.why else ''}, arguments {check.arguments}"


def _check_row(result: CheckedResult) -> Sequence[str]:
    shape = f"{result.dtype}[{','.join(map(str, result.shape))}]"
    verdict = (result.fault or "ok") + (f", {result.undecided:,} undecided" if result.undecided else "")
    if result.is_exact:
        return (result.path, shape, f"{result.from_original:,.0f} differ", "", "", "", verdict)
    figures = (result.from_original, result.original_from_f64, result.new_from_f64, result.limit)
    return (result.path, shape, *("" if f is None else f"{f:.3g}" for f in figures), verdict)


def check_notes(check: Check) -> Iterator[str]:
    """What a reader needs to know to understand the figures of a check."""
    if check.no_float64:
        yield (
            f"float64 cannot be had: {check.no_float64}. Floats are compared with the original: the limit is the root "
            "of the dtype's epsilon times the largest magnitude"
        )
    for result in check.results:
        if result.not_finite:
            yield f"{result.not_finite:.1%} of {result.path} are infinite or not a number, in the original too"
    near = [result.path for result in check.results if result.nudged and not result.is_exact and result.ok]
    if near:
        yield (
            f"The original was run on arguments nudged in their last bits too: the limit of {', '.join(near)} has room "
            "for four times what that changes"
        )
    if any(result.undecided for result in check.results):
        yield "undecided: rounding alone decides there, float64 or nudged arguments change the original as much"
