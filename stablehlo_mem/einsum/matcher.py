"""Finds products: from a root through values without other users to the factors that these are computed from.

The passes `contractions` and `matmul-chain` call `collect`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from stablehlo_mem.einsum.contraction_order import Labels, Piece, bits, joined, label_mask
from stablehlo_mem.einsum.labelled_walk import LabelledWalk
from stablehlo_mem.einsum.terms import Factor, Product, Scaling, Spread, Terms
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import FLOATS, Graph, Op, dtype_bytes
from stablehlo_mem.ir.matchers import adds, identity_mask_dims, is_alone, splat_value, starts_at_zero
from stablehlo_mem.ir.view_chains import view_of

_ELEMENTS = FLOATS | frozenset({"i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64"})
_MAX_FACTORS = 96
"""Factors of a product. The largest limits are far above what programs have: they bound the time of a search."""
_MAX_LEVEL = 96
"""Ops above each other that are collected."""
_MAX_DEPTH = 3
"""Additions within additions whose terms are collected."""
_MAX_COUNT = {1: 2**7 - 1, 2: 2**8}
"""Up to this integers are exact in element types of so many bytes; in wider ones up to 2**24."""
_SCALING = frozenset({"stablehlo.multiply", "stablehlo.divide", "stablehlo.negate"})


@cached_analysis
def collect(graph: Graph, root: int, terms: Terms = (), shared: frozenset[int] = frozenset()) -> Product | None:
    """The product that an op is the root of.

    Args:
        terms: of these additions take only the left (0) or right (1) term.
        shared: also go through the results of these ops although others need them.
    """
    value = graph.values[graph.ops[root].results[0]]
    if value.dtype not in _ELEMENTS or not all(value.shape):
        return None
    matcher = _ProductMatcher(graph, value.dtype, value.shape, terms, shared)
    part = matcher.enter(graph.ops[root], matcher.out)
    return None if part is None else matcher.product(root, part)


@dataclasses.dataclass(frozen=True)
class _Part:
    """What a collected op computes, and what that costs in the program's order.

    Attributes:
        before: the peak without the result.
        inputs: bytes of what the result is computed from, if a sum of it need not have it in memory; else None.
    """

    piece: Piece
    before: int
    inputs: int | None = None


class _ProductMatcher(LabelledWalk):
    """Collects one product. `same` has the labels that turned out to be another one, `depth` the additions around."""

    def __init__(
        self,
        graph: Graph,
        element: str,
        shape: tuple[int, ...],
        terms: Terms,
        shared: frozenset[int],
        depth: int = 0,
    ):
        super().__init__(graph)
        self.element, self.terms, self.shared, self.depth = element, terms, shared, depth
        self.out = self.fresh(shape)
        self.kept = frozenset(label for label in self.out if label is not None)
        self.same: dict[int, int] = {}
        self.factors: list[Factor] = []
        self.scalings: list[Scaling] = []
        self.ops: list[int] = []
        self.masked = self.negative = self.has_matmul = False
        self.level = self.multiplied = 0

    def product(self, root: int, part: _Part) -> Product | None:
        """What was collected, the labels that turned out to be the same made one."""
        factors = [self.resolved(factor) for factor in self.factors]
        used = {label for f in factors for label in f.labels} | set(self.kept)
        count = math.prod(size for i, size in enumerate(self.sizes) if i not in used and i not in self.same)
        if not factors or count > _MAX_COUNT.get(int(dtype_bytes(self.element)), 2**24):
            return None
        if count > 1:
            # A label that no factor has is summed over all the same.
            self.scalings.append(Scaling("multiply", tuple(range(len(factors))), None, count))
        return Product(
            root=root,
            element=self.element,
            sizes=tuple(self.sizes),
            out=self.out,
            factors=tuple(self.with_diagonal(f) for f in factors),
            scalings=tuple(self.scalings),
            ops=tuple(self.ops),
            written=Piece(part.piece.labels, part.piece.flops, part.before),
            masked=self.masked,
            negative=self.negative,
            has_matmul=self.has_matmul,
            terms=self.terms,
            shared=self.shared,
            like=self.common_dot(),
        )

    def resolved(self, factor: Factor) -> Factor:
        labels = tuple(None if label is None else self.same.get(label, label) for label in factor.labels)
        return dataclasses.replace(
            factor, labels=labels, ready=dataclasses.replace(factor.ready, labels=label_mask(labels))
        )

    def with_diagonal(self, factor: Factor) -> Factor:
        """A factor of which only the diagonal is needed costs what it takes to read that."""
        labels = [label for label in factor.labels if label is not None]
        if len(labels) == len(set(labels)):
            return factor
        ready, nbytes = factor.ready, self.nbytes(factor.ready.labels)
        flops = ready.flops + math.prod(self.sizes[label] for label in labels)
        piece = Piece(ready.labels, flops, max(ready.peak_bytes, ready.nbytes + nbytes), nbytes)
        return dataclasses.replace(factor, ready=piece)

    def common_dot(self) -> int | None:
        """A matmul with whose precision all others agree."""
        dots = [op for op in self.ops if self.graph.ops[op].name == "stablehlo.dot_general"]
        attributes = {str(self.graph.handles[op].attributes.get("precision_config", None)) for op in dots}
        return dots[0] if len(attributes) == 1 else None

    def visit(self, spread: Spread) -> _Part:
        """Collects a value: its producer if that is a part of the product, else the value as a factor."""
        source = self.through_views(spread)
        op = self.graph.producer(source.value)
        shared: int | None = None
        if op is not None and op.name in PARTS and len(self.factors) < _MAX_FACTORS:
            if op.index in self.shared or is_alone(self.graph, spread.value, source.value):
                part = self.enter(op, source.labels)
                if part is not None:
                    return part
            elif self.is_scaled_matmul(op):
                shared = op.index
        piece = Piece(label_mask(source.labels))
        self.factors.append(Factor(source.value, source.labels, piece, shared=shared))
        return _Part(piece, 0)

    def is_scaled_matmul(self, op: Op | None) -> bool:
        """Whether an op is a matmul, or scales one."""
        while op is not None and op.name != "stablehlo.dot_general":
            if op.name not in _SCALING or any(self.scalar(v) is None for v in op.operands[1:]):
                return False
            op = self.graph.producer(view_of(self.graph, op.operands[0]).source)
        return op is not None

    def enter(self, op: Op, labels: Labels) -> _Part | None:
        """Collects an op, None if it is no part after all."""
        collect_op = PARTS.get(op.name)
        if collect_op is None or self.level >= _MAX_LEVEL:
            return None
        self.level += 1
        part = collect_op(self, op, labels)
        self.level -= 1
        if part is not None:
            self.ops.append(op.index)
        return part

    def nbytes(self, labels: int, element: str | None = None) -> int:
        return self.elements(labels) * int(dtype_bytes(element or self.element))

    def elements(self, labels: int) -> int:
        return math.prod([self.sizes[label] for label in bits(labels)])

    def join(self, op: Op, a: Piece, b: Piece, labels: int, *, fusible: bool) -> _Part:
        nbytes = self.nbytes(labels, self.graph.values[op.results[0]].dtype)
        piece, _ = joined(self.elements, a, b, labels, 0)
        before, inputs = piece.peak_bytes, a.nbytes + b.nbytes
        peak = max(before, inputs + nbytes)
        return _Part(Piece(labels, piece.flops, peak, nbytes), before, inputs if fusible else None)

    def dot(self, op: Op, labels: Labels) -> _Part | None:
        left, right, result = (self.graph.values[v] for v in (*op.operands[:2], op.results[0]))
        if not left.dtype == right.dtype == result.dtype or not all((*left.shape, *right.shape)):
            return None
        if self.graph.handles[op.index].attributes.get("algorithm", None) is not None:
            return None
        self.has_matmul = True
        a, b = map(self.dot_operand, self.operands(op, labels))
        return self.join(op, a, b, label_mask(labels), fusible=False)

    def dot_operand(self, spread: Spread) -> Piece:
        """An operand of a matmul: a broadcast is not fused."""
        self.multiplied += 1
        piece = self.visit(spread).piece
        self.multiplied -= 1
        broadcast = label_mask(spread.labels)
        return piece if piece.labels == broadcast else self.stored(piece, broadcast, spread.value)

    def stored(self, piece: Piece, labels: int, value: int) -> Piece:
        """A piece spread over labels, as a value has it."""
        nbytes = self.nbytes(labels, self.graph.values[value].dtype)
        return Piece(labels, piece.flops, max(piece.peak_bytes, piece.nbytes + nbytes), nbytes)

    def multiply(self, op: Op, labels: Labels) -> _Part | None:
        for one, other in (op.operands, op.operands[::-1]):
            scale = self.scalar(other)
            if scale is not None:
                return self.scaled("multiply", one, labels, scale)
        for one, other in (op.operands, op.operands[::-1]):
            if self.unify(other, labels):
                self.masked = True
                return self.diagonal(op, one, labels)
        self.multiplied += 1
        a, b = map(self.visit, self.operands(op, labels))
        self.multiplied -= 1
        return self.join(op, a.piece, b.piece, a.piece.labels | b.piece.labels, fusible=True)

    def divide(self, op: Op, labels: Labels) -> _Part | None:
        scale = self.scalar(op.operands[1]) if self.element in FLOATS else None
        return None if scale is None else self.scaled("divide", op.operands[0], labels, scale)

    def negate(self, op: Op, labels: Labels) -> _Part | None:
        return self.scaled("negate", op.operands[0], labels, None)

    def scaled(self, kind: str, value: int, labels: Labels, by: int | None) -> _Part:
        first = len(self.factors)
        part = self.visit(Spread(value, labels))
        if by is None or splat_value(self.graph, by) != 1:
            self.scalings.append(Scaling(kind, tuple(range(first, len(self.factors))), by))
        return part

    def scalar(self, value: int) -> int | None:
        """The value whose every element is what a value is filled with, None if that is not one number."""
        source = view_of(self.graph, value).source
        if math.prod(self.graph.values[source].shape) == 1:
            return source
        return None if splat_value(self.graph, source) is None else source

    def reduce(self, op: Op, labels: Labels) -> _Part | None:
        if len(op.operands) != 2 or not adds(op.blocks[0]) or not starts_at_zero(self.graph, op):
            return None
        part = self.visit(*self.operands(op, labels))
        piece = part.piece
        kept = piece.labels & label_mask(labels)
        if kept == piece.labels:
            return part
        inputs = piece.nbytes if part.inputs is None else part.inputs
        before = piece.peak_bytes if part.inputs is None else part.before
        nbytes = self.nbytes(kept, self.graph.values[op.results[0]].dtype)
        flops = piece.flops + self.elements(piece.labels)
        return _Part(Piece(kept, flops, max(before, inputs + nbytes), nbytes), before, inputs)

    def convert(self, op: Op, labels: Labels) -> _Part | None:
        """A conversion to a wider type, to compute in that from the start, or to the same."""
        before, after = (self.graph.values[v].dtype for v in (op.operands[0], op.results[0]))
        return self.visit(*self.operands(op, labels)) if before == after or self.widens(op) else None

    def select(self, op: Op, labels: Labels) -> _Part | None:
        """Everything off a diagonal is zero: two labels are one."""
        mask, value, other = op.operands
        if splat_value(self.graph, other) != 0 or not self.unify(mask, labels):
            return None
        self.masked |= self.multiplied > 0
        return self.diagonal(op, value, labels)

    def diagonal(self, op: Op, value: int, labels: Labels) -> _Part:
        piece = self.visit(Spread(value, labels)).piece
        return _Part(self.stored(piece, label_mask(labels), op.results[0]), piece.peak_bytes, piece.nbytes)

    def unify(self, mask: int, labels: Labels) -> bool:
        """Makes the two labels one whose equality a mask shows, if the result does not need both."""
        dims = identity_mask_dims(self.graph, mask)
        if dims is None:
            return False
        one, other = (None if (label := labels[d]) is None else self.same.get(label, label) for d in dims)
        if one is None or other is None or self.sizes[one] != self.sizes[other] or {one, other} <= self.kept:
            return False
        if one != other:
            gone, stays = (one, other) if other in self.kept else (other, one)
            self.same = {label: stays if to == gone else to for label, to in self.same.items()} | {gone: stays}
        return True

    def add(self, op: Op, labels: Labels) -> _Part | None:
        """A sum of two terms is a factor, or one of its terms is taken in."""
        term = dict(self.terms).get(op.index)
        if term is not None:
            self.negative ^= term == 1 and op.name == "stablehlo.subtract"
            return self.visit(Spread(op.operands[term], labels))
        if self.depth >= _MAX_DEPTH or self.element not in FLOATS:
            return None
        shape = self.graph.values[op.results[0]].shape
        inner = _ProductMatcher(self.graph, self.element, shape, (), self.shared, self.depth + 1)
        a, b = (inner.visit(operand).piece for operand in inner.operands(op, inner.out))
        if op.name == "stablehlo.subtract" and not inner.has_matmul:
            # What is left of data less its mean may be small beside both: products of each would round as they do. A
            # matmul among the terms has been rounded like that already.
            return None
        self.has_matmul |= inner.has_matmul
        piece = inner.join(op, a, b, label_mask(inner.out), fusible=False).piece
        piece = dataclasses.replace(piece, labels=label_mask(labels))
        self.factors.append(Factor(op.results[0], labels, piece, addition=op.index))
        return _Part(piece, piece.peak_bytes)


PARTS: dict[str, Any] = {
    "stablehlo.dot_general": _ProductMatcher.dot,
    "stablehlo.multiply": _ProductMatcher.multiply,
    "stablehlo.divide": _ProductMatcher.divide,
    "stablehlo.negate": _ProductMatcher.negate,
    "stablehlo.reduce": _ProductMatcher.reduce,
    "stablehlo.convert": _ProductMatcher.convert,
    "stablehlo.select": _ProductMatcher.select,
    "stablehlo.add": _ProductMatcher.add,
    "stablehlo.subtract": _ProductMatcher.add,
}
