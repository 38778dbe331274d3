"""The search for a goal: one greedy descent and, in small programs, alternatives to it, of which the fastest is taken.

The best step at one peak need not lead to the best program. Alternatives use other chunk sizes, begin with other steps,
or go on until everything stays in the chip's cache. A descent is pruned once it is worse than the best program so far:
branch and bound (Land & Doig, 1960), as steps that save memory take time. `planner.evaluator` calls `search`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

from stablehlo_mem.ir.graph import len_ops
from stablehlo_mem.pass_api.candidate import Goal, Identity, Refusal
from stablehlo_mem.planner.greedy_search import faster_step, greedy_descent, propose
from stablehlo_mem.planner.search_state import SearchState, with_decision

_MAX_OPS_TIMES_STEPS = 300
"""Alternatives are searched if ops times steps of the first descent are at most this: a bound on planning time."""
_CHUNK_SHARES = (0.75, 1 / 16)
"""Values of `Goal.chunk_share` for alternatives: chunks larger and smaller than its default gives."""
_OTHER_FIRST_STEPS = 2
"""Alternatives that begin with another step: chosen for planning time."""
_GOAL_DIVISOR = 2
"""Ratio of successive smaller goals from which a descent may go on into the cache."""
CACHE_MULTIPLE = 4
"""Temporaries of up to this many times the chip's cache are taken to stay in it: chosen, a loop uses a part at once."""
_REGROUP_PENALTY = 0.05
"""Share of the original's time that regrouping sums must save over a program that regroups none ..."""
_STEP_PENALTY = 0.05
"""... and each step more on the way to the goal. Smaller differences are within the error of the time estimates."""
_PRUNE_MARGIN = 0.5
"""A descent is pruned if it is worse than the best program by this share: steps into a cache may win that back."""
_EXTRA_STEPS = 2
"""A descent is pruned after this many steps more than the first one took: a bound on planning time."""
_EXPAND_MARGIN = 0.25
"""Variants of an end are not searched if it is worse than the best by this share: chosen for planning time."""


def search(
    state: SearchState,
    goal: Goal,
    not_first: frozenset[Identity] = frozenset(),
    visit: Callable[[SearchState], None] = lambda _: None,
) -> tuple[SearchState, tuple[Refusal, ...]]:
    """Takes steps until the static temporaries are within the goal or no candidate lowers the peak.

    In small programs alternatives are searched too, and the fastest program that reaches the goal is taken.

    Args:
        not_first: candidates not to begin with, from the `SearchState.first` of earlier searches.
        visit: is told of every state on the way.

    Returns:
        The last state, and the refusals at its peak if the goal is not reached.
    """
    first, refusals = greedy_descent(state, goal, not_first, visit=visit)
    if not _is_small(state, first):
        return first, refusals
    tree = BranchAndBound(state, goal, not_first, visit)
    if refusals:
        # Small chunks in the first step may leave nothing to split for a second; the smallest may need no second.
        aims = (_with_large_chunks(goal), dataclasses.replace(goal, chunk_share=0.0))
        reached = next(filter(None, map(tree.descend_to, aims)), None)
        return (reached, ()) if reached else (first, refusals)
    return min((first, *tree.alternatives(first)), key=tree.objective), ()


def alternatives(state: SearchState, goal: Goal) -> list[SearchState]:
    """The states that reach the goal, best first: `search` takes the first one."""
    tree = BranchAndBound(state, goal, frozenset())
    first = tree.descend_to(goal)
    if first is None:
        return []
    others = tree.alternatives(first) if _is_small(state, first) else ()
    return sorted((first, *others), key=tree.objective)


def _is_small(root: SearchState, end: SearchState) -> bool:
    """Whether a descent took steps, and few enough in a program small enough to search alternatives."""
    count = len(end.steps) - len(root.steps)
    return 0 < count * len_ops(root.graph) <= _MAX_OPS_TIMES_STEPS


class BranchAndBound:
    """The descents from a state to a goal.

    Attributes:
        not_first: candidates that no descent begins with.
        visit: is told of every state.
        incumbent: the least objective so far.
        most_steps: the number of steps after which a descent is pruned.
        expanded: goals, peaks and seconds of the ends whose variants were searched. Ends alike in all three, as loops
            over the batch or the heads of attention, have the same variants.
    """

    def __init__(
        self,
        root: SearchState,
        goal: Goal,
        not_first: frozenset[Identity],
        visit: Callable[[SearchState], None] = lambda _: None,
    ):
        self.root, self.goal, self.not_first, self.visit = root, goal, not_first, visit
        self.incumbent = self.most_steps = math.inf
        self.expanded: set[tuple[Goal, int, str]] = set()

    def objective(self, state: SearchState) -> float:
        """What is minimised: estimated seconds and a penalty."""
        return state.seconds + max(0.0, self.root.seconds) * self.penalty(state)

    def penalty(self, state: SearchState) -> float:
        """A share of the program's time: for regrouped sums, and for each step until the goal was reached."""
        count, peak_bytes = 0, self.root.peak.temp_bytes
        for decision in state.decisions[len(self.root.decisions) :]:
            count += peak_bytes > self.goal.temp_bytes
            peak_bytes -= decision.saved_bytes
        return _REGROUP_PENALTY * state.regroups + _STEP_PENALTY * count

    def is_pruned(self, state: SearchState) -> bool:
        """Whether a descent is abandoned at a state: it is too long, or already worse than the incumbent."""
        if len(state.steps) >= self.most_steps:
            return True
        return state is not self.root and self.is_worse(state, _PRUNE_MARGIN)

    def is_worse(self, state: SearchState, share: float) -> bool:
        """Whether a state is worse than the incumbent by more than a share of it."""
        return self.objective(state) > self.incumbent + share * abs(self.incumbent)

    def is_promising(self, aim: Goal) -> bool:
        """Whether a descent to a goal may end near the incumbent: its first step, if it suffices, is not too slow."""
        first = next((c for c in propose(self.root, aim)[0] if not c.needs_lookahead), None)
        if first is None or self.root.peak.temp_bytes - first.saved_bytes > aim.temp_bytes:
            return first is not None
        return self.root.seconds + first.added_seconds <= self.incumbent + _EXPAND_MARGIN * abs(self.incumbent)

    def descend_to(self, aim: Goal) -> SearchState | None:
        """The end of a descent, None if it takes no step or misses the goal."""
        end, refusals = greedy_descent(self.root, aim, self.not_first, self.is_pruned, self.visit)
        if end.steps == self.root.steps or refusals or end.peak.temp_bytes > aim.temp_bytes:
            return None
        self.incumbent = min(self.incumbent, self.objective(end))
        return end

    def alternatives(self, end: SearchState) -> Iterator[SearchState]:
        """Other ends than one: with other chunk sizes, towards smaller goals, with other first steps."""
        self.incumbent, self.most_steps = min(self.incumbent, self.objective(end)), len(end.steps) + _EXTRA_STEPS
        seen = [end.steps]
        aims = (dataclasses.replace(self.goal, chunk_share=share) for share in _CHUNK_SHARES)
        yield from filter(None, map(self.descend_to, aims))
        yield from self.variants(self.goal, end)
        for aim in _smaller_goals(self.goal):
            reached = self.descend_to(aim) if self.is_promising(aim) else None
            if reached is None or self.is_worse(reached, _EXPAND_MARGIN):
                break
            if reached.steps not in seen:
                seen.append(reached.steps)
                yield reached
                yield from self.variants(aim, reached)
        for _ in range(_OTHER_FIRST_STEPS):
            if end.first is None:
                return
            self.not_first |= {end.first}
            reached = self.descend_to(self.goal)
            if reached is None:
                return
            end = reached
            yield end
            yield from self.variants(self.goal, end)

    def variants(self, goal: Goal, end: SearchState) -> Iterator[SearchState]:
        """Variants of an end: without its regrouped sums, and with further steps into the cache."""
        outcome = goal, end.peak.temp_bytes, f"{end.seconds:.9e}"
        if outcome in self.expanded or self.is_worse(end, _EXPAND_MARGIN):
            return
        self.expanded.add(outcome)
        exact = _without_regrouping(goal)
        # On a chip with a cache, steps into it follow: large chunks would not stay large.
        aims = ([exact] if end.regroups else []) + ([] if goal.chip.cache_bytes else [_with_large_chunks(goal)])
        ends = [end, *filter(None, map(self.descend_to, aims))]
        yield from ends[1:]
        for reached in ends:
            in_cache = self.continue_into_cache(reached, goal)
            self.incumbent = min(self.incumbent, self.objective(in_cache))
            yield in_cache
            if in_cache.regroups and not reached.regroups:
                yield self.continue_into_cache(reached, exact)

    def continue_into_cache(self, state: SearchState, goal: Goal) -> SearchState:
        """The state after further steps that save time, until the temporaries fit the chip's cache."""
        in_cache = CACHE_MULTIPLE * goal.chip.cache_bytes
        aim = dataclasses.replace(goal, temp_bytes=min(in_cache, goal.temp_bytes))
        while in_cache and state.peak.temp_bytes > aim.temp_bytes:
            following = faster_step(state, aim)
            if following is None:
                break
            following = with_decision(state, following)
            self.visit(following)
            if following.regroups and not state.regroups and self.objective(following) > self.objective(state):
                aim = _without_regrouping(aim)
            else:
                state = following
        return state


def _smaller_goals(goal: Goal) -> Iterator[Goal]:
    """Smaller goals above the size of the cache: the fastest program in the cache may begin with small chunks."""
    temp_bytes = goal.temp_bytes // _GOAL_DIVISOR
    while goal.chip.cache_bytes and temp_bytes > CACHE_MULTIPLE * goal.chip.cache_bytes:
        yield dataclasses.replace(goal, temp_bytes=temp_bytes)
        temp_bytes //= _GOAL_DIVISOR


def _with_large_chunks(goal: Goal) -> Goal:
    """The same goal, for which a step that cannot reach it uses the fastest chunk size and later steps do the rest."""
    return dataclasses.replace(goal, chunk_share=math.inf)


def _without_regrouping(goal: Goal) -> Goal:
    """The same goal, reached without regrouping sums."""
    return dataclasses.replace(goal, options=dataclasses.replace(goal.options, numerics="exact"))
