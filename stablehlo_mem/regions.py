"""From an axis to loops: which ops run in a loop, what leaves it, and in which of several loops (phases)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from stablehlo_mem.axes import Axis, Use
from stablehlo_mem.ir.graph import Graph, Op, has_effect, producers_of
from stablehlo_mem.rules import ROWS
from stablehlo_mem.rules.rule import Node


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
        phase_of: the phase in which each node runs first (later phases recompute it).
        producers: as in `Axis`, without the producers that stay outside.
        owned: ops that only run inside the loops.
        placement: for each op outside in the window of owned ops, before which loop it must run.
    """

    axis: Axis
    leaving: tuple[Leaving, ...]
    phases: int
    phase_of: Mapping[Node, int]
    producers: Mapping[Use, Node | None]
    owned: frozenset[int]
    placement: Mapping[int, int]

    def needed(self, graph: Graph, phase: int) -> tuple[Node, ...]:
        """The nodes loop `phase` runs, in program order."""
        if not self._needed:
            found: list[list[Node]] = [[] for _ in range(self.phases)]
            for node, loops in sorted(self.loops_of(graph).items(), key=lambda item: (item[0].op, item[0].factor)):
                while loops:
                    found[(loops & -loops).bit_length() - 1].append(node)
                    loops &= loops - 1
            self._needed.extend(map(tuple, found))
        return self._needed[phase]

    @functools.cached_property
    def _needed(self) -> list[tuple[Node, ...]]:
        return []

    def loops_of(self, graph: Graph) -> Mapping[Node, int]:
        """The nodes that run, each with the loops that run it: bit p is set for loop p."""
        if not self._loops:
            for item in self.leaving:
                self._loops[item.node] = self._loops.get(item.node, 0) | 1 << item.phase
            for node in sorted(self.phase_of, key=lambda node: -node.op):
                loops = self._loops.get(node, 0)
                for use in operand_uses(graph, node) if loops else ():
                    source = self.producers.get(use)
                    if source is not None:
                        # Later loops than the first to compute it read what that has left.
                        until = (2 << self.phase_of[source]) - 1 if use[0] in self._left else loops
                        self._loops[source] = self._loops.get(source, 0) | loops & until
        return self._loops

    @functools.cached_property
    def _loops(self) -> dict[Node, int]:
        return {}

    def source(self, use: Use, phase: int) -> Node | None:
        """The node that computes a chunk in loop `phase`; None where it is sliced from the whole value."""
        node = self.producers.get(use)
        stored = node is not None and use[0] in self._left and self.phase_of[node] < phase
        return None if stored else node

    @functools.cached_property
    def _left(self) -> frozenset[int]:
        return frozenset(item.value for item in self.leaving)


def operand_uses(graph: Graph, node: Node) -> list[Use]:
    """The uses along the axis that a node makes of its operands."""
    inputs = graph.ops[node.op].inputs
    return [(v, d) for v, d in zip(inputs, node.operand_dims, strict=True) if d is not None]


def form_region(graph: Graph, axis: Axis) -> Region | None:
    """The loops of an axis, None if no value would be spared."""
    primary: dict[int, Node] = {}
    for node in axis.nodes:
        primary.setdefault(node.op, node)
    owned, whole = _settle(graph, axis, primary)
    producers = {u: n if n and _stays_inside(graph, n, owned) else None for u, n in axis.producers.items()}
    leaving = {v: primary[op] for op in sorted(owned) for v in graph.ops[op].results if v in whole}
    if axis.seed[0] in leaving or graph.values[axis.seed[0]].producer not in owned:
        return None
    phases = _Phases(graph, producers, owned, leaving)
    phases.run()
    _store_small(graph, axis, phases, primary)
    left = [
        Leaving(v, n, phases.phase_of[n], graph.values[v].result in n.partial)
        for v, n in phases.leaving.items()
        if n in phases.phase_of
    ]
    count = max((item.phase for item in left), default=-1) + 1
    if not count:
        return None
    left.sort(key=lambda item: (item.phase, item.value))
    placement = _placement(graph, owned, phases, count)
    if placement is None:
        return None
    return Region(axis, tuple(left), count, phases.phase_of, producers, frozenset(owned), placement)


def _settle(graph: Graph, axis: Axis, primary: Mapping[int, Node]) -> tuple[set[int], set[int]]:
    """The ops that only run in loops, and the values needed whole: each decides the other, up to a fixpoint.

    A split op that stays outside after all needs its own operands whole.
    """
    whole = _used_whole(graph, axis, primary)
    while True:
        owned = _owned(graph, primary, whole)
        outside = {v for op in primary if op not in owned for v in graph.ops[op].inputs}
        if outside <= whole:
            return owned, whole
        whole |= outside


def _used_whole(graph: Graph, axis: Axis, primary: Mapping[int, Node]) -> set[int]:
    """Values that somebody outside, or a node, needs whole; a slice along a dimension nobody computes it by is one."""
    whole = {value for (value, _), node in axis.producers.items() if node is None}
    for op in graph.ops:
        if op.index not in primary:
            whole.update(op.inputs)
    for node in axis.nodes:
        inputs = graph.ops[node.op].inputs
        whole.update(v for v, d in zip(inputs, node.operand_dims, strict=True) if d is None)
    return whole


def _owned(graph: Graph, primary: Mapping[int, Node], whole: set[int]) -> set[int]:
    """Split ops that run in the loops only: nobody needs them whole, or they depend on such ops themselves.

    Of several results one by chunk is enough.
    """
    owned: set[int] = set()
    dependent: set[int] = set()
    sources = producers_of(graph)
    for op in graph.ops:
        depends = not dependent.isdisjoint(sources[op.index])
        spares = any(graph.users[v] and v not in whole for v in op.results)
        if op.index in primary and (depends or spares):
            owned.add(op.index)
            if depends or not _is_free(graph, op):
                dependent.add(op.index)
        elif depends:
            dependent.add(op.index)
    return owned


def _is_free(graph: Graph, op: Op) -> bool:
    row = ROWS.get(op.name)
    return row is not None and row.free


def _stays_inside(graph: Graph, node: Node, owned: set[int]) -> bool:
    """A producer that also runs outside is only cloned into the loop when that is free."""
    return node.op in owned or _is_free(graph, graph.ops[node.op])


class _Phases:
    """One pass in program order: the phase of every node and the level of every op outside.

    The level of a value is the number of loops that must have finished before it is there; `above` has those over 0.
    """

    def __init__(self, graph: Graph, producers: Mapping[Use, Node | None], owned: set[int], leaving: dict[int, Node]):
        self.graph, self.producers, self.owned, self.leaving = graph, producers, owned, leaving
        self.phase_of: dict[Node, int] = {}
        self.level: dict[int, int] = {}
        self.above: dict[int, int] = {}
        self.nodes: dict[int, list[Node]] = {}
        for node in dict.fromkeys(n for n in (*producers.values(), *leaving.values()) if n):
            self.nodes.setdefault(node.op, []).append(node)

    def run(self) -> None:
        for op in self.graph.ops:
            for node in self.nodes.get(op.index, ()):
                self.phase_of[node] = self.phase(node)
            level = self.level[op.index] = max([self.above.get(v, 0) for v in op.inputs], default=0)
            for value in op.results:
                if value in self.leaving:
                    self.above[value] = self.phase_of[self.leaving[value]] + 1
                elif level:
                    self.above[value] = level

    def phase(self, node: Node) -> int:
        op = self.graph.ops[node.op]
        phase = 0
        for value, dimension in zip(op.inputs, node.operand_dims, strict=True):
            source = self.producers.get((value, dimension)) if dimension is not None else None
            phase = max(phase, self.phase_of[source] if source else self.above.get(value, 0))
        return phase


def _store_small(graph: Graph, axis: Axis, phases: _Phases, primary: Mapping[int, Node]) -> None:
    """Small values that a later phase needs are kept, not recomputed: they join what leaves the loops."""
    for node in list(phases.phase_of):
        for use in operand_uses(graph, node):
            source = phases.producers.get(use)
            if source is None or phases.phase_of[source] >= phases.phase_of[node]:
                continue
            small = graph.values[use[0]].nbytes < axis.big_bytes
            if small and not _is_free(graph, graph.ops[source.op]) and source == primary[source.op]:
                phases.leaving.setdefault(use[0], source)


def _placement(graph: Graph, owned: set[int], phases: _Phases, count: int) -> dict[int, int] | None:
    """For each op outside, between the first and the last owned one: the loop before which it runs, as late as can be.

    Ops with side effects keep their order; None if they cannot.
    """
    first_use: dict[int, int] = {}
    for node, phase in phases.phase_of.items():
        op = graph.ops[node.op]
        for value in op.inputs:
            first_use[value] = min(first_use.get(value, count), phase)
    placement: dict[int, int] = {}
    next_effect = count
    for index in range(max(owned), min(owned) - 1, -1):
        if index in owned:
            continue
        places = [first_use.get(v, count) for v in graph.ops[index].results]
        places += [placement[u] for v in graph.ops[index].results for u in graph.users[v] if u in placement]
        if has_effect(graph, index):
            next_effect = min([*places, next_effect])
            places = [next_effect]
        placement[index] = min(places, default=count)
        if placement[index] < phases.level[index]:
            return None
    return placement
