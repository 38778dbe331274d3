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
    early, late = {data.producer}, set[int]()
    for user in graph.users[value]:
        kernels = _kernels(graph, buffers, user)
        if not kernels or place in kernels:
            return None
        if max(kernels) < place:
            early |= kernels
        elif min(kernels) > place:
            late.add(user)
        else:
            return None
    moved = _moved(graph, buffers, late, place)
    if not late or moved is None:
        return None
    first = min(moved.get(user, user) for user in late)
    return Residual(value, data.nbytes, max(early), first, tuple(sorted(late)), tuple(sorted(moved.items())))


def _kernels(graph: Graph, buffers: Buffers, op: int) -> set[int]:
    """The kernels that compute an op; of a view those that read it."""
    kernels = set(buffers.kernels[op])
    if not kernels and classify(graph, graph.ops[op]) is Class.VIEW:
        kernels = set[int]().union(*(_kernels(graph, buffers, user) for user in _users(graph, op)))
    return kernels


def _moved(graph: Graph, buffers: Buffers, late: set[int], place: int) -> dict[int, int] | None:
    """The ops that stand before the place and can be moved after it, each with its first user there.

    They are those of `late` and what is fused with them, None if one of these cannot be moved.
    """
    users = {op: _users(graph, op) for op in late if op < place}
    pending = list(users)
    while pending:
        op = pending.pop()
        if not _is_fused(graph, buffers, graph.ops[op]):
            return None
        new = [user for user in users[op] if user < place and user not in users]
        users.update((one, _users(graph, one)) for one in new)
        pending += new
    moved: dict[int, int] = {}
    for op in sorted(users, reverse=True):
        moved[op] = min(moved.get(user, user) for user in users[op])
    return moved


def _users(graph: Graph, op: int) -> set[int]:
    return {user for v in graph.ops[op].results for user in graph.users[v]}


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
