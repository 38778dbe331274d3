"""The loops of an axis as data: which ops run in each, in which direction, and what they leave.

`loop_scheduling` makes it, `chunk_cost` says what it costs, `candidates` proposes it and `emit_loops` builds it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.sharding_rules.halo import Use
from stablehlo_mem.splitting.axis import Axis
from stablehlo_mem.splitting.online.online_reductions import OnlineReductions


@dataclasses.dataclass(frozen=True)
class LoopOutput:
    """A value a loop leaves: written back chunk by chunk, or `accumulated` where chunks give partial results."""

    value: int
    split_op: SplitOp
    loop: int
    accumulated: bool


def carried_together(outputs: Sequence[LoopOutput]) -> list[tuple[SplitOp, list[LoopOutput]]]:
    """The partial results of a split op are carried together; any other output is a carry of its own."""
    groups: dict[SplitOp | LoopOutput, tuple[SplitOp, list[LoopOutput]]] = {}
    for output in outputs:
        key = output.split_op if output.accumulated else output
        groups.setdefault(key, (output.split_op, []))[1].append(output)
    return list(groups.values())


@dataclasses.dataclass(frozen=True)
class LoopSchedule:
    """The loops of an axis, numbered in the order in which they run.

    Attributes:
        outputs: what the loops leave, by loop and value.
        loop_count: number of loops.
        first_loop: the loop in which each split op runs first; later ones recompute what they need and is no output.
        producers: as in `Axis`, without the producers that stay outside.
        inner_ops: ops that only run inside the loops.
        placement: for each op outside, between the inner ones, before which loop it runs.
        directions: of each loop, 1 where it takes the chunks in order, -1 where from the last to the first.
        online: the reductions that run in a loop before what they depend on is finished.
        graph: of the block the axis is in.
    """

    axis: Axis
    outputs: tuple[LoopOutput, ...]
    loop_count: int
    first_loop: Mapping[SplitOp, int]
    producers: Mapping[Use, SplitOp | None]
    inner_ops: frozenset[int]
    placement: Mapping[int, int]
    directions: tuple[int, ...]
    online: OnlineReductions
    graph: Graph = dataclasses.field(repr=False, compare=False, kw_only=True)

    def __hash__(self) -> int:
        return hash((self.axis, self.loop_count, self.directions, len(self.outputs)))

    @property
    def is_online(self) -> bool:
        """Whether some reductions are online."""
        return bool(self.online.terms)

    @functools.cached_property
    def loops_of(self) -> Mapping[SplitOp, AbstractSet[int]]:
        """The split ops that run, each with the loops that run it."""
        loops: dict[SplitOp, set[int]] = {}
        if self.is_online:
            for loop, versions in enumerate(self.versions):
                for split_op, _ in versions:
                    loops.setdefault(split_op, set()).add(loop)
            return loops
        for output in self.outputs:
            loops.setdefault(output.split_op, set()).add(output.loop)
        for split_op in sorted(self.first_loop, key=lambda split_op: -split_op.op):
            wanted = loops.get(split_op)
            if not wanted:
                continue
            if self.runs_against(split_op, wanted):
                wanted.add(self.first_loop[split_op])
            for use in operand_uses(self.graph, split_op):
                source = self.producers.get(use)
                if source is not None:
                    # Loops after the one that leaves a value read it.
                    last = self._output_loop.get(use.value)
                    computed = wanted if last is None else {loop for loop in wanted if loop <= last}
                    loops.setdefault(source, set()).update(computed)
        return {split_op: wanted for split_op, wanted in loops.items() if wanted}

    @functools.cached_property
    def split_ops(self) -> tuple[tuple[SplitOp, ...], ...]:
        """The split ops that each loop runs, in program order."""
        by_loop: list[list[SplitOp]] = [[] for _ in range(self.loop_count)]
        for split_op, loops in sorted(self.loops_of.items(), key=lambda item: (item[0].op, item[0].factor)):
            for loop in loops:
                by_loop[loop].append(split_op)
        return tuple(map(tuple, by_loop))

    @functools.cached_property
    def versions(self) -> tuple[tuple[tuple[SplitOp, bool], ...], ...]:
        """The same, each with whether it is the version with running maxima: see `OnlineReductions`."""
        if not self.is_online:
            return tuple(tuple((split_op, False) for split_op in split_ops) for split_ops in self.split_ops)
        by_loop: list[tuple[tuple[SplitOp, bool], ...]] = []
        checkpointed: set[SplitOp] = set()
        for loop in reversed(range(self.loop_count)):
            by_loop.append(_versions_needed(self, loop, {s for s in checkpointed if self.first_loop[s] == loop}))
            checkpointed |= {split_op for split_op, _ in by_loop[-1] if self.runs_against(split_op, {loop})}
        return tuple(reversed(by_loop))

    def runs_against(self, split_op: SplitOp, loops: AbstractSet[int]) -> bool:
        """Whether one of some loops runs a scan against the scan's direction."""
        return split_op.cumulative and any(self.directions[loop] != split_op.direction for loop in loops)

    def carried_scans(self, loop: int) -> tuple[SplitOp, ...]:
        """The scans that a loop runs in their direction: their prefix is loop-carried."""
        scans = (split_op for split_op in self.split_ops[loop] if split_op.cumulative)
        return tuple(scan for scan in scans if scan.direction == self.directions[loop])

    def checkpointed_scans(self, loop: int) -> tuple[SplitOp, ...]:
        """Those of which the loop saves the prefix before each chunk, for later loops that run the other way."""
        scans = (scan for scan in self.carried_scans(loop) if self.first_loop[scan] == loop)
        return tuple(scan for scan in scans if self.runs_against(scan, self.loops_of[scan]))

    def with_saved(self, values: Sequence[int]) -> LoopSchedule:
        """The same loops, of which each value is saved for later ones as soon as it can be (`earliest`).

        Raises:
            ValueError: the loops do not compute such a value, or leave it in any case.
        """
        if not all(v in self.savable and self.savable[v] in self.loops_of for v in values):
            raise ValueError(f"these loops cannot keep {values}")
        split_ops = {v: self.savable[v] for v in values}
        saved = [LoopOutput(v, s, self.earliest[s], accumulated=False) for v, s in split_ops.items()]
        outputs = sorted((*self.outputs, *saved), key=lambda output: (output.loop, output.value))
        return dataclasses.replace(self, outputs=tuple(outputs)) if saved else self

    def part_of_axis(self, count: int) -> Axis:
        """The axis without what no loop but those after the first so many can run."""
        split_ops = tuple(s for s in self.axis.split_ops if self.first_loop.get(s, 0) < count)
        within = frozenset(split_ops)
        producers = {use: source if source in within else None for use, source in self.axis.producers.items()}
        return dataclasses.replace(self.axis, split_ops=split_ops, producers=producers)

    @functools.cached_property
    def earliest(self) -> Mapping[SplitOp, int]:
        """The first loop in which each split op could run with all that it is made of, most of which runs there.

        Not the first one in program order: what an earlier loop would need for it need not be there yet.
        """
        earliest: dict[SplitOp, int] = {}
        for split_op in sorted(self.loops_of, key=lambda split_op: split_op.op):
            first, ready, is_made_there = min(self.loops_of[split_op]), 0, False
            inputs = self.graph.ops[split_op.op].inputs
            for value, use in zip(inputs, split_op.uses(inputs), strict=True):
                source = self.producer_in(first, use) if use is not None else None
                is_made_there |= source is not None
                ready = max(ready, self._ready(value) if source is None else earliest[source])
            movable = is_made_there and not split_op.direction and split_op.window is None
            earliest[split_op] = min(first, ready) if movable else first
        return earliest

    def _ready(self, value: int) -> int:
        """The first loop that can read a whole value."""
        if value in self._output_loop:
            return self._output_loop[value] + 1
        return self.placement.get(self.graph.values[value].producer, 0)

    @functools.cached_property
    def savable(self) -> Mapping[int, SplitOp]:
        """The values that are computed in chunks and are no outputs, each with the first split op that computes it."""
        split_ops = [split_op for split_op in self.first_loop if split_op.window is None]
        computed = {v: split_op for split_op in reversed(split_ops) for v in self.graph.ops[split_op.op].results}
        return {v: split_op for v, split_op in computed.items() if v not in self._output_loop}

    def only_in_chunks(self, value: int) -> bool:
        """Whether a value never exists whole."""
        return self.graph.values[value].producer in self.inner_ops and value not in self._output_loop

    def producer_in(self, loop: int, use: Use) -> SplitOp | None:
        """The split op that computes a chunk in a loop; None where it is sliced from the whole value."""
        return self.producers.get(use) if loop < self.sliced_from(use) else None

    def sliced_from(self, use: Use) -> int:
        """The first loop in which a chunk is sliced from the whole value; `loop_count` or more if it never is."""
        if self.producers.get(use) is None:
            return 0
        return self._output_loop.get(use.value, self.loop_count) + 1

    @functools.cached_property
    def _output_loop(self) -> dict[int, int]:
        """The loop that leaves each output."""
        return {output.value: output.loop for output in self.outputs}


def _versions_needed(schedule: LoopSchedule, loop: int, scans: set[SplitOp]) -> tuple[tuple[SplitOp, bool], ...]:
    """What a loop runs for its outputs and for some scans beside them."""
    needed: set[tuple[SplitOp, bool]] = set()
    worklist = [(output.split_op, False) for output in schedule.outputs if output.loop == loop]
    worklist += [(split_op, False) for split_op in scans]
    while worklist:
        split_op, with_max = worklist.pop()
        if (split_op, with_max) in needed:
            continue
        needed.add((split_op, with_max))
        op = schedule.graph.ops[split_op.op]
        positions, with_max = schedule.online.reads(op, loop, split_op, with_max)
        uses = split_op.uses(op.inputs)
        for use in (uses[position] for position in positions):
            source = None if use is None else schedule.producer_in(loop, use)
            if source is not None:
                worklist.append((source, schedule.online.version(loop, source, with_max)))
    return tuple(sorted(needed, key=lambda version: (version[0].op, version[0].factor, version[1])))


@cached_analysis
def operand_uses(graph: Graph, split_op: SplitOp) -> tuple[Use, ...]:
    """The uses along the axis that a split op makes of its operands."""
    return tuple([use for use in split_op.uses(graph.ops[split_op.op].inputs) if use is not None])
