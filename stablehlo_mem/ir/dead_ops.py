"""Finds the ops that are dead once some values are replaced, for the passes that replace them."""

from __future__ import annotations

import heapq
from collections.abc import Collection

from stablehlo_mem.ir.graph import Graph, producers_of


def needed_only_by(graph: Graph, root: int, used: Collection[int], *more: int) -> tuple[int, ...]:
    """The ops that are dead once the results of `root` and `more` are replaced by what is computed from `used`."""
    sources = producers_of(graph)
    dead = {root, *more}
    seen = {graph.values[v].producer for v in used} | dead
    # The last op first (the heap has the negative indices): all users of an op are decided before it.
    pending = sorted(-op for op in dead)
    while pending:
        op = -heapq.heappop(pending)
        if op not in dead and not all(user in dead for v in graph.ops[op].results for user in graph.users[v]):
            continue
        dead.add(op)
        for source in sources[op]:
            if source not in seen:
                seen.add(source)
                heapq.heappush(pending, -source)
    return tuple(sorted(dead))
