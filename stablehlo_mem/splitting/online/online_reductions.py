"""Finds reductions that need not wait for the loop of an earlier one over the same axis: see the folder's docstring.

A sum over the axis of x · f(r), where r is a row statistic, is f(r) times the sum of x: so the sum may run in the loop
that reduces r. `loop_scheduling` asks the finder; `loop_schedule`, `chunk_cost` and `emit_loops` read the result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.splitting.online.deferred_terms import DeferredTerm, DeferredTerms, TermOp
from stablehlo_mem.splitting.online.running_max import RunningStatistic
from stablehlo_mem.splitting.partial_schedule import PartialSchedule


@dataclasses.dataclass(frozen=True)
class OnlineReductions:
    """The reductions that run in a loop before all that they depend on is finished.

    Some split ops exist in two versions in such a loop: x itself, which the maximum is taken of, and x minus the
    running maximum, which exp is taken of.

    Attributes:
        terms: for each value that is accumulated, its terms in the order in which they are applied.
        term_ops: the split ops that bring in a term, by loop.
        two_versions: (loop, split op) of those that exist with the running maxima and without.
        running: by loop and value, the row statistics that follow a running maximum.
    """

    terms: Mapping[int, tuple[DeferredTerm, ...]]
    term_ops: Mapping[tuple[int, SplitOp], TermOp]
    two_versions: frozenset[tuple[int, SplitOp]]
    running: Mapping[tuple[int, int], RunningStatistic]

    def reads(self, op: Op, loop: int, split_op: SplitOp, with_max: bool) -> tuple[tuple[int, ...], bool]:
        """The operands that a version of a split op reads, and whether it reads their versions with running maxima.

        Where a term is deferred only the operand that it would be applied to is read.
        """
        term_op = self.term_ops.get((loop, split_op))
        if term_op is not None and not (with_max and term_op.running):
            return (term_op.position,), with_max
        return tuple(range(len(op.inputs))), with_max or op.name == "stablehlo.exponential"

    def version(self, loop: int, split_op: SplitOp, with_max: bool) -> bool:
        """The version of a split op that is meant: with running maxima only if it has such a version."""
        return with_max and (loop, split_op) in self.two_versions


NO_ONLINE_REDUCTIONS = OnlineReductions({}, {}, frozenset(), {})


class OnlineReductionFinder:
    """Finds, in program order, the reductions that can run in the loop of what they depend on."""

    def __init__(self, graph: Graph, schedule: PartialSchedule):
        self.graph, self.schedule = graph, schedule
        self.terms: dict[int, tuple[DeferredTerm, ...]] = {}
        self.by_loop: dict[int, DeferredTerms] = {}

    def earliest_loop(self, split_op: SplitOp, loop: int) -> int:
        """The first loop in which a reduction can run that waits for `loop` as the program is written."""
        results = self.graph.ops[split_op.op].results
        may_run_early = len(results) == 1 and split_op.partial and not split_op.direction
        if not may_run_early or self.schedule.outputs.get(results[0]) != split_op:
            return loop
        # The earlier the loop, the more is pending: if one is too early, so are all before it.
        for earlier in reversed(range(loop)):
            deferred = self.by_loop.setdefault(earlier, DeferredTerms(self.graph, self.schedule, earlier))
            terms = deferred.of_reduction(split_op)
            if not terms:
                break
            self.terms[results[0]] = terms
            loop = earlier
        return loop

    def result(self) -> OnlineReductions:
        """All that were found."""
        if not self.terms:
            return NO_ONLINE_REDUCTIONS
        loops = self.by_loop.items()
        return OnlineReductions(
            self.terms,
            {(loop, split_op): op for loop, deferred in loops for split_op, op in deferred.term_ops.items()},
            frozenset((loop, split_op) for loop, deferred in loops for split_op in deferred.with_two_versions()),
            {(loop, v): r for loop, deferred in loops for v, r in deferred.maxima.running.items() if r},
        )
