"""What the matchers find: products of factors summed over index labels, and products of differences.

    out[i, j] = sum over k, l of A[i, k] * B[k, l] * C[l, j]

is what a chain of matmuls computes, or a multiplication of broadcasts that is summed: a `Product`, see `matcher.py`.

    out[i, j] = sum over k of (X[i, k] - Y[j, k])**2

is a `DifferenceSum`, see `difference_matcher.py`.
"""

from __future__ import annotations

import dataclasses

from stablehlo_mem.einsum.contraction_order import Labels, Network, Piece, label_mask
from stablehlo_mem.ir.graph import dtype_bytes

Terms = tuple[tuple[int, int], ...]
"""Additions of which a product takes only one term, each with which: the left (0) or the right (1)."""


@dataclasses.dataclass(frozen=True)
class Spread:
    """A value and the label of each of its dimensions, None for one of one element; it repeats along other labels."""

    value: int
    labels: Labels

    @property
    def along(self) -> frozenset[int]:
        """The labels it has."""
        return frozenset(label for label in self.labels if label is not None)


@dataclasses.dataclass(frozen=True)
class Factor(Spread):
    """A factor of a product. A label that it has twice takes the diagonal.

    Attributes:
        ready: what it costs to have it: nothing, except for an addition.
        addition: the op that computes it, if that is an addition without other users: one may distribute over it.
        shared: the matmul that computes it, if it has other users too.
    """

    ready: Piece
    addition: int | None = None
    shared: int | None = None


@dataclasses.dataclass(frozen=True)
class Scaling:
    """What the product of some factors is scaled with.

    Attributes:
        kind: "multiply", "divide" or "negate".
        factors: their indices.
        value: holds the number in each of its elements; None for the number `count`.
    """

    kind: str
    factors: tuple[int, ...]
    value: int | None
    count: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Product:
    """A product and how the program computes it.

    Attributes:
        element: the element type of the result. Factors may be narrower floats.
        sizes: of each label.
        out: the labels of the result's dimensions.
        ops: the ops that compute it, views aside.
        written: the FLOPs of the program's order, and the peak of its intermediates without the result.
        masked: whether zeros off a diagonal were multiplied with and are left out: 0 * inf is not 0.
        negative: whether it is to be subtracted: it is the right term of a subtraction.
        has_matmul: whether there is a matmul among the ops or the terms of an addition.
        terms, shared: the arguments of `collect`.
        like: a dot_general whose precision all others have; None if they differ or there is none.
    """

    root: int
    element: str
    sizes: tuple[int, ...]
    out: Labels
    factors: tuple[Factor, ...]
    scalings: tuple[Scaling, ...]
    ops: tuple[int, ...]
    written: Piece
    masked: bool
    negative: bool
    has_matmul: bool
    terms: Terms
    shared: frozenset[int]
    like: int | None

    @property
    def network(self) -> Network:
        """The product for the choice of an order."""
        pieces = tuple(f.ready for f in self.factors)
        return Network(pieces, label_mask(self.out), self.sizes, int(dtype_bytes(self.element)))


@dataclasses.dataclass(frozen=True)
class Multiplier(Spread):
    """What a difference is multiplied with: a value, its reciprocal or its absolute value."""

    inverse: bool = False
    absolute: bool = False


@dataclasses.dataclass(frozen=True)
class Difference:
    """`left - right`, each with labels that the other does not have.

    Attributes:
        pairs: where both sides are the same points, the labels of the left and of the right that number these; else ().
    """

    left: Spread
    right: Spread
    absolute: bool = False
    pairs: tuple[tuple[int, int], ...] = ()

    @property
    def shared(self) -> frozenset[int]:
        """The labels that both sides have."""
        return self.left.along & self.right.along

    @property
    def own(self) -> frozenset[int]:
        """The labels that one side has."""
        return self.left.along ^ self.right.along

    @property
    def mirrored(self) -> Difference:
        """`right - left`."""
        pairs = tuple(sorted((b, a) for a, b in self.pairs))
        return dataclasses.replace(self, left=self.right, right=self.left, pairs=pairs)


@dataclasses.dataclass(frozen=True)
class DifferenceProduct:
    """A number times multipliers times differences. `odd` names an op on a difference that makes it no product."""

    coefficient: float = 1.0
    multipliers: tuple[Multiplier, ...] = ()
    differences: tuple[Difference, ...] = ()
    odd: str = ""

    def __mul__(self, other: DifferenceProduct) -> DifferenceProduct:
        return DifferenceProduct(
            self.coefficient * other.coefficient,
            self.multipliers + other.multipliers,
            self.differences + other.differences,
            self.odd or other.odd,
        )

    def scaled(self, number: float) -> DifferenceProduct:
        """The product times a number."""
        return dataclasses.replace(self, coefficient=self.coefficient * number)

    def magnitude(self) -> DifferenceProduct:
        """The absolute value of the product."""
        return DifferenceProduct(
            abs(self.coefficient),
            tuple(dataclasses.replace(f, absolute=True) for f in self.multipliers),
            tuple(dataclasses.replace(d, absolute=True) for d in self.differences),
            self.odd,
        )

    @property
    def body(self) -> tuple[object, ...]:
        """All but the number, sorted: products with equal bodies add up to one."""
        return (sorted(self.multipliers, key=repr), sorted(self.differences, key=repr), self.odd)


@dataclasses.dataclass(frozen=True)
class DifferenceSum:
    """Products with differences, summed over the labels that are not in `out`, those of the result's dimensions."""

    terms: tuple[DifferenceProduct, ...]
    sizes: tuple[int, ...]
    out: Labels

    @property
    def over(self) -> frozenset[int]:
        """The labels summed over."""
        return self.full - set(self.out)

    @property
    def full(self) -> frozenset[int]:
        """All labels."""
        return frozenset(range(len(self.sizes)))
