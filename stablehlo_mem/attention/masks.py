"""Reads masks: which predicates keep the keys up to the query's own position, and which are something else.

Masks are read as MLIR values: that of a scanned layer is computed before the scan.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from stablehlo_mem.attention.algebra import HalfPlane, Labels, Mask, Predicate, Region, Shown
from stablehlo_mem.attention.origins import MAX_DEPTH, OF_NUMBERS, computed, number_of, origin
from stablehlo_mem.ir.bindings import dense_value, ir
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.ir.matchers import splat_number, splat_truth_of
from stablehlo_mem.ir.op_attributes import comparison_direction
from stablehlo_mem.ir.view_chains import places_of

_MOST_CONSTANT = 2**24
"""Elements of a constant mask that is read: a bound on the time."""

_SEGMENT_TYPES = frozenset({"i8", "ui8", "i16", "ui16", "i32"})
"""Types whose numbers are numbers of 32 bits too."""

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "GE": operator.ge,
    "GT": operator.gt,
    "LE": operator.le,
    "LT": operator.lt,
}


@dataclasses.dataclass(frozen=True)
class TwoValued:
    """A value that is one number where a predicate is true and another where it is false.

    Attributes:
        predicate: the predicate, an MLIR value.
        labels: the dimensions of the scores along which the predicate lies.
        yes: the number where it is true.
        no: the number where it is false.
    """

    predicate: Any
    labels: Labels
    yes: float
    no: float


Condition = HalfPlane | Predicate
"""A predicate that was understood, or one to be computed."""


def where(graph: Graph, value: int, labels: Labels, is_true: bool) -> Region | Predicate:
    """Where a predicate of the program is true, or false. Equal regions are equal, however they were computed."""
    return _where(graph.mlir_values[value], labels, is_true)


def _where(value: Any, labels: Labels, is_true: bool) -> Region | Predicate:
    planes = _half_planes(value, labels, is_true)
    return Predicate(*_source(value, labels), is_true) if planes is None else Region(frozenset(planes))


def added_mask(graph: Graph, value: int, labels: Labels) -> Mask | None:
    """A value that is 0 where keys are kept and another number elsewhere, as the mask that adds it to scores."""
    of = two_valued(graph.mlir_values[value], labels)
    if of is None or (of.yes == 0) == (of.no == 0):
        return None
    return Mask(_where(of.predicate, of.labels, of.yes == 0), float(of.yes or of.no), is_added=True)


def conditions(kept: Region | Predicate) -> Iterator[Condition]:
    """The conditions whose conjunction says where a mask keeps keys."""
    if isinstance(kept, Region):
        yield from sorted(kept.planes, key=str)
        return
    parts = _conjunction(kept.value, kept.labels, kept.is_true)
    if not parts:
        yield _compared_values(kept)
    for part in parts:
        yield from conditions(_where(*part))


class Comparison(Predicate):
    """A predicate that compares two values, which may lie along fewer dimensions."""

    @property
    def sides(self) -> tuple[Shown, Shown]:
        """The two values."""
        left, right = (Shown(*_source(value, self.labels)) for value in self.value.owner.operation.operands)
        return left, right

    @property
    def frame(self) -> frozenset[int]:
        """The dimensions of the scores that decide."""
        left, right = self.sides
        return left.frame | right.frame


def _compared_values(kept: Predicate) -> Predicate:
    """A predicate as the comparison that it is, if it is one."""
    owner: Any = kept.value.owner
    is_comparison = not isinstance(owner, ir.Block) and owner.operation.name == "stablehlo.compare"
    return Comparison(kept.value, kept.labels, kept.is_true) if is_comparison else kept


@dataclasses.dataclass(frozen=True)
class Segments:
    """A mask that keeps the keys whose number is the query's: documents packed into one sequence.

    Attributes:
        condition: the mask.
        queries, keys: the numbers, of at most 32 bits.
    """

    condition: Comparison
    queries: Shown
    keys: Shown


def segments_of(condition: Condition, batch: Sequence[int], row: int, column: int) -> Segments | None:
    """The segments whose mask a condition is, None if it is another."""
    if not isinstance(condition, Comparison):
        return None
    sides = condition.sides
    asks = comparison_direction(condition.value.owner.operation)
    if asks != ("EQ" if condition.is_true else "NE") or any(_element(side) not in _SEGMENT_TYPES for side in sides):
        return None
    for queries, keys in (sides, sides[::-1]):
        if {row} <= queries.frame <= {*batch, row} and {column} <= keys.frame <= {*batch, column}:
            return Segments(condition, queries, keys)
    return None


def _element(shown: Shown) -> str:
    return str(shown.value.type.element_type)


def _conjunction(value: Any, labels: Labels, is_true: bool) -> list[tuple[Any, Labels, bool]]:
    """Predicates, where they lie and whether they hold, where one that is computed of them does; empty for others."""
    value, labels = _source(value, labels)
    if isinstance(value.owner, ir.Block):
        return []
    op = value.owner.operation
    name = op.name.removeprefix("stablehlo.")
    if name == "not":
        return [(op.operands[0], labels, not is_true)]
    if name == ("and" if is_true else "or"):
        return [(operand, labels, is_true) for operand in op.operands]
    if name == "select" and op.operands[0].type == value.type:
        truths = tuple(splat_truth_of(v) for v in list(op.operands)[1:])
        return [(op.operands[0], labels, is_true == truths[0])] if set(truths) == {True, False} else []
    of = _compared_choice(op, labels) if name == "compare" else None
    if of is not None and of.yes != of.no:
        return [(of.predicate, of.labels, is_true == bool(of.yes))]
    factors = _product_of_truths(op, labels) if name == "compare" and is_true else ()
    return [(of.predicate, of.labels, bool(of.yes)) for of in factors]


def _product_of_truths(compare: Any, labels: Labels) -> tuple[TwoValued, ...]:
    """The factors of a product that is compared with zero, if each is zero or another number: `make_attention_mask`."""
    asks, (left, right) = comparison_direction(compare), compare.operands
    product, labels = _source(left, labels)
    if number_of(right) != 0 or asks not in ("NE", "GT") or isinstance(product.owner, ir.Block):
        return ()
    op = product.owner.operation
    factors = [two_valued(v, labels) for v in op.operands] if op.name == "stablehlo.multiply" else []
    return tuple(of for of in factors if of is not None and {of.yes, of.no} == {0, 1}) if None not in factors else ()


def _half_planes(value: Any, labels: Labels, keeps: bool) -> list[HalfPlane] | None:
    """The conditions that a predicate is the conjunction of, None if it has others than comparisons of indices."""
    value, labels = _source(value, labels)
    truth = splat_truth_of(value)
    if truth is not None:
        return [] if truth == keeps else None
    parts = _conjunction(value, labels, keeps)
    if parts:
        planes = [_half_planes(*part) for part in parts]
        return None if None in planes else [plane for some in planes for plane in some or ()]
    if isinstance(value.owner, ir.Block):
        return None
    op = value.owner.operation
    read = _compared if op.name == "stablehlo.compare" else _constant_triangle
    half = read(op, labels, keeps)
    return None if half is None else [half]


def two_valued(value: Any, labels: Labels, depth: int = MAX_DEPTH) -> TwoValued | None:
    """What a value is that is one number where a predicate is true and another where it is false, None for others."""
    value, labels = _source(value, labels)
    if isinstance(value.owner, ir.Block) or not depth:
        return None
    op = value.owner.operation
    if op.name == "stablehlo.convert" and str(op.operands[0].type.element_type) == "i1":
        return TwoValued(op.operands[0], labels, 1, 0)
    if op.name == "stablehlo.select" and op.operands[0].type.shape == value.type.shape:
        yes, no = map(number_of, list(op.operands)[1:])
        return None if yes is None or no is None else TwoValued(op.operands[0], labels, yes, no)
    if op.name not in OF_NUMBERS:
        return None
    numbers = [number_of(operand) for operand in op.operands]
    others = [i for i, number in enumerate(numbers) if number is None]
    inner = two_valued(op.operands[others[0]], labels, depth - 1) if len(others) == 1 else None
    if inner is None:
        return None
    yes, no = (computed(op, [at if number is None else number for number in numbers]) for at in (inner.yes, inner.no))
    return None if yes is None or no is None else TwoValued(inner.predicate, inner.labels, yes, no)


def _compared_choice(compare: Any, labels: Labels) -> TwoValued | None:
    """What a comparison of a two-valued operand with a number says, as 1 and 0."""
    chosen, number = two_valued(compare.operands[0], labels), number_of(compare.operands[1])
    if chosen is None or number is None:
        return None
    holds = _COMPARISONS[comparison_direction(compare)]
    return TwoValued(chosen.predicate, chosen.labels, holds(chosen.yes, number), holds(chosen.no, number))


def _source(value: Any, labels: Labels) -> tuple[Any, Labels]:
    """What a value shows through views and carries that loops hand on, and where its dimensions lie."""
    while True:
        value = origin(value)
        if isinstance(value.owner, ir.Block):
            return value, labels
        op = value.owner.operation
        places = places_of(op)
        if places is None:
            return value, labels
        value = op.operands[0]
        sizes = zip(value.type.shape, places, strict=True)
        labels = tuple(None if d is None or size == 1 else labels[d] for size, d in sizes)


def _compared(op: Any, labels: Labels, keeps: bool) -> HalfPlane | None:
    """A comparison of sums of indices and numbers."""
    sides = [_affine(v, labels) for v in op.operands]
    asks = comparison_direction(op)
    if sides[0] is None or sides[1] is None or asks in ("EQ", "NE"):
        return None
    offset, factors = _difference(sides[0], sides[1], 1)
    if asks in ("LE", "LT"):
        offset, factors = -offset, {label: -factor for label, factor in factors.items()}
    offset -= asks in ("GT", "LT")
    if not keeps:
        offset, factors = -offset - 1, {label: -factor for label, factor in factors.items()}
    return HalfPlane(offset, frozenset((label, factor) for label, factor in factors.items() if factor))


_Affine = tuple[int, dict[int, int]]
"""A number plus multiples of the indices along dimensions of the scores."""


def _difference(a: _Affine, b: _Affine, factor: int) -> _Affine:
    labels = {*a[1], *b[1]}
    return a[0] - factor * b[0], {label: a[1].get(label, 0) - factor * b[1].get(label, 0) for label in labels}


def _affine(value: Any, labels: Labels) -> _Affine | None:
    """An integer value as a number plus multiples of the indices."""
    value, labels = _source(value, labels)
    number = splat_number(value)
    if number is not None:
        return (int(number), {}) if math.isfinite(number) else None
    if isinstance(value.owner, ir.Block) or not isinstance(value.type.element_type, (ir.IntegerType, ir.FloatType)):
        return None
    op = value.owner.operation
    if op.name == "stablehlo.iota":
        label = labels[ir.IntegerAttr(op.attributes["iota_dimension"]).value]
        return (0, {}) if label is None else (0, {label: 1})
    if op.name == "stablehlo.convert":
        return _affine(op.operands[0], labels)
    if op.name not in ("stablehlo.add", "stablehlo.subtract"):
        return None
    sides = [_affine(v, labels) for v in op.operands]
    if sides[0] is None or sides[1] is None:
        return None
    return _difference(sides[0], sides[1], -1 if op.name == "stablehlo.add" else 1)


def _constant_triangle(op: Any, labels: Labels, keeps: bool) -> HalfPlane | None:
    """A constant that is a lower triangle."""
    if op.name != "stablehlo.constant":
        return None
    frame = [label for label in labels if label is not None]
    shape = [n for n in op.results[0].type.shape if n != 1]
    dense = dense_value(op)
    if len(frame) != 2 or dense is None or shape[0] * shape[1] > _MOST_CONSTANT:
        return None
    array = np.asarray(dense).reshape(shape).astype(bool) == keeps
    for row, column, oriented in ((frame[0], frame[1], array), (frame[1], frame[0], array.T)):
        if np.array_equal(oriented, np.tril(np.ones_like(oriented))):
            return HalfPlane(0, frozenset({(row, 1), (column, -1)}))
    return None
