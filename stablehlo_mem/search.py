"""The search: candidates at the static peak; the cheapest that reach the goal are applied, until it is reached."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stablehlo_mem.errors import PassError
from stablehlo_mem.ir.graph import nested_graph, op_id
from stablehlo_mem.passes import PASSES, Pass
from stablehlo_mem.plan import Candidate, Goal, Refusal, allows
from stablehlo_mem.states import State, apply, taken

_log = logging.getLogger(__name__)

_MAX_STEPS = 64
_MAX_SIZES = 4
"""Sizes of a candidate that are applied and profiled."""
_SMALL = 500
"""Ops and steps are so few that other ways are tried too if their product is at most this ..."""
_SHARES = (0.75, 1 / 16)
"""... with other shares of the goal for one of several steps than that of `Goal.share` ..."""
_BEGINNINGS = 2
"""... with so many other steps to begin with ..."""
_SMALLER = 2
"""... towards goals ever so much smaller ..."""
CACHES = 4
"""... and from a goal on to temporaries of so many times the chip's cache."""
_REGROUPING = 0.05
"""Share of the program's time that a way must save to be taken though it regroups sums, where another does not."""
_STEP = 0.05
"""Share of it that each further step on the way to the goal must save: estimates are no better than that."""
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
_RISE = 1.1
"""What saves time may raise the static peak to so many times what it was."""


def cheapen(state: State, goal: Goal, *, any_peak: bool) -> State:
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


def _cheaper(state: State, one: Pass, goal: Goal, limit: float) -> State:
    """The state after the first of a pass's steps that keeps the limit; the same if there is none."""
    for candidate in one.cheapen(state.graph, goal):
        try:
            new = apply(state, candidate, goal)
        except PassError:
            _log.exception("left alone: %s", candidate.summary)
            continue
        if new.peak.temp_bytes <= limit:
            return taken(state, new)
    return state


def search(state: State, goal: Goal, not_first: frozenset[Refusal] = frozenset()) -> tuple[State, tuple[Refusal, ...]]:
    """Takes steps until the static temporaries are within the goal or no candidate helps.

    In small programs other ways are tried too, and the fastest that reaches the goal is taken.

    Args:
        not_first: candidates not to begin with, by the `State.first` of earlier searches.

    Returns:
        The last state, and the refusals at its peak if the goal was not reached.
    """
    found, refusals = _descend(state, goal, not_first)
    if not _is_small(state, found):
        return found, refusals
    if refusals:
        # A first step in small chunks may leave nothing for another to split; in the smallest it may need no other.
        aims = (_roomy(goal), dataclasses.replace(goal, share=0.0))
        another = next(filter(None, (_reaching(state, aim, not_first) for aim in aims)), None)
        return (another, ()) if another else (found, refusals)
    return min((found, *_others(state, goal, not_first, found)), key=_worth(state, goal)), ()


def ways(state: State, goal: Goal) -> list[State]:
    """The ways that reach the goal, those to prefer in front: of them `search` takes the first."""
    found = _reaching(state, goal, frozenset())
    if found is None:
        return []
    others = _others(state, goal, frozenset(), found) if _is_small(state, found) else ()
    return sorted((found, *others), key=_worth(state, goal))


def _is_small(begun: State, found: State) -> bool:
    """Whether a program is so small, and a way taken at all, that others are looked for."""
    count = len(found.steps) - len(begun.steps)
    return 0 < count * len(found.graph.ops) <= _SMALL


def _worth(begun: State, goal: Goal) -> Callable[[State], float]:
    """What ways are preferred by: seconds, and those that they must save to be taken."""
    return lambda found: found.seconds + max(0.0, begun.seconds) * _dislike(begun, goal, found)


def _dislike(begun: State, goal: Goal, found: State) -> float:
    """The share of the program's time that a way must save to be taken: what regroups, and steps to the goal."""
    count, peak_bytes = 0, begun.peak.temp_bytes
    for decision in found.decisions[len(begun.decisions) :]:
        count += peak_bytes > goal.temp_bytes
        peak_bytes -= decision.saved_bytes
    return _REGROUPING * found.regroups + _STEP * count


def _others(state: State, goal: Goal, not_first: frozenset[Refusal], found: State) -> Iterator[State]:
    """Other ways down that reach the goal: with other shares of it for each step, with other steps to begin with."""
    shares = (_reaching(state, dataclasses.replace(goal, share=share), not_first) for share in _SHARES)
    yield from filter(None, shares)
    yield from _variants(state, goal, not_first, found)
    for aim in _smaller(goal):
        reaching = _reaching(state, aim, not_first)
        if reaching is not None:
            yield reaching
            yield from _variants(state, aim, not_first, reaching)
    for _ in range(_BEGINNINGS):
        if found.first is None:
            return
        not_first |= {found.first}
        another = _reaching(state, goal, not_first)
        if another is None:
            return
        found = another
        yield found
        yield from _variants(state, goal, not_first, found)


def _smaller(goal: Goal) -> Iterator[Goal]:
    """Goals from which a way may lead on into the chip's cache: what is fastest there does not begin with much room."""
    temp_bytes = goal.temp_bytes // _SMALLER
    while goal.chip.cache_bytes and temp_bytes > CACHES * goal.chip.cache_bytes:
        yield dataclasses.replace(goal, temp_bytes=temp_bytes)
        temp_bytes //= _SMALLER


def _variants(state: State, goal: Goal, not_first: frozenset[Refusal], found: State) -> Iterator[State]:
    """Ways that begin like one that was found: without its regrouped sums, and on to steps that stay in the cache."""
    exact = dataclasses.replace(goal, options=dataclasses.replace(goal.options, numerics="exact"))
    others = [_reaching(state, aim, not_first) for aim in (_roomy(goal), *([exact] if found.regroups else []))]
    ways = [found, *filter(None, others)]
    yield from ways[1:]
    for way in ways:
        further = _into_cache(way, goal)
        yield further
        if further.regroups and not way.regroups:
            yield _into_cache(way, exact)


def _roomy(goal: Goal) -> Goal:
    """The same goal, where a step that cannot reach it takes as much as is fastest: later ones do the rest."""
    return dataclasses.replace(goal, share=math.inf)


def _into_cache(state: State, goal: Goal) -> State:
    """Where the way leads on from a state that has reached the goal, as long as it gets faster in the chip's cache."""
    cached = CACHES * goal.chip.cache_bytes
    aim = dataclasses.replace(goal, temp_bytes=min(cached, goal.temp_bytes))
    while cached and state.peak.temp_bytes > aim.temp_bytes:
        following, _ = _best_step(state, aim, frozenset())
        if following is None or following.seconds >= state.seconds:
            break
        state = taken(state, following)
    return state


def _reaching(state: State, goal: Goal, not_first: frozenset[Refusal]) -> State | None:
    """Where a way leads, if it reaches the goal by any step."""
    found, refusals = _descend(state, goal, not_first)
    return found if found.steps != state.steps and not refusals else None


def _descend(state: State, goal: Goal, not_first: frozenset[Refusal]) -> tuple[State, tuple[Refusal, ...]]:
    """One way down, always on with the best step there is."""
    begun, creeps = state, 0
    for _ in range(_MAX_STEPS):
        if state.peak.temp_bytes <= goal.temp_bytes:
            return state, ()
        following, refusals = _best_step(state, goal, not_first if state is begun else frozenset())
        if following is None:
            return state, refusals
        missing, brought = (state.peak.temp_bytes - least for least in (goal.temp_bytes, following.peak.temp_bytes))
        creeps += 0 < brought < missing / _CREEP
        if creeps > _MAX_CREEPS:
            return state, refusals
        state = taken(state, following)
    return state, propose(state, goal)[1]


def _best_step(state: State, goal: Goal, excluded: frozenset[Refusal]) -> tuple[State | None, tuple[Refusal, ...]]:
    """The state after the best step there is, none if there is none; and why the others were not taken."""
    candidates, refusals = _proposed(state, goal, excluded)
    following: State | None = None
    # Where those near are not thought to do they are tried last: what reaches further may do.
    promising = any(c.saved_bytes >= state.peak.temp_bytes - goal.temp_bytes for c in candidates)
    if promising:
        following = _follow(state, candidates[:_TRIED], goal)
    if not _reaches(following, goal):
        far, _ = _proposed(state, dataclasses.replace(goal, far=True), excluded)
        further = _follow(state, _varied(far)[:_TRIED_FAR], goal)
        if not promising and not _reaches(further, goal):
            following = _follow(state, candidates[:_TRIED], goal)
        following = _lower(following, further)
    return following, _largest_first([*refusals, *(c.otherwise for c in candidates)])


def unproven(state: State, goal: Goal) -> Iterator[State]:
    """The states after each of the first few candidates, whatever the profile says of them."""
    for candidate in propose(state, goal)[0][:_TRIED]:
        try:
            yield taken(state, apply(state, candidate, goal))
        except PassError:
            _log.exception("left alone: %s", candidate.summary)


def propose(state: State, goal: Goal) -> tuple[list[Candidate], tuple[Refusal, ...]]:
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


def nothing_to_split(state: State) -> Refusal:
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


def anywhere(state: State, goal: Goal) -> Iterator[Candidate]:
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


def _proposed(state: State, goal: Goal, excluded: frozenset[Refusal]) -> tuple[list[Candidate], tuple[Refusal, ...]]:
    candidates, refusals = propose(state, goal)
    return [c for c in candidates if c.otherwise not in excluded], refusals


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


def _reaches(state: State | None, goal: Goal) -> bool:
    return state is not None and state.peak.temp_bytes <= goal.temp_bytes


def _lower(one: State | None, other: State | None) -> State | None:
    """The state of the lower peak, the first if they are equal."""
    if one is None or other is None:
        return one or other
    return other if other.peak.temp_bytes < one.peak.temp_bytes else one


def _follow(state: State, candidates: list[Candidate], goal: Goal) -> State | None:
    """The first candidate that reaches the goal; if none does, the fastest of those that come nearest."""
    found: list[State] = []
    for candidate in candidates:
        try:
            new = _take(state, candidate, goal)
        except PassError:
            # The part is left alone; the log has what a bug report needs.
            _log.exception("left alone: %s", candidate.summary)
            continue
        if new is not None and new.peak.temp_bytes <= goal.temp_bytes:
            return new
        found += [new] if new is not None else []
    lowest = min((s.peak.temp_bytes for s in found), default=0)
    near = [s for s in found if s.peak.temp_bytes <= _NEAR * lowest]
    return min(near, key=lambda s: (s.added_seconds, s.peak.temp_bytes), default=None)


def _take(state: State, candidate: Candidate, goal: Goal) -> State | None:
    """The state after a candidate, in the fastest of its sizes that reaches the goal; None if it does not help."""
    best: State | None = None
    for _ in range(_MAX_SIZES):
        new = apply(state, candidate, goal)
        if best is not None and not _better(new, best, goal):
            break
        best = new
        resized = _resized(candidate, new.peak.temp_bytes, goal)
        if resized is None:
            break
        candidate = resized
    if best is None or best.peak.temp_bytes > state.peak.temp_bytes:
        return None
    return best if best.peak.temp_bytes < state.peak.temp_bytes or best.peak.live != state.peak.live else None


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
        allowed = max(allowed, goal.share * goal.temp_bytes)
        size = next((s for s in candidate.sizes if all_saved - s.saved_bytes <= allowed), None)
    if size is None or size.saved_bytes == candidate.saved_bytes:
        return None
    return candidate.resized(size)


def _better(new: State, old: State, goal: Goal) -> bool:
    """Whether another size brought what it should."""
    before, after = old.peak.temp_bytes, new.peak.temp_bytes
    if before <= goal.temp_bytes:
        return after <= goal.temp_bytes and new.added_seconds < old.added_seconds
    return after <= goal.temp_bytes or _pays(before, after, goal.temp_bytes)


def _pays(before: int, after: int, goal: int) -> bool:
    """Whether smaller chunks brought at least half of what they should: else the peak is elsewhere, or fixed."""
    return before - after >= (before - goal) / 2
