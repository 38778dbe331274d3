"""The form that a sum over differences gets, and how it is built. See passes/pairwise_distance.py."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from stablehlo_mem.distances import Difference, Factor, Labels, Move, Spread, Sum, plan_contraction
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.build import broadcast, convert, retype, tensor, zeros
from stablehlo_mem.ir.graph import Graph, dtype_bytes

_SAMPLE = 256
"""Points whose mean is the shift: any point among them would do, and few are summed without loss."""

_EPSILON = {"f32": 2.0**-23, "f64": 2.0**-52}


@dataclasses.dataclass(frozen=True)
class Term:
    """A number times weights times the difference, or times its square: then both sides are scaled first.

    `positive`: the weights are squares.
    """

    coefficient: float
    difference: Difference
    power: int
    scales: tuple[Factor, ...]
    weights: tuple[Factor, ...]
    positive: bool

    @property
    def is_square(self) -> bool:
        """Whether it is a square but for the number."""
        return self.power == 2 and self.positive

    @property
    def shows_itself(self) -> bool:
        """Whether both sides are one value, along other labels."""
        left, right = self.difference.left, self.difference.right
        pairs = zip(left.labels, right.labels, strict=False)
        own = self.difference.own
        return left.value == right.value and all(a == b or {a, b} <= own for a, b in pairs)

    def side_labels(self, side: Spread) -> Labels:
        """The labels of a side once it is scaled, in order."""
        own = tuple(label for label in side.labels if label is not None)
        return own + tuple(sorted(frozenset[int]().union(*(f.spread.along for f in self.scales)) - set(own)))

    @property
    def monomials(self) -> tuple[tuple[float, str], ...]:
        """What the power of the difference comes apart into: signs, and sides ("L", "R") that are multiplied."""
        return ((1, "L"), (-1, "R")) if self.power == 1 else ((1, "LL"), (1, "RR"), (-2, "LR"))

    def inputs(self, sides: str) -> list[Labels]:
        """The labels of what is multiplied in a monomial: the weights, then the sides; a square is one."""
        labels = {"L": self.side_labels(self.difference.left), "R": self.side_labels(self.difference.right)}
        weights = [tuple(label for label in f.spread.labels if label is not None) for f in self.weights]
        return weights + [labels[side] for side in dict.fromkeys(sides)]


@dataclasses.dataclass(frozen=True)
class Form:
    """What is emitted: terms of a sum in an element type; `floored` if the distance stops at its noise, not at 0."""

    sum: Sum
    terms: tuple[Term, ...]
    element: str
    floored: bool

    def moves(self, term: Term, sides: str) -> tuple[Move, ...]:
        """The contraction of a monomial."""
        return plan_contraction(term.inputs(sides), frozenset(self.sum.out) & self.sum.full, self.sum.sizes)

    def nbytes(self, labels: Sequence[int]) -> float:
        """Bytes of a value along labels."""
        return math.prod(self.sum.sizes[label] for label in labels) * dtype_bytes(self.element)


@dataclasses.dataclass(frozen=True)
class _Tensor:
    """A built value and the labels its dimensions lie along."""

    value: Any
    labels: Labels


class Emitter:
    """Builds terms at the insertion point."""

    def __init__(self, graph: Graph, form: Form):
        self.graph = graph
        self.form = form
        self.sizes = form.sum.sizes
        self.element: Any = ir.F64Type.get() if form.element == "f64" else ir.F32Type.get()

    def term(self, term: Term) -> Any:
        """A term with the shape of the result."""
        sides = self._sides(term)
        weights = [self._factor(f) for f in term.weights]
        parts: list[Any] = []
        for _, names in term.monomials:
            chosen = [sides[name] for name in names]
            if names in ("LL", "RR"):
                chosen = [_Tensor(stablehlo.multiply(chosen[0].value, chosen[0].value), chosen[0].labels)]
            parts.append(self._contract([*weights, *chosen]))
        signs = [sign for sign, _ in term.monomials]
        total = self._squared(term, parts) if term.is_square else self._summed(parts, signs)
        return self._times(total, term.coefficient)

    def _sides(self, term: Term) -> dict[str, _Tensor]:
        """Both sides, shifted by the same and scaled."""
        difference = term.difference
        left = self._load(difference.left)
        center = self._center(left, difference.shared)
        sides = {"L": self._shifted(left, center, term)}
        if term.shows_itself:
            other = {
                a: b for a, b in zip(difference.left.labels, difference.right.labels, strict=True) if a is not None
            }
            labels = tuple(other.get(label, label) for label in sides["L"].labels)
            return {**sides, "R": _Tensor(sides["L"].value, tuple(d for d in labels if d is not None))}
        return {**sides, "R": self._shifted(self._load(difference.right), center, term)}

    def _shifted(self, side: _Tensor, center: _Tensor, term: Term) -> _Tensor:
        side = _Tensor(stablehlo.subtract(side.value, self._spread(center, side.labels)), side.labels)
        for scale in term.scales:
            factor = self._load(scale.spread)
            labels = side.labels + tuple(label for label in factor.labels if label not in side.labels)
            operands = (self._spread(side, labels), self._spread(factor, labels))
            side = _Tensor((stablehlo.divide if scale.inverse else stablehlo.multiply)(*operands), labels)
        return side

    def _center(self, points: _Tensor, shared: frozenset[int]) -> _Tensor:
        """The mean of at most `_SAMPLE` points. What is not finite in them counts as the first of them, or as 0.

        It is taken around the first point: far from the origin a sum would lose what the shift is there to keep.
        """
        own = [d for d, label in enumerate(points.labels) if label not in shared]
        shape = list(points.value.type.shape)
        most = max(1, int(_SAMPLE ** (1 / len(own)) + 1e-9))
        strides = [-(-size // most) if d in own else 1 for d, size in enumerate(shape)]
        sample = points.value if max(strides) == 1 else _slice(points.value, shape, strides)
        counts = list(sample.type.shape)
        labels = tuple(label for label in points.labels if label in shared)
        first = _slice(sample, [1 if d in own else size for d, size in enumerate(counts)], [1] * len(shape))
        first = _finite(stablehlo.reshape(self._type(labels), first))
        apart = _finite(stablehlo.subtract(sample, self._spread(_Tensor(first, labels), points.labels, counts)))
        share = self._times(apart, 1 / math.prod(counts[d] for d in own))
        return _Tensor(stablehlo.add(first, self._sum_over(share, own)), labels)

    def _squared(self, term: Term, parts: Sequence[Any]) -> Any:
        """Norms less twice the products, at least 0 or the noise; 0 between a point and itself.

        Norms that are not finite are the result, as an infinite coordinate's distance was.
        """
        norms = stablehlo.add(parts[0], parts[1])
        result = stablehlo.subtract(norms, self._times(parts[2], 2))
        least = self._times(norms, self._noise()) if self.form.floored else zeros(norms.type)
        result = stablehlo.maximum(result, least)
        if term.shows_itself and term.difference.own <= set(self.form.sum.out):
            result = stablehlo.select(self._diagonal(term), zeros(result.type), result)
        return stablehlo.select(stablehlo.is_finite(norms), result, norms)

    def _noise(self) -> float:
        """The error of the products' form as a share of the norms: it grows with the root of the terms summed."""
        count = math.prod(self.sizes[label] for label in self.form.sum.over)
        return _EPSILON[self.form.element] * (4 + math.sqrt(count))

    def _diagonal(self, term: Term) -> Any:
        """Where both sides are the same point."""
        shape = [self.sizes[label] for label in self.form.sum.out]
        index_type = tensor(shape, ir.IntegerType.get_signless(32))
        both: Any = None
        for pair in zip(term.difference.left.labels, term.difference.right.labels, strict=True):
            if pair[0] is None or pair[0] == pair[1]:
                continue
            places = [self.form.sum.out.index(label) for label in pair if label is not None]
            left, right = (stablehlo.iota(index_type, _i64(place)) for place in places)
            same = stablehlo.compare(left, right, stablehlo.ComparisonDirectionAttr.get("EQ"))
            both = same if both is None else stablehlo.and_(both, same)
        return both

    def _summed(self, parts: Sequence[Any], signs: Sequence[float]) -> Any:
        total = parts[0]
        for part, sign in zip(parts[1:], signs[1:], strict=True):
            combine = stablehlo.subtract if sign < 0 else stablehlo.add
            total = combine(total, self._times(part, abs(sign)))
        return total

    def _contract(self, tensors: list[_Tensor]) -> Any:
        """The sum of a product of tensors, with the shape of the result."""
        out = self.form.sum.out
        moves = plan_contraction([t.labels for t in tensors], frozenset(out) & self.form.sum.full, self.sizes)
        missing = self.form.sum.over - set[int]().union(*(t.labels for t in tensors))
        for move in moves:
            tensors.append(self._do(move, [tensors[i] for i in move.operands]))
        total = self._times(tensors[-1].value, math.prod(self.sizes[label] for label in missing))
        return self._spread(_Tensor(total, tensors[-1].labels), out)

    def _do(self, move: Move, operands: Sequence[_Tensor]) -> _Tensor:
        if move.kind == "sum":
            (one,) = operands
            dims = [d for d, label in enumerate(one.labels) if label not in move.labels]
            return _Tensor(self._sum_over(one.value, dims), move.labels)
        if move.kind == "times":
            return _Tensor(stablehlo.multiply(*(self._spread(t, move.labels) for t in operands)), move.labels)
        return _Tensor(self._dot(move.labels, *operands), move.labels)

    def _dot(self, labels: Labels, left: _Tensor, right: _Tensor) -> Any:
        shared = [label for label in left.labels if label in right.labels]
        batch = [label for label in shared if label in labels]
        summed = [label for label in shared if label not in labels]
        numbers = stablehlo.DotDimensionNumbers.get(
            lhs_batching_dimensions=[left.labels.index(label) for label in batch],
            rhs_batching_dimensions=[right.labels.index(label) for label in batch],
            lhs_contracting_dimensions=[left.labels.index(label) for label in summed],
            rhs_contracting_dimensions=[right.labels.index(label) for label in summed],
        )
        precision = ir.ArrayAttr.get([stablehlo.PrecisionAttr.get("HIGHEST")] * 2)
        result = self._type(labels)
        return stablehlo.dot_general(result, left.value, right.value, numbers, precision_config=precision)

    def _sum_over(self, value: Any, dims: Sequence[int]) -> Any:
        scalar = retype(value.type, ())
        kept = [size for d, size in enumerate(value.type.shape) if d not in dims]
        op = stablehlo.ReduceOp([retype(value.type, kept)], [value], [zeros(scalar)], ir.DenseI64ArrayAttr.get(dims))
        block = op.regions[0].blocks.append(scalar, scalar)
        with ir.InsertionPoint(block):
            stablehlo.return_([stablehlo.add(*block.arguments)])
        return op.results[0]

    def _load(self, spread: Spread) -> _Tensor:
        """A value in the element type the sums are made in, its dimensions of one element dropped."""
        value = self.graph.mlir_values[spread.value]
        labels = tuple(label for label in spread.labels if label is not None)
        if len(labels) < len(spread.labels):
            value = stablehlo.reshape(retype(value.type, [self.sizes[label] for label in labels]), value)
        return _Tensor(convert(value, self.element), labels)

    def _factor(self, factor: Factor) -> _Tensor:
        one = self._load(factor.spread)
        if not factor.inverse:
            return one
        return _Tensor(stablehlo.divide(self._number(one.value.type, 1), one.value), one.labels)

    def _spread(self, one: _Tensor, labels: Sequence[int], shape: Sequence[int] | None = None) -> Any:
        """A tensor repeated and transposed to lie along labels."""
        shape = [self.sizes[label] for label in labels] if shape is None else shape
        if one.labels == tuple(labels):
            return one.value
        # A broadcast that also transposes is legal, but analyses and compilers see them more often apart.
        order = sorted(range(len(one.labels)), key=lambda d: labels.index(one.labels[d]))
        value = one.value
        if order != sorted(order):
            value = stablehlo.transpose(value, ir.DenseI64ArrayAttr.get(order))
        dims = [labels.index(one.labels[d]) for d in order]
        return value if len(dims) == len(labels) else broadcast(value, tensor(shape, self.element), dims)

    def _times(self, value: Any, number: float) -> Any:
        return value if number == 1 else stablehlo.multiply(value, self._number(value.type, number))

    def _number(self, mlir_type: Any, number: float) -> Any:
        scalar = ir.FloatAttr.get(self.element, number)
        return stablehlo.constant(ir.DenseElementsAttr.get_splat(mlir_type, scalar))

    def _type(self, labels: Sequence[int]) -> Any:
        return tensor([self.sizes[label] for label in labels], self.element)


def _finite(value: Any) -> Any:
    """A value with 0 where it is not finite."""
    return stablehlo.select(stablehlo.is_finite(value), value, zeros(value.type))


def _slice(value: Any, limits: Sequence[int], strides: Sequence[int]) -> Any:
    starts, limits_, strides_ = (ir.DenseI64ArrayAttr.get(list(n)) for n in ([0] * len(limits), limits, strides))
    return stablehlo.slice(value, starts, limits_, strides_)


def _i64(value: int) -> Any:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
