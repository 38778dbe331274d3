"""The search for a goal: a greedy descent, by price in large programs; in small ones others that begin otherwise.

What is best at one peak need not be best in the end. Three ideas from the literature:

- Limited discrepancy search (Harvey & Ginsberg, 1995): the greedy descent is repeated and departs from its heuristic
  once. It does so at the root, where the heuristic knows least (Walsh, 1997), and at the step that adds most time.
- Branch and bound (Land & Doig, 1960): a descent is pruned once it is worse than the best program so far, the
  incumbent, as steps that save memory take time.
- Descents that meet in a state of the same peak and time go on alike, so one of them goes on.

`planner.evaluator` calls `search`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

from stablehlo_mem.ir.graph import len_ops
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Identity, Refusal
from stablehlo_mem.planner.choice import helps, in_best_size, in_smallest_size, lower_of, try_apply
from stablehlo_mem.planner.density_descent import density_descent
from stablehlo_mem.planner.goals import CLOSE_GOALS, is_far
from stablehlo_mem.planner.greedy_search import (
    MAX_PEAK_RISE,
    candidates_to_try,
    enabling_candidates,
    faster_step,
    greedy_descent,
    refusals_at,
    saving_candidate,
    with_enabled_savings,
)
from stablehlo_mem.planner.pareto_front import CLEARLY
from stablehlo_mem.planner.search_state import SearchState, with_decision

_MAX_OPS_TIMES_STEPS = 1500
"""Descents follow the first one until all together took so many steps times ops of the program: a bound on planning
time. Measured with benchmarks/prices.py: with 3000 no training program gets a faster plan, and with 1000 one program of
the suite gets a plan that is 1.07 times slower."""
_FEW_STEPS = 5
"""A program is large if fewer steps than this are left to all descents together. In smaller ones the others mostly find
what a descent by price finds, and with it the plan of a smaller goal would more often be the faster one."""
_PRUNE_MARGIN = 0.25
"""A descent is pruned if it is worse than the incumbent by this share: with 0.1 plans of the suite get up to 1.2 times
slower, as later steps may save time, and 0.5 finds hardly faster ones."""
_LOWER_GOALS = (0.8, 0.64)
"""Shares of a goal that are searched for too, so that a larger budget's plan is no slower: steps of a fifth, chosen."""
CACHE_MULTIPLE = 4
"""Temporaries of up to this many times the chip's cache are taken to stay in it: chosen, a loop uses a part at once."""


def search(
    state: SearchState,
    goal: Goal,
    not_first: frozenset[Identity] = frozenset(),
    visit: Callable[[SearchState], None] = lambda _: None,
    to_beat: float = math.inf,
) -> tuple[SearchState, tuple[Refusal, ...]]:
    """Takes steps until the static temporaries are within the goal or no candidate lowers the peak.

    In small programs other descents follow, and steps that save time. The fastest program within the goal is taken.

    Args:
        not_first: candidates not to begin with, from the `SearchState.first` of earlier searches.
        visit: is told of every state on the way.
        to_beat: seconds of another program within the goal: if the first descent's is not clearly faster, only those
            follow that depart at its dearest step.

    Returns:
        The best state; the lowest one with the refusals at the first descent's peak if the goal is not reached.
    """
    descents = DiscrepancySearch(state, goal, not_first, visit)
    first, refusals = descents.run(to_beat)
    fastest = descents.fastest()
    if fastest is not None:
        return fastest, ()
    return lower_of(first, descents.lowest, goal) or first, refusals


def steps_left(root: SearchState, first: SearchState) -> int:
    """How many steps other descents than the first one may take, together."""
    return _MAX_OPS_TIMES_STEPS // max(1, len_ops(root.graph)) - (len(first.steps) - len(root.steps))


def alternatives(state: SearchState, goal: Goal) -> list[SearchState]:
    """The states that reach the goal, best first: `search` takes the first one."""
    descents = DiscrepancySearch(state, goal, frozenset())
    descents.run()
    return sorted(descents.reached, key=_by_time)


def _by_time(state: SearchState) -> tuple[float, bool, int]:
    """A sort key: the fastest first; of equally fast ones those that regroup no sums, then that with the fewest steps.

    Sums of the same estimates in another order differ in the last digits.
    """
    return float(f"{state.seconds:.9e}"), state.regroups, len(state.steps)


class DiscrepancySearch:
    """The descents from a state to a goal.

    Attributes:
        not_first: candidates that no descent begins with.
        reached: the states after at least one step that are within the goal.
        lowest: the state of the lowest peak after at least one step; one that is too slow only if all are.
        incumbent: the least objective of the states with which descents reached the goal.
        steps_left: how many more steps all descents together may take.
        looks_ahead: whether descents take enabling steps: not where the first one misses the goal by far, nor from the
            dearest step.
        margin: the share by which a descent may be worse than the incumbent: 0 from the dearest step, as what goes on
            from there is to be better.
        met: peaks and seconds of the states from which descents went on, seconds to nine digits, as sums of the same
            estimates in another order differ in the last ones.
    """

    def __init__(
        self,
        root: SearchState,
        goal: Goal,
        not_first: frozenset[Identity],
        visit: Callable[[SearchState], None] = lambda _: None,
    ):
        self.root, self.goal, self.not_first, self._visit = root, goal, not_first, visit
        self.reached: list[SearchState] = []
        self.lowest: SearchState | None = None
        self.incumbent = math.inf
        self.steps_left = 0
        self.looks_ahead, self.margin = True, _PRUNE_MARGIN
        self.met: set[tuple[int, str]] = set()

    def run(self, to_beat: float = math.inf) -> tuple[SearchState, tuple[Refusal, ...]]:
        """The end of the first descent, and the refusals at its peak if it misses the goal; others follow it."""
        path, refusals = self.first_descent()
        first = path[-1]
        taken = len(first.steps) - len(self.root.steps)
        self.steps_left = steps_left(self.root, first)
        reaches = self.is_within(first)
        is_small = self.steps_left > 0
        if is_small and reaches:
            self.save_time(first)
        tries_others = is_small and self.is_clearly_faster(to_beat)
        if tries_others and reaches:
            self.descend_otherwise(first)
        elif tries_others and taken:
            self.begin_enabled()
            self.looks_ahead = not is_far(first.peak.temp_bytes, self.goal.temp_bytes)
            self.take_smallest()
            self.begin_otherwise(self.goal, in_best_size)
        if taken and reaches:
            # Looking ahead takes most of the time of a descent.
            self.looks_ahead, self.margin = False, 0.0
            self.depart_at_dearest(path)
        if tries_others and reaches:
            self.descend_below()
        return first, refusals

    def first_descent(self) -> tuple[list[SearchState], tuple[Refusal, ...]]:
        """The states of the first descent, and the refusals at its last peak if it misses the goal.

        In a large program it is one by price; where that ends far from the goal, or no first step is new to it, a
        greedy one.
        """
        if steps_left(self.root, self.root) < _FEW_STEPS and not self.not_first:
            path = density_descent(self.root, self.goal, self.visit)
            if self.is_within(path[-1]):
                return path, ()
            if path[-1].peak.temp_bytes <= CLOSE_GOALS * self.goal.temp_bytes:
                return path, refusals_at(path[-1], self.goal)
        path = [self.root]

        def follow(state: SearchState) -> None:
            path.append(state)
            self.visit(state)

        _, refusals = greedy_descent(self.root, self.goal, self.not_first, visit=follow)
        return path, refusals

    def is_within(self, state: SearchState) -> bool:
        """Whether a state reaches the goal."""
        return state.peak.temp_bytes <= self.goal.temp_bytes

    def is_clearly_faster(self, seconds: float) -> bool:
        """Whether a state within the goal takes clearly less than so many seconds; true if that is no limit."""
        fastest = self.fastest()
        return math.isinf(seconds) or (fastest is not None and fastest.seconds <= (1 - CLEARLY) * seconds)

    def descend_below(self) -> None:
        """Descends to lower goals: a descent ends with the first step that reaches its goal, though others be faster.

        To some that are little lower, then to half of what the fastest program within the goal leaves, as long as that
        is faster.
        """
        self.looks_ahead, self.margin = True, _PRUNE_MARGIN
        for share in _LOWER_GOALS if self.reached else ():
            self.steps_left = max(self.steps_left, 1 + max(len(state.steps) for state in self.reached))
            self.descend(self.root, dataclasses.replace(self.goal, temp_bytes=int(share * self.goal.temp_bytes)))
        self.looks_ahead, self.margin = False, 0.0
        before, fastest = None, self.fastest()
        while fastest is not None and fastest is not before:
            self.steps_left = max(self.steps_left, 1 + len(fastest.steps))
            self.descend(self.root, dataclasses.replace(self.goal, temp_bytes=fastest.peak.temp_bytes // 2))
            before, fastest = fastest, self.fastest()

    def fastest(self) -> SearchState | None:
        """The fastest state within the goal, None if there is none."""
        within = filter(self.is_within, (self.root, *self.reached))
        return min(within, key=_by_time, default=None)

    def depart_at_dearest(self, path: list[SearchState]) -> None:
        """Departs from a descent at its dearest step, and from the best descent that this leads to, while it is better.

        Large programs have these descents too, though no others.
        """
        better: list[SearchState] | None = path
        while better is not None:
            better = self.departed(better)

    def departed(self, path: list[SearchState]) -> list[SearchState] | None:
        """Goes back to before the step of a descent that adds most time, and descends after each other step.

        Only after steps that add clearly less: several steps that each miss the goal may cost less than one that
        reaches it.

        Returns:
            The best of these descents that reaches the goal and is better than the one given, None if none is.
        """
        dearest = max(range(1, len(path)), key=lambda i: path[i].seconds - path[i - 1].seconds)
        before, after = path[dearest - 1], path[dearest]
        most = after.seconds - CLEARLY * max(0.0, self.root.seconds)
        if before.seconds >= most:
            return None
        best, least = None, self.objective(path[-1])
        self.incumbent = min(self.incumbent, least)
        self.steps_left = max(self.steps_left, len(path))
        for candidate in candidates_to_try(before, self.goal, self.not_first if before is self.root else frozenset()):
            new = self.in_cheaper_size(before, candidate, most) if self.steps_left > 0 else None
            following = self.descend(with_decision(before, new), self.goal) if new is not None else []
            if following and self.is_within(following[-1]):
                objective = self.objective(following[-1])
                if objective < least:
                    best, least = [*path[:dearest], *following], objective
        return best

    def in_cheaper_size(self, before: SearchState, candidate: Candidate, most: float) -> SearchState | None:
        """The state after a candidate in its best size, or where that takes too long in the smallest that does not."""
        if before.seconds + candidate.added_seconds < most:
            new = in_best_size(before, candidate, self.goal)
            if new is not None and new.seconds < most:
                return new
        smallest = in_smallest_size(candidate, before, most)
        new = try_apply(before, smallest, self.goal) if smallest else None
        return new if new is not None and new.seconds < most and helps(new, before) else None

    def take_smallest(self) -> None:
        """Takes the first candidate that alone reaches a goal in its smallest size, where more steps miss it."""
        for candidate in candidates_to_try(self.root, self.goal, self.not_first):
            smallest = in_smallest_size(candidate, self.root)
            new = try_apply(self.root, smallest, self.goal) if smallest else None
            if new is not None and self.is_within(new):
                self.visit(with_decision(self.root, new))
                return

    def descend_otherwise(self, first: SearchState) -> None:
        """Descends after each other first step, without regrouping sums, and towards smaller goals.

        There are steps left for one enabling step, whatever the others took.
        """
        self.begin_otherwise(self.goal, in_best_size)
        self.steps_left = max(self.steps_left, 1 + len(first.steps))
        self.begin_enabled()
        if first.regroups:
            self.descend(self.root, _without_regrouping(self.goal))
        for aim in _smaller_goals(self.goal):
            self.begin_otherwise(aim, in_best_size)
        self.begin_otherwise(self.goal, _in_fastest_size)

    def begin_otherwise(self, aim: Goal, sized: Callable[[SearchState, Candidate, Goal], SearchState | None]) -> None:
        """Descends to a goal after each first step in one size."""
        for candidate in candidates_to_try(self.root, aim, self.not_first):
            # Its fastest size: a bound on the others.
            fastest = candidate.resized(candidate.sizes[0]) if candidate.sizes else candidate
            if self.steps_left > 0 and not self.is_hopeless(fastest):
                new = sized(self.root, candidate, aim)
                if new is not None:
                    self.descend(with_decision(self.root, new), aim)

    def begin_enabled(self) -> None:
        """Descends after each enabling step and the steps that save time after it, whatever its own price."""
        for candidate in enabling_candidates(self.root, self.goal, self.not_first):
            if self.steps_left > 0:
                new = try_apply(self.root, candidate, self.goal)
                if new is not None:
                    self.descend(with_enabled_savings(with_decision(self.root, new), self.goal), self.goal)

    def visit(self, state: SearchState) -> None:
        """Notes a state."""
        self._visit(state)
        self.lowest = lower_of(self.lowest, state, self.goal)
        if self.is_within(state):
            self.reached.append(state)

    def objective(self, state: SearchState) -> float:
        """What is minimised: seconds, plus their error for each step on the way to the goal and for regrouped sums."""
        count, peak_bytes = 0, self.root.peak.temp_bytes
        for decision in state.decisions[len(self.root.decisions) :]:
            count += peak_bytes > self.goal.temp_bytes
            peak_bytes -= decision.saved_bytes
        return state.seconds + self.error_seconds(count + state.regroups)

    def error_seconds(self, count: int) -> float:
        """What so many steps must save to be worth it: differences that are within the error of the estimates."""
        return CLEARLY * count * max(0.0, self.root.seconds)

    def is_hopeless(self, candidate: Candidate) -> bool:
        """Whether a candidate as the first step is estimated to be much worse than the incumbent."""
        regroups = self.root.regroups or candidate.numerics != "exact"
        return self.is_worse(self.root.seconds + candidate.added_seconds + self.error_seconds(1 + regroups))

    def is_worse(self, objective: float) -> bool:
        """Whether an objective is much worse than the incumbent, or worse where there is no margin."""
        return objective > self.bound()

    def bound(self) -> float:
        """The objective beyond which a descent is pruned."""
        return self.incumbent + self.margin * abs(self.incumbent)

    def limit(self) -> float:
        """Seconds from which on a program is pruned or too slow."""
        return min(self.goal.max_seconds, self.bound())

    def is_pruned(self, state: SearchState) -> bool:
        """Whether a descent is abandoned at a state; counts the step to it."""
        self.steps_left -= 1
        if self.steps_left < 0 or state is self.root:
            return self.steps_left < 0
        return self.falls_short(state) or self.is_worse(self.objective(state))

    def falls_short(self, state: SearchState) -> bool:
        """Whether as many steps as are left, each of which saves what the last one did, do not reach the goal."""
        missing = state.peak.temp_bytes - self.goal.temp_bytes
        return missing > (1 + self.steps_left) * state.decisions[-1].saved_bytes > 0

    def descend(self, state: SearchState, aim: Goal) -> list[SearchState]:
        """Goes from the root, or from a state after some steps, to a goal, and on while steps save time.

        Returns:
            The states on the way to the goal; none where another descent came through the first one.
        """
        not_first = self.not_first if state is self.root else frozenset()
        path = [state]

        def follow(following: SearchState) -> None:
            path.append(following)
            self.visit(following)

        if state is not self.root:
            outcome = state.peak.temp_bytes, f"{state.seconds:.9e}"
            if outcome in self.met:
                return []
            self.met.add(outcome)
            self.visit(state)
        end, _ = greedy_descent(
            state, aim, not_first, self.is_pruned, follow, looks_ahead=self.looks_ahead, limit=self.limit
        )
        is_reached = end is not self.root and self.is_within(end)
        if is_reached and not self.is_worse(self.objective(end)):
            self.save_time(end)
        return path

    def save_time(self, state: SearchState) -> None:
        """Goes on with steps that save time: from the best program, or until the rest fits the chip's cache."""
        self.incumbent = min(self.incumbent, self.objective(state))
        in_cache = CACHE_MULTIPLE * self.goal.chip.cache_bytes
        aim = dataclasses.replace(self.goal, temp_bytes=min(in_cache or math.inf, self.goal.temp_bytes))
        following: SearchState | None = state
        while following is not None:
            state = following
            if state.peak.temp_bytes <= in_cache and self.objective(state) > self.incumbent:
                return
            following = self.faster(state, aim)
            if following is not None:
                self.visit(following)

    def faster(self, state: SearchState, aim: Goal) -> SearchState | None:
        """The state after a step that saves time, None if there is none.

        It is the first such step, or if that gains nothing in the whole the first that regroups no sums.
        """
        if saving_candidate(state, aim) is None:
            return None
        steps = (faster_step(state, one) for one in (aim, _without_regrouping(aim)))
        taken = (with_decision(state, step) for step in steps if step is not None)
        return next((new for new in taken if self.objective(new) < self.objective(state)), None)


def _in_fastest_size(state: SearchState, candidate: Candidate, goal: Goal) -> SearchState | None:
    """The state after a candidate in its fastest size, which leaves the goal to later steps."""
    new = try_apply(state, candidate.resized(candidate.sizes[0]), goal) if candidate.sizes else None
    return new if new is not None and new.peak.temp_bytes <= MAX_PEAK_RISE * state.peak.temp_bytes else None


def _smaller_goals(goal: Goal) -> Iterator[Goal]:
    """Successive halves of a goal above the size of the cache: what is fastest in the cache may begin with less."""
    temp_bytes = goal.temp_bytes // 2
    while goal.chip.cache_bytes and temp_bytes > CACHE_MULTIPLE * goal.chip.cache_bytes:
        yield dataclasses.replace(goal, temp_bytes=temp_bytes)
        temp_bytes //= 2


def _without_regrouping(goal: Goal) -> Goal:
    """The same goal, reached without regrouping sums."""
    return dataclasses.replace(goal, options=dataclasses.replace(goal.options, numerics="exact"))
