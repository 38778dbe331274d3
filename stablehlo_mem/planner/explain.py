"""What stands at a program's peak, and what could be done there: the search's first look, for people."""

from __future__ import annotations

import dataclasses
from typing import Literal

from stablehlo_mem.frontend.program import Program
from stablehlo_mem.pass_api.candidate import Goal, Options
from stablehlo_mem.planner.greedy_search import anywhere, propose
from stablehlo_mem.planner.search_state import start_of
from stablehlo_mem.planner.validation import check_options
from stablehlo_mem.results.explanation import Explanation
from stablehlo_mem.results.memory_profile import MemoryProfile, Origin, profile_graph
from stablehlo_mem.targets.target import Target

_PART = 4
"""Without a budget, steps are asked for one part in so many of the temporaries."""


def explain_program(
    program: Program, target: Target, budget: int | Literal["min"] | None, options: Options
) -> Explanation:
    """What the passes say to a program at its peak.

    Args:
        budget: bytes of the whole peak to aim at, "min" for as little as can be, None for a quarter of the temporaries.

    Raises:
        InputError: an option has no meaning.
    """
    check_options(options)
    goal = Goal(target.chip, options, 0)
    state = start_of(program, goal)
    profile = dataclasses.replace(profile_graph(state.graph, target.chip), origin=Origin(program.lasting, target))
    goal = dataclasses.replace(goal, temp_bytes=_goal_bytes(profile, budget))
    near, refusals = propose(state, goal)
    far, _ = propose(state, dataclasses.replace(goal, include_small_values=True))
    helping = {(c.summary, c.saved_bytes): c for c in reversed([*near, *far]) if c.saved_bytes > 0}
    return Explanation(
        target=target.name,
        profile=profile,
        goal_bytes=goal.temp_bytes,
        quicker=tuple(anywhere(state, goal)),
        offers=tuple(reversed(helping.values())),
        refusals=refusals,
    )


def _goal_bytes(profile: MemoryProfile, budget: int | Literal["min"] | None) -> int:
    if isinstance(budget, int):
        return max(0, budget - profile.static_peak_bytes + profile.temp_bytes)
    return 0 if budget == "min" else profile.temp_bytes // _PART
