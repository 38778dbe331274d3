"""tune=True: the plans thought to be the fastest of their kind are timed on this machine's device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator

from stablehlo_mem.pass_api.candidate import Goal
from stablehlo_mem.planner.branch_and_bound import ways
from stablehlo_mem.planner.evaluator import Evaluation, Evaluator
from stablehlo_mem.planner.search_state import SearchState
from stablehlo_mem.results.plan import Timing
from stablehlo_mem.targets.device_timing import times

_TIMED = 4
"""Plans that are run beside the first."""
_SHARES = (1.0, 0.5, 0.25)
"""Of the room for temporaries: what makes do with less may be faster than estimates say."""
_SURE = 0.97
"""Another plan is taken if it needs at most this share of the time."""


def fastest(
    trials: Evaluator, attempts: list[Evaluation], states: Iterable[SearchState], fits: Callable[[Evaluation], bool]
) -> tuple[Evaluation, tuple[Timing, ...]]:
    """The fastest of some attempts and states, and what was timed.

    Args:
        attempts: compiled already; the first is the one that is taken where nothing is clearly faster.
        states: others, those to prefer in front.
        fits: whether one that was compiled may be taken.
    """
    attempts, best = list(attempts), attempts[0]
    for state in states:
        if len(attempts) > _TIMED or not trials.may_compile:
            break
        if all(state.fingerprint != attempt.state.fingerprint for attempt in attempts):
            attempt = trials.measure(state, ())
            attempts += [attempt] if fits(attempt) else []
    target = best.target
    seconds = times(trials.program, [a.module for a in attempts], target.platform, target.devices()[0])
    ran = sorted((s, i) for i, s in enumerate(seconds) if s is not None)
    if not ran:
        return best, ()
    taken = 0 if seconds[0] is not None and ran[0][0] > _SURE * seconds[0] else ran[0][1]
    timings = (Timing(_in_words(attempts[i].state), attempts[i].state.seconds, s, i == taken) for s, i in ran)
    return attempts[taken], tuple(timings)


def of_each_kind(trials: Evaluator, goal: Goal) -> Iterator[SearchState]:
    """The best way of each kind to the goal, and to parts of it: kinds split the same ops along the same dimensions."""
    seen: set[tuple[str, ...]] = set()
    for share in _SHARES:
        aim = dataclasses.replace(goal, temp_bytes=int(share * goal.temp_bytes))
        for form in trials.differing(goal.chip):
            for state in ways(trials.begin(goal.chip, form), aim):
                kind = tuple(decision.what for decision in state.decisions)
                if kind not in seen:
                    seen.add(kind)
                    yield state


def _in_words(state: SearchState) -> str:
    return "; ".join(decision.how for decision in state.decisions) or "as it is"
