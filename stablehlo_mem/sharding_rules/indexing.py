"""Rules of ops that select, move or order elements: split along all other dimensions. `registry` joins them."""

from __future__ import annotations

from typing import Any

from stablehlo_mem.sharding_rules.factor_rule import FactorRule, refines_shardy, same_shape_rule
from stablehlo_mem.sharding_rules.op_rule import OpRule, clone_with_sizes


@refines_shardy
def _update_rule(op: Any, rule: FactorRule) -> FactorRule:
    """The factors that are not in both the operand and the update are blocked."""
    updated, update = ({f for factors in dims for f in factors} for dims in rule.operands[:2])
    return rule.block(set(range(len(rule.sizes))) - (updated & update), "a part of it is updated")


def _sort_rule(op: Any) -> FactorRule:
    """Every dimension passes through except the one that is sorted."""
    dimension = op.attributes["dimension"].value % max(1, len(op.results[0].type.shape))
    return same_shape_rule(op).block({dimension}, "elements are ordered along it")


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
    "stablehlo.slice": OpRule(emit=clone_with_sizes("limit_indices"), view=True),
    "stablehlo.dynamic_slice": OpRule(emit=clone_with_sizes("slice_sizes")),
    "stablehlo.dynamic_update_slice": OpRule(rule=_update_rule),
    "stablehlo.concatenate": OpRule(rule=_concatenate_rule),
    "stablehlo.pad": OpRule(rule=_pad_rule),
    "stablehlo.reverse": OpRule(),
    "stablehlo.sort": OpRule(rule=_sort_rule),
}
