"""Goes back once a program fits: what needs more memory and less time is tried until nothing cheaper fits.

The goal is bracketed by the program that fits and by the smallest one that does not: first where the line between the
two meets the budget (regula falsi), then bisected. `budget_loop` calls `cheaper`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from stablehlo_mem.pass_api.candidate import Goal
from stablehlo_mem.planner.evaluator import Evaluation, Evaluator, Form
from stablehlo_mem.planner.goals import CLOSE_GOALS
from stablehlo_mem.planner.pareto_front import CLEARLY

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
    others: Sequence[Evaluation],
    fits: Callable[[Evaluation], bool],
    fixed_bytes: int,
    room: float,
) -> Evaluation:
    """The fastest program that was found to fit, by our estimate.

    Args:
        form: what the searches begin from.
        fitting: a program that fits.
        others: programs that do not fit, the original among them.
        fixed_bytes: what no plan changes.
        room: bytes that the budget leaves for temporaries.
    """
    too_large = list(others)
    seen = {e.state.fingerprint for e in (fitting, *others)}
    goal, returns = _first_goal(fitting, too_large, fixed_bytes, room), 0
    for _ in range(_MAX_SEARCHES):
        ceiling = _smallest_above(fitting, too_large)
        if goal <= CLOSE_GOALS * fitting.state.peak.temp_bytes or ceiling is None or ceiling.state.seconds >= (1 - CLEARLY) * fitting.state.seconds:
            break
        if returns == _MAX_RETURNS or not evaluator.may_compile:
            break
        state = evaluator.search(form, Goal(fitting.target.chip, evaluator.options, int(goal)))[0]
        if state.fingerprint not in seen and state.seconds < (1 - CLEARLY) * fitting.state.seconds:
            seen.add(state.fingerprint)
            evaluation, returns = evaluator.measure(state, ()), returns + 1
            if not fits(evaluation):
                too_large.append(evaluation)
                goal = _first_goal(fitting, too_large, fixed_bytes, room)
                continue
            fitting = evaluation
        ceiling = _smallest_above(fitting, too_large)
        goal = math.sqrt(max(goal, fitting.state.peak.temp_bytes) * ceiling.state.peak.temp_bytes) if ceiling else goal
    return fitting


def _smallest_above(fitting: Evaluation, too_large: Sequence[Evaluation]) -> Evaluation | None:
    """The smallest program that does not fit of those larger by the profile than one that does."""
    above = (e for e in too_large if e.state.peak.temp_bytes > fitting.state.peak.temp_bytes)
    return min(above, key=lambda e: e.state.peak.temp_bytes, default=None)


def _first_goal(fitting: Evaluation, too_large: Sequence[Evaluation], fixed_bytes: int, room: float) -> float:
    """The static peak at which the compiler should report the room, on the line between two programs."""
    low, ceiling = fitting.state.peak.temp_bytes, _smallest_above(fitting, too_large)
    if ceiling is None:
        return low
    above = ceiling.peak_bytes - fitting.peak_bytes
    share = (_FULL * room + fixed_bytes - fitting.peak_bytes) / above if 0 < above < math.inf else 0.5
    return low + min(share, 0.9) * (ceiling.state.peak.temp_bytes - low)
