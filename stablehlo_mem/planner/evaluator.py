"""What planning has tried: states of a program searched from its forms, and compiled for all targets."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Generator, Iterator
from typing import Literal, get_args

from stablehlo_mem.analysis.cost_model import graph_seconds
from stablehlo_mem.frontend.canonicalize import canonicalize, remove_rules
from stablehlo_mem.frontend.program import Program
from stablehlo_mem.ir.bindings import clone_module, ir
from stablehlo_mem.pass_api.candidate import Goal, Options, Refusal
from stablehlo_mem.planner.branch_and_bound import search
from stablehlo_mem.planner.greedy_search import cheapen
from stablehlo_mem.planner.search_state import SearchState, start
from stablehlo_mem.results.memory_profile import constant_bytes
from stablehlo_mem.targets.chips import Chip
from stablehlo_mem.targets.measurement import Measured, Refused
from stablehlo_mem.targets.target import Target
from stablehlo_mem.utils.progress import tell
from stablehlo_mem.utils.units import format_bytes

Form = Literal["quick", "small", "written"]
"""A program a search begins from: after all steps that save time, after those in their smallest forms, as written."""

_MAX_SLOWDOWN = 4.0
"""The smallest peak may take this many times the original's estimated time."""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A state as the compilers see it; `measured` is of the target that is worst off."""

    state: SearchState
    module: ir.Module
    refusals: tuple[Refusal, ...]
    target: Target
    measured: Measured | Refused
    everywhere: tuple[tuple[Target, Measured | Refused], ...]

    @property
    def peak_bytes(self) -> float:
        """As its compiler counts it; infinite if that refuses it without a figure."""
        if isinstance(self.measured, Measured):
            return self.measured.peak_bytes
        return self.measured.needed_bytes or float("inf")


class Evaluator:
    """Searches and compilations of one program; nothing is searched or cheapened twice.

    Args:
        any_peak: steps that save time are taken where they raise the peak too.

    Attributes:
        compiles: how often a target's compiler was asked.
        seconds: spent on all else.
    """

    def __init__(self, program: Program, targets: tuple[Target, ...], options: Options, *, any_peak: bool):
        self.program, self.targets, self.options = program, targets, options
        self.any_peak = any_peak
        self.compiles = 0
        self.seconds = 0.0
        self.normal = clone_module(program.module)
        self.starts: dict[str, SearchState] = {}
        self.cheapened: dict[tuple[str, Form], SearchState] = {}
        self.searched: dict[tuple[Form, Goal, frozenset[Refusal]], tuple[SearchState, tuple[Refusal, ...]]] = {}

    def original(self) -> Evaluation:
        """The program as it is."""
        with self.timed():
            canonicalize(self.normal)
        return self.compiled(self.start(self.targets[0].chip), self.program.module, ())

    def differing(self, chip: Chip) -> Iterator[Form]:
        """The forms, each brought about when it is asked for, without those equal to one before."""
        seen: set[str] = set()
        for form in get_args(Form):
            begun = self.begin(chip, form)
            fingerprint = begun.fingerprint if begun.steps else ""
            if fingerprint not in seen:
                seen.add(fingerprint)
                yield form

    def begin(self, chip: Chip, form: Form) -> SearchState:
        """The state that searches begin from: the program in a form."""
        state = self.start(chip)
        if form == "written":
            return state
        if (chip.name, form) not in self.cheapened:
            with self.timed():
                goal = Goal(chip, self.options, 0, prefer_memory=form == "small")
                self.cheapened[chip.name, form] = cheapen(state, goal, any_peak=self.any_peak)
        return self.cheapened[chip.name, form]

    def start(self, chip: Chip) -> SearchState:
        """The program in normal form, as it is written."""
        if chip.name not in self.starts:
            with self.timed():
                self.starts[chip.name] = start(self.normal, Goal(chip, self.options, 0))
        return self.starts[chip.name]

    def search(
        self, form: Form, goal: Goal, not_first: frozenset[Refusal] = frozenset()
    ) -> tuple[SearchState, tuple[Refusal, ...]]:
        """What a search from a form comes to, and what it refused; `not_first` are beginnings to avoid."""
        begun = self.begin(goal.chip, form)
        key = form, goal, not_first
        if key not in self.searched:
            tell(f"search for {format_bytes(goal.temp_bytes)} of temporaries on {goal.chip.name}")
            with self.timed():
                self.searched[key] = search(begun, goal, not_first)
        return self.searched[key]

    @property
    def may_compile(self) -> bool:
        """Whether all targets may be asked once more."""
        return self.compiles + len(self.targets) <= self.options.max_compiles

    def is_slow(self, state: SearchState) -> bool:
        """Whether a state takes more of the original's time than the smallest peak may."""
        return graph_seconds(state.graph, state.chip) > _MAX_SLOWDOWN * graph_seconds(
            self.start(state.chip).graph, state.chip
        )

    def fixed_bytes(self, original: Evaluation) -> int:
        """What no rewriting changes: arguments, outputs and constants as the target lays them out, less aliases.

        Where it says nothing of the original, dense ones: how it would tile them need not be as the profile thinks.
        """
        m = original.measured
        if isinstance(m, Measured):
            return m.peak_bytes - m.temp_bytes
        return self.program.floor_bytes + constant_bytes(original.state.graph)

    def measure(self, state: SearchState, refusals: tuple[Refusal, ...]) -> Evaluation:
        """A state as it is handed back, compiled."""
        module = clone_module(state.module)
        remove_rules(module)
        return self.compiled(state, module, refusals)

    def compiled(self, state: SearchState, module: ir.Module, refusals: tuple[Refusal, ...]) -> Evaluation:
        """Compiles for every target; the one with the highest peak speaks for all."""
        measured: list[tuple[Target, Measured | Refused]] = []
        for target in self.targets:
            tell(f"compile {self.compiles + 1}, for {target.name}")
            measured.append((target, target.measure(self.program, module)))
            self.compiles += 1
        attempts = [Evaluation(state, module, refusals, target, m, tuple(measured)) for target, m in measured]
        return max(attempts, key=lambda a: a.peak_bytes)

    @contextlib.contextmanager
    def timed(self) -> Generator[None]:
        """Adds the time of its block to the planning seconds."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - begun
