"""FLOPs, bytes and arithmetic time of one op by itself. `kernel_traffic` and `cost_model` build on it."""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
from collections.abc import Iterable

from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.distribution import exchanged_bytes, sharing_devices
from stablehlo_mem.analysis.fusion_classes import CLASSES, ELEMENTWISE, SLICES, Class, multiplies
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import Graph, Op, dtype_bytes
from stablehlo_mem.ir.op_attributes import (
    asks_full_precision,
    convolution_numbers,
    dot_operands_transposed,
    dot_sizes,
    factorisation_flops,
    ragged_dot,
    stated_flops,
    stated_transcendentals,
)
from stablehlo_mem.targets.chips import Chip

ELEMENT_FLOPS: dict[str, int] = {
    **dict.fromkeys(("divide", "sqrt", "rsqrt", "remainder", "cbrt"), 4),
    **dict.fromkeys(("exponential", "exponential_minus_one", "log", "log_plus_one", "logistic", "tanh", "erf"), 10),
    **dict.fromkeys(("sine", "cosine", "tan", "atan2", "power", "erf_inv", "erfc", "lgamma", "digamma"), 20),
}
"""FLOPs per element of the elementwise ops that take more than one: rough figures, good enough beside memory."""


VECTOR_SHARE = 0.125
"""Rate of elementwise arithmetic as a share of the matmul rate, for chips that do not say it: a rough figure."""


MOVES_NOTHING = (Class.VIEW, Class.GENERATE, Class.RETURN, Class.CONTROL)


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
        of_patches: whether the left operand is the patches of a convolution's input, which are packed however few
            features the result has: on CPU one of 16 features takes no longer than one of 2 (measured).
    """

    rows: float
    columns: float
    itemsize: float = 4
    transposed: tuple[bool, bool] = (False, False)
    of_patches: bool = False

    def packing_factor(self, chip: Chip) -> float:
        """How many times longer it takes than its FLOPs alone.

        Each operand is packed once: the left one costs the less, the more columns use it, and the right one likewise.
        """
        if self.of_patches:
            return 1 + chip.packed_rows / max(1, self.columns)
        left = chip.packed_rows + self.transposed[0] * chip.transposed_rows
        right = chip.packed_rows + all(self.transposed) * chip.transposed_rows
        return 1 + min(_MOST_PACKING, left / max(1, self.columns) + right / max(1, self.rows))

    def swapped(self) -> Matmul:
        """The matmul with swapped operands, whose result is transposed."""
        return Matmul(self.columns, self.rows, self.itemsize, (not self.transposed[1], not self.transposed[0]))


def matmul_of(graph: Graph, dot: Op) -> Matmul:
    """The matmul that a dot_general is, or a convolution of patches with a kernel."""
    if dot.name == "stablehlo.convolution":
        features = graph.values[dot.operands[1]].shape[convolution_numbers(graph, dot).kernel_output_feature_dimension]
        rows = math.prod(graph.values[dot.results[0]].shape) / max(1, features)
        return Matmul(rows, features, _operand_itemsize(graph, dot), of_patches=True)
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
    if op.name == "chlo.ragged_dot":
        return ragged_dot(graph, op).flops
    if op.name in ("stablehlo.sort", "stablehlo.fft"):
        # A Fourier transform works along the last dimension.
        attributes = graph.handles[op.index].attributes
        dimension = ir.IntegerAttr(attributes["dimension"]).value if op.name == "stablehlo.sort" else -1
        return sum(_sort_flops(graph.values[v].shape, dimension) for v in op.operands)
    if op.name in ("stablehlo.cholesky", "stablehlo.triangular_solve"):
        return math.prod(graph.values[op.results[0]].shape) * graph.values[op.operands[0]].shape[-1]
    if op.name == "stablehlo.custom_call":
        return stated_flops(graph, op) or factorisation_flops(graph, op)
    if kind is Class.REDUCE or op.name in ("stablehlo.reduce_window", "chlo.top_k"):
        return sum(math.prod(graph.values[v].shape) for v in op.operands)
    if kind in ELEMENTWISE:
        return math.prod(graph.values[op.results[0]].shape) * ELEMENT_FLOPS.get(op.name.partition(".")[2], 1)
    return 0.0


def _convolution_flops(graph: Graph, op: Op) -> float:
    """2 x output elements x kernel elements per output feature; grouped features are counted once."""
    kernel = graph.values[op.operands[1]].shape
    numbers = convolution_numbers(graph, op)
    features = max(1, kernel[numbers.kernel_output_feature_dimension])
    return 2.0 * math.prod(graph.values[op.results[0]].shape) * math.prod(kernel) / features


def _sort_flops(shape: tuple[int, ...], dimension: int) -> float:
    return math.prod(shape) * max(1.0, math.log2(max(2, shape[dimension] if shape else 2)))


def op_bytes(graph: Graph, op: Op, chip: Chip) -> int:
    """Bytes an op reads and writes when nothing is fused."""
    kind = CLASSES.get(op.name, Class.OPAQUE)
    if kind in MOVES_NOTHING:
        return 0
    if kind is Class.UPDATE:
        return 2 * buffer_bytes(graph, op.operands[1:], chip)
    results = buffer_bytes(graph, op.results, chip)
    return 2 * results if op.name in SLICES else results + buffer_bytes(graph, set(op.operands), chip)


def buffer_bytes(graph: Graph, values: Iterable[int], chip: Chip) -> int:
    """Bytes of the buffers of some values, padding included."""
    model = compiler_model(chip)
    return sum(model.stored_bytes(graph, v) for v in values)


def exchange_seconds(graph: Graph, op: Op, chip: Chip) -> float:
    """Seconds of what devices exchange for one op."""
    return received_seconds(exchanged_bytes(graph, op), chip)


def received_seconds(nbytes: float, chip: Chip) -> float:
    """Seconds in which a device receives so many bytes from others."""
    return nbytes / chip.link_bytes_per_second if chip.link_bytes_per_second else 0.0


@cached_analysis
def arithmetic_seconds(graph: Graph, op: Op, chip: Chip) -> float:
    """Seconds of one op if memory were infinitely fast."""
    serial = compiler_model(chip).serial_seconds(graph, op)
    if serial:
        return serial
    seconds = flop_seconds(graph, op, chip)
    if multiplies(graph, op):
        return seconds * matmul_of(graph, op).packing_factor(chip)
    return seconds * imbalance_factor(_parallel_rows(graph.values[op.results[0]].shape, chip), chip) if seconds else 0.0


def kernel_arithmetic_seconds(graph: Graph, ops: Iterable[Op], chip: Chip) -> float:
    """Seconds of the arithmetic of one kernel, where matrix units and lanes work side by side."""
    busy = {False: 0.0, True: 0.0}
    for op in ops:
        busy[multiplies(graph, op)] += arithmetic_seconds(graph, op, chip)
    return max(busy.values())


def flop_seconds(graph: Graph, op: Op, chip: Chip) -> float:
    """Seconds of an op's FLOPs at the chip's rate, without packing and without imbalance between cores.

    Custom calls that state their FLOPs are kernels made for the matrix units; their exponentials run beside these.
    """
    flops = op_flops(graph, op)
    if not flops:
        return 0.0
    if op.name == "chlo.ragged_dot":
        return compiler_model(chip).ragged_repeats(graph, op) * flops / _matmul_rate(graph, op, chip)
    is_dense = multiplies(graph, op) or stated_flops(graph, op) > 0
    seconds = flops / (_matmul_rate(graph, op, chip) if is_dense else vector_rate(chip))
    exponentials = ELEMENT_FLOPS["exponential"] * stated_transcendentals(graph, op)
    return max(seconds, exponentials / vector_rate(chip))


def _matmul_rate(graph: Graph, op: Op, chip: Chip) -> float:
    """The rate of a dot or convolution: that of float32 in full where it asks for that precision."""
    values = op.results if compiler_model(chip).widens_operands(graph, op) else op.operands[:2]
    itemsize = max(dtype_bytes(graph.values[v].dtype) for v in values)
    return chip.flops_per_second if itemsize > 2 and asks_full_precision(graph, op) else chip.matmul_rate(itemsize)


def vector_rate(chip: Chip) -> float:
    """Elementwise operations per second."""
    return chip.vector_flops_per_second or chip.flops_per_second * VECTOR_SHARE


def vector_seconds(flops: float, nbytes: float, chip: Chip) -> float:
    """Seconds of an elementwise kernel or reduction of so many FLOPs that reads and writes so many bytes."""
    return max(flops / vector_rate(chip), nbytes / chip.bytes_per_second)


def imbalance_factor(rows: float, chip: Chip) -> float:
    """How many times longer a kernel takes because some cores get one row less than others."""
    return math.ceil(rows / chip.cores) * chip.cores / rows if rows > 1 else 1.0


def _parallel_rows(shape: tuple[int, ...], chip: Chip) -> int:
    """Rows of a kernel's result that cores share out: those of the fewest outer dimensions that give each core one."""
    counts = itertools.accumulate(shape, operator.mul)
    return next((rows for rows in counts if rows >= chip.cores), math.prod(shape))
