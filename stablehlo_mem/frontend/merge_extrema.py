"""Takes a maximum from the argmax of the same values, a minimum from the argmin, as XLA does; canonicalize calls it.

In a loop that a split makes XLA would not, as indices count on from chunk to chunk there, and XLA:CPU would compute the
maximum with YNNPACK, which loses NaNs that the argmax keeps (docs/xla_bugs.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.op_attributes import comparison_direction

_DIRECTIONS = {"stablehlo.maximum": "GT", "stablehlo.minimum": "LT"}


def merge_extrema(reduces: Sequence[Any]) -> None:
    """Replaces each maximum or minimum among some reduces by the first result of its argmax or argmin, in place.

    Before: `%m = reduce(%x) applies maximum`, `%a:2 = reduce(%x), (%i)` with the reducer of `jnp.argmax`.
    After: `%a#0` in place of `%m`.
    """
    pairs = [op for op in reduces if len(op.results) == 2]
    for reduce in (op for op in reduces if pairs and len(op.results) == 1):
        direction = _DIRECTIONS.get(_root(reduce).name)
        twins = (op for op in pairs if direction and _reduces_same(op, reduce) and _is_arg_extremum(op, direction))
        twin = next(twins, None)
        if twin is not None and _move_after(twin, reduce):
            reduce.results[0].replace_all_uses_with(twin.results[0])
            reduce.erase()


def _root(reduce: Any) -> Any:
    """The op that makes the first result of a reducer; the terminator if it returns an argument."""
    *_, returned = reduce.regions[0].blocks[0].operations
    owner = returned.operation.operands[0].owner
    return returned.operation if isinstance(owner, ir.Block) else owner.operation


def _is_arg_extremum(reduce: Any, direction: str) -> bool:
    """Whether the first of two results is the value that is greatest (GT) or least (LT), or NaN if there is one."""
    left, _, right, _ = reduce.regions[0].blocks[0].arguments
    select = _root(reduce)
    if select.name != "stablehlo.select" or list(select.operands[1:]) != [left, right]:
        return False
    either = select.operands[0].owner
    if isinstance(either, ir.Block) or either.operation.name != "stablehlo.or":
        return False
    sides = [v.owner.operation for v in either.operation.operands if not isinstance(v.owner, ir.Block)]
    compares = {(comparison_direction(op), *op.operands) for op in sides if op.name == "stablehlo.compare"}
    return compares == {(direction, left, right), ("NE", left, left)}


def _reduces_same(argmax: Any, reduce: Any) -> bool:
    """Whether the first operand, its initial value and the dimensions are those of a reduce in the same block."""
    same = argmax.operands[0] == reduce.operands[0] and argmax.operands[2] == reduce.operands[1]
    return same and argmax.block == reduce.block and argmax.attributes["dimensions"] == reduce.attributes["dimensions"]


def _move_after(argmax: Any, reduce: Any) -> bool:
    """Moves an argmax to a reduce if it comes later, with its indices; whether it comes before what uses the reduce."""
    if argmax.is_before_in_block(reduce):
        return True
    for value in argmax.operands:
        maker = value.owner
        if isinstance(maker, ir.Block) or maker.operation.block != reduce.block:
            continue
        if reduce.is_before_in_block(maker.operation):
            if list(maker.operation.operands):
                return False
            maker.operation.move_before(reduce)
    argmax.move_after(reduce)
    return True
