"""Values of straight-line code that wait long between two uses, and could lie in the host's memory meanwhile.

`offload_residuals` calls it. Times are those of the estimate, from the begin of the block.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Sequence

from stablehlo_mem.analysis.cost_model import fused_seconds
from stablehlo_mem.analysis.fusion import Buffers, plan_buffers
from stablehlo_mem.analysis.fusion_classes import FUSIBLE, Class, classify
from stablehlo_mem.analysis.host_link import placements
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.targets.chips import Chip


@dataclasses.dataclass(frozen=True)
class Residual:
    """A value that is read before a place in its block and after it.

    Attributes:
        value: in the graph of the block.
        nbytes: of it.
        last: the last kernel before the place that writes or reads it.
        first: the first op after the place that reads it, once the others are moved.
        late: the ops among its users that only kernels after the place compute.
        moved: those of `late`, and of what is fused with them, that stand before the place: each with the op before
            which it can stand as well.
    """

    value: int
    nbytes: int
    last: int
    first: int
    late: tuple[int, ...]
    moved: tuple[tuple[int, int], ...]


def find_residual(graph: Graph, value: int, place: int, chip: Chip) -> Residual | None:
    """A value as a residual around an op of its block, None if it is none or is needed in between."""
    buffers, data = plan_buffers(graph, chip), graph.values[value]
    if not data.is_computed or not buffers.materialised[value] or value in graph.returned or data.producer >= place:
        return None
    if data.producer in placements(graph):
        return None
    early, late, moved = {data.producer}, set[int](), dict[int, int]()
    for user in graph.users[value]:
        kernels = _kernels(graph, buffers, user)
        if not kernels or place in kernels:
            return None
        if max(kernels) < place:
            early |= kernels
        elif min(kernels) > place:
            late.add(user)
            if _moved_to(graph, buffers, user, place, moved) is None:
                return None
        else:
            return None
    if not late:
        return None
    first = min(moved.get(user, user) for user in late)
    return Residual(value, data.nbytes, max(early), first, tuple(sorted(late)), tuple(sorted(moved.items())))


def _kernels(graph: Graph, buffers: Buffers, op: int) -> set[int]:
    """The kernels that compute an op; of a view those that read it."""
    kernels = set(buffers.kernels[op])
    if not kernels and classify(graph, graph.ops[op]) is Class.VIEW:
        users = {user for v in graph.ops[op].results for user in graph.users[v]}
        kernels = set[int]().union(*(_kernels(graph, buffers, user) for user in users))
    return kernels


def _moved_to(graph: Graph, buffers: Buffers, op: int, place: int, moved: dict[int, int]) -> int | None:
    """Where an op can stand after the place: where it does, or before its first user there; None if it cannot.

    What is moved for that is added to `moved`.
    """
    if op > place or op in moved:
        return moved.get(op, op)
    if not _is_fused(graph, buffers, graph.ops[op]):
        return None
    users = {user for v in graph.ops[op].results for user in graph.users[v]}
    places = [_moved_to(graph, buffers, user, place, moved) for user in users]
    found = [p for p in places if p is not None]
    if len(found) < len(places):
        return None
    moved[op] = min(found)
    return moved[op]


def _is_fused(graph: Graph, buffers: Buffers, op: Op) -> bool:
    kind = classify(graph, op)
    return (kind in FUSIBLE or kind is Class.VIEW) and not any(buffers.materialised[v] for v in op.results)


@dataclasses.dataclass(frozen=True)
class Copied:
    """When residuals are copied: the ops before which the copies are done or begun, and how long the block waits."""

    stored: tuple[int, ...]
    fetched: tuple[int, ...]
    waiting_seconds: float


def copy_times(graph: Graph, residuals: Sequence[Residual], place: int, chip: Chip) -> Copied:
    """Copies over the link one after the other in each direction, to the host as early, back as late as can be."""
    begins = [0.0, *itertools.accumulate(fused_seconds(graph, chip))]
    stored, fetched = [place] * len(residuals), [place + 1] * len(residuals)
    free, waiting = 0.0, 0.0
    for i in sorted(range(len(residuals)), key=lambda i: residuals[i].last):
        free = max(free, begins[residuals[i].last + 1]) + residuals[i].nbytes / chip.host_link_bytes_per_second
        stored[i] = min(place, bisect.bisect_left(begins, free, residuals[i].last + 1))
    waiting += max(0.0, free - begins[place])
    free = begins[-1]
    for i in sorted(range(len(residuals)), key=lambda i: -residuals[i].first):
        free = min(free, begins[residuals[i].first]) - residuals[i].nbytes / chip.host_link_bytes_per_second
        fetched[i] = max(place + 1, bisect.bisect_right(begins, free, 0, residuals[i].first + 1) - 1)
    waiting += max(0.0, begins[place + 1] - free)
    return Copied(tuple(stored), tuple(fetched), waiting)
