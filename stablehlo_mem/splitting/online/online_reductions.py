"""Streaming: reductions over an axis that need earlier ones only through factors run in the same loop as those.

A sum over the axis whose terms are x · f(r), where r is an earlier reduction over it and the same for all of them, is
the sum of the x times f(r). So r need not be finished before the sum begins: what multiplies or divides by it is left
out of the loop and done to the sum, once. A softmax's exponentials must not be left without their maximum, for they
would overflow: they are taken with the maximum so far, and what was summed up with an older one is scaled down to the
new one, step by step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.splitting.online.deferred_terms import Adjusting, DeferredTerm, DeferredTerms, Form
from stablehlo_mem.splitting.online.running_max import Levels, Running


@dataclasses.dataclass(frozen=True)
class Streams:
    """What runs in loops before all it depends on is finished.

    Attributes:
        terms: for each value summed up that way, its terms, in the order they are done to it.
        forms: of split ops in loops that come too early for them, by loop and split op.
        adjusting: those of them that bring in a term.
        running: what whole values with the maximum so far are made of, by loop and whole value.
    """

    terms: Mapping[int, tuple[DeferredTerm, ...]]
    forms: Mapping[tuple[int, SplitOp], Form]
    adjusting: Mapping[tuple[int, SplitOp], Adjusting]
    running: Mapping[tuple[int, int], Running]

    def reads(self, op: Op, loop: int, split_op: SplitOp, running: bool) -> tuple[tuple[int, ...], bool]:
        """The operands a version of a split op reads, and whether in their versions with what runs.

        Of one that brings in a term that is left out it is the operand it would be done to.
        """
        adjusting = self.adjusting.get((loop, split_op))
        if adjusting is not None and not (running and adjusting.runs):
            return (adjusting.position,), running
        return tuple(range(len(op.inputs))), running or op.name == "stablehlo.exponential"

    def version(self, loop: int, split_op: SplitOp, running: bool) -> bool:
        """Whether it is the version with what runs that a reader of that kind reads."""
        form = self.forms.get((loop, split_op))
        return running and form is not None and form.shifted


NO_STREAMS = Streams({}, {}, {}, {})


class StreamFinder:
    """Finds, in program order, the reductions that can run earlier, in the loop of what they depend on."""

    def __init__(self, graph: Graph, levels: Levels):
        self.graph, self.levels = graph, levels
        self.terms: dict[int, tuple[DeferredTerm, ...]] = {}
        self.found: dict[int, DeferredTerms] = {}

    def earlier(self, split_op: SplitOp, phase: int) -> int | None:
        """The first loop in which a reduction can run that would have to wait for loop `phase`; None if it must."""
        results = self.graph.ops[split_op.op].results
        if (
            len(results) != 1
            or not split_op.partial
            or split_op.direction
            or self.levels.leaving(results[0]) != split_op
        ):
            return None
        first: int | None = None
        # The earlier a loop, the more it would have to do without: where one is too early all before it are.
        for loop in reversed(range(phase)):
            forms = self.found.setdefault(loop, DeferredTerms(self.graph, self.levels, loop))
            form = forms.of(split_op)
            if form is None or form.spread is not None or not forms.can_follow(split_op, form.terms):
                break
            self.terms[results[0]] = form.terms
            first = loop
        return first

    def streams(self) -> Streams:
        """All that was found."""
        if not self.terms:
            return NO_STREAMS
        forms = {(loop, split_op): f for loop, found in self.found.items() for split_op, f in found.forms.items() if f}
        adjusting = {
            (loop, split_op): a for loop, found in self.found.items() for split_op, a in found.adjusting.items()
        }
        running = {
            (loop, whole): r for loop, found in self.found.items() for whole, r in found.maxima.running.items() if r
        }
        return Streams(self.terms, forms, adjusting, running)
