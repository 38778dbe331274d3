"""Rules of `chlo.ragged_dot`: matmuls of groups of rows, one for each expert say. `registry` joins them.

The rows of one dimension are in groups one after the other, whose sizes are an operand. A chunk of them has other
sizes: of each group what lies in the chunk. A ragged dimension that is contracted gives one sum for each group, to
which a chunk adds its rows' part.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.op_attributes import ragged_numbers
from stablehlo_mem.sharding_rules.factor_rule import Dims, FactorRule, SplitOp
from stablehlo_mem.sharding_rules.op_rule import EmitContext, OpRule
from stablehlo_mem.sharding_rules.reductions import SUM, emit_contraction


def _rule(op: Any) -> FactorRule | None:
    """A factor for each dimension of the left operand, then for those of the right that are not the left's.

    None where groups differ within a batch, or are along a batch dimension.
    """
    numbers = ragged_numbers(op)
    left, right, sizes = (tuple(ir.RankedTensorType(v.type).shape) for v in op.operands)
    batch, (ragged,) = list(numbers.lhs_batching_dimensions), numbers.lhs_ragged_dimensions
    if len(sizes) != 1 or ragged in batch:
        return None
    contracted, groups = list(numbers.lhs_contracting_dimensions), list(numbers.rhs_group_dimensions)
    same = dict(zip(numbers.rhs_batching_dimensions, batch, strict=True))
    same |= dict(zip(numbers.rhs_contracting_dimensions, contracted, strict=True))
    factors = [same.get(d, len(left) + d) for d in range(len(right))]
    group = factors[groups[0]] if groups else len(left) + len(right)
    free = [d for d in range(len(left)) if d not in (*batch, *contracted)]
    free += [factor for d, factor in enumerate(factors) if d not in same and d not in groups]
    result = ([group] if ragged in contracted else []) + batch + free
    dims: tuple[Dims, ...] = tuple(tuple((f,) for f in one) for one in (range(len(left)), factors, [group], result))
    rule = FactorRule((*left, *right, *sizes), dims[:3], dims[3:], reduction=frozenset(contracted))
    return rule.block({group}, "its groups differ in their sizes")


def _is_ragged(op: Any, split_op: SplitOp) -> bool:
    """Whether an op is split along the dimension of its groups."""
    return split_op.operand_dims[0] == ragged_numbers(op).lhs_ragged_dimensions[0]


def _emit(context: EmitContext) -> list[Any]:
    if not _is_ragged(context.op, context.split_op):
        return emit_contraction(context)
    x, y, sizes = context.operands
    rows = x.type.shape[context.dimension]
    sizes = _sizes_in_chunk(sizes, context.chunk.start_in(rows), rows)
    return emit_contraction(dataclasses.replace(context, operands=(x, y, sizes)))


def _sizes_in_chunk(sizes: Any, start: Any, size: int) -> Any:
    """How many rows of each group are among so many from a start on."""
    element, count = sizes.type.element_type, sizes.type.shape[0]
    square = builders.tensor((count, count), element)
    column, row = (builders.index_along((count, count), d) for d in (1, 0))
    is_before = stablehlo.compare(column, row, stablehlo.ComparisonDirectionAttr.get("LE"))
    before = stablehlo.select(is_before, builders.broadcast(sizes, square, (1,)), builders.zeros(square))
    ends = builders.reduced(before, [1], 0, stablehlo.add)
    ends = stablehlo.subtract(ends, builders.broadcast(builders.convert(start, element), sizes.type))
    scalar = builders.tensor((), element)
    least, most = builders.splat(scalar, 0), builders.splat(scalar, size)
    first, last = (stablehlo.clamp(least, bound, most) for bound in (stablehlo.subtract(ends, sizes), ends))
    return stablehlo.subtract(last, first)


OP_RULES = {
    "chlo.ragged_dot": OpRule(
        rule=_rule,
        emit=_emit,
        reduction=SUM,
        # A chunk of rows is taken to lie together.
        positional=lambda split_op: split_op.operand_dims[0] is not None,
    ),
}
