"""Computes an `Explanation`: the proposals of the passes at a program's peak. The api calls it."""

from __future__ import annotations

import dataclasses

from stablehlo_mem.frontend.program import Program
from stablehlo_mem.pass_api.candidate import Goal, Options
from stablehlo_mem.planner import shares
from stablehlo_mem.planner.greedy_search import propose, time_saving_candidates
from stablehlo_mem.planner.search_state import start_of
from stablehlo_mem.planner.validation import below_floor, check_options, for_platforms, is_below
from stablehlo_mem.results.explanation import Explanation
from stablehlo_mem.results.memory_profile import MemoryProfile, Origin, profile_graph
from stablehlo_mem.targets.target import Target
from stablehlo_mem.utils.units import Budget, Share

_GOAL_DIVISOR = 4
"""Without a budget the goal is the temporaries over this."""


def explain_program(program: Program, target: Target, budget: Budget, options: Options) -> Explanation:
    """The steps that passes propose at a program's peak, and their refusals.

    Args:
        budget: bytes of the whole peak to aim at, or a share; "min" for no temporaries, None for a quarter of them.

    Raises:
        InputError: an option is invalid.
    """
    check_options(options)
    goal = Goal(target.chip, for_platforms(options, program, (target,)), 0)
    state = start_of(program, goal)
    profile = dataclasses.replace(profile_graph(state.graph, target.chip), origin=Origin(program.lasting, target))
    budget = shares.of_device(budget, (target,))
    goal = dataclasses.replace(goal, temp_bytes=_goal_bytes(profile, budget))
    candidates, refusals = propose(state, goal)
    candidates += propose(state, dataclasses.replace(goal, include_small_values=True))[0]
    helping = {(c.summary, c.saved_bytes): c for c in reversed(candidates) if c.saved_bytes > 0}
    return Explanation(
        target=target.name,
        profile=profile,
        goal_bytes=goal.temp_bytes,
        quicker=tuple(time_saving_candidates(state, goal)),
        offers=tuple(reversed(helping.values())),
        refusals=refusals,
        impossible=str(below_floor(program, budget)) if is_below(budget, program) else "",
    )


def _goal_bytes(profile: MemoryProfile, budget: Budget) -> int:
    if isinstance(budget, int):
        return max(0, budget - profile.static_peak_bytes + profile.temp_bytes)
    if isinstance(budget, Share):
        return shares.of_temporaries(budget, 0, profile.temp_bytes)
    return 0 if budget == "min" else profile.temp_bytes // _GOAL_DIVISOR
