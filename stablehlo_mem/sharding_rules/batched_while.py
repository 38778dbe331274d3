"""Loops that each element of a batch stops by itself: `vmap` of a `while_loop` whose condition depends on the element.

JAX goes on as long as any element does, and keeps what an element that has stopped carries:

    cond:  return reduce or(goes_on(carries))
    body:  return select(goes_on(carries), step(carries), carries)

An element that has stopped never goes on again: what decides it does not change any more. So a chunk of the batch
may stop when all of its own elements have, with the same results to the last bit.

That what decides it is each element's own, and lies along the same dimension as what it keeps, is not asked here: an
axis would not pass the loop (`passage`).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.ir.structural_equality import is_same_op
from stablehlo_mem.sharding_rules.reductions import body_name


def own_condition(loop: Op) -> int | None:
    """The op of a loop's condition that asks whether any element goes on, None if not each stops by itself."""
    condition, body = loop.blocks
    asks = condition.producer(condition.returned[0])
    if asks is None or asks.name != "stablehlo.reduce" or len(asks.results) != 1:
        return None
    if body_name(condition.handles[asks.index]) != "stablehlo.or":
        return None
    goes_on = _found_again(condition, body).get(condition.mlir_values[asks.operands[0]])
    if goes_on is None:
        return None
    carried = zip(body.returned, body.arguments, strict=True)
    return asks.index if all(_keeps(body, goes_on, before, after) for after, before in carried) else None


def _found_again(condition: Graph, body: Graph) -> dict[Any, Any]:
    """What the body computes as the condition does: values of the one to values of the other."""
    arguments = zip(condition.arguments, body.arguments, strict=True)
    values = {condition.mlir_values[a]: body.mlir_values[b] for a, b in arguments}
    named: defaultdict[str, list[Any]] = defaultdict(list)
    for handle in body.handles[:-1]:
        named[handle.name].append(handle)
    for handle in condition.handles[:-1]:
        again = next((other for other in named[handle.name] if is_same_op(handle, other, values)), None)
        if again is not None:
            values.update(zip(handle.results, again.results, strict=True))
    return values


def _keeps(body: Graph, goes_on: Any, before: int, after: int) -> bool:
    """Whether a carry is as before where an element does not go on."""
    select = body.producer(after)
    if after == before or select is None:
        return after == before
    if select.name != "stablehlo.select" or select.operands[2] != before:
        return False
    return body.mlir_values[body.under(select.operands[0], "stablehlo.broadcast_in_dim")] == goes_on
