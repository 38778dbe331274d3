"""Rules of ops that select, move or order elements: split along all other dimensions. `registry` joins them.

A slice is split along the dimension that it cuts too: a chunk of its result is read from elsewhere.
"""

from __future__ import annotations

from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.sharding_rules.factor_rule import FactorRule, refines_shardy, same_shape_rule
from stablehlo_mem.sharding_rules.halo import Window
from stablehlo_mem.sharding_rules.op_rule import EmitContext, OpRule, clone_with_sizes
from stablehlo_mem.sharding_rules.windows import Sliding


@refines_shardy
def _update_rule(op: Any, rule: FactorRule) -> FactorRule:
    """The factors that are not in both the operand and the update are blocked."""
    updated, update = ({f for factors in dims for f in factors} for dims in rule.operands[:2])
    return rule.block(set(range(len(rule.sizes))) - (updated & update), "a part of it is updated")


def _sort_rule(op: Any) -> FactorRule:
    """Every dimension passes through except the one that is sorted."""
    dimension = op.attributes["dimension"].value % max(1, len(op.results[0].type.shape))
    return same_shape_rule(op).block({dimension}, "elements are ordered along it")


_OF_SLICE = ("start_indices", "limit_indices", "strides")


@refines_shardy
def _slice_rule(op: Any, rule: FactorRule) -> FactorRule:
    """Shardy's rule; along a dimension of which a part is taken, each element is a window of one elsewhere."""
    extents, sizes = op.operands[0].type.shape, op.results[0].type.shape
    for d, (n, size) in enumerate(zip(extents, sizes, strict=True)):
        if n != size:
            start, limit, stride = (op.attributes[name][d] for name in _OF_SLICE)
            rule = Sliding(Window(n, stride, -start, 1), limit - n, 1).apply(rule, (0,), (d, d), size)
    return rule


def _emit_slice(context: EmitContext) -> list[Any]:
    """Along a dimension of which a part is taken, every `stride`-th element of the window."""
    if not context.split_op.windows:
        return clone_with_sizes("limit_indices")(context)
    part, dimension = context.operands[0], context.dimension
    starts, limits, strides = (list(context.op.attributes[name]) for name in _OF_SLICE)
    starts[dimension], limits[dimension] = 0, part.type.shape[dimension]
    return [builders.sliced(part, starts, limits, strides)]


@refines_shardy
def _concatenate_rule(op: Any, rule: FactorRule) -> FactorRule:
    joined = rule.results[0][op.attributes["dimension"].value]
    return rule.block(set(joined), "the operands are joined along it")


@refines_shardy
def _pad_rule(op: Any, rule: FactorRule) -> FactorRule:
    """Shardy's rule, which overlooks padding that only shifts: what it adds at one end it cuts off at the other."""
    edges = (op.attributes[name] for name in ("edge_padding_low", "edge_padding_high", "interior_padding"))
    moved = [d for d, amounts in enumerate(zip(*edges, strict=True)) if any(amounts)]
    return rule.block({f for d in moved for f in rule.results[0][d]}, "it moves elements along the dimension")


OP_RULES = {
    "stablehlo.slice": OpRule(rule=_slice_rule, emit=_emit_slice, view=True),
    "stablehlo.dynamic_slice": OpRule(emit=clone_with_sizes("slice_sizes")),
    "stablehlo.dynamic_update_slice": OpRule(rule=_update_rule),
    "stablehlo.concatenate": OpRule(rule=_concatenate_rule),
    "stablehlo.pad": OpRule(rule=_pad_rule),
    "stablehlo.reverse": OpRule(),
    "stablehlo.sort": OpRule(rule=_sort_rule),
}
