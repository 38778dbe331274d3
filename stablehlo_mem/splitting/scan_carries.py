"""Chunks of the axis, and what scans (cumulative ops) carry from one to the next: used by `emit_loops`.

A *prefix* is what a scan has come to before a chunk. A loop in the scan's direction carries it. A loop in the other
direction recomputes the scan chunk by chunk from *checkpoints*, the prefixes that the first loop saved: so the gradient
of a cumulative sum recomputes the sum as a checkpointed scan does.
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


def scan_rule(op: Any) -> Cumulative:
    """How an op is emitted as a scan."""
    cumulative = OP_RULES[op.name].cumulative
    assert cumulative is not None
    return cumulative


def chunk_at(index: Any, n: int, size: int, parts: int = 1, *, counting: bool) -> Chunk:
    """A chunk by its number. The last one of a ragged axis starts early and repeats elements of the one before.

    Args:
        parts: of the axis, see `Chunk`; an axis of several is not ragged.
        counting: somebody asks which of its elements count.
    """
    width = size // parts
    start = builders.scaled(index, width)
    if not n % size:
        return Chunk(start, size, parts=parts)
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
class ScanCarries:
    """The carries of a scan in loops over chunks of `chunk` elements: of the `op` on its whole `operands`.

    Where the last chunk starts early it goes on from the middle of the one before. Forwards all results of a chunk are
    carried then, not only the last.
    """

    split_op: SplitOp
    op: Any
    operands: Sequence[Any]
    chunk: int

    def initial(self) -> list[Any]:
        """The carries before the first step."""
        carried = self.chunk if self._goes_on_from_middle else 0
        scalars = self._initial_scalars()
        types = self._types(scalars, lambda extent: extent // self.split_op.n * carried or 1)
        return [builders.broadcast(scalar, t) for scalar, t in zip(scalars, types, strict=True)]

    def prefix(self, chunk: Chunk, carries: Sequence[Any]) -> list[Any]:
        """The prefix of a chunk, of size 1 along the axis, from the carries."""
        return [self._prefix(chunk, v, d) for v, d in zip(carries, self._dimensions, strict=True)]

    def next(self, chunk: Chunk, sums: Sequence[Any]) -> list[Any]:
        """The carries after a step, from what the scan comes to at each element of its chunk."""
        return [self._next(chunk, v, d) for v, d in zip(sums, self._dimensions, strict=True)]

    def empty_checkpoints(self) -> list[Any]:
        """Room for the prefixes of all chunks."""
        steps = -(-self.split_op.n // self.chunk)
        return [builders.zeros(t) for t in self._types(self._initial_scalars(), lambda extent: steps)]

    def with_checkpoint(self, checkpoints: Sequence[Any], prefix: Sequence[Any], index: Any) -> list[Any]:
        """The checkpoints with that of one more chunk."""
        parts = zip(checkpoints, prefix, self._dimensions, strict=True)
        return [builders.update_along(stack, v, d, index) for stack, v, d in parts]

    def checkpoint(self, checkpoints: Sequence[Any], index: Any) -> list[Any]:
        """The prefix of a chunk that an earlier loop saved."""
        parts = zip(checkpoints, self._dimensions, strict=True)
        return [builders.slice_along(stack, d, index, 1) for stack, d in parts]

    @property
    def _dimensions(self) -> list[int]:
        return [d for d in self.split_op.result_dims if d is not None]

    @property
    def _goes_on_from_middle(self) -> bool:
        # Backwards the last chunk is the first, and carries what it comes to where its repeated elements end.
        return self.split_op.direction > 0 and self.split_op.n % self.chunk != 0

    def _initial_scalars(self) -> list[Any]:
        return scan_rule(self.op).initial(self.op, self.operands)

    def _types(self, scalars: Sequence[Any], extent_of: Callable[[int], int]) -> list[Any]:
        """The types of the results as they are accumulated, with another extent along the axis."""
        types: list[Any] = []
        for scalar, result, d in zip(scalars, self.op.results, self._dimensions, strict=True):
            shape = list(result.type.shape)
            shape[d] = extent_of(shape[d])
            types.append(builders.retype(scalar.type, shape))
        return types

    def _prefix(self, chunk: Chunk, carried: Any, dimension: int) -> Any:
        if not self._goes_on_from_middle:
            return carried
        size = carried.type.shape[dimension]
        last = stablehlo.subtract(builders.i32(size - 1), self._repeated(chunk.repeated, size))
        return builders.slice_along(carried, dimension, last, 1)

    def _next(self, chunk: Chunk, sums: Any, dimension: int) -> Any:
        if self._goes_on_from_middle:
            return sums
        size = sums.type.shape[dimension]
        if chunk.repeated is not None:
            return builders.slice_along(sums, dimension, self._repeated(chunk.repeated, size), 1)
        last = 0 if self.split_op.direction < 0 else size - 1
        return builders.sliced_along(sums, dimension, last, last + 1)

    def _repeated(self, repeated: Any, size: int) -> Any:
        """How many of the `size` elements that a chunk has along a dimension it repeats."""
        inner = size // self.chunk
        return builders.scaled(repeated, inner)
