"""Maxima over the axis while their loop runs, and the whole values that follow them.

A value less its maximum is at most 0, of whatever part of the axis the maximum is so far.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

from stablehlo_mem.ir.graph import FLOATS, Graph, Op, effects
from stablehlo_mem.ir.matchers import splat_value
from stablehlo_mem.ir.op_attributes import integers
from stablehlo_mem.ir.view_chains import view_of
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.sharding_rules.halo import Use
from stablehlo_mem.sharding_rules.reductions import body_name

Dims = tuple[int | None, ...]
"""For each dimension of a whole value the dimension it lies along; None for one of one element that lies along none."""


@dataclasses.dataclass(frozen=True, slots=True)
class Running:
    """A whole value that follows a maximum over the axis, so that it is known of every part of the axis.

    Attributes:
        pivot: the maximum.
        dims: where the maximum's dimensions lie in the whole value.
        chain: the ops that make the whole value of the maximum, in program order.
        finite: it is never -∞, not even where the maximum is.
    """

    pivot: int
    dims: Dims
    chain: tuple[int, ...]
    finite: bool


@dataclasses.dataclass
class Levels:
    """What streaming has to know of the phases found so far.

    Attributes:
        of: number of loops that must have finished before a value is there.
        source: the split op that makes a chunk of a use; None where it is sliced from the whole value.
        leaving: the split op of a value that a loop leaves, None for any other value.
        phase_of: the loop in which each split op runs first.
    """

    of: Callable[[int], int]
    source: Callable[[Use], SplitOp | None]
    leaving: Callable[[int], SplitOp | None]
    phase_of: Mapping[SplitOp, int]


class Maxima:
    """The maxima of one loop: what is there before it begins is closed, the rest is open."""

    def __init__(self, graph: Graph, levels: Levels, loop: int):
        self.graph, self.levels, self.loop = graph, levels, loop
        self.running: dict[int, Running | None] = {}

    def is_open(self, value: int) -> bool:
        """Whether a value is not there before the loop begins."""
        return self.levels.of(value) > self.loop

    def dominating(self, value: int, whole: int, dims: Dims) -> Running | None:
        """How a whole value follows the maximum of the very value it is subtracted from, row by row."""
        if whole not in self.running:
            self.running[whole] = self._follows(whole)
        running = self.running[whole]
        if running is None:
            return None
        reduce = self.graph.ops[self.graph.values[running.pivot].producer]
        removed = integers(self.graph, reduce, "dimensions")
        rows = [d for d in range(len(self.graph.values[value].shape)) if d not in removed]
        placed = [None if d is None else dims[d] for d in running.dims]
        sizes = self.graph.values[running.pivot].shape
        in_place = all(size == 1 or p == row for size, p, row in zip(sizes, placed, rows, strict=True))
        return running if reduce.operands[0] == value and in_place else None

    def _follows(self, whole: int) -> Running | None:
        """How a whole value is made of the maximum so far, such that it is no smaller unless that is infinite."""
        value, dims, finite = whole, tuple(range(len(self.graph.values[whole].shape))), False
        while True:
            view = view_of(self.graph, value)
            dims = tuple(None if d is None else dims[d] for d in view.dims)
            value = view.source
            if self.levels.leaving(value) is not None:
                break
            step = self._followed(value)
            if step is None:
                return None
            value, finite = step[0], finite or step[1]
        chain = self.chain(whole)
        if not self._is_pivot(value) or chain is None:
            return None
        return Running(value, dims, chain, finite)

    def _followed(self, value: int) -> tuple[int, bool] | None:
        """What an op leaves as large as it was, and whether it does away with -∞."""
        op = self.graph.producer(value)
        if op is None:
            return None
        if op.name == "stablehlo.select":
            predicate, kept, otherwise = op.operands
            test = self.graph.producer(predicate)
            number = splat_value(self.graph, otherwise)
            if test is None or test.name != "stablehlo.is_finite" or test.operands[0] != kept:
                return None
            return (kept, True) if number is not None and math.isfinite(number) else None
        if op.name == "stablehlo.maximum":
            followed = [v for v in op.operands if self.is_open(v)]
            return (followed[0], False) if len(followed) == 1 else None
        same = op.name == "stablehlo.optimization_barrier" and len(op.operands) == 1
        return (op.operands[0], False) if same or converts_floats(self.graph, op) else None

    def _is_pivot(self, value: int) -> bool:
        split_op = self.levels.leaving(value)
        if split_op is None or not split_op.partial or self.levels.phase_of[split_op] != self.loop:
            return False
        op, handle = self.graph.ops[split_op.op], self.graph.handles[split_op.op]
        return (
            op.name == "stablehlo.reduce"
            and len(op.results) == 1
            and body_name(handle) == "stablehlo.maximum"
            and not any(self.is_open(v) for v in op.inputs)
        )

    def chain(self, whole: int) -> tuple[int, ...] | None:
        """The ops outside that make a whole value of what the loop leaves; None if they need another loop."""
        found: set[int] = set()
        pending = [whole]
        while pending:
            value = pending.pop()
            if self.levels.of(value) > self.loop + 1:
                return None
            if not self.is_open(value) or self.levels.leaving(value) is not None:
                continue
            producer = self.graph.values[value].producer
            if producer in effects(self.graph):
                return None
            if producer not in found:
                found.add(producer)
                pending += self.graph.ops[producer].inputs
        return tuple(sorted(found))


def converts_floats(graph: Graph, op: Op) -> bool:
    """Whether an op makes other floats of floats."""
    return op.name == "stablehlo.convert" and {graph.values[v].dtype for v in (*op.operands, *op.results)} <= FLOATS
