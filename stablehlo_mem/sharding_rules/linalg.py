"""Rows of transforms and factorisations: batched over every dimension they do not work in."""

from __future__ import annotations

from typing import Any

from stablehlo_mem.ir.bindings import RULE, ir, sdy
from stablehlo_mem.sharding_rules.factor_rule import Dims, Rule, shardy_rule
from stablehlo_mem.sharding_rules.op_rule import OpRule

_SIDE = "mhlo.backend_config"
_LEFT = ord("L")


def _custom_call_rule(op: Any) -> Rule | None:
    """The rule JAX itself attached to its batched LAPACK and cuSOLVER calls; any other custom call is a barrier."""
    if _is_trsm(op):
        return _solve_rule(op, ir.IntegerAttr(ir.DictAttr(op.attributes[_SIDE])["side"]).value == _LEFT)
    rule = shardy_rule(op) if RULE in op.attributes else None
    if rule is None or not sdy.OpShardingRuleAttr(op.attributes[RULE]).is_custom:
        return None
    # A factor of results only says that two dimensions may be sharded, not which part of the operands makes a part.
    made = _factors(rule.results) - _factors(rule.operands)
    return rule.block(made, "no operand is split with it")


def _is_trsm(op: Any) -> bool:
    """Whether a custom call is JAX's LAPACK triangular solve, for which JAX's own rule gives the batch only."""
    if not ir.StringAttr(op.attributes["call_target_name"]).value.endswith("trsm_ffi"):
        return False
    return _SIDE in op.attributes and "side" in ir.DictAttr(op.attributes[_SIDE])


def _factors(tensors: tuple[Dims, ...]) -> set[int]:
    return {factor for dims in tensors for factors in dims for factor in factors}


def _triangular_solve_rule(op: Any) -> Rule:
    return _solve_rule(op, ir.BoolAttr(op.attributes["left_side"]).value)


def _solve_rule(op: Any, left: bool) -> Rule:
    """Of a x = b each column of b is by itself, of x a = b each row; so is every batch dimension."""
    shape = tuple(ir.RankedTensorType(op.operands[1].type).shape)
    rank = len(shape)
    solved = rank - 2 if left else rank - 1
    dims = tuple((d,) for d in range(rank))
    matrix = (*dims[:-2], (solved,), (rank,))
    blocked = tuple((f, "it solves along the dimension") for f in (solved, rank))
    return Rule((*shape, shape[solved]), (matrix, dims), (dims,), frozenset(), blocked)


OP_RULES: dict[str, OpRule] = {
    "stablehlo.fft": OpRule(),
    "stablehlo.cholesky": OpRule(),
    "stablehlo.triangular_solve": OpRule(rule=_triangular_solve_rule),
    "stablehlo.custom_call": OpRule(rule=_custom_call_rule),
}
