"""How each op takes part in fusion, in one table, and facts of single ops and values.

The same for all compilers; the analyses, the compilers' models and many passes ask.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import Graph, Op, reachable
from stablehlo_mem.ir.op_attributes import convolution_numbers, dot_numbers, integers, window_padding


class Class(enum.Enum):
    """How an op takes part in fusion."""

    VIEW = enum.auto()  # its operand's buffer under another type
    GENERATE = enum.auto()  # reads no data: computed again wherever it is used
    CHEAP = enum.auto()  # elementwise: computed again in every kernel that uses it
    EXPENSIVE = enum.auto()  # elementwise: may be materialised when several kernels use it
    MOVE = enum.auto()  # moves elements: fused like CHEAP, but never written over its operand
    REDUCE = enum.auto()
    DOT = enum.auto()
    UPDATE = enum.auto()  # writes each result over the operand in the same place
    CONTROL = enum.auto()  # has blocks of its own
    RETURN = enum.auto()
    OPAQUE = enum.auto()  # a kernel of its own: operands and results in memory

    __hash__ = object.__hash__  # Enum's is a Python function, which every test of a set of classes would call


def _named(dialect: str, names: str, kind: Class) -> dict[str, Class]:
    return {f"{dialect}.{name}": kind for name in names.split()}


CLASSES: dict[str, Class] = {
    **_named("stablehlo", "reshape optimization_barrier bitcast_convert get_tuple_element", Class.VIEW),
    **_named("sdy", "sharding_constraint", Class.VIEW),
    **_named("stablehlo", "constant iota create_token after_all partition_id replica_id", Class.GENERATE),
    **_named("chlo", "constant", Class.GENERATE),
    **_named("stablehlo", "abs add and ceil clamp compare complex convert count_leading_zeros floor imag", Class.CHEAP),
    **_named("stablehlo", "is_finite map maximum minimum multiply negate not or popcnt real select sign", Class.CHEAP),
    **_named("stablehlo", "reduce_precision round_nearest_afz round_nearest_even subtract xor", Class.CHEAP),
    **_named("stablehlo", "shift_left shift_right_arithmetic shift_right_logical", Class.CHEAP),
    **_named("stablehlo", "atan2 cbrt cosine divide exponential exponential_minus_one log", Class.EXPENSIVE),
    **_named("stablehlo", "log_plus_one logistic power remainder rsqrt sine sqrt tan tanh", Class.EXPENSIVE),
    **_named("chlo", "acos acosh asin asinh atan atanh bessel_i1e cosh digamma erf erf_inv erfc", Class.EXPENSIVE),
    **_named("chlo", "lgamma next_after polygamma sinh square tan zeta", Class.EXPENSIVE),
    **_named("stablehlo", "broadcast_in_dim concatenate dynamic_slice gather pad reduce_window", Class.MOVE),
    **_named("stablehlo", "reverse slice transpose", Class.MOVE),
    **_named("stablehlo", "reduce", Class.REDUCE),
    **_named("stablehlo", "dot_general", Class.DOT),
    **_named("stablehlo", "dynamic_update_slice scatter sort", Class.UPDATE),
    **_named("stablehlo", "while case if", Class.CONTROL),
    **_named("sdy", "manual_computation", Class.CONTROL),
    **_named("stablehlo", "return", Class.RETURN),
    **_named("func", "return", Class.RETURN),
    **_named("sdy", "return", Class.RETURN),
}
"""Any op that is not named here is OPAQUE."""

ELEMENTWISE = frozenset({Class.CHEAP, Class.EXPENSIVE})
FUSIBLE = ELEMENTWISE | {Class.MOVE}
FUSED = FUSIBLE | {Class.VIEW}
"""Classes of ops of whose results kernels that read them compute what they need."""
FUSED_OR_GENERATED = FUSED | {Class.GENERATE}
SCAN_WINDOW = 16
"""Elements of the windows into which a running sum is split: `reduce_window_rewriter.cc`."""
SHIFTS = frozenset({"stablehlo.concatenate", "stablehlo.pad", "stablehlo.reverse", "stablehlo.slice"})
"""Ops whose result has another element at each place than an operand: a kernel that reads both computes it twice."""
SLICES = frozenset({"stablehlo.slice", "stablehlo.dynamic_slice", "stablehlo.gather"})
"""Ops that read of their first operand only the elements of their result."""


def classify(graph: Graph, op: Op) -> Class:
    """The class of an op. A broadcast that only adds dimensions of one element is a view."""
    if op.name == "stablehlo.broadcast_in_dim" and not _broadcast_enlarges(graph, op):
        return Class.VIEW
    return CLASSES.get(op.name, Class.OPAQUE)


def multiplies(graph: Graph, op: Op) -> bool:
    """Whether an op is a matmul: a dot or a convolution."""
    return classify(graph, op) is Class.DOT or op.name == "stablehlo.convolution"


def enlarges(graph: Graph, op: Op) -> bool:
    """Whether the first result of an op has more elements than its first operand."""
    return math.prod(graph.values[op.results[0]].shape) > math.prod(graph.values[op.operands[0]].shape)


@cached_analysis
def _broadcast_enlarges(graph: Graph, broadcast: Op) -> bool:
    return enlarges(graph, broadcast)


def is_nested(graph: Graph) -> bool:
    """Whether a block is in an op's region, not a function's body."""
    return graph.ops[-1].name == "stablehlo.return"


@cached_analysis
def is_view(graph: Graph, op: Op) -> bool:
    """Whether an op's results have the buffers of its operands: a view, or the transpose of a dot's result."""
    return classify(graph, op) is Class.VIEW or transposed_dot(graph, op) is not None


def transposed_dot(graph: Graph, op: Op) -> Op | None:
    """The dot before a transpose, if the transpose is its only user and compilers merge the two by swapping operands.

    None for any other op. JAX writes the gradient of every weight matrix so. A dot with several free dimensions an
    operand XLA:CPU does not merge.
    """
    dot = graph.producer(op.operands[0]) if op.name == "stablehlo.transpose" else None
    if dot is None or CLASSES.get(dot.name) is not Class.DOT or len(graph.users[dot.results[0]]) > 1:
        return None
    batch = len(graph.values[dot.results[0]].shape) - 2
    swapped = (*range(batch), batch + 1, batch)
    is_swap = batch == len(dot_numbers(graph, dot).lhs_batching_dimensions) and (
        integers(graph, op, "permutation") == swapped
    )
    return dot if is_swap else None


def buffer_root(graph: Graph, value: int) -> int:
    """The value whose buffer a view shows."""
    producer = graph.producer(value)
    while producer is not None and is_view(graph, producer):
        value = producer.operands[min(graph.values[value].result, len(producer.operands) - 1)]
        producer = graph.producer(value)
    return value


def computed_from(graph: Graph, values: Iterable[int], classes: AbstractSet[Class]) -> dict[int, None]:
    """Some values, and all that they are computed from by ops of some classes alone."""

    def operands(value: int) -> tuple[int, ...]:
        op = graph.producer(value)
        return op.operands if op is not None and classify(graph, op) in classes else ()

    return reachable(values, operands)


def data_source(graph: Graph, value: int) -> int:
    """The value that a chain of views and element moves starts from; a bitcast starts a chain of its own."""
    moves = (Class.VIEW, Class.MOVE)
    return graph.under(value, lambda op: classify(graph, op) in moves and op.name != "stablehlo.bitcast_convert")


def window_size(graph: Graph, op: Op) -> int:
    """Elements of each window of a reduce_window, as it is compiled: a running sum is split."""
    window = math.prod(integers(graph, op, "window_dimensions"))
    return SCAN_WINDOW if is_split_scan(graph, op) else window


def is_split_scan(graph: Graph, op: Op) -> bool:
    """Whether a reduce_window is a long running sum, maximum and the like: a window as long as its dimension."""
    lengths, sizes = graph.values[op.operands[0]].shape, integers(graph, op, "window_dimensions")
    padding = window_padding(graph.handles[op.index])
    windows = zip(lengths, sizes, padding, strict=False)
    return any(length == size > SCAN_WINDOW and size - 1 in around for length, size, around in windows)


def selection_index_bytes(graph: Graph, value: int) -> int:
    """Bytes of the i32 indices of the operand of a select_and_scatter, or of its source, one for a dimension.

    Compilers make of the op a reduce_window over elements and their indices, which writes those of the source, and a
    scatter: `select_and_scatter_expander.cc`.
    """
    shape = graph.values[value].shape
    return 4 * len(shape) * math.prod(shape)


def reduced_length(graph: Graph, op: Op) -> int:
    """Elements along the longest dimension that a reduce takes away."""
    shape = graph.values[op.operands[0]].shape
    return max((shape[d] for d in integers(graph, op, "dimensions")), default=1)


def transposed_operands(graph: Graph, dot: Op) -> list[int]:
    """A dot's operands whose batch dimensions do not come first: compilers want them transposed."""
    batches = dot_numbers(graph, dot).batching
    return [v for v, dims in zip(dot.operands, batches, strict=True) if dims != tuple(range(len(dims)))]


def features_last(graph: Graph, convolution: Op) -> bool:
    """Whether the features are the minor dimension of a convolution's input."""
    numbers = convolution_numbers(graph, convolution)
    return numbers.input_feature_dimension == len(graph.values[convolution.operands[0]].shape) - 1
