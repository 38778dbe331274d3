"""Values, refusals and plans in words, for all reports; and the text of a `BudgetError`, which the planner raises."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import get_args

from stablehlo_mem.pass_api.candidate import Numerics, Refusal
from stablehlo_mem.results.decision import Decision
from stablehlo_mem.results.memory_history import LiveValue
from stablehlo_mem.results.memory_profile import MemoryProfile
from stablehlo_mem.results.plan import Plan
from stablehlo_mem.targets.measurement import Measured
from stablehlo_mem.utils.units import format_bytes, format_seconds

PARTS = (
    ("arguments", "argument_bytes"),
    ("outputs", "output_bytes"),
    ("temporaries", "temp_bytes"),
    ("constants", "constant_bytes"),
    ("aliased", "alias_bytes"),
)
"""The parts of a peak with their attributes in `MemoryProfile` and `Measured`; the last one is subtracted."""
SHOWN = 6
"""Rows of a list of values or refusals in a terminal: the largest few matter, `Plan.to_json` has the rest."""
_NOTHING_BESIDE = 1000
"""A value so many times smaller than the largest is left out of reports: three digits are shown."""
_SLOW = 1.5
"""Slowdown from which reports warn: most would accept a quarter, few a half."""
_DONATION_SHARE = 0.5
"""Share of the peak from which arguments and outputs are so large that donation is suggested."""

_PACKAGES = re.compile(r"(^| at )/\S*/(?:site|dist)-packages/")
"""The path of the folder of installed packages, in front of a file of one."""


def format_value(live: LiveValue) -> str:
    """A live value with its type: "dot_general f32[8,16384,16384]"."""
    return f"{live.op_name} {live.dtype}[{','.join(map(str, live.shape))}]" if live.dtype else live.op_name


def unique_values(live: Sequence[LiveValue]) -> list[tuple[str, LiveValue]]:
    """Each distinct live value once, with its bytes: "96 MiB", or "5 × 48 MiB" if there are five."""
    counts = Counter(live)
    return [(f"{n} × " * (n > 1) + format_bytes(value.nbytes), value) for value, n in counts.items()]


def worth_showing(live: Sequence[LiveValue]) -> list[tuple[str, LiveValue]]:
    """`unique_values` without those that are nothing beside the largest, such as the counters of loops."""
    largest = max((value.nbytes for value in live), default=0)
    return unique_values([value for value in live if value.nbytes * _NOTHING_BESIDE >= largest])


def format_source(source: str) -> str:
    """A source line, or "name at line"; "unknown" if it is empty.

    The path is relative to the working directory if it is below it, and to the folder of installed packages in these.
    """
    here = os.path.join(os.getcwd(), "")
    below = source if here == os.sep else re.sub(rf"(^| at ){re.escape(here)}", r"\1", source)
    return _PACKAGES.sub(r"\1", below) or "unknown"


def headline(plan: Plan) -> str:
    """One line: the targets, the peak before and after, and whether the budget is kept."""
    peaks = f"{format_bytes(plan.before.peak_bytes)} → {format_bytes(plan.after.peak_bytes)}"
    if plan.budget_bytes is None:
        verdict = "no limit"
    else:
        is_within = plan.fits or plan.too_slow
        verdict = f"{'within' if is_within else 'OVER'} the budget of {format_bytes(plan.budget_bytes)}"
    if plan.too_slow or plan.slowdown >= _SLOW:
        verdict += f", {'TOO SLOW' if plan.too_slow else 'slow'}: {plan.slowdown:.2g} times the estimated time"
    on_host = f" and {format_bytes(plan.after.host_bytes)} in the host's memory" if plan.after.host_bytes else ""
    return f"{targets_text(plan)}: {peaks}{on_host}, {verdict}"


def targets_text(plan: Plan) -> str:
    """The targets of a plan, and over how many devices the program is distributed: "cpu, each of 8 devices"."""
    devices = plan.before.devices
    return ", ".join(plan.target) + (f", each of {devices} devices" if devices > 1 else "")


def how_text(decision: Decision) -> str:
    """A colon and how a step was done; "" if the pass says no more than its name."""
    return "" if decision.how == decision.pass_name else f": {decision.how}"


def effort_text(plan: Plan) -> str:
    """The cost of planning: "0.41 s of planning, 2 compiles in 3.1 s"."""
    compiles = "1 compile" if plan.compiles == 1 else f"{plan.compiles} compiles"
    ended = f", ended by max_seconds={plan.options.max_seconds:g}" if _is_out_of_time(plan) else ""
    return f"{plan.planning_seconds:.2f} s of planning, {compiles} in {plan.compile_seconds:.2f} s{ended}"


def limit_text(plan: Plan) -> str:
    """The limit of the effort that was reached where the budget is not kept; "" if none was."""
    if plan.fits or plan.too_slow:
        return ""
    limit, count = plan.options.max_compiles, len(plan.target)
    if plan.compiles + count > limit:
        tried = "before anything was tried" if plan.compiles <= count else "before the search ended"
        return f"the limit of compilations was reached {tried}, max_compiles={limit}: at {limit + count} it may fit"
    if _is_out_of_time(plan):
        return f"the limit of time was reached before the search ended, max_seconds={plan.options.max_seconds:g}"
    return ""


def _is_out_of_time(plan: Plan) -> bool:
    limit = plan.options.max_seconds
    return limit is not None and plan.planning_seconds + plan.compile_seconds > limit


def refusal_text(refusal: Refusal) -> str:
    """The reason of a refusal: "dimension 1: sort stands in the way: ..."."""
    return f"dimension {refusal.dimension}: {refusal.message}" if refusal.dimension >= 0 else refusal.message


def distinct(refusals: Sequence[Refusal]) -> list[Refusal]:
    """The refusals without those that print the same as an earlier one."""
    return list({(r.value, r.dimension, r.message, r.location): r for r in reversed(refusals)}.values())[::-1]


def advice(plan: Plan) -> list[str]:
    """What the user could do if the budget is not kept."""
    if plan.fits:
        return []
    codes = {refusal.code for refusal in plan.refusals}
    modes = [mode for mode in get_args(Numerics) if f"needs-{mode}" in codes]
    lines = [f'allow Options(numerics="{mode}"): what needs it is listed above' for mode in modes]
    if _is_out_of_time(plan):
        lines.append(f"allow more time than Options(max_seconds={plan.options.max_seconds:g})")
    before, after = (p.measured if isinstance(p.measured, Measured) else p for p in (plan.before, plan.after))
    if after.output_bytes > before.output_bytes:
        sizes = [format_bytes(p.output_bytes) for p in (after, before)]
        lines.append("give out_shardings: the results take {} of each device, as written {}".format(*sizes))
    fixed = after.argument_bytes + min(before.output_bytes, after.output_bytes)
    if not after.alias_bytes and fixed > _DONATION_SHARE * plan.after.peak_bytes:
        lines.append(f"donate arguments: they and the outputs are {format_bytes(fixed)} that no rewriting changes")
    if "needs-whole-dimension" in codes:
        lines.append("write the lines that need a whole dimension in another way, or reduce that dimension")
    return lines


def budget_error_text(plan: Plan) -> str:
    """The message of a `BudgetError`: the budget, what is needed and reached, and what stands in the way."""
    if plan.too_slow:
        return _too_slow_text(plan)
    after = plan.after
    budget, needed, reached = _distinct_sizes(plan.budget_bytes or 0, plan.before.peak_bytes, after.peak_bytes)
    lines = [
        f"the budget of {budget} cannot be kept on {targets_text(plan)}: needed {needed}, reached {reached}",
        f"  at the smallest peak: {_parts_text(after)}",
    ]
    if limit := limit_text(plan):
        lines.append(f"  {limit}")
    if plan.smaller_but_slow is not None:
        size, slowdown = format_bytes(plan.smaller_but_slow.peak_bytes), plan.smaller_but_slow.slowdown
        lines.append(
            f"  at {slowdown:.3g} times the estimated time: {size}; Options(max_slowdown={plan.options.max_slowdown}) "
            "allows less"
        )
    if after.live:
        lines.append("largest values live there:")
        lines += [f"  {size}  {format_value(v)}{_at(v.source)}" for size, v in worth_showing(after.live)[:SHOWN]]
    if plan.refusals:
        lines.append("what stands in the way:")
        lines += [f"  {_refusal_line(refusal)}" for refusal in distinct(plan.refusals)[:SHOWN]]
    if suggestions := advice(plan):
        lines += ["what may help:", *(f"  {line}" for line in suggestions)]
    return "\n".join(lines)


def _too_slow_text(plan: Plan) -> str:
    """The message where the budget is kept at too high a price."""
    budget = format_bytes(plan.budget_bytes or 0)
    lines = [
        f"the budget of {budget} is kept on {targets_text(plan)} only at {plan.slowdown:.3g} times the estimated "
        f"time; Options(max_slowdown={plan.options.max_slowdown}) allows less",
        f"  peak of that plan, which is `.best`: {format_bytes(plan.after.peak_bytes)}",
    ]
    if plan.affordable_peak_bytes is not None:
        lines.append(f"  smallest peak found within the limit: {format_bytes(plan.affordable_peak_bytes)}")
    slowest = sorted(plan.decisions, key=lambda d: -d.added_seconds)[:SHOWN]
    lines.append("what takes the time:")
    lines += [f"  {format_seconds(d.added_seconds)}  {d.what}{_at(d.location)}" for d in slowest if d.added_seconds > 0]
    return "\n".join(lines)


def _distinct_sizes(*sizes: int) -> list[str]:
    """Sizes in rounded units, or all in bytes if two different ones would print the same."""
    rounded = [format_bytes(size) for size in sizes]
    return rounded if len(set(rounded)) == len(set(sizes)) else [f"{size:,} B" for size in sizes]


def _parts_text(profile: MemoryProfile) -> str:
    source = profile.measured if isinstance(profile.measured, Measured) else profile
    return ", ".join(f"{label} {format_bytes(getattr(source, attribute))}" for label, attribute in PARTS)


def _refusal_line(refusal: Refusal) -> str:
    return f"{format_bytes(refusal.nbytes)}  {refusal.value}{_at(refusal.location)}: {refusal_text(refusal)}"


def _at(location: str) -> str:
    return f"  at {format_source(location)}" if location else ""
