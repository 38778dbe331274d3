"""The form that a sum over differences gets, and how it is built. See passes/pairwise_distance.py."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

from stablehlo_mem.einsum.contraction_order import Network, Piece, Tree, best_order, label_mask
from stablehlo_mem.einsum.difference_matcher import Difference, Factor, Spread, Sum
from stablehlo_mem.einsum.emit_contraction import Contraction, Tensor, highest_precision, sum_over
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.builders import convert, index_along, laid_along, ones, reshaped, sliced, splat, tensor, zeros
from stablehlo_mem.ir.graph import Graph, dtype_bytes

Labels = tuple[int, ...]

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

    def order(self, factors: Sequence[Sequence[int]]) -> tuple[Network, Tree]:
        """The best order to contract factors in, of which the labels are given."""
        kept = label_mask(self.sum.full.intersection(self.sum.out))
        pieces = [Piece(label_mask(labels)) for labels in factors]
        network = Network(pieces, kept, self.sum.sizes, int(dtype_bytes(self.element)))
        return network, best_order(network, prefer_memory=False)[0]

    def nbytes(self, labels: Iterable[int]) -> float:
        """Bytes of a value along labels."""
        return math.prod(self.sum.sizes[label] for label in labels) * dtype_bytes(self.element)


@dataclasses.dataclass(frozen=True)
class _Tensor:
    """A built value and the labels its dimensions lie along."""

    value: Any
    labels: Labels


class _Monomial(Contraction):
    """The contraction of tensors that are there."""

    def __init__(self, network: Network, form: Form, element: Any, tensors: Sequence[_Tensor]):
        super().__init__(network, form.sum.out, element, highest_precision())
        self.tensors = tensors

    def factor(self, index: int) -> Tensor:
        return self.tensors[index].value, list(self.tensors[index].labels)


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
        if not term.is_square:
            weights = [self._off_diagonal(term, weight) for weight in weights]
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
        if difference.pairs:
            other = dict(difference.pairs)
            labels = tuple(other.get(label, label) for label in sides["L"].labels)
            return {**sides, "R": _Tensor(sides["L"].value, labels)}
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
        sample = sliced(points.value, [0] * len(shape), shape, strides)
        counts = list(sample.type.shape)
        labels = tuple(label for label in points.labels if label in shared)
        limits = [1 if d in own else size for d, size in enumerate(counts)]
        first = sliced(sample, [0] * len(shape), limits, [1] * len(shape))
        first = _finite(reshaped(first, [self.sizes[label] for label in labels]))
        apart = _finite(stablehlo.subtract(sample, self._spread(_Tensor(first, labels), points.labels, counts)))
        share = self._times(apart, 1 / math.prod(counts[d] for d in own))
        return _Tensor(stablehlo.add(first, sum_over(share, own)), labels)

    def _squared(self, term: Term, parts: Sequence[Any]) -> Any:
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
        count = math.prod(self.sizes[label] for label in self.form.sum.over)
        return _EPSILON[self.form.element] * (4 + math.sqrt(count))

    def _off_diagonal(self, term: Term, weight: _Tensor) -> _Tensor:
        """A weight with 0 between a point and itself: there it met a difference of 0, so it need not cancel."""
        if not term.difference.pairs or not term.difference.own <= set(weight.labels):
            return weight
        mask = self._diagonal(term, weight.labels)
        return _Tensor(stablehlo.select(mask, zeros(weight.value.type), weight.value), weight.labels)

    def _diagonal(self, term: Term, along: Labels) -> Any:
        """Where both sides are the same point, in a value along labels."""
        shape = [self.sizes[label] for label in along]
        both: Any = None
        for pair in term.difference.pairs:
            left, right = (index_along(shape, along.index(label)) for label in pair)
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
        missing = self.form.sum.over.difference(*(t.labels for t in tensors))
        network, tree = self.form.order([t.labels for t in tensors])
        monomial = _Monomial(network, self.form, self.element, tensors)
        value, labels = monomial.build(tree)
        total = self._times(value, math.prod(self.sizes[label] for label in missing))
        return monomial.laid_out(total, labels, self._type(out))

    def _load(self, spread: Spread) -> _Tensor:
        """A value in the element type the sums are made in, its dimensions of one element dropped."""
        value = self.graph.mlir_values[spread.value]
        labels = tuple(label for label in spread.labels if label is not None)
        if len(labels) < len(spread.labels):
            value = reshaped(value, [self.sizes[label] for label in labels])
        return _Tensor(convert(value, self.element), labels)

    def _factor(self, factor: Factor) -> _Tensor:
        one = self._load(factor.spread)
        if not factor.inverse:
            return one
        return _Tensor(stablehlo.divide(ones(one.value.type), one.value), one.labels)

    def _spread(self, one: _Tensor, labels: Sequence[int], shape: Sequence[int] | None = None) -> Any:
        """A tensor repeated and transposed to lie along labels."""
        shape = [self.sizes[label] for label in labels] if shape is None else shape
        return laid_along(one.value, [labels.index(label) for label in one.labels], tensor(shape, self.element))

    def _times(self, value: Any, number: float) -> Any:
        return value if number == 1 else stablehlo.multiply(value, splat(value.type, number))

    def _type(self, labels: Sequence[int]) -> Any:
        return tensor([self.sizes[label] for label in labels], self.element)


def _finite(value: Any) -> Any:
    """A value with 0 where it is not finite."""
    return stablehlo.select(stablehlo.is_finite(value), value, zeros(value.type))
