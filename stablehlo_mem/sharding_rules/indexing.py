"""Rules of ops that select, move or order elements: split along all other dimensions. `registry` joins them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.sharding_rules.factor_rule import FactorRule, elementwise_rule, shardy_rule
from stablehlo_mem.sharding_rules.op_rule import EmitContext, OpRule, clone_on_chunk


def _sized(attribute: str, of_result: bool) -> Callable[[EmitContext], list[Any]]:
    """The emission of an op with a size attribute: the op on the chunk, with the chunk's size.

    `of_result`: the attribute has an entry for each result dimension, else for each dimension of operand 0.
    """

    def emit(context: EmitContext) -> list[Any]:
        results = clone_on_chunk(context)
        sizes = list(context.op.attributes[attribute])
        dimension = context.split_op.result_dims[0] if of_result else context.split_op.operand_dims[0]
        if dimension is not None:
            tensor = results[0] if of_result else context.operands[0]
            sizes[dimension] = tensor.type.shape[dimension]
            results[0].owner.attributes[attribute] = ir.DenseI64ArrayAttr.get(sizes)
        return results

    return emit


def _only_shared(operands: tuple[int, ...], reason: str) -> Callable[[Any], FactorRule | None]:
    """Shardy's rule with the factors blocked that are not in all of these operands."""

    def factor_rule(op: Any) -> FactorRule | None:
        rule = shardy_rule(op)
        if rule is None:
            return None
        factors = [{f for d in rule.operands[i] for f in d} for i in operands]
        return rule.block(set(range(len(rule.sizes))) - set.intersection(*factors), reason)

    return factor_rule


def _all_but(attribute: str) -> Callable[[Any], FactorRule | None]:
    """Every dimension passes through except the one the attribute names."""

    def factor_rule(op: Any) -> FactorRule | None:
        shape = tuple(op.operands[0].type.shape)
        ranks = tuple(len(v.type.shape) for v in op.operands)
        dimension = op.attributes[attribute].value % max(1, len(shape))
        rule = elementwise_rule(len(shape), shape, ranks, len(op.results))
        return rule.block({dimension}, "elements are ordered along it")

    return factor_rule


def _top_k_rule(op: Any) -> FactorRule | None:
    """Every dimension passes through except the last, whose size differs between operand and results."""
    shape = tuple(op.operands[0].type.shape)
    last = len(shape) - 1
    dims = tuple((d,) for d in range(last))
    sizes = (*shape, op.results[0].type.shape[-1])
    rule = FactorRule(sizes, ((*dims, (last,)),), ((*dims, (last + 1,)),) * 2)
    return rule.block({last, last + 1}, "the largest elements are searched along it")


def _concatenate_rule(op: Any) -> FactorRule | None:
    rule = shardy_rule(op)
    if rule is None:
        return None
    joined = rule.results[0][op.attributes["dimension"].value]
    return rule.block(set(joined), "the operands are joined along it")


def _pad_rule(op: Any) -> FactorRule | None:
    """Shardy's rule, which overlooks padding that only shifts: what it adds at one end it cuts off at the other."""
    rule = shardy_rule(op)
    if rule is None:
        return None
    edges = (op.attributes[name] for name in ("edge_padding_low", "edge_padding_high", "interior_padding"))
    moved = [d for d, amounts in enumerate(zip(*edges, strict=True)) if any(amounts)]
    return rule.block({f for d in moved for f in rule.results[0][d]}, "it moves elements along the dimension")


OP_RULES = {
    "stablehlo.slice": OpRule(emit=_sized("limit_indices", of_result=True), view=True),
    "stablehlo.dynamic_slice": OpRule(emit=_sized("slice_sizes", of_result=True)),
    "stablehlo.dynamic_update_slice": OpRule(rule=_only_shared((0, 1), "a part of it is updated")),
    "stablehlo.concatenate": OpRule(rule=_concatenate_rule),
    "stablehlo.pad": OpRule(rule=_pad_rule),
    "stablehlo.reverse": OpRule(),
    "stablehlo.sort": OpRule(rule=_all_but("dimension")),
    "chlo.top_k": OpRule(rule=_top_k_rule),
}
