"""`Options.tune`: times the best estimated plan of each kind on this machine's device. `budget_loop` calls it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator

from stablehlo_mem.pass_api.candidate import Goal
from stablehlo_mem.planner.discrepancy_search import alternatives
from stablehlo_mem.planner.evaluator import Evaluation, Evaluator
from stablehlo_mem.planner.search_state import SearchState
from stablehlo_mem.results.plan import Timing
from stablehlo_mem.targets.device_timing import times

_MAX_TIMED = 4
"""Plans that are timed beside the first: each costs a compilation."""
_GOAL_SHARES = (1.0, 0.5, 0.25)
"""Goals, as shares of the room for temporaries: programs with less memory may be faster than estimated."""
_CLEARLY_FASTER = 0.97
"""Another plan is taken if it needs at most this share of the time: timings vary by a few percent."""


def fastest(
    evaluator: Evaluator,
    evaluations: list[Evaluation],
    states: Iterable[SearchState],
    fits: Callable[[Evaluation], bool],
) -> tuple[Evaluation, tuple[Timing, ...]]:
    """The program that is fastest on the device, and all timings.

    Args:
        evaluations: compiled already; the first is taken unless another is clearly faster.
        states: further programs, best estimate first.
        fits: whether a compiled program may be taken.
    """
    evaluations, best = list(evaluations), evaluations[0]
    for state in states:
        if len(evaluations) > _MAX_TIMED or not evaluator.may_compile:
            break
        if all(state.fingerprint != evaluation.state.fingerprint for evaluation in evaluations):
            evaluation = evaluator.measure(state, ())
            evaluations += [evaluation] if fits(evaluation) else []
    target = best.target
    seconds = times(evaluator.program, [a.module for a in evaluations], target.platform, target.devices()[0])
    timed = sorted((s, i) for i, s in enumerate(seconds) if s is not None)
    if not timed:
        return best, ()
    chosen = 0 if seconds[0] is not None and timed[0][0] > _CLEARLY_FASTER * seconds[0] else timed[0][1]
    timings = (Timing(_in_words(evaluations[i].state), evaluations[i].state.seconds, s, i == chosen) for s, i in timed)
    return evaluations[chosen], tuple(timings)


def distinct_kinds(evaluator: Evaluator, goal: Goal) -> Iterator[SearchState]:
    """The best state of each kind at the goal and at shares of it. States with the same `what` of each decision, the
    same ops split along the same dimensions, are of one kind.
    """
    seen: set[tuple[str, ...]] = set()
    for share in _GOAL_SHARES:
        aim = dataclasses.replace(goal, temp_bytes=int(share * goal.temp_bytes))
        for form in evaluator.distinct_forms(goal.chip):
            for state in alternatives(evaluator.form_state(goal.chip, form), aim):
                kind = tuple(decision.what for decision in state.decisions)
                if kind not in seen:
                    seen.add(kind)
                    yield state


def _in_words(state: SearchState) -> str:
    return "; ".join(decision.how for decision in state.decisions) or "as it is"
