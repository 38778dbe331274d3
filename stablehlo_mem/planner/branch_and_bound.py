"""The search: one way to the goal, and in small programs others, of which the fastest is taken.

What is best at one peak need not be best in the end. Other ways take other shares of the goal at each step, begin with
other steps, or lead on to where everything stays in the chip's cache. A way is given up where it is already worse than
the best one is: branch and bound (Land & Doig, 1960), as steps towards less memory take time.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from stablehlo_mem.ir.graph import len_ops
from stablehlo_mem.pass_api.candidate import Goal, Refusal
from stablehlo_mem.planner.greedy_search import descend, faster_step, propose
from stablehlo_mem.planner.search_state import SearchState, taken

_SMALL = 300
"""Ops and steps are so few that other ways are tried too if their product is at most this ..."""
_SHARES = (0.75, 1 / 16)
"""... with other shares of the goal for one of several steps than that of `Goal.chunk_share` ..."""
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
_HOPELESS = 0.5
"""A way that is worse than the best by such a share of it is given up: later steps may win some back, in a cache."""
_LONGER = 2
"""So is one that has taken so many steps more than the first and is not there."""
_POOR = 0.25
"""A way that is worse than the best by such a share at its end is not varied."""


def search(
    state: SearchState, goal: Goal, not_first: frozenset[Refusal] = frozenset()
) -> tuple[SearchState, tuple[Refusal, ...]]:
    """Takes steps until the static temporaries are within the goal or no candidate helps.

    In small programs other ways are tried too, and the fastest that reaches the goal is taken.

    Args:
        not_first: candidates not to begin with, by the `SearchState.first` of earlier searches.

    Returns:
        The last state, and the refusals at its peak if the goal was not reached.
    """
    found, refusals = descend(state, goal, not_first)
    if not _is_small(state, found):
        return found, refusals
    others = _Ways(state, goal, not_first)
    if refusals:
        # A first step in small chunks may leave nothing for another to split; in the smallest it may need no other.
        aims = (_roomy(goal), dataclasses.replace(goal, chunk_share=0.0))
        another = next(filter(None, (others.reaching(aim) for aim in aims)), None)
        return (another, ()) if another else (found, refusals)
    return min((found, *others.beside(found)), key=others.worth), ()


def ways(state: SearchState, goal: Goal) -> list[SearchState]:
    """The ways that reach the goal, those to prefer in front: of them `search` takes the first."""
    begun = _Ways(state, goal, frozenset())
    found = begun.reaching(goal)
    if found is None:
        return []
    others = begun.beside(found) if _is_small(state, found) else ()
    return sorted((found, *others), key=begun.worth)


def _is_small(begun: SearchState, found: SearchState) -> bool:
    """Whether a program is so small, and a way taken at all, that others are looked for."""
    count = len(found.steps) - len(begun.steps)
    return 0 < count * len_ops(begun.graph) <= _SMALL


class _Ways:
    """The ways from a state to a goal.

    Attributes:
        not_first: candidates that none of them begins with.
        varied: goals, peaks and seconds of the ways that were varied: dimensions that are alike lead to the same.
        best: what the best so far is worth: seconds, and those it must save to be taken.
        most_steps: that a way may take.
    """

    def __init__(self, begun: SearchState, goal: Goal, not_first: frozenset[Refusal]):
        self.begun, self.goal, self.not_first = begun, goal, not_first
        self.best = self.most_steps = math.inf
        self.varied: set[tuple[Goal, int, str]] = set()

    def worth(self, found: SearchState) -> float:
        """What ways are preferred by: seconds, and those that they must save to be taken."""
        return found.seconds + max(0.0, self.begun.seconds) * self.dislike(found)

    def dislike(self, found: SearchState) -> float:
        """The share of the program's time that a way must save to be taken: what regroups, and steps to the goal."""
        count, peak_bytes = 0, self.begun.peak.temp_bytes
        for decision in found.decisions[len(self.begun.decisions) :]:
            count += peak_bytes > self.goal.temp_bytes
            peak_bytes -= decision.saved_bytes
        return _REGROUPING * found.regroups + _STEP * count

    def is_hopeless(self, state: SearchState) -> bool:
        """Whether a way is worse than the best before it is at its end, or too long."""
        if len(state.steps) >= self.most_steps:
            return True
        return state is not self.begun and self.is_worse(state, _HOPELESS)

    def is_worse(self, state: SearchState, share: float) -> bool:
        """Whether a state is worse than the best by more than such a share of it."""
        return self.worth(state) > self.best + share * abs(self.best)

    def is_promising(self, aim: Goal) -> bool:
        """Whether the first step to a goal, if one is enough, is not thought to make the way a poor one."""
        first = next((c for c in propose(self.begun, aim)[0] if not c.needs_lookahead), None)
        if first is None or self.begun.peak.temp_bytes - first.saved_bytes > aim.temp_bytes:
            return first is not None
        return self.begun.seconds + first.added_seconds <= self.best + _POOR * abs(self.best)

    def reaching(self, aim: Goal) -> SearchState | None:
        """Where a way leads, if it reaches the goal by any step."""
        found, refusals = descend(self.begun, aim, self.not_first, self.is_hopeless)
        if found.steps == self.begun.steps or refusals or found.peak.temp_bytes > aim.temp_bytes:
            return None
        self.best = min(self.best, self.worth(found))
        return found

    def beside(self, found: SearchState) -> Iterator[SearchState]:
        """Other ways down than one: with other shares of the goal for each step, with other steps to begin with."""
        self.best, self.most_steps = min(self.best, self.worth(found)), len(found.steps) + _LONGER
        seen = [found.steps]
        shares = (self.reaching(dataclasses.replace(self.goal, chunk_share=share)) for share in _SHARES)
        yield from filter(None, shares)
        yield from self.variants(self.goal, found)
        for aim in _smaller(self.goal):
            reaching = self.reaching(aim) if self.is_promising(aim) else None
            if reaching is None or self.is_worse(reaching, _POOR):
                break
            if reaching.steps not in seen:
                seen.append(reaching.steps)
                yield reaching
                yield from self.variants(aim, reaching)
        for _ in range(_BEGINNINGS):
            if found.first is None:
                return
            self.not_first |= {found.first}
            another = self.reaching(self.goal)
            if another is None:
                return
            found = another
            yield found
            yield from self.variants(self.goal, found)

    def variants(self, goal: Goal, found: SearchState) -> Iterator[SearchState]:
        """Ways that begin like one: without its regrouped sums, and on to steps that stay in the cache."""
        alike = goal, found.peak.temp_bytes, f"{found.seconds:.9e}"
        if alike in self.varied or self.is_worse(found, _POOR):
            return
        self.varied.add(alike)
        exact = _exact(goal)
        # A way into the cache begins with what is fastest there: room left on it is used for nothing.
        aims = ([exact] if found.regroups else []) + ([] if goal.chip.cache_bytes else [_roomy(goal)])
        ways = [found, *filter(None, map(self.reaching, aims))]
        yield from ways[1:]
        for way in ways:
            further = self.into_cache(way, goal)
            self.best = min(self.best, self.worth(further))
            yield further
            if further.regroups and not way.regroups:
                yield self.into_cache(way, exact)

    def into_cache(self, state: SearchState, goal: Goal) -> SearchState:
        """Where the way leads on from a state that has reached the goal, while it gets faster in the chip's cache."""
        cached = CACHES * goal.chip.cache_bytes
        aim = dataclasses.replace(goal, temp_bytes=min(cached, goal.temp_bytes))
        while cached and state.peak.temp_bytes > aim.temp_bytes:
            following = faster_step(state, aim)
            if following is None:
                break
            following = taken(state, following)
            if following.regroups and not state.regroups and self.worth(following) > self.worth(state):
                aim = _exact(aim)
            else:
                state = following
        return state


def _smaller(goal: Goal) -> Iterator[Goal]:
    """Goals from which a way may lead on into the chip's cache: what is fastest there does not begin with much room."""
    temp_bytes = goal.temp_bytes // _SMALLER
    while goal.chip.cache_bytes and temp_bytes > CACHES * goal.chip.cache_bytes:
        yield dataclasses.replace(goal, temp_bytes=temp_bytes)
        temp_bytes //= _SMALLER


def _roomy(goal: Goal) -> Goal:
    """The same goal, where a step that cannot reach it takes as much as is fastest: later ones do the rest."""
    return dataclasses.replace(goal, chunk_share=math.inf)


def _exact(goal: Goal) -> Goal:
    """The same goal, reached without regrouping sums."""
    return dataclasses.replace(goal, options=dataclasses.replace(goal.options, numerics="exact"))
