"""Rules of transforms and matrix factorisations: split along their batch dimensions. `registry` joins them."""

from __future__ import annotations

from typing import Any

from stablehlo_mem.ir.bindings import RULE, ir, sdy
from stablehlo_mem.ir.host_memory import is_placement, memory_of, names_host
from stablehlo_mem.sharding_rules.factor_rule import Dims, FactorRule, same_shape_rule, shardy_rule
from stablehlo_mem.sharding_rules.op_rule import OpRule
from stablehlo_mem.sharding_rules.top_k import approximate_top_k_rule

_CONFIG = "mhlo.backend_config"


def _custom_call_rule(op: Any) -> FactorRule | None:
    """The rule JAX itself attached to its batched LAPACK and cuSOLVER calls; that of a copy to or from the host.

    Any other custom call is a barrier, and so is a value that is copied to the host and back.
    """
    if is_placement(op):
        return None if _is_temporary(op) else _placement_rule(op)
    if _is_trsm(op):
        return _solve_rule(op, ir.IntegerAttr(ir.DictAttr(op.attributes[_CONFIG])["side"]).value == ord("L"))
    approximate = approximate_top_k_rule(op)
    if approximate is not None:
        return approximate
    rule = shardy_rule(op)
    if rule is None or not sdy.OpShardingRuleAttr(op.attributes[RULE]).is_custom:
        return None
    # A factor in results alone does not say which part of the operands its parts are computed from.
    unread = _factors(rule.results) - _factors(rule.operands)
    return rule.block(unread, "no operand is split with it")


def _placement_rule(op: Any) -> FactorRule:
    """That of any elementwise op; what a loop copies to the host is copied whole.

    A loop inside would make an array in the host's memory that is copied on into another one there. XLA:TPU compiles
    no such copy: "The async-start expects the shape of operand 1 to match".
    """
    rule = same_shape_rule(op)
    if not names_host(memory_of(op)) or op.parent.name != "stablehlo.while":
        return rule
    return rule.block(set(range(len(rule.sizes))), "a loop copies it to the host's memory, as a whole in each step")


def _is_temporary(copy: Any) -> bool:
    """Whether a copy is one of a pair, to the host and back, of a whole value."""
    of = [use.owner for use in copy.results[0].uses]
    producer = copy.operands[0].owner
    if not isinstance(producer, ir.Block):
        of.append(producer)
    return any(map(is_placement, of))


def _is_trsm(op: Any) -> bool:
    """Whether a custom call is JAX's LAPACK triangular solve, for which JAX's own rule gives the batch only."""
    if not ir.StringAttr(op.attributes["call_target_name"]).value.endswith("trsm_ffi"):
        return False
    return _CONFIG in op.attributes and "side" in ir.DictAttr(op.attributes[_CONFIG])


def _factors(tensors: tuple[Dims, ...]) -> set[int]:
    return {factor for dims in tensors for factors in dims for factor in factors}


def _solve_rule(op: Any, left: bool) -> FactorRule:
    """In a x = b the columns of b are independent, in x a = b the rows; so is every batch dimension."""
    shape = tuple(ir.RankedTensorType(op.operands[1].type).shape)
    rank = len(shape)
    solved = rank - 2 if left else rank - 1
    dims = tuple((d,) for d in range(rank))
    matrix = (*dims[:-2], (solved,), (rank,))
    rule = FactorRule((*shape, shape[solved]), (matrix, dims), (dims,))
    return rule.block({solved, rank}, "it solves along the dimension")


OP_RULES = {
    "stablehlo.fft": OpRule(),
    "stablehlo.cholesky": OpRule(),
    "stablehlo.triangular_solve": OpRule(
        rule=lambda op: _solve_rule(op, ir.BoolAttr(op.attributes["left_side"]).value)
    ),
    "stablehlo.custom_call": OpRule(rule=_custom_call_rule),
}
