"""Finds while loops whose batch elements each stop by themselves: `vmap` of a `while_loop` with a batched condition.

JAX runs such a loop as long as any element continues, and an element that has stopped keeps its carries:

    cond:  return reduce or(continues(carries))
    body:  return select(continues(carries), step(carries), carries)

An element that has stopped never continues: its condition does not change any more. So a chunk of the batch may stop
when all of its own elements have, with the same results to the last bit. `region_edges.Region` asks. That the condition
lies along the same dimension as the carries is not checked here: `region_propagation` would find no split otherwise.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.ir.structural_equality import is_same_op
from stablehlo_mem.sharding_rules.reductions import body_name


def own_condition(loop: Op) -> int | None:
    """The op of a loop's condition that asks whether any element continues, None if not each stops by itself."""
    condition, body = loop.blocks
    reduce = condition.producer(condition.returned[0])
    if reduce is None or reduce.name != "stablehlo.reduce" or len(reduce.results) != 1:
        return None
    if body_name(condition.handles[reduce.index]) != "stablehlo.or":
        return None
    continues = _condition_in_body(condition, body).get(condition.mlir_values[reduce.operands[0]])
    if continues is None:
        return None
    carried = zip(body.returned, body.arguments, strict=True)
    return reduce.index if all(_keeps(body, continues, before, after) for after, before in carried) else None


def _condition_in_body(condition: Graph, body: Graph) -> dict[Any, Any]:
    """For values of the condition the values of the body that are computed in the same way."""
    arguments = zip(condition.arguments, body.arguments, strict=True)
    values = {condition.mlir_values[a]: body.mlir_values[b] for a, b in arguments}
    by_name: defaultdict[str, list[Any]] = defaultdict(list)
    for handle in body.handles[:-1]:
        by_name[handle.name].append(handle)
    for handle in condition.handles[:-1]:
        same = next((other for other in by_name[handle.name] if is_same_op(handle, other, values)), None)
        if same is not None:
            values.update(zip(handle.results, same.results, strict=True))
    return values


def _keeps(body: Graph, continues: Any, before: int, after: int) -> bool:
    """Whether a carry is as before where an element does not continue."""
    select = body.producer(after)
    if after == before or select is None:
        return after == before
    if select.name != "stablehlo.select" or select.operands[2] != before:
        return False
    mask = body.under(select.operands[0], lambda op: op.name == "stablehlo.broadcast_in_dim")
    return body.mlir_values[mask] == continues
