"""Dots that read one value in the same way, which a compiler may compute as one dot: XLA:GPU does, `dot_merger.cc`.

    %a = dot %x, %v                %c = dot %x, (%v and %w side by side)
    %b = dot %x, %w          →     %a, %b = slices of %c

The model of XLA:GPU asks which are merged, `passes.keep_dots_apart` which could be.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence

from stablehlo_mem.analysis.fusion_classes import CLASSES, Class
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import Graph, Op, producers_of
from stablehlo_mem.ir.op_attributes import dot_numbers


@dataclasses.dataclass(frozen=True)
class AlikeDots:
    """Dots that could be merged.

    Attributes:
        side: the operand that they have in common, 0 or 1.
        dots: two or more, in program order.
    """

    side: int
    dots: tuple[int, ...]


@cached_analysis
def alike_dots(graph: Graph) -> tuple[AlikeDots, ...]:
    """The dots of a block that have an operand in common and differ in one dimension of the other operand."""
    found: dict[tuple[int, Hashable], list[int]] = {}
    for op in graph.ops:
        if CLASSES.get(op.name) is Class.DOT and "algorithm" not in graph.handles[op.index].attributes:
            for side in (0, 1):
                likeness = _likeness(graph, op, side)
                if likeness is not None:
                    found.setdefault((side, likeness), []).append(op.index)
    return tuple(AlikeDots(side, tuple(dots)) for (side, _), dots in found.items() if len(dots) > 1)


def _likeness(graph: Graph, dot: Op, side: int) -> Hashable | None:
    """What dots that could be merged have in common; None if the other operand cannot be put beside others."""
    numbers, other = dot_numbers(graph, dot), graph.values[dot.operands[1 - side]]
    if len(other.shape) != len(numbers.lhs_batching_dimensions) + len(numbers.lhs_contracting_dimensions) + 1:
        return None
    precision = str(graph.handles[dot.index].attributes.get("precision_config", ""))
    return dot.operands[side], numbers, precision, other.dtype, graph.values[dot.results[0]].dtype


@cached_analysis
def merged_dots(graph: Graph, most_bytes: int) -> frozenset[int]:
    """The dots of a block that are merged with others.

    Args:
        graph: the block.
        most_bytes: operands and result of one of two dots have at most these, or they are left apart.
    """
    merged: set[int] = set()
    for alike in alike_dots(graph):
        left = [dot for dot in alike.dots if dot not in merged]
        while left:
            together = _joined(graph, left, most_bytes)
            merged.update(together if len(together) > 1 else ())
            left = [dot for dot in left if dot not in together]
    return frozenset(merged)


def _joined(graph: Graph, dots: Sequence[int], most_bytes: int) -> list[int]:
    """The first of some dots, and those of the others that are merged with it."""
    sources = _sources(graph)
    together = [dots[0]]
    small = _bytes(graph, dots[0]) <= most_bytes
    for dot in dots[1:]:
        is_small = _bytes(graph, dot) <= most_bytes
        if (small or is_small) and sources[dot].isdisjoint(together):
            together.append(dot)
            small = sum(_bytes(graph, one) for one in together) <= most_bytes
    return together


def _bytes(graph: Graph, dot: int) -> int:
    op = graph.ops[dot]
    return sum(graph.values[v].nbytes for v in (*op.operands, *op.results))


@cached_analysis
def _sources(graph: Graph) -> dict[int, frozenset[int]]:
    """For each dot of `alike_dots` those of them that it is computed from. One sweep, with a bit for each dot."""
    dots = sorted({dot for alike in alike_dots(graph) for dot in alike.dots})
    bits = {dot: 1 << i for i, dot in enumerate(dots)}
    before: list[int] = []
    for producers in producers_of(graph):
        # What an op is computed from are its producers, and what these are computed from.
        reached = 0
        for producer in producers:
            reached |= before[producer] | bits.get(producer, 0)
        before.append(reached)
    return {dot: frozenset(other for other in dots if before[dot] & bits[other]) for dot in dots}
