"""The loops of an axis: which ops run in each, in which order of the chunks, and what they leave."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

from stablehlo_mem.ir.graph import Graph, cached_analysis
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.sharding_rules.halo import Use
from stablehlo_mem.splitting.axis import Axis
from stablehlo_mem.splitting.online.online_reductions import NO_STREAMS, Streams


@dataclasses.dataclass(frozen=True)
class Leaving:
    """A value a loop leaves behind: written back chunk by chunk, or `accumulated` where it is a partial result."""

    value: int
    split_op: SplitOp
    phase: int
    accumulated: bool


@dataclasses.dataclass(frozen=True)
class LoopSchedule:
    """The loops of an axis.

    Attributes:
        leaving: what the loops leave, by phase and value.
        phases: number of loops.
        phase_of: the phase in which each split op runs first; later ones run it again, unless what they need of it is
            kept.
        producers: as in `Axis`, without the producers that stay outside.
        owned: ops that only run inside the loops.
        placement: for each op outside in the window of owned ops, before which loop it must run.
        directions: of each loop, 1 where it takes the chunks in order, -1 where from the last to the first.
        streams: which reductions run in a loop before what they depend on is finished.
        graph: of the block the axis is in.
    """

    axis: Axis
    leaving: tuple[Leaving, ...]
    phases: int
    phase_of: Mapping[SplitOp, int]
    producers: Mapping[Use, SplitOp | None]
    owned: frozenset[int]
    placement: Mapping[int, int]
    directions: tuple[int, ...] = ()
    streams: Streams = NO_STREAMS
    graph: Graph = dataclasses.field(repr=False, compare=False, kw_only=True)

    def needed(self, phase: int) -> tuple[SplitOp, ...]:
        """The split ops loop `phase` runs, in program order."""
        return self._needed[phase]

    @functools.cached_property
    def _needed(self) -> tuple[tuple[SplitOp, ...], ...]:
        found: list[list[SplitOp]] = [[] for _ in range(self.phases)]
        for split_op, loops in sorted(self.loops_of.items(), key=lambda item: (item[0].op, item[0].factor)):
            while loops:
                found[(loops & -loops).bit_length() - 1].append(split_op)
                loops &= loops - 1
        return tuple(map(tuple, found))

    def passed(self, phase: int) -> tuple[SplitOp, ...]:
        """The cumulative split ops that a loop runs in their own direction."""
        return tuple(n for n in self.needed(phase) if n.cumulative and n.direction == self.directions[phase])

    def saved(self, phase: int) -> tuple[SplitOp, ...]:
        """Those of which it saves what they come to, for later loops that run the other way."""
        return tuple(n for n in self.passed(phase) if self.phase_of[n] == phase and self.turned(n, self.loops_of[n]))

    def turned(self, split_op: SplitOp, loops: int) -> bool:
        """Whether one of some loops, a bit each, runs a cumulative split op against its direction."""
        if not split_op.cumulative:
            return False
        return any(loops >> phase & 1 and way != split_op.direction for phase, way in enumerate(self.directions))

    def runs(self, phase: int) -> tuple[tuple[SplitOp, bool], ...]:
        """The same, and of what depends on maxima over the axis whether the version with those so far is meant."""
        return self._runs[phase] if self.streams.terms else tuple((split_op, False) for split_op in self.needed(phase))

    @functools.cached_property
    def _runs(self) -> tuple[tuple[tuple[SplitOp, bool], ...], ...]:
        found: list[tuple[tuple[SplitOp, bool], ...]] = []
        first: set[SplitOp] = set()
        for phase in reversed(range(self.phases)):
            found.append(
                _streaming_runs(self, phase, {split_op for split_op in first if self.phase_of[split_op] == phase})
            )
            first |= {split_op for split_op, _ in found[-1] if self.turned(split_op, 1 << phase)}
        return tuple(reversed(found))

    @functools.cached_property
    def loops_of(self) -> Mapping[SplitOp, int]:
        """The split ops that run, each with the loops that run it: bit p is set for loop p."""
        loops: dict[SplitOp, int] = {}
        if self.streams.terms:
            for phase, runs in enumerate(self._runs):
                for split_op, _ in runs:
                    loops[split_op] = loops.get(split_op, 0) | 1 << phase
            return loops
        for item in self.leaving:
            loops[item.split_op] = loops.get(item.split_op, 0) | 1 << item.phase
        for split_op in sorted(self.phase_of, key=lambda split_op: -split_op.op):
            wanted = loops.get(split_op, 0)
            if self.turned(split_op, wanted):
                wanted = loops[split_op] = wanted | 1 << self.phase_of[split_op]
            for use in operand_uses(self.graph, split_op) if wanted else ():
                source = self.producers.get(use)
                if source is not None:
                    # Later loops than the first to compute it read what that has left.
                    until = (2 << self._left[use.value]) - 1 if use.value in self._left else wanted
                    loops[source] = loops.get(source, 0) | wanted & until
        return loops

    def keeping(self, values: Sequence[int]) -> LoopSchedule:
        """The same loops, where the first of those that compute some values keeps them for later ones.

        That may be a later loop than the first that could: what an earlier one would need for it need not be there yet.

        Raises:
            ValueError: the loops do not compute such a value, or leave it in any case.
        """
        if not all(self.loops_of.get(self.may_keep[v]) if v in self.may_keep else False for v in values):
            raise ValueError(f"these loops cannot keep {values}")
        loops = {v: self.loops_of[self.may_keep[v]] for v in values}
        first = {v: (bits & -bits).bit_length() - 1 for v, bits in loops.items()}
        kept = [Leaving(v, self.may_keep[v], first[v], accumulated=False) for v in values]
        leaving = sorted((*self.leaving, *kept), key=lambda item: (item.phase, item.value))
        return dataclasses.replace(self, leaving=tuple(leaving)) if kept else self

    @functools.cached_property
    def may_keep(self) -> Mapping[int, SplitOp]:
        """The values that the loops make and do not leave, each with the first split op on the chunk that makes it."""
        split_ops = [split_op for split_op in self.phase_of if split_op.window is None]
        made = {v: split_op for split_op in reversed(split_ops) for v in self.graph.ops[split_op.op].results}
        return {v: split_op for v, split_op in made.items() if v not in self._left}

    def spares(self, value: int) -> bool:
        """Whether a value only ever exists by chunk."""
        return self.graph.values[value].producer in self.owned and value not in self._left

    def source(self, use: Use, phase: int) -> SplitOp | None:
        """The split op that computes a chunk in loop `phase`; None where it is sliced from the whole value."""
        return None if self.sliced_in(use) >> phase & 1 else self.producers.get(use)

    def sliced_in(self, use: Use) -> int:
        """The loops in which a chunk would be sliced from the whole value, a bit each."""
        if self.producers.get(use) is None:
            return -1
        return -2 << self._left[use.value] if use.value in self._left else 0

    @functools.cached_property
    def _left(self) -> dict[int, int]:
        """The loop that leaves each value."""
        return {item.value: item.phase for item in self.leaving}


def _streaming_runs(schedule: LoopSchedule, phase: int, others: set[SplitOp]) -> tuple[tuple[SplitOp, bool], ...]:
    """What a loop runs for what it leaves, and for some split ops beside that."""
    found: set[tuple[SplitOp, bool]] = set()
    pending = [(leaving.split_op, False) for leaving in schedule.leaving if leaving.phase == phase]
    pending += [(split_op, False) for split_op in others]
    while pending:
        run = split_op, running = pending.pop()
        if run in found:
            continue
        found.add(run)
        op = schedule.graph.ops[split_op.op]
        positions, running = schedule.streams.reads(op, phase, split_op, running)
        uses = split_op.uses(op.inputs)
        for use in (uses[position] for position in positions):
            source = None if use is None else schedule.source(use, phase)
            if source is not None:
                pending.append((source, schedule.streams.version(phase, source, running)))
    return tuple(sorted(found, key=lambda run: (run[0].op, run[0].factor, run[1])))


@cached_analysis
def operand_uses(graph: Graph, split_op: SplitOp) -> tuple[Use, ...]:
    """The uses along the axis that a split op makes of its operands."""
    return tuple([use for use in split_op.uses(graph.ops[split_op.op].inputs) if use is not None])
