"""Reads masks: which predicates keep the keys up to the query's own position, and which are something else."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from stablehlo_mem.attention.algebra import Labels, Mask, Tensor
from stablehlo_mem.ir.bindings import dense_value, ir
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.ir.matchers import direction, splat_truth, splat_value
from stablehlo_mem.ir.view_chains import View, view_of

_MOST_CONSTANT = 2**24
"""Elements of a constant mask that is read: a bound on the time."""


@dataclasses.dataclass(frozen=True)
class HalfPlane:
    """Keeps where `offset` + the indices times their factors is at least 0."""

    offset: int
    factors: frozenset[tuple[int, int]]

    def is_causal(self, row: int, column: int) -> bool:
        """Whether it keeps the keys whose index is at most the query's."""
        return self.offset == 0 and self.factors == frozenset({(row, 1), (column, -1)})


Condition = HalfPlane | Mask
"""A predicate that was understood, or one to be computed."""


def conditions(graph: Graph, mask: Mask) -> Iterator[Condition]:
    """The conditions that a mask is the conjunction of."""
    value, labels, keeps = mask.tensor.value, mask.tensor.labels, mask.keeps
    view = view_of(graph, value)
    if view.source != value:
        yield from conditions(graph, Mask(_through(graph, view, labels), keeps))
        return
    op = graph.producer(value)
    if splat_truth(graph, value) == keeps:
        return
    if op is not None and op.name == ("stablehlo.and" if keeps else "stablehlo.or"):
        for operand in op.operands:
            yield from conditions(graph, Mask(Tensor(operand, labels), keeps))
    elif op is not None and op.name == "stablehlo.not":
        yield from conditions(graph, Mask(Tensor(op.operands[0], labels), not keeps))
    elif op is not None and op.name == "stablehlo.select" and _truths(graph, op) in ((True, False), (False, True)):
        same = _truths(graph, op) == (True, False)
        yield from conditions(graph, Mask(Tensor(op.operands[0], labels), keeps == same))
    else:
        half = _half_plane(graph, op, labels, keeps) if op is not None else None
        yield half or _constant_tril(graph, op, labels, keeps) or mask


def _through(graph: Graph, view: View, labels: Labels) -> Tensor:
    shape = graph.values[view.source].shape
    dims = (None if d is None else labels[d] for d in view.dims)
    return Tensor(view.source, tuple(None if n == 1 else label for n, label in zip(shape, dims, strict=True)))


def _truths(graph: Graph, select: Op) -> tuple[bool | None, ...]:
    return tuple(splat_truth(graph, v) for v in select.operands[1:])


def _half_plane(graph: Graph, compare: Op, labels: Labels, keeps: bool) -> HalfPlane | None:
    if compare.name != "stablehlo.compare":
        return None
    sides = [_affine(graph, v, labels) for v in compare.operands]
    asks = direction(graph, compare)
    if sides[0] is None or sides[1] is None or asks in ("EQ", "NE"):
        return None
    (first, a), (second, b) = sides
    offset = first - second
    factors = {label: a.get(label, 0) - b.get(label, 0) for label in {*a, *b}}
    if asks in ("LE", "LT"):
        offset, factors = -offset, {label: -factor for label, factor in factors.items()}
    offset -= asks in ("GT", "LT")
    if not keeps:
        offset, factors = -offset - 1, {label: -factor for label, factor in factors.items()}
    return HalfPlane(offset, frozenset((label, factor) for label, factor in factors.items() if factor))


def _affine(graph: Graph, value: int, labels: Labels) -> tuple[int, dict[int, int]] | None:
    """A value of integers as a number plus multiples of the indices."""
    number = splat_value(graph, value)
    if number is not None:
        return int(number), {}
    view = view_of(graph, value)
    if view.source != value:
        shown = _through(graph, view, labels)
        return _affine(graph, shown.value, shown.labels)
    op = graph.producer(value)
    if op is None:
        return None
    if op.name == "stablehlo.iota":
        label = labels[ir.IntegerAttr(graph.handles[op.index].attributes["iota_dimension"]).value]
        return (0, {}) if label is None else (0, {label: 1})
    if op.name == "stablehlo.convert":
        return _affine(graph, op.operands[0], labels)
    if op.name not in ("stablehlo.add", "stablehlo.subtract"):
        return None
    sides = [_affine(graph, v, labels) for v in op.operands]
    if sides[0] is None or sides[1] is None:
        return None
    sign = 1 if op.name == "stablehlo.add" else -1
    (first, a), (second, b) = sides
    return first + sign * second, {label: a.get(label, 0) + sign * b.get(label, 0) for label in {*a, *b}}


def _constant_tril(graph: Graph, op: Op | None, labels: Labels, keeps: bool) -> HalfPlane | None:
    """A constant that is a lower triangle."""
    if op is None or op.name != "stablehlo.constant":
        return None
    frame = [label for label in labels if label is not None]
    shape = [n for n in graph.values[op.results[0]].shape if n != 1]
    if len(frame) != 2 or shape[0] * shape[1] > _MOST_CONSTANT or (dense := dense_value(graph.handles[op.index])) is None:
        return None
    array = np.asarray(dense).reshape(shape).astype(bool)
    array = array if keeps else ~array
    for row, column, oriented in ((frame[0], frame[1], array), (frame[1], frame[0], array.T)):
        if np.array_equal(oriented, np.tril(np.ones_like(oriented))):
            return HalfPlane(0, frozenset({(row, 1), (column, -1)}))
    return None

