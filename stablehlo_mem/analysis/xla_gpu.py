"""XLA:GPU: how it fuses, splits contractions and copies. `compilers` picks this model for chips of kind "cuda"."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from stablehlo_mem.analysis.compiler_model import LONGEST_UNROLLED, CompilerModel, Kernels
from stablehlo_mem.analysis.distribution import gathered_across
from stablehlo_mem.analysis.dot_merging import merged_dots
from stablehlo_mem.analysis.fusion_classes import (
    ELEMENTWISE,
    FUSED,
    FUSIBLE,
    SCAN_WINDOW,
    SLICES,
    Class,
    classify,
    computed_from,
    data_source,
    features_last,
    is_nested,
    is_split_scan,
    reduced_length,
    selection_index_bytes,
    transposed_operands,
)
from stablehlo_mem.analysis.gpu_fusion_cost import L2_BYTES, LAUNCH_BYTES, is_written_for_columns, is_written_once
from stablehlo_mem.analysis.loop_invariants import constants_of_dots
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import Graph, Op, dtype_bytes, reachable
from stablehlo_mem.ir.op_attributes import (
    attention_direction,
    dot_numbers,
    dot_sizes,
    integers,
    ragged_dot,
    window_padding,
)

_ONE_STEP = 4096
"""Elements of a longer reduced dimension are reduced in two steps, with about the square root of their number of
partial results: `tree_reduction_rewriter.cc`."""
_SMALL_REDUCTION = 16
"""A reduction of fewer elements to each result is fused as an elementwise op is: `priority_fusion.cc`."""
_WARP = 32
"""Threads of a warp: it reduces several rows at once if their length divides it, `reduction_utils.cc`."""
_LONGEST_ROW = 2**20
"""Elements of a row that a kernel holds to normalise it; longer ones are reduced by kernels of their own: the largest
tile of Triton."""
_NESTED_RATIO = 16
"""A reduction is computed inside the next one only if that reduces this many times more elements in one step, and if
what it reads fits the L2 cache (seen in compiled programs, like the next one)."""
_PARALLEL_ROWS = 4096
"""A reduction is computed inside the next one only if there are this many results to compute side by side."""
_MOST_TILES = 4 * 132
"""The contraction of a dot is split only if the dot has fewer output tiles than this: four waves of blocks on an H100's
132 cores, used for all chips (seen in compiled programs, like the next two)."""
_DEPTH_RATIO = 8
"""The contraction of a dot is split only if it is this many times longer than there are output tiles."""
_LEAST_PART = 256
"""Elements of the contraction that each of its parts has at least."""
_SUMMED_DOT = 10_000_000
"""Elements of a dot's operands from which a matrix times a vector is a library call: the GPU's
`algebraic_simplifier.cc`, `ShouldStrengthReduceDotToReduce`."""
_MERGED_DOT_BYTES = 64 * 2**20
"""Operands and result of the smaller of two dots that are merged have at most these: `dot_merger.cc`; the limit was
seen in programs compiled by jaxlib 0.10.2, 59 MiB merged and 74 not."""
_FUSING = FUSIBLE | {Class.REDUCE}
"""Classes of ops whose kernels take in what computes their operands."""
_BROADCAST = "stablehlo.broadcast_in_dim"
_SHARES_OPERANDS = frozenset({"stablehlo.while", "stablehlo.scatter"})
"""Ops whose results have to have the buffers of operands; no other kernel's result does (seen in programs)."""
_CUSTOM_TOP_K = 16
"""The k from which a top-k sorts, with an index for each element: `topk_specializer.cc`."""


class XlaGpu(CompilerModel):
    """XLA:GPU for CUDA."""

    recomputes_materialised = False
    fuses_producers = frozenset({"stablehlo.select_and_scatter"})
    widens_in_epilogue = False
    """`gemm_fusion.cc` takes in no op that writes more than it reads (seen in compiled programs)."""
    transposes_stacks = True
    """Seen in compiled programs: a GPT's step with its update in the loop of the gradients."""
    fuses_sibling_reductions = True
    """`multi_output_fusion.cc` of the GPU's compiler."""

    fuses_into_sums = True

    def hoisted_ops(self, body: Graph) -> frozenset[int]:
        """None: invariant elementwise ops, reductions, dots and loops stay in the body (seen in compiled programs)."""
        return frozenset()

    def materialises(self, graph: Graph, value: int, kind: Class, kernels: Kernels, reused: bool, uses: float) -> bool:
        """What takes less to write once than to compute again: see `gpu_fusion_cost`.

        And even what is cheap, if several kernels use its elements many times each. For a loop's slice of an array
        either is enough: the slice is copied. A broadcast is never written: what it repeats is, which is smaller.
        """
        producer = graph.producer(value)
        name = producer.name if producer is not None else ""
        if name == "stablehlo.broadcast_in_dim":
            return False
        if name == "stablehlo.dynamic_slice":
            if reused or len(kernels) > 1:
                return True
        elif reused and len(kernels) > 1:
            return True
        if len(kernels) <= 1 and uses <= 1:
            columns = max((self._columns_summed(graph, graph.ops[k]) for k in kernels), default=0)
            return columns > 0 and is_written_for_columns(graph, value, columns)
        fusing = all(self._takes_in_operands(graph, graph.ops[k]) for k in kernels)
        return fusing and is_written_once(graph, value, len(kernels), uses)

    def counted_repeats(self, graph: Graph, broadcast: Op) -> int:
        """All, if the value takes longer to write than a kernel to launch, such as the weights of pairs.

        What is smaller, such as statistics of rows, the kernel computes that makes what it is computed from.
        """
        whole, repeated = (graph.values[v] for v in (*broadcast.operands, *broadcast.results))
        return math.prod(repeated.shape) // math.prod(whole.shape) if whole.nbytes > LAUNCH_BYTES else 1

    def _columns_summed(self, graph: Graph, kernel: Op) -> int:
        """How many sums a kernel makes side by side if it reduces other dimensions than the last; else 0."""
        kind = classify(graph, kernel)
        if kind is Class.DOT and self.compiles_dot_as_sum(graph, kernel):
            sizes = [math.prod(graph.values[v].shape) for v in kernel.operands]
            matrix = sizes.index(max(sizes))
            dims = dot_numbers(graph, kernel).contracting[matrix]
        elif kind is Class.REDUCE:
            matrix, dims = 0, integers(graph, kernel, "dimensions")
        else:
            return 0
        if len(graph.values[kernel.operands[matrix]].shape) - 1 in dims:
            return 0
        return math.prod(graph.values[kernel.results[0]].shape) * _partial_sums(graph, kernel)

    def _takes_in_operands(self, graph: Graph, kernel: Op) -> bool:
        """Whether a kernel takes in whatever computes its operands."""
        kind = classify(graph, kernel)
        return kind in _FUSING or (kind is Class.DOT and self.compiles_dot_as_sum(graph, kernel))

    def is_short_reduction(self, graph: Graph, op: Op) -> bool:
        """One with one result that can be unrolled: `priority_fusion.cc` fuses elementwise ops."""
        elements, results = (math.prod(graph.values[v].shape) for v in (op.operands[0], op.results[0]))
        return len(op.results) == 1 and elements <= LONGEST_UNROLLED * results

    def reduces_elementwise(self, graph: Graph, op: Op, kernels: Kernels) -> bool:
        """A short one. Where several rows fit a warp, it is a reduction all the same, which fuses only into others."""
        elements, results = (math.prod(graph.values[v].shape) for v in (op.operands[0], op.results[0]))
        if len(op.results) > 1 or elements >= _SMALL_REDUCTION * results:
            return False
        is_row = integers(graph, op, "dimensions") == (len(graph.values[op.operands[0]].shape) - 1,)
        if not is_row or _WARP % max(1, elements // max(1, results)):
            return True
        return all(classify(graph, graph.ops[kernel]) in (Class.REDUCE, Class.DOT) for kernel in kernels)

    def fuses_row_reduction(self, graph: Graph, op: Op, kernel: Op) -> bool:
        """One of the last dimension that is broadcast back along it: `softmax_rewriter_triton.cc`."""
        shape = graph.values[op.operands[0]].shape
        is_row = integers(graph, op, "dimensions") == (len(shape) - 1,) and len(op.results) == 1
        if not is_row or shape[-1] > _LONGEST_ROW or classify(graph, kernel) not in FUSIBLE:
            return False
        rows = math.prod(shape[:-1])
        return math.prod(graph.values[kernel.results[0]].shape) == rows * shape[-1]

    def fuses_reduction(self, graph: Graph, op: Op, kernels: Kernels) -> bool:
        """Only into an argmin that compares the sums, a far longer one; not into a minimum."""
        if not kernels:
            return True
        user = graph.ops[next(iter(kernels))]
        if len(kernels) > 1 or classify(graph, user) is not Class.REDUCE or len(user.results) == 1:
            return False
        if not _NESTED_RATIO * reduced_length(graph, op) <= reduced_length(graph, user) <= _ONE_STEP:
            return False
        rows = math.prod(graph.values[user.results[0]].shape)
        return rows >= _PARALLEL_ROWS and _largest_source_bytes(graph, op.operands[0]) <= L2_BYTES

    def dot_operands_in_memory(self, graph: Graph, dot: Op) -> Collection[int]:
        """All: the autotuner may choose cuBLAS. It reads them in any order, but batch dimensions come first."""
        in_other_order = transposed_operands(graph, dot)
        return [v if v in in_other_order else graph.under(v, _is_transpose) for v in dot.operands]

    def fuses_epilogue(self, unary_chain: bool) -> bool:
        """A chain of ops with one tensor operand."""
        return unary_chain

    def merged_dots(self, graph: Graph) -> frozenset[int]:
        """Small ones."""
        return merged_dots(graph, _MERGED_DOT_BYTES)

    def reads_after_dot(self, graph: Graph, value: int) -> bool:
        """An argument of the function or loop, repeated or not.

        `gemm_fusion.cc` takes what is computed in the same block for an operand that is not worth it (also seen in
        compiled programs).
        """
        source = graph.under(value, lambda op: op.name == _BROADCAST or classify(graph, op) is Class.VIEW)
        return not graph.values[source].is_computed

    def compiles_dot_as_sum(self, graph: Graph, dot: Op) -> bool:
        """A small matrix times a vector."""
        rows, columns, _, depth = dot_sizes(graph, dot)
        return min(rows, columns) == 1 and (rows + columns) * depth < _SUMMED_DOT

    def writes_over(self, graph: Graph, op: Op, kernel: Op) -> bool:
        """Not what a loop or scatter writes over its operands, nor a dot's that cuBLAS may compute (seen in programs).

        Its result is in a tuple with its workspace. Of a dot whose contraction has one element XLA makes a product, of
        one with a vector a sum. And nothing that is padded for a split contraction has the buffer of what is not.
        """
        if any(_is_padded(graph, graph.ops[user]) for value in kernel.results for user in graph.users[value]):
            return False
        if classify(graph, op) is not Class.DOT:
            return op.name not in _SHARES_OPERANDS
        is_library = dot_sizes(graph, op)[3] > 1 and not self.compiles_dot_as_sum(graph, op)
        return not is_library or _is_cublas_epilogue(graph, op, kernel)

    def epilogue_scratch_bytes(self, graph: Graph, dot: Op, kernel: Op) -> int:
        """The dot's result, where cuBLAS may compute it and the kernel follows."""
        if classify(graph, kernel) not in ELEMENTWISE or self.writes_over(graph, dot, kernel):
            return 0
        return graph.values[dot.results[0]].nbytes

    def copied_before_loop(self, graph: Graph, loop: Op) -> Mapping[int, int]:
        """Arguments, to bring batch dimensions to the front, or one along which their parts on devices are gathered.

        What is computed is computed in that order.
        """
        read = constants_of_dots(graph, loop, _sources_of_transposed)
        return {v: graph.values[v].nbytes for v in read if not graph.values[v].is_computed}

    def window_scratch_bytes(self, graph: Graph, op: Op) -> int:
        """Of a running sum the last elements of the windows into which it is split, and their running sums."""
        return 2 * graph.values[op.results[0]].nbytes // SCAN_WINDOW if is_split_scan(graph, op) else 0

    def reduction_scratch_bytes(self, graph: Graph, op: Op) -> int:
        """The results of the first of two steps."""
        parts = _partial_sums(graph, op)
        return sum(graph.values[v].nbytes for v in op.results) * parts if parts > 1 else 0

    def dot_scratch_bytes(self, graph: Graph, dot: Op) -> int:
        """Partial results of a split contraction, its operands padded to whole parts, copies of arguments.

        Fusible ops compute their results padded, and in the order the dot wants; arguments of a loop are copied before
        it.
        """
        nbytes, parts = 0, _contraction_parts(graph, dot)
        if parts > 1:
            nbytes += graph.values[dot.results[0]].nbytes * parts
            if _is_padded(graph, dot):
                producers = ((v, graph.producer(v)) for v in dot.operands)
                whole = (v for v, op in producers if op is None or classify(graph, op) not in FUSIBLE)
                nbytes += sum(graph.values[v].nbytes for v in whole)
        if not is_nested(graph):
            transposed = transposed_operands(graph, dot)
            arguments = (v for v in transposed if not graph.values[data_source(graph, v)].is_computed)
            nbytes += sum(graph.values[v].nbytes for v in arguments)
        return nbytes

    def ragged_repeats(self, graph: Graph, op: Op) -> int:
        """All groups: a dense dot of rows that are masked for each (`ragged_dot_rewriter.cc`)."""
        return ragged_dot(graph, op).groups

    def widens_operands(self, graph: Graph, op: Op) -> bool:
        """Those of a convolution of 16-bit floats that adds up in f32, as a split sum does: cuDNN has no such one."""
        itemsizes = (dtype_bytes(graph.values[v].dtype) for v in (op.results[0], *op.operands[:2]))
        return op.name == "stablehlo.convolution" and next(itemsizes) > max(itemsizes)

    def kernel_scratch_bytes(self, graph: Graph, op: Op) -> int:
        """Rows masked for each group, indices of a top-k or of a selection, one side of a sort, transposed operands."""
        if op.name == "stablehlo.convolution":
            copied = not features_last(graph, op) or _has_uneven_padding(graph, op)
            widened = 2 * sum(graph.values[v].nbytes for v in op.operands) if self.widens_operands(graph, op) else 0
            return widened + (graph.values[op.operands[0]].nbytes if copied else 0)
        if op.name == "chlo.ragged_dot":
            dot = ragged_dot(graph, op)
            return dot.groups * sum(graph.values[v].nbytes for v in dot.grouped)
        if op.name == "chlo.top_k" and ir.IntegerAttr(graph.handles[op.index].attributes["k"]).value > _CUSTOM_TOP_K:
            return math.prod(graph.values[op.operands[0]].shape) * 4
        if attention_direction(graph, op) == "backward":
            return _attention_scratch_bytes(graph, op)
        if op.name == "stablehlo.custom_call":
            return _transposed_call_bytes(graph, op)
        if op.name == "stablehlo.sort":
            return graph.values[op.operands[0]].nbytes
        if op.name == "stablehlo.select_and_scatter":
            return selection_index_bytes(graph, op.operands[1]) + graph.values[op.operands[1]].nbytes
        return super().kernel_scratch_bytes(graph, op)


def _is_cublas_epilogue(graph: Graph, dot: Op, kernel: Op) -> bool:
    """Whether a kernel is a ReLU or the tanh form of GELU of a dot, which cuBLASLt computes: `gemm_rewriter.cc`."""
    if kernel.name == "stablehlo.maximum":
        return any(_is_splat(graph, v) for v in kernel.operands)
    if kernel.name != "stablehlo.multiply":
        return False
    halves = [computed_from(graph, [v], ELEMENTWISE) for v in kernel.operands]
    made = (graph.producer(v) for half in halves for v in half)
    has_tanh = any(op is not None and op.name == "stablehlo.tanh" for op in made)
    return has_tanh and all(dot.results[0] in half for half in halves)


def _partial_sums(graph: Graph, op: Op) -> int:
    """The partial sums for each result of a reduction, or of a dot that is compiled as one: 1 if it takes one step."""
    if classify(graph, op) is Class.DOT:
        length = dot_sizes(graph, op)[3]
    else:
        shape = graph.values[op.operands[0]].shape
        length = math.prod(shape[d] for d in integers(graph, op, "dimensions"))
    return math.isqrt(length) if length > _ONE_STEP else 1


def _is_transpose(op: Op) -> bool:
    return op.name == "stablehlo.transpose"


def _is_splat(graph: Graph, value: int) -> bool:
    """Whether a value is a broadcast scalar or a constant."""
    op = graph.producer(value)
    if op is None or op.name == "stablehlo.constant":
        return op is not None
    return op.name == "stablehlo.broadcast_in_dim" and not graph.values[op.operands[0]].shape


def _contraction_parts(graph: Graph, dot: Op) -> int:
    """The number of parts of a dot's contraction that are summed side by side."""
    rows, columns, batch, depth = dot_sizes(graph, dot)
    tile = 64 if min(rows, columns) > 1 else 128
    tiles = max(1, -(-rows // tile) * -(-columns // tile) * batch)
    parts = min(_MOST_TILES // tiles, 256, depth // _LEAST_PART) if depth >= _DEPTH_RATIO * tiles else 1
    return 2 ** (parts.bit_length() - 1) if parts > 1 else 1


def _is_padded(graph: Graph, dot: Op) -> bool:
    """Whether the operands of a dot are padded, to split its contraction."""
    if classify(graph, dot) is not Class.DOT:
        return False
    parts = _contraction_parts(graph, dot)
    return parts > 1 and dot_sizes(graph, dot)[3] % (parts * 4) > 0


def _largest_source_bytes(graph: Graph, value: int) -> int:
    """Bytes of the largest value read by the fused expression of `value`; a slice counts as what it takes."""

    def fused(v: int) -> tuple[int, ...]:
        producer = graph.producer(v)
        if producer is None or producer.name in SLICES or classify(graph, producer) not in FUSIBLE:
            return ()
        return producer.operands

    return max(graph.values[v].nbytes for v in reachable([value], fused) if not fused(v))


def _sources_of_transposed(graph: Graph, dot: Op) -> set[int]:
    """The operands of a dot that need another order, and the values they are computed from by fusible ops."""
    transposed = [*transposed_operands(graph, dot), *gathered_across(graph, dot)]
    return {*computed_from(graph, transposed, FUSED)}


def _transposed_call_bytes(graph: Graph, op: Op) -> int:
    """Bytes of the copies of a custom call's operands that it wants in another order than row by row."""
    attributes = graph.handles[op.index].attributes
    if "operand_layouts" not in attributes:
        return 0
    layouts: Any = (ir.DenseIntElementsAttr(a) for a in ir.ArrayAttr(attributes["operand_layouts"]))
    orders: Any = zip(op.operands, map(list, layouts), strict=True)
    return sum(graph.values[v].nbytes for v, order in orders if order != sorted(order, reverse=True))


def _attention_scratch_bytes(graph: Graph, op: Op) -> int:
    """What cuDNN's backward kernel takes at run time, which no report of a compiler without a device has.

    dQ is added up in float32, and each query has a sum of dO ∘ O (FlashAttention-2, algorithm 2).
    """
    of_queries = graph.values[op.results[0]].shape
    return 4 * math.prod(of_queries) + 4 * math.prod(of_queries[:-1])


def _has_uneven_padding(graph: Graph, op: Op) -> bool:
    """Whether cuDNN cannot pad a convolution's input on the fly: uneven or negative padding."""
    return any(low != high or low < 0 for low, high in window_padding(graph.handles[op.index]))
