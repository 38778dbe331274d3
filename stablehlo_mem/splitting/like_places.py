"""Finds the places of a block that compute the same as a split does, as the layers of an unrolled network do.

Where layers are unrolled, memory is as high in each of them: a split of one moves the peak to the next, and a search
that takes them one by one has as many steps as layers. So one split takes in all places at which memory would stay
higher than it leaves it. `candidates` asks for them; `split_step` finds the loops of those of a step again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.splitting.loop_schedule import LoopSchedule
from stablehlo_mem.splitting.loops_of_seed import loops_of_seed


def like_places(
    graph: Graph, schedule: LoopSchedule, memory: Sequence[int], limit: int, first: int | None = None
) -> tuple[LoopSchedule, ...]:
    """The loops of other places that are like those of a schedule, in program order.

    No op is in the loops of two places, and between the first and the last op of one there is none of another.

    Args:
        memory: for each op of the block the most bytes alive while it runs.
        limit: places at which no more are alive are left out.
        first: how many loops of their axes these are, None for all.
    """
    first, last = min(schedule.inner_ops), max(schedule.inner_ops)
    value, dimension = schedule.axis.seed

    def is_high_elsewhere(other: int) -> bool:
        shift = graph.values[other].producer - graph.values[value].producer
        alive = memory[max(0, first + shift) : last + shift + 1]
        return (last < first + shift or last + shift < first) and max(alive, default=0) > limit

    others = [other for other in _like_values(graph)[_kind(graph, value)] if is_high_elsewhere(other)]
    structure = _structure(graph, schedule) if others else None
    found: list[LoopSchedule] = []
    for other in others:
        seed, least, streaming = (other, dimension), schedule.axis.big_bytes, schedule.is_online
        like = loops_of_seed(graph, seed, least, streaming=streaming, first=first)
        if like is None or _structure(graph, like) != structure:
            continue
        if all(is_apart(one, like) for one in (schedule, *found)):
            found.append(like)
    return tuple(sorted(found, key=lambda one: min(one.inner_ops)))


def kept_there(schedule: LoopSchedule, like: LoopSchedule, kept: Sequence[int]) -> tuple[int, ...]:
    """What loops of another place keep for later ones, as some loops keep values."""
    graph = schedule.graph
    places = {split_op.op: number for number, split_op in enumerate(schedule.axis.split_ops)}
    there = [graph.ops[split_op.op] for split_op in like.axis.split_ops]
    values = [graph.values[v] for v in kept]
    return tuple([there[places[value.producer]].results[value.result] for value in values])


def is_apart(one: LoopSchedule, other: LoopSchedule) -> bool:
    """Whether the loops of two places take the place of different ops, those of one all before those of the other."""
    before, after = sorted((one, other), key=lambda schedule: min(schedule.inner_ops))
    ops = [{split_op.op for split_op in schedule.axis.split_ops} for schedule in (before, after)]
    shared = (ops[0] & after.inner_ops) | (ops[1] & before.inner_ops)
    return max(before.inner_ops) < min(after.inner_ops) and not shared


def _structure(graph: Graph, schedule: LoopSchedule) -> Any:
    """What is equal in loops that are alike: the ops of the axis, how they are split, and what the loops leave."""
    axis = schedule.axis
    number = {split_op: i for i, split_op in enumerate(axis.split_ops)}
    ops = [
        (_name_and_types(graph, s.op), s.factor, s.operand_dims, s.result_dims, s.op in schedule.inner_ops)
        for s in axis.split_ops
    ]
    loops = [sorted(schedule.loops_of.get(split_op, ())) for split_op in axis.split_ops]
    outputs = sorted(
        (number[o.split_op], graph.values[o.value].result, o.loop, o.accumulated) for o in schedule.outputs
    )
    return axis.n, axis.parts, schedule.directions, ops, loops, outputs


def _name_and_types(graph: Graph, op: int) -> Any:
    data = graph.ops[op]
    values = (graph.values[v] for v in (*data.inputs, *data.results))
    return data.name, [(value.shape, value.dtype, value.parts, value.host_bytes) for value in values]


@cached_analysis
def _like_values(graph: Graph) -> Mapping[Any, Sequence[int]]:
    """The computed values of each kind."""
    by_kind: dict[Any, list[int]] = {}
    for value in graph.values:
        if value.is_computed and value.shape:
            by_kind.setdefault(_kind(graph, value.index), []).append(value.index)
    return by_kind


def _kind(graph: Graph, value: int) -> Any:
    """Equal for values that may be alike: their type, and the names of the ops that compute and use them."""
    data, producer = graph.values[value], graph.producer(value)
    assert producer is not None
    above = tuple([graph.ops[p].name for v in producer.inputs if (p := graph.values[v].producer) >= 0])
    below = tuple([graph.ops[user].name for user in graph.users[value]])
    return producer.name, data.result, data.shape, data.dtype, data.parts, above, below
