"""The greedy descent: at each static peak the best candidate is applied, until the goal is reached.

`planner.discrepancy_search` calls `greedy_descent`; `cheapen` takes the steps that save time before it.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stablehlo_mem.ir.graph import nested_graph
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Identity, Refusal, allows
from stablehlo_mem.pass_api.pass_protocol import AnyPass
from stablehlo_mem.passes import PASSES
from stablehlo_mem.planner.choice import best_of, helps, lower_of, reaches, try_apply
from stablehlo_mem.planner.search_state import SearchState, with_decision
from stablehlo_mem.utils import gc_pause

_MAX_STEPS = 64
"""Steps of a descent: a bound on planning time."""
_MAX_TRIED = 6
"""Candidates that are applied and profiled at one peak: chosen for planning time."""
_MAX_TRIED_SMALL_VALUES = 3
"""Candidates with `Goal.include_small_values` that are applied and profiled: their large loops take long to build."""
_MAX_ROUNDS = 4
"""Rounds over the passes for steps that save time, as a step of one pass may enable another's."""
_SLOW_FRACTION = 32
"""Progress is slow if a step saves less than the missing bytes over this ..."""
_MAX_SLOW_STEPS = 6
"""... and after this many slow steps the descent gives up: the rest is in many small values."""
_LOOKAHEAD_STEPS = 4
"""Steps after an enabling one (`Candidate.needs_lookahead`) by which it is judged."""
MAX_PEAK_RISE = 1.1
"""Steps that save time may raise the static peak to this many times what it was: the search lowers it again."""
_LowerStep = tuple[SearchState | None, list[Candidate], tuple[Refusal, ...]]
"""The state after the best step that lowers a peak, the enabling candidates, and the refusals."""


def cheapen(state: SearchState, goal: Goal, *, any_peak: bool) -> SearchState:
    """Takes the steps that save time anywhere in the program, while the passes find any.

    Args:
        any_peak: whether they may raise the static peak by any amount, and not only by `MAX_PEAK_RISE`.
    """
    limit = math.inf if any_peak else MAX_PEAK_RISE * state.peak.temp_bytes
    for _ in range(_MAX_ROUNDS):
        before = state
        for one in _enabled(goal):
            state = _first_time_saving(state, one, goal, limit)
        if state is before:
            break
    return dataclasses.replace(state, first=None)


def with_enabled_savings(state: SearchState, goal: Goal) -> SearchState:
    """The state after the steps that save time, do not raise the peak, and may have been enabled by others."""
    for one in _enabled(goal):
        if one.is_enabled_by_others:
            state = _first_time_saving(state, one, goal, state.peak.temp_bytes)
    return state


@gc_pause.kept()
def _first_time_saving(state: SearchState, one: AnyPass, goal: Goal, limit: float) -> SearchState:
    """The state after the first time-saving step of a pass with a peak within the limit; the same state if none is."""
    for candidate in one.cheapen(state.graph, goal):
        new = try_apply(state, candidate, goal)
        if new is not None and new.peak.temp_bytes <= limit:
            return with_decision(state, new)
    return state


class SlowSteps:
    """Counts the steps of a descent that save little of what is missing."""

    def __init__(self, goal: Goal):
        self.goal, self.count = goal, 0

    def are_too_many(self, state: SearchState, following: SearchState) -> bool:
        """Whether a step is one slow one too many."""
        missing, saved = (state.peak.temp_bytes - least for least in (self.goal.temp_bytes, following.peak.temp_bytes))
        self.count += 0 < saved < missing / _SLOW_FRACTION
        return self.count > _MAX_SLOW_STEPS


def greedy_descent(
    state: SearchState,
    goal: Goal,
    not_first: frozenset[Identity],
    is_pruned: Callable[[SearchState], bool] = lambda _: False,
    visit: Callable[[SearchState], None] = lambda _: None,
    *,
    looks_ahead: bool = True,
    limit: Callable[[], float] = lambda: math.inf,
) -> tuple[SearchState, tuple[Refusal, ...]]:
    """Takes the best step at each peak.

    Args:
        not_first: candidates not to begin with, from the `SearchState.first` of earlier descents.
        is_pruned: whether to stop at a state.
        visit: is told of every state on the way.
        looks_ahead: whether it may take enabling steps.
        limit: says at each step from how many seconds on no program is tried.

    Returns:
        The last state, and the refusals at its peak if no step reaches the goal.
    """
    root, slow = state, SlowSteps(goal)
    for _ in range(_MAX_STEPS):
        if state.peak.temp_bytes <= goal.temp_bytes:
            return state, ()
        if is_pruned(state):
            return state, ()
        excluded = not_first if state is root else frozenset[Identity]()
        following, refusals = best_step(state, goal, excluded, looks_ahead=looks_ahead, limit=limit())
        if following is None:
            return state, refusals
        if slow.are_too_many(state, following):
            return state, refusals
        state = with_enabled_savings(with_decision(state, following), goal)
        visit(state)
    return state, propose(state, goal)[1]


def best_step(
    state: SearchState,
    goal: Goal,
    excluded: frozenset[Identity],
    *,
    looks_ahead: bool = True,
    limit: float = math.inf,
) -> tuple[SearchState | None, tuple[Refusal, ...]]:
    """The state after the best step, None if no step helps; and why the others were not taken.

    Without a limit what is too slow is tried where nothing else helps.
    """
    following, enabling, refusals = _lower_step(state, goal, excluded, min(limit, goal.max_seconds))
    if math.isinf(limit) and (following is None or following.seconds > goal.max_seconds):
        following, enabling, refusals = _lower_step(state, goal, excluded, limit)
    # With excluded candidates an enabling step would only enable these.
    if looks_ahead and not excluded and not reaches(following, goal):
        following = _enabling_step(state, enabling, goal, following, min(limit, goal.max_seconds))
    return following, refusals


def faster_step(state: SearchState, goal: Goal) -> SearchState | None:
    """The state after the first candidate that is estimated to save time, None if it does not or lowers no peak."""

    def find() -> SearchState | None:
        saving = saving_candidate(state, goal)
        # In its fastest size: others may come nearer to the goal but are slower.
        return try_apply(state, saving, goal) if saving else None

    new = state.graph.cache.get("faster step", goal, find)
    return new if new and new.seconds < state.seconds and helps(new, state) else None


def saving_candidate(state: SearchState, goal: Goal) -> Candidate | None:
    """The first candidate that is estimated to save time, None if none is."""

    def find() -> Candidate | None:
        return next((c for c in propose(state, goal)[0] if c.added_seconds < 0), None)

    return state.graph.cache.get("saving candidate", goal, find)


def _enabling_step(
    state: SearchState, enabling: list[Candidate], goal: Goal, otherwise: SearchState | None, limit: float
) -> SearchState | None:
    """The state after the enabling step whose next few steps come lowest, or `otherwise` if those after it do.

    Those that save time are taken at once: what is computed again for one row is computed for that row only.
    """
    best = otherwise
    lowest = _look_ahead(with_decision(state, otherwise), goal, limit) if enabling and otherwise else None
    for candidate in enabling:
        if reaches(lowest, goal):
            break
        new = try_apply(state, candidate, goal)
        after = _look_ahead(with_enabled_savings(with_decision(state, new), goal), goal, limit) if new else None
        if after is not None and helps(after, state) and lower_of(lowest, after, goal) is after:
            lowest, best = after, new
    return best


def _look_ahead(state: SearchState, goal: Goal, limit: float) -> SearchState:
    """The state after the next few steps that take less than `limit` seconds."""
    for _ in range(_LOOKAHEAD_STEPS):
        following = None if reaches(state, goal) else _lower_step(state, goal, frozenset(), limit)[0]
        if following is None or following.seconds > limit:
            break
        state = with_decision(state, following)
    return state


def _lower_step(state: SearchState, goal: Goal, excluded: frozenset[Identity], limit: float) -> _LowerStep:
    """`_find_lower_step`, cached: descents share their first steps, and a descent repeats those of its look-ahead."""
    find = functools.partial(_find_lower_step, state, goal, excluded, limit)
    return state.graph.cache.get("lower step", (goal, excluded, limit), find)


def _find_lower_step(state: SearchState, goal: Goal, excluded: frozenset[Identity], limit: float) -> _LowerStep:
    """The best step that lowers the peak, and what else was proposed.

    Args:
        limit: seconds beyond which no program is tried, by a candidate's estimate.
    """
    proposed, refusals = _proposed(state, goal, excluded)
    candidates = [c for c in proposed if not c.needs_lookahead]
    # If no candidate is estimated to reach the goal, those that include small values are tried first.
    promising = any(c.saved_bytes >= state.peak.temp_bytes - goal.temp_bytes for c in candidates)
    following = best_of(state, candidates[:_MAX_TRIED], goal, limit=limit) if promising else None
    if not reaches(following, goal):
        more = _with_small_values(state, goal, excluded)
        tried = more if promising else more + candidates[:_MAX_TRIED]
        following = best_of(state, tried, goal, following, limit=limit)
    enabling = enabling_candidates(state, goal, excluded)
    return following, enabling, _with_candidates(refusals, proposed)


def candidates_to_try(state: SearchState, goal: Goal, excluded: frozenset[Identity]) -> list[Candidate]:
    """The candidates that a step may try at a peak, without enabling ones, in the order to try them."""
    near = [c for c in _proposed(state, goal, excluded)[0] if not c.needs_lookahead]
    return near[:_MAX_TRIED] + _with_small_values(state, goal, excluded)


def enabling_candidates(state: SearchState, goal: Goal, excluded: frozenset[Identity]) -> list[Candidate]:
    """The candidates that lower a peak only with steps after them."""
    return [c for c in _proposed(state, goal, excluded)[0] if c.needs_lookahead]


def apply_first_candidates(state: SearchState, goal: Goal) -> Iterator[SearchState]:
    """The states after each of the first few candidates, whether they lower the static peak or not."""
    for candidate in propose(state, goal)[0][:_MAX_TRIED]:
        new = try_apply(state, candidate, goal)
        if new is not None:
            yield with_decision(state, new)


@gc_pause.kept()
def propose(state: SearchState, goal: Goal) -> tuple[list[Candidate], tuple[Refusal, ...]]:
    """All candidates at the peak in the order to try them, and the refusals, largest value first."""
    candidates: list[Candidate] = []
    refusals: dict[Refusal, None] = {}
    for one in (p for p in _enabled(goal) if p.splits_small_values or not goal.include_small_values):
        for item in one.propose(state.graph, state.peak, goal):
            if isinstance(item, Refusal):
                refusals[item] = None
            elif allows(goal.options, item.numerics):
                candidates.append(item)
            else:
                refusals[_needs_numerics(item)] = None
    over = state.peak.temp_bytes - goal.temp_bytes
    candidates.sort(key=lambda c: _rank(c, over))
    return candidates, _largest_first(refusals)


def _needs_numerics(candidate: Candidate) -> Refusal:
    """The refusal of a candidate that `Options.numerics` does not allow."""
    message = f"it could {candidate.summary} with Options(numerics={candidate.numerics!r})"
    return dataclasses.replace(candidate.refusal_if_useless, code=f"needs-{candidate.numerics}", message=message)


def refusals_at(state: SearchState, goal: Goal) -> tuple[Refusal, ...]:
    """Why what is alive at a peak where a descent ended was not made smaller, largest value first."""
    candidates, refusals = propose(state, goal)
    return _with_candidates(refusals, candidates)


def _with_candidates(refusals: Iterable[Refusal], candidates: Iterable[Candidate]) -> tuple[Refusal, ...]:
    return _largest_first([*refusals, *(candidate.refusal_if_useless for candidate in candidates)])


def nothing_to_split(state: SearchState) -> Refusal:
    """The refusal where no pass has a candidate or refusal: the values at the peak are too small to split."""
    peak = state.peak
    name = nested_graph(state.graph, peak.path).ops[peak.op].name.split(".")[-1]
    message = "no value known at the peak is worth a loop; what the compiler needs beyond them is its own"
    return Refusal.at(state.graph, (peak.path, peak.op), name, peak.temp_bytes, "nothing-to-split", message)


def time_saving_candidates(state: SearchState, goal: Goal) -> Iterator[Candidate]:
    """The first step of each pass that saves time anywhere in the program."""
    for one in _enabled(goal):
        yield from itertools.islice(one.cheapen(state.graph, goal), 1)


def _largest_first(refusals: Iterable[Refusal]) -> tuple[Refusal, ...]:
    return tuple(sorted(dict.fromkeys(refusals), key=lambda r: -r.nbytes))


def _enabled(goal: Goal) -> list[AnyPass]:
    names = goal.options.passes
    return [p for p in PASSES if (names is None or p.name in names) and p.serves({goal.chip.kind})]


def _rank(candidate: Candidate, over: int) -> tuple[bool, float, float]:
    """A sort key: candidates that reach the goal first, by time; then the others, by the memory they save."""
    reaches = candidate.saved_bytes >= over
    return (not reaches, candidate.added_seconds if reaches else -candidate.saved_bytes, candidate.added_seconds)


def _proposed(
    state: SearchState, goal: Goal, excluded: frozenset[Identity]
) -> tuple[list[Candidate], tuple[Refusal, ...]]:
    candidates, refusals = propose(state, goal)
    return [c for c in candidates if c.identity not in excluded], refusals


def _with_small_values(state: SearchState, goal: Goal, excluded: frozenset[Identity]) -> list[Candidate]:
    """The first few candidates with `Goal.include_small_values`."""
    larger, _ = _proposed(state, dataclasses.replace(goal, include_small_values=True), excluded)
    return _families_first(larger)[:_MAX_TRIED_SMALL_VALUES]


def _families_first(candidates: list[Candidate]) -> list[Candidate]:
    """The candidates, in front the first of each family: what reaches far is alike from all its values."""
    seen: set[Any] = set()
    firsts: list[Candidate] = []
    others: list[Candidate] = []
    for candidate in candidates:
        family = candidate.step.pass_name, candidate.family
        (others if family in seen else firsts).append(candidate)
        seen.add(family)
    return firsts + others
