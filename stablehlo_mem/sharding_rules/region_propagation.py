"""Propagates an axis through an op with regions: which dimensions of its edges are split together, and how its ops run.

From a dimension of one edge the axis is propagated through the blocks by the inner ops' rules to a fixpoint. Then one
pass in program order finds the forms in which each inner value is available. `region_rule` makes a factor rule of the
result, `control_flow` emits it.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Container, Iterator, Sequence

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph, Op, effects
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.sharding_rules.linear_ops import linear_groups
from stablehlo_mem.sharding_rules.reductions import is_narrow
from stablehlo_mem.sharding_rules.region_edges import (
    PARTIAL,
    WHOLE,
    ChunkForm,
    EdgeDims,
    OpVariant,
    Region,
    RegionSplit,
)

_BlockOp = tuple[int, int]
"""A block of the region and an op in it."""
_END: _BlockOp = (-1, -1)
"""The end of the last block."""


class _Stopped(Exception):
    """An op in a block, or the block's end, through which the axis cannot be propagated."""

    def __init__(self, block: Graph, op: int, reason: str, coarser_n: int = 0):
        super().__init__(reason)
        where = " ".join(w for w in (block.ops[op].name, block.source(op)) if w)
        message = reason if op in (-1, len(block.ops) - 1) else f"in it {where}: {reason}"
        self.blocked = Blocked("stopped-inside", message, coarser_n)


@cached_analysis
def split_region(region: Region, dims: EdgeDims, n: int) -> RegionSplit | Blocked:
    """A region split into `n` along dimensions of edges, and of the edges they propagate to.

    Of an axis with several shares (`Region.shares`) `n` is what one of them has.
    """
    propagation = _propagated(region, dims, n)
    if isinstance(propagation, Blocked):
        return propagation
    try:
        return _FormAnalysis(region, propagation).run()
    except _Stopped as stop:
        return stop.blocked


def split_of(region: Region, split_op: SplitOp) -> RegionSplit:
    """The split of a region that a split op was made of.

    Raises:
        ValueError: there is none, see `find_split`.
    """
    split = find_split(region, split_op)
    if isinstance(split, Blocked):
        raise ValueError(split.message)
    return split


def find_split(region: Region, split_op: SplitOp) -> RegionSplit | Blocked:
    """The split of a region that a split op was made of, or why it is not found.

    Where an inner loop's value can be split along either of two dimensions, which of them it is depends on what was
    asked for first.
    """
    dims: list[tuple[int, int]] = []
    for number, edge in enumerate(region.edges):
        if edge.result is not None:
            dimension = split_op.result_dims[edge.result]
        else:
            assert edge.operand is not None
            dimension = split_op.operand_dims[edge.operand]
        if dimension is not None:
            dims.append((number, dimension))
    n = split_op.n // region.shares
    split = split_region(region, tuple(dims), n)
    if isinstance(split, RegionSplit):
        return split
    # From all its edges at once an op that could be split in two ways may be reached the other way round.
    found = (_widest_split(region, edge, dimension, n) for edge, dimension in dims)
    same = (one for one in found if isinstance(one, RegionSplit) and one.dims == tuple(dims))
    return next(same, split)


def _widest_split(region: Region, edge: int, dimension: int, n: int) -> RegionSplit | Blocked:
    """The split along a dimension of an edge, and along one of the same size of each unrelated edge.

    Else every chunk would repeat the work on those. It is the same split from whichever of its edges it is found.
    """
    split = split_region(region, ((edge, dimension),), n)
    if isinstance(split, Blocked):
        return split
    wider = _widened(region, split, region.shape(edge)[dimension])
    first, first_dimension = wider.dims[0]
    if first == edge:
        return wider
    again = split_region(region, ((first, first_dimension),), n)
    if isinstance(again, RegionSplit):
        again = _widened(region, again, region.shape(first)[first_dimension])
    return again if isinstance(again, RegionSplit) and again.forms[edge] == dimension else split


def finest_split(region: Region, edge: int, dimension: int, n: int) -> RegionSplit | Blocked:
    """The widest split into `n`, or else into the most parts that divide `n` and that all its ops allow."""
    while True:
        split = _widest_split(region, edge, dimension, n)
        if isinstance(split, RegionSplit) or math.gcd(n, split.coarser_n) in (0, 1, n):
            return split
        n = math.gcd(n, split.coarser_n)


@cached_analysis
def _propagated(region: Region, dims: EdgeDims, n: int) -> _Propagation | Blocked:
    propagation = _Propagation(region, n)
    try:
        for edge, dimension in dims:
            propagation.follow(edge, dimension)
        propagation.run()
    except _Stopped as stop:
        return stop.blocked
    return propagation


def _widened(region: Region, split: RegionSplit, size: int) -> RegionSplit:
    """A split, and that of unrelated edges with one dimension of this size, as long as no sum becomes partial."""
    propagation = _propagated(region, split.dims, split.n)
    for edge in range(len(region.edges)):
        dims = [d for d, extent in enumerate(region.shape(edge)) if extent == size]
        if isinstance(split.forms[edge], int) or len(dims) != 1:
            continue
        other = _propagated(region, ((edge, dims[0]),), split.n)
        if isinstance(propagation, Blocked) or isinstance(other, Blocked) or not propagation.is_disjoint(other):
            continue
        wider = split_region(region, (*split.dims, *other.dims.items()), split.n)
        if isinstance(wider, RegionSplit) and wider.forms.count(PARTIAL) == split.forms.count(PARTIAL):
            split, propagation = wider, _propagated(region, wider.dims, wider.n)
    return split


class _Propagation:
    """What of a region is split together with dimensions of its edges.

    Attributes:
        dims: the dimension of each edge that the axis has reached.
        split_ops: of each block, by op and by factor.
        requests: (block, value, dimension, is split): the op that asked for it, -1 if none did. A value that is split
            exists by chunk only; any other may also be sliced where an op reads a chunk of it.
    """

    def __init__(self, region: Region, n: int):
        self.region, self.n = region, n
        self.dims: dict[int, int] = {}
        self.split_ops: list[dict[int, dict[int, SplitOp]]] = [{} for _ in region.blocks]
        self.requests: dict[tuple[int, int, int, bool], int] = {}
        self.queue: deque[tuple[int, int, int, bool]] = deque()

    def run(self) -> None:
        while self.queue:
            block, value, dimension, is_split = self.queue.popleft()
            (self.downstream if is_split else self.upstream)(block, value, dimension)

    def follow(self, edge: int, dimension: int, requester: _BlockOp = _END) -> None:
        """Splits an edge along a dimension, in every block that it enters or that returns it."""
        block, op = requester
        if self.dims.setdefault(edge, dimension) != dimension:
            raise _Stopped(self.region.blocks[block], op, "it would split a value along two of its dimensions")
        if not self.region.is_shared(edge, dimension):
            raise _Stopped(self.region.blocks[block], op, "devices have other parts of a value that it would split")
        if self.region.shape(edge)[dimension] % self.n:
            # A merged dimension can be split into as many parts as its major factor.
            reason, size = "it would split a value more finely than its dimension", self.region.shape(edge)[dimension]
            raise _Stopped(self.region.blocks[block], op, reason, size)
        for block, value in self.region.edges[edge].enters:
            self.request(block, value, dimension, is_split=True)
        for block, value in self.region.edges[edge].returns:
            self.request(block, value, dimension, is_split=False)

    def request(self, block: int, value: int, dimension: int, *, is_split: bool, op: int = -1) -> None:
        """A value is split, or an op reads a chunk of it."""
        item = (block, value, dimension, is_split)
        if item not in self.requests:
            self.requests[item] = op
            self.queue.append(item)

    def is_disjoint(self, other: _Propagation) -> bool:
        """Whether another propagation has reached no op and no edge that this one has."""
        pairs = zip(self.split_ops, other.split_ops, strict=True)
        return self.dims.keys().isdisjoint(other.dims) and all(a.keys().isdisjoint(b) for a, b in pairs)

    def downstream(self, block: int, value: int, dimension: int) -> None:
        """Splits the users of a split value."""
        graph = self.region.blocks[block]
        for user in graph.users[value]:
            if user < len(graph.ops) - 1:
                self.add_user(block, self.split_user(block, user, value, dimension))
                continue
            for edge in self.region.returning[block].get(value, ()):
                self.follow(edge, dimension, (block, graph.values[value].producer))

    def upstream(self, block: int, value: int, dimension: int) -> None:
        """Splits the producer of a value that is read by chunk, if it can be; else the value is sliced."""
        graph = self.region.blocks[block]
        data = graph.values[value]
        if not data.is_computed:
            requester = self.requests[block, value, dimension, False]
            self.follow(self.region.entering[block][value], dimension, (block, requester))
            return
        split_op = self.region.split(block, data.producer, "results", data.result, dimension, self.n)
        if isinstance(split_op, SplitOp):
            self.add(block, split_op)

    def split_user(self, block: int, op: int, value: int, dimension: int) -> SplitOp:
        """An op that uses a split value, split so that it reads it along this dimension."""
        graph = self.region.blocks[block]
        positions = [p for p, v in enumerate(graph.ops[op].inputs) if v == value]
        for split_op in self.split_ops[block].get(op, {}).values():
            if any(split_op.operand_dims[p] == dimension for p in positions):
                return split_op
        tries = [self.region.split(block, op, "operands", p, dimension, self.n) for p in positions]
        for split_op in tries:
            if isinstance(split_op, SplitOp):
                return split_op
        blocked = next(t for t in tries if isinstance(t, Blocked))
        raise _Stopped(graph, op, blocked.message, blocked.coarser_n)

    def add(self, block: int, split_op: SplitOp) -> None:
        split_ops = self.split_ops[block].setdefault(split_op.op, {})
        if split_op.factor in split_ops:
            return
        split_ops[split_op.factor] = split_op
        inputs = self.region.blocks[block].ops[split_op.op].inputs
        for value, dimension in zip(inputs, split_op.operand_dims, strict=True):
            if dimension is not None:
                self.request(block, value, dimension, is_split=False, op=split_op.op)

    def add_user(self, block: int, split_op: SplitOp) -> None:
        """Adds a split op that reads a split value: its results are split, too."""
        self.add(block, split_op)
        results = self.region.blocks[block].ops[split_op.op].results
        for value, dimension in zip(results, split_op.result_dims, strict=True):
            if dimension is not None:
                self.request(block, value, dimension, is_split=True)


class _FormAnalysis:
    """The forms of every inner value, and the edges whose value is partial, to a fixpoint."""

    def __init__(self, region: Region, propagation: _Propagation):
        self.region, self.propagation = region, propagation
        self.forms: list[ChunkForm] = [propagation.dims.get(s, WHOLE) for s in range(len(region.edges))]

    def run(self) -> RegionSplit:
        while True:
            before = list(self.forms)
            variants = tuple(self.block(b) for b in range(len(self.region.blocks)))
            if self.forms == before:
                return RegionSplit(self.propagation.n, tuple(self.forms), variants)

    def block(self, number: int) -> tuple[tuple[OpVariant, ...], ...]:
        """The variants of each op of a block for which its operands are available."""
        graph, split_ops = self.region.blocks[number], self.propagation.split_ops[number]
        available: dict[int, set[ChunkForm]] = {
            v: {self.forms[s]} for v, s in self.region.entering[number].items() if self.forms[s] != WHOLE
        }
        block_variants: list[tuple[OpVariant, ...]] = []
        whole, with_effects = _whole_variants(graph), effects(graph)
        for op in graph.ops[:-1]:
            if op.index in with_effects:
                raise _Stopped(graph, op.index, "it has side effects")
            if op.index not in split_ops and not any(v in available for v in op.inputs):
                block_variants.append((whole[op.index],))  # most ops: the axis does not reach them
                continue
            variants = [v for v in self.variants(number, op) if _can_run(op, v, available)]
            variants = variants or [v for v in _linear_variants(graph, op) if _can_run(op, v, available)][:1]
            if not variants:
                raise _Stopped(graph, op.index, self.reason(number, op, available))
            for variant in variants:
                for value, form in zip(op.results, variant.results, strict=True):
                    available.setdefault(value, set()).add(form)
            block_variants.append(tuple(variants))
        self.end(number, graph, available)
        return tuple(block_variants)

    def end(self, number: int, graph: Graph, available: dict[int, set[ChunkForm]]) -> None:
        """Checks that returned values are available in their edges' forms; a partial sum makes its edge partial."""
        last = len(graph.ops) - 1
        for value in graph.returned:
            edges = self.region.returning[number].get(value, ())
            if not edges and not _is_available(value, WHOLE, available):
                raise _Stopped(graph, last, "the condition of the loop depends on the dimension")
            for edge in edges:
                if self.forms[edge] == WHOLE and not _is_available(value, WHOLE, available):
                    self.forms[edge] = PARTIAL
                if not _is_available(value, self.forms[edge], available):
                    raise _Stopped(graph, last, "what one step returns is split otherwise than what it begins with")

    def variants(self, block: int, op: Op) -> Iterator[OpVariant]:
        """The ways an op could run on a chunk; see `_linear_variants` too."""
        yield _whole_variants(self.region.blocks[block])[op.index]
        for split_op in self.propagation.split_ops[block].get(op.index, {}).values():
            if (block, op.index) == (0, self.region.own_condition):
                # A chunk continues as long as any of its own elements does, those it shares with others included.
                split_op = dataclasses.replace(split_op, reducing=False)
            if variant := self.on_chunk(block, split_op):
                yield variant

    def on_chunk(self, block: int, split_op: SplitOp) -> OpVariant | None:
        """A split op as a variant; None if the whole is not the sum of its partial results."""
        handle = self.region.blocks[block].handles[split_op.op]
        reduction = self.region.reduction(handle.name)
        inits = split_op.init_operands
        if not inits and reduction is not None and split_op.reducing:
            inits = reduction.init_operands(handle)
        if inits is None or any(is_narrow(handle.results[i].type) for i in split_op.partial):
            return None
        inputs = _forms(split_op.operand_dims, inits)
        results = _forms(split_op.result_dims, split_op.partial)
        return OpVariant(split_op.op, split_op, inputs, results)

    def reason(self, block: int, op: Op, available: dict[int, set[ChunkForm]]) -> str:
        """Why an op cannot run on a chunk."""
        if not self.region.returning[block]:
            return "the condition of the loop depends on the dimension"
        forms = [available.get(v, {WHOLE}) for v in op.inputs]
        if any(PARTIAL in f for f in forms):
            return "it uses a sum over the dimension, which is there after the last chunk only"
        if any(n.reducing for n in self.propagation.split_ops[block].get(op.index, {}).values()):
            return "what it makes of the whole dimension cannot be added up chunk by chunk"
        return "it needs the whole of a value that is there by chunk only"


@cached_analysis
def _whole_variants(graph: Graph) -> tuple[OpVariant, ...]:
    """Each op of a block as it runs on whole values."""
    return tuple(OpVariant(op.index, None, (WHOLE,) * len(op.inputs), (WHOLE,) * len(op.results)) for op in graph.ops)


def _forms(dims: Sequence[int | None], partial: Container[int]) -> tuple[ChunkForm, ...]:
    return tuple(PARTIAL if i in partial else WHOLE if d is None else d for i, d in enumerate(dims))


def _linear_variants(graph: Graph, op: Op) -> Iterator[OpVariant]:
    """The ways an op can run on partial operands. Sums of narrow floats are never partial: each would be rounded."""
    handle = graph.handles[op.index]
    if any(is_narrow(r.type) for r in handle.results):
        return
    for group in linear_groups(handle):
        inputs: tuple[ChunkForm, ...] = tuple(PARTIAL if p in group else WHOLE for p in range(len(op.inputs)))
        yield OpVariant(op.index, None, inputs, (PARTIAL,) * len(op.results))


def _is_available(value: int, form: ChunkForm, available: dict[int, set[ChunkForm]]) -> bool:
    """Whether a value is available in a form: a whole one is in any, sliced, or as zeros but in the first chunk."""
    forms = available.get(value, {WHOLE})
    return form in forms or WHOLE in forms


def _can_run(op: Op, variant: OpVariant, available: dict[int, set[ChunkForm]]) -> bool:
    return all(_is_available(v, f, available) for v, f in zip(op.inputs, variant.inputs, strict=True))
