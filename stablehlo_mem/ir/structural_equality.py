"""Whether pieces of two blocks do the same on the same values."""

from __future__ import annotations

from typing import Any

from stablehlo_mem.ir.bindings import RULE, same_attributes
from stablehlo_mem.ir.graph import Graph, cached_analysis


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


@cached_analysis
def known_of_alike(graph: Graph, op: int) -> dict[Any, Any]:
    """What is known of an op and of all that are alike in the program's graphs, from the same source too.

    To keep there what follows from its attributes, its blocks and the types of its inputs and results.
    """
    return graph.interned.alike.setdefault(_form_of_op(graph, op), {})


def _form_of_op(graph: Graph, op: int) -> tuple[Any, ...]:
    """What ops that are alike have in common, wherever they are."""
    one, handle = graph.ops[op], graph.handles[op]
    values = [graph.values[v] for v in (*one.inputs, *one.results)]
    types = tuple([(v.shape, v.dtype, v.parts) for v in values])
    attributes = tuple([(name, handle.attributes[name]) for name in handle.attributes])
    position = {value: number for number, value in enumerate(one.captures)}
    captures = tuple([tuple([position[v] for v in block.captured_from]) for block in one.blocks])
    return one.name, handle.location.attr, types, attributes, captures, tuple(map(_form_of_block, one.blocks))


@cached_analysis
def _form_of_block(graph: Graph) -> tuple[Any, ...]:
    ops = [(op.operands, op.captures, op.results, _form_of_op(graph, op.index)) for op in graph.ops]
    return graph.arguments, graph.captured, tuple(ops)
