"""Builds sums over differences as norms and matmuls: `passes/pairwise_distance.py` decides on them and calls this."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

from stablehlo_mem.einsum.contraction_order import Labels, Network, Piece, Tree, best_order, label_mask
from stablehlo_mem.einsum.emit_contraction import Contraction, Tensor, highest_precision, load, sum_over
from stablehlo_mem.einsum.terms import Difference, DifferenceSum, Multiplier, Spread
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.builders import convert, index_along, laid_along, ones, reshaped, sliced, splat, tensor, zeros
from stablehlo_mem.ir.graph import Graph, dtype_bytes

_SAMPLE = 256
"""Points whose mean is the shift: any point among them would do, and few are summed without loss."""
_EPSILON = {"f32": 2.0**-23, "f64": 2.0**-52}
"""The distance from 1 to the next larger number of an element type."""


@dataclasses.dataclass(frozen=True)
class DistanceTerm:
    """A number times weights times a difference or its square.

    Attributes:
        scales: for a square, what both sides are multiplied with first.
        positive: whether the weights are squares.
    """

    coefficient: float
    difference: Difference
    power: int
    scales: tuple[Multiplier, ...]
    weights: tuple[Multiplier, ...]
    positive: bool

    @property
    def is_square(self) -> bool:
        """Whether it is a square but for the number."""
        return self.power == 2 and self.positive

    def side_labels(self, side: Spread) -> tuple[int, ...]:
        """The labels of a side once it is scaled, in order."""
        own = _given(side.labels)
        return own + tuple(sorted(frozenset[int]().union(*(scale.along for scale in self.scales)) - set(own)))

    @property
    def monomials(self) -> tuple[tuple[float, str], ...]:
        """The terms of the expanded power of the difference: their coefficients, and the sides that are multiplied."""
        return ((1, "L"), (-1, "R")) if self.power == 1 else ((1, "LL"), (1, "RR"), (-2, "LR"))

    def inputs(self, sides: str) -> list[tuple[int, ...]]:
        """The labels of what is multiplied in a monomial: the weights, then the sides; a square is one."""
        labels = {"L": self.side_labels(self.difference.left), "R": self.side_labels(self.difference.right)}
        return [_given(weight.labels) for weight in self.weights] + [labels[side] for side in dict.fromkeys(sides)]


@dataclasses.dataclass(frozen=True)
class DistanceForm:
    """What is built: terms in an element type; `floored` if the distance stops at its noise instead of at 0."""

    sum: DifferenceSum
    terms: tuple[DistanceTerm, ...]
    element: str
    floored: bool

    def order(self, factors: Sequence[Sequence[int]]) -> tuple[Network, Tree]:
        """The best order to contract factors with these labels in."""
        pieces = tuple(Piece(label_mask(labels)) for labels in factors)
        network = Network(pieces, label_mask(self.sum.out), self.sum.sizes, int(dtype_bytes(self.element)))
        return network, best_order(network, prefer_memory=False)[0]

    def nbytes(self, labels: Iterable[int | None]) -> float:
        """Bytes of a value with these labels."""
        return math.prod(self.shape(labels)) * dtype_bytes(self.element)

    def shape(self, labels: Iterable[int | None]) -> list[int]:
        """The shape of a value with these labels."""
        return [1 if label is None else self.sum.sizes[label] for label in labels]


class DistanceEmitter:
    """Builds terms at the insertion point."""

    def __init__(self, graph: Graph, form: DistanceForm):
        self.graph = graph
        self.form = form
        self.element: Any = ir.F64Type.get() if form.element == "f64" else ir.F32Type.get()

    def term(self, term: DistanceTerm) -> Any:
        """A term with the shape of the result."""
        sides = self._sides(term)
        weights = [self._weight(weight) for weight in term.weights]
        if not term.is_square:
            weights = [self._off_diagonal(term, weight) for weight in weights]
        parts: list[Any] = []
        for _, names in term.monomials:
            factors = [sides[name] for name in names]
            if names in ("LL", "RR"):
                factors = [Tensor(stablehlo.multiply(factors[0].value, factors[0].value), factors[0].labels)]
            parts.append(self._contract([*weights, *factors]))
        signs = [sign for sign, _ in term.monomials]
        total = self._squared(term, parts) if term.is_square else self._summed(parts, signs)
        return self._times(total, term.coefficient)

    def _sides(self, term: DistanceTerm) -> dict[str, Tensor]:
        """Both sides, shifted by the same and scaled."""
        difference = term.difference
        left = self._load(difference.left)
        center = self._center(left, difference.shared)
        sides = {"L": self._shifted(left, center, term)}
        if difference.pairs:
            other = dict(difference.pairs)
            labels = tuple(other.get(label, label) for label in sides["L"].labels)
            return {**sides, "R": Tensor(sides["L"].value, labels)}
        return {**sides, "R": self._shifted(self._load(difference.right), center, term)}

    def _shifted(self, side: Tensor, center: Tensor, term: DistanceTerm) -> Tensor:
        side = Tensor(stablehlo.subtract(side.value, self._spread(center, side.labels)), side.labels)
        for scale in term.scales:
            factor = self._load(scale)
            labels = side.labels + tuple(label for label in factor.labels if label not in side.labels)
            operands = (self._spread(side, labels), self._spread(factor, labels))
            side = Tensor((stablehlo.divide if scale.inverse else stablehlo.multiply)(*operands), labels)
        return side

    def _center(self, points: Tensor, shared: frozenset[int]) -> Tensor:
        """The mean of at most `_SAMPLE` points. What is not finite in them counts as the first of them, or as 0.

        It is taken around the first point: far from the origin a sum would lose what the shift is there to keep.
        """
        own = [d for d, label in enumerate(points.labels) if label not in shared]
        shape = list(points.value.type.shape)
        most = max(1, int(_SAMPLE ** (1 / len(own)) + 1e-9))
        strides = [-(-size // most) if d in own else 1 for d, size in enumerate(shape)]
        sample = sliced(points.value, [0] * len(shape), shape, strides)
        counts = list(sample.type.shape)
        labels = tuple(label for label in points.labels if label in shared)
        limits = [1 if d in own else size for d, size in enumerate(counts)]
        first = sliced(sample, [0] * len(shape), limits, [1] * len(shape))
        first = _finite(reshaped(first, self.form.shape(labels)))
        apart = _finite(stablehlo.subtract(sample, self._spread(Tensor(first, labels), points.labels, counts)))
        share = self._times(apart, 1 / math.prod(counts[d] for d in own))
        return Tensor(stablehlo.add(first, sum_over(share, own)), labels)

    def _squared(self, term: DistanceTerm, parts: Sequence[Any]) -> Any:
        """Norms less twice the products, at least 0 or the noise; 0 between a point and itself.

        Norms that are not finite are the result, as an infinite coordinate's distance was.
        """
        norms = stablehlo.add(parts[0], parts[1])
        result = stablehlo.subtract(norms, self._times(parts[2], 2))
        least = self._times(norms, self._noise()) if self.form.floored else zeros(norms.type)
        result = stablehlo.maximum(result, least)
        if term.difference.pairs and term.difference.own <= set(self.form.sum.out):
            result = stablehlo.select(self._diagonal(term, self.form.sum.out), zeros(result.type), result)
        return stablehlo.select(stablehlo.is_finite(norms), result, norms)

    def _noise(self) -> float:
        """The error of the products' form as a share of the norms: it grows with the root of the terms summed."""
        count = math.prod(self.form.shape(self.form.sum.over))
        return _EPSILON[self.form.element] * (4 + math.sqrt(count))

    def _off_diagonal(self, term: DistanceTerm, weight: Tensor) -> Tensor:
        """A weight with 0 between a point and itself: there it met a difference of 0, so it need not cancel."""
        if not term.difference.pairs or not term.difference.own <= set(weight.labels):
            return weight
        mask = self._diagonal(term, weight.labels)
        return Tensor(stablehlo.select(mask, zeros(weight.value.type), weight.value), weight.labels)

    def _diagonal(self, term: DistanceTerm, labels: Labels) -> Any:
        """Where both sides are the same point, in a value with these labels."""
        mask: Any = None
        for pair in term.difference.pairs:
            left, right = (index_along(self.form.shape(labels), labels.index(label)) for label in pair)
            same = stablehlo.compare(left, right, stablehlo.ComparisonDirectionAttr.get("EQ"))
            mask = same if mask is None else stablehlo.and_(mask, same)
        return mask

    def _summed(self, parts: Sequence[Any], signs: Sequence[float]) -> Any:
        total = parts[0]
        for part, sign in zip(parts[1:], signs[1:], strict=True):
            combine = stablehlo.subtract if sign < 0 else stablehlo.add
            total = combine(total, self._times(part, abs(sign)))
        return total

    def _contract(self, tensors: list[Tensor]) -> Any:
        """The sum of a product of tensors, with the shape of the result."""
        out = self.form.sum.out
        missing = self.form.sum.over.difference(*(t.labels for t in tensors))
        network, tree = self.form.order([t.labels for t in tensors])
        contraction = Contraction(network, out, self.element, highest_precision(), tensors)
        value, labels = contraction.build(tree)
        total = self._times(value, math.prod(self.form.shape(missing)))
        return contraction.laid_out(total, labels, tensor(self.form.shape(out), self.element))

    def _load(self, spread: Spread) -> Tensor:
        """A value in the element type the sums are made in."""
        value, labels = load(self.graph, spread)
        return Tensor(convert(value, self.element), labels)

    def _weight(self, weight: Multiplier) -> Tensor:
        value, labels = self._load(weight)
        return Tensor(stablehlo.divide(ones(value.type), value), labels) if weight.inverse else Tensor(value, labels)

    def _spread(self, one: Tensor, labels: Sequence[int], shape: Sequence[int] | None = None) -> Any:
        """A tensor broadcast and transposed to have these labels."""
        mlir_type = tensor(shape or self.form.shape(labels), self.element)
        return laid_along(one.value, [labels.index(label) for label in one.labels], mlir_type)

    def _times(self, value: Any, number: float) -> Any:
        return value if number == 1 else stablehlo.multiply(value, splat(value.type, number))


def _given(labels: Labels) -> tuple[int, ...]:
    """The labels of the dimensions that have one."""
    return tuple(label for label in labels if label is not None)


def _finite(value: Any) -> Any:
    """A value with 0 where it is not finite."""
    return stablehlo.select(stablehlo.is_finite(value), value, zeros(value.type))
