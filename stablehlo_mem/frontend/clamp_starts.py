"""Clamps the starts of slices that may be out of bounds: `canonicalize` calls it.

`dynamic_slice` and `dynamic_update_slice` clamp their starts, and so does a `gather` of one window, which XLA turns
into a `dynamic_slice`. But where XLA folds two of them into one it omits clamps (docs/xla_bugs.md), and rewrites put
slices next to each other. A start in bounds is right in any case, and most are: constants, and induction variables.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.ir.loop_carries import unchanged
from stablehlo_mem.ir.matchers import direction, integers_of, splat_value
from stablehlo_mem.ir.op_attributes import integers
from stablehlo_mem.ir.trip_count import find_counter

SLICING = frozenset({"stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice", "stablehlo.gather"})

Range = tuple[int, int]
"""The least and the greatest of the integers in a tensor, both included."""
_MAX_DEPTH = 32
"""Producers above each other that are looked at: JAX computes an index with a handful of ops."""
_VIEWS = frozenset(
    f"stablehlo.{name}" for name in ("broadcast_in_dim", "reshape", "slice", "transpose", "optimization_barrier")
)


def clamp_starts(graph: Graph) -> None:
    """Clamps the starts of a program that may be out of bounds, in place; the graph is stale then."""
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
                index = handle.operands[position]
                largest = builders.splat(index.type, _representable(index, extent - size))
                constant = builders.zeros(index.type) if greatest <= 0 else largest
                is_constant = extent == size or greatest <= 0 or least >= extent - size
                handle.operands[position] = constant if is_constant else _clamped(index, largest)


def _clamp_window(block: _Ranges, op: Op) -> None:
    """The start of a gather's only window: a vector with a component for each indexed dimension."""
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
        index = handle.operands[1]
        largest = [ir.IntegerAttr.get(index.type.element_type, _representable(index, n)) for n in room]
        handle.operands[1] = _clamped(index, stablehlo.constant(ir.DenseElementsAttr.get(largest, index.type)))


def _clamped(start: Any, largest: Any) -> Any:
    return stablehlo.clamp(builders.zeros(start.type), start, largest)


def _representable(start: Any, number: int) -> int:
    """A number, or the greatest that the type of a start can hold."""
    return min(number, integers_of(str(start.type.element_type)).stop - 1)


def _within(inner: Range, outer: Range) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _blocks(block: _Ranges) -> Iterator[_Ranges]:
    """A block and those nested in it."""
    yield block
    for op in block.graph.ops:
        for i in range(len(op.blocks)):
            yield from _blocks(block.inside(op, i))


@dataclasses.dataclass(eq=False)
class _Ranges:
    """The ranges of the integers of a block, computed when they are asked for.

    Attributes:
        from_outside: the ranges of the block's arguments and captures, where they are known.
        ranges: those that were computed.
        depth: the producers above the value that was asked for.
    """

    graph: Graph
    from_outside: Mapping[int, Callable[[], Range]] = dataclasses.field(default_factory=dict[int, Callable[[], Range]])
    ranges: dict[int, Range] = dataclasses.field(default_factory=dict[int, Range])
    depth: int = 0

    def inside(self, op: Op, index: int) -> _Ranges:
        """The ranges of one of an op's blocks."""
        block = op.blocks[index]
        known: dict[int, Callable[[], Range]] = {
            inner: functools.partial(self.range_of, outer) for inner, outer in unchanged(op, index).items()
        }
        counter = find_counter(self.graph, op) if op.name == "stablehlo.while" and index == 1 else None
        if counter is not None:
            ends = counter.start, counter.start + counter.stride * max(0, counter.steps - 1)
            known[block.arguments[counter.carry]] = lambda: (min(ends), max(ends))
        return _Ranges(block, known)

    def range_of(self, value: int) -> Range:
        """The least and the greatest integer of a value; those of its type where nothing else is known."""
        if value not in self.ranges:
            number, integers = splat_value(self.graph, value), integers_of(self.graph.values[value].dtype)
            possible = integers.start, integers.stop - 1
            if isinstance(number, int):
                computed = number, number
            elif value in self.from_outside:
                computed = self.from_outside[value]()
            else:
                computed = self._of_producer(value) or possible
            self.ranges[value] = computed if _within(computed, possible) else possible
        return self.ranges[value]

    def _of_producer(self, value: int) -> Range | None:
        """The range that follows from a value's producer, None where that is nothing or too far up."""
        op = self.graph.producer(value)
        if op is None or self.depth == _MAX_DEPTH:
            return None
        self.depth += 1
        try:
            return self._of_result(op)
        finally:
            self.depth -= 1

    def _of_result(self, op: Op) -> Range | None:
        """The range of an op's result without overflow; None where that is not known."""
        name = op.name.removeprefix("stablehlo.")
        if op.name in _VIEWS or (name == "convert" and integers_of(self.graph.values[op.operands[0]].dtype)):
            return self.range_of(op.operands[0])
        if name == "select":
            return self._selected(op)
        if name in _MONOTONIC:
            ends = [_MONOTONIC[name](*some) for some in itertools.product(*map(self.range_of, op.operands))]
            return min(ends), max(ends)
        if name == "remainder":
            (least, _), (divisor, same) = map(self.range_of, op.operands)
            return (0, divisor - 1) if least >= 0 and divisor == same > 0 else None
        return None

    def _selected(self, op: Op) -> Range:
        """The range of both operands, or of one where the mask is known: JAX adds the extent to negative indices."""
        mask, chosen, otherwise = op.operands
        compare = self.graph.producer(mask)
        if compare is not None and compare.name == "stablehlo.compare" and direction(self.graph, compare) == "LT":
            left, right = map(self.range_of, compare.operands)
            if integers_of(self.graph.values[compare.operands[0]].dtype) and left[0] >= right[1]:
                return self.range_of(otherwise)
        (least, greatest), (other_least, other_greatest) = map(self.range_of, (chosen, otherwise))
        return min(least, other_least), max(greatest, other_greatest)


_MONOTONIC: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "minimum": min,
    "maximum": max,
    "clamp": lambda least, a, greatest: min(max(a, least), greatest),
    "negate": lambda a: -a,
}
"""Ops that are monotonic in each operand: the ends of a result's range are results of the ends of operands' ranges."""
