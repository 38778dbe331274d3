"""From an axis to its loops: which ops run in loops only, what leaves them, and in which of several (phases)."""

from __future__ import annotations

from collections.abc import Mapping

from stablehlo_mem.ir.graph import Graph, effects, producers_of
from stablehlo_mem.sharding_rules import is_free
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.sharding_rules.halo import Use
from stablehlo_mem.splitting.axis import Axis
from stablehlo_mem.splitting.loop_schedule import Leaving, LoopSchedule, operand_uses
from stablehlo_mem.splitting.online.online_reductions import NO_STREAMS, StreamFinder
from stablehlo_mem.splitting.online.running_max import Levels


def schedule_loops(graph: Graph, axis: Axis, *, streaming: bool = False) -> LoopSchedule | None:
    """The loops of an axis, None if no value would be spared.

    Args:
        streaming: reductions run in the loop of earlier ones they depend on, where they can.
    """
    primary: dict[int, SplitOp] = {}
    for split_op in axis.split_ops:
        if split_op.window is None:
            primary.setdefault(split_op.op, split_op)
    owned, whole = _settle(graph, axis, primary)
    producers = {u: n if n and _stays_inside(graph, n, owned) else None for u, n in axis.producers.items()}
    leaving = {v: primary[op] for op in sorted(owned & primary.keys()) for v in graph.ops[op].results if v in whole}
    if axis.seed[0] in leaving or graph.values[axis.seed[0]].producer not in owned:
        return None
    phases = _Phases(graph, producers, owned, leaving, streaming=streaming)
    phases.run()
    schedule = phases.schedule(axis)
    small = _small_to_store(graph, schedule, primary)
    if small:
        phases.leaving |= small
        schedule = phases.schedule(axis)
    return schedule if schedule.phases and _place(graph, phases, schedule) else None


def _settle(graph: Graph, axis: Axis, primary: Mapping[int, SplitOp]) -> tuple[set[int], set[int]]:
    """The ops that only run in loops, and the values needed whole: each decides the other, up to a fixpoint.

    A split op that stays outside after all needs its own operands whole.
    """
    split = {split_op.op for split_op in axis.split_ops}
    whole = _used_whole(graph, axis, split)
    while True:
        owned = _owned(graph, primary, split, whole)
        outside = {v for op in split - owned for v in graph.ops[op].inputs}
        if outside <= whole:
            return owned, whole
        whole |= outside


def _used_whole(graph: Graph, axis: Axis, split: set[int]) -> set[int]:
    """Values that an op outside the loops, or a split op, reads whole.

    A slice along a dimension along which the value is not computed reads it whole.
    """
    whole = {use.value for use, split_op in axis.producers.items() if split_op is None}
    results = (v for op in split for v in graph.ops[op].results)
    whole.update(v for v in results if not split.issuperset(graph.users[v]))
    for split_op in axis.split_ops:
        inputs = graph.ops[split_op.op].inputs
        whole.update(v for v, d in zip(inputs, split_op.operand_dims, strict=True) if d is None)
    return whole


def _owned(graph: Graph, primary: Mapping[int, SplitOp], split: set[int], whole: set[int]) -> set[int]:
    """Split ops that run in the loops only: nobody needs them whole, or they depend on such ops themselves.

    Of several results one by chunk is enough. What runs in windows alone leaves nothing behind.
    """
    owned: set[int] = set()
    dependent: set[int] = set()
    sources = producers_of(graph)
    for op in graph.ops[min(split, default=0) : max(split, default=-1) + 1]:
        depends = not dependent.isdisjoint(sources[op.index])
        spares = any(graph.users[v] and v not in whole for v in op.results)
        windows_only = op.index in split and op.index not in primary and whole.isdisjoint(op.results)
        if (op.index in primary and (depends or spares)) or (windows_only and spares):
            owned.add(op.index)
            if depends or not is_free(op):
                dependent.add(op.index)
        elif depends:
            dependent.add(op.index)
    return owned


def _stays_inside(graph: Graph, split_op: SplitOp, owned: set[int]) -> bool:
    """A producer that also runs outside is only cloned into the loop when that is free, or spares a larger window."""
    return split_op.op in owned or split_op.window is not None or is_free(graph.ops[split_op.op])


class _Phases:
    """One pass in program order: the phase of every split op and the level of every op outside.

    The level of a value is the number of loops that must have finished before it is there; `above` has those over 0.
    """

    def __init__(
        self,
        graph: Graph,
        producers: Mapping[Use, SplitOp | None],
        owned: set[int],
        leaving: dict[int, SplitOp],
        *,
        streaming: bool,
    ):
        self.graph, self.producers, self.owned, self.leaving = graph, producers, owned, leaving
        self.phase_of: dict[SplitOp, int] = {}
        self.level: dict[int, int] = {}
        self.placement: dict[int, int] = {}
        self.above: dict[int, int] = {}
        self.directions: dict[int, int] = {}
        levels = Levels(self.level_of, producers.get, leaving.get, self.phase_of)
        self.finder = StreamFinder(graph, levels) if streaming else None
        self.split_ops: dict[int, list[SplitOp]] = {}
        for split_op in dict.fromkeys(n for n in (*producers.values(), *leaving.values()) if n):
            self.split_ops.setdefault(split_op.op, []).append(split_op)

    def run(self) -> None:
        first, last = (end((*self.split_ops, *self.owned), default=0) for end in (min, max))
        above = self.above
        for op in self.graph.ops[first : last + 1]:
            for split_op in self.split_ops.get(op.index, ()):
                self.phase_of[split_op] = self.in_order(split_op, self.first_phase(split_op))
            level = 0
            for value in op.inputs if above else ():
                level = max(level, above.get(value, 0))
            self.level[op.index] = level
            for value in op.results:
                if value in self.leaving:
                    above[value] = self.phase_of[self.leaving[value]] + 1
                elif level:
                    above[value] = level

    def schedule(self, axis: Axis) -> LoopSchedule:
        """The loops so far; `_place` does the placement."""
        left = [
            Leaving(v, n, self.phase_of[n], self.graph.values[v].result in n.partial)
            for v, n in self.leaving.items()
            if n in self.phase_of
        ]
        left.sort(key=lambda item: (item.phase, item.value))
        count = max((item.phase for item in left), default=-1) + 1
        streams = self.finder.streams() if self.finder else NO_STREAMS
        return LoopSchedule(
            axis=axis,
            leaving=tuple(left),
            phases=count,
            phase_of=self.phase_of,
            producers=self.producers,
            owned=frozenset(self.owned),
            placement=self.placement,
            directions=tuple(self.directions.get(phase, 1) for phase in range(count)),
            streams=streams,
            graph=self.graph,
        )

    def in_order(self, split_op: SplitOp, phase: int) -> int:
        """The first loop from `phase` on that takes the chunks in a split op's direction, if it has one."""
        while split_op.direction and self.directions.setdefault(phase, split_op.direction) != split_op.direction:
            phase += 1
        return phase

    def first_phase(self, split_op: SplitOp) -> int:
        """The loop in which a split op runs first, an earlier one than what it depends on where that streams."""
        phase = self.phase(split_op)
        earlier = self.finder.earlier(split_op, phase) if self.finder else None
        return phase if earlier is None else earlier

    def phase(self, split_op: SplitOp) -> int:
        op = self.graph.ops[split_op.op]
        phase = 0
        for value, use in zip(op.inputs, split_op.uses(op.inputs), strict=True):
            source = self.producers.get(use) if use is not None else None
            phase = max(phase, self.phase_of[source] if source else self.above.get(value, 0))
        return phase

    def level_of(self, value: int) -> int:
        return self.phase_of[self.leaving[value]] + 1 if value in self.leaving else self.above.get(value, 0)


def _small_to_store(graph: Graph, schedule: LoopSchedule, primary: Mapping[int, SplitOp]) -> dict[int, SplitOp]:
    """Small values that a later phase needs are kept, not recomputed: they join what leaves the loops."""
    found: dict[int, SplitOp] = {}
    if schedule.phases <= 1:
        return found
    left = {item.value for item in schedule.leaving}
    # A loop that does not wait for what a split op depends on needs nothing kept for it.
    waiting = (split_op for split_op, phase in schedule.phase_of.items() if schedule.loops_of.get(split_op, 0) >> phase)
    for split_op in waiting:
        for use in operand_uses(graph, split_op):
            source = schedule.producers.get(use)
            if source is None or schedule.phase_of[source] >= schedule.phase_of[split_op] or use[0] in left:
                continue
            small = graph.values[use[0]].nbytes < schedule.axis.big_bytes
            if small and not is_free(graph.ops[source.op]) and source == primary.get(source.op):
                found.setdefault(use[0], source)
    return found


def _place(graph: Graph, phases: _Phases, schedule: LoopSchedule) -> bool:
    """For each op outside, between the first and the last owned one: the loop before which it runs, as late as can be.

    Ops with side effects keep their order; False if they cannot.
    """
    first_use = _first_uses(graph, phases, schedule)
    placement, level, owned = phases.placement, phases.level, schedule.owned
    next_effect = count = schedule.phases
    with_effects = effects(graph)
    for index in range(max(owned), min(owned) - 1, -1):
        if index in owned:
            continue
        place = count
        for value in graph.ops[index].results:
            place = min([place, first_use.get(value, count), *(placement.get(u, count) for u in graph.users[value])])
        if index in with_effects:
            place = next_effect = min(place, next_effect)
        placement[index] = place
        if place < level[index]:
            return False
    return True


def _first_uses(graph: Graph, phases: _Phases, schedule: LoopSchedule) -> dict[int, int]:
    """The first loop that needs each value."""
    if schedule.streams.terms:
        return _unfinished_uses(graph, phases, schedule)
    first_use: dict[int, int] = {}
    for split_op, loops in schedule.loops_of.items():
        first = (loops & -loops).bit_length() - 1
        for value in graph.ops[split_op.op].inputs:
            if first < first_use.get(value, schedule.phases):
                first_use[value] = first
                if phases.level_of(value) > first and graph.values[value].producer not in schedule.owned:
                    return _unfinished_uses(graph, phases, schedule)
    return first_use


def _unfinished_uses(graph: Graph, phases: _Phases, schedule: LoopSchedule) -> dict[int, int]:
    """The first loop that needs each value, where some are not finished before it: in loops that stream.

    What is not finished when a loop begins is made in it or after it, of what the loop leaves and of other values.
    """
    first_use: dict[int, int] = {}
    for phase in range(schedule.phases):
        pending = [v for split_op in schedule.needed(phase) for v in graph.ops[split_op.op].inputs]
        seen: set[int] = set()
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            if phases.level_of(value) <= phase:
                first_use.setdefault(value, phase)
            elif value not in phases.leaving:
                pending += graph.ops[graph.values[value].producer].inputs
    return first_use
