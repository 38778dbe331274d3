"""Rules of gather and scatter: split along dimensions that they copy, and along those that they index.

Along an indexed dimension a gather takes from each chunk the elements that lie in it, and a scatter writes to each
chunk the updates that belong there. Along its updates a scatter writes chunk after chunk into the same carry.
`registry` joins the rules.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.sharding_rules.factor_rule import FactorRule, SplitOp, refines_shardy
from stablehlo_mem.sharding_rules.op_rule import EmitContext, OpRule, Reduction, clone_on_chunk, clone_with_sizes
from stablehlo_mem.sharding_rules.reductions import in_order, is_sum, regroups_floats

_PLACED = "updates are placed by index along it"
_UNINDEXED = "no index goes with it: its beginning is meant"
_WINDOWS = "windows of several elements begin where an index says: one may lie in two chunks"
_UNSHIFTED = "its indices cannot be counted from a chunk's start in any integer type"
_UNMASKED = "its indices have no number that is out of bounds"


def _unaddressed(indices: Any, *, indexed: bool, window: int) -> str | None:
    """Why indices along a dimension cannot be counted from a chunk's start, None if they can."""
    element = indices.type.element_type
    if not indexed:
        return _UNINDEXED
    if window != 1:
        return _WINDOWS
    return None if isinstance(element, ir.IntegerType) and _signed_width(element) <= 64 else _UNSHIFTED


def _signed_width(element: Any) -> int:
    return max(32, element.width * (2 if element.is_unsigned else 1))


@refines_shardy
def _scatter_rule(op: Any, rule: FactorRule) -> FactorRule:
    """Factors of both inputs and updates pass through, so do indexed ones; those of updates alone are reduced."""
    inputs = len(op.results)
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    factors = [{f for dims in operand for f in dims} for operand in rule.operands]
    shared = set.intersection(*factors[:inputs], *factors[inputs + 1 :])
    reasons: dict[int, str | None] = dict.fromkeys(range(len(rule.sizes)), _PLACED)
    reasons |= {f: rule.reason(f) for f in shared}
    for dimension, window in enumerate(_windows(op, numbers)):
        indexed = dimension in numbers.scattered_dims_to_operand_dims
        reason = _unaddressed(op.operands[inputs], indexed=indexed, window=window)
        reasons |= dict.fromkeys(set(rule.operands[0][dimension]) - shared, reason)
    reasons |= dict.fromkeys(rule.reduction & factors[inputs], None if _is_maskable(op, numbers) else _UNMASKED)
    blocked = tuple((f, reason) for f, reason in reasons.items() if reason)
    return in_order(op, dataclasses.replace(rule, blocked=blocked))


def _windows(op: Any, numbers: Any) -> list[int]:
    """How many elements an update has along each dimension of the input."""
    updates = op.operands[len(op.results) + 1].type.shape
    single = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
    others = iter(numbers.update_window_dims)
    return [1 if d in single else updates[next(others)] for d in range(len(op.results[0].type.shape))]


def _is_maskable(op: Any, numbers: Any) -> bool:
    """Whether the index of `_outside` is out of bounds, and in order at the head of sorted ones."""
    element = op.operands[len(op.results)].type.element_type
    if not isinstance(element, ir.IntegerType) or not element.is_unsigned:
        return isinstance(element, ir.IntegerType)
    extents = [op.results[0].type.shape[d] for d in numbers.scattered_dims_to_operand_dims]
    is_sorted = "indices_are_sorted" in op.attributes and op.attributes["indices_are_sorted"].value
    return not is_sorted and min(extents, default=_outside_index(element) + 1) <= _outside_index(element)


def _outside_index(element: Any) -> int:
    """The least signed integer, the greatest unsigned one the bindings take."""
    return 2 ** min(63, element.width) - 1 if element.is_unsigned else -(2 ** (element.width - 1))


def _emit_scatter(context: EmitContext) -> list[Any]:
    """Along the updates: the indices and updates of the chunk, which `_SCATTER` writes into the carries."""
    inputs = len(context.op.results)
    if context.split_op.reducing:
        return list(context.operands[inputs:])
    return _write_to_chunk(context) if _is_written_by_index(context.split_op) else clone_on_chunk(context)


def _is_written_by_index(split_op: SplitOp) -> bool:
    """Whether all updates of a scatter go to a chunk of its result, by indices counted from the chunk's start."""
    return not split_op.reducing and split_op.operand_dims[len(split_op.result_dims) + 1] is None


def _write_to_chunk(context: EmitContext) -> list[Any]:
    """The scatter of all updates by shifted indices: those of other chunks are out of bounds, and dropped.

    Shifting keeps different indices different and sorted ones sorted. For that the least indices are raised: they stay
    out of bounds, and would otherwise wrap around. XLA does not reliably drop a single update that is out of bounds: it
    makes it a dynamic slice, whose start it folds (docs/xla_bugs.md). So a single update is clamped into the chunk, and
    a select keeps the old values where it belongs elsewhere.
    """
    inputs, dimension = len(context.op.results), context.dimension
    numbers = stablehlo.ScatterDimensionNumbers(context.op.attributes["scatter_dimension_numbers"])
    component = list(numbers.scattered_dims_to_operand_dims).index(dimension)
    indices = _signed(context.operands[inputs])
    extent = context.op.results[0].type.shape[dimension]
    element = indices.type.element_type
    least = builders.splat(builders.tensor((), element), extent + _outside_index(element))
    shifted = _shifted(context, stablehlo.maximum(indices, builders.broadcast(least, indices.type)), extent)
    single = math.prod(size for d, size in enumerate(indices.type.shape) if d != numbers.index_vector_dim) == 1
    new_indices = _inside(context, shifted, dimension) if single else shifted
    moved = _replace_component(indices, new_indices, numbers.index_vector_dim, component)
    operands = [*context.operands[:inputs], moved, *context.operands[inputs + 1 :]]
    results = builders.clone_with(context.op, operands, context.result_shapes)
    if not single:
        return results
    present = _component(_in_chunk(context, shifted, dimension), numbers.index_vector_dim, component)
    pairs = zip(results, context.operands, strict=False)
    return [stablehlo.select(builders.reshaped(present, ()), new, old) for new, old in pairs]


def _inside(context: EmitContext, shifted: Any, dimension: int) -> Any:
    """Shifted indices, those of other chunks clamped to its bounds."""
    scalar = builders.tensor((), shifted.type.element_type)
    last = builders.splat(scalar, context.operands[0].type.shape[dimension] - 1)
    return stablehlo.clamp(builders.zeros(scalar), shifted, last)


def _outside(op: Any, position: int, operands: Sequence[Any]) -> Any:
    """An index out of bounds, whose update is dropped; any scalar for the update itself."""
    scalar = builders.tensor((), op.operands[position].type.element_type)
    return builders.splat(scalar, _outside_index(scalar.element_type) if position == len(op.results) else 0)


_SCATTER = Reduction(
    initial=lambda op, operands: list(operands[: len(op.results)]),
    combine=lambda op, carries, partials: builders.clone_with(
        op, [*carries, *partials], [list(r.type.shape) for r in op.results]
    ),
    identity=_outside,
    regroups=regroups_floats,
    init_operands=lambda op: (0,) if is_sum(op) else None,
)


@refines_shardy
def _gather_rule(op: Any, rule: FactorRule) -> FactorRule:
    """Shardy's rule; indexed dimensions of which single elements are taken may be split, too."""
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    for dimension, window in enumerate(op.attributes["slice_sizes"]):
        indexed = dimension in numbers.start_index_map
        reason = _unaddressed(op.operands[1], indexed=indexed, window=window)
        moved = set(rule.operands[0][dimension]) & (rule.reduction | {f for f, _ in rule.blocked})
        rule = rule.block(moved, reason) if reason else rule
    return rule


def _emit_gather(context: EmitContext) -> list[Any]:
    return _take_from_chunk(context) if context.split_op.reducing else clone_with_sizes("slice_sizes")(context)


def _take_from_chunk(context: EmitContext) -> list[Any]:
    """A mask of the results that lie in this chunk, and the gather from the chunk by shifted indices."""
    numbers = stablehlo.GatherDimensionNumbers(context.op.attributes["dimension_numbers"])
    dimension, indices = context.dimension, _signed(context.operands[1])
    component = list(numbers.start_index_map).index(dimension)
    extent = context.op.operands[0].type.shape[dimension]
    # The whole gather clamps them so.
    bounds = [builders.splat(builders.tensor((), indices.type.element_type), value) for value in (0, extent - 1)]
    shifted = _shifted(context, stablehlo.clamp(bounds[0], indices, bounds[1]), extent)
    present = _component(_in_chunk(context, shifted, dimension), numbers.index_vector_dim, component)
    moved = _replace_component(indices, _inside(context, shifted, dimension), numbers.index_vector_dim, component)
    (taken,) = builders.clone_with(context.op, [context.operands[0], moved], context.result_shapes)
    batch = [d for d in range(len(taken.type.shape)) if d not in numbers.offset_dims]
    mask = builders.broadcast(present, builders.tensor(taken.type.shape, present.type.element_type), batch)
    return [mask, taken]


def _signed(indices: Any) -> Any:
    """Indices in a signed type, of 32 bits at least, that holds them all."""
    return builders.convert(indices, ir.IntegerType.get_signless(_signed_width(indices.type.element_type)))


def _shifted(context: EmitContext, indices: Any, extent: int) -> Any:
    """All components relative to the chunk's start along a dimension of `extent` elements."""
    start = stablehlo.multiply(context.chunk.start, builders.i32(extent // context.split_op.n))
    start = builders.convert(start, indices.type.element_type)
    return stablehlo.subtract(indices, builders.broadcast(start, indices.type))


def _in_chunk(context: EmitContext, shifted: Any, dimension: int) -> Any:
    size = builders.convert(builders.i32(context.operands[0].type.shape[dimension]), shifted.type.element_type)
    size = builders.broadcast(size, shifted.type)
    below = stablehlo.compare(shifted, size, stablehlo.ComparisonDirectionAttr.get("LT"))
    least = stablehlo.compare(shifted, builders.zeros(shifted.type), stablehlo.ComparisonDirectionAttr.get("GE"))
    return stablehlo.and_(below, least)


def _component(tensor: Any, vector_dimension: int, component: int) -> Any:
    """One component of every index vector; the index itself if there is no vector dimension."""
    shape = list(tensor.type.shape)
    if vector_dimension == len(shape):
        return tensor
    starts, limits = [0] * len(shape), list(shape)
    starts[vector_dimension], limits[vector_dimension] = component, component + 1
    part = stablehlo.slice(tensor, *(ir.DenseI64ArrayAttr.get(a) for a in (starts, limits, [1] * len(shape))))
    del shape[vector_dimension]
    return builders.reshaped(part, shape)


def _replace_component(indices: Any, shifted: Any, vector_dimension: int, component: int) -> Any:
    shape = indices.type.shape
    if vector_dimension == len(shape) or shape[vector_dimension] == 1:
        return shifted
    number = builders.index_along(shape, vector_dimension)
    wanted = builders.broadcast(builders.i32(component), number.type)
    chosen = stablehlo.compare(number, wanted, stablehlo.ComparisonDirectionAttr.get("EQ"))
    return stablehlo.select(chosen, shifted, indices)


_GATHER = Reduction(
    initial=lambda op, operands: [builders.zeros(op.results[0].type)],
    combine=lambda op, carries, partials: [stablehlo.select(partials[0], partials[1], carries[0])],
    # A repeated element is taken again: it is the same.
    identity=lambda op, position, operands: None,
    regroups=lambda op: False,
)


def _accumulates_or_indexes(split_op: SplitOp) -> bool:
    """Whether a scatter depends on the chunk's place, or adds to a carry: XLA:TPU loses such sums over devices
    (docs/xla_bugs.md)."""
    return split_op.reducing or _is_written_by_index(split_op)


OP_RULES = {
    "stablehlo.gather": OpRule(_gather_rule, _emit_gather, _GATHER, positional=lambda split_op: split_op.reducing),
    "stablehlo.scatter": OpRule(_scatter_rule, _emit_scatter, _SCATTER, positional=_accumulates_or_indexes),
}
