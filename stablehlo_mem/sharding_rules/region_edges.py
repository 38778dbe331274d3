"""An op with blocks that run, as values flow through it: its slots, and the forms in which a chunk has its values."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Literal, Protocol

from stablehlo_mem.ir.analysis_cache import AnalysisCache
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.sharding_rules.batched_while import own_condition
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.sharding_rules.op_rule import OpRule, Reduction

WHOLE, PARTIAL = -1, -2
Form = int
"""What there is of a value in a chunk: a dimension along which it is the chunk; WHOLE; PARTIAL, a part of a sum."""

Side = Literal["operands", "results"]


class Book(Protocol):
    """The factor rules of a block's ops."""

    def placed(self, op: int, side: Side, position: int, dimension: int, n: int) -> SplitOp | Blocked:
        """An op split along a dimension of one of its inputs or results."""
        ...


@dataclasses.dataclass(frozen=True)
class Table:
    """What an op with blocks asks of the rules table: the rules of the ops in it, and their reductions."""

    book_of: Callable[[Graph], Book]
    reduction_of: Callable[[str], Reduction | None]


@dataclasses.dataclass(frozen=True, slots=True)
class Version:
    """One op of a block, as it runs on a chunk.

    Attributes:
        split_op: how it is split; None: it runs as it is.
        inputs: the forms it takes its operands and captures in.
        results: the forms its results come in.
    """

    op: int
    split_op: SplitOp | None
    inputs: tuple[Form, ...]
    results: tuple[Form, ...]


@dataclasses.dataclass(frozen=True)
class Passage:
    """An axis of `n` elements through an op with blocks.

    Attributes:
        forms: of each slot.
        versions: for each block, those of each of its ops; an op may have several.
    """

    n: int
    forms: tuple[Form, ...]
    versions: tuple[tuple[tuple[Version, ...], ...], ...]

    @property
    def dims(self) -> dict[int, int]:
        """The dimension of each slot that is split."""
        return {edge: form for edge, form in enumerate(self.forms) if form >= 0}


class Flow:
    """An op with blocks, where its slots come in and go out, and the rules of the ops inside.

    Attributes:
        entering: for each block, the slot of each argument and captured value.
        returning: for each block, the slots that a value is returned to.
        cache: the results of its analyses.
    """

    def __init__(self, graph: Graph, op: int, row: OpRule, table: Table):
        assert row.edges is not None
        self.graph, self.op, self.edges, self.table = graph, graph.ops[op], row.edges(graph.ops[op]), table
        self.blocks = self.op.blocks
        self.cache = AnalysisCache()
        self.books = tuple(table.book_of(block) for block in self.blocks)
        self.entering: list[dict[int, int]] = [{} for _ in self.blocks]
        self.returning: list[dict[int, list[int]]] = [{} for _ in self.blocks]
        for number, edge in enumerate(self.edges):
            for block, value in edge.enters:
                self.entering[block][value] = number
            for block, value in edge.returns:
                self.returning[block].setdefault(value, []).append(number)

    @functools.cached_property
    def asks(self) -> int | None:
        """The op of a loop's condition that asks whether any element goes on, where each stops by itself."""
        return own_condition(self.op) if self.op.name == "stablehlo.while" else None

    def placed(self, block: int, op: int, side: Side, position: int, dimension: int, n: int) -> SplitOp | Blocked:
        """An op in a block split along a dimension of one of its inputs or results, if chunks do not need others."""
        split_op = self.books[block].placed(op, side, position, dimension, n)
        if isinstance(split_op, SplitOp) and not split_op.is_local:
            why = "it goes on from chunk to chunk" if split_op.cumulative else "neighbouring positions are needed"
            return Blocked("needs-whole-dimension", why)
        return split_op

    def slot_at(self, side: Side, position: int) -> int | None:
        """The slot of one of the op's inputs or results; None of what only decides, as the index of a case."""
        places = ((s.operand if side == "operands" else s.result) for s in self.edges)
        return next((number for number, place in enumerate(places) if place == position), None)

    def shape(self, edge: int) -> tuple[int, ...]:
        """The shape of what a slot holds."""
        one = self.edges[edge]
        if one.operand is not None:
            return self.graph.values[self.op.inputs[one.operand]].shape
        assert one.result is not None
        return self.graph.values[self.op.results[one.result]].shape
