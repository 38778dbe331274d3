"""The budget loop: compiles what searches find until it fits, then goes back to what is cheaper, and makes the plan.

The api and `jaxpr.plan_at_lowering` call `keep_budget` and `require_fit`; `budget_search` and `smallest_peak` search.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import get_args

from jax.export import Exported

from stablehlo_mem.analysis.cost_model import graph_seconds
from stablehlo_mem.errors import InputError
from stablehlo_mem.frontend.program import Program, emit, ingest
from stablehlo_mem.ir.bindings import ir, module_bytes
from stablehlo_mem.pass_api.candidate import Goal, Options, Refusal
from stablehlo_mem.planner import autotune, plan_cache, shares
from stablehlo_mem.planner.budget_search import BudgetSearch
from stablehlo_mem.planner.cheaper import cheaper
from stablehlo_mem.planner.discrepancy_search import CACHE_MULTIPLE
from stablehlo_mem.planner.evaluator import Evaluation, Evaluator, Form, compiles, cost
from stablehlo_mem.planner.greedy_search import nothing_to_split, propose
from stablehlo_mem.planner.pareto_front import CLEARLY
from stablehlo_mem.planner.search_state import SearchState
from stablehlo_mem.planner.smallest_peak import has_little_left, minimise_peak
from stablehlo_mem.planner.users_terms import in_users_terms
from stablehlo_mem.planner.validation import (
    below_floor,
    check_options,
    check_tuning,
    for_platforms,
    ignored_placements,
    is_below,
    no_host_memory,
    verify,
)
from stablehlo_mem.reports.phrases import budget_error_text
from stablehlo_mem.results.budget_error import BudgetError
from stablehlo_mem.results.memory_profile import MemoryProfile, Origin, profile_graph
from stablehlo_mem.results.plan import Figures, Plan, Timing, TooSlow
from stablehlo_mem.targets.chips import Chip
from stablehlo_mem.targets.measurement import Measured
from stablehlo_mem.targets.target import Target
from stablehlo_mem.utils import gc_pause
from stablehlo_mem.utils.progress import shown
from stablehlo_mem.utils.units import Budget, Share

_SLOWDOWN_FACTOR_MIN = 2
"""Who asks for the smallest peak accepts more: with budget="min" `Options.max_slowdown` counts so many times."""
_MIN_SAVING = 0.05
"""Without a budget, share of its estimated time that a program must save to be changed: the error of estimates."""
_MIN_SAVING_CACHE = 0.2
"""Share of the remaining time that loops in the cache must save: their estimates err more."""


@gc_pause.rare()
def keep_budget(
    program: Program, budget: Budget, targets: tuple[Target, ...], options: Options, held_bytes: int = 0
) -> Plan:
    """Plans a program for targets, all of which must fit.

    Args:
        budget: bytes of arguments + outputs + temporaries + constants − aliased, or a share; "min" for the smallest
            found within `options.max_compiles` and twice `options.max_slowdown`; None for no limit.
        held_bytes: see `shares.of_device`.

    Raises:
        BudgetError: the budget is below arguments + outputs − aliased, which no plan changes; nothing was compiled.
        InputError: an option is invalid, `options.tune` is set for a program that cannot be timed, or the compiler says
            nothing of the temporaries that the budget is a share of.
    """
    check_options(options)
    budget = shares.of_device(budget, targets, held_bytes)
    if is_below(budget, program):
        raise below_floor(program, budget)
    if options.tune:
        check_tuning(program, targets)
    planning = _Planning(program, budget, targets, options)
    path = plan_cache.entry_path(program, budget, targets, options)
    cached = plan_cache.read(path) if path is not None else None
    plan = planning.replayed(cached) if cached is not None else None
    if plan is None:
        with shown(f"plan {program.name}"):
            plan = planning.run()
        if path is not None and not planning.evaluator.is_out_of_time:
            plan_cache.write(path, plan)
    return plan


def follow(
    program: Program, budget: Budget, targets: tuple[Target, ...], options: Options, cached: plan_cache.CachedPlan
) -> Plan | None:
    """A plan that was made of the same program elsewhere, applied to this one; None if it cannot be."""
    return _Planning(program, budget, targets, options).replayed(cached)


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
        self.asked: Budget = budget
        self.budget: Budget = budget
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
        if isinstance(self.budget, Share):
            self.budget = self.bytes_of_share(self.budget, original)
        best = self.fastest(original) if self.budget is None else original
        if self.budget is not None and not self.fits(original):
            best = self.search(original)
        return self.tuned(original, best) if self.options.tune else self.plan(original, best)

    def bytes_of_share(self, share: Share, original: Evaluation) -> int:
        """A share of the temporaries in bytes.

        Raises:
            InputError: the compiler says nothing of the original's.
        """
        if math.isinf(original.peak_bytes):
            raise InputError(
                f"a share of temporaries is a share of what the compiler of {original.target.name} reports, which "
                "refuses the program without a figure: give a budget in bytes"
            )
        return shares.of_temporaries(share, self.evaluator.fixed_bytes(original), original.peak_bytes)

    def search(self, original: Evaluation) -> Evaluation:
        """The best program found with the host's memory, or without if none keeps the budget with it.

        A step that is taken because the host has room may be the wrong one in the end.
        """
        found = [self.search_once(original)]
        has_host_memory = self.options.host_bytes and original.target.chip.host_link_bytes_per_second
        if has_host_memory and not self.keeps(found[0]):
            self.evaluator.options = dataclasses.replace(self.options, host_memory=None)
            found.append(self.search_once(original))
        return min(found, key=lambda evaluation: (not self.keeps(evaluation), *self.unwanted(evaluation)))

    def keeps(self, evaluation: Evaluation) -> bool:
        """Whether a program is within the budget and the limit of the price."""
        return self.fits(evaluation) and not self.evaluator.is_slow(evaluation.state)

    def search_once(self, original: Evaluation) -> Evaluation:
        """The cheapest program found that fits, or that of the smallest peak within the limit of the price."""
        if isinstance(self.budget, int):
            searching = BudgetSearch(self.evaluator, original, self.budget)
            for form, evaluation in searching.evaluations():
                if self.fits(evaluation):
                    room = searching.room
                    best = cheaper(self.evaluator, form, evaluation, self.fits, searching.fixed_bytes, room)
                    if self.evaluator.is_slow(best.state):
                        self.compile_affordable(original)
                    return best
            self.compile_affordable(original)
            beyond = self.compile_at_any_price(searching)
            if beyond is not None and self.fits(beyond):
                return beyond
        else:
            self.minimise_peak(original)
        return min(self.evaluator.evaluations, key=self.unwanted)

    def compile_at_any_price(self, searching: BudgetSearch) -> Evaluation | None:
        """A compiled program that is too slow, and reaches the goal or is smaller than the others; None if none is."""
        chip = searching.original.target.chip
        goal = Goal(chip, self.evaluator.options, int(searching.first_goal))
        state, _ = self.evaluator.search("quick", goal, any_price=True)
        is_new = state.fingerprint not in {e.state.fingerprint for e in self.evaluator.evaluations}
        limit = max(goal.temp_bytes, (1 - CLEARLY) * min(e.state.peak.temp_bytes for e in self.evaluator.evaluations))
        worth = is_new and self.evaluator.is_slow(state) and state.peak.temp_bytes <= limit
        return self.evaluator.measure(state, ()) if worth and self.evaluator.may_compile else None

    def compile_affordable(self, original: Evaluation) -> None:
        """Compiles the smallest program within the limit of the price that searches visited, if none so small was."""
        chip = original.target.chip
        visited = (s for form in get_args(Form) for s in self.evaluator.visited(form, chip).within(math.inf))
        lowest = min(
            (s for s in visited if not self.evaluator.is_slow(s)), key=lambda s: s.peak.temp_bytes, default=None
        )
        least = min(e.state.peak.temp_bytes for e in self.affordable())
        if lowest is not None and lowest.peak.temp_bytes < (1 - CLEARLY) * least and self.evaluator.may_compile:
            self.evaluator.measure(lowest, ())

    def minimise_peak(self, original: Evaluation) -> None:
        """Compiles smaller and smaller programs from each form, for the evaluator to keep."""
        for form in self.evaluator.distinct_forms(original.target.chip):
            found = [e for e in self.affordable() if e.peak_bytes < original.peak_bytes]
            lowest = min(found, key=lambda e: e.peak_bytes, default=None)
            for _ in minimise_peak(self.evaluator, original, form, lowest.state if lowest else None):
                pass
            if any(map(has_little_left, self.affordable())):
                return

    def unwanted(self, evaluation: Evaluation) -> tuple[bool, bool, float]:
        """A sort key where no budget is kept: what compiles, is not too slow, and has the smallest peak comes first."""
        return not compiles(evaluation), self.evaluator.is_slow(evaluation.state), evaluation.peak_bytes

    def affordable_peak_bytes(self) -> int | None:
        """The smallest peak of a program that is not too slow, as the original is not; None if none has a figure."""
        smallest = min(e.peak_bytes for e in self.affordable())
        return int(smallest) if smallest < math.inf else None

    def smaller_but_slow(self, best: Evaluation) -> TooSlow | None:
        """The smallest compiled program that is too slow, if it is smaller than the best of the others."""
        slow = [e for e in self.evaluator.evaluations if compiles(e) and self.evaluator.is_slow(e.state)]
        smallest = min(slow, key=lambda e: e.peak_bytes, default=best)
        if smallest.peak_bytes >= best.peak_bytes:
            return None
        original = self.evaluator.original_state(smallest.state.chip)
        return TooSlow(int(smallest.peak_bytes), cost(smallest.state).over(cost(original)))

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
            best, timings = autotune.fastest(self.evaluator, tried, states, compiles)
        elif isinstance(self.budget, int) and self.fits(best) and best is not original:
            goal = Goal(chip, self.options, int(BudgetSearch(self.evaluator, original, self.budget).first_goal))
            best, timings = autotune.fastest(
                self.evaluator, [best], autotune.distinct_kinds(self.evaluator, goal), self.fits
            )
        return dataclasses.replace(self.plan(original, best), timings=timings)

    def replayed(self, cached: plan_cache.CachedPlan) -> Plan | None:
        """A cached plan with its steps applied again, nothing compiled; None if they do not apply."""
        with self.evaluator.timed():
            module = plan_cache.replay(self.program.module, cached, self.targets)
        if module is None:
            return None
        before = dataclasses.replace(cached.plan.before, origin=Origin(self.program.lasting, self.targets[0]))
        seconds = self.evaluator.seconds
        effort = {"compiles": 0, "compile_seconds": 0.0, "planning_seconds": seconds}
        plan = dataclasses.replace(cached.plan, before=before, name=self.program.name, **effort)
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
        return evaluation if compiles(evaluation) else original

    def in_cache(self, chip: Chip) -> SearchState:
        """The quick form, split into loops that stay in the chip's cache if it has one and the whole does not."""
        quick, in_cache = self.evaluator.form_state(chip, "quick"), CACHE_MULTIPLE * chip.cache_bytes
        if not in_cache or quick.peak.temp_bytes <= in_cache:
            return quick
        return self.evaluator.search("quick", Goal(chip, self.options, in_cache))[0]

    def fits(self, evaluation: Evaluation) -> bool:
        in_budget = isinstance(self.budget, int) and evaluation.peak_bytes <= self.budget
        return in_budget and compiles(evaluation) and self.fits_host(evaluation)

    def fits_host(self, evaluation: Evaluation) -> bool:
        """Whether the host has room for the temporaries there: as many as allowed, or as the program had as given.

        Where nothing is said of the host's memory no pass keeps any there. What the compiler needs there itself, to
        copy arguments in another layout, is reported.
        """
        if self.options.host_memory is None:
            return True
        needed, given = (
            e.measured.host_temp_bytes if isinstance(e.measured, Measured) else 0
            for e in (evaluation, self.evaluator.evaluations[0])
        )
        return needed <= max(given, self.options.host_bytes)

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
            refusals=self.refusals_of(best) if best.refusals or not self.fits(best) else self.about_memories(best),
            compiles=self.evaluator.compiles,
            fits=self.budget is None or self.budget == "min" or (self.fits(best) and not too_slow),
            too_slow=too_slow,
            affordable_peak_bytes=self.affordable_peak_bytes() if too_slow else None,
            smaller_but_slow=None if self.fits(best) or self.budget is None else self.smaller_but_slow(best),
            planning_seconds=self.evaluator.seconds,
            compile_seconds=self.evaluator.compile_seconds,
            name=self.program.name,
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
        """Why the best program's peak is not lower; if its search does not say, why the smallest program's is not."""
        if not evaluation.refusals:
            compiled = filter(compiles, self.evaluator.evaluations)
            evaluation = min(compiled, key=lambda e: e.peak_bytes, default=evaluation)
        refusals, untried = evaluation.refusals, False
        if not refusals:
            candidates, refusals = propose(evaluation.state, Goal(evaluation.target.chip, self.options, 0))
            # Before anything was tried nothing is known to be useless.
            untried = bool(candidates) and len(self.evaluator.evaluations) == 1
            refusals = refusals if untried else (*refusals, *(c.refusal_if_useless for c in candidates))
        original = self.evaluator.original_state(evaluation.state.chip).graph
        refusals = (*self.about_memories(evaluation), *in_users_terms(refusals, original))
        return refusals if refusals or untried else (nothing_to_split(evaluation.state),)

    def about_memories(self, evaluation: Evaluation) -> tuple[Refusal, ...]:
        """Why arguments in the host's memory are counted, where they are, and why temporaries are not kept there."""
        original = self.evaluator.original_state(evaluation.state.chip)
        return (*ignored_placements(self.targets, original.graph), *no_host_memory(self.options, original))

    def optimise_vjp(self, exported: Exported) -> Exported:
        """The vjp of the original, optimised under the budget that was asked for: a share is one of its own memory.

        Raises:
            BudgetError: it does not keep the budget.
        """
        try:
            return require_fit(keep_budget(ingest(exported), self.asked, self.targets, self.options)).result
        except BudgetError as error:
            raise error.of("the vjp") from error


def _profile(evaluation: Evaluation) -> MemoryProfile:
    static = profile_graph(evaluation.state.graph, evaluation.target.chip)
    return dataclasses.replace(static, measured=evaluation.measured)


def _figures(original: Evaluation, best: Evaluation) -> tuple[Figures, ...]:
    pairs = zip(original.everywhere, best.everywhere, strict=True)
    return tuple(Figures(target.name, before, after) for (target, before), (_, after) in pairs)
