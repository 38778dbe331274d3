"""The budget loop: search by the static profile, measure with the target's compiler, tighten until it fits."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Literal

from jax.export import Exported

from stablehlo_mem.analysis.cost_model import graph_seconds
from stablehlo_mem.frontend.program import Program, emit, ingest
from stablehlo_mem.ir.bindings import ir, module_bytes
from stablehlo_mem.pass_api.candidate import Goal, Options, Refusal, Step
from stablehlo_mem.planner import autotune, plan_cache
from stablehlo_mem.planner.branch_and_bound import CACHES
from stablehlo_mem.planner.evaluator import Evaluation, Evaluator, Form
from stablehlo_mem.planner.goals import SHRINK, Goals
from stablehlo_mem.planner.greedy_search import nothing_to_split, propose, unproven
from stablehlo_mem.planner.search_state import SearchState
from stablehlo_mem.planner.smallest_peak import towards_min
from stablehlo_mem.planner.validation import below_floor, check_options, check_tuning, verify
from stablehlo_mem.reports.phrases import budget_error_text
from stablehlo_mem.results.budget_error import BudgetError
from stablehlo_mem.results.memory_profile import MemoryProfile, Origin, profile_graph
from stablehlo_mem.results.plan import Cost, Figures, Plan, Timing
from stablehlo_mem.targets.chips import Chip
from stablehlo_mem.targets.measurement import Measured
from stablehlo_mem.targets.target import Target

Budget = int | Literal["min"] | None

_UNSEEN_SHARE = 1 / 16
"""At most so much of the room is left for what no report shows."""
_PATIENCE = 3
"""Compilations in a row that may bring nothing before a form of the program is given up."""
_WORTH = 0.05
"""Share of its time that a program must be thought to save to be changed where memory is no reason."""
_WORTH_LOOPS = 0.2
"""Share of what is left that loops which stay in the cache must be thought to save on top."""


def keep_budget(program: Program, budget: Budget, targets: tuple[Target, ...], options: Options) -> Plan:
    """Plans a program for targets, all of which must fit.

    Args:
        budget: bytes of arguments + outputs + temporaries + constants − aliased; "min" for the smallest found
            within `options.max_compiles` and four times the original's estimated time; None for no limit.

    Raises:
        BudgetError: the budget is below arguments + outputs − aliased: no plan gets there, nothing was compiled.
        InputError: an option has no meaning, or plans are to be timed that cannot be.
    """
    check_options(options)
    if isinstance(budget, int) and budget < program.floor_bytes:
        raise below_floor(program, budget)
    if options.tune:
        check_tuning(program, targets)
    planning = _Planning(program, budget, targets, options)
    path = plan_cache.entry_path(program, budget, targets, options)
    kept = plan_cache.read(path) if path is not None else None
    plan = planning.again(kept) if kept is not None else None
    if plan is None:
        plan = planning.run()
        if path is not None:
            plan_cache.write(path, plan)
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


class _Planning:
    """One call of `keep_budget`."""

    def __init__(self, program: Program, budget: Budget, targets: tuple[Target, ...], options: Options):
        self.program, self.targets, self.options = program, targets, options
        self.budget: Budget = budget
        self.trials = Evaluator(program, targets, options, any_peak=budget is None)

    def run(self) -> Plan:
        original = self.trials.original()
        best = self.fastest(original) if self.budget is None else original
        if self.budget is not None and not self.fits(original):
            for attempt in self.attempts(original):
                if attempt.peak_bytes < best.peak_bytes:
                    best = attempt
                if self.fits(attempt):
                    break
        return self.tuned(original, best) if self.options.tune else self.plan(original, best)

    def tuned(self, original: Evaluation, best: Evaluation) -> Plan:
        """The plan that is the fastest on the device, of the best, and others that fit."""
        chip = original.target.chip
        timings: tuple[Timing, ...] = ()
        if self.budget is None:
            tried = [best] if best is original else [best, original]
            states = (self.trials.begin(chip, "quick"), self.looped(chip))
            best, timings = autotune.fastest(self.trials, tried, states, _compiles)
        elif self.fits(best) and best is not original:
            goal = Goal(chip, self.options, int(self.first_goal(original, self.room(original))))
            best, timings = autotune.fastest(self.trials, [best], autotune.of_each_kind(self.trials, goal), self.fits)
        return dataclasses.replace(self.plan(original, best), timings=timings)

    def again(self, kept: plan_cache.Kept) -> Plan | None:
        """The plan of an earlier call, its steps taken again and nothing compiled; None if they cannot be."""
        with self.trials.timed():
            module = plan_cache.replay(self.program.module, kept)
        if module is None:
            return None
        before = dataclasses.replace(kept.plan.before, origin=Origin(self.program.lasting, self.targets[0]))
        plan = dataclasses.replace(kept.plan, before=before, compiles=0, planning_seconds=self.trials.seconds)
        return self.finished(plan, module)

    def fastest(self, original: Evaluation) -> Evaluation:
        """What saves time worth a change, by loops in the chip's cache too, if a target's compiler takes it."""
        chip = original.target.chip
        written = graph_seconds(self.trials.start(chip).graph, chip)
        state, looped = self.trials.begin(chip, "quick"), self.looped(chip)
        state = looped if looped.seconds < (1 - _WORTH_LOOPS) * state.seconds else state
        if written - state.seconds <= _WORTH * written:
            return original
        attempt = self.trials.measure(state, ())
        return attempt if _compiles(attempt) else original

    def looped(self, chip: Chip) -> SearchState:
        """The quick form, and loops that stay in the chip's cache."""
        if not chip.cache_bytes:
            return self.trials.begin(chip, "quick")
        return self.trials.search("quick", Goal(chip, self.options, CACHES * chip.cache_bytes))[0]

    def fits(self, attempt: Evaluation) -> bool:
        return isinstance(self.budget, int) and attempt.peak_bytes <= self.budget and _compiles(attempt)

    def attempts(self, original: Evaluation) -> Iterator[Evaluation]:
        """From one form of the program, and where that does not fit, from the others."""
        for form in self.forms(original):
            least = self.budget == "min"
            yield from towards_min(self.trials, original, form) if least else self.towards_budget(original, form)

    def forms(self, original: Evaluation) -> Iterator[Form]:
        """The forms that differ, in front the first one from which the goal is reached by the static profile."""
        chip = original.target.chip
        differing = self.trials.differing(chip)
        passed: list[Form] = []
        if isinstance(self.budget, int):
            goal = Goal(chip, self.options, int(self.first_goal(original, self.room(original))))
            for form in differing:
                if self.trials.search(form, goal)[0].peak.temp_bytes <= goal.temp_bytes:
                    yield form
                    break
                passed.append(form)
        yield from passed
        yield from differing

    def towards_budget(self, original: Evaluation, form: Form) -> Iterator[Evaluation]:
        """Static goals below the budget by as much as the compiler was seen to need more than the profile said.

        Where the profile sees no way to the goal it may be too careful: the compiler judges other beginnings too.
        """
        assert isinstance(self.budget, int)
        room = self.room(original)
        goals = Goals(self.first_goal(original, room), room)
        latest = original
        tried: set[Refusal] = set()
        best, stalled = original.peak_bytes, 0
        seen: list[tuple[Step, ...]] = []
        while self.trials.may_compile and stalled < _PATIENCE:
            goal = Goal(latest.target.chip, self.options, int(goals.goal))
            state, refusals = self.trials.search(form, goal, frozenset(tried))
            reached = state.peak.temp_bytes <= goals.goal
            if not state.steps:
                break
            if state.steps in seen:
                if goals.descend():
                    continue
                # A smaller goal changes nothing: the compiler does not see what the profile does of this beginning.
                if state.first is None or state.first in tried:
                    break
                tried.add(state.first)
                goals.restart()
                stalled += 1
                continue
            attempt = latest = self.trials.measure(state, refusals)
            yield attempt
            seen.append(state.steps)
            better = attempt.peak_bytes < best
            # An attempt between two others is one more than there would be, and does not count.
            stalled = 0 if better and reached else stalled + (not (goals.between and reached))
            best = min(best, attempt.peak_bytes)
            if reached:
                goals.follow(state.peak.temp_bytes, attempt.peak_bytes - (self.budget - room), better=better)
            elif state.first is not None:
                tried.add(state.first)
        if all(steps == self.trials.begin(latest.target.chip, form).steps for steps in seen):
            yield from self.unproven(latest, form, goals.goal)

    def unproven(self, original: Evaluation, form: Form, goal: float) -> Iterator[Evaluation]:
        """Where no candidate helps by the profile, which need not see what the compiler sees: the compiler's word."""
        aim = Goal(original.target.chip, self.options, int(goal))
        for state in itertools.islice(unproven(self.trials.begin(aim.chip, form), aim), _PATIENCE):
            if self.trials.may_compile:
                yield self.trials.measure(state, ())

    def room(self, original: Evaluation) -> float:
        """Bytes the budget leaves for temporaries."""
        assert isinstance(self.budget, int)
        return float(max(0, self.budget - self.trials.fixed_bytes(original)))

    def first_goal(self, original: Evaluation, room: float) -> float:
        """The room there is for temporaries; less where the compiler sees more of them than the profile does."""
        static = original.state.peak.temp_bytes
        temp = original.peak_bytes - self.trials.fixed_bytes(original)
        room -= min(room * _UNSEEN_SHARE, original.target.chip.unseen_bytes)
        if static > room or math.isinf(temp):
            return room
        return SHRINK * static * room / max(1, temp)

    def plan(self, original: Evaluation, best: Evaluation) -> Plan:
        plan = Plan(
            budget_bytes=self.budget if isinstance(self.budget, int) else None,
            target=tuple(t.name for t in self.targets),
            before=dataclasses.replace(_profile(original), origin=Origin(self.program.lasting, original.target)),
            after=_profile(best),
            steps=best.state.steps,
            summaries=tuple(decision.summary for decision in best.state.decisions),
            decisions=best.state.decisions,
            cost_before=_cost(self.trials.start(best.state.chip)),
            cost_after=_cost(best.state),
            figures=_figures(original, best),
            options=self.options,
            refusals=best.refusals if best.refusals or self.fits(best) else self.refusals_of(best),
            compiles=self.trials.compiles,
            fits=self.fits(best) or self.budget is None or self.budget == "min",
            planning_seconds=self.trials.seconds,
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

    def refusals_of(self, attempt: Evaluation) -> tuple[Refusal, ...]:
        """Why the best attempt is not smaller still."""
        candidates, refusals = propose(attempt.state, Goal(attempt.target.chip, self.options, 0))
        return (*refusals, *(c.refusal_if_useless for c in candidates)) or (nothing_to_split(attempt.state),)

    def optimise_vjp(self, exported: Exported) -> Exported:
        """The vjp of the original, under the same budget, or a BudgetError: never the unoptimised one unsaid."""
        return require_fit(keep_budget(ingest(exported), self.budget, self.targets, self.options)).result


def _compiles(attempt: Evaluation) -> bool:
    return isinstance(attempt.measured, Measured)


def _profile(attempt: Evaluation) -> MemoryProfile:
    static = profile_graph(attempt.state.graph, attempt.target.chip)
    return dataclasses.replace(static, measured=attempt.measured)


def _cost(state: SearchState) -> Cost:
    """What a cache spares is estimated apart from what memory costs: together no less than the arithmetic takes."""
    return Cost(max(state.seconds, state.flops / state.chip.flops_per_second), state.flops)


def _figures(original: Evaluation, best: Evaluation) -> tuple[Figures, ...]:
    pairs = zip(original.everywhere, best.everywhere, strict=True)
    return tuple(Figures(target.name, before, after) for (target, before), (_, after) in pairs)
