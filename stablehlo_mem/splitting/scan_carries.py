"""What cumulative ops pass from one chunk to the next, in the order in which a loop takes its chunks.

A loop of the op's own direction carries what it came to. Loops that run the other way make its chunks again from what
the first loop *saved*: what it had come to before each chunk. So the gradient of a cumulative sum makes the sum again
chunk by chunk, as a checkpointed scan does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import stablehlo
from stablehlo_mem.sharding_rules import OP_RULES
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.sharding_rules.op_rule import Chunk, Cumulative


def cumulative_row(op: Any) -> Cumulative:
    """How an op goes on from chunk to chunk."""
    cumulative = OP_RULES[op.name].cumulative
    assert cumulative is not None
    return cumulative


def chunk_at(index: Any, n: int, size: int, *, counting: bool) -> Chunk:
    """A chunk by its number. The last one of a ragged axis starts early and repeats elements of the one before.

    Args:
        counting: somebody asks which of its elements count.
    """
    start = stablehlo.multiply(index, builders.i32(size))
    if not n % size:
        return Chunk(start, size)
    last = builders.i32(n - size)
    clamped = stablehlo.minimum(start, last)
    repeated = stablehlo.subtract(start, clamped)
    if not counting:
        return Chunk(clamped, size, repeated)
    is_last = stablehlo.compare(start, last, stablehlo.ComparisonDirectionAttr.get("GT"))
    before = stablehlo.minimum(stablehlo.subtract(last, clamped), builders.i32(size))
    counted = stablehlo.select(is_last, builders.i32(size), before)
    return Chunk(clamped, size, repeated, counted)


@dataclasses.dataclass(frozen=True)
class Passing:
    """A cumulative op in loops over chunks of `chunk` elements: `op` itself and its whole operands."""

    split_op: SplitOp
    op: Any
    operands: Sequence[Any]
    chunk: int

    def begin(self) -> list[Any]:
        """What the first step goes on from."""
        kept = self.chunk if self._overlaps else 0
        scalars = self._scalars()
        types = self._types(scalars, lambda extent: extent // self.split_op.n * kept or 1)
        return [builders.broadcast(scalar, t) for scalar, t in zip(scalars, types, strict=True)]

    def before(self, chunk: Chunk, carried: Sequence[Any]) -> list[Any]:
        """What the op came to before a chunk, one element along the axis, of what the step before left."""
        return [self._last(chunk, v, d) for v, d in zip(carried, self._dimensions, strict=True)]

    def after(self, chunk: Chunk, sums: Sequence[Any]) -> list[Any]:
        """What a step leaves, of what the op comes to at each element of its chunk."""
        return [self._left(chunk, v, d) for v, d in zip(sums, self._dimensions, strict=True)]

    def nothing_saved(self) -> list[Any]:
        """Room for what the op comes to before each chunk."""
        steps = -(-self.split_op.n // self.chunk)
        return [builders.zeros(t) for t in self._types(self._scalars(), lambda extent: steps)]

    def save(self, saved: Sequence[Any], before: Sequence[Any], index: Any) -> list[Any]:
        """What was saved, and what the op came to before one more chunk."""
        parts = zip(saved, before, self._dimensions, strict=True)
        return [builders.update_along(stack, v, d, index) for stack, v, d in parts]

    def saved(self, saved: Sequence[Any], index: Any) -> list[Any]:
        """What the op came to before a chunk."""
        return [builders.slice_along(stack, d, index, 1) for stack, d in zip(saved, self._dimensions, strict=True)]

    @property
    def _dimensions(self) -> list[int]:
        return [d for d in self.split_op.result_dims if d is not None]

    @property
    def _overlaps(self) -> bool:
        """Whether the last chunk goes on from the midst of the one before: forwards all of that is left, then.

        Backwards the last chunk is the first, and leaves what it comes to where its repeated elements end.
        """
        return self.split_op.direction > 0 and self.split_op.n % self.chunk != 0

    def _scalars(self) -> list[Any]:
        """What the op begins with."""
        return cumulative_row(self.op).initial(self.op, self.operands)

    def _types(self, scalars: Sequence[Any], extent_of: Callable[[int], int]) -> list[Any]:
        """The types of the results as they are accumulated, with another extent along the axis."""
        types: list[Any] = []
        for scalar, result, d in zip(scalars, self.op.results, self._dimensions, strict=True):
            shape = list(result.type.shape)
            shape[d] = extent_of(shape[d])
            types.append(builders.retype(scalar.type, shape))
        return types

    def _last(self, chunk: Chunk, carried: Any, dimension: int) -> Any:
        if not self._overlaps:
            return carried
        size = carried.type.shape[dimension]
        last = stablehlo.subtract(builders.i32(size - 1), self._repeated(chunk.repeated, size))
        return builders.slice_along(carried, dimension, last, 1)

    def _left(self, chunk: Chunk, sums: Any, dimension: int) -> Any:
        if self._overlaps:
            return sums
        shape = list(sums.type.shape)
        if chunk.repeated is not None:
            return builders.slice_along(sums, dimension, self._repeated(chunk.repeated, shape[dimension]), 1)
        starts, limits = [0] * len(shape), list(shape)
        starts[dimension] = 0 if self.split_op.direction < 0 else shape[dimension] - 1
        limits[dimension] = starts[dimension] + 1
        return builders.sliced(sums, starts, limits, [1] * len(shape))

    def _repeated(self, repeated: Any, size: int) -> Any:
        """How many of the `size` elements that a chunk has along a dimension it repeats."""
        inner = size // self.chunk
        return repeated if inner == 1 else stablehlo.multiply(repeated, builders.i32(inner))
