"""`budget="min"`: searches for smaller and smaller static goals, then between the last reached and the first missed.

`budget_loop` calls `minimise_peak`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from stablehlo_mem.pass_api.candidate import Goal, Step
from stablehlo_mem.planner.evaluator import Evaluation, Evaluator, Form
from stablehlo_mem.planner.goals import CLOSE_GOALS
from stablehlo_mem.planner.pareto_front import CLEARLY
from stablehlo_mem.planner.search_state import SearchState
from stablehlo_mem.targets.chips import Chip
from stablehlo_mem.targets.measurement import Measured

_GOAL_RATIO = 4
"""Ratio of successive static goals: two compilations for a sixteenth, and `_bisect` looks between."""
_LITTLE_LEFT = 0.1
"""If temporaries are at most this share of the peak the search ends: it could lower the peak by no more."""
_MAX_STALLED = 3
"""Goals in a row that may bring nothing before the search ends."""


def minimise_peak(
    evaluator: Evaluator, original: Evaluation, form: Form, lowest: SearchState | None
) -> Iterator[Evaluation]:
    """Lowers the static goal until the measured peak stops falling, then searches between the last goals.

    A program that is too slow is not measured once a search has lowered the peak: the next goal lies between its goal
    and the last that gave a fast enough program.

    Args:
        lowest: the smallest program found from other forms, if any: a form from which its peak cannot be lowered
            clearly is left out.
    """
    best, helped, stalled, too_small, missed = original.peak_bytes, False, 0, 0.0, 0.0
    chip = original.target.chip
    root = evaluator.form_state(chip, form)
    reached = fast = float(root.peak.temp_bytes)
    seen: list[tuple[Step, ...]] = []
    if lowest is not None:
        fast = float(lowest.peak.temp_bytes)
        state, _ = evaluator.search(form, Goal(chip, evaluator.options, int((1 - CLEARLY) * fast)))
        if state.peak.temp_bytes > (1 - CLEARLY) * fast or evaluator.is_slow(state):
            return
    while evaluator.may_compile and stalled < _MAX_STALLED:
        goal = max(fast / _GOAL_RATIO, math.sqrt(fast * too_small))
        if too_small and fast <= too_small * CLOSE_GOALS:
            break
        state, refusals = evaluator.search(form, Goal(chip, evaluator.options, int(goal)))
        if not state.steps:
            break
        if helped and evaluator.is_slow(state):
            too_small = goal
            continue
        if state.peak.temp_bytes > goal:
            missed = max(missed, goal)
        if state.steps in seen:
            stalled, fast = stalled + 1, goal
            continue
        seen.append(state.steps)
        evaluation = evaluator.measure(state, refusals)
        yield evaluation
        stalled = stalled + 1 if evaluation.peak_bytes > (1 - CLEARLY) * best else 0
        is_better = isinstance(evaluation.measured, Measured) and evaluation.peak_bytes < original.peak_bytes
        helped = helped or (is_better and state.steps != root.steps)
        if evaluation.peak_bytes < best:
            best, reached = evaluation.peak_bytes, state.peak.temp_bytes
        if has_little_left(evaluation) and not evaluator.is_slow(state):
            return
        fast = goal
    if helped:
        yield from _bisect(evaluator, chip, form, reached, max(missed, too_small))


def _bisect(evaluator: Evaluator, chip: Chip, form: Form, reached: float, missed: float) -> Iterator[Evaluation]:
    """Bisects, on a logarithmic scale, between a static peak that was reached and a goal that was missed.

    A search for a goal between them may take other steps than either.
    """
    while evaluator.may_compile and reached > missed * CLOSE_GOALS:
        goal = math.sqrt(reached * max(missed, reached / _GOAL_RATIO**2))
        state, refusals = evaluator.search(form, Goal(chip, evaluator.options, int(goal)))
        is_lower = state.peak.temp_bytes < reached and not evaluator.is_slow(state)
        if not is_lower or state.peak.temp_bytes > goal:
            missed = goal
        if is_lower:
            reached = state.peak.temp_bytes
            evaluation = evaluator.measure(state, refusals)
            yield evaluation
            if has_little_left(evaluation):
                return


def has_little_left(evaluation: Evaluation) -> bool:
    """Whether the peak is nearly all arguments, outputs and constants."""
    measured = evaluation.measured
    return isinstance(measured, Measured) and measured.temp_bytes <= _LITTLE_LEFT * measured.peak_bytes
