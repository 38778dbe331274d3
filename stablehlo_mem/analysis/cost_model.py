"""Estimated time: the roofline of FLOPs and bytes moved. Good for comparing plans, not for predicting a clock.

Passes estimate what a candidate adds, the planner how long a program takes. What differs between chips are figures of
`Chip`; what kernels read and write follows from `fusion`, and so from the compiler's model.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import operator
from collections.abc import Iterable, Sequence

from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.distribution import exchanged_bytes, sharing_devices
from stablehlo_mem.analysis.fusion import Buffers, plan_buffers
from stablehlo_mem.analysis.fusion_classes import CLASSES, ELEMENTWISE, SLICES, Class, is_nested
from stablehlo_mem.analysis.loop_invariants import invariant_ops
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.graph import Graph, Op, dtype_bytes
from stablehlo_mem.ir.loop_carries import readers_in
from stablehlo_mem.ir.matchers import adds, sums_products_in_units
from stablehlo_mem.ir.op_attributes import (
    asks_full_precision,
    dot_operands_transposed,
    dot_sizes,
    factorisation_flops,
    stated_flops,
)
from stablehlo_mem.ir.trip_count import likely_trips, trip_count
from stablehlo_mem.targets.chips import Chip

ELEMENT_FLOPS: dict[str, int] = {
    **dict.fromkeys(("divide", "sqrt", "rsqrt", "remainder", "cbrt"), 4),
    **dict.fromkeys(("exponential", "exponential_minus_one", "log", "log_plus_one", "logistic", "tanh", "erf"), 10),
    **dict.fromkeys(("sine", "cosine", "tan", "atan2", "power", "erf_inv", "erfc", "lgamma", "digamma"), 20),
}
"""FLOPs per element of the elementwise ops that take more than one: rough figures, good enough beside memory."""

VECTOR_SHARE = 0.125
"""Rate of elementwise arithmetic as a share of the matmul rate, for chips that do not say it: a rough figure."""

_INVARIANT_SHARE = 0.125
"""Of the memory on the chip: what every step of a loop reads stays there if it has at most so much of it, where the
compiler places values (seen in compiled programs)."""

_MOVES_NOTHING = (Class.VIEW, Class.GENERATE, Class.RETURN, Class.CONTROL)

CACHE_SPEEDUP = 4
"""How much faster operands are read again from the shared cache than from memory (on CPU)."""
_MOST_PACKING = 2.0
"""Time of packing as a multiple of the FLOPs' time, at most: a matrix times a vector runs at a third of the rate
(measured on CPU)."""


@dataclasses.dataclass(frozen=True)
class Matmul:
    """What the rate of a matmul depends on: the width of its elements and, where operands are packed, its sizes.

    Attributes:
        itemsize: bytes of an element of its operands, of the wider one if they differ.
        rows: of the left operand, however many dimensions they have.
        columns: of the right one.
        transposed: whether each operand lies transposed: see `op_attributes.dot_operands_transposed`.
    """

    rows: float
    columns: float
    itemsize: float = 4
    transposed: tuple[bool, bool] = (False, False)

    def packing_factor(self, chip: Chip) -> float:
        """How many times longer it takes than its FLOPs alone.

        Each operand is packed once: the left one costs the less, the more columns use it, and the right one likewise.
        """
        left = chip.packed_rows + self.transposed[0] * chip.transposed_rows
        right = chip.packed_rows + all(self.transposed) * chip.transposed_rows
        return 1 + min(_MOST_PACKING, left / max(1, self.columns) + right / max(1, self.rows))

    def swapped(self) -> Matmul:
        """The matmul with swapped operands, whose result is transposed."""
        return Matmul(self.columns, self.rows, self.itemsize, (not self.transposed[1], not self.transposed[0]))


def matmul_of(graph: Graph, dot: Op) -> Matmul:
    """The matmul that a dot_general is."""
    rows, columns, _, _ = dot_sizes(graph, dot)
    return Matmul(rows, columns, _operand_itemsize(graph, dot), dot_operands_transposed(graph, dot))


def _operand_itemsize(graph: Graph, op: Op) -> float:
    """Bytes of an element of the wider of the first two operands."""
    return max((dtype_bytes(graph.values[v].dtype) for v in op.operands[:2]), default=4)


def op_flops(graph: Graph, op: Op) -> float:
    """Floating-point operations of one op on one device, blocks of its own left out."""
    return _flops_everywhere(graph, op) / sharing_devices(graph, op)


@cached_analysis
def _flops_everywhere(graph: Graph, op: Op) -> float:
    """Floating-point operations of one op on all devices."""
    kind = CLASSES.get(op.name, Class.OPAQUE)
    if kind is Class.DOT:
        rows, columns, batch, depth = dot_sizes(graph, op)
        return 2.0 * rows * columns * batch * depth
    if op.name == "stablehlo.convolution":
        return _convolution_flops(graph, op)
    if op.name in ("stablehlo.sort", "chlo.top_k", "stablehlo.fft"):
        # A top-k and a Fourier transform work along the last dimension.
        attributes = graph.handles[op.index].attributes
        dimension = ir.IntegerAttr(attributes["dimension"]).value if op.name == "stablehlo.sort" else -1
        return sum(_sort_flops(graph.values[v].shape, dimension) for v in op.operands)
    if op.name in ("stablehlo.cholesky", "stablehlo.triangular_solve"):
        return math.prod(graph.values[op.results[0]].shape) * graph.values[op.operands[0]].shape[-1]
    if op.name == "stablehlo.custom_call":
        return stated_flops(graph, op) or factorisation_flops(graph, op)
    if kind is Class.REDUCE or op.name == "stablehlo.reduce_window":
        return sum(math.prod(graph.values[v].shape) for v in op.operands)
    if kind in ELEMENTWISE:
        return math.prod(graph.values[op.results[0]].shape) * ELEMENT_FLOPS.get(op.name.partition(".")[2], 1)
    return 0.0


def op_bytes(graph: Graph, op: Op, chip: Chip) -> int:
    """Bytes an op reads and writes when nothing is fused."""
    kind = CLASSES.get(op.name, Class.OPAQUE)
    if kind in _MOVES_NOTHING:
        return 0
    if kind is Class.UPDATE:
        return 2 * _buffer_bytes(graph, op.operands[1:], chip)
    results = _buffer_bytes(graph, op.results, chip)
    return 2 * results if op.name in SLICES else results + _buffer_bytes(graph, set(op.operands), chip)


def _buffer_bytes(graph: Graph, values: Iterable[int], chip: Chip) -> int:
    buffer_bytes = compiler_model(chip).buffer_bytes
    return sum(buffer_bytes(graph.values[v]) for v in values)


@cached_analysis
def op_seconds(graph: Graph, op_index: int, chip: Chip) -> float:
    """Seconds of one op by itself: the slower of arithmetic and memory; a loop's body times its trip count."""
    op = graph.ops[op_index]
    if op.blocks and CLASSES.get(op.name) is Class.CONTROL:
        return _control_seconds(graph, op, chip)
    seconds = max(arithmetic_seconds(graph, op, chip), op_bytes(graph, op, chip) / chip.bytes_per_second)
    return seconds + exchange_seconds(graph, op, chip)


def exchange_seconds(graph: Graph, op: Op, chip: Chip) -> float:
    """Seconds of what devices exchange for one op."""
    return exchanged_bytes(graph, op) / chip.link_bytes_per_second if chip.link_bytes_per_second else 0.0


def arithmetic_seconds(graph: Graph, op: Op, chip: Chip) -> float:
    """Seconds of one op if memory were infinitely fast."""
    serial = compiler_model(chip).serial_seconds(graph, op)
    if serial:
        return serial
    seconds = flop_seconds(graph, op, chip)
    if CLASSES.get(op.name) is Class.DOT:
        return seconds * matmul_of(graph, op).packing_factor(chip)
    return seconds * imbalance_factor(_parallel_rows(graph.values[op.results[0]].shape, chip), chip) if seconds else 0.0


def flop_seconds(graph: Graph, op: Op, chip: Chip) -> float:
    """Seconds of an op's FLOPs at the chip's rate, without packing and without imbalance between cores.

    Custom calls that state their FLOPs are kernels made for the matrix units.
    """
    flops = op_flops(graph, op)
    if not flops:
        return 0.0
    if op.name == "chlo.top_k" and not compiler_model(chip).sorts_top_k:
        flops = math.prod(graph.values[op.operands[0]].shape)
    is_dense = op.name in ("stablehlo.dot_general", "stablehlo.convolution") or stated_flops(graph, op) > 0
    return flops / (_matmul_rate(graph, op, chip) if is_dense else vector_rate(chip))


def _matmul_rate(graph: Graph, op: Op, chip: Chip) -> float:
    """The rate of a dot or convolution: that of float32 in full where it asks for that precision."""
    itemsize = _operand_itemsize(graph, op)
    return chip.flops_per_second if itemsize > 2 and asks_full_precision(graph, op) else chip.matmul_rate(itemsize)


def vector_rate(chip: Chip) -> float:
    """Elementwise operations per second."""
    return chip.vector_flops_per_second or chip.flops_per_second * VECTOR_SHARE


def imbalance_factor(rows: float, chip: Chip) -> float:
    """How many times longer a kernel takes because some cores get one row less than others."""
    return math.ceil(rows / chip.cores) * chip.cores / rows if rows > 1 else 1.0


def _parallel_rows(shape: tuple[int, ...], chip: Chip) -> int:
    """Rows of a kernel's result that cores share out: those of the fewest outer dimensions that give each core one."""
    counts = itertools.accumulate(shape, operator.mul)
    return next((rows for rows in counts if rows >= chip.cores), math.prod(shape))


def graph_seconds(graph: Graph, chip: Chip) -> float:
    """Seconds of a block with fusion: the arithmetic of all ops, the bytes of what kernels read and write."""
    return sum(fused_seconds(graph, chip))


def graph_flops(graph: Graph) -> float:
    """Floating-point operations of a block. Ops of a loop's body count once for each iteration, invariant ones once."""
    return sum(_total_flops(graph, op) for op in graph.ops)


def _total_flops(graph: Graph, op: Op) -> float:
    if CLASSES.get(op.name) is not Class.CONTROL or not op.blocks:
        return op_flops(graph, op)
    if op.name == "stablehlo.while":
        body = op.blocks[1]
        return _in_loop([_total_flops(body, inner) for inner in body.ops], body, trip_count(graph, op))
    return max(graph_flops(block) for block in op.blocks)


def _in_loop(costs: Sequence[float], body: Graph, trips: int) -> float:
    """What the ops of a loop's body cost in all iterations: invariant ops are hoisted and run once."""
    invariant = invariant_ops(body)
    once = sum(cost for i, cost in enumerate(costs) if i in invariant)
    return trips * (sum(costs) - once) + once


@cached_analysis
def fused_seconds(graph: Graph, chip: Chip) -> tuple[float, ...]:
    """For each op of a block its share of `graph_seconds`."""
    if chip.launch_seconds:
        return _kernels_seconds(graph, chip)
    buffers = plan_buffers(graph, chip)
    seconds: list[float] = []
    for op in graph.ops:
        if op.blocks and CLASSES.get(op.name) is Class.CONTROL:
            seconds.append(_control_seconds(graph, op, chip))
            continue
        arithmetic = arithmetic_seconds(graph, op, chip) + _reduced_seconds(graph, op, chip)
        moving = _kernel_bytes(graph, op, buffers, chip) / chip.bytes_per_second
        seconds.append(max(arithmetic, moving) + exchange_seconds(graph, op, chip))
    return tuple(seconds)


def _kernels_seconds(graph: Graph, chip: Chip) -> tuple[float, ...]:
    """The same where kernels are started one by one: each takes the longer of its arithmetic and its traffic.

    An op has its arithmetic in every kernel that computes it. The op that a kernel is named by has the rest.
    """
    buffers, model = plan_buffers(graph, chip), compiler_model(chip)
    seconds = [0.0] * len(graph.ops)
    arithmetic: collections.Counter[int] = collections.Counter()
    for op in graph.ops:
        if op.blocks and CLASSES.get(op.name) is Class.CONTROL:
            seconds[op.index] = _control_seconds(graph, op, chip)
        elif buffers.kernels[op.index]:
            each = arithmetic_seconds(graph, op, chip)
            if _fits_chip(graph, op, chip) and model.computes_once(graph, op, buffers.kernels[op.index]):
                each /= len(buffers.kernels[op.index])
            seconds[op.index] = len(buffers.kernels[op.index]) * each
            arithmetic.update(dict.fromkeys(buffers.kernels[op.index], each))
    for op in graph.ops:
        if op.index in buffers.kernels[op.index] and CLASSES.get(op.name) not in (Class.CONTROL, Class.RETURN):
            more = max(0.0, traffic_seconds(graph, op, buffers, chip) - arithmetic[op.index])
            seconds[op.index] += more + chip.launch_seconds + exchange_seconds(graph, op, chip)
    return tuple(seconds)


def traffic_seconds(graph: Graph, op: Op, buffers: Buffers, chip: Chip, but: int | None = None) -> float:
    """Seconds that a kernel reads and writes, but for one value. Small values stay on the chip between kernels."""
    written = [v for v in op.results if buffers.materialised[v]]
    moved = {v: _read_bytes(graph, v, chip) for v in buffers.reads[op.index] if v in op.operands or written}
    if CLASSES.get(op.name) is Class.UPDATE:
        moved.pop(op.operands[0], None)
        moved = {v: min(n, _buffer_bytes(graph, (v,), chip)) for v, n in moved.items()}
        written_bytes = {op.results[0]: _buffer_bytes(graph, op.operands[1:2], chip)}
    else:
        written_bytes = {v: _buffer_bytes(graph, (v,), chip) for v in written}
    if but is not None:
        moved.pop(but, None)
    if op.name in SLICES and op.operands[0] in moved:
        moved[op.operands[0]] = min(moved[op.operands[0]], _buffer_bytes(graph, op.results, chip))
    if CLASSES.get(op.name) is Class.REDUCE:
        fused = (v for v in moved if compiler_model(chip).reduces_while_written(graph, op, v))
        moved.update(dict.fromkeys([*fused], 0))
    stays = _on_chip_values(graph, chip)
    on_chip = sum(n for v, n in (*moved.items(), *written_bytes.items()) if v in stays)
    total = sum(moved.values()) + sum(written_bytes.values())
    return (total - on_chip + on_chip / chip.on_chip_speedup) / chip.bytes_per_second


def _fits_chip(graph: Graph, op: Op, chip: Chip) -> bool:
    return _buffer_bytes(graph, op.results, chip) <= chip.on_chip_value_bytes


@cached_analysis
def _on_chip_values(graph: Graph, chip: Chip) -> frozenset[int]:
    """The values made in a block that stay on the chip: small ones, if they fit.

    They need room beside what their kernels read there; beside all that live there, if the compiler places them.
    """
    buffers, stays = plan_buffers(graph, chip), dict[int, int]()
    last = {v: op.index for op in graph.ops for v in buffers.reads[op.index]}
    places = compiler_model(chip).places_on_chip
    if places and is_nested(graph):
        captured = {v: _buffer_bytes(graph, (v,), chip) for v in graph.captured}
        stays.update({v: n for v, n in captured.items() if n <= chip.on_chip_bytes * _INVARIANT_SHARE})
    for op in graph.ops:
        made = {v: _buffer_bytes(graph, (v,), chip) for v in op.results if buffers.materialised[v]}
        live = (v for v in stays if last.get(v, -1) >= op.index) if places else buffers.reads[op.index]
        beside = sum(stays.get(v, 0) for v in live)
        fits = sum(made.values()) + beside <= chip.on_chip_bytes
        if fits and max(made.values(), default=0) <= chip.on_chip_value_bytes:
            stays.update(made)
    return frozenset(stays)


def _kernel_bytes(graph: Graph, op: Op, buffers: Buffers, chip: Chip) -> int:
    """Bytes that the kernel named by an op reads and writes; of an op that is fused into others, none."""
    made = [v for v in op.results if buffers.materialised[v]]
    written = _buffer_bytes(graph, made, chip)
    read = [v for v in buffers.reads[op.index] if v in op.operands or written]
    moved = written + sum(_read_bytes(graph, v, chip) for v in read)
    resident = [v for v in (*read, *made) if v in _resident(graph, chip)]
    moved -= int(_buffer_bytes(graph, resident, chip) * (1 - 1 / CACHE_SPEEDUP))
    in_place = CLASSES.get(op.name, Class.OPAQUE) in (Class.UPDATE, *_MOVES_NOTHING)
    return min(moved, op_bytes(graph, op, chip)) if in_place else moved


@cached_analysis
def _resident(graph: Graph, chip: Chip) -> frozenset[int]:
    """The values that the cache has in every iteration of a loop: all carries and invariants, if they fit it together.

    A carry counts as read and as returned. What is only sliced is not among them: each iteration takes another row.
    """
    if not is_nested(graph) or not chip.cache_bytes:
        return frozenset()
    held = {v for v in plan_buffers(graph, chip).readers if not graph.values[v].is_computed}
    held = {v for v in held if _read_bytes(graph, v, chip) == _buffer_bytes(graph, (v,), chip)}
    made = {v for v in graph.returned if (op := graph.producer(v)) and CLASSES.get(op.name) is not Class.UPDATE}
    return frozenset(held | made) if _buffer_bytes(graph, held | made, chip) <= chip.cache_bytes else frozenset()


@cached_analysis
def _read_bytes(graph: Graph, value: int, chip: Chip) -> int:
    """Bytes that a kernel reads of a value: of one that is only sliced, an equal share of the slices."""
    # What a loop hands on unchanged, such as a stack whose rows it reads, stays where it is.
    nbytes, users = _buffer_bytes(graph, (value,), chip), [graph.ops[user] for user in readers_in(graph, value)]
    if not all(user.name in SLICES for user in users):
        return nbytes
    sliced = _buffer_bytes(graph, (user.results[0] for user in users), chip)
    return min(nbytes, sliced // len(plan_buffers(graph, chip).readers[value]))


def _reduced_seconds(graph: Graph, op: Op, chip: Chip) -> float:
    """The overhead of a reduction: for each of its results, and for each element of some sums of products.

    A reduction other than a sum over dimensions of one element has no results of its own: compilers make a reshape of
    it. XLA:CPU may make a dot of a sum.
    """
    if CLASSES.get(op.name) is not Class.REDUCE:
        return 0.0
    elements, results = (math.prod(graph.values[v].shape) for v in (op.operands[0], op.results[0]))
    slow = chip.unit_sum_seconds and sums_products_in_units(graph, op)
    is_reshape = results == elements and not adds(op.blocks[0])
    return chip.reduced_seconds * results * (not is_reshape) + chip.unit_sum_seconds * elements * bool(slow)


def vector_seconds(flops: float, nbytes: float, chip: Chip) -> float:
    """Seconds of an elementwise kernel or reduction of so many FLOPs that reads and writes so many bytes."""
    return max(flops / vector_rate(chip), nbytes / chip.bytes_per_second)


def overhead_seconds(graph: Graph, op: Op, chip: Chip) -> float:
    """Seconds that starting the iterations of an op's loops takes, however little is done in each."""
    if CLASSES.get(op.name) is not Class.CONTROL:
        return 0.0
    inner = max(sum(overhead_seconds(block, o, chip) for o in block.ops) for block in op.blocks)
    return likely_trips(graph, op) * (chip.step_seconds + inner) if op.name == "stablehlo.while" else inner


def _control_seconds(graph: Graph, op: Op, chip: Chip) -> float:
    if op.name == "stablehlo.while":
        trips = likely_trips(graph, op)
        return trips * chip.step_seconds + _in_loop(fused_seconds(op.blocks[1], chip), op.blocks[1], trips)
    return max(graph_seconds(block, chip) for block in op.blocks)


def _convolution_flops(graph: Graph, op: Op) -> float:
    """2 x output elements x kernel elements per output feature; grouped features are counted once."""
    kernel = graph.values[op.operands[1]].shape
    numbers = stablehlo.ConvDimensionNumbers(graph.handles[op.index].attributes["dimension_numbers"])
    features = max(1, kernel[numbers.kernel_output_feature_dimension])
    return 2.0 * math.prod(graph.values[op.results[0]].shape) * math.prod(kernel) / features


def _sort_flops(shape: tuple[int, ...], dimension: int) -> float:
    return math.prod(shape) * max(1.0, math.log2(max(2, shape[dimension] if shape else 2)))


@dataclasses.dataclass(frozen=True)
class Kernel:
    """What a kernel that a rewrite adds costs.

    Attributes:
        flops: of all its ops.
        nbytes: read and written.
        matmul: the matmul that it is, if it is one.
        moves: an op of the program that moves the same bytes: then they are counted as the chip lays that op's values
            out, and `nbytes` is not used.
    """

    flops: float
    nbytes: float
    matmul: Matmul | None = None
    moves: Op | None = None

    def seconds(self, chip: Chip) -> float:
        """Its time on a chip; one that moves nothing is a part of another."""
        launch = chip.launch_seconds if self.nbytes else 0.0
        if self.matmul is None:
            return launch + vector_seconds(self.flops, self.nbytes, chip)
        arithmetic = self.flops / chip.matmul_rate(self.matmul.itemsize) * self.matmul.packing_factor(chip)
        return launch + max(arithmetic, self.nbytes / chip.bytes_per_second)
