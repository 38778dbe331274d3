"""The ops after a scan that can run along with it, on one row of its stacks a step: `rewriting.stack_readers` asks.

`schedule_loops` splits what need not be whole; here the split ops are those that the scan's loop can take in: they read
rows, and nothing that is known only after the last step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from stablehlo_mem.ir.graph import Graph, Op, effects, reachable
from stablehlo_mem.sharding_rules import is_free
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.sharding_rules.halo import Use
from stablehlo_mem.splitting.axis import Axis
from stablehlo_mem.splitting.loop_schedule import LoopOutput, LoopSchedule
from stablehlo_mem.splitting.online.online_reductions import NO_ONLINE_REDUCTIONS


def schedule_along(graph: Graph, axis: Axis, scan: int, stacks: Sequence[int], direction: int) -> LoopSchedule | None:
    """The loop of the ops of an axis that can run along with a scan, None if there are none.

    Args:
        axis: along the rows of a stack.
        scan: the index of the loop that writes stacks.
        stacks: the values that are its stacks, complete.
        direction: 1 if it writes them from the first row to the last, -1 if the other way.
    """
    region = _Region(graph, axis, scan, frozenset(stacks), direction)
    while stays := [op for op in region.split_ops if region.stays_outside(op)]:
        for op in stays:
            del region.split_ops[op]
        region.update()
    return region.schedule() if region.on_rows and not region.crosses_effects() else None


class _Region:
    """The ops that are still thought to run along with the scan.

    Attributes:
        split_ops: by their ops, in program order.
        on_rows: those that depend on the stacks.
        later: values that are known only after the scan.
    """

    def __init__(self, graph: Graph, axis: Axis, scan: int, stacks: AbstractSet[int], direction: int):
        self.graph, self.axis, self.scan, self.stacks, self.direction = graph, axis, scan, stacks, direction
        self.split_ops: dict[int, SplitOp] = {}
        for split_op in axis.split_ops:
            in_order = split_op.direction in (0, direction) and not split_op.cumulative
            if split_op.window is None and in_order and split_op.op not in effects(graph):
                self.split_ops.setdefault(split_op.op, split_op)
        self.update()

    def update(self) -> None:
        """Follows the stacks through the ops inside, and all results of the scan through those outside."""
        self.on_rows = set[int]()
        for op, split_op in self.split_ops.items():
            if any(v in self.stacks or self.inside(v) in self.on_rows for v, _ in self.reads(split_op)):
                self.on_rows.add(op)

        def following(value: int) -> Iterable[int]:
            ops = (self.graph.ops[user] for user in self.graph.users[value] if user not in self.on_rows)
            return (result for op in ops for result in op.results)

        ends = (v for op in self.on_rows for v in self.graph.ops[op].results)
        outputs = (v for v in ends if self.is_output(v))
        self.later = set(reachable([*self.graph.ops[self.scan].results, *outputs], following))

    def reads(self, split_op: SplitOp) -> list[tuple[int, Use | None]]:
        """What an op reads, each with how it is read by chunk."""
        inputs = self.graph.ops[split_op.op].inputs
        return list(zip(inputs, split_op.uses(inputs), strict=True))

    def inside(self, value: int) -> int:
        """The op inside that computes a value, -1 if there is none."""
        producer = self.graph.values[value].producer if self.graph.values[value].is_computed else -1
        return producer if producer in self.split_ops else -1

    def is_output(self, value: int) -> bool:
        """Whether an op outside uses a value."""
        return any(user not in self.split_ops for user in self.graph.users[value])

    def is_shared(self, op: Op) -> bool:
        """Whether an op outside uses a result of an op."""
        return any(map(self.is_output, op.results))

    def stays_outside(self, op: int) -> bool:
        """Whether an op needs what is not there yet, or is computed for others as well and from no row."""
        for value, use in self.reads(self.split_ops[op]):
            chunk = use if use is not None and use.window is None else None
            producer = self.inside(value)
            if producer >= 0:
                is_whole = self.graph.values[value].result in self.split_ops[producer].partial
                if chunk is None or is_whole or self.axis.producers.get(chunk) is None:
                    return True
            elif value in self.later and (value not in self.stacks or chunk is None or chunk.dimension):
                return True
        one = self.graph.ops[op]
        return op not in self.on_rows and self.is_shared(one) and not is_free(one)

    def crosses_effects(self) -> bool:
        """Whether something that must keep its place is between the scan and the ops."""
        span = range(min(self.scan, *self.split_ops), max(self.split_ops))
        return any(op in effects(self.graph) for op in span if op != self.scan)

    def schedule(self) -> LoopSchedule:
        """The ops as one loop, whatever they leave being its output."""
        inner = {op for op in self.split_ops if op in self.on_rows or not self.is_shared(self.graph.ops[op])}
        outputs = [
            LoopOutput(v, split_op, 0, self.graph.values[v].result in split_op.partial)
            for op, split_op in self.split_ops.items()
            if op in inner
            for v in self.graph.ops[op].results
            if self.is_output(v)
        ]
        producers = {u: s if s and self.split_ops.get(s.op) == s else None for u, s in self.axis.producers.items()}
        return LoopSchedule(
            axis=self.axis,
            outputs=tuple(sorted(outputs, key=lambda output: output.value)),
            loop_count=1,
            first_loop=dict.fromkeys(self.split_ops.values(), 0),
            producers=producers,
            inner_ops=frozenset(inner),
            placement=self.placement(inner),
            directions=(self.direction,),
            online=NO_ONLINE_REDUCTIONS,
            graph=self.graph,
        )

    def placement(self, inner: AbstractSet[int]) -> dict[int, int]:
        """For each op between the inner ones: 0 if it runs before the loop, as the scan does, 1 if after it."""
        between = (op for op in range(min(inner), max(inner)) if op not in inner)
        return {op: int(op > self.scan and not self.later.isdisjoint(self.graph.ops[op].results)) for op in between}
