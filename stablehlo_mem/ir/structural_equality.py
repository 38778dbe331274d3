"""Tells whether two ops or blocks compute the same from the same values, and shares analyses between equal ops.

The canonicalisation, the factor rules of control flow and passes that merge ops call it.
"""

from __future__ import annotations

from typing import Any

from stablehlo_mem.ir.analysis_cache import AnalysisCache, cached_analysis
from stablehlo_mem.ir.bindings import RULE, same_attributes
from stablehlo_mem.ir.graph import Graph


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
def equal_ops_cache(graph: Graph, op: int) -> AnalysisCache:
    """The results of analyses that hold for an op and all that are equal to it in the program's graphs.

    They may depend on the op's attributes, blocks and source line and on the types of its inputs and results, not on
    where the op is.
    """
    return graph.interned.equal_ops[_op_structure(graph, op)]


def _op_structure(graph: Graph, op: int) -> tuple[Any, ...]:
    """What equal ops have in common."""
    one, handle = graph.ops[op], graph.handles[op]
    values = [graph.values[v] for v in (*one.inputs, *one.results)]
    types = tuple([(v.shape, v.dtype, v.parts, v.host_bytes) for v in values])
    attributes = tuple([(name, handle.attributes[name]) for name in handle.attributes])
    position = {value: number for number, value in enumerate(one.captures)}
    captures = tuple([tuple([position[v] for v in block.captured_from]) for block in one.blocks])
    return one.name, handle.location.attr, types, attributes, captures, tuple(map(_block_structure, one.blocks))


@cached_analysis
def _block_structure(graph: Graph) -> tuple[Any, ...]:
    ops = [(op.operands, op.captures, op.results, _op_structure(graph, op.index)) for op in graph.ops]
    return graph.arguments, graph.captured, tuple(ops)
