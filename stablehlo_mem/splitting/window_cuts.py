"""Where the window of a value that an op slides over is cut from: the value, or what it is made of."""

from __future__ import annotations

import heapq
import itertools

from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.sharding_rules import OP_RULES, RuleBook
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.sharding_rules.halo import Use


def cheapest_cut(graph: Graph, rules: RuleBook, root: Use) -> dict[Use, SplitOp]:
    """The split ops that make a window of a value of windows of values that take the fewest bytes, by what they make.

    Goes back op by op, last ones first, so that what is read at any time makes all of the window. Of cuts of as many
    bytes the one furthest back is taken: what is nearer need not be there whole then.
    """
    made: dict[Use, SplitOp] = {}
    frontier, pending = {root}, [(_order(graph, root), root)]
    best, kept = _bytes(graph, frontier), 0
    while pending:
        _, use = heapq.heappop(pending)
        split_op = _node_of(graph, rules, use)
        if split_op is None:
            continue
        made[use] = split_op
        frontier.discard(use)
        for read in filter(None, split_op.uses(graph.ops[split_op.op].inputs)):
            if read not in frontier and read not in made:
                frontier.add(read)
                heapq.heappush(pending, (_order(graph, read), read))
        nbytes = _bytes(graph, frontier)
        if nbytes <= best:
            best, kept = nbytes, len(made)
    return dict(itertools.islice(made.items(), kept))


def _order(graph: Graph, use: Use) -> int:
    """What is free first, then from the last op to the first."""
    op = graph.producer(use.value)
    is_free = op is not None and op.name in OP_RULES and OP_RULES[op.name].free
    return -len(graph.ops) if is_free else -graph.values[use.value].producer


def _bytes(graph: Graph, uses: set[Use]) -> int:
    return sum(graph.values[v].nbytes for v in {use.value for use in uses})


def _node_of(graph: Graph, rules: RuleBook, use: Use) -> SplitOp | None:
    """The op that makes a value, in a window: one that is cheap there, as it makes each of its elements of a few."""
    value = graph.values[use.value]
    if value.producer < 0 or use.window is None:
        return None
    row = OP_RULES.get(graph.ops[value.producer].name)
    if row is None or row.reduction is not None or row.edges is not None:
        return None
    split_op = rules.placed(value.producer, "results", value.result, use.dimension, use.window.n)
    return split_op.at(use.window) if isinstance(split_op, SplitOp) and split_op.is_local else None
