"""Which ops with blocks are alike: what follows from what one is holds for all of them, in other graphs too.

A step of a search leaves most loops of a program as they are: what is known of one need not be found again in the state
after it.
"""

from __future__ import annotations

from typing import Any

from stablehlo_mem.ir.graph import Graph, remembered


@remembered
def known_of_alike(graph: Graph, op: int) -> dict[Any, Any]:
    """What is known of an op and of all that are alike in the program's graphs, from the same source too.

    To keep there what follows from its attributes, its blocks and the types of its inputs and results.
    """
    return graph.met.alike.setdefault(_form_of_op(graph, op), {})


def _form_of_op(graph: Graph, op: int) -> tuple[Any, ...]:
    """What ops that are alike have in common, wherever they are."""
    one, handle = graph.ops[op], graph.handles[op]
    values = [graph.values[v] for v in (*one.inputs, *one.results)]
    types = tuple([(v.shape, v.dtype, v.parts) for v in values])
    attributes = tuple([(name, handle.attributes[name]) for name in handle.attributes])
    position = {value: number for number, value in enumerate(one.captures)}
    captures = tuple([tuple([position[v] for v in block.captured_from]) for block in one.blocks])
    return one.name, handle.location.attr, types, attributes, captures, tuple(map(_form_of_block, one.blocks))


@remembered
def _form_of_block(graph: Graph) -> tuple[Any, ...]:
    ops = [(op.operands, op.captures, op.results, _form_of_op(graph, op.index)) for op in graph.ops]
    return graph.arguments, graph.captured, tuple(ops)
