"""Which row statistics follow the running maximum of a loop: used by `deferred_terms` for exp(x - statistic).

x minus its own maximum is at most 0 in every chunk, whatever the maximum of later chunks is, so exp never overflows.
"""

from __future__ import annotations

import dataclasses
import math

from stablehlo_mem.ir.graph import Graph, effects
from stablehlo_mem.ir.matchers import converts_floats, splat_value
from stablehlo_mem.ir.op_attributes import integers
from stablehlo_mem.ir.view_chains import view_of
from stablehlo_mem.sharding_rules.reductions import body_name
from stablehlo_mem.splitting.partial_schedule import PartialSchedule

RowDims = tuple[int | None, ...]
"""For each dimension of a row statistic the dimension of a value it lies along; None for one of size 1 along none."""


@dataclasses.dataclass(frozen=True, slots=True)
class RunningStatistic:
    """A row statistic that is computed from a maximum over the axis, so that the running maximum gives it for any part.

    Attributes:
        reference_maximum: that maximum.
        dims: where the maximum's dimensions lie in the statistic.
        ops: those that compute it from the maximum, in program order.
        finite: it is never -∞, not even where the maximum is.
    """

    reference_maximum: int
    dims: RowDims
    ops: tuple[int, ...]
    finite: bool


class RunningMaxima:
    """The running statistics of one loop."""

    def __init__(self, graph: Graph, schedule: PartialSchedule, loop: int):
        self.graph, self.schedule, self.loop = graph, schedule, loop
        self.running: dict[int, RunningStatistic | None] = {}

    def is_pending(self, value: int) -> bool:
        """Whether a whole value is not there when the loop begins."""
        return self.schedule.loops_before(value) > self.loop

    def subtracted_from(self, value: int, statistic: int, dims: RowDims) -> RunningStatistic | None:
        """The statistic as it follows the maximum of the very value it is subtracted from, row by row; None if not."""
        if statistic not in self.running:
            self.running[statistic] = self._running(statistic)
        running = self.running[statistic]
        if running is None:
            return None
        reduce = self.graph.ops[self.graph.values[running.reference_maximum].producer]
        reduced = integers(self.graph, reduce, "dimensions")
        rows = [d for d in range(len(self.graph.values[value].shape)) if d not in reduced]
        placed = [None if d is None else dims[d] for d in running.dims]
        sizes = self.graph.values[running.reference_maximum].shape
        in_place = all(size == 1 or p == row for size, p, row in zip(sizes, placed, rows, strict=True))
        return running if reduce.operands[0] == value and in_place else None

    def _running(self, statistic: int) -> RunningStatistic | None:
        """Follows a statistic back to a maximum that it is no smaller than, unless that is infinite."""
        value, dims, finite = statistic, tuple(range(len(self.graph.values[statistic].shape))), False
        while True:
            view = view_of(self.graph, value)
            dims = tuple(None if d is None else dims[d] for d in view.dims)
            value = view.source
            if value in self.schedule.outputs:
                break
            step = self._bounded_operand(value)
            if step is None:
                return None
            value, finite = step[0], finite or step[1]
        ops = self.ops_from_outputs(statistic)
        if not self._is_maximum(value) or ops is None:
            return None
        return RunningStatistic(value, dims, ops, finite)

    def _bounded_operand(self, value: int) -> tuple[int, bool] | None:
        """The operand that a value is no smaller than, unless that is infinite, and whether -∞ becomes finite."""
        op = self.graph.producer(value)
        if op is None:
            return None
        if op.name == "stablehlo.select":
            predicate, guarded, otherwise = op.operands
            test = self.graph.producer(predicate)
            number = splat_value(self.graph, otherwise)
            if test is None or test.name != "stablehlo.is_finite" or test.operands[0] != guarded:
                return None
            return (guarded, True) if number is not None and math.isfinite(number) else None
        if op.name == "stablehlo.maximum":
            pending = [v for v in op.operands if self.is_pending(v)]
            return (pending[0], False) if len(pending) == 1 else None
        same = op.name == "stablehlo.optimization_barrier" and len(op.operands) == 1
        return (op.operands[0], False) if same or converts_floats(self.graph, op) else None

    def _is_maximum(self, value: int) -> bool:
        """Whether a value is a maximum over the axis, of values that are there, that this loop reduces."""
        split_op = self.schedule.outputs.get(value)
        if split_op is None or not split_op.partial or self.schedule.first_loop[split_op] != self.loop:
            return False
        op = self.graph.ops[split_op.op]
        is_max = op.name == "stablehlo.reduce" and body_name(self.graph.handles[split_op.op]) == "stablehlo.maximum"
        return is_max and len(op.results) == 1 and not any(self.is_pending(v) for v in op.inputs)

    def ops_from_outputs(self, statistic: int) -> tuple[int, ...] | None:
        """The ops that compute a statistic from what this loop leaves; None if it needs another loop."""
        ops: set[int] = set()
        worklist = [statistic]
        while worklist:
            value = worklist.pop()
            if self.schedule.loops_before(value) > self.loop + 1:
                return None
            if not self.is_pending(value) or value in self.schedule.outputs:
                continue
            producer = self.graph.values[value].producer
            if producer in effects(self.graph):
                return None
            if producer not in ops:
                ops.add(producer)
                worklist += self.graph.ops[producer].inputs
        return tuple(sorted(ops))
