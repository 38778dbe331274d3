"""Slice pushdown: which producers of a sliced value can be computed for the slice alone, and the code that does it.

A slice along one dimension is a chunk of it, so the factor rules of splits say how it passes an op: the op runs on
slices of its operands. The passes `narrow` and `unroll_reductions` call it.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.ir.op_attributes import integers
from stablehlo_mem.sharding_rules import OP_RULES, rule_book, rule_of
from stablehlo_mem.sharding_rules.factor_rule import SplitOp, split_along
from stablehlo_mem.sharding_rules.op_rule import Chunk, EmitContext

GIVEN = -1
"""The start of a range whose start is given only when its ops are emitted."""


@dataclasses.dataclass(frozen=True)
class SliceRange:
    """A slice of a value: `size` of the `n` equal parts of a dimension, from part `start`, or from the `GIVEN` one."""

    dimension: int
    n: int
    start: int
    size: int


@dataclasses.dataclass(frozen=True)
class NarrowedOp:
    """An op that is computed for a slice of its results.

    Attributes:
        result_range: the slice.
        operand_ranges: for each input the slice of it that is needed, None: the whole.
        split_op: how the op runs on those; None: its result is the slice of one operand, number `part`.
    """

    op: int
    result_range: SliceRange
    operand_ranges: tuple[SliceRange | None, ...]
    split_op: SplitOp | None
    part: int = 0


def narrow_producers(
    graph: Graph, root: int, wanted: Mapping[int, SliceRange], may_narrow: Callable[[Op], bool] = lambda op: True
) -> tuple[NarrowedOp, ...]:
    """The ops, in program order, that can be narrowed for slices of the root's operands: all whose users are.

    Args:
        may_narrow: whether an op may be narrowed; else its results are sliced.
    """
    needed: dict[int, set[SliceRange | None]] = {}
    done = {root}
    narrowed: list[NarrowedOp] = []
    # The last op first (the heap has the negative indices): all users of an op are decided before it.
    pending: list[int] = []

    def need(value: int, taken: SliceRange | None) -> None:
        data = graph.values[value]
        if value not in needed and data.is_computed:
            heapq.heappush(pending, -data.producer)
        needed.setdefault(value, set()).add(taken)

    for value, taken in wanted.items():
        need(value, taken)
    while pending:
        op = graph.ops[-heapq.heappop(pending)]
        ranges = {r for v in op.results for r in needed.get(v, ())}
        one = _narrow(graph, op, ranges, done) if op.index not in done and may_narrow(op) else None
        if one is not None:
            narrowed.append(one)
            done.add(op.index)
            for value, taken in zip(op.inputs, one.operand_ranges, strict=True):
                if one.split_op is not None or taken is not None:
                    need(value, taken)
    return tuple(reversed(narrowed))


def _narrow(graph: Graph, op: Op, ranges: set[SliceRange | None], done: set[int]) -> NarrowedOp | None:
    """An op narrowed to the one range that all its users need, None if it cannot be or they need others."""
    if len(ranges) != 1 or op.name == "stablehlo.optimization_barrier":
        return None
    (taken,) = ranges
    is_free = op.name in OP_RULES and OP_RULES[op.name].free and not any(graph.values[v].shape for v in op.operands)
    used_elsewhere = any(user not in done for v in op.results for user in graph.users[v])
    if taken is None or (used_elsewhere and not is_free):
        return None
    return _within_part(graph, op, taken) or _by_rule(graph, op, taken)


def _by_rule(graph: Graph, op: Op, taken: SliceRange) -> NarrowedOp | None:
    """An op on chunks of its operands, as its factor rule says."""
    rule = rule_of(graph, op.index)
    if rule is None:
        return None
    split_op = split_along(rule, op.index, rule.results[0], taken.dimension, taken.n)
    coarser = _coarser(taken, split_op.coarser_n) if isinstance(split_op, Blocked) and split_op.coarser_n else None
    if coarser is not None:
        taken = coarser
        split_op = split_along(rule, op.index, rule.results[0], taken.dimension, taken.n)
    if isinstance(split_op, Blocked) or split_op.reducing or not split_op.is_local:
        return None
    if set(split_op.result_dims) != {taken.dimension}:
        return None
    ranges = tuple(None if d is None else dataclasses.replace(taken, dimension=d) for d in split_op.operand_dims)
    return NarrowedOp(op.index, taken, ranges, split_op)


def _coarser(taken: SliceRange, n: int) -> SliceRange | None:
    """A range in `n` parts, None if it does not begin and end with whole ones."""
    ratio, rest = divmod(taken.n, n)
    if rest or taken.start == GIVEN or taken.start % ratio or taken.size % ratio:
        return None
    return SliceRange(taken.dimension, n, taken.start // ratio, taken.size // ratio)


def _within_part(graph: Graph, op: Op, taken: SliceRange) -> NarrowedOp | None:
    """A range of a concatenation or padding that lies within one operand, as a range of that."""
    if op.name not in ("stablehlo.concatenate", "stablehlo.pad") or taken.start == GIVEN:
        return None
    inner = graph.values[op.results[0]].shape[taken.dimension] // taken.n
    start, size = taken.start * inner, taken.size * inner
    for i, (low, length) in enumerate(_parts(graph, op, taken.dimension)):
        if low <= start and start + size <= low + length:
            within = SliceRange(taken.dimension, length, start - low, size)
            ranges = tuple(within if i == j else None for j in range(len(op.operands)))
            return NarrowedOp(op.index, taken, ranges, None, i)
    return None


def _parts(graph: Graph, op: Op, dimension: int) -> Iterator[tuple[int, int]]:
    """Where the operands of a concatenation or padding lie along a dimension, if that is the only one it changes."""
    lengths = [graph.values[v].shape[dimension] for v in op.operands if graph.values[v].shape]
    if op.name == "stablehlo.concatenate":
        if ir.IntegerAttr(graph.handles[op.index].attributes["dimension"]).value == dimension:
            yield from zip(itertools.accumulate(lengths, initial=0), lengths, strict=False)
        return
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    low, high, interior = (integers(graph, op, name) for name in names)
    others = (p[d] for p in (low, high, interior) for d in range(len(p)) if d != dimension)
    if not any(others) and not interior[dimension]:
        yield low[dimension], lengths[0]


def leaves(graph: Graph, narrowed: Sequence[NarrowedOp]) -> set[int]:
    """The values that narrowed ops read and that are not narrowed."""
    made = {one.op for one in narrowed}
    inputs = (
        graph.ops[one.op].inputs if one.split_op is not None else (graph.ops[one.op].operands[one.part],)
        for one in narrowed
    )
    return {v for read in inputs for v in read if graph.values[v].producer not in made}


def range_bytes(graph: Graph, value: int, taken: SliceRange | None) -> int:
    """Bytes of a slice of a value, or of all of it."""
    nbytes = graph.values[value].nbytes
    return nbytes if taken is None else nbytes * taken.size // taken.n


class NarrowedEmitter:
    """Builds narrowed ops at the insertion point.

    Args:
        start: where ranges with a `GIVEN` start begin: a number, or an i32 scalar within bounds.
    """

    def __init__(self, graph: Graph, narrowed: Sequence[NarrowedOp], start: Any = None):
        self.graph, self.start = graph, start
        self.made: dict[int, Any] = {}
        for one in narrowed:
            with graph.handles[one.op].location:
                self.emit(one)

    def emit(self, one: NarrowedOp) -> None:
        """Builds one op, after those that make its operands."""
        op = self.graph.ops[one.op]
        if one.split_op is None:
            self.made[op.results[0]] = self.chunk(op.operands[one.part], one.operand_ranges[one.part])
            return
        inputs = [self.chunk(v, taken) for v, taken in zip(op.inputs, one.operand_ranges, strict=True)]
        operands, captures = inputs[: len(op.operands)], inputs[len(op.operands) :]
        taken = one.result_range
        shapes = [list(self.graph.values[v].shape) for v in op.results]
        for shape in shapes:
            shape[taken.dimension] = shape[taken.dimension] // taken.n * taken.size
        start = self.start_of(taken)
        chunk = Chunk(builders.i32(start) if isinstance(start, int) else start, taken.size)
        context = EmitContext(rule_book(self.graph), one.split_op, operands, captures, shapes, chunk)
        self.made.update(zip(op.results, OP_RULES[op.name].emit(context), strict=True))

    def start_of(self, taken: SliceRange) -> Any:
        """Where a range begins: a number or an i32."""
        return self.start if taken.start == GIVEN else taken.start

    def chunk(self, value: int, taken: SliceRange | None) -> Any:
        """A slice of a value: narrowed, or cut from the whole."""
        if value in self.made:
            return self.made[value]
        if taken is None or taken.size == taken.n:
            return self.graph.mlir_values[value]
        return self.cut(value, taken)

    def cut(self, value: int, taken: SliceRange) -> Any:
        """A slice of a value that is not narrowed."""
        return cut(self.graph.mlir_values[value], taken, self.start_of(taken))


def cut(whole: Any, taken: SliceRange, start: Any) -> Any:
    """A slice of a tensor, from part `start`: a number or an i32 scalar."""
    inner = whole.type.shape[taken.dimension] // taken.n
    if isinstance(start, int):
        return builders.sliced_along(whole, taken.dimension, start * inner, (start + taken.size) * inner)
    return builders.slice_along(whole, taken.dimension, builders.scaled(start, inner), taken.size * inner)
