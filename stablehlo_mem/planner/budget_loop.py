"""The budget loop: searches by the static profile, compiles the result, and lowers the static goal until it fits.

The api and `jaxpr.plan_at_lowering` call `keep_budget` and `require_fit`.
"""

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
from stablehlo_mem.ir.graph import len_ops
from stablehlo_mem.pass_api.candidate import Goal, Identity, Options, Refusal, Step
from stablehlo_mem.planner import autotune, plan_cache
from stablehlo_mem.planner.cheaper import cheaper
from stablehlo_mem.planner.discrepancy_search import CACHE_MULTIPLE
from stablehlo_mem.planner.evaluator import Evaluation, Evaluator, Form, cost
from stablehlo_mem.planner.goals import SHRINK, Goals
from stablehlo_mem.planner.greedy_search import apply_first_candidates, nothing_to_split, propose
from stablehlo_mem.planner.pareto_front import CLEARLY
from stablehlo_mem.planner.search_state import SearchState
from stablehlo_mem.planner.smallest_peak import has_little_left, minimise_peak
from stablehlo_mem.planner.users_terms import in_users_terms
from stablehlo_mem.planner.validation import below_floor, check_options, check_tuning, for_platforms, verify
from stablehlo_mem.reports.phrases import budget_error_text
from stablehlo_mem.results.budget_error import BudgetError
from stablehlo_mem.results.memory_profile import MemoryProfile, Origin, profile_graph
from stablehlo_mem.results.plan import Figures, Plan, Timing
from stablehlo_mem.targets.chips import Chip
from stablehlo_mem.targets.measurement import Measured
from stablehlo_mem.targets.target import Target

Budget = int | Literal["min"] | None

_MAX_UNSEEN = 1 / 16
"""Share of the room that the first goal leaves for `Chip.unseen_bytes`, which no compiler reports, at most."""
_MAX_STALLED = 3
"""Compilations in a row that may bring nothing before a form of the program is given up: a compilation takes long."""
_HOPELESS = 2
"""If a program misses its goal by more than this factor, by the profile and by the compiler, no other first steps are
tried from its form: on the suite they ended within it of the first. Nor are other forms of a large program."""
_LARGE_OPS = 1_000
"""From so many ops on a program is large: a search that misses its goal takes seconds."""
_SLOWDOWN_FACTOR_MIN = 2
"""Who asks for the smallest peak accepts more: with budget="min" `Options.max_slowdown` counts so many times."""
_MIN_SAVING = 0.05
"""Without a budget, share of its estimated time that a program must save to be changed: the error of estimates."""
_MIN_SAVING_CACHE = 0.2
"""Share of the remaining time that loops in the cache must save: their estimates err more."""


def keep_budget(program: Program, budget: Budget, targets: tuple[Target, ...], options: Options) -> Plan:
    """Plans a program for targets, all of which must fit.

    Args:
        budget: bytes of arguments + outputs + temporaries + constants − aliased; "min" for the smallest found
            within `options.max_compiles` and twice `options.max_slowdown`; None for no limit.

    Raises:
        BudgetError: the budget is below arguments + outputs − aliased, which no plan changes; nothing was compiled.
        InputError: an option is invalid, or `options.tune` is set for a program that cannot be timed.
    """
    check_options(options)
    if isinstance(budget, int) and budget < program.floor_bytes:
        raise below_floor(program, budget)
    if options.tune:
        check_tuning(program, targets)
    planning = _Planning(program, budget, targets, options)
    path = plan_cache.entry_path(program, budget, targets, options)
    cached = plan_cache.read(path) if path is not None else None
    plan = planning.replayed(cached) if cached is not None else None
    if plan is None:
        plan = planning.run()
        if path is not None and not planning.evaluator.is_out_of_time:
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
        reached_bytes=plan.affordable_peak_bytes or plan.after.peak_bytes,
        best=plan,
        obstacles=plan.refusals,
    )


class _Planning:
    """One call of `keep_budget`."""

    def __init__(self, program: Program, budget: Budget, targets: tuple[Target, ...], options: Options):
        options = for_platforms(options, program, targets)
        self.program, self.targets, self.options = program, targets, options
        self.budget: Budget = budget
        self.lowest_missed = math.inf
        self.is_hopeless = False
        limit = math.inf if options.max_slowdown is None else options.max_slowdown
        self.evaluator = Evaluator(
            program,
            targets,
            options,
            any_peak=budget is None,
            max_slowdown=limit * _SLOWDOWN_FACTOR_MIN if budget == "min" else limit,
        )

    def run(self) -> Plan:
        original = self.evaluator.original()
        best = self.fastest(original) if self.budget is None else original
        if self.budget is not None and not self.fits(original):
            best = self.search(original)
        return self.tuned(original, best) if self.options.tune else self.plan(original, best)

    def search(self, original: Evaluation) -> Evaluation:
        """The cheapest program found that fits, or that of the smallest peak within the limit of the price."""
        fixed_bytes = self.evaluator.fixed_bytes(original)
        for form, evaluation in self.evaluations(original):
            if self.fits(evaluation):
                return cheaper(self.evaluator, form, evaluation, self.fits, fixed_bytes, self.room(original))
        return min(self.evaluator.evaluations, key=self.unwanted)

    def unwanted(self, evaluation: Evaluation) -> tuple[bool, bool, float]:
        """A sort key where no budget is kept: what compiles, is not too slow, and has the smallest peak comes first."""
        return not _compiles(evaluation), self.evaluator.is_slow(evaluation.state), evaluation.peak_bytes

    def affordable_peak_bytes(self) -> int:
        """The smallest peak of a compiled program that is not too slow; the original is none of the slow ones."""
        return int(min(e.peak_bytes for e in self.affordable()))

    def affordable(self) -> Iterator[Evaluation]:
        """The compiled programs that are not too slow."""
        return (e for e in self.evaluator.evaluations if not self.evaluator.is_slow(e.state))

    def tuned(self, original: Evaluation, best: Evaluation) -> Plan:
        """The plan that is fastest on the device: the best estimate, or another one that fits."""
        chip = original.target.chip
        timings: tuple[Timing, ...] = ()
        if self.budget is None:
            tried = [best] if best is original else [best, original]
            states = (self.evaluator.form_state(chip, "quick"), self.in_cache(chip))
            best, timings = autotune.fastest(self.evaluator, tried, states, _compiles)
        elif self.fits(best) and best is not original:
            goal = Goal(chip, self.options, int(self.first_goal(original, self.room(original))))
            best, timings = autotune.fastest(
                self.evaluator, [best], autotune.distinct_kinds(self.evaluator, goal), self.fits
            )
        return dataclasses.replace(self.plan(original, best), timings=timings)

    def replayed(self, cached: plan_cache.CachedPlan) -> Plan | None:
        """A cached plan with its steps applied again, nothing compiled; None if they do not apply."""
        with self.evaluator.timed():
            module = plan_cache.replay(self.program.module, cached)
        if module is None:
            return None
        before = dataclasses.replace(cached.plan.before, origin=Origin(self.program.lasting, self.targets[0]))
        seconds = self.evaluator.seconds
        plan = dataclasses.replace(
            cached.plan, before=before, compiles=0, compile_seconds=0.0, planning_seconds=seconds
        )
        return self.finished(plan, module)

    def fastest(self, original: Evaluation) -> Evaluation:
        """Without a budget: the program after time-saving steps, if they save enough and it compiles."""
        chip = original.target.chip
        written = graph_seconds(self.evaluator.original_state(chip).graph, chip)
        state, in_cache = self.evaluator.form_state(chip, "quick"), self.in_cache(chip)
        state = in_cache if in_cache.seconds < (1 - _MIN_SAVING_CACHE) * state.seconds else state
        if written - state.seconds <= _MIN_SAVING * written:
            return original
        evaluation = self.evaluator.measure(state, ())
        return evaluation if _compiles(evaluation) else original

    def in_cache(self, chip: Chip) -> SearchState:
        """The quick form, split into loops that stay in the chip's cache if it has one."""
        if not chip.cache_bytes:
            return self.evaluator.form_state(chip, "quick")
        return self.evaluator.search("quick", Goal(chip, self.options, CACHE_MULTIPLE * chip.cache_bytes))[0]

    def fits(self, evaluation: Evaluation) -> bool:
        return isinstance(self.budget, int) and evaluation.peak_bytes <= self.budget and _compiles(evaluation)

    def evaluations(self, original: Evaluation) -> Iterator[tuple[Form, Evaluation]]:
        """The programs to compile, from each form until one fits."""
        for form in self.forms(original):
            least = self.budget == "min"
            found = minimise_peak(self.evaluator, original, form) if least else self.towards_budget(original, form)
            for evaluation in found:
                yield form, evaluation
            if self.is_hopeless and self.is_large(original):
                return
            if least and any(map(has_little_left, self.affordable())):
                return

    def forms(self, original: Evaluation) -> Iterator[Form]:
        """The distinct forms, first the one from which the goal is reached by the static profile."""
        chip = original.target.chip
        forms = self.evaluator.distinct_forms(chip)
        missed: list[Form] = []
        if isinstance(self.budget, int):
            goal = Goal(chip, self.options, int(self.first_goal(original, self.room(original))))
            for form in forms:
                static = self.evaluator.search(form, goal)[0].peak.temp_bytes
                if static <= goal.temp_bytes:
                    yield form
                    break
                missed.append(form)
                if _is_far(static, goal.temp_bytes) and self.is_large(original):
                    break
        yield from missed
        yield from forms

    def towards_budget(self, original: Evaluation, form: Form) -> Iterator[Evaluation]:
        """Compiles what searches for a sequence of static goals find, see `Goals`.

        If a search misses its goal, or a lower goal changes nothing, the next search begins with another step: the
        profile may overestimate, and the compiler judges the other program.
        """
        assert isinstance(self.budget, int)
        room, fixed = max(1, self.room(original)), self.evaluator.fixed_bytes(original)
        temp = original.peak_bytes - fixed
        goals = Goals(self.first_goal(original, room), room, (original.state.peak.temp_bytes, temp))
        latest = original
        tried: set[Identity] = set()
        best, stalled, changed = original.peak_bytes, 0, False
        seen: list[tuple[Step, ...]] = []
        while self.evaluator.may_compile and stalled < _MAX_STALLED:
            goal = Goal(latest.target.chip, self.options, int(goals.goal))
            state, refusals = self.evaluator.search(form, goal, frozenset(tried))
            reached = state.peak.temp_bytes <= goals.goal
            if not state.steps:
                break
            changed |= state.steps != self.evaluator.form_state(goal.chip, form).steps
            if state.steps in seen or not (reached or self.may_be_new_low(state, goals.goal)):
                if goals.drop_midpoint():
                    continue
                # A smaller goal changes nothing: the compiler needs more than the profile says for this first step.
                if state.first is None or state.first in tried:
                    break
                tried.add(state.first)
                goals.restart()
                stalled += 1
                continue
            evaluation = latest = self.evaluator.measure(state, refusals)
            yield evaluation
            seen.append(state.steps)
            better = evaluation.peak_bytes < best
            # A goal between two others is one more than there would be, and does not count.
            stalled = 0 if better and reached else stalled + (not (goals.between and reached))
            best = min(best, evaluation.peak_bytes)
            if reached:
                goals.follow(state.peak.temp_bytes, evaluation.peak_bytes - (self.budget - room), better=better)
                continue
            self.lowest_missed = min(self.lowest_missed, state.peak.temp_bytes)
            self.is_hopeless = _is_far(state.peak.temp_bytes, goals.goal) and _is_far(
                evaluation.peak_bytes - fixed, room
            )
            if self.is_hopeless:
                break
            if state.first is not None:
                tried.add(state.first)
        if not changed:
            yield from self.compile_first_candidates(latest, form, goals.goal)

    def is_large(self, original: Evaluation) -> bool:
        """Whether searches take long."""
        return len_ops(original.state.graph) >= _LARGE_OPS

    def may_be_new_low(self, state: SearchState, goal: float) -> bool:
        """Whether a program that misses its goal is worth compiling after others that did.

        By the profile it is clearly below them or, where the goal is not missed by far, not clearly above.
        """
        static = state.peak.temp_bytes
        return static < (1 - CLEARLY if _is_far(static, goal) else 1 + CLEARLY) * self.lowest_missed

    def compile_first_candidates(self, original: Evaluation, form: Form, goal: float) -> Iterator[Evaluation]:
        """Compiles the first candidates although none lowers the static peak: the compiler may see what they save."""
        aim = Goal(original.target.chip, self.options, int(goal))
        for state in itertools.islice(
            apply_first_candidates(self.evaluator.form_state(aim.chip, form), aim), _MAX_STALLED
        ):
            if self.evaluator.may_compile:
                yield self.evaluator.measure(state, ())

    def room(self, original: Evaluation) -> float:
        """Bytes the budget leaves for temporaries."""
        assert isinstance(self.budget, int)
        return float(max(0, self.budget - self.evaluator.fixed_bytes(original)))

    def first_goal(self, original: Evaluation, room: float) -> float:
        """The room for temporaries, lowered by the ratio of the compiler's temporaries to the profile's."""
        static = original.state.peak.temp_bytes
        temp = original.peak_bytes - self.evaluator.fixed_bytes(original)
        room -= min(room * _MAX_UNSEEN, original.target.chip.unseen_bytes)
        if static > room or math.isinf(temp):
            return room
        return SHRINK * static * room / max(1, temp)

    def plan(self, original: Evaluation, best: Evaluation) -> Plan:
        too_slow = self.fits(best) and self.evaluator.is_slow(best.state)
        plan = Plan(
            budget_bytes=self.budget if isinstance(self.budget, int) else None,
            target=tuple(t.name for t in self.targets),
            before=dataclasses.replace(_profile(original), origin=Origin(self.program.lasting, original.target)),
            after=_profile(best),
            steps=best.state.steps,
            summaries=tuple(decision.summary for decision in best.state.decisions),
            decisions=best.state.decisions,
            cost_before=cost(self.evaluator.original_state(best.state.chip)),
            cost_after=cost(best.state),
            figures=_figures(original, best),
            options=self.options,
            refusals=self.refusals_of(best) if best.refusals or not self.fits(best) else (),
            compiles=self.evaluator.compiles,
            fits=self.budget is None or self.budget == "min" or (self.fits(best) and not too_slow),
            too_slow=too_slow,
            affordable_peak_bytes=self.affordable_peak_bytes() if too_slow else None,
            planning_seconds=self.evaluator.seconds,
            compile_seconds=self.evaluator.compile_seconds,
            result=None,
            exported=None,
            bytecode=b"",
        )
        return self.finished(plan, best.module)

    def finished(self, plan: Plan, module: ir.Module) -> Plan:
        """A plan with its programs: the very object that was given if there are no steps."""
        if self.options.verify:
            verify(self.program, module, plan.steps)
        unchanged = not plan.steps
        result = self.program.original if unchanged else emit(self.program, module, self.optimise_vjp)
        exported = self.program.exported if unchanged else (result if isinstance(result, Exported) else None)
        return dataclasses.replace(plan, result=result, exported=exported, bytecode=module_bytes(module))

    def refusals_of(self, evaluation: Evaluation) -> tuple[Refusal, ...]:
        """Why the best program's peak is not lower."""
        refusals = evaluation.refusals
        if not refusals:
            candidates, refusals = propose(evaluation.state, Goal(evaluation.target.chip, self.options, 0))
            refusals = (*refusals, *(c.refusal_if_useless for c in candidates))
        refusals = in_users_terms(refusals, self.evaluator.original_state(evaluation.state.chip).graph)
        return refusals or (nothing_to_split(evaluation.state),)

    def optimise_vjp(self, exported: Exported) -> Exported:
        """The vjp of the original, optimised under the same budget, or a BudgetError."""
        return require_fit(keep_budget(ingest(exported), self.budget, self.targets, self.options)).result


def _is_far(temp_bytes: float, goal: float) -> bool:
    """Whether a goal is missed by far."""
    return temp_bytes > _HOPELESS * goal


def _compiles(evaluation: Evaluation) -> bool:
    return isinstance(evaluation.measured, Measured)


def _profile(evaluation: Evaluation) -> MemoryProfile:
    static = profile_graph(evaluation.state.graph, evaluation.target.chip)
    return dataclasses.replace(static, measured=evaluation.measured)


def _figures(original: Evaluation, best: Evaluation) -> tuple[Figures, ...]:
    pairs = zip(original.everywhere, best.everywhere, strict=True)
    return tuple(Figures(target.name, before, after) for (target, before), (_, after) in pairs)
