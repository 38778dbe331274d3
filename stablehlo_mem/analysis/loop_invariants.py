"""What the iterations of a loop do not change: the ops and values that a compiler may move or copy before the loop.

The compilers' models say which of them theirs does; passes ask what stays the same.
"""

from __future__ import annotations

from collections.abc import Callable

from stablehlo_mem.analysis.fusion_classes import Class, classify, data_source, is_nested
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import Graph, Op, effects
from stablehlo_mem.ir.loop_carries import unchanged


@cached_analysis
def invariant_ops(body: Graph) -> frozenset[int]:
    """The ops of a loop's body that compute the same in every iteration; none of any other block."""
    same = constants(body) if len(body.arguments) == len(body.returned) else set[int]()
    if not same:
        return frozenset()
    invariant: set[int] = set()
    for op in body.ops[:-1]:
        if op.index not in effects(body) and same.issuperset((*op.operands, *op.captures)):
            invariant.add(op.index)
            same.update(op.results)
    return frozenset(invariant)


def constants_of_dots(graph: Graph, loop: Op, read_by: Callable[[Graph, Op], set[int]]) -> list[int]:
    """The loop-invariant values that a loop's dots read, by their values outside; none if the op is no while.

    What an enclosing loop does not change either is left out: compilers copy it before that one.

    Args:
        graph: the loop's block.
        loop: a while, or any other op.
        read_by: the values of its block that a dot reads, as far as they matter.
    """
    if loop.name != "stablehlo.while":
        return []
    return sorted(_before(graph, loop, _read_by_dots(loop.blocks[1], read_by)) - constants(graph))


def _read_by_dots(block: Graph, read_by: Callable[[Graph, Op], set[int]]) -> set[int]:
    """The values that the dots of a block read, those in loops of it included."""
    values: set[int] = set()
    for op in block.ops:
        if classify(block, op) is Class.DOT:
            values |= read_by(block, op)
        elif op.name == "stablehlo.while":
            values |= _before(block, op, _read_by_dots(op.blocks[1], read_by))
    return values


def _before(graph: Graph, op: Op, values: set[int]) -> set[int]:
    """The values outside a loop that these values of its body are, as far as the body does not change them."""
    outer = unchanged(op, 1)
    return {data_source(graph, outer[v]) for v in values & outer.keys()}


def constants(graph: Graph) -> set[int]:
    """The values that are invariant in the loop of whose body a block is; none in a function's block."""
    if not is_nested(graph):
        return set()
    return set(graph.captured) | {a for a, r in zip(graph.arguments, graph.returned, strict=False) if a == r}
