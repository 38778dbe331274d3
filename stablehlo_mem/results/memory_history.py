"""Memory over the course of a program, reduced to what a chart can show.

`results.memory_profile` makes it from the live ranges, reports draw it.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from stablehlo_mem.analysis.live_ranges import Live, Scratch, Slot, Timeline
from stablehlo_mem.ir.bindings import primitive_name
from stablehlo_mem.ir.graph import Graph, Op, Path, nested_graph
from stablehlo_mem.ir.trip_count import trip_count

_MAX_POINTS = 1000
"""Points of a history: about the columns of a chart on a screen."""
_MAX_BUFFERS = 200
"""Buffers of a history: the largest, chosen so that a page stays small."""
_PEAK_PER_BUFFER = 500
"""A buffer smaller than the peak over this is left out: in a chart it is lower than a pixel."""


@dataclasses.dataclass(frozen=True)
class LiveValue:
    """A value live at the peak, e.g. ("dot_general", "f32", (8, 16384, 16384), nbytes, "attn.py:12 (…)")."""

    op_name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    source: str


@dataclasses.dataclass(frozen=True)
class Buffer:
    """A value in a temporary buffer, and the first and last point at which it is live."""

    value: LiveValue
    begin: int
    end: int


@dataclasses.dataclass(frozen=True)
class Loop:
    """A loop of the program: the first and last point of its body, its trip count, and how many loops surround it."""

    begin: int
    end: int
    steps: int
    depth: int
    source: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class History:
    """Temporaries over the program, by the static profile. Its points are kernels in program order.

    A loop's body occurs once. A long program is cut into stretches, of which the points with most memory are kept.

    Attributes:
        ops: the op that runs at each point.
        temp_bytes: temporaries live at each point.
        fixed_bytes: arguments + outputs + constants − aliased, live at every point.
        buffers: the large temporaries in order of allocation; values that share a buffer follow one another.
        loops: in program order, outer loops first.
    """

    ops: tuple[str, ...]
    temp_bytes: tuple[int, ...]
    fixed_bytes: int
    buffers: tuple[Buffer, ...]
    loops: tuple[Loop, ...]


def build_history(graph: Graph, timeline: Timeline, temporaries: Sequence[Slot], fixed_bytes: int) -> History:
    """The history of a timeline; `fixed_bytes` are live at every point."""
    totals = timeline.totals(temporaries)
    points = _points(totals[: len(timeline.moments)])
    return History(
        ops=tuple(_op_name(graph, *timeline.moments[tick]) for tick in points),
        temp_bytes=tuple(totals[tick] for tick in points),
        fixed_bytes=fixed_bytes,
        buffers=tuple(_buffers(graph, timeline, temporaries, points, max(totals))),
        loops=tuple(_loops(graph, timeline, points)),
    )


def live_value(graph: Graph, live: Live) -> LiveValue:
    """The name, type and source line of a live value."""
    block = nested_graph(graph, live.path)
    value = block.values[live.value]
    producer = block.producer(live.value)
    source = block.source(producer.index) if producer else ""
    return LiveValue(_producer_name(producer, source), value.dtype, value.shape, live.nbytes, source)


def _producer_name(producer: Op | None, source: str) -> str:
    """The name of the op; of a loop that of the user's op at its line, which it may compute in slices."""
    if producer is None:
        return "argument"
    name = producer.name.partition(".")[2]
    return (primitive_name(source) or name) if name == "while" else name


def _points(totals: Sequence[int]) -> list[int]:
    """The ticks that become points: of each stretch the first one with the most memory."""
    stretch = -(-len(totals) // _MAX_POINTS) or 1
    starts = range(0, len(totals), stretch)
    return [max(range(s, min(s + stretch, len(totals))), key=totals.__getitem__) for s in starts]


def _buffers(
    graph: Graph, timeline: Timeline, temporaries: Sequence[Slot], points: Sequence[int], peak: int
) -> Iterator[Buffer]:
    """The large buffers that are live at some point."""
    large = [slot for slot in temporaries if slot.nbytes * _PEAK_PER_BUFFER >= peak]
    large = sorted(large, key=lambda slot: -slot.nbytes)[:_MAX_BUFFERS]
    for slot in sorted(large, key=lambda slot: slot.first):
        ends = [*(tick - 1 for tick, _, _ in slot.holders[1:]), slot.last]
        for (tick, path, index), last in zip(slot.holders, ends, strict=True):
            begin, end = _points_between(points, tick, last)
            if begin <= end:
                if slot.is_scratch:
                    yield Buffer(_scratch(graph, Scratch(path, index, slot.nbytes)), begin, end)
                else:
                    yield Buffer(live_value(graph, Live(path, index, slot.nbytes)), begin, end)


def _scratch(graph: Graph, scratch: Scratch) -> LiveValue:
    """A kernel's scratch, which has no shape."""
    source = nested_graph(graph, scratch.path).source(scratch.op)
    return LiveValue(f"scratch of {_op_name(graph, scratch.path, scratch.op)}", "", (), scratch.nbytes, source)


def _loops(graph: Graph, timeline: Timeline, points: Sequence[int]) -> Iterator[Loop]:
    """The loops whose bodies have a point."""
    spans: dict[Path, tuple[int, int]] = {}
    for tick, (path, _) in enumerate(timeline.moments):
        for depth in range(1, len(path) + 1):
            first, _ = spans.get(path[:depth], (tick, tick))
            spans[path[:depth]] = (first, tick)
    for path, (first, last) in spans.items():
        block, (op, region) = nested_graph(graph, path[:-1]), path[-1]
        begin, end = _points_between(points, first, last)
        if block.ops[op].name == "stablehlo.while" and region == 1 and begin <= end:
            owners = (nested_graph(graph, path[:i]).ops[owner] for i, (owner, _) in enumerate(path[:-1]))
            depth = sum(owner.name == "stablehlo.while" for owner in owners)
            yield Loop(begin, end, trip_count(block, block.ops[op]), depth, block.source(op))


def _points_between(points: Sequence[int], first: int, last: int) -> tuple[int, int]:
    """The first and last point between two ticks; the first is greater than the last if there is none."""
    return bisect_left(points, first), bisect_right(points, last) - 1


def _op_name(graph: Graph, path: Path, op: int) -> str:
    return nested_graph(graph, path).ops[op].name.partition(".")[2]
