"""Memory against time: which budgets a program can be brought to, and what that is estimated to cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from stablehlo_mem.errors import InputError
from stablehlo_mem.frontend.program import Program, ingest
from stablehlo_mem.pass_api.candidate import Goal, Options
from stablehlo_mem.planner.branch_and_bound import search
from stablehlo_mem.planner.greedy_search import cheapen
from stablehlo_mem.planner.search_state import SearchState, start_of
from stablehlo_mem.planner.validation import check_options
from stablehlo_mem.results.memory_profile import MemoryProfile, profile_graph
from stablehlo_mem.results.memory_time_curve import CurvePoint
from stablehlo_mem.targets.target import Target
from stablehlo_mem.utils.progress import tell
from stablehlo_mem.utils.units import format_bytes

_GOALS = (2, 4, 16, 64, 256, 1024)
"""The temporaries aimed at are those of the program over so many."""
_NOTHING = 0.01
"""Share of what no rewriting changes below which fewer temporaries are no aim."""


def curve_of_program(program: Program, target: Target, options: Options) -> tuple[CurvePoint, ...]:
    """The points worth having, from the highest peak to the lowest: each takes longer than the one before.

    Raises:
        InputError: an option has no meaning.
    """
    check_options(options)
    goal = Goal(target.chip, options, 0)
    original = start_of(program, goal)
    profile = profile_graph(original.graph, target.chip)
    fixed = profile.static_peak_bytes - profile.temp_bytes
    points: list[CurvePoint] = []
    for state in (original, *_found(original, goal, int(_NOTHING * fixed))):
        slowdown = state.seconds / original.seconds if original.seconds else 1.0
        points.append(CurvePoint(fixed + state.peak.temp_bytes, state.seconds, slowdown, state.decisions))
    return _worth_having(points)


def curve_of_profile(profile: MemoryProfile, options: Options | None = None) -> tuple[CurvePoint, ...]:
    """The curve of the program that was profiled.

    Raises:
        InputError: the profile does not know it, or an option has no meaning.
    """
    if profile.origin is None:
        raise InputError("this profile does not know its program: stablehlo_mem.curve(program) draws its curve")
    return curve_of_program(ingest(profile.origin.program, effects=True), profile.origin.target, options or Options())


def _found(original: SearchState, goal: Goal, nothing: int) -> Iterator[SearchState]:
    """What searches with ever smaller goals find, from the forms of a program."""
    quick = cheapen(original, goal, any_peak=False)
    for begun in [quick, original] if quick.steps else [original]:
        yield begun
        for part in _GOALS:
            least = begun.peak.temp_bytes // part
            if least <= nothing:
                break
            tell(f"search for {format_bytes(least)} of temporaries")
            state, _ = search(begun, dataclasses.replace(goal, temp_bytes=least))
            yield state
            if state.peak.temp_bytes > least:
                break


def _worth_having(points: list[CurvePoint]) -> tuple[CurvePoint, ...]:
    """The points that no other has beaten in memory and time, the highest peak first."""
    kept: list[CurvePoint] = []
    for point in sorted(points, key=lambda p: (p.peak_bytes, p.seconds, len(p.decisions))):
        if not kept or point.seconds < kept[-1].seconds:
            kept.append(point)
    return tuple(reversed(kept))
