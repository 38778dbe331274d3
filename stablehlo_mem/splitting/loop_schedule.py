"""The loops of an axis: which ops run in each, in which order of the chunks, and what they leave."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

from stablehlo_mem.ir.graph import Graph, remembered
from stablehlo_mem.sharding_rules.factor_rule import Node
from stablehlo_mem.sharding_rules.halo import Use
from stablehlo_mem.splitting.axis import Axis
from stablehlo_mem.splitting.online.online_reductions import NO_STREAMS, Streams


@dataclasses.dataclass(frozen=True)
class Leaving:
    """A value a loop leaves behind: written back chunk by chunk, or `accumulated` where it is a partial result."""

    value: int
    node: Node
    phase: int
    accumulated: bool


@dataclasses.dataclass(frozen=True)
class Region:
    """The loops of an axis.

    Attributes:
        leaving: what the loops leave, by phase and value.
        phases: number of loops.
        phase_of: the phase in which each node runs first; later ones run it again, unless what they need of it is kept.
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
    phase_of: Mapping[Node, int]
    producers: Mapping[Use, Node | None]
    owned: frozenset[int]
    placement: Mapping[int, int]
    directions: tuple[int, ...] = ()
    streams: Streams = NO_STREAMS
    graph: Graph = dataclasses.field(repr=False, compare=False, kw_only=True)

    def needed(self, phase: int) -> tuple[Node, ...]:
        """The nodes loop `phase` runs, in program order."""
        return self._needed[phase]

    @functools.cached_property
    def _needed(self) -> tuple[tuple[Node, ...], ...]:
        found: list[list[Node]] = [[] for _ in range(self.phases)]
        for node, loops in sorted(self.loops_of.items(), key=lambda item: (item[0].op, item[0].factor)):
            while loops:
                found[(loops & -loops).bit_length() - 1].append(node)
                loops &= loops - 1
        return tuple(map(tuple, found))

    def passed(self, phase: int) -> tuple[Node, ...]:
        """The cumulative nodes that a loop runs in their own direction."""
        return tuple(n for n in self.needed(phase) if n.cumulative and n.direction == self.directions[phase])

    def saved(self, phase: int) -> tuple[Node, ...]:
        """Those of which it saves what they come to, for later loops that run the other way."""
        return tuple(n for n in self.passed(phase) if self.phase_of[n] == phase and self.turned(n, self.loops_of[n]))

    def turned(self, node: Node, loops: int) -> bool:
        """Whether one of some loops, a bit each, runs a cumulative node against its direction."""
        if not node.cumulative:
            return False
        return any(loops >> phase & 1 and way != node.direction for phase, way in enumerate(self.directions))

    def runs(self, phase: int) -> tuple[tuple[Node, bool], ...]:
        """The same, and of what depends on maxima over the axis whether the version with those so far is meant."""
        return self._runs[phase] if self.streams.terms else tuple((node, False) for node in self.needed(phase))

    @functools.cached_property
    def _runs(self) -> tuple[tuple[tuple[Node, bool], ...], ...]:
        found: list[tuple[tuple[Node, bool], ...]] = []
        first: set[Node] = set()
        for phase in reversed(range(self.phases)):
            found.append(_streaming_runs(self, phase, {node for node in first if self.phase_of[node] == phase}))
            first |= {node for node, _ in found[-1] if self.turned(node, 1 << phase)}
        return tuple(reversed(found))

    @functools.cached_property
    def loops_of(self) -> Mapping[Node, int]:
        """The nodes that run, each with the loops that run it: bit p is set for loop p."""
        loops: dict[Node, int] = {}
        if self.streams.terms:
            for phase, runs in enumerate(self._runs):
                for node, _ in runs:
                    loops[node] = loops.get(node, 0) | 1 << phase
            return loops
        for item in self.leaving:
            loops[item.node] = loops.get(item.node, 0) | 1 << item.phase
        for node in sorted(self.phase_of, key=lambda node: -node.op):
            wanted = loops.get(node, 0)
            if self.turned(node, wanted):
                wanted = loops[node] = wanted | 1 << self.phase_of[node]
            for use in operand_uses(self.graph, node) if wanted else ():
                source = self.producers.get(use)
                if source is not None:
                    # Later loops than the first to compute it read what that has left.
                    until = (2 << self._left[use.value]) - 1 if use.value in self._left else wanted
                    loops[source] = loops.get(source, 0) | wanted & until
        return loops

    def keeping(self, values: Sequence[int]) -> Region:
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
    def may_keep(self) -> Mapping[int, Node]:
        """The values that the loops make and do not leave, each with the first node on the chunk that makes it."""
        nodes = [node for node in self.phase_of if node.window is None]
        made = {v: node for node in reversed(nodes) for v in self.graph.ops[node.op].results}
        return {v: node for v, node in made.items() if v not in self._left}

    def spares(self, value: int) -> bool:
        """Whether a value only ever exists by chunk."""
        return self.graph.values[value].producer in self.owned and value not in self._left

    def source(self, use: Use, phase: int) -> Node | None:
        """The node that computes a chunk in loop `phase`; None where it is sliced from the whole value."""
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


def _streaming_runs(region: Region, phase: int, others: set[Node]) -> tuple[tuple[Node, bool], ...]:
    """What a loop runs for what it leaves, and for some nodes beside that."""
    found: set[tuple[Node, bool]] = set()
    pending = [(leaving.node, False) for leaving in region.leaving if leaving.phase == phase]
    pending += [(node, False) for node in others]
    while pending:
        run = node, running = pending.pop()
        if run in found:
            continue
        found.add(run)
        op = region.graph.ops[node.op]
        positions, running = region.streams.reads(op, phase, node, running)
        uses = node.uses(op.inputs)
        for use in (uses[position] for position in positions):
            source = None if use is None else region.source(use, phase)
            if source is not None:
                pending.append((source, region.streams.version(phase, source, running)))
    return tuple(sorted(found, key=lambda run: (run[0].op, run[0].factor, run[1])))


@remembered
def operand_uses(graph: Graph, node: Node) -> tuple[Use, ...]:
    """The uses along the axis that a node makes of its operands."""
    return tuple([use for use in node.uses(graph.ops[node.op].inputs) if use is not None])
