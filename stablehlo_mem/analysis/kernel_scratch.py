"""Bytes a kernel needs beside its operands and results: partial sums, padded, transposed and converted copies."""

from __future__ import annotations

import math
from typing import Any

from stablehlo_mem.analysis.fusion_classes import Class, buffer_bytes, classify, data_source, is_nested
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import NARROW_FLOATS, Graph, Op, dtype_bytes
from stablehlo_mem.ir.op_attributes import dot_numbers, dot_sizes, integers
from stablehlo_mem.targets.chips import Chip

_CUSTOM_TOP_K = 16
"""XLA:GPU sorts for a longer top-k."""
CPU_WINDOW = 32
"""XLA:CPU reduces longer dimensions in windows of this many elements, as a tree, and reads them from memory."""
CUDA_ROW = 4096
"""XLA:GPU reduces longer dimensions in two steps, with about the square root of their length partial results."""
_CUDA_TILES = 4 * 132
"""XLA:GPU splits the contraction of a dot with fewer output tiles than four waves of blocks ..."""
_CUDA_DEPTH = 8
"""... if it is this many times longer than there are tiles; ..."""
_CUDA_PART = 256
"""... a part is at least this long."""
_CUDA_SUMMED = 10_000_000
"""XLA:GPU multiplies and sums instead of calling a dot for a vector times a matrix of fewer elements."""


def reduced_length(graph: Graph, op: Op) -> int:
    """Elements along the longest dimension a reduce takes away."""
    shape = graph.values[op.operands[0]].shape
    return max((shape[d] for d in integers(graph, op, "dimensions")), default=1)


def reduce_bytes(graph: Graph, chip: Chip, op: Op, tree: bool) -> int:
    """Bytes of the partial results of a reduction in several steps."""
    source = graph.values[op.operands[0]]
    reduced = integers(graph, op, "dimensions")
    if tree:
        shape = [-(-n // CPU_WINDOW) if d in reduced else n for d, n in enumerate(source.shape)]
        return int(math.prod(shape) * dtype_bytes(source.dtype))
    return row_bytes(graph, chip, op, math.prod(source.shape[d] for d in reduced))


def row_bytes(graph: Graph, chip: Chip, op: Op, length: int) -> int:
    """Bytes of the partial results XLA:GPU needs to sum this many elements for each of an op's results."""
    if chip.kind != "cuda" or length <= CUDA_ROW:
        return 0
    return sum(graph.values[v].nbytes for v in op.results) * math.isqrt(length)


def is_summed(graph: Graph, chip: Chip, op: Op) -> bool:
    """Whether a dot with a vector is compiled as a multiplication and a sum."""
    rows, columns, _, depth = dot_sizes(graph, op)
    return chip.kind == "cuda" and min(rows, columns) == 1 and (rows + columns) * depth < _CUDA_SUMMED


def is_reduction(graph: Graph, chip: Chip, op: Op) -> bool:
    """Whether an op is compiled as a reduction."""
    kind = classify(graph, op)
    return kind is Class.REDUCE or (kind is Class.DOT and is_summed(graph, chip, op))


def contraction_splits(graph: Graph, chip: Chip, op: Op) -> int:
    """How many parts of a dot's contraction are summed side by side: 1 but on CUDA."""
    rows, columns, batch, depth = dot_sizes(graph, op)
    if chip.kind != "cuda":
        return 1
    high, wide = (64, 64) if min(rows, columns) > 1 else (128, 128)
    tiles = max(1, -(-rows // high) * -(-columns // wide) * batch)
    splits = min(_CUDA_TILES // tiles, 256, depth // _CUDA_PART) if depth >= _CUDA_DEPTH * tiles else 1
    return 2 ** (splits.bit_length() - 1) if splits > 1 else 1


def dot_bytes(graph: Graph, chip: Chip, op: Op, split: int) -> int:
    """Scratch of a dot whose contraction is split into so many parts."""
    nbytes = _split_bytes(graph, op, split) if split > 1 else 0
    if chip.kind == "cpu":
        nbytes += _upcast_bytes(graph, op)
    if chip.kind == "cuda" and not is_nested(graph):
        # Values are computed in the order the dot wants; arguments are copied, those of a loop before it.
        given = (v for v in transposed_operands(graph, op) if graph.values[data_source(graph, v)].producer < 0)
        nbytes += sum(graph.values[v].nbytes for v in given)
    return nbytes


def _upcast_bytes(graph: Graph, op: Op) -> int:
    """Bytes of the float32 copies XLA:CPU makes of a dot's operands and result in a narrower float."""
    values = [graph.values[v] for v in (*dict.fromkeys(op.operands), *op.results)]
    return sum(2 * v.nbytes for v in values if v.dtype in NARROW_FLOATS)


def transposed_operands(graph: Graph, op: Op) -> list[int]:
    """A dot's operands that need another order, as their batch dimensions do not come first."""
    numbers = dot_numbers(graph, op)
    batches = (numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions)
    pairs = zip(op.operands, batches, strict=True)
    return [v for v, dims in pairs if list(dims) != list(range(len(dims)))]


def lane_bytes(graph: Graph, chip: Chip, op: Op) -> int:
    """Bytes a TPU adds to the result of a move it keeps: the last dimension lies along the lanes, however short."""
    value = graph.values[op.results[0]]
    if chip.kind != "tpu" or not value.shape or not value.nbytes:
        return 0
    width, lanes = value.shape[-1], chip.tile[1]
    return max(0, value.nbytes * -(-width // lanes) * lanes // width - buffer_bytes(value, chip))


def _split_bytes(graph: Graph, op: Op, split: int) -> int:
    """Bytes of the partial results of a split contraction, and of its operands padded to whole parts."""
    depth = dot_sizes(graph, op)[3]
    partial = graph.values[op.results[0]].nbytes * split
    if depth % (split * 4) == 0:
        return partial
    return partial + sum(graph.values[v].nbytes for v in op.operands)


def opaque_bytes(graph: Graph, chip: Chip, op: Op) -> int:
    """Scratch of the ops that are kernels of their own."""
    if op.name == "stablehlo.convolution":
        return _convolution_bytes(graph, chip, op)
    if op.name == "chlo.top_k" and chip.kind == "cuda" and _top_k(graph, op) > _CUSTOM_TOP_K:
        return math.prod(graph.values[op.operands[0]].shape) * 4
    if op.name == "stablehlo.composite":
        # An associative scan that a pass has put in a function: the combined pairs of all levels, there and back.
        return 2 * sum(graph.values[v].nbytes for v in op.operands)
    if op.name == "stablehlo.fft" and chip.kind == "tpu":
        return 2 * sum(buffer_bytes(graph.values[v], chip) for v in op.operands + op.results)
    if op.name == "stablehlo.custom_call" and chip.kind == "cuda":
        return _relaid_bytes(graph, op)
    if op.name == "stablehlo.sort" and chip.kind != "cpu":
        return buffer_bytes(graph.values[op.operands[0]], chip)
    return 0


def _relaid_bytes(graph: Graph, op: Op) -> int:
    """Bytes of the copies of a custom call's operands that it wants in another order than row by row."""
    attributes = graph.handles[op.index].attributes
    if "operand_layouts" not in attributes:
        return 0
    layouts: Any = (ir.DenseIntElementsAttr(a) for a in ir.ArrayAttr(attributes["operand_layouts"]))
    orders: Any = zip(op.operands, map(list, layouts), strict=True)
    return sum(graph.values[v].nbytes for v, order in orders if order != sorted(order, reverse=True))


def _top_k(graph: Graph, op: Op) -> int:
    return ir.IntegerAttr(graph.handles[op.index].attributes["k"]).value


def _convolution_bytes(graph: Graph, chip: Chip, op: Op) -> int:
    """Bytes of the copies with features last and padding applied. The TPU needs none."""
    left, result = graph.values[op.operands[0]], graph.values[op.results[0]]
    features_last = "f]x[" in str(graph.handles[op.index].attributes["dimension_numbers"]).replace(" ", "")
    if chip.kind == "cpu":
        return 0 if features_last else left.nbytes + result.nbytes
    copied = not features_last or _is_padded_first(graph, op)
    return left.nbytes if copied and chip.kind == "cuda" else 0


def _is_padded_first(graph: Graph, op: Op) -> bool:
    """Whether cuDNN cannot pad a convolution's input on the fly: uneven, negative or interior padding."""
    attributes = graph.handles[op.index].attributes
    if "padding" not in attributes:
        return False
    padding = ir.DenseIntElementsAttr(attributes["padding"])
    pairs = [padding[i] for i in range(len(padding))]
    return any(low != high or low < 0 for low, high in zip(pairs[::2], pairs[1::2], strict=True))
