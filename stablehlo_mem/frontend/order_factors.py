"""Puts the factor that is repeated along the outermost dimension second in a product; canonicalize calls it.

YNNPACK makes a dot of a sum of products, and in jaxlib 0.10.2 one whose first factor is repeated is computed wrongly
where more follows (docs/xla_bugs.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stablehlo_mem.ir.bindings import ir


def order_factors(products: Iterable[Any]) -> None:
    """Swaps the operands of products whose first one alone is repeated along the outermost of three dimensions or more.

    Before: `%b = broadcast_in_dim %c, dims = [1, 2]`, `multiply %b, %x`.
    After: `multiply %x, %b`.
    """
    for product in products:
        first, second = product.operands
        if _is_repeated(first) and not _is_repeated(second):
            product.operands[0], product.operands[1] = second, first


def _is_repeated(value: Any) -> bool:
    """Whether ops with one operand, or none, make a value of a broadcast that repeats along the outermost dimension.

    What is broadcast has two dimensions or more.
    """
    while not isinstance(value.owner, ir.Block) and len(value.owner.operation.operands) == 1:
        op = value.owner.operation
        if op.name == "stablehlo.broadcast_in_dim":
            dimensions = list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
            return len(dimensions) > 1 and (0 not in dimensions or _repeats_outermost(op, dimensions))
        value = op.operands[0]
    return False


def _repeats_outermost(broadcast: Any, dimensions: list[int]) -> bool:
    """Whether the operand has one element along the outermost dimension of the result, which has more."""
    operand, result = (ir.RankedTensorType(v.type).shape for v in (broadcast.operands[0], broadcast.results[0]))
    return operand[dimensions.index(0)] == 1 < result[0]
