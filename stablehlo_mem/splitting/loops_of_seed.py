"""The axis of a seed, and its loops: found once in a block that is small. Called by `candidates` and `like_places`.

A seed is a value and one of its dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.sharding_rules import rule_book
from stablehlo_mem.splitting.axis import Axis, grow_axis
from stablehlo_mem.splitting.loop_schedule import LoopSchedule
from stablehlo_mem.splitting.loop_scheduling import schedule_loops

_P = ParamSpec("_P")
_T = TypeVar("_T")
Seed = tuple[int, int]
_CACHED_OPS = 2000
"""Of blocks of at most so many ops all that is found in them is cached: small programs are searched again and again."""


def is_small(graph: Graph) -> bool:
    """Whether what is found in a block is cached."""
    return len(graph.ops) <= _CACHED_OPS


def _cached_in_small_blocks(analysis: Callable[Concatenate[Graph, _P], _T]) -> Callable[Concatenate[Graph, _P], _T]:
    cached = cached_analysis(analysis)

    def dispatch(graph: Graph, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return (cached if is_small(graph) else analysis)(graph, *args, **kwargs)

    return dispatch


@_cached_in_small_blocks
def axis_of_seed(graph: Graph, seed: Seed, big_bytes: int) -> Axis:
    """The axis that is grown from a seed along values of at least so many bytes."""
    return grow_axis(graph, rule_book(graph), seed, big_bytes)


@_cached_in_small_blocks
def loops_along(graph: Graph, axis: Axis, seed: Seed, big_bytes: int, streaming: bool) -> LoopSchedule | None:
    """The loops of an axis, which is equal to others from another seed or of other bytes; None if there are none."""
    del seed, big_bytes
    return schedule_loops(graph, axis, streaming=streaming)


@_cached_in_small_blocks
def first_loops(
    graph: Graph, axis: Axis, seed: Seed, big_bytes: int, streaming: bool, count: int
) -> LoopSchedule | None:
    """The first so many loops of an axis: what only later ones would run stays outside. None if there are none."""
    schedule = loops_along(graph, axis, seed, big_bytes, streaming)
    return schedule_loops(graph, schedule.part_of_axis(count), streaming=streaming) if schedule else None


def loops_of_seed(
    graph: Graph, seed: Seed, big_bytes: int, *, streaming: bool, first: int | None = None
) -> LoopSchedule | None:
    """The loops of the axis of a seed, or the first so many of them; None if there are none."""
    axis = axis_of_seed(graph, seed, big_bytes)
    if first is not None:
        return first_loops(graph, axis, seed, big_bytes, streaming, first)
    return loops_along(graph, axis, seed, big_bytes, streaming)
