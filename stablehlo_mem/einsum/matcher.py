"""Collecting products: from a root down, through values that have no other user, to the factors where that ends."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from stablehlo_mem.einsum.contraction_order import Labels, Piece, bits, joined, label_mask
from stablehlo_mem.einsum.terms import Factor, Product, Scaling
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import FLOATS, Graph, Op, Value, dtype_bytes
from stablehlo_mem.ir.matchers import adds, identity_mask_dims, is_alone, splat_value, starts_at_zero
from stablehlo_mem.ir.op_attributes import dot_labels, integers
from stablehlo_mem.ir.view_chains import view_of

NO_TERMS: Mapping[int, int] = MappingProxyType({})
_ELEMENTS = FLOATS | frozenset({"i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64"})
_MAX_FACTORS = 96
_MAX_LEVEL = 96
"""Ops above each other that are collected."""
_MAX_DEPTH = 3
"""Additions within additions that are looked into."""
_MAX_COUNT = {1: 2**7 - 1, 2: 2**8}
"""Up to this integers are exact in element types of so many bytes; in wider ones up to 2**24."""
_SCALING = frozenset({"stablehlo.multiply", "stablehlo.divide", "stablehlo.negate"})


def collect(
    graph: Graph, root: int, terms: Mapping[int, int] = NO_TERMS, shared: frozenset[int] = frozenset()
) -> Product | None:
    """The product that an op is the root of.

    Args:
        terms: of these additions take only the left (0) or right (1) term.
        shared: also go through the results of these ops although others need them.
    """
    return _collected(graph, root, tuple(sorted(terms.items())), shared)


@cached_analysis
def _collected(graph: Graph, root: int, terms: tuple[tuple[int, int], ...], shared: frozenset[int]) -> Product | None:
    value = graph.values[graph.ops[root].results[0]]
    if value.dtype not in _ELEMENTS or not all(value.shape):
        return None
    collector = _Collector(graph, value.dtype, MappingProxyType(dict(terms)), shared, 0)
    out = collector.fresh(value.shape)
    collector.kept = frozenset(label for label in out if label is not None)
    part = collector.enter(graph.ops[root], out)
    return None if part is None else collector.product(root, out, part)


@dataclasses.dataclass(frozen=True)
class _Part:
    """What a collected op computes, as written.

    Attributes:
        before: the peak without the result.
        inputs: bytes of what the result is computed from, if a sum of it need not have it in memory; else None.
    """

    piece: Piece
    before: int
    inputs: int | None = None


class _Collector:
    def __init__(self, graph: Graph, element: str, terms: Mapping[int, int], shared: frozenset[int], depth: int):
        self.graph, self.element, self.terms, self.shared, self.depth = graph, element, terms, shared, depth
        self.sizes: list[int] = []
        self.kept: frozenset[int] = frozenset()
        self.same: dict[int, int] = {}
        self.factors: list[Factor] = []
        self.scalings: list[Scaling] = []
        self.ops: list[int] = []
        self.masked = self.negative = self.has_matmul = False
        self.level = self.multiplied = 0

    def fresh(self, shape: tuple[int, ...]) -> Labels:
        """New labels for the dimensions of a shape."""
        labels: list[int | None] = []
        for size in shape:
            labels.append(None if size == 1 else len(self.sizes))
            if size != 1:
                self.sizes.append(size)
        return tuple(labels)

    def product(self, root: int, out: Labels, part: _Part) -> Product | None:
        """What was collected, the labels that turned out to be the same made one."""
        factors = [dataclasses.replace(f, labels=self.resolved(f.labels)) for f in self.factors]
        factors = [
            dataclasses.replace(f, ready=dataclasses.replace(f.ready, labels=label_mask(f.labels))) for f in factors
        ]
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
            out=out,
            factors=tuple(self.taken(f) for f in factors),
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

    def resolved(self, labels: Labels) -> Labels:
        return tuple(None if label is None else self.same.get(label, label) for label in labels)

    def taken(self, factor: Factor) -> Factor:
        """A factor of which only the diagonal is needed: that is read from all of it first."""
        labels = [label for label in factor.labels if label is not None]
        if len(labels) == len(set(labels)):
            return factor
        ready, nbytes = factor.ready, self.nbytes(factor.ready.labels)
        flops = ready.flops + math.prod(self.sizes[label] for label in labels)
        piece = Piece(ready.labels, flops, max(ready.peak_bytes, ready.nbytes + nbytes), nbytes)
        return dataclasses.replace(factor, ready=piece)

    def common_dot(self) -> int | None:
        dots = [op for op in self.ops if self.graph.ops[op].name == "stablehlo.dot_general"]
        attributes = {str(self.graph.handles[op].attributes.get("precision_config", None)) for op in dots}
        return dots[0] if len(attributes) == 1 else None

    # Going down.

    def visit(self, value: int, labels: Labels) -> _Part:
        """Takes a value in: through its producer if that is a part of the product, else as a factor."""
        view = view_of(self.graph, value)
        labels = tuple(None if d is None else labels[d] for d in view.dims)
        op = self.graph.producer(view.source)
        shared: int | None = None
        if op is not None and op.name in PARTS and len(self.factors) < _MAX_FACTORS:
            if op.index in self.shared or is_alone(self.graph, value, view.source):
                part = self.enter(op, labels)
                if part is not None:
                    return part
            elif self.is_scaled_matmul(op):
                shared = op.index
        self.factors.append(Factor(view.source, labels, Piece(label_mask(labels)), shared=shared))
        return _Part(self.factors[-1].ready, 0)

    def is_scaled_matmul(self, op: Op | None) -> bool:
        """Whether an op is a matmul, or scales one."""
        while op is not None and op.name != "stablehlo.dot_general":
            if op.name not in _SCALING or any(self.scalar(v) is None for v in op.operands[1:]):
                return False
            op = self.graph.producer(view_of(self.graph, op.operands[0]).source)
        return op is not None

    def enter(self, op: Op, labels: Labels) -> _Part | None:
        """Takes an op in, None if it is no part after all."""
        take = PARTS.get(op.name)
        if take is None or self.level >= _MAX_LEVEL:
            return None
        self.level += 1
        part = take(self, op, labels)
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

    # The parts.

    def dot(self, op: Op, labels: Labels) -> _Part | None:
        left, right, result = (self.graph.values[v] for v in (*op.operands[:2], op.results[0]))
        if not left.dtype == right.dtype == result.dtype or not all((*left.shape, *right.shape)):
            return None
        if self.graph.handles[op.index].attributes.get("algorithm", None) is not None:
            return None
        self.has_matmul = True
        *sides, sizes, rank = dot_labels(self.graph, op)
        known = (*labels, *self.fresh(sizes[rank:]))
        values = zip((left, right), sides, strict=True)
        a, b = (self.spread(v, tuple(known[label] for label in side)) for v, side in values)
        return self.join(op, a, b, label_mask(labels), fusible=False)

    def spread(self, value: Value, labels: Labels) -> Piece:
        """An operand of a matmul: a broadcast is not fused."""
        self.multiplied += 1
        piece, everything = self.visit(value.index, labels).piece, label_mask(labels)
        self.multiplied -= 1
        if piece.labels == everything:
            return piece
        nbytes = self.nbytes(everything, value.dtype)
        return Piece(everything, piece.flops, max(piece.peak_bytes, piece.nbytes + nbytes), nbytes)

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
        a, b = (self.visit(v, labels) for v in op.operands)
        self.multiplied -= 1
        return self.join(op, a.piece, b.piece, a.piece.labels | b.piece.labels, fusible=True)

    def divide(self, op: Op, labels: Labels) -> _Part | None:
        scale = self.scalar(op.operands[1]) if self.element in FLOATS else None
        return None if scale is None else self.scaled("divide", op.operands[0], labels, scale)

    def negate(self, op: Op, labels: Labels) -> _Part | None:
        return self.scaled("negate", op.operands[0], labels, None)

    def scaled(self, kind: str, value: int, labels: Labels, by: int | None) -> _Part:
        first = len(self.factors)
        part = self.visit(value, labels)
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
        dims = integers(self.graph, op, "dimensions")
        shape = self.graph.values[op.operands[0]].shape
        summed = dict(zip(dims, self.fresh(tuple(shape[d] for d in dims)), strict=True))
        rest = iter(labels)
        part = self.visit(op.operands[0], tuple(summed[d] if d in summed else next(rest) for d in range(len(shape))))
        piece = part.piece
        kept = piece.labels & ~label_mask(tuple(summed.values()))
        if kept == piece.labels:
            return part
        inputs = piece.nbytes if part.inputs is None else part.inputs
        before = piece.peak_bytes if part.inputs is None else part.before
        nbytes = self.nbytes(kept, self.graph.values[op.results[0]].dtype)
        flops = piece.flops + self.elements(piece.labels)
        return _Part(Piece(kept, flops, max(before, inputs + nbytes), nbytes), before, inputs)

    def convert(self, op: Op, labels: Labels) -> _Part | None:
        """A conversion to a wider type, to compute in that from the start, or to the same."""
        narrow, wide = (self.graph.values[v].dtype for v in (op.operands[0], op.results[0]))
        widens = narrow in FLOATS and wide in FLOATS and dtype_bytes(narrow) < dtype_bytes(wide)
        return self.visit(op.operands[0], labels) if widens or narrow == wide else None

    def select(self, op: Op, labels: Labels) -> _Part | None:
        """Everything off a diagonal is zero: two labels are one."""
        mask, value, other = op.operands
        if splat_value(self.graph, other) != 0 or not self.unify(mask, labels):
            return None
        self.masked |= self.multiplied > 0
        return self.diagonal(op, value, labels)

    def diagonal(self, op: Op, value: int, labels: Labels) -> _Part:
        part = self.visit(value, labels)
        piece = part.piece
        everything = label_mask(labels)
        nbytes = self.nbytes(everything, self.graph.values[op.results[0]].dtype)
        masked = Piece(everything, piece.flops, max(piece.peak_bytes, piece.nbytes + nbytes), nbytes)
        return _Part(masked, piece.peak_bytes, piece.nbytes)

    def unify(self, mask: int, labels: Labels) -> bool:
        """Makes the two labels one whose equality a mask shows, if the result does not need both."""
        dims = identity_mask_dims(self.graph, mask)
        if dims is None:
            return False
        one, other = (self.resolved((labels[d],))[0] for d in dims)
        if one is None or other is None or self.sizes[one] != self.sizes[other] or {one, other} <= self.kept:
            return False
        if one != other:
            gone, stays = (one, other) if other in self.kept else (other, one)
            self.same = {label: stays if to == gone else to for label, to in self.same.items()} | {gone: stays}
        return True

    def add(self, op: Op, labels: Labels) -> _Part | None:
        """A sum of two terms is a factor, or one of its terms is taken in."""
        term = self.terms.get(op.index)
        if term is not None:
            self.negative ^= term == 1 and op.name == "stablehlo.subtract"
            return self.visit(op.operands[term], labels)
        if self.depth >= _MAX_DEPTH or self.element not in FLOATS:
            return None
        inner = _Collector(self.graph, self.element, NO_TERMS, self.shared, self.depth + 1)
        own = inner.fresh(self.graph.values[op.results[0]].shape)
        inner.kept = frozenset(label for label in own if label is not None)
        a, b = (inner.visit(v, own).piece for v in op.operands)
        if op.name == "stablehlo.subtract" and not inner.has_matmul:
            # What is left of data less its mean may be small beside both: products of each would round as they do. A
            # matmul among the terms has been rounded like that already.
            return None
        self.has_matmul |= inner.has_matmul
        piece = inner.join(op, a, b, label_mask(own), fusible=False).piece
        piece = dataclasses.replace(piece, labels=label_mask(labels))
        self.factors.append(Factor(op.results[0], labels, piece, addition=op.index))
        return _Part(piece, piece.peak_bytes)


PARTS: dict[str, Any] = {
    "stablehlo.dot_general": _Collector.dot,
    "stablehlo.multiply": _Collector.multiply,
    "stablehlo.divide": _Collector.divide,
    "stablehlo.negate": _Collector.negate,
    "stablehlo.reduce": _Collector.reduce,
    "stablehlo.convert": _Collector.convert,
    "stablehlo.select": _Collector.select,
    "stablehlo.add": _Collector.add,
    "stablehlo.subtract": _Collector.add,
}
