"""The budget loop: search by the static profile, measure with the target's compiler, tighten until it fits."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Iterator
from typing import Literal, get_args

from jax.export import Exported

from stablehlo_mem import cache
from stablehlo_mem.checks import below_floor, check_options, verify
from stablehlo_mem.cost import graph_seconds
from stablehlo_mem.errors import BudgetError
from stablehlo_mem.ingest import Program, emit, ingest
from stablehlo_mem.ir.bindings import clone_module, ir, module_bytes
from stablehlo_mem.memory import Measured, MemoryProfile, Origin, Refused
from stablehlo_mem.module_profile import constant_bytes, profile_graph
from stablehlo_mem.passes.normalise import normalise, remove_rules
from stablehlo_mem.plan import Cost, Figures, Goal, Options, Plan, Refusal, Step
from stablehlo_mem.progress import tell
from stablehlo_mem.search import CACHES, cheapen, nothing_to_split, propose, search, unproven
from stablehlo_mem.states import State, start
from stablehlo_mem.targets.chips import Chip
from stablehlo_mem.targets.target import Target
from stablehlo_mem.wording import budget_error_text, format_bytes

Budget = int | Literal["min"] | None
Form = Literal["quick", "small", "written"]
"""A program a search begins from: after all steps that save time, after those in their smallest forms, as written."""

_SHRINK = 0.8
"""How far below what would just fit the next static goal is set: the compilers' peaks are not smooth."""
_UNSEEN_SHARE = 1 / 16
"""At most so much of the room is left for what no report shows."""
_MIN_FACTOR = 4
"""Ratio of the successive static goals when the smallest peak is looked for."""
_PATIENCE = 3
"""Smaller goals in a row that may bring nothing before the search for the smallest peak ends."""
_CLOSE = 1.25
"""Goals nearer to one another than this are not told apart."""
_WORTH = 0.05
"""Share of its time that a program must be thought to save to be changed where memory is no reason."""
_WORTH_LOOPS = 0.2
"""Share of what is left that loops which stay in the cache must be thought to save on top."""
_MAX_SLOWDOWN = 4.0
"""The smallest peak may take this many times the original's estimated time."""


def keep_budget(program: Program, budget: Budget, targets: tuple[Target, ...], options: Options) -> Plan:
    """Plans a program for targets, all of which must fit.

    Args:
        budget: bytes of arguments + outputs + temporaries + constants − aliased; "min" for the smallest found
            within `options.max_compiles` and four times the original's estimated time; None for no limit.

    Raises:
        BudgetError: the budget is below arguments + outputs − aliased: no plan gets there, nothing was compiled.
        InputError: an option has no meaning.
    """
    check_options(options)
    if isinstance(budget, int) and budget < program.floor_bytes:
        raise below_floor(program, budget)
    planning = _Planning(program, budget, targets, options)
    path = cache.entry_path(program, budget, targets, options)
    kept = cache.read(path) if path is not None else None
    plan = planning.again(kept) if kept is not None else None
    if plan is None:
        plan = planning.run()
        if path is not None:
            cache.write(path, plan)
    return plan


def require_fit(plan: Plan) -> Plan:
    """The plan, if it keeps its budget.

    Raises:
        BudgetError: it does not.
    """
    if plan.fits or plan.budget_bytes is None:
        return plan
    raise BudgetError(
        budget_error_text(plan),
        budget_bytes=plan.budget_bytes,
        needed_bytes=plan.before.peak_bytes,
        reached_bytes=plan.after.peak_bytes,
        best=plan,
        obstacles=plan.refusals,
    )


@dataclasses.dataclass(frozen=True)
class _Attempt:
    """A state as the compilers see it; `measured` is of the target that is worst off."""

    state: State
    module: ir.Module
    refusals: tuple[Refusal, ...]
    target: Target
    measured: Measured | Refused
    everywhere: tuple[tuple[Target, Measured | Refused], ...]

    @property
    def peak_bytes(self) -> float:
        if isinstance(self.measured, Measured):
            return self.measured.peak_bytes
        return self.measured.needed_bytes or float("inf")


class _Planning:
    """One call of `keep_budget`."""

    def __init__(self, program: Program, budget: Budget, targets: tuple[Target, ...], options: Options):
        self.program, self.targets, self.options = program, targets, options
        self.budget: Budget = budget
        self.compiles = 0
        self.seconds = 0.0
        self.normal = clone_module(program.module)
        self.starts: dict[str, State] = {}
        self.cheapened: dict[tuple[str, Form], State] = {}
        self.searched: dict[tuple[Form, Goal, frozenset[Refusal]], tuple[State, tuple[Refusal, ...]]] = {}

    def run(self) -> Plan:
        with self.timed():
            normalise(self.normal)
        original = self.compiled(self.start(self.targets[0].chip), self.program.module, ())
        best = self.fastest(original) if self.budget is None else original
        if self.budget is not None and not self.fits(original):
            for attempt in self.attempts(original):
                if attempt.peak_bytes < best.peak_bytes:
                    best = attempt
                if self.fits(attempt):
                    break
        return self.plan(original, best)

    def again(self, kept: cache.Kept) -> Plan | None:
        """The plan of an earlier call, its steps taken again and nothing compiled; None if they cannot be."""
        with self.timed():
            module = cache.replay(self.program.module, kept)
        if module is None:
            return None
        before = dataclasses.replace(kept.plan.before, origin=Origin(self.program.lasting, self.targets[0]))
        plan = dataclasses.replace(kept.plan, before=before, compiles=0, planning_seconds=self.seconds)
        return self.finished(plan, module)

    def fastest(self, original: _Attempt) -> _Attempt:
        """What saves time worth a change, by loops in the chip's cache too, if a target's compiler takes it."""
        chip = original.target.chip
        written = graph_seconds(self.start(chip).graph, chip)
        state = quick = self.begin(chip, "quick")
        if chip.cache_bytes:
            looped, _ = self.search("quick", Goal(chip, self.options, CACHES * chip.cache_bytes))
            state = looped if looped.seconds < (1 - _WORTH_LOOPS) * quick.seconds else quick
        if written - state.seconds <= _WORTH * written:
            return original
        attempt = self.measure(state, ())
        return attempt if isinstance(attempt.measured, Measured) else original

    def fits(self, attempt: _Attempt) -> bool:
        within = isinstance(self.budget, int) and attempt.peak_bytes <= self.budget
        return within and isinstance(attempt.measured, Measured)

    def attempts(self, original: _Attempt) -> Iterator[_Attempt]:
        """From one form of the program, and where that does not fit, from the others."""
        for form in self.forms(original):
            yield from self.towards_min(original, form) if self.budget == "min" else self.towards_budget(original, form)

    def forms(self, original: _Attempt) -> Iterator[Form]:
        """The forms that differ, in front the first one from which the goal is reached by the static profile."""
        chip = original.target.chip
        differing = self.differing(chip)
        passed: list[Form] = []
        if isinstance(self.budget, int):
            goal = Goal(chip, self.options, int(self.first_goal(original, self.room(original))))
            for form in differing:
                if self.search(form, goal)[0].peak.temp_bytes <= goal.temp_bytes:
                    yield form
                    break
                passed.append(form)
        yield from passed
        yield from differing

    def differing(self, chip: Chip) -> Iterator[Form]:
        """The forms, each brought about when it is asked for, without those equal to one before."""
        seen: set[str] = set()
        for form in get_args(Form):
            begun = self.begin(chip, form)
            fingerprint = begun.fingerprint if begun.steps else ""
            if fingerprint not in seen:
                seen.add(fingerprint)
                yield form

    def begin(self, chip: Chip, form: Form) -> State:
        """The state that searches begin from: the program in a form."""
        state = self.start(chip)
        if form == "written":
            return state
        if (chip.name, form) not in self.cheapened:
            with self.timed():
                goal = Goal(chip, self.options, 0, bytes_first=form == "small")
                self.cheapened[chip.name, form] = cheapen(state, goal, any_peak=self.budget is None)
        return self.cheapened[chip.name, form]

    def start(self, chip: Chip) -> State:
        """The program in normal form, as it is written."""
        if chip.name not in self.starts:
            with self.timed():
                self.starts[chip.name] = start(self.normal, Goal(chip, self.options, 0))
        return self.starts[chip.name]

    def towards_budget(self, original: _Attempt, form: Form) -> Iterator[_Attempt]:
        """Static goals below the budget by as much as the compiler was seen to need more than the profile said.

        Where the profile sees no way to the goal it may be too careful: the compiler judges other beginnings too.
        """
        assert isinstance(self.budget, int)
        room = self.room(original)
        goal = first_goal = self.first_goal(original, room)
        worst = original
        tried: set[Refusal] = set()
        best, stalled = original.peak_bytes, 0
        seen: list[tuple[Step, ...]] = []
        while self.may_compile and stalled < _PATIENCE:
            state, refusals = self.search(form, Goal(worst.target.chip, self.options, int(goal)), frozenset(tried))
            reached = state.peak.temp_bytes <= goal
            if not state.steps:
                break
            if state.steps in seen:
                # A smaller goal changes nothing: the compiler does not see what the profile does of this beginning.
                if state.first is None or state.first in tried:
                    break
                tried.add(state.first)
                goal, stalled = first_goal, stalled + 1
                continue
            attempt = worst = self.measure(state, refusals)
            yield attempt
            seen.append(state.steps)
            stalled = stalled + 1 if attempt.peak_bytes >= best or not reached else 0
            best = min(best, attempt.peak_bytes)
            if reached:
                temp = attempt.peak_bytes - (self.budget - room)
                goal = state.peak.temp_bytes * max(0.1, min(1.0, room / temp if temp > 0 else 1.0)) * _SHRINK
            elif state.first is not None:
                tried.add(state.first)
        if all(steps == self.begin(worst.target.chip, form).steps for steps in seen):
            yield from self.unproven(worst, form, goal)

    def unproven(self, original: _Attempt, form: Form, goal: float) -> Iterator[_Attempt]:
        """Where no candidate helps by the profile, which need not see what the compiler sees: the compiler's word."""
        aim = Goal(original.target.chip, self.options, int(goal))
        for state in itertools.islice(unproven(self.begin(aim.chip, form), aim), _PATIENCE):
            if self.may_compile:
                yield self.measure(state, ())

    def room(self, original: _Attempt) -> float:
        """Bytes the budget leaves for temporaries."""
        assert isinstance(self.budget, int)
        return float(max(0, self.budget - self.fixed_bytes(original)))

    def first_goal(self, original: _Attempt, room: float) -> float:
        """The room there is for temporaries; less where the compiler sees more of them than the profile does."""
        static = original.state.peak.temp_bytes
        temp = original.peak_bytes - self.fixed_bytes(original)
        room -= min(room * _UNSEEN_SHARE, original.target.chip.unseen_bytes)
        if static > room or math.isinf(temp):
            return room
        return _SHRINK * static * room / max(1, temp)

    def towards_min(self, original: _Attempt, form: Form) -> Iterator[_Attempt]:
        """Static goals ever smaller, until the peak no longer falls; then such as lie between the last ones.

        A goal that would make the program too slow is not measured unless nothing else has helped: the next one lies
        between it and the last that was fast enough.
        """
        best, helped, stalled, too_small, missed = original.peak_bytes, False, 0, 0.0, 0.0
        chip = original.target.chip
        reached = fast = float(self.begin(chip, form).peak.temp_bytes)
        seen: list[tuple[Step, ...]] = []
        while self.may_compile and stalled < _PATIENCE:
            goal = max(fast / _MIN_FACTOR, math.sqrt(fast * too_small))
            if too_small and fast <= too_small * _CLOSE:
                break
            state, refusals = self.search(form, Goal(chip, self.options, int(goal)))
            if not state.steps:
                break
            if helped and self.is_slow(state):
                too_small = goal
                continue
            if state.peak.temp_bytes > goal:
                missed = max(missed, goal)
            if state.steps in seen:
                stalled, fast = stalled + 1, goal
                continue
            seen.append(state.steps)
            attempt = self.measure(state, refusals)
            yield attempt
            stalled = stalled + 1 if attempt.peak_bytes >= best else 0
            helped = helped or (isinstance(attempt.measured, Measured) and attempt.peak_bytes < original.peak_bytes)
            if attempt.peak_bytes < best:
                best, reached = attempt.peak_bytes, state.peak.temp_bytes
            fast = goal
        if helped:
            yield from self.between(chip, form, reached, max(missed, too_small))

    def between(self, chip: Chip, form: Form, reached: float, missed: float) -> Iterator[_Attempt]:
        """Halves the way from a static peak that was reached to a goal that was not, as long as that is any way.

        What leads to the one need not begin like what leads to the other.
        """
        while self.may_compile and reached > missed * _CLOSE:
            goal = math.sqrt(reached * max(missed, reached / _MIN_FACTOR**2))
            state, refusals = self.search(form, Goal(chip, self.options, int(goal)))
            if state.peak.temp_bytes > goal or self.is_slow(state):
                missed = goal
                continue
            reached = state.peak.temp_bytes
            yield self.measure(state, refusals)

    @property
    def may_compile(self) -> bool:
        return self.compiles + len(self.targets) <= self.options.max_compiles

    def is_slow(self, state: State) -> bool:
        """Whether a state takes more of the original's time than the smallest peak may."""
        return graph_seconds(state.graph, state.chip) > _MAX_SLOWDOWN * graph_seconds(
            self.start(state.chip).graph, state.chip
        )

    def search(
        self, form: Form, goal: Goal, not_first: frozenset[Refusal] = frozenset()
    ) -> tuple[State, tuple[Refusal, ...]]:
        begun = self.begin(goal.chip, form)
        key = form, goal, not_first
        if key not in self.searched:
            tell(f"search for {format_bytes(goal.temp_bytes)} of temporaries on {goal.chip.name}")
            with self.timed():
                self.searched[key] = search(begun, goal, not_first)
        return self.searched[key]

    def fixed_bytes(self, original: _Attempt) -> int:
        """What no rewriting changes: arguments, outputs and constants as the target lays them out, less aliases.

        Where it says nothing of the original, dense ones: how it would tile them need not be as the profile thinks.
        """
        m = original.measured
        if isinstance(m, Measured):
            return m.peak_bytes - m.temp_bytes
        return self.program.floor_bytes + constant_bytes(original.state.graph)

    def measure(self, state: State, refusals: tuple[Refusal, ...]) -> _Attempt:
        """A state as it is handed back, compiled."""
        module = clone_module(state.module)
        remove_rules(module)
        return self.compiled(state, module, refusals)

    def compiled(self, state: State, module: ir.Module, refusals: tuple[Refusal, ...]) -> _Attempt:
        """Compiles for every target; the one with the highest peak speaks for all."""
        measured: list[tuple[Target, Measured | Refused]] = []
        for target in self.targets:
            tell(f"compile {self.compiles + 1}, for {target.name}")
            measured.append((target, target.measure(self.program, module)))
            self.compiles += 1
        attempts = [_Attempt(state, module, refusals, target, m, tuple(measured)) for target, m in measured]
        return max(attempts, key=lambda a: a.peak_bytes)

    def timed(self) -> _Timer:
        return _Timer(self)

    def plan(self, original: _Attempt, best: _Attempt) -> Plan:
        plan = Plan(
            budget_bytes=self.budget if isinstance(self.budget, int) else None,
            target=tuple(t.name for t in self.targets),
            before=dataclasses.replace(_profile(original), origin=Origin(self.program.lasting, original.target)),
            after=_profile(best),
            steps=best.state.steps,
            summaries=tuple(decision.summary for decision in best.state.decisions),
            decisions=best.state.decisions,
            cost_before=_cost(self.start(best.state.chip)),
            cost_after=_cost(best.state),
            figures=_figures(original, best),
            options=self.options,
            refusals=best.refusals if best.refusals or self.fits(best) else self.refusals_of(best),
            compiles=self.compiles,
            fits=self.fits(best) or self.budget is None or self.budget == "min",
            planning_seconds=self.seconds,
            result=None,
            exported=None,
            bytecode=b"",
        )
        return self.finished(plan, best.module)

    def finished(self, plan: Plan, module: ir.Module) -> Plan:
        """A plan with its programs; where no step is taken, the very object that was given."""
        if self.options.verify:
            verify(self.program, module, plan.steps)
        unchanged = not plan.steps
        result = self.program.original if unchanged else emit(self.program, module, self.optimise_vjp)
        exported = self.program.exported if unchanged else (result if isinstance(result, Exported) else None)
        return dataclasses.replace(plan, result=result, exported=exported, bytecode=module_bytes(module))

    def refusals_of(self, attempt: _Attempt) -> tuple[Refusal, ...]:
        """Why the best attempt is not smaller still."""
        candidates, refusals = propose(attempt.state, Goal(attempt.target.chip, self.options, 0))
        return (*refusals, *(c.otherwise for c in candidates)) or (nothing_to_split(attempt.state),)

    def optimise_vjp(self, exported: Exported) -> Exported:
        """The vjp of the original, under the same budget, or a BudgetError: never the unoptimised one unsaid."""
        return require_fit(keep_budget(ingest(exported), self.budget, self.targets, self.options)).result


class _Timer:
    """Adds the time of its block to the planning seconds."""

    def __init__(self, planning: _Planning):
        self.planning = planning

    def __enter__(self) -> None:
        self.begun = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.planning.seconds += time.perf_counter() - self.begun


def _profile(attempt: _Attempt) -> MemoryProfile:
    static = profile_graph(attempt.state.graph, attempt.target.chip)
    return dataclasses.replace(static, measured=attempt.measured)


def _cost(state: State) -> Cost:
    """What a cache spares is estimated apart from what memory costs: together no less than the arithmetic takes."""
    return Cost(max(state.seconds, state.flops / state.chip.flops_per_second), state.flops)


def _figures(original: _Attempt, best: _Attempt) -> tuple[Figures, ...]:
    pairs = zip(original.everywhere, best.everywhere, strict=True)
    return tuple(Figures(target.name, before, after) for (target, before), (_, after) in pairs)
