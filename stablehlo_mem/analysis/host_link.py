"""Time of copies between a device and its host: how much of it the work of a block does not hide.

`cost_model` adds it to the op that copies. Copies are asynchronous, each way for itself: one runs beside the ops that
neither lead to it nor depend on it, and all copies in one direction share the link, those inside of loops too.
"""

from __future__ import annotations

from collections.abc import Sequence

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import Graph, producers_of, reachable
from stablehlo_mem.ir.host_memory import is_placement
from stablehlo_mem.ir.trip_count import likely_trips
from stablehlo_mem.targets.chips import Chip


@cached_analysis
def placements(graph: Graph) -> tuple[int, ...]:
    """The ops of a block that copy a value from one memory to another."""
    custom = (op for op in graph.ops if op.name == "stablehlo.custom_call")
    return tuple(op.index for op in custom if is_placement(graph.handles[op.index]))


def copied_bytes(graph: Graph, op: int, *, to_host: bool) -> int:
    """Bytes that a placement moves in a direction; none if its value is in that memory already."""
    source, result = graph.values[graph.ops[op].operands[0]], graph.values[graph.ops[op].results[0]]
    return min(source.nbytes, result.host_bytes) if to_host else min(source.host_bytes, result.nbytes)


def waiting_seconds(graph: Graph, seconds: Sequence[float], chip: Chip) -> dict[int, float]:
    """For each placement of a block the seconds that the block waits for it.

    Args:
        seconds: what each op of the block takes.
    """
    waiting: dict[int, float] = {}
    for to_host in (True, False):
        sizes = {op: copied_bytes(graph, op, to_host=to_host) for op in placements(graph)}
        copying = {op: nbytes / chip.host_link_bytes_per_second for op, nbytes in sizes.items() if nbytes}
        total = sum(copying.values())
        free = [max(0.0, own - _copying(graph, op, chip, to_host)) for op, own in enumerate(seconds)]
        for op, own in copying.items():
            # The copies of a direction share what each could run beside.
            hidden = sum(free[other] for other in independent_ops(graph, op)) * own / total
            waiting[op] = max(0.0, own - hidden)
    return waiting


def _copying(graph: Graph, op: int, chip: Chip, to_host: bool) -> float:
    """Seconds that the copies in the blocks of an op keep the link busy, in a direction."""
    return busy_bytes(graph, op, to_host) / chip.host_link_bytes_per_second if graph.ops[op].blocks else 0.0


@cached_analysis
def busy_bytes(graph: Graph, op: int, to_host: bool) -> float:
    """Bytes that an op and the ops in its blocks copy in a direction."""
    data = graph.ops[op]
    if op in placements(graph):
        return copied_bytes(graph, op, to_host=to_host)
    inside = (sum(busy_bytes(block, i, to_host) for i in range(len(block.ops))) for block in data.blocks)
    most = max(inside, default=0)
    return most * likely_trips(graph, data) if data.name == "stablehlo.while" else most


@cached_analysis
def independent_ops(graph: Graph, op: int) -> frozenset[int]:
    """The ops of a block that a copy may run beside: they neither lead to it nor depend on it."""
    before = reachable([op], lambda o: producers_of(graph)[o])
    after = reachable([op], lambda o: [user for v in graph.ops[o].results for user in graph.users[v]])
    return frozenset(range(len(graph.ops))) - before.keys() - after.keys()
