"""Memory against time: searches for smaller and smaller goals and keeps the Pareto-optimal programs.

`curve` and the method of the same name of plans and profiles call it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from stablehlo_mem.errors import InputError
from stablehlo_mem.frontend.program import Program, ingest
from stablehlo_mem.pass_api.candidate import Goal, Options
from stablehlo_mem.planner.discrepancy_search import search
from stablehlo_mem.planner.greedy_search import cheapen
from stablehlo_mem.planner.search_state import SearchState, start_of
from stablehlo_mem.planner.validation import check_options, for_platforms
from stablehlo_mem.results.memory_profile import MemoryProfile, profile_graph
from stablehlo_mem.results.memory_time_curve import CurvePoint
from stablehlo_mem.targets.target import Target
from stablehlo_mem.utils import gc_pause
from stablehlo_mem.utils.progress import tell
from stablehlo_mem.utils.units import format_bytes

_GOAL_DIVISORS = (2, 4, 16, 64, 256, 1024)
"""The goals are the program's temporaries over each of these, closer together for the larger, more usual budgets."""
_NEGLIGIBLE = 0.01
"""Goals below this share of arguments, outputs and constants are left out: they change the peak by less than 1%."""


@gc_pause.rare()
def curve_of_program(program: Program, target: Target, options: Options) -> tuple[CurvePoint, ...]:
    """The Pareto-optimal points from the highest peak to the lowest: each is slower than the one before.

    Raises:
        InputError: an option is invalid.
    """
    check_options(options)
    goal = Goal(target.chip, for_platforms(options, program, (target,)), 0)
    original = start_of(program, goal)
    profile = profile_graph(original.graph, target.chip)
    fixed = profile.static_peak_bytes - profile.temp_bytes
    points: list[CurvePoint] = []
    for state in (original, *_search_results(original, goal, int(_NEGLIGIBLE * fixed))):
        slowdown = state.seconds / original.seconds if original.seconds else 1.0
        points.append(CurvePoint(fixed + state.peak.temp_bytes, state.seconds, slowdown, state.decisions))
    return _pareto_front(points)


def curve_of_profile(profile: MemoryProfile, options: Options | None = None) -> tuple[CurvePoint, ...]:
    """The curve of the program that was profiled.

    Raises:
        InputError: the profile does not hold it, or an option is invalid.
    """
    if profile.origin is None:
        raise InputError("this profile does not know its program: stablehlo_mem.curve(program) draws its curve")
    return curve_of_program(ingest(profile.origin.program, effects=True), profile.origin.target, options or Options())


def _search_results(original: SearchState, goal: Goal, negligible: int) -> Iterator[SearchState]:
    """What searches with smaller and smaller goals find, from the program with and without time-saving steps."""
    quick = cheapen(original, goal, any_peak=False)
    for root in [quick, original] if quick.steps else [original]:
        yield root
        for divisor in _GOAL_DIVISORS:
            temp_bytes = root.peak.temp_bytes // divisor
            if temp_bytes <= negligible:
                break
            tell(f"search for {format_bytes(temp_bytes)} of temporaries")
            state, _ = search(root, dataclasses.replace(goal, temp_bytes=temp_bytes))
            yield state
            if state.peak.temp_bytes > temp_bytes:
                break


def _pareto_front(points: list[CurvePoint]) -> tuple[CurvePoint, ...]:
    """The points that no other beats in both memory and time, highest peak first."""
    front: list[CurvePoint] = []
    for point in sorted(points, key=lambda p: (p.peak_bytes, p.seconds, len(p.decisions))):
        if not front or point.seconds < front[-1].seconds:
            front.append(point)
    return tuple(reversed(front))
