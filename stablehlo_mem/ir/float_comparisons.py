"""Finds floats that are compared with others: rounding must not change in only one of the places that compute them.

Loops recompute values of an earlier loop. The gradient of a maximum asks which values are equal to it: where one loop
rounds them differently from the one that found the maximum, none is, and zero is divided by zero. Passes that change
how something is rounded ask here first.

Whether one float is below another is asked by a sampler that accepts a step, or by a line search. Another rounding
rarely changes that, but what follows is another sample: `numerics="relaxed"` allows it. Equality it does not allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import FLOATS, Graph, Op, OpPath, Path, nested_graph, reachable
from stablehlo_mem.ir.matchers import direction, splat_value

COMPARED = "it is compared with floats that are computed elsewhere, and has to be rounded as they are"
"""The reason of such a pass for leaving a value alone."""
ORDER_COMPARED = f"{COMPARED}; Options(numerics='relaxed') lets the smallest differences decide otherwise"
"""The reason if it is compared by < or > only."""
_Place = tuple[Path, int]
"""A block, and a value in it."""


def why_rounded_alike(main: Graph, path: Path, values: Iterable[int], *, relaxed: bool) -> str:
    """Why some values of a block must be rounded as they are: they are compared with other floats; "" if they are not.

    Those are floats that are not computed from the values and no constants. With `relaxed` only equality counts.
    """
    found = _directions(main, path, tuple(sorted(values))) if _comparisons(main) else frozenset()
    if found & {"EQ", "NE"}:
        return COMPARED
    return ORDER_COMPARED if found and not relaxed else ""


@cached_analysis
def _comparisons(main: Graph) -> frozenset[OpPath]:
    """The comparisons of floats that are no constants."""
    return frozenset(_compared_in(main, ()))


def _compared_in(graph: Graph, path: Path) -> Iterator[OpPath]:
    for op in graph.ops:
        is_of_floats = op.name == "stablehlo.compare" and graph.values[op.operands[0]].dtype in FLOATS
        if is_of_floats and all(splat_value(graph, v) is None for v in op.operands):
            yield path, op.index
        for i, block in enumerate(op.blocks):
            yield from _compared_in(block, (*path, (op.index, i)))


@cached_analysis
def _directions(main: Graph, path: Path, values: tuple[int, ...]) -> frozenset[str]:
    """How values are compared with others: EQ, LT and so on."""
    dependent = reachable([(path, v) for v in values], lambda place: _dependents(main, *place))
    return frozenset(
        direction(graph, graph.ops[index])
        for at, index in _comparisons(main)
        for graph in (nested_graph(main, at),)
        if {(at, v) in dependent for v in graph.ops[index].operands} == {True, False}
    )


def _dependents(main: Graph, path: Path, value: int) -> Iterator[_Place]:
    """The floats computed directly from a value: in its block, in the blocks of ops there and around it."""
    graph = nested_graph(main, path)
    for user in graph.users[value]:
        op = graph.ops[user]
        if user == len(graph.ops) - 1:
            yield from _returned(main, path, value)
        else:
            yield from _used(graph, path, op, value)


def _used(graph: Graph, path: Path, op: Op, value: int) -> Iterator[_Place]:
    places = [p for p, v in enumerate(op.operands) if v == value]
    for i, block in enumerate(op.blocks):
        inside = (*path, (op.index, i))
        pairs = zip(block.captured, block.captured_from, strict=True)
        yield from ((inside, inner) for inner, outer in pairs if outer == value)
        if op.name == "stablehlo.while":
            yield from ((inside, block.arguments[p]) for p in places)
    results = [op.results[p] for p in places] if op.name == "stablehlo.while" else op.results if places else ()
    yield from ((path, v) for v in results if graph.values[v].dtype in FLOATS)


def _returned(main: Graph, path: Path, value: int) -> Iterator[_Place]:
    """The values that a block's returned value becomes around it, and in the next step of a loop."""
    if not path:
        return
    *outer, (index, number) = path
    around = tuple(outer)
    op = nested_graph(main, around).ops[index]
    if op.name == "stablehlo.while" and number == 0:
        return
    places = [p for p, v in enumerate(op.blocks[number].returned) if v == value]
    yield from ((around, op.results[p]) for p in places if p < len(op.results))
    if op.name == "stablehlo.while":
        yield from (((*around, (index, i)), op.blocks[i].arguments[p]) for i in (0, 1) for p in places)
