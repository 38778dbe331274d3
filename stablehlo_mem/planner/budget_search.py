"""Searches for static goals that lead the compiler's figure to a budget, from each form of the program.

`budget_loop` takes what it compiles, and stops it once a program fits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from stablehlo_mem.pass_api.candidate import Goal, Identity, Step
from stablehlo_mem.planner.discrepancy_search import steps_left
from stablehlo_mem.planner.evaluator import Evaluation, Evaluator, Form, resemble
from stablehlo_mem.planner.goals import HOPELESS, SHRINK, Goals, is_far
from stablehlo_mem.planner.greedy_search import apply_first_candidates
from stablehlo_mem.planner.pareto_front import CLEARLY
from stablehlo_mem.planner.search_state import SearchState

_MAX_UNSEEN = 1 / 16
"""Share of the room that the first goal leaves for `Chip.unseen_bytes`, which no compiler reports, at most."""
_MAX_STALLED = 3
"""Searches or compilations in a row that may bring nothing before the budget is given up: they take long."""


class BudgetSearch:
    """The search for a budget in bytes.

    Attributes:
        fixed_bytes: what no plan changes.
        room: bytes that the budget leaves for temporaries.
        first_goal: the room, lowered by the ratio of the compiler's temporaries to the profile's.
        stalled: searches and compilations in a row that brought nothing, from all forms.
        lowest_missed: the least static peak of a compiled program that missed its goal.
        is_hopeless: whether profile and compiler agree that the goal is out of reach.
    """

    def __init__(self, evaluator: Evaluator, original: Evaluation, budget_bytes: int):
        self.evaluator, self.original = evaluator, original
        self.fixed_bytes = evaluator.fixed_bytes(original)
        self.room = float(max(0, budget_bytes - self.fixed_bytes))
        self.first_goal = self._first_goal()
        self.stalled = 0
        self.lowest_missed = math.inf
        self.is_hopeless = False

    def _first_goal(self) -> float:
        static = self.original.state.peak.temp_bytes
        temp = self.original.peak_bytes - self.fixed_bytes
        room = self.room - min(self.room * _MAX_UNSEEN, self.original.target.chip.unseen_bytes)
        if static > room or math.isinf(temp):
            return room
        return SHRINK * static * room / max(1, temp)

    def evaluations(self) -> Iterator[tuple[Form, Evaluation]]:
        """The programs to compile, and the form that each begins from."""
        for form in self.forms():
            for evaluation in self.from_form(form):
                yield form, evaluation
            if self.is_hopeless and self.evaluator.is_large:
                return

    def forms(self) -> Iterator[Form]:
        """The distinct forms: first those from which the goal is reached by the static profile, the fastest in front.

        Other forms are other beginnings: once one reaches the goal, they are compared in small programs alone, as other
        descents are. A form that resembles an earlier one, whose search has compared the other descents, has its
        greedy one and the departures from that alone, unless it is clearly faster.
        """
        chip = self.original.target.chip
        goal = Goal(chip, self.evaluator.options, int(self.first_goal))
        forms = self.evaluator.distinct_forms(chip)
        seconds: dict[Form, float] = {}
        fastest = math.inf
        for form in forms:
            root = self.evaluator.form_state(chip, form)
            is_like_another = any(resemble(root, self.evaluator.form_state(chip, other)) for other in seconds)
            state, _ = self.evaluator.search(form, goal, to_beat=fastest if is_like_another else math.inf)
            static = state.peak.temp_bytes
            if static <= goal.temp_bytes and not self.evaluator.is_slow(state):
                fastest = min(fastest, state.seconds)
            seconds[form] = state.seconds if static <= goal.temp_bytes else math.inf
            if static <= goal.temp_bytes and steps_left(root, state) <= 0:
                break
            if is_far(static, goal.temp_bytes) and self.evaluator.is_large:
                break
        yield from sorted(seconds, key=seconds.__getitem__)
        yield from forms

    def from_form(self, form: Form) -> Iterator[Evaluation]:
        """Compiles what searches for a sequence of static goals find, see `Goals`.

        If a search misses its goal, or a lower goal changes nothing, the next search begins with another step: the
        profile may overestimate, and the compiler judges the other program. Once too many in a row brought nothing,
        each further form has one search.
        """
        original, evaluator = self.original, self.evaluator
        static, temp = original.state.peak.temp_bytes, original.peak_bytes - self.fixed_bytes
        goals = Goals(self.first_goal, max(1, self.room), (static, temp))
        latest, best, changed, is_first = original, original.peak_bytes, False, True
        tried: set[Identity] = set()
        seen: list[tuple[Step, ...]] = []
        while evaluator.may_compile and (is_first or self.stalled < _MAX_STALLED):
            is_first = False
            goal = Goal(latest.target.chip, evaluator.options, int(goals.goal))
            state, refusals = evaluator.search(form, goal, frozenset(tried))
            reached = state.peak.temp_bytes <= goals.goal
            if not state.steps:
                break
            changed |= state.steps != evaluator.form_state(goal.chip, form).steps
            if state.steps in seen or not (reached or self.may_be_new_low(state, goals.goal)):
                if goals.drop_midpoint():
                    continue
                # A smaller goal changes nothing: the compiler needs more than the profile says for this first step.
                if state.first is None or state.first in tried:
                    break
                tried.add(state.first)
                goals.restart()
                self.stalled += 1
                continue
            nearly = self.better_buy(form, goal, state) if reached else None
            if nearly is not None:
                evaluation = evaluator.measure(nearly, ())
                yield evaluation
                self.note_missed(evaluation, goals.goal)
            evaluation = latest = evaluator.measure(state, refusals)
            yield evaluation
            seen.append(state.steps)
            better = evaluation.peak_bytes < best
            # A goal between two others is one more than there would be, and does not count.
            self.stalled = 0 if better and reached else self.stalled + (not (goals.between and reached))
            best = min(best, evaluation.peak_bytes)
            if reached:
                goals.follow(state.peak.temp_bytes, evaluation.peak_bytes - self.fixed_bytes, better=better)
                continue
            self.note_missed(evaluation, goals.goal)
            if self.is_hopeless:
                break
            if state.first is not None:
                tried.add(state.first)
        if not changed:
            yield from self.compile_first_candidates(latest, form, goals.goal)

    def better_buy(self, form: Form, goal: Goal, reaching: SearchState) -> SearchState | None:
        """What a search visited that misses the goal, not by far, and is to be compiled before what reaches it.

        The last bytes may cost more than all before, and the profile errs: so a plan that is within the limit of the
        price comes before one that is not, and one that takes less memory times time before one that takes more.
        """
        visited = self.evaluator.visited(form, goal.chip).within(HOPELESS * goal.temp_bytes)
        compiled = {evaluation.state.steps for evaluation in self.evaluator.evaluations}
        missing = [s for s in visited if s.peak.temp_bytes > goal.temp_bytes and s.steps not in compiled]
        missing = [s for s in missing if self.may_be_new_low(s, goal.temp_bytes)]
        best = min(missing, key=self.price, default=reaching)
        return best if self.price(best) < self.price(reaching) else None

    def price(self, state: SearchState) -> tuple[bool, float]:
        """Whether a state is too slow, then its memory times its time: what costs more time than it saves is dearer."""
        return self.evaluator.is_slow(state), state.peak.temp_bytes * state.seconds

    def note_missed(self, evaluation: Evaluation, goal: float) -> None:
        """Notes how far a compiled program missed its goal."""
        static = evaluation.state.peak.temp_bytes
        self.lowest_missed = min(self.lowest_missed, static)
        self.is_hopeless = is_far(static, goal) and is_far(evaluation.peak_bytes - self.fixed_bytes, max(1, self.room))

    def may_be_new_low(self, state: SearchState, goal: float) -> bool:
        """Whether a program that misses its goal is worth compiling after others that did.

        By the profile it is clearly below them or, where the goal is not missed by far, not clearly above.
        """
        static = state.peak.temp_bytes
        return static < (1 - CLEARLY if is_far(static, goal) else 1 + CLEARLY) * self.lowest_missed

    def compile_first_candidates(self, latest: Evaluation, form: Form, goal: float) -> Iterator[Evaluation]:
        """Compiles the first candidates although none lowers the static peak: the compiler may see what they save."""
        aim = Goal(latest.target.chip, self.evaluator.options, int(goal))
        root = self.evaluator.form_state(aim.chip, form)
        for state in itertools.islice(apply_first_candidates(root, aim), _MAX_STALLED):
            if self.evaluator.may_compile:
                yield self.evaluator.measure(state, ())
