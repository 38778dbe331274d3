"""Reads the attributes of ops: arrays of integers, dimension numbers, what custom calls do.

Analyses and matchers call it; each attribute is read through the MLIR bindings once.
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import chlo, ir, stablehlo
from stablehlo_mem.ir.graph import Graph, Op


@cached_analysis
def integers(graph: Graph, op: Op, attribute: str) -> tuple[int, ...]:
    """An i64 array attribute of an op."""
    return tuple(ir.DenseI64ArrayAttr(graph.handles[op.index].attributes[attribute]))


def comparison_direction(handle: Any) -> str:
    """What a compare asks of its operands: EQ, NE, LT, LE, GT or GE."""
    return stablehlo.ComparisonDirectionAttr(handle.attributes["comparison_direction"]).value


def window_padding(handle: Any) -> list[tuple[int, int]]:
    """The padding before and after each dimension that an op slides windows over; none if it has no such attribute."""
    if "padding" not in handle.attributes:
        return []
    padding = ir.DenseIntElementsAttr(handle.attributes["padding"])
    numbers = [padding[i] for i in range(len(padding))]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


@dataclasses.dataclass(frozen=True, slots=True)
class DotNumbers:
    """The dimension numbers of a dot_general, named as in StableHLO."""

    lhs_batching_dimensions: tuple[int, ...]
    rhs_batching_dimensions: tuple[int, ...]
    lhs_contracting_dimensions: tuple[int, ...]
    rhs_contracting_dimensions: tuple[int, ...]

    @property
    def batching(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The batching dimensions of both operands."""
        return self.lhs_batching_dimensions, self.rhs_batching_dimensions

    @property
    def contracting(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The contracting dimensions of both operands."""
        return self.lhs_contracting_dimensions, self.rhs_contracting_dimensions

    @staticmethod
    def of(attribute: Any) -> DotNumbers:
        """Those of an MLIR attribute."""
        numbers: Any = stablehlo.DotDimensionNumbers(attribute)
        return DotNumbers(*(tuple(getattr(numbers, field.name)) for field in dataclasses.fields(DotNumbers)))


@cached_analysis
def dot_numbers(graph: Graph, op: Op) -> DotNumbers:
    """The dimension numbers of a dot_general."""
    return _numbers_of(graph, graph.handles[op.index].attributes["dot_dimension_numbers"])


@cached_analysis
def _numbers_of(graph: Graph, attribute: Any) -> DotNumbers:
    """Many dots of a graph have the same attribute, which MLIR has once."""
    del graph
    return DotNumbers.of(attribute)


@cached_analysis
def dot_sizes(graph: Graph, op: Op) -> tuple[int, int, int, int]:
    """(rows, columns, batch, contraction) of a dot_general, in elements."""
    numbers = dot_numbers(graph, op)
    left, right = (graph.values[v] for v in op.operands[:2])
    batch = math.prod(left.shape[d] for d in numbers.lhs_batching_dimensions)
    depth = math.prod(left.shape[d] for d in numbers.lhs_contracting_dimensions)
    rows = math.prod(left.shape) // max(1, batch * depth)
    columns = math.prod(right.shape) // max(1, batch * depth)
    return rows, columns, batch, depth


@dataclasses.dataclass(frozen=True, slots=True)
class RaggedDot:
    """A `chlo.ragged_dot`, a matmul for each group of rows.

    Attributes:
        groups: their number.
        grouped: the operands whose rows are in groups.
        flops: multiplications and additions, each row in one group.
    """

    groups: int
    grouped: tuple[int, ...]
    flops: float


def ragged_numbers(handle: Any) -> Any:
    """The dimension numbers of a `chlo.ragged_dot`."""
    return chlo.RaggedDotDimensionNumbers(handle.attributes["ragged_dot_dimension_numbers"])


@cached_analysis
def ragged_dot(graph: Graph, op: Op) -> RaggedDot:
    """What a `chlo.ragged_dot` computes."""
    numbers = ragged_numbers(graph.handles[op.index])
    left, _, sizes = (graph.values[v].shape for v in op.operands)
    contracted = list(numbers.lhs_contracting_dimensions)
    sums_rows = numbers.lhs_ragged_dimensions[0] in contracted
    depth, groups = math.prod(left[d] for d in contracted), sizes[-1]
    count = math.prod(graph.values[op.results[0]].shape) // (groups if sums_rows else 1)
    return RaggedDot(groups, op.operands[: 1 + sums_rows], 2.0 * count * depth)


@cached_analysis
def dot_operands_transposed(graph: Graph, op: Op) -> tuple[bool, bool]:
    """Whether each operand of a dot_general lies transposed, as in aᵀ b and a bᵀ."""
    numbers = dot_numbers(graph, op)
    left, right = (len(graph.values[v].shape) for v in op.operands[:2])
    rows = {*range(left)} - {*numbers.lhs_batching_dimensions, *numbers.lhs_contracting_dimensions}
    columns = {*range(right)} - {*numbers.rhs_batching_dimensions, *numbers.rhs_contracting_dimensions}
    return (
        max(rows, default=-1) > max(numbers.lhs_contracting_dimensions, default=left),
        max(columns, default=right) < max(numbers.rhs_contracting_dimensions, default=-1),
    )


@cached_analysis
def dot_labels(graph: Graph, op: Op) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]:
    """The labels of a dot_general's left and right operand, the size of each label, and how many its result has.

    Those of the result come first, in the order of its dimensions.
    """
    numbers = dot_numbers(graph, op)
    shapes = [graph.values[v].shape for v in op.operands]
    batch = list(zip(*numbers.batching, strict=True))
    summed = list(zip(*numbers.contracting, strict=True))
    taken = [{pair[side] for pair in (*batch, *summed)} for side in (0, 1)]
    # For each label its dimensions: of the left (0) or right (1) operand, or of both.
    dims: list[list[tuple[int, int]]] = [[(0, left), (1, right)] for left, right in batch]
    dims += [[(side, d)] for side in (0, 1) for d in range(len(shapes[side])) if d not in taken[side]]
    rank = len(dims)
    dims += [[(0, left), (1, right)] for left, right in summed]
    label_of = {dim: label for label, of_label in enumerate(dims) for dim in of_label}
    left_labels, right_labels = (tuple(label_of[side, d] for d in range(len(shapes[side]))) for side in (0, 1))
    return left_labels, right_labels, tuple(shapes[side][d] for (side, d), *_ in dims), rank


def is_grouped(graph: Graph, convolution: Op) -> bool:
    """Whether the features of a convolution, or its batch, come in groups that do not mix."""
    attributes = graph.handles[convolution.index].attributes
    names = ("feature_group_count", "batch_group_count")
    return any(ir.IntegerAttr(attributes[name]).value > 1 for name in names if name in attributes)


def window_elements(graph: Graph, convolution: Op) -> int:
    """The elements of a convolution's window: those of its kernel for one feature in and one out."""
    kernel = graph.values[convolution.operands[1]].shape
    numbers = convolution_numbers(graph, convolution)
    return math.prod(kernel[d] for d in numbers.kernel_spatial_dimensions)


_FACTORISATIONS = {
    "potrf": 1 / 3,
    **dict.fromkeys(("getrf", "LuDecomposition"), 2 / 3),
    "trsm": 1,
    **dict.fromkeys(("geqrf", "orgqr", "ungqr", "Qr", "ProductOfElementaryHouseholderReflectors", "sytrd"), 4 / 3),
    **dict.fromkeys(("syev", "heev", "Eigh"), 9),
    "gehrd": 10 / 3,
    **dict.fromkeys(("gesdd", "gesvd"), 21),
    **dict.fromkeys(("geev", "gees"), 25),
}
"""FLOPs of the libraries' factorisations as multiples of n³, by what their custom calls' names contain: Golub and Van
Loan, Matrix Computations; those that iterate as they say is usual, vectors included."""


def factorisation_flops(graph: Graph, op: Op) -> float:
    """FLOPs of a custom call that factorises matrices, or solves triangular systems, by name; 0 for others."""
    attributes = graph.handles[op.index].attributes
    if op.name != "stablehlo.custom_call" or "call_target_name" not in attributes:
        return 0.0
    name = ir.StringAttr(attributes["call_target_name"]).value
    routine = next((routine for routine in _FACTORISATIONS if routine in name), None)
    shapes = [graph.values[v].shape for v in op.operands]
    if routine is None or len(shapes[0]) < 2:
        return 0.0
    # A triangular solve does as much for each element of its right-hand sides.
    return _FACTORISATIONS[routine] * math.prod(shapes[routine == "trsm"]) * min(shapes[0][-2:])


ATTENTION_MATMULS = {"forward": 2, "backward": 5}
"""Matmuls of all pairs of queries and keys times the depth: Q Kᵀ and P V; and again Q Kᵀ, dO Vᵀ, and the three
gradients."""
_CUDNN_ATTENTION = "__cudnn$fmha"


def convolution_numbers(graph: Graph, op: Op) -> Any:
    """The dimension numbers of a convolution."""
    return stablehlo.ConvDimensionNumbers(graph.handles[op.index].attributes["dimension_numbers"])


@cached_analysis
def asks_full_precision(graph: Graph, op: Op) -> bool:
    """Whether a dot or convolution asks for the highest precision of an operand."""
    attributes = graph.handles[op.index].attributes
    return "precision_config" in attributes and "HIGHEST" in str(attributes["precision_config"])


def stated_flops(graph: Graph, op: Op) -> float:
    """FLOPs of a custom call by its own account, 0 without.

    Pallas writes a `cost_estimate` to its `backend_config`, cuDNN's attention the shape of the scores.
    """
    config = _backend_config(graph, op)
    if config and attention_direction(graph, op):
        return _attention_flops(graph, op, config)
    return _estimated(config, "flops")


def stated_transcendentals(graph: Graph, op: Op) -> float:
    """Exponentials and the like of a custom call by its own account, 0 without: see `stated_flops`."""
    return _estimated(_backend_config(graph, op), "transcendentals")


def _backend_config(graph: Graph, op: Op) -> str:
    """The text that a custom call has for its backend, "" if it has none."""
    attributes = graph.handles[op.index].attributes
    if "backend_config" not in attributes or not isinstance(attributes["backend_config"], ir.StringAttr):
        return ""
    return attributes["backend_config"].value


def _estimated(config: str, quantity: str) -> float:
    """A quantity of a Pallas kernel's `cost_estimate`."""
    found = re.search(rf'"cost_estimate"\s*:\s*{{[^{{}}]*"{quantity}"\s*:\s*(\d+)', config)
    return float(found[1]) if found else 0.0


def attention_direction(graph: Graph, op: Op) -> str:
    """Whether a custom call is the "forward" or the "backward" kernel of cuDNN's attention, "" if it is neither."""
    if op.name != "stablehlo.custom_call":
        return ""
    target = ir.StringAttr(graph.handles[op.index].attributes["call_target_name"]).value
    if not target.startswith(_CUDNN_ATTENTION):
        return ""
    return "backward" if "Backward" in target else "forward"


def _attention_flops(graph: Graph, op: Op, config: str) -> float:
    """Those of all pairs: what a causal mask saves depends on the tiles."""
    shape = re.search(r'"intermediate_tensor_shape"[^\[]*"dimensions"\s*:\s*\[([^\]]*)\]', config)
    if shape is None:
        return 0.0
    pairs = math.prod(int(size) for size in re.findall(r"\d+", shape[1]))
    return 2.0 * ATTENTION_MATMULS[attention_direction(graph, op)] * pairs * graph.values[op.operands[0]].shape[-1]
