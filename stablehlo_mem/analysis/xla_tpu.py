"""XLA:TPU: how it fuses, pads and converts. `compilers` picks this model for chips of kind "tpu".

Its compiler (libtpu) is closed: what is here was read from the programs and the memory reports that it writes.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Mapping
from fractions import Fraction

from stablehlo_mem.analysis.compiler_model import CompilerModel, Kernels
from stablehlo_mem.analysis.fusion_classes import (
    ELEMENTWISE,
    FUSIBLE,
    Class,
    classify,
    data_source,
    reduced_length,
)
from stablehlo_mem.analysis.loop_invariants import constants_of_dots
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import Graph, Op, Value, dtype_bytes, reachable

_LONGEST_ROW = 4096
"""Elements of a row of a matmul's result of which the matmul's kernel computes a maximum and then a sum (seen in
compiled programs: 4096 are, 8192 are not)."""
_SUBLANES, _LANES = 8, 128
"""The tile of the last two dimensions, in 4-byte elements: a register has 8 sublanes of 128 lanes."""


class XlaTpu(CompilerModel):
    """XLA:TPU."""

    always_materialised = frozenset({"stablehlo.concatenate", "stablehlo.gather", "stablehlo.reduce_window"})
    reads_from_memory = always_materialised | {"stablehlo.scatter", "stablehlo.sort"}
    fuses_producers = frozenset({"chlo.top_k"})
    sorts_top_k = False
    places_on_chip = True
    writes_over_operands = False
    reuses_output_buffers = False
    hoists_operand_converts = True

    def materialises(self, graph: Graph, value: int, kind: Class, kernels: Kernels, reused: bool) -> bool:
        """What takes an expensive op and is used many times in a kernel; all else is computed in each kernel."""
        return reused and (kind is Class.EXPENSIVE or (kind is not Class.MOVE and _takes_expensive_op(graph, value)))

    def computes_once(self, graph: Graph, op: Op, kernels: Kernels) -> bool:
        """The exponentials of a softmax that a matmul reads: its kernel `online-softmax`."""
        kinds = {classify(graph, graph.ops[kernel]) for kernel in kernels}
        return op.name == "stablehlo.exponential" and kinds == {Class.REDUCE, Class.DOT}

    def reduces_while_written(self, graph: Graph, reduce: Op, value: int) -> bool:
        """One of the rows of a matmul's result; also the second of a softmax, where a row fits the registers."""
        producer = graph.producer(data_source(graph, value))
        if producer is None or classify(graph, producer) is not Class.DOT:
            return False
        first = all(v == value or not graph.values[v].shape for v in _read_by(graph, reduce))
        return first or reduced_length(graph, reduce) <= _LONGEST_ROW

    def fuses_reduction(self, graph: Graph, op: Op, kernels: Kernels) -> bool:
        """Never."""
        return False

    def dot_operands_in_memory(self, graph: Graph, dot: Op) -> Collection[int]:
        """None: the producers are fused."""
        return ()

    def fuses_epilogue(self, unary_chain: bool) -> bool:
        """Whatever other operands it has."""
        return True

    def copied_before_loop(self, graph: Graph, loop: Op) -> Mapping[int, int]:
        """The bfloat16 copies of float32 operands."""
        read = constants_of_dots(graph, loop, lambda block, dot: {data_source(block, v) for v in dot.operands})
        return {v: graph.values[v].nbytes // 2 for v in read if graph.values[v].dtype == "f32"}

    def buffer_bytes(self, value: Value) -> int:
        """The two innermost dimensions are padded to tiles, and narrow types are packed.

        XLA lays out a computed value as wastes the least; that of an argument is given, but for the order of the last
        two dimensions.
        """
        inner = len(value.shape) if value.is_computed else 2
        return math.ceil(value.nbytes * _padding(value.shape, value.dtype, inner))

    def relayout_bytes(self, graph: Graph, op: Op) -> int:
        """A narrow argument is copied with full tiles to be broadcast; a materialised move has its last dimension
        along the lanes, however short that is.
        """
        if op.name == "stablehlo.broadcast_in_dim":
            return _broadcast_copy_bytes(graph, op)
        value = graph.values[op.results[0]]
        if op.name not in self.always_materialised or not value.shape or not value.nbytes:
            return 0
        width = value.shape[-1]
        return max(0, value.nbytes * _pad(width, _LANES) // width - self.buffer_bytes(value))

    def window_scratch_bytes(self, graph: Graph, op: Op) -> int:
        """None."""
        return 0

    def kernel_scratch_bytes(self, graph: Graph, op: Op) -> int:
        """Twice the values of a Fourier transform, one side of a sort."""
        if op.name == "stablehlo.fft":
            return 2 * sum(self.buffer_bytes(graph.values[v]) for v in op.operands + op.results)
        if op.name == "stablehlo.sort":
            return self.buffer_bytes(graph.values[op.operands[0]])
        return super().kernel_scratch_bytes(graph, op)


@cached_analysis
def _takes_expensive_op(graph: Graph, value: int) -> bool:
    """Whether the elementwise ops that a value is computed by have an expensive one among them."""

    def elementwise(v: int) -> tuple[int, ...]:
        op = graph.producer(v)
        return op.operands if op is not None and classify(graph, op) in ELEMENTWISE | {Class.VIEW} else ()

    producers = (graph.producer(v) for v in reachable([value], elementwise))
    return any(op is not None and classify(graph, op) is Class.EXPENSIVE for op in producers)


@cached_analysis
def _read_by(graph: Graph, reduce: Op) -> tuple[int, ...]:
    """What elementwise ops before a reduction are computed from."""

    def fused(value: int) -> tuple[int, ...]:
        op = graph.producer(value)
        return op.operands if op is not None and classify(graph, op) in FUSIBLE | {Class.VIEW} else ()

    return tuple(v for v in reachable([reduce.operands[0]], fused) if not fused(v))


@functools.lru_cache(maxsize=4096)
def _padding(shape: tuple[int, ...], dtype: str, inner: int) -> Fraction:
    """Elements with padding over those without, where tiles lie along those two of the last `inner` dimensions that
    waste the least.
    """
    height = _SUBLANES * max(1, int(4 // max(dtype_bytes(dtype), 0.5)))
    pairs = itertools.permutations(shape[-inner:], 2) if 0 not in shape else ()
    ratios = (Fraction(_pad(rows, height) * _pad(columns, _LANES), rows * columns) for rows, columns in pairs)
    return min(ratios, default=Fraction(1))


def _broadcast_copy_bytes(graph: Graph, op: Op) -> int:
    source = graph.values[op.operands[0]]
    if len(source.shape) < 2 or graph.values[op.results[0]].nbytes <= source.nbytes:
        return 0
    width = source.shape[-1]
    is_argument = not graph.values[data_source(graph, source.index)].is_computed
    return source.nbytes * _LANES // width if 0 < width < _LANES and is_argument else 0


def _pad(size: int, tile: int) -> int:
    return -(-size // tile) * tile
