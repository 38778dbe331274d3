"""The smallest peak: static goals ever smaller, and between those that were reached and those that were not."""

from __future__ import annotations

import math
from collections.abc import Iterator

from stablehlo_mem.pass_api.candidate import Goal, Step
from stablehlo_mem.planner.evaluator import Evaluation, Evaluator, Form
from stablehlo_mem.targets.chips import Chip
from stablehlo_mem.targets.measurement import Measured

_MIN_FACTOR = 4
"""Ratio of successive static goals."""
_PATIENCE = 3
"""Smaller goals in a row that may bring nothing."""
_CLOSE = 1.25
"""Goals nearer to one another than this are not told apart."""


def towards_min(trials: Evaluator, original: Evaluation, form: Form) -> Iterator[Evaluation]:
    """Static goals ever smaller, until the peak no longer falls; then such as lie between the last ones.

    A goal that would make the program too slow is not measured unless nothing but its cheaper form has helped: the next
    one lies between it and the last that was fast enough.
    """
    best, helped, stalled, too_small, missed = original.peak_bytes, False, 0, 0.0, 0.0
    chip = original.target.chip
    begun = trials.begin(chip, form)
    reached = fast = float(begun.peak.temp_bytes)
    seen: list[tuple[Step, ...]] = []
    while trials.may_compile and stalled < _PATIENCE:
        goal = max(fast / _MIN_FACTOR, math.sqrt(fast * too_small))
        if too_small and fast <= too_small * _CLOSE:
            break
        state, refusals = trials.search(form, Goal(chip, trials.options, int(goal)))
        if not state.steps:
            break
        if helped and trials.is_slow(state):
            too_small = goal
            continue
        if state.peak.temp_bytes > goal:
            missed = max(missed, goal)
        if state.steps in seen:
            stalled, fast = stalled + 1, goal
            continue
        seen.append(state.steps)
        attempt = trials.measure(state, refusals)
        yield attempt
        stalled = stalled + 1 if attempt.peak_bytes >= best else 0
        is_better = isinstance(attempt.measured, Measured) and attempt.peak_bytes < original.peak_bytes
        helped = helped or (is_better and state.steps != begun.steps)
        if attempt.peak_bytes < best:
            best, reached = attempt.peak_bytes, state.peak.temp_bytes
        fast = goal
    if helped:
        yield from _between(trials, chip, form, reached, max(missed, too_small))


def _between(trials: Evaluator, chip: Chip, form: Form, reached: float, missed: float) -> Iterator[Evaluation]:
    """Halves the way from a static peak that was reached to a goal that was not, as long as that is any way.

    What leads to the one need not begin like what leads to the other.
    """
    while trials.may_compile and reached > missed * _CLOSE:
        goal = math.sqrt(reached * max(missed, reached / _MIN_FACTOR**2))
        state, refusals = trials.search(form, Goal(chip, trials.options, int(goal)))
        is_lower = state.peak.temp_bytes < reached and not trials.is_slow(state)
        if not is_lower or state.peak.temp_bytes > goal:
            missed = goal
        if is_lower:
            reached = state.peak.temp_bytes
            yield trials.measure(state, refusals)
