"""Ops on one chunk of an axis: what every block that runs on chunks needs, whatever its values are."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import is_zero, stablehlo
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.sharding_rules.halo import Window
from stablehlo_mem.sharding_rules.op_rule import Chunk, EmitContext, OpRule


class ChunkEmitter(abc.ABC):
    """A block's values on one chunk, where they are emitted; `n` elements of the axis in all."""

    def __init__(self, rows: Mapping[str, OpRule], graph: Graph, n: int, chunk: Chunk):
        self.rows, self.graph, self.n, self.chunk = rows, graph, n, chunk
        self.starts: dict[int, Any] = {1: chunk.start}
        self.windows: dict[Window, ChunkEmitter] = {}

    @abc.abstractmethod
    def whole(self, value: int) -> Any:
        """A value that does not depend on the axis."""

    @abc.abstractmethod
    def chunk_of(self, value: int, dimension: int) -> Any:
        """The chunk of a value along a dimension."""

    def in_window(self, chunk: Chunk, window: Window) -> ChunkEmitter:
        """The values in a window around the chunk, where the part of it that is there is `chunk`."""
        raise NotImplementedError("ops that slide over the axis run in loops of their own only")

    def at(self, window: Window | None) -> ChunkEmitter:
        """The values in a window around the chunk, clamped to what is there; this chunk if it is None."""
        if window is None:
            return self
        if window not in self.windows:
            size = window.size(self.chunk.size)
            start = builders.clamped(self.chunk.first_read(window), window.n - size)
            self.windows[window] = self.in_window(Chunk(start, size), window)
        return self.windows[window]

    def addend(self, value: int) -> Any:
        """A value that counts in the first chunk only, so that it counts once in a sum over chunks."""
        return self.in_first_chunk(self.whole(value))

    def emit(self, split_op: SplitOp) -> list[Any]:
        """The results of a split op."""
        return self.rows[self.graph.ops[split_op.op].name].emit(self.site(split_op))

    def site(self, split_op: SplitOp, before: Sequence[Any] = ()) -> EmitContext:
        """A split op about to run; `before`: what it came to before the chunk, where it is cumulative."""
        op = self.graph.ops[split_op.op]
        inputs = [self.input(split_op, p, value) for p, value in enumerate(op.inputs)]
        shapes = [self.chunk_shape(v, d) for v, d in zip(op.results, split_op.result_dims, strict=True)]
        count = len(op.operands)
        read = {p: self.at(window).chunk for p, window in split_op.windows}
        return EmitContext(self.graph, split_op, inputs[:count], inputs[count:], shapes, self.chunk, read, before)

    def input(self, split_op: SplitOp, position: int, value: int) -> Any:
        """What a split op takes as one of its operands or captures."""
        dimension = split_op.operand_dims[position]
        if dimension is None:
            return self.addend(value) if position in split_op.addends else self.whole(value)
        chunk = self.at(dict(split_op.windows).get(position)).chunk_of(value, dimension)
        if not split_op.reducing or self.chunk.counted is None:
            return chunk
        return self.masked(split_op, position, dimension, chunk)

    def masked(self, split_op: SplitOp, position: int, dimension: int, chunk: Any) -> Any:
        """What the next chunk accumulates counts for nothing."""
        op = self.graph.handles[split_op.op]
        reduction = self.rows[op.name].reduction
        assert reduction is not None
        operands = self.graph.ops[split_op.op].operands
        wholes = [self.whole(v) if d is None else None for v, d in zip(operands, split_op.operand_dims, strict=False)]
        identity = reduction.identity(op, position, wholes)
        if identity is None:
            return chunk
        return self.counting(chunk, dimension, builders.broadcast(identity, chunk.type))

    def counting(self, chunk: Any, dimension: int, otherwise: Any) -> Any:
        """A chunk of a value where its elements count, and another value where they do not."""
        inner = chunk.type.shape[dimension] // self.chunk.size
        count = self.chunk.counted
        assert count is not None
        if inner > 1:
            count = stablehlo.multiply(count, builders.i32(inner))
        return builders.first_of(chunk, dimension, count, otherwise)

    def bounds(self, extent: int) -> tuple[Any, int]:
        """Start and size of the chunk along a dimension of `extent` elements, a multiple of the axis."""
        inner = extent // self.n
        if inner not in self.starts:
            self.starts[inner] = stablehlo.multiply(self.starts[1], builders.i32(inner))
        return self.starts[inner], self.chunk.size * inner

    def slice(self, whole: Any, dimension: int) -> Any:
        """The chunk of a whole value, sliced."""
        return builders.slice_along(whole, dimension, *self.bounds(whole.type.shape[dimension]))

    def in_first_chunk(self, value: Any) -> Any:
        """A value in the first chunk, zeros in the others."""
        if is_zero(value):
            return value
        first = stablehlo.compare(self.chunk.start, builders.i32(0), stablehlo.ComparisonDirectionAttr.get("EQ"))
        return stablehlo.select(first, value, builders.zeros(value.type))

    def chunk_shape(self, value: int, dimension: int | None) -> list[int]:
        """The shape of a value's chunk."""
        shape = list(self.graph.values[value].shape)
        if dimension is not None:
            shape[dimension] = shape[dimension] // self.n * self.chunk.size
        return shape
