"""How an axis passes through an op with blocks: which dimensions of its slots move together, and its ops' versions.

A dimension of one slot is spread through the blocks by the inner ops' rules until nothing is added. Then one pass in
program order finds the forms in which every inner value can be had.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Iterator, Mapping

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph, Op, effects
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.sharding_rules.linear_ops import linear_groups
from stablehlo_mem.sharding_rules.reductions import is_narrow
from stablehlo_mem.sharding_rules.region_edges import PARTIAL, WHOLE, Flow, Form, Passage, Version

Where = tuple[int, int]
"""A block of the op and an op in it."""
_EDGE = (-1, -1)
"""The end of the last block."""


class _Stopped(Exception):
    """An op in a block, or the block's end, that the axis does not pass."""

    def __init__(self, block: Graph, op: int, reason: str, coarser_n: int = 0):
        super().__init__(reason)
        where = " ".join(w for w in (block.ops[op].name, block.source(op)) if w)
        self.reason = reason if op in (-1, len(block.ops) - 1) else f"in it {where}: {reason}"
        self.coarser_n = coarser_n

    @property
    def blocked(self) -> Blocked:
        return Blocked("stopped-inside", self.reason, self.coarser_n)


_Dims = tuple[tuple[int, int], ...]
"""Slots, each with a dimension of it."""


def find_passage(flow: Flow, dims: Mapping[int, int], n: int) -> Passage | Blocked:
    """The passage of an axis of `n` elements along dimensions of slots, and of what moves with them."""
    return _passage(flow, tuple(dims.items()), n)


@cached_analysis
def _passage(flow: Flow, dims: _Dims, n: int) -> Passage | Blocked:
    spread = _spread_from(flow, dims, n)
    if isinstance(spread, Blocked):
        return spread
    try:
        return _Forms(flow, spread).run()
    except _Stopped as stop:
        return stop.blocked


def widest_passage(flow: Flow, edge: int, dimension: int, n: int) -> Passage | Blocked:
    """The passage along a dimension of a slot, and along one of the same size of what has nothing to do with it.

    Else every chunk would go through all of that. It is the same passage from whichever of its slots it is found.
    """
    passage = find_passage(flow, {edge: dimension}, n)
    if isinstance(passage, Blocked):
        return passage
    wider = _widened(flow, passage, flow.shape(edge)[dimension])
    first, form = next((s, form) for s, form in enumerate(wider.forms) if form >= 0)
    if first == edge:
        return wider
    again = find_passage(flow, {first: form}, n)
    again = again if isinstance(again, Blocked) else _widened(flow, again, flow.shape(first)[form])
    return again if isinstance(again, Passage) and again.forms[edge] == dimension else passage


def finest_passage(flow: Flow, edge: int, dimension: int, n: int) -> Passage | Blocked:
    """The passage of `n` elements, or of as many as all on the way can do."""
    while True:
        found = widest_passage(flow, edge, dimension, n)
        if isinstance(found, Passage) or math.gcd(n, found.coarser_n) in (0, 1, n):
            return found
        n = math.gcd(n, found.coarser_n)


@cached_analysis
def _spread_from(flow: Flow, dims: _Dims, n: int) -> _Spread | Blocked:
    spread = _Spread(flow, n)
    try:
        for edge, dimension in dims:
            spread.follow(edge, dimension)
        spread.run()
    except _Stopped as stop:
        return stop.blocked
    return spread


def _widened(flow: Flow, passage: Passage, size: int) -> Passage:
    """A passage, and what else has one dimension of a size and shares nothing with it; no sum is made in parts."""
    mine = _spread_from(flow, tuple(passage.dims.items()), passage.n)
    for edge in range(len(flow.edges)):
        dims = [d for d, extent in enumerate(flow.shape(edge)) if extent == size]
        if passage.forms[edge] >= 0 or len(dims) != 1:
            continue
        other = _spread_from(flow, ((edge, dims[0]),), passage.n)
        if isinstance(mine, Blocked) or isinstance(other, Blocked) or not mine.is_apart(other):
            continue
        wider = find_passage(flow, passage.dims | other.dims, passage.n)
        if isinstance(wider, Passage) and wider.forms.count(PARTIAL) == passage.forms.count(PARTIAL):
            passage, mine = wider, _spread_from(flow, tuple(wider.dims.items()), wider.n)
    return passage


class _Spread:
    """Everything in the blocks that moves with one dimension of one slot.

    Attributes:
        dims: the dimension of each slot that the axis has reached.
        split ops: of each block, by op and by factor.
    """

    def __init__(self, flow: Flow, n: int):
        self.flow, self.n = flow, n
        self.dims: dict[int, int] = {}
        self.split_ops: list[dict[int, dict[int, SplitOp]]] = [{} for _ in flow.blocks]
        self.seen: dict[tuple[int, int, int, bool], int] = {}
        self.queue: deque[tuple[int, int, int, bool]] = deque()

    def run(self) -> None:
        while self.queue:
            block, value, dimension, arrived = self.queue.popleft()
            (self.downstream if arrived else self.upstream)(block, value, dimension)

    def follow(self, edge: int, dimension: int, asked: Where = _EDGE) -> None:
        """A slot is split along a dimension, as an op asked, wherever it is one value."""
        block, op = asked
        if self.dims.setdefault(edge, dimension) != dimension:
            raise _Stopped(self.flow.blocks[block], op, "it would split a value along two of its dimensions")
        if self.flow.shape(edge)[dimension] % self.n:
            # A dimension that merges others may be split in as many parts as the first of them.
            reason, size = "it would split a value more finely than its dimension", self.flow.shape(edge)[dimension]
            raise _Stopped(self.flow.blocks[block], op, reason, size)
        for block, value in self.flow.edges[edge].enters:
            self.note(block, value, dimension, arrived=True)
        for block, value in self.flow.edges[edge].returns:
            self.note(block, value, dimension, arrived=False)

    def note(self, block: int, value: int, dimension: int, *, arrived: bool, op: int = -1) -> None:
        """A value is there by chunk only (`arrived`), or an op needs a chunk of it."""
        item = (block, value, dimension, arrived)
        if item not in self.seen:
            self.seen[item] = op
            self.queue.append(item)

    def is_apart(self, other: _Spread) -> bool:
        """Whether another spread has reached no op and no slot that this one has."""
        ops = ((mine.keys(), others.keys()) for mine, others in zip(self.split_ops, other.split_ops, strict=True))
        return self.dims.keys().isdisjoint(other.dims) and all(a.isdisjoint(b) for a, b in ops)

    def downstream(self, block: int, value: int, dimension: int) -> None:
        """The users of what carries the axis take part."""
        graph = self.flow.blocks[block]
        for user in graph.users[value]:
            if user < len(graph.ops) - 1:
                self.depend(block, self.node_taking(block, user, value, dimension))
                continue
            for edge in self.flow.returning[block].get(value, ()):
                self.follow(edge, dimension, (block, graph.values[value].producer))

    def upstream(self, block: int, value: int, dimension: int) -> None:
        """What makes a value that is needed by chunk takes part if it can; else the value is sliced."""
        graph = self.flow.blocks[block]
        data = graph.values[value]
        if not data.is_computed:
            asking = self.seen[block, value, dimension, False]
            self.follow(self.flow.entering[block][value], dimension, (block, asking))
            return
        split_op = self.flow.placed(block, data.producer, "results", data.result, dimension, self.n)
        if isinstance(split_op, SplitOp):
            self.add(block, split_op)

    def node_taking(self, block: int, op: int, value: int, dimension: int) -> SplitOp:
        """The split op of an op that takes a value along a dimension."""
        graph = self.flow.blocks[block]
        positions = [p for p, v in enumerate(graph.ops[op].inputs) if v == value]
        for split_op in self.split_ops[block].get(op, {}).values():
            if any(split_op.operand_dims[p] == dimension for p in positions):
                return split_op
        tries = [self.flow.placed(block, op, "operands", p, dimension, self.n) for p in positions]
        found = next((t for t in tries if isinstance(t, SplitOp)), None)
        if found is None:
            blocked = next(t for t in tries if isinstance(t, Blocked))
            raise _Stopped(graph, op, blocked.message, blocked.coarser_n)
        return found

    def add(self, block: int, split_op: SplitOp) -> None:
        split_ops = self.split_ops[block].setdefault(split_op.op, {})
        if split_op.factor in split_ops:
            return
        split_ops[split_op.factor] = split_op
        inputs = self.flow.blocks[block].ops[split_op.op].inputs
        for value, dimension in zip(inputs, split_op.operand_dims, strict=True):
            if dimension is not None:
                self.note(block, value, dimension, arrived=False, op=split_op.op)

    def depend(self, block: int, split_op: SplitOp) -> None:
        """A split op on whose operands the axis has arrived."""
        self.add(block, split_op)
        results = self.flow.blocks[block].ops[split_op.op].results
        for value, dimension in zip(results, split_op.result_dims, strict=True):
            if dimension is not None:
                self.note(block, value, dimension, arrived=True)


class _Forms:
    """The forms of every inner value, and the slots whose value is partial, to a fixpoint."""

    def __init__(self, flow: Flow, spread: _Spread):
        self.flow, self.spread = flow, spread
        self.forms = [spread.dims.get(s, WHOLE) for s in range(len(flow.edges))]

    def run(self) -> Passage:
        while True:
            before = list(self.forms)
            versions = tuple(self.block(b) for b in range(len(self.flow.blocks)))
            if self.forms == before:
                return Passage(self.spread.n, tuple(self.forms), versions)

    def block(self, number: int) -> tuple[tuple[Version, ...], ...]:
        """The versions of each op of a block that its values' forms allow."""
        graph = self.flow.blocks[number]
        available = {v: {self.forms[s]} for v, s in self.flow.entering[number].items()}
        found: list[tuple[Version, ...]] = []
        for op in graph.ops[:-1]:
            if op.index in effects(graph):
                raise _Stopped(graph, op.index, "it has side effects")
            versions = [v for v in self.versions(number, op) if _can_run(op, v, available)]
            versions = versions or [v for v in _linear(graph, op) if _can_run(op, v, available)][:1]
            if not versions:
                raise _Stopped(graph, op.index, self.reason(number, op, available))
            for version in versions:
                for value, form in zip(op.results, version.results, strict=True):
                    available.setdefault(value, set()).add(form)
            found.append(tuple(versions))
        self.end(number, graph, available)
        return tuple(found)

    def end(self, number: int, graph: Graph, available: dict[int, set[Form]]) -> None:
        """The returned values are there in the forms of their slots; a sum over the axis makes its slot partial."""
        last = len(graph.ops) - 1
        for value in graph.returned:
            edges = self.flow.returning[number].get(value, ())
            if not edges and not _is_there(value, WHOLE, available):
                raise _Stopped(graph, last, "the condition of the loop depends on the dimension")
            for edge in edges:
                if self.forms[edge] == WHOLE and not _is_there(value, WHOLE, available):
                    self.forms[edge] = PARTIAL
                if not _is_there(value, self.forms[edge], available):
                    raise _Stopped(graph, last, "what one step returns is split otherwise than what it begins with")

    def versions(self, block: int, op: Op) -> Iterator[Version]:
        """How an op may run, were all its operands there; see `_linear` too."""
        yield Version(op.index, None, (WHOLE,) * len(op.inputs), (WHOLE,) * len(op.results))
        for split_op in self.spread.split_ops[block].get(op.index, {}).values():
            if (block, op.index) == (0, self.flow.asks):
                # A chunk goes on as long as any of its own elements does, what an earlier chunk has done among them.
                split_op = dataclasses.replace(split_op, reducing=False)
            if version := self.on_chunk(block, split_op):
                yield version

    def on_chunk(self, block: int, split_op: SplitOp) -> Version | None:
        """A split op as a version; None if its partial results do not just add up."""
        handle = self.flow.blocks[block].handles[split_op.op]
        reduction = self.flow.table.reduction_of(handle.name)
        addends = split_op.addends or (reduction.addends(handle) if reduction and split_op.reducing else ())
        if addends is None or any(is_narrow(handle.results[i].type) for i in split_op.partial):
            return None
        inputs = tuple(
            PARTIAL if p in addends else WHOLE if d is None else d for p, d in enumerate(split_op.operand_dims)
        )
        partial = split_op.partial
        results = tuple(
            d if d is not None else PARTIAL if i in partial else WHOLE for i, d in enumerate(split_op.result_dims)
        )
        return Version(split_op.op, split_op, inputs, results)

    def reason(self, block: int, op: Op, available: dict[int, set[Form]]) -> str:
        """Why an op cannot run on a chunk."""
        if not self.flow.returning[block]:
            return "the condition of the loop depends on the dimension"
        forms = [available.get(v, {WHOLE}) for v in op.inputs]
        if any(PARTIAL in f for f in forms):
            return "it uses a sum over the dimension, which is there after the last chunk only"
        if any(n.reducing for n in self.spread.split_ops[block].get(op.index, {}).values()):
            return "what it makes of the whole dimension cannot be added up chunk by chunk"
        return "it needs the whole of a value that is there by chunk only"


def _linear(graph: Graph, op: Op) -> Iterator[Version]:
    """How an op may run on partial operands. Sums of narrow floats are not kept in parts: each would be rounded."""
    handle = graph.handles[op.index]
    if any(is_narrow(r.type) for r in handle.results):
        return
    for group in linear_groups(handle):
        inputs = tuple(PARTIAL if p in group else WHOLE for p in range(len(op.inputs)))
        yield Version(op.index, None, inputs, (PARTIAL,) * len(op.results))


def _is_there(value: int, form: Form, available: dict[int, set[Form]]) -> bool:
    """Whether a value can be had in a form: what is whole can be sliced, or counted in the first chunk only."""
    forms = available.get(value, {WHOLE})
    return form in forms or WHOLE in forms


def _can_run(op: Op, version: Version, available: dict[int, set[Form]]) -> bool:
    return all(_is_there(v, f, available) for v, f in zip(op.inputs, version.inputs, strict=True))
