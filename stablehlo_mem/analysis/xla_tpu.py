"""XLA:TPU: how it fuses, pads and converts. `compilers` picks this model for chips of kind "tpu".

Its compiler (libtpu) is closed: what is here was read from the programs and the memory reports that it writes.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Collection, Mapping
from fractions import Fraction

from stablehlo_mem.analysis.compiler_model import CompilerModel, Kernels
from stablehlo_mem.analysis.fusion_classes import (
    ELEMENTWISE,
    FUSED,
    Class,
    classify,
    computed_from,
    data_source,
    multiplies,
    reduced_length,
    selection_index_bytes,
)
from stablehlo_mem.analysis.loop_invariants import constants_of_dots
from stablehlo_mem.analysis.nested_dots import is_in_next_dot
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import Graph, Op, Value, dtype_bytes, reachable, readers_through
from stablehlo_mem.ir.op_attributes import asks_full_precision, convolution_numbers

_LONGEST_ROW = 4096
"""Elements of a row of a matmul's result of which the matmul's kernel computes a maximum and then a sum (seen in
compiled programs: 4096 are, 8192 are not)."""
_CHANGES_ELEMENTS = frozenset({"stablehlo.bitcast_convert", "stablehlo.reduce_window"})
"""Ops that are classed as views and moves, but whose results are not elements of their operands."""
_SPACE_TO_BATCH = 9
"""Kernels that rearrange the values of a convolution with a small batch, and the halos between the parts of a picture
(seen in compiled programs of batches of 1 to 6: 4 to 10 for each convolution; of 8 none)."""
_SUBLANES, _LANES = 8, 128
"""The tile of the last two dimensions, in 4-byte elements: a register has 8 sublanes of 128 lanes."""


class XlaTpu(CompilerModel):
    """XLA:TPU."""

    always_materialised = frozenset({"stablehlo.gather", "stablehlo.reduce_window"})
    reads_from_memory = always_materialised | {"stablehlo.concatenate", "stablehlo.scatter", "stablehlo.sort"}
    fuses_producers = frozenset({"chlo.top_k", "stablehlo.select_and_scatter"})
    places_on_chip = True
    starts_host_copies_early = True
    writes_over_operands = False
    reuses_output_buffers = False
    hoists_operand_converts = True
    fuses_convolutions = True
    reduces_dots = True

    def materialises(self, graph: Graph, value: int, kind: Class, kernels: Kernels, reused: bool, uses: float) -> bool:
        """What takes an expensive op and is used many times in a kernel; what ends the kernel of a matmul.

        All else is computed in each kernel.
        """
        if len(kernels) > 1 and _epilogue_of(graph, value) is not None:
            return True
        return reused and (kind is Class.EXPENSIVE or (kind is not Class.MOVE and _takes_expensive_op(graph, value)))

    def computes_once(self, graph: Graph, op: Op, kernels: Kernels) -> bool:
        """The exponentials of a softmax that a matmul reads: its kernel `online-softmax`."""
        kinds = {classify(graph, graph.ops[kernel]) for kernel in kernels}
        return op.name == "stablehlo.exponential" and kinds == {Class.REDUCE, Class.DOT}

    def reduces_while_written(self, graph: Graph, reduce: Op, value: int) -> bool:
        """A reduction of a matmul's result, and the sum of a softmax that a matmul reads: the kernel `online-softmax`.

        That kernel takes short rows without a mask, and nothing else may read the scores.
        """
        producer = _epilogue_of(graph, data_source(graph, value))
        if producer is None:
            return False
        others = _read_beside(graph, reduce, value)
        if all(_is_generated(graph, v) for v in others):
            return True
        is_short = classify(graph, producer) is Class.DOT and reduced_length(graph, reduce) <= _LONGEST_ROW
        return is_short and len(others) == 1 and _is_softmax(graph, value) and not _is_masked(graph, value)

    def fuses_reduction(self, graph: Graph, op: Op, kernels: Kernels) -> bool:
        """Never."""
        return False

    def dot_operands_in_memory(self, graph: Graph, dot: Op) -> Collection[int]:
        """None: the producers are fused."""
        return ()

    def fuses_epilogue(self, unary_chain: bool) -> bool:
        """Whatever other operands it has."""
        return True

    def fuses_into_dot(self, graph: Graph, dot: Op) -> bool:
        """A dot with a short contraction, whose one dimension the next dot contracts."""
        return is_in_next_dot(graph, dot)

    def copied_before_loop(self, graph: Graph, loop: Op) -> Mapping[int, int]:
        """The bfloat16 copies of float32 operands."""
        read = constants_of_dots(graph, loop, lambda block, dot: {data_source(block, v) for v in dot.operands})
        return {v: graph.values[v].nbytes // 2 for v in read if graph.values[v].dtype == "f32"}

    def updates_host_along(self, value: Value, dimension: int) -> bool:
        """Not along the lanes: libtpu 0.0.42 has no such copy ("Lane slice updating is not supported")."""
        return dimension < len(value.shape) - 1

    def buffer_bytes(self, value: Value) -> int:
        """The two innermost dimensions are padded to tiles, and narrow types are packed.

        XLA lays out a computed value as wastes the least; that of an argument is given, but for the order of the last
        two dimensions.
        """
        inner = len(value.shape) if value.is_computed else 2
        return math.ceil(value.nbytes * _padding(value.shape, value.dtype, inner))

    def stored_bytes(self, graph: Graph, value: int) -> int:
        """Those of bfloat16 for a float32 value that only matmuls read: they would round it anyway.

        What gathers write and scatters read lies in rows, with the last dimension along the lanes however short it is.
        """
        stored = graph.values[value]
        if value in _rounded_values(graph):
            stored = dataclasses.replace(stored, dtype="bf16", nbytes=stored.nbytes // 2)
        if not stored.is_computed or not self.lies_in_rows(graph, value):
            return self.buffer_bytes(stored)
        return math.ceil(stored.nbytes * _padding_in_rows(stored.shape[-2:], stored.dtype))

    def lies_in_rows(self, graph: Graph, value: int) -> bool:
        """Whether a gather, another move that is not fused, or a Pallas kernel writes a value, or such a kernel or a
        scatter reads it.
        """
        producer, users = graph.producer(value), [graph.ops[user] for user in graph.users[value]]
        if producer is not None and (producer.name in self.always_materialised or _is_pallas(graph, producer)):
            return True
        scatters = (op for op in users if op.name == "stablehlo.scatter")
        return any(value in op.operands[-len(op.results) :] for op in scatters) or any(
            _is_pallas(graph, op) for op in users
        )

    def copied_operands(self, graph: Graph, op: Op) -> Mapping[int, int]:
        """The arguments that a Pallas kernel reads and that do not lie in rows: it reads copies that do."""
        if not _is_pallas(graph, op):
            return {}
        arguments = [graph.values[v] for v in op.operands if not graph.values[data_source(graph, v)].is_computed]
        in_rows = {v.index: math.ceil(v.nbytes * _padding_in_rows(v.shape[-2:], v.dtype)) for v in arguments}
        return {v.index: in_rows[v.index] for v in arguments if in_rows[v.index] > self.buffer_bytes(v)}

    def rearranging_kernels(self, graph: Graph, op: Op) -> int:
        """Those of a convolution over pictures whose batch fills no tile: parts of the pictures become a batch."""
        if op.name != "stablehlo.convolution" or len(graph.values[op.operands[0]].shape) <= 2:
            return 0
        batch = graph.values[op.operands[0]].shape[convolution_numbers(graph, op).input_batch_dimension]
        return _SPACE_TO_BATCH if batch < _SUBLANES else 0

    def relayout_bytes(self, graph: Graph, op: Op) -> int:
        """A narrow argument is copied with full tiles to be broadcast."""
        return _broadcast_copy_bytes(graph, op) if op.name == "stablehlo.broadcast_in_dim" else 0

    def kernel_scratch_bytes(self, graph: Graph, op: Op) -> int:
        """Twice a Fourier transform's values, one side of a sort, indices of a selection, a Pallas kernel's copies."""
        if op.name == "stablehlo.fft":
            return 2 * sum(self.buffer_bytes(graph.values[v]) for v in op.operands + op.results)
        if op.name == "stablehlo.sort":
            return self.buffer_bytes(graph.values[op.operands[0]])
        if op.name == "stablehlo.custom_call":
            return sum(self.copied_operands(graph, op).values())
        if op.name == "stablehlo.select_and_scatter":
            return selection_index_bytes(graph, op.operands[1])
        return super().kernel_scratch_bytes(graph, op)


@cached_analysis
def _rounded_values(graph: Graph) -> frozenset[int]:
    """The computed float32 values that only matmuls of the default precision use, moved or not."""
    rounded: set[int] = set()
    for value in reversed(graph.values):
        users = [graph.ops[user] for user in graph.users[value.index]]
        if value.dtype == "f32" and value.is_computed and users and all(_rounds(graph, op, rounded) for op in users):
            rounded.add(value.index)
    return frozenset(rounded)


def _rounds(graph: Graph, op: Op, rounded: set[int]) -> bool:
    """Whether an op takes its operands as bfloat16, or moves them to where that is done."""
    if multiplies(graph, op):
        return not asks_full_precision(graph, op)
    moves = classify(graph, op) in (Class.VIEW, Class.MOVE) and op.name not in _CHANGES_ELEMENTS
    return moves and rounded.issuperset(op.results)


@cached_analysis
def _takes_expensive_op(graph: Graph, value: int) -> bool:
    """Whether the elementwise ops that a value is computed by have an expensive one among them."""
    return any(classify(graph, op) is Class.EXPENSIVE for op in _producers(graph, value))


def _producers(graph: Graph, value: int) -> list[Op]:
    """The elementwise ops that a value is computed by, and the producers of what they are computed from."""
    values = computed_from(graph, [value], ELEMENTWISE | {Class.VIEW})
    return [op for op in map(graph.producer, values) if op is not None]


@cached_analysis
def _read_beside(graph: Graph, reduce: Op, value: int) -> tuple[int, ...]:
    """What elementwise ops before a reduction are computed from, but for a value and scalars."""

    def fused(v: int) -> tuple[int, ...]:
        op = graph.producer(v)
        return op.operands if v != value and op is not None and classify(graph, op) in FUSED else ()

    read = reachable([reduce.operands[0]], fused)
    return tuple(v for v in read if v != value and not fused(v) and graph.values[v].shape)


@cached_analysis
def _epilogue_of(graph: Graph, value: int) -> Op | None:
    """The matmul whose kernel writes a value: its own result, or what elementwise ops alone make of that."""
    producers = _producers(graph, value)
    matmuls = [op for op in producers if multiplies(graph, op)]
    if len(matmuls) != 1:
        return None
    inside = {op.index for op in producers}
    after = reachable(matmuls[0].results, lambda v: _made_inside(graph, v, inside) if v != value else ())
    is_alone = all(inside.issuperset(graph.users[v]) for v in after if v != value)
    return matmuls[0] if is_alone else None


def _made_inside(graph: Graph, value: int, ops: set[int]) -> tuple[int, ...]:
    """What some ops make of a value."""
    return tuple(result for user in graph.users[value] if user in ops for result in graph.ops[user].results)


@cached_analysis
def _is_pallas(graph: Graph, op: Op) -> bool:
    """Whether an op is a kernel written in Pallas, whose operands and results lie in rows."""
    if op.name != "stablehlo.custom_call":
        return False
    return ir.StringAttr(graph.handles[op.index].attributes["call_target_name"]).value == "tpu_custom_call"


def _is_generated(graph: Graph, value: int) -> bool:
    producer = graph.producer(value)
    return producer is not None and classify(graph, producer) is Class.GENERATE


def _is_masked(graph: Graph, value: int) -> bool:
    """Whether elementwise ops that compute a value select from others."""
    return any(op.name == "stablehlo.select" for op in _producers(graph, value))


@cached_analysis
def _is_softmax(graph: Graph, scores: int) -> bool:
    """Whether two reductions and a matmul alone read a value, by way of elementwise ops."""
    readers = readers_through(graph, [scores], lambda op: classify(graph, op) in FUSED)
    kinds = [classify(graph, graph.ops[user]) for user in readers]
    counted = [kind for kind in kinds if kind not in FUSED]
    return sorted(kind.name for kind in counted) == ["DOT", "REDUCE", "REDUCE"]


@functools.lru_cache(maxsize=4096)
def _padding(shape: tuple[int, ...], dtype: str, inner: int) -> Fraction:
    """Elements with padding over those without, where tiles lie along those two of the last `inner` dimensions that
    waste the least.
    """
    pairs = itertools.permutations(shape[-inner:], 2) if 0 not in shape else ()
    return min((_padding_in_rows(pair, dtype) for pair in pairs), default=Fraction(1))


def _padding_in_rows(rows_and_columns: tuple[int, ...], dtype: str) -> Fraction:
    """The same where the columns lie along the lanes; nothing is known to be wasted of less than two dimensions."""
    if len(rows_and_columns) < 2 or 0 in rows_and_columns:
        return Fraction(1)
    rows, columns = rows_and_columns
    height = _SUBLANES * max(1, int(4 // max(dtype_bytes(dtype), 0.5)))
    return Fraction(_pad(rows, height) * _pad(columns, _LANES), rows * columns)


def _broadcast_copy_bytes(graph: Graph, op: Op) -> int:
    """Bytes of the copy of an argument of fewer columns than lanes that an op broadcasts: its columns are padded."""
    source = graph.values[op.operands[0]]
    if len(source.shape) < 2 or graph.values[op.results[0]].nbytes <= source.nbytes:
        return 0
    width = source.shape[-1]
    is_argument = not graph.values[data_source(graph, source.index)].is_computed
    return source.nbytes * _LANES // width if 0 < width < _LANES and is_argument else 0


def _pad(size: int, tile: int) -> int:
    return -(-size // tile) * tile
