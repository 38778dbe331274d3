"""Polynomials over the matrices and row statistics of an attention: what a value is, however it was written.

A scores matrix has a row for each query and a column for each key. Every value computed from it elementwise, or by sums
along its rows, is a sum of products of a few kinds of atoms. Equal values have equal polynomials: exp(s - m) / sum, and
exp(s - logsumexp(s)), and exp(s) without any maximum are all `Exp(s) · Total(Exp(s))⁻¹`. Roundings are left out: a
conversion between float types is the identity.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any

Labels = tuple[int | None, ...]
"""For each dimension of a value the dimension of the scores it lies along, from 0; None if it has one element; -1 - d
for its own dimension d, which the scores do not have."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A value of the program and where its dimensions lie."""

    value: int
    labels: Labels

    @property
    def frame(self) -> frozenset[int]:
        """The dimensions of the scores that it has."""
        return frozenset(label for label in self.labels if label is not None and label >= 0)


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A value that is not looked into, such as a bias or the maximum of a row."""

    tensor: Tensor


@dataclasses.dataclass(frozen=True)
class Dot:
    """A matrix that is a product of two tensors, summed over the pairs of their own dimensions.

    Attributes:
        result: the value in the program, None where that has no name: a product is what it is made of.
    """

    left: Tensor
    right: Tensor
    summed: frozenset[tuple[int, int]]
    result: Tensor | None = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(frozen=True)
class HalfPlane:
    """The pairs of indices of the scores where `offset` + the indices times their factors is at least 0."""

    offset: int
    factors: frozenset[tuple[int, int]]

    @property
    def frame(self) -> frozenset[int]:
        """The dimensions of the scores that decide."""
        return frozenset(label for label, _ in self.factors)

    def is_causal(self, row: int, column: int) -> bool:
        """Whether it has the keys whose index is at most the query's."""
        return self.offset == 0 and self.factors == frozenset({(row, 1), (column, -1)})

    def window(self, row: int, column: int) -> int | None:
        """How many keys up to the query's index it has, None if it is no such window."""
        is_window = self.offset >= 0 and self.factors == frozenset({(row, -1), (column, 1)})
        return self.offset + 1 if is_window else None


@dataclasses.dataclass(frozen=True)
class Region:
    """The pairs that are in all of some half planes."""

    planes: frozenset[HalfPlane]

    @property
    def frame(self) -> frozenset[int]:
        """The dimensions of the scores that decide."""
        return frozenset(label for plane in self.planes for label in plane.frame)


@dataclasses.dataclass(frozen=True)
class Shown:
    """An MLIR value, maybe of an enclosing block, and where its dimensions lie."""

    value: Any
    labels: Labels

    @property
    def frame(self) -> frozenset[int]:
        """The dimensions of the scores that it has."""
        return frozenset(label for label in self.labels if label is not None)


@dataclasses.dataclass(frozen=True)
class Predicate(Shown):
    """Where a value is true, or not zero, that is no region; or where it is false, or zero."""

    is_true: bool = True


@dataclasses.dataclass(frozen=True)
class Mask:
    """0 somewhere and -inf elsewhere.

    Attributes:
        where: where it is 0.
        fill: what the program has in the place of -inf.
        is_added: whether it adds the number to scores, rather than putting it in their place.
    """

    where: Region | Predicate
    fill: float = -math.inf
    is_added: bool = False


@dataclasses.dataclass(frozen=True)
class Keep:
    """1 somewhere and 0 elsewhere. `of_rows`: it is the same along each row."""

    where: Region | Predicate
    of_rows: bool


@dataclasses.dataclass(frozen=True)
class Exp:
    """The exponential of a matrix.

    Attributes:
        is_zeroed: whether it is set to zero where its masks leave keys out, so too in rows that have no keys. Without,
            all of such a row is filled with one number, and its probabilities are equal.
    """

    exponent: Terms
    is_zeroed: bool = False


@dataclasses.dataclass(frozen=True)
class RowExp:
    """The exponential of a product of row statistics."""

    exponent: Monomial


@dataclasses.dataclass(frozen=True)
class Log:
    """The logarithm of a row statistic."""

    of: Terms


@dataclasses.dataclass(frozen=True)
class Total:
    """The sum of a product of matrices along each row; with a tensor, of the product with it."""

    of: Monomial
    other: Tensor | None = None


Atom = Leaf | Dot | Mask | Keep | Exp | RowExp | Log | Total
Monomial = frozenset[tuple[Atom, float]]
"""A product of atoms, each with its power."""
Terms = frozenset[tuple[Monomial, float]]
"""A polynomial: each product with its coefficient."""

ONE: Monomial = frozenset()
ZERO: Terms = frozenset()
_DIGITS = 12
"""Coefficients are equal if they agree in so many digits: they are computed in double precision."""


def constant(number: float) -> Terms:
    """A number."""
    return _terms({ONE: number})


def atom(one: Atom) -> Terms:
    """An atom by itself."""
    return frozenset({(frozenset({(one, 1.0)}), 1.0)})


def _terms(sums: Mapping[Monomial, float]) -> Terms:
    rounded = ((m, float(f"{c:.{_DIGITS}g}")) for m, c in sums.items())
    largest = max((abs(c) for c in sums.values()), default=0.0)
    return frozenset((m, c) for m, c in rounded if abs(c) > largest * 10.0**-_DIGITS)


def added(a: Terms, b: Terms, sign: float = 1.0) -> Terms:
    """A + sign · b."""
    sums = dict(a)
    scale = max((abs(c) for _, c in (*a, *b)), default=0.0)
    for monomial, coefficient in b:
        total = sums.get(monomial, 0.0) + sign * coefficient
        sums[monomial] = total if abs(total) > scale * 10.0 ** (2 - _DIGITS) else 0.0
    return _terms({m: c for m, c in sums.items() if c})


def scaled(a: Terms, factor: float) -> Terms:
    """Factor · a."""
    return _terms({m: factor * c for m, c in a})


def multiplied(a: Terms, b: Terms) -> Terms:
    """A · b."""
    result = ZERO
    for (m, c), (n, d) in itertools.product(a, b):
        result = added(result, frozenset({(_product(m, n), c * d)}))
    return result


def inverse(a: Terms) -> Terms | None:
    """1 / a, None unless a is one product."""
    if len(a) != 1:
        return None
    ((monomial, coefficient),) = a
    return frozenset({(frozenset((one, -power) for one, power in monomial), 1 / coefficient)})


def _product(m: Monomial, n: Monomial) -> Monomial:
    powers = dict(m)
    for one, power in n:
        powers[one] = powers.get(one, 0.0) + power
    return _masked({one: power for one, power in powers.items() if power})


def _masked(powers: dict[Atom, float]) -> Monomial:
    """An exponential that is kept where all its masks keep keys is the exponential of masked scores, zeroed."""
    exponential = next((a for a, p in powers.items() if isinstance(a, Exp) and p == 1), None)
    keeps = [a for a in powers if isinstance(a, Keep) and not a.of_rows]
    if exponential is None or not keeps:
        return frozenset(powers.items())
    known = {a.where for m, _ in exponential.exponent for a in dict(m) if isinstance(a, Mask)}
    if not known <= {keep.where for keep in keeps}:
        return frozenset(powers.items())
    new = [Mask(keep.where) for keep in keeps if keep.where not in known]
    masks = frozenset((frozenset({(mask, 1.0)}), 1.0) for mask in new)
    others = {a: p for a, p in powers.items() if a != exponential and a not in keeps}
    return frozenset({**others, Exp(exponential.exponent | masks, is_zeroed=True): 1.0}.items())


def in_rows_with_keys(terms: Terms) -> Terms:
    """A polynomial as it is in rows that have keys."""
    return frozenset((_not_zeroed(monomial), coefficient) for monomial, coefficient in terms)


def _not_zeroed(monomial: Monomial) -> Monomial:
    return frozenset((dataclasses.replace(a, is_zeroed=False) if isinstance(a, Exp) else a, p) for a, p in monomial)


def is_positive(terms: Terms) -> bool:
    """Whether a polynomial is a sum of products of exponentials and sums of them."""
    return bool(terms) and all(c > 0 and all(map(_is_positive, dict(monomial))) for monomial, c in terms)


def _is_positive(one: Atom) -> bool:
    if isinstance(one, Total):
        return one.other is None and all(map(_is_positive, dict(one.of)))
    return isinstance(one, (Exp, RowExp))


@dataclasses.dataclass(frozen=True)
class Columns:
    """Which dimensions of the scores are columns: the keys that softmax normalises over.

    Attributes:
        labels: these dimensions.
        count: their elements.
    """

    labels: frozenset[int]
    count: int

    def is_matrix(self, one: Atom) -> bool:
        """Whether an atom differs along a row. A mask counts as such, as one of a whole row does not cancel."""
        if isinstance(one, (Exp, Mask)):
            return True
        if isinstance(one, Keep):
            return bool(one.where.frame & self.labels)
        if isinstance(one, Leaf):
            return bool(one.tensor.frame & self.labels)
        return isinstance(one, Dot) and bool((one.left.frame | one.right.frame) & self.labels)

    def parted(self, monomial: Monomial) -> tuple[Monomial, Monomial]:
        """A product as the part that differs along a row and the part that does not."""
        matrix = frozenset((a, p) for a, p in monomial if self.is_matrix(a))
        return matrix, monomial - matrix

    def is_row(self, terms: Terms) -> bool:
        """Whether a polynomial is the same along each row."""
        return not any(self.is_matrix(one) for monomial, _ in terms for one, _ in monomial)

    def total(self, terms: Terms, other: Tensor | None = None) -> Terms:
        """The sum along each row of a polynomial, or of its product with a tensor."""
        result = ZERO
        for monomial, coefficient in terms:
            matrix, row = self.parted(monomial)
            is_row = not matrix and other is None
            of_matrix = constant(self.count) if is_row else atom(Total(_not_zeroed(matrix), other))
            result = added(result, multiplied(of_matrix, frozenset({(row, coefficient)})))
        return result

    def exponential(self, terms: Terms) -> Terms:
        """Exp of a polynomial: what is the same along each row is a factor."""
        matrix = frozenset((m, c) for m, c in terms if self.parted(m)[0])
        result = atom(Exp(matrix)) if matrix else constant(1.0)
        for monomial, coefficient in terms - matrix:
            result = multiplied(result, frozenset({(self._row_factor(monomial, coefficient), 1.0)}))
        return result

    def _row_factor(self, monomial: Monomial, coefficient: float) -> Monomial:
        """exp(coefficient · monomial) as a product."""
        if len(monomial) == 1:
            ((one, power),) = monomial
            if isinstance(one, Log) and power == 1 and len(one.of) == 1:
                ((inner, factor),) = one.of
                if factor == 1:
                    return frozenset((a, p * coefficient) for a, p in inner)
        return frozenset({(RowExp(monomial), coefficient)})

    def logarithm(self, terms: Terms) -> Terms | None:
        """Log of one product of row statistics, with the exponentials in it undone; None for anything else."""
        if len(terms) != 1 or not self.is_row(terms):
            return None
        ((monomial, coefficient),) = terms
        if coefficient != 1:
            return None
        result = ZERO
        for one, power in monomial:
            if isinstance(one, RowExp):
                result = added(result, frozenset({(one.exponent, power)}))
            else:
                result = added(result, scaled(atom(Log(atom(one))), power))
        return result
