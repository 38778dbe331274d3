"""`ChunkEmitter`: emits split ops of one block for one chunk of an axis, wherever the values they read come from.

Its subclasses say where: the body of a loop (`splitting/emit_loops`), a region in it (`control_flow`), and the pairs of
an associative scan (`associative_scan`).
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import is_zero, stablehlo
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.sharding_rules.halo import Window
from stablehlo_mem.sharding_rules.op_rule import BlockRules, Chunk, EmitContext


class ChunkEmitter(abc.ABC):
    """The values of a block on one chunk of an axis of `n` elements."""

    def __init__(self, rules: BlockRules, n: int, chunk: Chunk):
        self.rules, self.graph, self.n, self.chunk = rules, rules.graph, n, chunk
        self.starts: dict[int, Any] = {1: chunk.start}
        self.windows: dict[Window, ChunkEmitter] = {}

    @abc.abstractmethod
    def whole(self, value: int) -> Any:
        """A value that does not depend on the axis."""

    @abc.abstractmethod
    def chunk_of(self, value: int, dimension: int) -> Any:
        """The chunk of a value along a dimension."""

    def in_window(self, chunk: Chunk, window: Window) -> ChunkEmitter:
        """The values in a window around the chunk, of which `chunk` lies within the dimension."""
        raise NotImplementedError("ops that slide over the axis run in loops of their own only")

    def at(self, window: Window | None) -> ChunkEmitter:
        """The values in a window around the chunk, clamped to the dimension; this chunk if it is None."""
        if window is None:
            return self
        if window not in self.windows:
            size = window.size(self.chunk.size)
            start = builders.clamped(self.chunk.first_read(window), window.n - size)
            self.windows[window] = self.in_window(Chunk(start, size), window)
        return self.windows[window]

    def init_operand(self, value: int) -> Any:
        """A value that a sum over chunks starts from: itself in the first chunk, zeros in the others."""
        return self.in_first_chunk(self.whole(value))

    def emit(self, split_op: SplitOp) -> list[Any]:
        """The results of a split op."""
        return self.rules.op_rules[self.graph.ops[split_op.op].name].emit(self.context(split_op))

    def context(self, split_op: SplitOp, carries: Sequence[Any] = ()) -> EmitContext:
        """What a split op's rule emits it from; `carries` where it is cumulative."""
        op = self.graph.ops[split_op.op]
        inputs = [self.input(split_op, p, value) for p, value in enumerate(op.inputs)]
        shapes = [self.chunk_shape(v, d) for v, d in zip(op.results, split_op.result_dims, strict=True)]
        count = len(op.operands)
        window_chunks = {p: self.at(window).chunk for p, window in split_op.windows}
        operands, captures = inputs[:count], inputs[count:]
        return EmitContext(self.rules, split_op, operands, captures, shapes, self.chunk, window_chunks, carries)

    def input(self, split_op: SplitOp, position: int, value: int) -> Any:
        """One of a split op's operands or captures."""
        dimension = split_op.operand_dims[position]
        if dimension is None:
            return self.init_operand(value) if position in split_op.init_operands else self.whole(value)
        window = dict(split_op.windows).get(position)
        chunk = self.at(window).chunk_of(value, dimension)
        # Of what is read in windows elements count more than once; the operand that they are multiplied with is masked.
        if not split_op.reducing or self.chunk.counted is None or window is not None:
            return chunk
        return self.masked(split_op, position, dimension, chunk)

    def masked(self, split_op: SplitOp, position: int, dimension: int, chunk: Any) -> Any:
        """A chunk of an operand in which the elements that the next chunk accumulates are the identity."""
        op = self.graph.handles[split_op.op]
        reduction = self.rules.op_rules[op.name].reduction
        assert reduction is not None
        operands = self.graph.ops[split_op.op].operands
        wholes = [self.whole(v) if d is None else None for v, d in zip(operands, split_op.operand_dims, strict=False)]
        identity = reduction.identity(op, position, wholes)
        if identity is None:
            return chunk
        return self.counting(chunk, dimension, builders.broadcast(identity, chunk.type))

    def counting(self, chunk: Any, dimension: int, otherwise: Any) -> Any:
        """The elements of a chunk that count (see `Chunk.counted`), and those of `otherwise` in place of the others."""
        inner = chunk.type.shape[dimension] // self.chunk.size
        count = self.chunk.counted
        assert count is not None
        return builders.first_of(chunk, dimension, builders.scaled(count, inner), otherwise)

    def bounds(self, extent: int) -> tuple[Any, int]:
        """Start and size of the chunk along a dimension of `extent` elements, a multiple of the axis."""
        inner = extent // self.n
        if inner not in self.starts:
            self.starts[inner] = stablehlo.multiply(self.starts[1], builders.i32(inner))
        return self.starts[inner], self.chunk.size * inner

    def slice(self, whole: Any, dimension: int) -> Any:
        """The chunk of a whole value, sliced."""
        start, size = self.bounds(whole.type.shape[dimension])
        return builders.slice_of_parts(whole, dimension, self.chunk.parts, start, size)

    def update(self, whole: Any, chunk: Any, dimension: int) -> Any:
        """A whole value with a chunk of it written."""
        start, _ = self.bounds(whole.type.shape[dimension])
        return builders.update_of_parts(whole, chunk, dimension, self.chunk.parts, start)

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
