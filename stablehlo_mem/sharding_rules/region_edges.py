"""`Region`: an op whose blocks run (while, case, if, manual_computation), with the edges of its blocks' values.

And how an axis passes it: `RegionSplit`, which `region_propagation` finds and `control_flow` emits.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from typing import Literal

from stablehlo_mem.ir.analysis_cache import AnalysisCache
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.manual_computation import MANUAL_COMPUTATION
from stablehlo_mem.sharding_rules.batched_while import own_condition
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.sharding_rules.op_rule import BlockRules, Reduction, Side

WHOLE: Literal["whole"] = "whole"
PARTIAL: Literal["partial"] = "partial"
ChunkForm = int | Literal["whole", "partial"]
"""What a chunk has of a value: its part along a dimension, all of it, or one of the terms of a sum over chunks."""


EdgeDims = tuple[tuple[int, int], ...]
"""Edges, each with a dimension of it."""


@dataclasses.dataclass(frozen=True, slots=True)
class OpVariant:
    """One op of a block, as it runs on a chunk.

    Attributes:
        split_op: how it is split; None: it runs as it is.
        inputs: the forms it takes its operands and captures in.
        results: the forms its results come in.
    """

    op: int
    split_op: SplitOp | None
    inputs: tuple[ChunkForm, ...]
    results: tuple[ChunkForm, ...]


@dataclasses.dataclass(frozen=True)
class RegionSplit:
    """A region split along an axis of `n` elements.

    Attributes:
        forms: of each edge.
        variants: for each block, those of each of its ops; an op may have several.
    """

    n: int
    forms: tuple[ChunkForm, ...]
    variants: tuple[tuple[tuple[OpVariant, ...], ...], ...]

    @property
    def dims(self) -> EdgeDims:
        """The dimension of each edge that is split."""
        return tuple((edge, form) for edge, form in enumerate(self.forms) if isinstance(form, int))


class Region:
    """An op with blocks that run, its edges, and the rules of the ops inside.

    Attributes:
        entering: for each block, the edge of each argument and captured value.
        returning: for each block, the edges that a value is returned to.
        parts: of the axes, see `RuleBook.within`.
        shares: of an axis, each of which one run of the blocks has: the blocks of a manual computation run on every
            device, on its part of each value.
        as_it_lies: whether an axis passes only along dimensions that lie in so many shares.
        cache: the results of its analyses.
    """

    def __init__(self, rules: BlockRules, op: int, *, as_it_lies: bool = True):
        edges = rules.op_rules[rules.graph.ops[op].name].edges
        assert edges is not None
        self.graph, self.op, self.op_rules = rules.graph, rules.graph.ops[op], rules.op_rules
        self.edges, self.blocks = edges(self.op), self.op.blocks
        self.cache = AnalysisCache()
        self.parts, self.as_it_lies = rules.parts, as_it_lies
        self.shares = self.parts if self.op.name == MANUAL_COMPUTATION else 1
        self.rules = tuple(rules.of_block(block, self.parts // self.shares) for block in self.blocks)
        self.entering: list[dict[int, int]] = [{} for _ in self.blocks]
        self.returning: list[dict[int, list[int]]] = [{} for _ in self.blocks]
        for number, edge in enumerate(self.edges):
            for block, value in edge.enters:
                self.entering[block][value] = number
            for block, value in edge.returns:
                self.returning[block].setdefault(value, []).append(number)

    @functools.cached_property
    def own_condition(self) -> int | None:
        """The op of a loop's condition that asks whether any element continues, where each stops by itself."""
        return own_condition(self.op) if self.op.name == "stablehlo.while" else None

    def split(self, block: int, op: int, side: Side, position: int, dimension: int, n: int) -> SplitOp | Blocked:
        """An op in a block split along a dimension of one of its inputs or results, if its chunks are independent."""
        split_op = self.rules[block].split(op, side, position, dimension, n)
        if isinstance(split_op, SplitOp) and not split_op.is_local:
            why = "it goes on from chunk to chunk" if split_op.cumulative else "neighbouring positions are needed"
            return Blocked("needs-whole-dimension", why)
        return split_op

    def reduction(self, name: str) -> Reduction | None:
        """How the partial results of an op of this name combine."""
        op_rule = self.op_rules.get(name)
        return op_rule.reduction if op_rule else None

    def edge_at(self, side: Side, position: int) -> int | None:
        """The edge of one of the op's inputs or results; None where there is none, as for the index of a case."""
        return self._edge_at.get((side, position))

    @functools.cached_property
    def _edge_at(self) -> dict[tuple[Side, int | None], int]:
        """The edge of each input and result."""
        found: dict[tuple[Side, int | None], int] = {}
        for number, edge in enumerate(self.edges):
            found.setdefault(("operands", edge.operand), number)
            found.setdefault(("results", edge.result), number)
        return found

    def returned_forms(self, split: RegionSplit, number: int) -> list[ChunkForm]:
        """The forms in which a block returns its values.

        One value may be returned as several results, in another form for each; what a condition returns is none.
        """
        edges = {edge.result: e for e, edge in enumerate(self.edges) if self.returning[number]}
        return [split.forms[edges[r]] if edges else WHOLE for r in range(len(self.blocks[number].returned))]

    def needed(self, split: RegionSplit, number: int) -> list[OpVariant]:
        """The variants of a block's ops that the returned values depend on, in program order."""
        block, needed = self.blocks[number], list[OpVariant]()
        demands: defaultdict[int, set[ChunkForm]] = defaultdict(set)
        for value, form in zip(block.returned, self.returned_forms(split, number), strict=True):
            demands[value].add(form)
        for op, variants in zip(reversed(block.ops[:-1]), reversed(split.variants[number]), strict=True):
            of_op: dict[OpVariant, None] = {}
            for position, value in enumerate(op.results):
                for form in sorted(demands[value], key=str):
                    matches = [v for v in variants if v.results[position] == form]
                    of_op[(matches or [v for v in variants if v.results[position] == WHOLE])[0]] = None
            for variant in of_op:
                for value, form in zip(op.inputs, variant.inputs, strict=True):
                    demands[value].add(form)
            needed += of_op
        return needed[::-1]

    def shape(self, number: int) -> tuple[int, ...]:
        """The shape of an edge's value in the blocks."""
        edge = self.edges[number]
        block, value = next(iter((*edge.enters, *edge.returns)))
        return self.blocks[block].values[value].shape

    def is_shared(self, number: int, dimension: int) -> bool:
        """Whether runs of the blocks have equal shares of an edge's dimension, as many as the axis has."""
        return not self.as_it_lies or self.parts_of(number, dimension) == self.shares

    def parts_of(self, number: int, dimension: int) -> int:
        """In how many parts an edge's dimension lies outside the blocks."""
        edge = self.edges[number]
        if edge.operand is not None:
            outer = self.op.inputs[edge.operand]
        else:
            assert edge.result is not None
            outer = self.op.results[edge.result]
        return self.graph.values[outer].shape[dimension] // max(1, self.shape(number)[dimension])
