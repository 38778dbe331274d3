"""Whether pieces of two blocks do the same on the same values."""

from __future__ import annotations

from typing import Any

from stablehlo_mem.ir.bindings import RULE, same_attributes


def is_same_block(one: Any, other: Any, values: dict[Any, Any]) -> bool:
    """Whether two blocks do the same; `values` maps the first's values to the second's, others stand for themselves."""
    if len(one.operations) != len(other.operations) or len(one.arguments) != len(other.arguments):
        return False
    values.update(zip(one.arguments, other.arguments, strict=True))
    for a, b in zip(one.operations, other.operations, strict=True):
        if not is_same_op(a.operation, b.operation, values):
            return False
        values.update(zip(a.operation.results, b.operation.results, strict=True))
    return True


def is_same_op(a: Any, b: Any, values: dict[Any, Any]) -> bool:
    """Whether two ops do the same; see `is_same_block`. Their sharding rules are left aside."""
    types = [[r.type for r in op.results] for op in (a, b)]
    if a.name != b.name or types[0] != types[1] or len(a.regions) != len(b.regions):
        return False
    if [values.get(v, v) for v in a.operands] != list(b.operands) or not same_attributes(a, b, but=RULE):
        return False
    blocks = [[block for region in op.regions for block in region.blocks] for op in (a, b)]
    return len(blocks[0]) == len(blocks[1]) and all(is_same_block(x, y, values) for x, y in zip(*blocks, strict=True))
