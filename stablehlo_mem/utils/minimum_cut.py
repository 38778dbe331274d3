"""A minimum cut of a network, by SciPy's maximum flow. `splitting.saved_values` asks it what to save."""

from __future__ import annotations

import math

import numpy as np

NEVER = math.inf
"""The capacity of what is never cut."""
_ALL = 2**28
"""SciPy counts in i32: so much stands for all that leads into the sink, which can be cut at once."""


class Network:
    """Nodes from 0 on, a source and a sink, with capacities from one node to another."""

    def __init__(self, nodes: int):
        self.source, self.sink = nodes, nodes + 1
        self.capacities: dict[tuple[int, int], float] = {}

    def connect(self, tail: int, head: int, capacity: float) -> None:
        """Adds capacity between two nodes, finite if it leads into the sink."""
        self.capacities[tail, head] = self.capacities.get((tail, head), 0.0) + capacity


def minimum_cut(network: Network) -> frozenset[int]:
    """The nodes on the source's side of a minimum cut, of several cuts of the one that is nearest to the source."""
    # JAX does not import SciPy before it needs it either.
    from scipy.sparse import csr_array  # pyright: ignore[reportMissingTypeStubs]
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow  # pyright: ignore[reportMissingTypeStubs]

    edges = network.capacities
    total = sum(capacity for (_, head), capacity in edges.items() if head == network.sink) or 1.0
    # Twice is more than all, however much is rounded up.
    counts = [math.ceil(_ALL * min(2.0, capacity / total)) for capacity in edges.values()]
    size = network.sink + 1
    tails, heads = np.array(list(edges), np.int32).reshape(-1, 2).T
    capacities = csr_array((np.array(counts, np.int32), (tails, heads)), shape=(size, size))
    residual = capacities - maximum_flow(capacities, network.source, network.sink).flow
    residual.eliminate_zeros()
    reached = breadth_first_order(residual, network.source, return_predecessors=False)
    return frozenset(reached.tolist()) - {network.source}
