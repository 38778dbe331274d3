"""Bytes a kernel needs beside its operands and results: partial sums, padded, transposed and converted copies."""

from __future__ import annotations

import math
from typing import Any

from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import Graph, Op, dtype_bytes
from stablehlo_mem.op_classes import Class, buffer_bytes, classify, dot_numbers, dot_sizes, integers, origin
from stablehlo_mem.targets.chips import Chip

_CUSTOM_TOP_K = 16
"""XLA:GPU sorts for a longer top-k."""
CPU_WINDOW = 32
"""XLA:CPU reduces longer dimensions in windows of this many elements, as a tree, and reads them from memory."""
CUDA_ROW = 4096
"""XLA:GPU reduces longer dimensions in two steps, with about the square root of their length partial results."""
_CUDA_TILES = 4 * 132
"""XLA:GPU splits the contraction of a dot with fewer output tiles than four waves of blocks."""


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
    length = math.prod(source.shape[d] for d in reduced)
    if chip.kind == "cuda" and length > CUDA_ROW:
        return sum(graph.values[v].nbytes for v in op.results) * math.isqrt(length)
    return 0


def contraction_splits(graph: Graph, chip: Chip, op: Op) -> int:
    """How many parts of a dot's contraction are summed side by side: 1 but on CUDA."""
    if chip.kind != "cuda":
        return 1
    rows, columns, batch, depth = dot_sizes(graph, op)
    tiles = -(-rows // 64) * -(-columns // 64) * batch
    splits = min(_CUDA_TILES // max(1, tiles), 256, depth // 1024)
    return 2 ** (splits.bit_length() - 1) if splits > 1 else 1


def dot_bytes(graph: Graph, chip: Chip, op: Op, split: int) -> int:
    """Scratch of a dot whose contraction is split into so many parts."""
    nbytes = _split_bytes(graph, op, split) if split > 1 else 0
    if chip.kind == "cpu":
        nbytes += _upcast_bytes(graph, op) + _transposed_bytes(graph, op)
    return nbytes


def _upcast_bytes(graph: Graph, op: Op) -> int:
    """Bytes of the float32 copies XLA:CPU makes of a dot's operands and result in a narrower float."""
    values = [graph.values[v] for v in (*dict.fromkeys(op.operands), *op.results)]
    return sum(2 * v.nbytes for v in values if v.dtype in ("bf16", "f16"))


def _transposed_bytes(graph: Graph, op: Op) -> int:
    """Bytes of XLA:CPU's copies of a dot's operands whose batch dimensions do not come first."""
    numbers: Any = dot_numbers(graph, op)
    batches = (numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions)
    pairs = zip(op.operands, batches, strict=True)
    return sum(graph.values[v].nbytes for v, dims in pairs if list(dims) != list(range(len(dims))))


def _split_bytes(graph: Graph, op: Op, split: int) -> int:
    """Bytes of the partial results of a split contraction, and of its operands padded to whole parts."""
    depth = dot_sizes(graph, op)[3]
    partial = graph.values[op.results[0]].nbytes * split
    if depth % (split * 4) == 0:
        return partial
    return partial + sum(graph.values[v].nbytes for v in op.operands)


def opaque_bytes(graph: Graph, chip: Chip, op: Op) -> int:
    """Scratch of the ops that are kernels of their own."""
    if op.name == "stablehlo.while" and chip.kind == "tpu":
        return _hoisted_bytes(op.blocks[1])
    if op.name == "stablehlo.convolution":
        return _convolution_bytes(graph, chip, op)
    if op.name == "chlo.top_k" and chip.kind == "cuda" and _top_k(graph, op) > _CUSTOM_TOP_K:
        return math.prod(graph.values[op.operands[0]].shape) * 4
    if op.name == "stablehlo.fft" and chip.kind == "tpu":
        return 2 * sum(buffer_bytes(graph.values[v], chip) for v in op.operands + op.results)
    if op.name == "stablehlo.sort" and chip.kind != "cpu":
        return buffer_bytes(graph.values[op.operands[0]], chip)
    return 0


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


def _hoisted_bytes(body: Graph) -> int:
    """Bytes of the bfloat16 copies that a TPU makes, before a loop, of the loop's constants that its dots read."""
    constant = set(body.captured) | {a for a, r in zip(body.arguments, body.returned, strict=True) if a == r}
    copied: set[int] = set()
    for op in body.ops:
        if classify(op) is Class.DOT:
            copied.update(origin(body, v) for v in op.operands)
    return sum(body.values[v].nbytes // 2 for v in copied & constant if body.values[v].dtype == "f32")
