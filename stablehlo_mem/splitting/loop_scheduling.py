"""Decides the loops of an axis: which ops run in loops only, what the loops leave, and which loop runs what.

`schedule_loops` is called by `candidates` for every axis it considers, and by `split_step` for the one that is taken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from stablehlo_mem.ir.graph import Graph, effects, producers_of, reachable
from stablehlo_mem.sharding_rules import is_free
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.splitting.axis import Axis
from stablehlo_mem.splitting.loop_schedule import LoopOutput, LoopSchedule, operand_uses
from stablehlo_mem.splitting.online.online_reductions import NO_ONLINE_REDUCTIONS, OnlineReductionFinder
from stablehlo_mem.splitting.partial_schedule import PartialSchedule


def schedule_loops(graph: Graph, axis: Axis, *, streaming: bool = False) -> LoopSchedule | None:
    """The loops of an axis, None if its seed would still be needed whole.

    Args:
        streaming: reductions run in the loop of earlier ones they depend on, where they can.
    """
    on_chunk: dict[int, SplitOp] = {}
    for split_op in axis.split_ops:
        if split_op.window is None:
            on_chunk.setdefault(split_op.op, split_op)
    inner_ops, whole = _inner_ops_and_whole_values(graph, axis, on_chunk)
    outputs = {v: on_chunk[op] for op in sorted(inner_ops & on_chunk.keys()) for v in graph.ops[op].results}
    outputs = {v: split_op for v, split_op in outputs.items() if v in whole}
    if axis.seed[0] in outputs or graph.values[axis.seed[0]].producer not in inner_ops:
        return None
    producers = {u: s if s and _stays_inside(graph, s, inner_ops) else None for u, s in axis.producers.items()}
    assignment = _LoopAssignment(graph, PartialSchedule(producers, outputs), inner_ops, streaming=streaming)
    assignment.run()
    schedule = assignment.schedule(axis)
    small = _small_values_to_save(graph, schedule, on_chunk)
    if small:
        assignment.partial.outputs.update(small)
        schedule = assignment.schedule(axis)
    placement = _placement(graph, assignment, schedule) if schedule.loop_count else None
    if placement is None:
        return None
    return dataclasses.replace(schedule, placement=placement) if placement else schedule


def _inner_ops_and_whole_values(graph: Graph, axis: Axis, on_chunk: Mapping[int, SplitOp]) -> tuple[set[int], set[int]]:
    """The ops that only run in loops, and the values needed whole: each decides the other, up to a fixpoint.

    A split op that stays outside after all needs its own operands whole.
    """
    split = {split_op.op for split_op in axis.split_ops}
    whole = _used_whole(graph, axis, split)
    while True:
        inner_ops = _inner_ops(graph, on_chunk, split, whole)
        read_outside = {v for op in split - inner_ops for v in graph.ops[op].inputs}
        if read_outside <= whole:
            return inner_ops, whole
        whole |= read_outside


def _used_whole(graph: Graph, axis: Axis, split: set[int]) -> set[int]:
    """Values that an op outside the loops, or a split op, reads whole.

    So does a slice along another dimension than the one along which the value is computed.
    """
    whole = {use.value for use, split_op in axis.producers.items() if split_op is None}
    results = (v for op in split for v in graph.ops[op].results)
    whole.update(v for v in results if not split.issuperset(graph.users[v]))
    for split_op in axis.split_ops:
        inputs = graph.ops[split_op.op].inputs
        whole.update(v for v, d in zip(inputs, split_op.operand_dims, strict=True) if d is None)
    return whole


def _inner_ops(graph: Graph, on_chunk: Mapping[int, SplitOp], split: set[int], whole: set[int]) -> set[int]:
    """Split ops that run in the loops only: nobody needs their result whole, or they depend on such ops themselves.

    Of several results one that is not needed whole is enough. What runs in windows alone leaves nothing behind.
    """
    inner_ops: set[int] = set()
    dependent: set[int] = set()
    sources = producers_of(graph)
    for op in graph.ops[min(split, default=0) : max(split, default=-1) + 1]:
        depends = not dependent.isdisjoint(sources[op.index])
        spares = any(graph.users[v] and v not in whole for v in op.results)
        windows_only = op.index in split and op.index not in on_chunk and whole.isdisjoint(op.results)
        is_inner = (op.index in on_chunk and (depends or spares)) or (windows_only and spares)
        if is_inner:
            inner_ops.add(op.index)
        if depends or (is_inner and not is_free(op)):
            dependent.add(op.index)
    return inner_ops


def _stays_inside(graph: Graph, split_op: SplitOp, inner_ops: set[int]) -> bool:
    """A producer that also runs outside is cloned into the loop only if it is free, or to slice a smaller value."""
    return split_op.op in inner_ops or split_op.window is not None or is_free(graph.ops[split_op.op])


class _LoopAssignment:
    """One pass in program order that gives every split op its first loop, and every loop its direction."""

    def __init__(self, graph: Graph, partial: PartialSchedule, inner_ops: set[int], *, streaming: bool):
        self.graph, self.partial, self.inner_ops = graph, partial, inner_ops
        self.loops_before_op: dict[int, int] = {}
        self.directions: dict[int, int] = {}
        self.finder = OnlineReductionFinder(graph, partial) if streaming else None
        self.split_ops: dict[int, list[SplitOp]] = {}
        for split_op in dict.fromkeys(s for s in (*partial.producers.values(), *partial.outputs.values()) if s):
            self.split_ops.setdefault(split_op.op, []).append(split_op)

    def run(self) -> None:
        first, last = (end((*self.split_ops, *self.inner_ops), default=0) for end in (min, max))
        partial, ready_after = self.partial, self.partial.ready_after
        for op in self.graph.ops[first : last + 1]:
            for split_op in self.split_ops.get(op.index, ()):
                partial.first_loop[split_op] = self.first_loop(split_op)
            loops_before = 0
            for value in op.inputs if ready_after else ():
                loops_before = max(loops_before, ready_after.get(value, 0))
            self.loops_before_op[op.index] = loops_before
            for value in op.results:
                if value in partial.outputs:
                    ready_after[value] = partial.loops_before(value)
                elif loops_before:
                    ready_after[value] = loops_before

    def first_loop(self, split_op: SplitOp) -> int:
        """The first loop in which all is there that a split op needs, or can be deferred, in its direction if any."""
        op = self.graph.ops[split_op.op]
        loop = 0
        for value, use in zip(op.inputs, split_op.uses(op.inputs), strict=True):
            source = self.partial.producers.get(use) if use is not None else None
            ready = self.partial.first_loop[source] if source else self.partial.ready_after.get(value, 0)
            loop = max(loop, ready)
        if self.finder:
            loop = self.finder.earliest_loop(split_op, loop)
        while split_op.direction and self.directions.setdefault(loop, split_op.direction) != split_op.direction:
            loop += 1
        return loop

    def schedule(self, axis: Axis) -> LoopSchedule:
        """The loops as they are decided, ops outside not placed."""
        first_loop = self.partial.first_loop
        outputs = [
            LoopOutput(v, s, first_loop[s], self.graph.values[v].result in s.partial)
            for v, s in self.partial.outputs.items()
            if s in first_loop
        ]
        outputs.sort(key=lambda output: (output.loop, output.value))
        count = max((output.loop for output in outputs), default=-1) + 1
        return LoopSchedule(
            axis=axis,
            outputs=tuple(outputs),
            loop_count=count,
            first_loop=first_loop,
            producers=self.partial.producers,
            inner_ops=frozenset(self.inner_ops),
            placement={},
            directions=tuple(self.directions.get(loop, 1) for loop in range(count)),
            online=self.finder.result() if self.finder else NO_ONLINE_REDUCTIONS,
            graph=self.graph,
        )


def _small_values_to_save(graph: Graph, schedule: LoopSchedule, on_chunk: Mapping[int, SplitOp]) -> dict[int, SplitOp]:
    """Small values that a later loop needs become outputs: they are not recomputed."""
    small: dict[int, SplitOp] = {}
    if schedule.loop_count <= 1:
        return small
    outputs = {output.value for output in schedule.outputs}
    for split_op, loop in schedule.first_loop.items():
        # What online reductions run only before the loop that the program as written has it in needs nothing saved.
        if max(schedule.loops_of.get(split_op, ()), default=-1) < loop:
            continue
        for use in operand_uses(graph, split_op):
            source = schedule.producers.get(use)
            if source is None or schedule.first_loop[source] >= loop or use.value in outputs:
                continue
            is_small = graph.values[use.value].nbytes < schedule.axis.big_bytes
            if is_small and not is_free(graph.ops[source.op]) and source == on_chunk.get(source.op):
                small.setdefault(use.value, source)
    return small


def _placement(graph: Graph, assignment: _LoopAssignment, schedule: LoopSchedule) -> dict[int, int] | None:
    """For each op outside, between the first and the last inner one: the loop before which it runs, as late as can be.

    Ops with side effects keep their order; None if they cannot.
    """
    first_use = _first_uses(graph, assignment.partial, schedule)
    placement: dict[int, int] = {}
    next_effect = count = schedule.loop_count
    with_effects = effects(graph)
    for index in range(max(schedule.inner_ops), min(schedule.inner_ops) - 1, -1):
        if index in schedule.inner_ops:
            continue
        place = count
        for value in graph.ops[index].results:
            place = min([place, first_use.get(value, count), *(placement.get(u, count) for u in graph.users[value])])
        if index in with_effects:
            place = next_effect = min(place, next_effect)
        placement[index] = place
        if place < assignment.loops_before_op[index]:
            return None
    return placement


def _first_uses(graph: Graph, partial: PartialSchedule, schedule: LoopSchedule) -> dict[int, int]:
    """The first loop that needs each value."""
    if schedule.is_online:
        return _first_uses_when_ready(graph, partial, schedule)
    first_use: dict[int, int] = {}
    for split_op, loops in schedule.loops_of.items():
        first = min(loops)
        for value in graph.ops[split_op.op].inputs:
            if first < first_use.get(value, schedule.loop_count):
                first_use[value] = first
                if partial.loops_before(value) > first and graph.values[value].producer not in schedule.inner_ops:
                    return _first_uses_when_ready(graph, partial, schedule)
    return first_use


def _first_uses_when_ready(graph: Graph, partial: PartialSchedule, schedule: LoopSchedule) -> dict[int, int]:
    """The same where a loop reads pending values: what is needed before it is what those are computed from."""
    first_use: dict[int, int] = {}
    for loop in range(schedule.loop_count):

        def awaited(value: int, loop: int = loop) -> tuple[int, ...]:
            if partial.loops_before(value) <= loop or value in partial.outputs:
                return ()
            return graph.ops[graph.values[value].producer].inputs

        read = [v for split_op in schedule.split_ops[loop] for v in graph.ops[split_op.op].inputs]
        for value in reachable(read, awaited):
            if partial.loops_before(value) <= loop:
                first_use.setdefault(value, loop)
    return first_use
