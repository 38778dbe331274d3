"""The memory of a program over its course: plain data that reports draw, thinned out and named for people."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from stablehlo_mem.analysis.live_ranges import Live, Scratch, Slot, Timeline
from stablehlo_mem.ir.graph import Graph, Path, nested_graph
from stablehlo_mem.ir.trip_count import trip_count

_MAX_POINTS = 1000
"""Points kept: more than a screen has columns."""
_MAX_BUFFERS = 200
"""Buffers kept, the largest ..."""
_SHARE = 500
"""... and of at least one part in so many of the peak: smaller ones cannot be seen in a drawing."""


@dataclasses.dataclass(frozen=True)
class LiveValue:
    """A value live at the peak, for people: e.g. ("dot_general", "f32", (8, 16384, 16384), bytes, "attn.py:12 (…)")."""

    op_name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    source: str


@dataclasses.dataclass(frozen=True)
class Buffer:
    """A temporary buffer: what is in it, and the first and last point at which that is alive."""

    value: LiveValue
    begin: int
    end: int


@dataclasses.dataclass(frozen=True)
class Loop:
    """A loop of the program: the first and last point of its body, its steps, and how many loops it is in."""

    begin: int
    end: int
    steps: int
    depth: int
    source: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class History:
    """Temporaries over the program, by the static profile. Its points are kernels in the order they run.

    A loop's body is there once. Of long programs only some points are kept: the highest of each stretch.

    Attributes:
        ops: what runs at each point.
        temp_bytes: temporaries alive at each point.
        fixed_bytes: arguments + outputs + constants − aliased, alive all the time.
        buffers: the temporaries large enough to matter, in the order they come to be; one that takes over the buffer
            of another follows it at once.
        loops: in program order, outer ones first.
    """

    ops: tuple[str, ...]
    temp_bytes: tuple[int, ...]
    fixed_bytes: int
    buffers: tuple[Buffer, ...]
    loops: tuple[Loop, ...]


def draw_history(graph: Graph, timeline: Timeline, temporaries: Sequence[Slot], fixed_bytes: int) -> History:
    """The history of a timeline; `fixed_bytes` are alive all the time."""
    totals = timeline.totals(temporaries)
    points = _points(totals[: len(timeline.moments)])
    return History(
        ops=tuple(_op_name(graph, *timeline.moments[tick]) for tick in points),
        temp_bytes=tuple(totals[tick] for tick in points),
        fixed_bytes=fixed_bytes,
        buffers=tuple(_buffers(graph, timeline, temporaries, points, max(totals))),
        loops=tuple(_loops(graph, timeline, points)),
    )


def describe(graph: Graph, live: Live) -> LiveValue:
    """A live value for people."""
    block = nested_graph(graph, live.path)
    value = block.values[live.value]
    producer = block.producer(live.value)
    name = producer.name.partition(".")[2] if producer else "argument"
    source = block.source(producer.index) if producer else ""
    return LiveValue(name, value.dtype, value.shape, live.nbytes, source)


def _points(totals: Sequence[int]) -> list[int]:
    """The ticks that are kept: of each stretch the highest, the first of them."""
    stretch = -(-len(totals) // _MAX_POINTS) or 1
    starts = range(0, len(totals), stretch)
    return [max(range(s, min(s + stretch, len(totals))), key=totals.__getitem__) for s in starts]


def _buffers(
    graph: Graph, timeline: Timeline, temporaries: Sequence[Slot], points: Sequence[int], peak: int
) -> Iterator[Buffer]:
    """The buffers large enough to matter that are alive at some point."""
    large = sorted((s for s in temporaries if s.nbytes * _SHARE >= peak), key=lambda s: -s.nbytes)[:_MAX_BUFFERS]
    for slot in sorted(large, key=lambda s: s.first):
        ends = [*(tick - 1 for tick, _, _ in slot.holders[1:]), slot.last]
        for (tick, path, index), last in zip(slot.holders, ends, strict=True):
            begin, end = _between(points, tick, last)
            if begin <= end:
                if slot.is_scratch:
                    yield Buffer(_describe_scratch(graph, Scratch(path, index, slot.nbytes)), begin, end)
                else:
                    yield Buffer(describe(graph, Live(path, index, slot.nbytes)), begin, end)


def _describe_scratch(graph: Graph, scratch: Scratch) -> LiveValue:
    """A kernel's scratch for people: it has no shape."""
    source = nested_graph(graph, scratch.path).source(scratch.op)
    return LiveValue(f"scratch of {_op_name(graph, scratch.path, scratch.op)}", "", (), scratch.nbytes, source)


def _loops(graph: Graph, timeline: Timeline, points: Sequence[int]) -> Iterator[Loop]:
    """The loops with the points at which their bodies run."""
    spans: dict[Path, tuple[int, int]] = {}
    for tick, (path, _) in enumerate(timeline.moments):
        for depth in range(1, len(path) + 1):
            first, _ = spans.get(path[:depth], (tick, tick))
            spans[path[:depth]] = (first, tick)
    for path, (first, last) in spans.items():
        block, (op, region) = nested_graph(graph, path[:-1]), path[-1]
        begin, end = _between(points, first, last)
        if block.ops[op].name == "stablehlo.while" and region == 1 and begin <= end:
            owners = (nested_graph(graph, path[:i]).ops[owner] for i, (owner, _) in enumerate(path[:-1]))
            depth = sum(owner.name == "stablehlo.while" for owner in owners)
            yield Loop(begin, end, trip_count(block, block.ops[op]), depth, block.source(op))


def _between(points: Sequence[int], first: int, last: int) -> tuple[int, int]:
    """The first and the last of the points between two ticks; none if the first is behind the last."""
    return bisect_left(points, first), bisect_right(points, last) - 1


def _op_name(graph: Graph, path: Path, op: int) -> str:
    return nested_graph(graph, path).ops[op].name.partition(".")[2]
