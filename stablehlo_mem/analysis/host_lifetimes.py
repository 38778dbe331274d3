"""How long values are on the device that are copied from the host's memory or to it, where copies start early.

`peak_memory` asks it for compilers that do so (`CompilerModel.starts_host_copies_early`). Read from the programs that
XLA:TPU schedules (libtpu 0.0.42): a loop's body begins with all copies of slices, then the kernels run, then the copies
to the host. One kernel writes all that elementwise ops make of the same slices, as in an update of an optimiser's
moments: none of these is dropped, or written over, before all are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stablehlo_mem.analysis.fusion import Buffers
from stablehlo_mem.analysis.fusion_classes import ELEMENTWISE, Class, classify
from stablehlo_mem.analysis.host_link import copied_bytes, placements
from stablehlo_mem.ir.graph import Graph, Op, reachable

_SLICES = frozenset({"stablehlo.slice", "stablehlo.dynamic_slice"})


def starts_with_block(graph: Graph, copy: Op) -> bool:
    """Whether a copy begins when its block does: it copies a value from before, or what is sliced of one."""

    def operands(value: int) -> tuple[int, ...]:
        op = graph.producer(value)
        return op.operands if op is not None and not _is_work(graph, op) else ()

    producers = (graph.producer(v) for v in reachable(copy.operands, operands))
    return not any(op is not None and _is_work(graph, op) for op in producers)


def _is_work(graph: Graph, op: Op) -> bool:
    """Whether an op does more than slicing, or computing a scalar, such as the place where a slice begins."""
    is_scalar = not any(graph.values[v].shape for v in op.results)
    return not is_scalar and op.name not in _SLICES and classify(graph, op) is not Class.VIEW


def last_of_host_copies(graph: Graph, buffers: Buffers, last: Mapping[int, int]) -> dict[int, int]:
    """For values of a loop's body the last op to need them, where that is later than the last op to read them.

    Args:
        last: the last op to read each value.
    """
    if not placements(graph):
        return {}
    later: dict[int, int] = {}
    for kernels in _writing_together(graph, buffers):
        read = {v for kernel in kernels for v in buffers.reads[kernel]}
        later.update((v, max(kernels)) for v in read if last.get(v, -1) in kernels)
    end = len(graph.ops) - 1
    kept = {graph.ops[op].operands[0] for op in placements(graph) if copied_bytes(graph, op, to_host=True)}
    return later | {v: end for v in kept if v in last}


def _writing_together(graph: Graph, buffers: Buffers) -> Iterator[set[int]]:
    """The elementwise kernels that write values for the host, and read what others of them read or write."""
    groups: list[tuple[set[int], set[int]]] = []
    for op in placements(graph):
        producer = graph.producer(graph.ops[op].operands[0])
        if (
            not copied_bytes(graph, op, to_host=True)
            or producer is None
            or classify(graph, producer) not in ELEMENTWISE
        ):
            continue
        kernels, values = {producer.index}, {*buffers.reads[producer.index], *producer.results}
        values = {v for v in values if graph.values[v].shape}
        for group in [group for group in groups if group[1] & values]:
            groups.remove(group)
            kernels, values = kernels | group[0], values | group[1]
        groups.append((kernels, values))
    return (kernels for kernels, _ in groups if len(kernels) > 1)
