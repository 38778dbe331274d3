"""Figures, values and decisions in words: what every report says alike."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import get_args

from stablehlo_mem.pass_api.candidate import Numerics, Refusal
from stablehlo_mem.results.decision import Decision
from stablehlo_mem.results.memory_history import LiveValue
from stablehlo_mem.results.memory_profile import MemoryProfile
from stablehlo_mem.results.plan import Cost, Plan
from stablehlo_mem.targets.measurement import Measured, Refused
from stablehlo_mem.utils.units import format_bytes, format_flops, format_seconds

PARTS = (
    ("arguments", "argument_bytes"),
    ("outputs", "output_bytes"),
    ("temporaries", "temp_bytes"),
    ("constants", "constant_bytes"),
    ("aliased", "alias_bytes"),
)
"""What a peak is made of, and the attributes of profiles and figures; the last is taken off."""
SHOWN = 6
"""Rows of a list of values or refusals: the largest few matter, the rest is in `Plan.to_json`."""
_MUCH = 0.5
"""Share of a peak from which its arguments and outputs are worth a word."""


def format_value(live: LiveValue) -> str:
    """A live value as one reads it: "dot_general f32[8,16384,16384]"."""
    return f"{live.op_name} {live.dtype}[{','.join(map(str, live.shape))}]" if live.dtype else live.op_name


def grouped(live: Sequence[LiveValue]) -> list[tuple[str, LiveValue]]:
    """Live values that read alike once, with the bytes they take: "96 MiB", "5 × 48 MiB"."""
    counts = Counter(live)
    return [(f"{n} × " * (n > 1) + format_bytes(value.nbytes), value) for value, n in counts.items()]


def format_source(source: str) -> str:
    """A source line as one finds it: below the working directory from there; "unknown" if it is."""
    return source.replace(os.path.join(os.getcwd(), ""), "") or "unknown"


def headline(plan: Plan) -> str:
    """One line: the targets, the peak before and after, and whether the budget is kept."""
    peaks = f"{format_bytes(plan.before.peak_bytes)} → {format_bytes(plan.after.peak_bytes)}"
    if plan.budget_bytes is None:
        verdict = "no limit"
    else:
        verdict = f"{'within' if plan.fits else 'OVER'} the budget of {format_bytes(plan.budget_bytes)}"
    return f"{', '.join(plan.target)}: {peaks}, {verdict}"


def cost_text(before: Cost, after: Cost) -> str:
    """Estimated time and arithmetic before and after: "time 1 s → 1.2 s (×1.20), arithmetic ..."."""
    times = _before_after(before.seconds, after.seconds, format_seconds)
    return f"time {times}, arithmetic {_before_after(before.flops, after.flops, format_flops)}"


def _before_after(before: float, after: float, form: Callable[[float], str]) -> str:
    ratio = f" (×{after / before:.2f})" if before else ""
    return f"{form(before)} → {form(after)}{ratio}"


def worth_text(decision: Decision) -> str:
    """What a decision was estimated to change: "peak -3.94 GiB, time +2.6 ms, arithmetic +0 FLOP"."""
    return (
        f"peak {_signed(format_bytes(-decision.saved_bytes))}, time {_signed(format_seconds(decision.added_seconds))}, "
        f"arithmetic {_signed(format_flops(decision.added_flops))}"
    )


def _signed(text: str) -> str:
    return text if text.startswith("-") else f"+{text}"


def numerics_text(numerics: Numerics) -> str:
    """What a step does to the results, in a word: "exact", "reassociated", "relaxed"."""
    return "reassociated" if numerics == "reassociate" else numerics


def how_text(decision: Decision) -> str:
    """How a step was done, behind a colon; "" where the pass has no more to say than its name."""
    return "" if decision.how == decision.pass_name else f": {decision.how}"


def effort_text(plan: Plan) -> str:
    """What planning took: "2 compiles, 0.41 s of planning"."""
    compiles = "1 compile" if plan.compiles == 1 else f"{plan.compiles} compiles"
    return f"{compiles}, {plan.planning_seconds:.2f} s of planning"


def why_text(refusal: Refusal) -> str:
    """Why a value was not made smaller: "dimension 1: sort stands in the way: ..."."""
    return f"dimension {refusal.dimension}: {refusal.message}" if refusal.dimension >= 0 else refusal.message


def distinct(refusals: Sequence[Refusal]) -> list[Refusal]:
    """Refusals that read differently, each once."""
    return list({(r.value, r.dimension, r.message, r.location): r for r in reversed(refusals)}.values())[::-1]


def static_part(profile: MemoryProfile, attribute: str) -> int:
    """The estimate of a part of a profile, or of its peak."""
    return profile.static_peak_bytes if attribute == "peak_bytes" else getattr(profile, attribute)


def measured_part(measured: Measured | Refused, attribute: str) -> str:
    """The compiler's figure for a part of a program, or that it refused."""
    if isinstance(measured, Measured):
        return format_bytes(getattr(measured, attribute))
    if attribute != "peak_bytes":
        return "-"
    return "refused" if measured.needed_bytes is None else f"{format_bytes(measured.needed_bytes)} (refused)"


def refused_text(name: str, measured: Measured | Refused | None) -> str:
    """What a compiler said that refused a program, "" if it did not."""
    if not isinstance(measured, Refused):
        return ""
    return f"The compiler refused {name}: {_shortened(' '.join(measured.message.split()), 300)}"


def advice(plan: Plan) -> list[str]:
    """What the user could do where the budget is not kept."""
    if plan.fits:
        return []
    needed = [one for one in get_args(Numerics) if any(r.code == f"needs-{one}" for r in plan.refusals)]
    found = [f'allow Options(numerics="{one}"): what needs it is listed above' for one in needed]
    after = plan.after.measured if isinstance(plan.after.measured, Measured) else plan.after
    passed = after.argument_bytes + after.output_bytes
    if not after.alias_bytes and passed > _MUCH * plan.after.peak_bytes:
        found.append(f"donate arguments: they and the outputs are {format_bytes(passed)} that no rewriting changes")
    if any(r.code == "needs-whole-dimension" for r in plan.refusals):
        found.append("write the lines that need a whole dimension in another way, or reduce that dimension")
    return found


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
        lines += [f"  {size}  {format_value(v)}{_at(v.source)}" for size, v in grouped(after.live)[:SHOWN]]
    if plan.refusals:
        lines.append("what stands in the way:")
        lines += [f"  {_refusal_line(refusal)}" for refusal in distinct(plan.refusals)[:SHOWN]]
    helping = advice(plan)
    if helping:
        lines.append("what may help:")
        lines += [f"  {line}" for line in helping]
    return "\n".join(lines)


def _apart(*sizes: int) -> list[str]:
    """Sizes as one reads them, to the byte where different ones would read the same."""
    short = [format_bytes(size) for size in sizes]
    return short if len(set(short)) == len(set(sizes)) else [f"{size:,} B" for size in sizes]


def _parts_text(profile: MemoryProfile) -> str:
    source = profile.measured if isinstance(profile.measured, Measured) else profile
    return ", ".join(f"{label} {format_bytes(getattr(source, attribute))}" for label, attribute in PARTS)


def _refusal_line(refusal: Refusal) -> str:
    return f"{format_bytes(refusal.nbytes)}  {refusal.value}{_at(refusal.location)}: {why_text(refusal)}"


def _at(location: str) -> str:
    return f"  at {location}" if location else ""


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
