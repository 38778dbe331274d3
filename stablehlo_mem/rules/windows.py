"""Rows of the ops that slide a window: split along the dimensions the window does not move in."""

from __future__ import annotations

from typing import Any

from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.rules.row import Row
from stablehlo_mem.rules.rule import Rule, elementwise_rule

_PER_DIMENSION = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")


def _window_rule(op: Any) -> Rule | None:
    """Pooling and cumulative sums: every dimension with a window of one element passes through."""
    shape = tuple(op.operands[0].type.shape)
    ranks = tuple(len(v.type.shape) for v in op.operands)
    rule = elementwise_rule(len(shape), shape, ranks, len(op.results))
    return rule.block({d for d in range(len(shape)) if _is_windowed(op, d)}, "a window slides along it")


def _is_windowed(op: Any, dimension: int) -> bool:
    sizes = [list(op.attributes[name])[dimension] for name in _PER_DIMENSION if name in op.attributes]
    return any(size != 1 for size in sizes) or any(_padding(op, dimension))


def _padding(op: Any, dimension: int) -> tuple[int, int]:
    if "padding" not in op.attributes:
        return 0, 0
    values = ir.DenseIntElementsAttr(op.attributes["padding"])
    return values[2 * dimension], values[2 * dimension + 1]


ROWS: dict[str, Row] = {"stablehlo.reduce_window": Row(rule=_window_rule)}
