"""One way to the goal: at each static peak the cheapest candidate that reaches it, until it is reached."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stablehlo_mem.errors import PassError
from stablehlo_mem.ir.graph import nested_graph, op_id
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Refusal, allows
from stablehlo_mem.passes import PASSES, Pass
from stablehlo_mem.planner.search_state import SearchState, apply, taken
from stablehlo_mem.utils import gc_pause

_log = logging.getLogger(__name__)

_MAX_STEPS = 64
_MAX_SIZES = 4
"""Sizes of a candidate that are applied and profiled."""
_TRIED = 6
"""Candidates that are applied and profiled at one peak."""
_NEAR = 1.25
"""Peaks over the goal that are so near to the lowest are as good: later steps bring the rest."""
_TRIED_FAR = 3
"""Likewise of those that reach far."""
_MAX_ROUNDS = 4
"""How often the passes are asked for what saves time: each may make room for another."""
_CREEP = 32
"""A step that brings less than one part in so many of what is missing creeps ..."""
_MAX_CREEPS = 6
"""... and after so many of them the search gives up: what is left is made of many small parts."""
_AHEAD = 4
"""Steps by which one is judged that only makes room for them."""
_RISE = 1.1
"""What saves time may raise the static peak to so many times what it was."""
_Lower = tuple[SearchState | None, list[Candidate], tuple[Refusal, ...]]
"""The state after the best step that lowers a peak, the candidates that only make room, and the refusals."""


def cheapen(state: SearchState, goal: Goal, *, any_peak: bool) -> SearchState:
    """Takes the steps that save time wherever they are, as long as the passes find any.

    Args:
        any_peak: also those that raise the static peak; else it may rise by a little, for the search to see to.
    """
    limit = math.inf if any_peak else _RISE * state.peak.temp_bytes
    for _ in range(_MAX_ROUNDS):
        before = state
        for one in _enabled(goal):
            state = _cheaper(state, one, goal, limit)
        if state is before:
            break
    return dataclasses.replace(state, first=None)


@gc_pause.kept()
def _cheaper(state: SearchState, one: Pass, goal: Goal, limit: float) -> SearchState:
    """The state after the first of a pass's steps that keeps the limit; the same if there is none."""
    for candidate in one.cheapen(state.graph, goal):
        new = _applied(state, candidate, goal)
        if new is not None and new.peak.temp_bytes <= limit:
            return taken(state, new)
    return state


def _applied(state: SearchState, candidate: Candidate, goal: Goal) -> SearchState | None:
    """The state after a candidate; None where its pass fails, a bug that a line at debug level tells of."""
    try:
        return apply(state, candidate, goal)
    except PassError as error:
        _log.debug("left alone: %s: %s", candidate.summary, " ".join(str(error).split()), extra={"failure": error})
        return None


def descend(
    state: SearchState,
    goal: Goal,
    not_first: frozenset[Refusal],
    hopeless: Callable[[SearchState], bool] = lambda _: False,
) -> tuple[SearchState, tuple[Refusal, ...]]:
    """One way down, always on with the best step there is.

    Args:
        not_first: candidates not to begin with, by the `SearchState.first` of earlier ways.
        hopeless: whether a state on the way is not worth going on from.

    Returns:
        The last state, and the refusals at its peak if no step reaches the goal.
    """
    begun, creeps = state, 0
    for _ in range(_MAX_STEPS):
        if state.peak.temp_bytes <= goal.temp_bytes:
            return state, ()
        if hopeless(state):
            return state, ()
        following, refusals = best_step(state, goal, not_first if state is begun else frozenset())
        if following is None:
            return state, refusals
        missing, brought = (state.peak.temp_bytes - least for least in (goal.temp_bytes, following.peak.temp_bytes))
        creeps += 0 < brought < missing / _CREEP
        if creeps > _MAX_CREEPS:
            return state, refusals
        state = taken(state, following)
    return state, propose(state, goal)[1]


def best_step(
    state: SearchState, goal: Goal, excluded: frozenset[Refusal]
) -> tuple[SearchState | None, tuple[Refusal, ...]]:
    """The state after the best step there is, none if there is none; and why the others were not taken."""
    following, openings, refusals = _lower_step(state, goal, excluded)
    # A way that begins otherwise would begin with room for what is excluded.
    if not excluded and not _reaches(following, goal):
        following = _opened(state, openings, goal, following)
    return following, refusals


def faster_step(state: SearchState, goal: Goal) -> SearchState | None:
    """The state after the first step on the way to the goal that is thought to save time, if it does."""

    def find() -> SearchState | None:
        saving = next((c for c in propose(state, goal)[0] if c.added_seconds < 0), None)
        # In the size that is fastest: others might come nearer to the goal, but slower.
        return _applied(state, saving, goal) if saving else None

    new = state.graph.cache.get("faster step", goal, find)
    return new if new and new.seconds < state.seconds and _helps(new, state) else None


def _opened(
    state: SearchState, openings: list[Candidate], goal: Goal, otherwise: SearchState | None
) -> SearchState | None:
    """The state after the step from which the next few come lowest, if that is lower than otherwise."""
    found = otherwise
    lowest = _further(taken(state, otherwise), goal) if openings and otherwise else None
    for candidate in openings:
        if _reaches(lowest, goal):
            break
        new = _applied(state, candidate, goal)
        after = _further(taken(state, new), goal) if new else None
        if after is not None and _helps(after, state) and _lower(lowest, after) is after:
            lowest, found = after, new
    return found


def _further(state: SearchState, goal: Goal) -> SearchState:
    """The state after the next few steps."""
    for _ in range(_AHEAD):
        following = None if _reaches(state, goal) else _lower_step(state, goal, frozenset())[0]
        if following is None:
            break
        state = taken(state, following)
    return state


def _lower_step(state: SearchState, goal: Goal, excluded: frozenset[Refusal]) -> _Lower:
    """What `_find_lower` finds, kept with the graph.

    Ways that share their first steps ask for the next ones again, and a way goes on where it was looked ahead.
    """
    return state.graph.cache.get("lower step", (goal, excluded), lambda: _find_lower(state, goal, excluded))


def _find_lower(state: SearchState, goal: Goal, excluded: frozenset[Refusal]) -> _Lower:
    """The best step that lowers the peak, where there is one, and what else was proposed."""
    proposed, refusals = _proposed(state, goal, excluded)
    candidates = [c for c in proposed if not c.needs_lookahead]
    following: SearchState | None = None
    # Where those near are not thought to do they are tried last: what reaches further may do.
    promising = any(c.saved_bytes >= state.peak.temp_bytes - goal.temp_bytes for c in candidates)
    if promising:
        following = _follow(state, candidates[:_TRIED], goal)
    if not _reaches(following, goal):
        far, _ = _proposed(state, dataclasses.replace(goal, include_small_values=True), excluded)
        further = _follow(state, _varied(far)[:_TRIED_FAR], goal)
        if not promising and not _reaches(further, goal):
            following = _follow(state, candidates[:_TRIED], goal)
        following = _lower(following, further)
    openings = [c for c in proposed if c.needs_lookahead]
    return following, openings, _largest_first([*refusals, *(c.refusal_if_useless for c in proposed)])


def unproven(state: SearchState, goal: Goal) -> Iterator[SearchState]:
    """The states after each of the first few candidates, whatever the profile says of them."""
    for candidate in propose(state, goal)[0][:_TRIED]:
        new = _applied(state, candidate, goal)
        if new is not None:
            yield taken(state, new)


@gc_pause.kept()
def propose(state: SearchState, goal: Goal) -> tuple[list[Candidate], tuple[Refusal, ...]]:
    """All candidates at the peak, the ones to try first in front, and the refusals, largest value first."""
    candidates: list[Candidate] = []
    refusals: dict[Refusal, None] = {}
    for one in _enabled(goal):
        for item in one.propose(state.graph, state.peak, goal):
            if isinstance(item, Refusal):
                refusals[item] = None
            elif allows(goal.options, item.numerics):
                candidates.append(item)
    over = state.peak.temp_bytes - goal.temp_bytes
    candidates.sort(key=lambda c: _rank(c, over))
    return candidates, _largest_first(refusals)


def nothing_to_split(state: SearchState) -> Refusal:
    """Where there is no candidate and no refusal: the program's values are small, what is large is the compiler's."""
    graph, op = nested_graph(state.graph, state.peak.path), state.peak.op
    return Refusal(
        op=op_id(state.graph, state.peak.path, op),
        value=graph.ops[op].name.split(".")[-1],
        nbytes=state.peak.temp_bytes,
        dimension=-1,
        code="nothing-to-split",
        message="no value known at the peak is worth a loop; what the compiler needs beyond them is its own",
        location=graph.source(op),
    )


def anywhere(state: SearchState, goal: Goal) -> Iterator[Candidate]:
    """The first step of each pass that saves time wherever it is."""
    for one in _enabled(goal):
        yield from itertools.islice(one.cheapen(state.graph, goal), 1)


def _largest_first(refusals: Iterable[Refusal]) -> tuple[Refusal, ...]:
    return tuple(sorted(dict.fromkeys(refusals), key=lambda r: -r.nbytes))


def _enabled(goal: Goal) -> list[Pass]:
    names = goal.options.passes
    return [p for p in PASSES if names is None or p.name in names]


def _rank(candidate: Candidate, over: int) -> tuple[bool, float, float]:
    """Candidates that reach the goal by time; the others by the memory they free."""
    reaches = candidate.saved_bytes >= over
    return (not reaches, candidate.added_seconds if reaches else -candidate.saved_bytes, candidate.added_seconds)


def _proposed(
    state: SearchState, goal: Goal, excluded: frozenset[Refusal]
) -> tuple[list[Candidate], tuple[Refusal, ...]]:
    candidates, refusals = propose(state, goal)
    return [c for c in candidates if c.refusal_if_useless not in excluded], refusals


def _varied(candidates: list[Candidate]) -> list[Candidate]:
    """The candidates, in front the first along each length of axis: what reaches far is alike from all its values."""
    seen: set[Any] = set()
    firsts: list[Candidate] = []
    others: list[Candidate] = []
    for candidate in candidates:
        params = candidate.step.params
        axis = candidate.step.pass_name, params.get("path"), params.get("elements")
        (others if axis in seen else firsts).append(candidate)
        seen.add(axis)
    return firsts + others


def _reaches(state: SearchState | None, goal: Goal) -> bool:
    return state is not None and state.peak.temp_bytes <= goal.temp_bytes


def _lower(one: SearchState | None, other: SearchState | None) -> SearchState | None:
    """The state of the lower peak, the first if they are equal."""
    if one is None or other is None:
        return one or other
    return other if other.peak.temp_bytes < one.peak.temp_bytes else one


def _follow(state: SearchState, candidates: list[Candidate], goal: Goal) -> SearchState | None:
    """The first candidate that reaches the goal; if none does, the fastest of those that come nearest."""
    found: list[SearchState] = []
    for candidate in candidates:
        new = _take(state, candidate, goal)
        if new is not None and new.peak.temp_bytes <= goal.temp_bytes:
            return new
        found += [new] if new is not None else []
    lowest = min((s.peak.temp_bytes for s in found), default=0)
    near = [s for s in found if s.peak.temp_bytes <= _NEAR * lowest]
    return min(near, key=lambda s: (s.added_seconds, s.peak.temp_bytes), default=None)


def _take(state: SearchState, candidate: Candidate, goal: Goal) -> SearchState | None:
    """The state after a candidate, in the fastest of its sizes that reaches the goal; None if it does not help."""
    best: SearchState | None = None
    for _ in range(_MAX_SIZES):
        new = _applied(state, candidate, goal)
        if new is None:
            return None
        if best is not None and not _better(new, best, goal):
            break
        best = new
        resized = _resized(candidate, new.peak.temp_bytes, goal)
        if resized is None:
            break
        candidate = resized
    return best if best is not None and _helps(best, state) else None


def _helps(new: SearchState, state: SearchState) -> bool:
    """Whether the peak is lower after a step, or of other values."""
    before, after = state.peak, new.peak
    return after.temp_bytes < before.temp_bytes or (after.temp_bytes == before.temp_bytes and after.live != before.live)


def _resized(candidate: Candidate, peak_bytes: int, goal: Goal) -> Candidate | None:
    """The candidate in the size that should be best, now that the peak in one size is known; None if it is that.

    The fastest that reaches the goal if a chunk's bytes are as estimated; if none does, the fastest whose chunk is as
    much smaller as the peak should be.
    """
    if not candidate.sizes:
        return None
    needed = candidate.saved_bytes + peak_bytes - goal.temp_bytes
    size = next((s for s in candidate.sizes if s.saved_bytes >= needed), None)
    if size is None:
        all_saved = max(s.saved_bytes for s in candidate.sizes)
        allowed = (all_saved - candidate.saved_bytes) * goal.temp_bytes / peak_bytes
        allowed = max(allowed, goal.chunk_share * goal.temp_bytes)
        size = next((s for s in candidate.sizes if all_saved - s.saved_bytes <= allowed), None)
    if size is None or size.saved_bytes == candidate.saved_bytes:
        return None
    return candidate.resized(size)


def _better(new: SearchState, old: SearchState, goal: Goal) -> bool:
    """Whether another size brought what it should."""
    before, after = old.peak.temp_bytes, new.peak.temp_bytes
    if before <= goal.temp_bytes:
        return after <= goal.temp_bytes and new.added_seconds < old.added_seconds
    return after <= goal.temp_bytes or _pays(before, after, goal.temp_bytes)


def _pays(before: int, after: int, goal: int) -> bool:
    """Whether smaller chunks brought at least half of what they should: else the peak is elsewhere, or fixed."""
    return before - after >= (before - goal) / 2
