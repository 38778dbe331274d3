"""Searches and compiles one program, and caches both. The budget loop, `smallest_peak` and `autotune` call it."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Generator, Iterator
from typing import Literal, get_args

from stablehlo_mem.frontend.canonicalize import canonicalize
from stablehlo_mem.frontend.program import Program
from stablehlo_mem.ir.bindings import clone_module, ir
from stablehlo_mem.ir.graph import len_ops
from stablehlo_mem.pass_api.candidate import Goal, Identity, Options, Refusal
from stablehlo_mem.planner.discrepancy_search import search
from stablehlo_mem.planner.greedy_search import cheapen
from stablehlo_mem.planner.pareto_front import CLEARLY, ParetoFront
from stablehlo_mem.planner.search_state import SearchState, as_returned, start
from stablehlo_mem.results.memory_profile import constant_bytes
from stablehlo_mem.results.plan import Cost
from stablehlo_mem.targets.chips import Chip
from stablehlo_mem.targets.measurement import Measured, Refused
from stablehlo_mem.targets.target import Target
from stablehlo_mem.utils.progress import tell
from stablehlo_mem.utils.units import format_bytes

Form = Literal["quick", "small", "written"]
"""The program that a search begins from: after all time-saving steps, after those chosen for memory, or unchanged."""

_UNNOTICED_SECONDS = 1e-3
"""A program that takes less is never too slow: calling it takes some 0.1 ms, and estimates of so little mean little."""
_LARGE_OPS = 1_000
"""From so many ops on a program is large: a search that misses its goal takes seconds."""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A compiled state.

    Attributes:
        target: the target with the highest peak; `measured` is its figure.
        everywhere: the figures of all targets.
    """

    state: SearchState
    module: ir.Module
    refusals: tuple[Refusal, ...]
    target: Target
    measured: Measured | Refused
    everywhere: tuple[tuple[Target, Measured | Refused], ...]

    @property
    def peak_bytes(self) -> float:
        """As the compiler reports it; infinite if it refuses the program without a figure."""
        if isinstance(self.measured, Measured):
            return self.measured.peak_bytes
        return self.measured.needed_bytes or float("inf")


def compiles(evaluation: Evaluation) -> bool:
    """Whether all compilers take a program."""
    return isinstance(evaluation.measured, Measured)


def cost(state: SearchState) -> Cost:
    """The estimated cost; time is at least that of the arithmetic, as savings by the cache are estimated apart."""
    return Cost(max(state.seconds, state.flops / state.chip.fastest_flops_per_second), state.flops)


def resemble(one: SearchState, other: SearchState) -> bool:
    """Whether two programs have about the same peak and time."""
    return _is_close(one.peak.temp_bytes, other.peak.temp_bytes) and _is_close(one.seconds, other.seconds)


def _is_close(one: float, other: float) -> bool:
    """Whether two estimates differ by less than their error."""
    return abs(one - other) <= CLEARLY * max(abs(one), abs(other))


class _OutOfTime(Exception):
    """Ends a search."""


class Evaluator:
    """Searches and compilations of one program; no search is run twice.

    Args:
        any_peak: whether time-saving steps may raise the peak by any amount.
        max_slowdown: estimated time over the original's beyond which a program is too slow.

    Attributes:
        options: what searches may do from now on.
        compiles: the number of compilations, each for one target.
        compile_seconds: the time spent on them.
        seconds: the time spent on the rest.
        deadline: when planning is to end, on the clock of `time.perf_counter`.
        canonical: the canonical module, which states share.
        originals: for each chip the state of the unchanged program.
        forms: for each chip and form its state.
        evaluations: all compiled programs, in order.
        searched: the results of searches.
        fronts: for each chip, form and room in the host's memory what its searches visited.
    """

    def __init__(
        self,
        program: Program,
        targets: tuple[Target, ...],
        options: Options,
        *,
        any_peak: bool,
        max_slowdown: float = math.inf,
    ):
        self.max_slowdown = max_slowdown
        self.program, self.targets, self.options = program, targets, options
        self.any_peak = any_peak
        self.compiles = 0
        self.compile_seconds = self.seconds = 0.0
        self.deadline = time.perf_counter() + (math.inf if options.max_seconds is None else options.max_seconds)
        self.canonical = clone_module(program.module)
        self.originals: dict[str, SearchState] = {}
        self.forms: dict[tuple[str, Form], SearchState] = {}
        self.searched: dict[tuple[Form, Goal, frozenset[Identity]], tuple[SearchState, tuple[Refusal, ...]]] = {}
        self.fronts: dict[tuple[str, Form, int], ParetoFront] = {}
        self.evaluations: list[Evaluation] = []

    def original(self) -> Evaluation:
        """The program as it is."""
        with self.timed():
            canonicalize(self.canonical)
        return self.compiled(self.original_state(self.targets[0].chip), self.program.module, ())

    def distinct_forms(self, chip: Chip) -> Iterator[Form]:
        """The forms without those equal to an earlier one; each is computed when it is asked for.

        In a large program, where a search takes seconds, forms that resemble one another count as equal.
        """
        seen: list[SearchState] = []
        for form in get_args(Form):
            state = self.form_state(chip, form)
            if not any(self.are_alike(state, other) for other in seen):
                seen.append(state)
                yield form

    def are_alike(self, one: SearchState, other: SearchState) -> bool:
        """Whether searches from one state would find what those from the other do."""
        if self.is_large and resemble(one, other):
            return True
        return (one.fingerprint if one.steps else "") == (other.fingerprint if other.steps else "")

    @property
    def is_large(self) -> bool:
        """Whether searches take long."""
        return len_ops(self.original_state(self.targets[0].chip).graph) >= _LARGE_OPS

    def form_state(self, chip: Chip, form: Form) -> SearchState:
        """The program in a form: the root of searches."""
        state = self.original_state(chip)
        if form == "written":
            return state
        if (chip.name, form) not in self.forms:
            with self.timed():
                goal = Goal(chip, self.options, 0, prefer_memory=form == "small")
                self.forms[chip.name, form] = cheapen(state, goal, any_peak=self.any_peak)
        return self.forms[chip.name, form]

    def original_state(self, chip: Chip) -> SearchState:
        """The unchanged program in canonical form."""
        if chip.name not in self.originals:
            with self.timed():
                self.originals[chip.name] = start(self.canonical, Goal(chip, self.options, 0))
        return self.originals[chip.name]

    def search(
        self,
        form: Form,
        goal: Goal,
        not_first: frozenset[Identity] = frozenset(),
        *,
        any_price: bool = False,
        to_beat: float = math.inf,
    ) -> tuple[SearchState, tuple[Refusal, ...]]:
        """The state that a search from a form ends with, and its refusals; it begins with none of `not_first`.

        It keeps to the limit of the price where it can, unless any price will do. If an earlier search visited a
        clearly faster state within the goal, that is the result. If the time is up, it is the best state visited.

        Args:
            to_beat: seconds that another form takes within the goal, see `discrepancy_search.search`; the result is
                kept for later calls whatever they are to beat.
        """
        root = self.form_state(goal.chip, form)
        goal = dataclasses.replace(goal, max_seconds=math.inf if any_price else self.max_seconds(goal.chip))
        key = form, goal, not_first
        if key not in self.searched:
            with self.timed():
                front = self.visited(form, goal.chip)
                try:
                    end, refusals = self.answer(*key) or self.search_anew(root, goal, not_first, front, to_beat)
                    best = end if not_first else front.improve(end, goal.temp_bytes)
                    refusals = refusals if best is end else ()
                except _OutOfTime:
                    best, refusals = front.best(goal.temp_bytes), ()
                self.searched[key] = best, refusals
        return self.searched[key]

    def answer(
        self, form: Form, goal: Goal, not_first: frozenset[Identity]
    ) -> tuple[SearchState, tuple[Refusal, ...]] | None:
        """What an earlier search for a larger goal found, if it is within this one too: nothing within that was faster.

        A search that ended beyond the limit of the price has been repeated without it.
        """
        for (of_form, of_goal, not_of), (found, _) in self.searched.items():
            seconds = goal.max_seconds if self.is_slow(found) else of_goal.max_seconds
            alike = dataclasses.replace(of_goal, temp_bytes=goal.temp_bytes, max_seconds=seconds) == goal
            is_between = found.peak.temp_bytes <= goal.temp_bytes <= of_goal.temp_bytes
            if is_between and alike and (form, not_first) == (of_form, not_of):
                return found, ()
        return None

    def visited(self, form: Form, chip: Chip) -> ParetoFront:
        """What searches from a form visited."""
        return self.fronts.setdefault((chip.name, form, self.options.host_bytes), ParetoFront())

    def search_anew(
        self,
        root: SearchState,
        goal: Goal,
        not_first: frozenset[Identity],
        front: ParetoFront,
        to_beat: float = math.inf,
    ) -> tuple[SearchState, tuple[Refusal, ...]]:
        """The end of a search; if that is too slow, of one without the limit of the price if it is faster in the end.

        Steps that are within the limit each may lead further beyond it than those that are not.
        """
        tell(f"search for {format_bytes(goal.temp_bytes)} of temporaries on {goal.chip.name}")
        ends = [search(root, goal, not_first, lambda state: self.visit(state, front), to_beat)]
        if self.is_slow(ends[0][0]) and not math.isinf(goal.max_seconds):
            unlimited = dataclasses.replace(goal, max_seconds=math.inf)
            ends.append(search(root, unlimited, not_first, lambda state: self.visit(state, front), to_beat))
        return min(ends, key=lambda end: (end[0].peak.temp_bytes > goal.temp_bytes, end[0].seconds))

    def visit(self, state: SearchState, front: ParetoFront) -> None:
        """Adds a state to what searches visited; ends the search if the time is up."""
        front.add(state)
        if self.is_out_of_time:
            raise _OutOfTime

    @property
    def is_out_of_time(self) -> bool:
        """Whether planning is to end."""
        return time.perf_counter() > self.deadline

    @property
    def may_compile(self) -> bool:
        """Whether the limits leave a compilation for each target; once the time is up, of one rewritten program."""
        is_late = self.is_out_of_time and len(self.evaluations) > 1
        return not is_late and self.compiles + len(self.targets) <= self.options.max_compiles

    def is_slow(self, state: SearchState) -> bool:
        """Whether a state is beyond the limit of the price."""
        return cost(state).seconds > self.max_seconds(state.chip)

    def max_seconds(self, chip: Chip) -> float:
        """The estimated time of one execution beyond which a program is too slow."""
        if math.isinf(self.max_slowdown):
            return math.inf
        return max(_UNNOTICED_SECONDS, self.max_slowdown * cost(self.original_state(chip)).seconds)

    def fixed_bytes(self, original: Evaluation) -> int:
        """Bytes that no rewriting changes: arguments, outputs and constants as the target lays them out, less aliases.

        If the compiler refused the original their dense sizes: the profile's tiling may differ from the target's.
        """
        m = original.measured
        if isinstance(m, Measured):
            return m.peak_bytes - m.temp_bytes
        return self.program.floor_bytes + constant_bytes(original.state.graph)

    def measure(self, state: SearchState, refusals: tuple[Refusal, ...]) -> Evaluation:
        """Compiles a state in the form in which it would be returned."""
        return self.compiled(state, as_returned(state.module, self.targets), refusals)

    def compiled(self, state: SearchState, module: ir.Module, refusals: tuple[Refusal, ...]) -> Evaluation:
        """Compiles for every target; the result is of the one with the highest peak."""
        measured: list[tuple[Target, Measured | Refused]] = []
        for target in self.targets:
            tell(f"compile {self.compiles + 1}, for {target.name}")
            started = time.perf_counter()
            measured.append((target, target.measure(self.program, module)))
            self.compile_seconds += time.perf_counter() - started
            self.compiles += 1
        evaluations = [Evaluation(state, module, refusals, target, m, tuple(measured)) for target, m in measured]
        self.evaluations.append(max(evaluations, key=lambda a: a.peak_bytes))
        return self.evaluations[-1]

    @contextlib.contextmanager
    def timed(self) -> Generator[None]:
        """Adds the time of its block to the planning seconds."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - started
