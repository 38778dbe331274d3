"""Starts of slices, in bounds by what they say: `canonicalize` clamps those that could lie outside.

`dynamic_slice` and `dynamic_update_slice` clamp their starts, and so does a `gather` of one window, which XLA makes a
`dynamic_slice` of. But where XLA folds two of them into one it leaves clamps out (docs/xla_bugs.md), and rewrites bring
slices together that stood apart. No compiler gets a start wrong that is in bounds. Most are already: constants, and the
counters of loops.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.ir.loop_carries import invariant_carries
from stablehlo_mem.ir.matchers import direction, integers_of, splat_value
from stablehlo_mem.ir.op_attributes import integers
from stablehlo_mem.ir.trip_count import find_counter

SLICING = frozenset({"stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice", "stablehlo.gather"})

Range = tuple[int, int]
"""The least and the greatest of the integers in a tensor, both included."""
_FAR = 32
"""Ops one above the other that are looked at: what JAX writes around an index is a handful."""
_VIEWS = frozenset(
    f"stablehlo.{name}" for name in ("broadcast_in_dim", "reshape", "slice", "transpose", "optimization_barrier")
)


def clamp_starts(graph: Graph) -> None:
    """Puts clamps before the starts of a program that may be out of bounds, in place; the graph is stale then."""
    for block in list(_blocks(_Ranges(graph))):
        for op in block.graph.ops:
            if op.name == "stablehlo.gather":
                _clamp_window(block, op)
            elif op.name in SLICING:
                _clamp_each(block, op)


def _clamp_each(block: _Ranges, op: Op) -> None:
    """The starts of a slice or an update, a scalar for each dimension."""
    handle = block.graph.handles[op.index]
    is_update = op.name == "stablehlo.dynamic_update_slice"
    whole, part = op.operands[0], op.operands[1] if is_update else op.results[0]
    sizes = zip(*(block.graph.values[v].shape for v in (whole, part)), strict=True)
    for position, (extent, size) in enumerate(sizes, 2 if is_update else 1):
        start = op.operands[position]
        least, greatest = block.range_of(start)
        if not _within((least, greatest), (0, extent - size)):
            with handle.location, ir.InsertionPoint(handle):
                given = handle.operands[position]
                largest = builders.splat(given.type, _held(given, extent - size))
                known = builders.zeros(given.type) if greatest <= 0 else largest
                is_known = extent == size or greatest <= 0 or least >= extent - size
                handle.operands[position] = known if is_known else _clamped(given, largest)


def _clamp_window(block: _Ranges, op: Op) -> None:
    """The start of the window of a gather that takes one only: a vector with a component for each indexed dimension."""
    handle = block.graph.handles[op.index]
    numbers = stablehlo.GatherDimensionNumbers(handle.attributes["dimension_numbers"])
    shape = block.graph.values[op.operands[1]].shape
    components = shape[numbers.index_vector_dim] if numbers.index_vector_dim < len(shape) else 1
    if math.prod(shape) != components:
        return
    extents, sizes = block.graph.values[op.operands[0]].shape, integers(block.graph, op, "slice_sizes")
    room = [extents[d] - sizes[d] for d in numbers.start_index_map]
    if not room or _within(block.range_of(op.operands[1]), (0, min(room))):
        return
    with handle.location, ir.InsertionPoint(handle):
        given = handle.operands[1]
        largest = [ir.IntegerAttr.get(given.type.element_type, _held(given, n)) for n in room]
        handle.operands[1] = _clamped(given, stablehlo.constant(ir.DenseElementsAttr.get(largest, given.type)))


def _clamped(start: Any, largest: Any) -> Any:
    return stablehlo.clamp(builders.zeros(start.type), start, largest)


def _held(start: Any, number: int) -> int:
    """A number, or the greatest that the type of a start holds."""
    return min(number, _type_range(str(start.type.element_type))[1])


def _within(inner: Range, outer: Range) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _type_range(dtype: str) -> Range:
    """The integers that an element type holds."""
    count = integers_of(dtype)
    return (0 if dtype.startswith("u") else -count), count - 1


def _blocks(block: _Ranges) -> Any:
    yield block
    for op in block.graph.ops:
        for i in range(len(op.blocks)):
            yield from _blocks(block.inside(op, i))


@dataclasses.dataclass(eq=False)
class _Ranges:
    """What the integers of a block may be, found as they are asked for.

    `given` are the ranges of the block's arguments and of what it captures, where they are known; `depth` is how far
    up the one that is asked for is being looked for.
    """

    graph: Graph
    given: Mapping[int, Callable[[], Range]] = dataclasses.field(default_factory=dict[int, Callable[[], Range]])
    found: dict[int, Range] = dataclasses.field(default_factory=dict[int, Range])
    depth: int = 0

    def inside(self, op: Op, index: int) -> _Ranges:
        """The ranges of one of an op's blocks."""
        block = op.blocks[index]
        given: dict[int, Callable[[], Range]] = {
            inner: (lambda v=outer: self.range_of(v))
            for inner, outer in zip(block.captured, block.captured_from, strict=True)
        }
        if op.name == "stablehlo.while":
            pairs = zip(block.arguments, op.operands, invariant_carries(op), strict=True)
            given |= {inner: (lambda v=outer: self.range_of(v)) for inner, outer, same in pairs if same}
            counter = find_counter(self.graph, op) if index == 1 else None
            if counter is not None:
                ends = counter.start, counter.start + counter.stride * max(0, counter.steps - 1)
                given[block.arguments[counter.carry]] = lambda: (min(ends), max(ends))
        return _Ranges(block, given)

    def range_of(self, value: int) -> Range:
        """What the integers of a value are between; those of its type where nothing is known."""
        if value not in self.found:
            number, dtype = splat_value(self.graph, value), self.graph.values[value].dtype
            whole = _type_range(dtype)
            if isinstance(number, int):
                found = number, number
            elif value in self.given:
                found = self.given[value]()
            else:
                found = self._above(value) or whole
            self.found[value] = found if _within(found, whole) else whole
        return self.found[value]

    def _above(self, value: int) -> Range | None:
        """What the op that makes a value says of it, None where that is nothing or too far up."""
        op = self.graph.producer(value)
        if op is None or self.depth == _FAR:
            return None
        self.depth += 1
        try:
            return self._made(op)
        finally:
            self.depth -= 1

    def _made(self, op: Op) -> Range | None:
        """What an op makes, were there integers without end; None where that is not known."""
        name = op.name.removeprefix("stablehlo.")
        if op.name in _VIEWS:
            return self.range_of(op.operands[0])
        if name == "convert":
            return self._converted(op)
        if name == "select":
            return self._selected(op)
        if name in _OF_ENDS:
            ranges = [self.range_of(v) for v in op.operands]
            ends = [_OF_ENDS[name](*some) for some in itertools.product(*ranges)]
            return min(ends), max(ends)
        if name == "remainder":
            (least, _), (divisor, same) = (self.range_of(v) for v in op.operands)
            return (0, divisor - 1) if least >= 0 and divisor == same > 0 else None
        return None

    def _converted(self, op: Op) -> Range | None:
        return self.range_of(op.operands[0]) if integers_of(self.graph.values[op.operands[0]].dtype) else None

    def _selected(self, op: Op) -> Range:
        """One of two, the one that is meant where that is known: JAX adds the extent to what is below zero."""
        asked, one, other = op.operands
        compare = self.graph.producer(asked)
        if compare is not None and compare.name == "stablehlo.compare" and direction(self.graph, compare) == "LT":
            left, right = (self.range_of(v) for v in compare.operands)
            if integers_of(self.graph.values[compare.operands[0]].dtype) and left[0] >= right[1]:
                return self.range_of(other)
        ranges = self.range_of(one), self.range_of(other)
        return min(least for least, _ in ranges), max(greatest for _, greatest in ranges)


_OF_ENDS: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "minimum": min,
    "maximum": max,
    "clamp": lambda least, a, greatest: min(max(a, least), greatest),
    "negate": lambda a: -a,
}
"""Ops that go one way in each operand: the ends of what they make are made of the ends of their operands."""
