"""What a loop of an axis keeps for later ones, so that these need not compute it again.

A loop that waits for an earlier one computes again what both need of a chunk. A value that is kept whole spares the
later loop all that only it is made of: the ops it dominates, seen from what the loop is for. Dominators of a graph
without cycles take one pass: Cooper, Harvey & Kennedy, "A Simple, Fast Dominance Algorithm", 2001.

What is made again of a kept value is compiled otherwise than in the loop that made it first, and may be rounded
otherwise. The gradient of a maximum compares values with the largest of them, which none would be any more: nothing is
kept of which such values are made again. They themselves are, or all that they are made of is made again as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stablehlo_mem.analysis.cost_model import op_seconds
from stablehlo_mem.ir.graph import FLOATS, Graph
from stablehlo_mem.ir.matchers import filling
from stablehlo_mem.sharding_rules import is_free
from stablehlo_mem.sharding_rules.factor_rule import Node
from stablehlo_mem.splitting.loop_schedule import Region, operand_uses
from stablehlo_mem.targets.chips import Chip

_Asked = Mapping[Node, list[tuple[int, Node | None]]]
"""Nodes that later loops run again, and who asks there for which of their results."""
_MOVES = 2
"""A value that is kept is written once and read again."""


def worth_keeping(graph: Graph, region: Region, chip: Chip, largest: int) -> tuple[int, ...]:
    """The results of one op, of at most `largest` bytes, that save the most time if they are kept; () if none do.

    Loops that stream keep nothing.
    """
    if region.phases == 1 or region.streams.terms:
        return ()
    asked = _asked(graph, region)
    over = _dominators(asked)
    spared = {node: op_seconds(graph, node.op, chip) * (_runs(region, node) - 1) for node in asked}
    for node in reversed(over):
        above = over[node]
        if above is not None:
            spared[above] += spared[node]
    risky = _risky(graph, region, asked)
    best: tuple[int, ...] = ()
    most = 0.0
    for node, uses in asked.items():
        values = tuple(sorted({value for value, _ in uses}))
        nbytes = sum(graph.values[v].nbytes for v in values)
        seconds = spared[node] - _MOVES * nbytes / chip.bytes_per_second
        makes = all(region.may_keep.get(v) == node for v in values)
        may_be = makes and node not in risky and not is_free(graph.ops[node.op])
        if may_be and seconds > most and nbytes <= largest:
            best, most = values, seconds
    return best


def _runs(region: Region, node: Node) -> int:
    return region.loops_of[node].bit_count()


def _first(loops: int) -> int:
    """The lowest bit: the first of some loops."""
    return loops & -loops


def _asked(graph: Graph, region: Region) -> _Asked:
    """The nodes that later loops run again, the last op first, and who asks for which of their results there.

    None stands for nodes that first run in such a later loop: no value kept earlier spares them.
    """
    found: dict[Node, list[tuple[int, Node | None]]] = {}
    ran = [node for node, loops in region.loops_of.items() if loops]
    for node in sorted(ran, key=lambda node: -node.op):
        for value, source in _sources(graph, region, node):
            if region.loops_of[node] & ~(2 * _first(region.loops_of[source]) - 1):
                again = node in found and _first(region.loops_of[node]) == _first(region.loops_of[source])
                found.setdefault(source, []).append((value, node if again else None))
    order = sorted(found, key=lambda node: -node.op)
    return {node: found[node] for node in order}


def _risky(graph: Graph, region: Region, asked: _Asked) -> set[Node]:
    """The nodes of whose results others that are compared with floats of the program's would be made again."""
    compared = _compared(graph, region)
    risky: set[Node] = set()
    for node, uses in asked.items():
        for asker in (asker for _, asker in uses if asker is not None):
            if asker in (risky if is_free(graph.ops[asker.op]) else compared):
                risky.add(node)
    return risky


def _compared(graph: Graph, region: Region) -> set[Node]:
    """The nodes whose results floats are made of that are compared with others, not with constants."""
    found: set[Node] = set()
    for node in sorted(region.loops_of, key=lambda node: -node.op):
        op = graph.ops[node.op]
        compares = op.name == "stablehlo.compare" and graph.values[op.operands[0]].dtype in FLOATS
        if node in found or (compares and all(filling(graph, v) is None for v in op.operands)):
            sources = (region.producers.get(use) for use in operand_uses(graph, node))
            found.update(source for source in sources if source is not None)
    return found


def _sources(graph: Graph, region: Region, node: Node) -> Iterator[tuple[int, Node]]:
    """The values of a node's operands that a loop after the one that computes them first computes again."""
    for use in operand_uses(graph, node):
        last = region.loops_of[node].bit_length() - 1
        source = region.source(use, last)
        if source is not None:
            yield use.value, source


def _dominators(asked: _Asked) -> dict[Node, Node | None]:
    """For each node the nearest one without which no later loop would ask for it, None if there is none."""
    found: dict[Node, Node | None] = {}
    depth: dict[Node | None, int] = {None: 0}
    for node, uses in asked.items():
        askers = [asker for _, asker in uses]
        one = askers[0]
        for other in askers[1:]:
            while one is not other:
                if depth.get(one, 0) >= depth.get(other, 0) and one is not None:
                    one = found.get(one)
                else:
                    other = found.get(other) if other is not None else None
        found[node] = one
        depth[node] = depth[one] + 1
    return found
