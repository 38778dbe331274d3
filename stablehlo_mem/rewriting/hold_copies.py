"""Makes compilers copy plain values to the host and back when the program has them do it.

Before:
    %h = stablehlo.custom_call @annotate_device_placement(%a) "pinned_host"
    ...
    %z = stablehlo.dot_general ...
    %b = stablehlo.custom_call @annotate_device_placement(%h) "device"
After:
    %h1, %z1 = stablehlo.optimization_barrier %h, %z          %z1 is what is used of %z from here on
    %b = stablehlo.custom_call @annotate_device_placement(%h1) "device"

Compilers order kernels by what depends on what. Without the barriers a value is copied to the host when something
waits for that, at the end, and back at once; or both copies are taken for none. Likewise the work after a value was
copied to the host waits for that copy, and the work after the last use of what was copied back for that use. The
planner calls it on a finished program in which `offload-residuals` has set such copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stablehlo_mem.analysis.fusion_classes import Class, classify
from stablehlo_mem.analysis.host_link import placements
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, stablehlo, walk_operations
from stablehlo_mem.ir.graph import Graph, Op, entry_graph, readers_through
from stablehlo_mem.ir.host_memory import is_placement, memory_of, names_host

_KERNELS = frozenset({Class.DOT, Class.REDUCE, Class.CONTROL})
"""Ops whose results every compiler writes to memory: a barrier after them hinders no fusion."""


def hold_copies(module: ir.Module) -> None:
    """Adds the barriers, in place; a program without pairs of copies stays as it is."""
    if not any(map(is_placement, walk_operations(module.operation))):
        return
    graph = entry_graph(module)
    holder = _Holder(graph)
    ties: dict[int, dict[int, None]] = {}
    for store, fetch in _pairs(graph):
        on_host, copy = (graph.ops[op].results[0] for op in (store, fetch))
        readers = holder.readers(copy)
        of_readers = dict.fromkeys(_largest(graph, graph.ops[op]) for op in readers)
        for place, values in (
            (store + 1, [on_host]),
            (fetch, [on_host]),
            (max(readers, default=fetch) + 1, of_readers),
        ):
            ties.setdefault(place, {}).update(dict.fromkeys(values))
    for place in sorted(ties):
        holder.tie(list(ties[place]), place)


def _pairs(graph: Graph) -> Iterator[tuple[int, int]]:
    """Copies to the host of which the next reader is a copy to the device, in one block."""
    for store in placements(graph):
        users = graph.users[graph.ops[store].results[0]]
        if names_host(memory_of(graph.handles[store])) and len(users) == 1 and users[0] in placements(graph):
            yield store, users[0]


def _largest(graph: Graph, op: Op) -> int:
    """The largest result of an op: of a loop not its counter."""
    return max(op.results, key=lambda v: graph.values[v].nbytes)


class _Holder:
    """Ties values of a block to its kernels."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.latest = dict(enumerate(graph.mlir_values))

    def is_kernel(self, op: Op) -> bool:
        """Whether what an op computes may be tied to."""
        values = [self.graph.values[v] for v in op.results]
        plain = bool(values) and all(value.dtype and not value.host_bytes for value in values)
        return plain and classify(self.graph, op) in _KERNELS

    def tie(self, values: Sequence[int], place: int) -> None:
        """Makes what uses the last kernel before an op, from there on, wait for some values; and their users for it."""
        graph = self.graph
        kernels = (op for op in reversed(graph.ops[:place]) if self.is_kernel(op))
        kernel = next((op for op in kernels if not set(values) & set(op.results)), None)
        if kernel is None:
            return
        tied = [*values, _largest(graph, kernel)]
        users = sorted({user for v in tied for user in graph.users[v] if place <= user < len(graph.ops) - 1})
        if not users:
            return
        anchor = graph.handles[place]
        with builders.building(anchor, anchor.location):
            barrier = stablehlo.OptimizationBarrierOp([self.latest[v] for v in tied])
        new = dict(zip(tied, barrier.results, strict=True))
        for user in users:
            builders.rebind(graph.handles[user], {self.latest[v]: new[v] for v in tied})
        self.latest.update(new)

    def readers(self, value: int) -> list[int]:
        """The first kernels that compute something of a value."""
        users = readers_through(self.graph, [value], lambda op: not self.is_kernel(op))
        return sorted(user for user in users if self.is_kernel(self.graph.ops[user]))
