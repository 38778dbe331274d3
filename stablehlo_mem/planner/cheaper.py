"""Goes back once a program fits: what needs more memory and less time is tried until nothing cheaper fits.

The goal is bracketed by the program that fits and by the smallest one that does not: first where the line between the
two meets the budget (regula falsi), then bisected. `budget_loop` calls `cheaper`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from stablehlo_mem.pass_api.candidate import Goal
from stablehlo_mem.planner.evaluator import Evaluation, Evaluator, Form
from stablehlo_mem.planner.goals import CLOSE_GOALS, on_line
from stablehlo_mem.planner.pareto_front import CLEARLY
from stablehlo_mem.planner.search_state import SearchState

_MAX_RETURNS = 3
"""Compilations of programs that may be cheaper: each takes as long as the one that a user waits for anyway."""
_MAX_SEARCHES = 6
"""Searches for programs between two: a bound on planning time."""
_FULL = 0.95
"""Share of the room that goals aim at, as the interpolation errs."""


def cheaper(
    evaluator: Evaluator,
    form: Form,
    fitting: Evaluation,
    fits: Callable[[Evaluation], bool],
    fixed_bytes: int,
    room: float,
) -> Evaluation:
    """The fastest program that was found to fit, by our estimate.

    Args:
        form: what the searches begin from.
        fitting: the first program that fits; what the evaluator compiled before does not.
        fixed_bytes: what no plan changes.
        room: bytes that the budget leaves for temporaries.
    """
    bracket = _Bracket(evaluator, fits, fixed_bytes, room, fitting)
    seen = {e.state.fingerprint for e in evaluator.evaluations}
    goal, returns = bracket.interpolated(), 0
    if evaluator.is_slow(fitting.state) and bracket.is_close(goal):
        # Nothing much larger fits, but what is had within the limit of the price is to be known.
        goal = bracket.middle(goal)
    for searches in range(_MAX_SEARCHES):
        if not bracket.has_gain(goal, is_first=searches == 0) or returns == _MAX_RETURNS or not evaluator.may_compile:
            break
        state = evaluator.search(form, Goal(fitting.target.chip, evaluator.options, int(goal)))[0]
        if state.fingerprint in seen or not _is_faster(state, bracket.fitting.state):
            goal = bracket.middle(goal)
            continue
        seen.add(state.fingerprint)
        evaluation, returns = evaluator.measure(state, ()), returns + 1
        if fits(evaluation):
            bracket.fitting = evaluation
            goal = bracket.middle(goal)
        else:
            goal = bracket.interpolated()
    return bracket.fitting


@dataclasses.dataclass
class _Bracket:
    """The fastest program that fits so far, and the smallest that does not of those above it: the ceiling."""

    evaluator: Evaluator
    fits: Callable[[Evaluation], bool]
    fixed_bytes: int
    room: float
    fitting: Evaluation

    @property
    def ceiling(self) -> Evaluation | None:
        """The smallest program, by the profile, that does not fit and is larger than the one that does."""
        low = self.fitting.state.peak.temp_bytes
        above = (e for e in self.evaluator.evaluations if e.state.peak.temp_bytes > low and not self.fits(e))
        return min(above, key=lambda e: e.state.peak.temp_bytes, default=None)

    def has_gain(self, goal: float, *, is_first: bool) -> bool:
        """Whether a program for a goal may be clearly faster than the one that fits: the ceiling is.

        Loops may be faster than the ceiling too: the first goal is searched for unless the program that fits is.
        """
        if self.is_close(goal) or self.ceiling is None:
            return False
        fitting, ceiling = self.fitting.state, self.ceiling.state
        return _is_faster(ceiling, fitting) or (is_first and not _is_faster(fitting, ceiling))

    def is_close(self, goal: float) -> bool:
        """Whether a goal is too near to the program that fits for another one to lie between."""
        return goal <= CLOSE_GOALS * self.fitting.state.peak.temp_bytes

    def interpolated(self) -> float:
        """The static peak at which the compiler should report the room, on the line between the two programs."""
        low, ceiling = self.fitting.state.peak.temp_bytes, self.ceiling
        if ceiling is None:
            return low
        high = ceiling.state.peak.temp_bytes
        goal = on_line(self.figures(self.fitting), self.figures(ceiling), _FULL * self.room)
        return (low + high) / 2 if math.isinf(goal) else min(goal, low + _FULL * (high - low))

    def figures(self, evaluation: Evaluation) -> tuple[float, float]:
        """Temporaries of a program: by the profile, and as the compiler reports them."""
        return evaluation.state.peak.temp_bytes, evaluation.peak_bytes - self.fixed_bytes

    def middle(self, goal: float) -> float:
        """The geometric mean of a goal that gave nothing larger than what fits, and of the ceiling."""
        low = max(goal, self.fitting.state.peak.temp_bytes)
        return math.sqrt(low * self.ceiling.state.peak.temp_bytes) if self.ceiling else low


def _is_faster(one: SearchState, other: SearchState) -> bool:
    return one.seconds < (1 - CLEARLY) * other.seconds
