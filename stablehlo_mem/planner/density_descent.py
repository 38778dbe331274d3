"""Descends by price: at each peak it takes the step that costs least time for each byte that it saves.

This is the greedy heuristic of the knapsack problem, by density (Dantzig, 1957). `greedy_search` takes the step that
comes lowest instead: it needs fewer steps, and a few cheap ones often cost less than one that saves as much.
`planner.discrepancy_search` calls `density_descent` for large programs, whose other descents would take too long.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from stablehlo_mem.pass_api.candidate import Candidate, Goal
from stablehlo_mem.planner.choice import helps, in_best_size
from stablehlo_mem.planner.greedy_search import SlowSteps, candidates_to_try, with_enabled_savings
from stablehlo_mem.planner.search_state import SearchState, with_decision

_MAX_STEPS = 16
"""Steps of a descent, a bound on planning time: those of GPT-2, BERT and a ViT reached their goals in 4 to 11."""
_MAX_TRIED = 4
"""Candidates that are applied at one peak at most, as estimates err: chosen for planning time."""


def density_descent(state: SearchState, goal: Goal, visit: Callable[[SearchState], None]) -> list[SearchState]:
    """Takes the cheapest step at each peak until the goal is reached or none within the limit of time helps.

    Args:
        visit: is told of every state on the way.

    Returns:
        The states from the first one on.
    """
    path, slow = [state], SlowSteps(goal)
    while state.peak.temp_bytes > goal.temp_bytes and len(path) <= _MAX_STEPS:
        following = _cheapest_step(state, goal)
        if following is None or slow.are_too_many(state, following):
            break
        state = with_enabled_savings(with_decision(state, following), goal)
        path.append(state)
        visit(state)
    return path


def _cheapest_step(state: SearchState, goal: Goal) -> SearchState | None:
    """The state after the step of the least price.

    Candidates are applied in the order of their estimates, until the next estimate is no better than what was found:
    lazy evaluation (Minoux, 1978).
    """
    missing = state.peak.temp_bytes - goal.temp_bytes

    def price(added_seconds: float, saved_bytes: int) -> float:
        """Seconds a byte; what saves time comes first, and bytes beyond the goal are worth nothing."""
        return added_seconds / max(1, min(saved_bytes, missing)) if added_seconds > 0 else added_seconds

    def estimated(candidate: Candidate) -> float:
        return price(candidate.added_seconds, candidate.saved_bytes)

    best, least = None, math.inf
    candidates = [c for c in candidates_to_try(state, goal, frozenset()) if c.saved_bytes > 0]
    for candidate in sorted(candidates, key=estimated)[:_MAX_TRIED]:
        if estimated(candidate) >= least:
            break
        new = in_best_size(state, candidate, goal)
        if new is not None and helps(new, state) and new.seconds <= goal.max_seconds:
            found = price(new.seconds - state.seconds, state.peak.temp_bytes - new.peak.temp_bytes)
            best, least = (new, found) if found < least else (best, least)
    return best
