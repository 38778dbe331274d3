"""The sections of reports as plain data, made once: text and pages only differ in how they show them."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterator, Mapping, Sequence

from stablehlo_mem.pass_api.candidate import Candidate, Refusal
from stablehlo_mem.reports.phrases import (
    PARTS,
    cost_text,
    distinct,
    format_source,
    format_value,
    grouped,
    how_text,
    measured_part,
    numerics_text,
    refused_text,
    static_part,
    why_text,
    worth_text,
)
from stablehlo_mem.results.check import Check, CheckedResult
from stablehlo_mem.results.decision import Decision
from stablehlo_mem.results.explanation import Explanation
from stablehlo_mem.results.memory_profile import MemoryProfile
from stablehlo_mem.results.plan import Figures, Plan, Timing
from stablehlo_mem.utils.units import format_bytes, format_seconds


@dataclasses.dataclass(frozen=True)
class Section:
    """A table under a title.

    Attributes:
        heads: one for each column.
        rows: the texts of the cells.
        numbers: the columns of figures.
        note: what belongs to the title, "" for nothing: a place, "none".
        more: how many rows are left out.
        sums: whether the last row is the sum of the others.
    """

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Container[int]
    note: str = ""
    more: int = 0
    sums: bool = False


def memory_section(profiles: Mapping[str, MemoryProfile]) -> Section:
    """What the peaks of profiles are made of, by the estimate and, where it was asked, by the compiler."""
    heads, columns = [""], [[f"− {label}" if attribute == "alias_bytes" else label for label, attribute in PARTS]]
    columns[0].append("peak")
    attributes = [*(attribute for _, attribute in PARTS), "peak_bytes"]
    for name, profile in profiles.items():
        heads.append(f"{name} static".strip())
        columns.append([format_bytes(static_part(profile, attribute)) for attribute in attributes])
        if profile.measured is not None:
            heads.append(f"{name} measured".strip())
            columns.append([measured_part(profile.measured, attribute) for attribute in attributes])
    rows = list(zip(*columns, strict=True))
    return Section("Memory of one execution", heads, rows, range(1, len(heads)), sums=True)


def refused_notes(profiles: Mapping[str, MemoryProfile]) -> list[str]:
    """What the compilers said that refused a program."""
    return [text for name, profile in profiles.items() if (text := refused_text(name, profile.measured))]


def figures_section(figures: Sequence[Figures]) -> Iterator[Section]:
    """The peaks by each target's compiler, where there are several."""
    if len(figures) > 1:
        rows = [(f.target, *(measured_part(side, "peak_bytes") for side in (f.before, f.after))) for f in figures]
        heads = ("target", "before", "after")
        yield Section("Measured by each target's compiler", heads, rows, (1, 2), note="the highest peak counts")


def timings_section(timings: Sequence[Timing]) -> Iterator[Section]:
    """The plans that were timed."""
    if timings:
        rows = [
            (("taken: " if t.is_taken else "") + t.what, *map(format_seconds, (t.estimated, t.measured)))
            for t in timings
        ]
        yield Section("Timed on this machine's device", ("plan", "estimated", "measured"), rows, (1, 2))


def peak_sections(plan: Plan, shown: int) -> Iterator[Section]:
    """What is live at the peaks of a plan, and what was not made smaller: the first few of each."""
    yield from live_section(plan.before, "Live at the peak before", shown)
    if plan.steps:
        yield from live_section(plan.after, "Live at the peak after", shown)
    yield from _refusals_section(plan.refusals, shown)


def explanation_sections(explanation: Explanation, shown: int) -> Iterator[Section]:
    """All of an explanation, the first few of every list."""
    yield memory_section({"": explanation.profile})
    yield from live_section(explanation.profile, "Live at the peak", shown)
    yield _offers_section(explanation.quicker, "Steps that save time, taken first", 2 * shown)
    asked = f"temporaries of at most {format_bytes(explanation.goal_bytes)}"
    title = f"Steps offered at this peak for {asked}, the ones to try first in front"
    yield _offers_section(explanation.offers, title, 2 * shown)
    yield from _refusals_section(explanation.refusals, shown)


def live_section(profile: MemoryProfile, title: str, shown: int) -> Iterator[Section]:
    """The largest values live at the peak of a profile, if it knows any."""
    live = grouped(profile.live)
    if live:
        rows = [(size, format_value(value), format_source(value.source)) for size, value in live[:shown]]
        place = format_source(profile.point) if profile.point else ""
        yield Section(title, ("bytes", "value", "source"), rows, (0,), place, len(live) - len(rows))


def _offers_section(offers: Sequence[Candidate], title: str, shown: int) -> Section:
    rows = [
        (
            format_bytes(offer.saved_bytes),
            format_seconds(offer.added_seconds),
            numerics_text(offer.numerics),
            f"{offer.summary} [{offer.step.pass_name}]",
            format_source(offer.refusal_if_useless.location),
        )
        for offer in offers[:shown]
    ]
    heads = ("frees", "adds", "numerics", "what", "source")
    return Section(title, heads, rows, (0, 1), "" if offers else "none", len(offers) - len(rows))


def _refusals_section(refusals: Sequence[Refusal], shown: int) -> Iterator[Section]:
    different = distinct(refusals)
    if different:
        rows = [
            (format_bytes(r.nbytes), r.value, f"{why_text(r)} [{r.code}]", format_source(r.location))
            for r in different[:shown]
        ]
        heads = ("bytes", "value", "why", "source")
        yield Section("Not made smaller", heads, rows, (0,), more=len(different) - len(rows))


def decision_entries(plan: Plan) -> Iterator[tuple[str, Sequence[str]]]:
    """For each step what was done, numbered, and the lines that say how, where and what it is worth."""
    # A plan read from a file may carry summaries alone.
    entries = [(decision.what, _lines(decision)) for decision in plan.decisions]
    entries += [(summary, ()) for summary in plan.summaries[len(plan.decisions) :]]
    for number, (what, lines) in enumerate(entries[: len(plan.steps)], 1):
        yield f"{number}. {what}", lines


def _lines(decision: Decision) -> Sequence[str]:
    return (
        f"{decision.pass_name}, {numerics_text(decision.numerics)}{how_text(decision)}",
        f"at {format_source(decision.location)}",
        f"estimated: {worth_text(decision)}",
    )


def outcome(plan: Plan) -> str:
    """What all steps together are worth, or why there is none; "" if nothing is known."""
    if not plan.steps:
        return "No decision was needed." if plan.fits else "Nothing could be done."
    if plan.cost_before is None or plan.cost_after is None:
        return ""
    return f"Estimated {cost_text(plan.cost_before, plan.cost_after)}"


def check_section(check: Check, shown: int) -> Section:
    """The results of a check with their errors, under a headline.

    Of many those are shown that are wrong or nearest to their limits.
    """
    count = len(check.results)
    heads = ("result", "type", "new − original", "original − f64", "new − f64", "limit", "")
    worst = sorted(check.results, key=lambda result: (result.ok, -result.share)) if count > shown else check.results
    rows = [_check_row(result) for result in worst[:shown]]
    return Section(check_headline(check), heads, rows, (2, 3, 4, 5), more=count - len(rows))


def check_headline(check: Check) -> str:
    """One line: whether the results are right, where both programs ran and on what."""
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
    """What has to be said beside the figures of a check."""
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
