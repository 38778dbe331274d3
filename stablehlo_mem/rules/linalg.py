"""Rows of transforms and factorisations: batched over every dimension they do not work in."""

from __future__ import annotations

from typing import Any

from stablehlo_mem.ir.bindings import sdy
from stablehlo_mem.rules.row import Row
from stablehlo_mem.rules.rule import Rule, shardy_rule


def _custom_call_rule(op: Any) -> Rule | None:
    """The rule JAX itself attached to its batched LAPACK and cuSOLVER calls; any other custom call is a barrier."""
    if "sdy.sharding_rule" not in op.attributes:
        return None
    return shardy_rule(op) if sdy.OpShardingRuleAttr(op.attributes["sdy.sharding_rule"]).is_custom else None


ROWS: dict[str, Row] = {
    "stablehlo.fft": Row(),
    "stablehlo.cholesky": Row(),
    "stablehlo.triangular_solve": Row(),
    "stablehlo.custom_call": Row(rule=_custom_call_rule),
}
