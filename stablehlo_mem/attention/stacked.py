"""Recognises what a backward loop reads of the attention of a forward loop: rows of stacks, one for each layer.

Rows that are read at the same index are values of one iteration of the loop that stacked them. So what the forward
body's trace says of a stacked value holds for the row, once the tensors in it are rows, or values from outside, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from stablehlo_mem.attention.algebra import (
    Atom,
    Dot,
    Exp,
    Keep,
    Labels,
    Leaf,
    Log,
    Mask,
    Monomial,
    Predicate,
    Region,
    RowExp,
    Tensor,
    Terms,
    Total,
)
from stablehlo_mem.attention.origins import numbered, origin
from stablehlo_mem.attention.scores import Known, Scores, Trace, reaches_exponential
from stablehlo_mem.attention.trace import trace, trace_from
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import Graph, Op, build_graph
from stablehlo_mem.ir.matchers import splat_number
from stablehlo_mem.ir.op_attributes import integers
from stablehlo_mem.ir.view_chains import view_of


class _Missing(Exception):
    """The backward loop does not read what a value is computed from."""


@dataclasses.dataclass
class _Rows:
    """The rows of one iteration of a forward loop.

    Attributes:
        loop: the forward loop, an MLIR op.
        read: by the number of its result, the dynamic_slice that reads a row of it.
    """

    loop: Any
    read: dict[int, Op]


def stacked_traces(graph: Graph) -> Iterator[Trace]:
    """The traces of what a block reads of forward loops' attention."""
    for rows in _rows(graph):
        forward = build_graph(rows.loop.regions[1].blocks[0], interned=graph.interned)
        moved = _Moved(graph, forward, rows)
        for op in forward.ops:
            if op.name == "stablehlo.dot_general" and reaches_exponential(forward, op.results[0]):
                for left_is_keys in (False, True):
                    traced = trace(forward, op.index, left_is_keys=left_is_keys)
                    if traced is not None and len(traced.known) > 1 and (scores := moved.scores(traced.scores)):
                        known = moved.known(traced)
                        is_matrix = (not scores.columns.is_row(value.terms) for value in known.values())
                        if any(is_matrix):
                            yield trace_from(graph, scores, known)


def _rows(graph: Graph) -> list[_Rows]:
    """The rows that a block reads at equal indices from the stacks of a loop."""
    found: dict[tuple[Any, int], _Rows] = {}
    for op in graph.ops:
        if op.name != "stablehlo.dynamic_slice" or integers(graph, op, "slice_sizes")[0] != 1:
            continue
        stack = origin(graph.mlir_values[op.operands[0]])
        shape = graph.values[op.operands[0]].shape
        whole = integers(graph, op, "slice_sizes")[1:] == shape[1:] and len(shape) > 1
        if not whole or isinstance(stack.owner, ir.Block) or stack.owner.operation.name != "stablehlo.while":
            continue
        loop, number = stack.owner.operation, ir.OpResult(stack).result_number
        if _is_stack(loop, number):
            rows = found.setdefault((loop, op.operands[1]), _Rows(loop, {}))
            rows.read.setdefault(number, op)
    return list(found.values())


def _is_stack(loop: Any, number: int) -> bool:
    """Whether each iteration of a loop writes its own row of a carry, from the first to the last."""
    body = loop.regions[1].blocks[0]
    returned = body.operations[len(body.operations) - 1].operation.operands
    update = returned[number].owner
    if isinstance(update, ir.Block) or update.operation.name != "stablehlo.dynamic_update_slice":
        return False
    stack, row, first, *others = update.operation.operands
    is_row = list(row.type.shape) == [1, *stack.type.shape[1:]] and all(splat_number(origin(v)) == 0 for v in others)
    if stack != body.arguments[number] or not is_row or not isinstance(first.owner, ir.Block):
        return False
    counter = ir.BlockArgument(first).arg_number
    return first.owner == body and _counts(loop, counter, returned[counter], stack.type.shape[0])


def _counts(loop: Any, counter: int, following: Any, count: int) -> bool:
    """Whether a carry counts from 0, one by one, and the loop ends at `count`."""
    body, condition = loop.regions[1].blocks[0], loop.regions[0].blocks[0]
    add = following.owner
    if splat_number(origin(loop.operands[counter])) != 0 or isinstance(add, ir.Block):
        return False
    sides = list(add.operation.operands)
    steps = add.operation.name == "stablehlo.add" and body.arguments[counter] in sides
    steps = steps and any(splat_number(origin(v)) == 1 for v in sides)
    (end,) = condition.operations[len(condition.operations) - 1].operation.operands
    if not steps or isinstance(end.owner, ir.Block) or end.owner.operation.name != "stablehlo.compare":
        return False
    compare = end.owner.operation
    less = "LT" in str(compare.attributes["comparison_direction"])
    left, right = compare.operands
    return less and left == condition.arguments[counter] and splat_number(origin(right)) == count


def _block_of(value: Any) -> Any:
    """The block that a value belongs to."""
    return value.owner if isinstance(value.owner, ir.Block) else value.owner.operation.block


class _Moved:
    """Says of a forward loop's values what they are in the block that reads its rows."""

    def __init__(self, graph: Graph, forward: Graph, rows: _Rows):
        self.graph, self.forward = graph, forward
        self.columns: frozenset[int] = frozenset()
        self.body = body = rows.loop.regions[1].blocks[0]
        returned = body.operations[len(body.operations) - 1].operation.operands
        self.rows: dict[int, tuple[int, tuple[int | None, ...]]] = {}
        for number, op in rows.read.items():
            row = numbered(forward)[origin(returned[number].owner.operation.operands[1])]
            view = view_of(forward, row)
            # A row shows the whole value, its dimensions in another order perhaps.
            if forward.values[view.source].nbytes == forward.values[row].nbytes:
                self.rows.setdefault(view.source, (op.results[0], view.dims))

    def scores(self, scores: Scores) -> Scores | None:
        """The scores, None if the block does not read queries and keys."""
        try:
            dot = self.dot(scores.dot)
        except _Missing:
            return None
        return dataclasses.replace(scores, op=-1, queries=dot.left, keys=dot.right, dot=dot, labels=())

    def known(self, traced: Trace) -> dict[int, Known]:
        """What the rows are."""
        self.columns = traced.scores.columns.labels
        known: dict[int, Known] = {}
        for source, (value, dims) in self.rows.items():
            if (of_source := traced.known.get(source)) is not None:
                try:
                    terms = self.terms(of_source.terms)
                except _Missing:
                    continue
                known[value] = Known(self.labels(value, dims, of_source.labels), terms)
        return known

    def labels(self, value: int, dims: tuple[int | None, ...], labels: Labels) -> Labels:
        """Where the dimensions of a row lie, given those of the value that it shows."""
        places: list[int | None] = [None] * len(self.graph.values[value].shape)
        for label, d in zip(labels, dims, strict=True):
            if d is not None and label is not None:
                places[d] = label if label >= 0 else -1 - d
        return tuple(places)

    def tensor(self, one: Tensor) -> tuple[Tensor, Callable[[int], int]]:
        """A tensor, and what its dimensions become."""
        if one.value in self.rows:
            value, dims = self.rows[one.value]
            places = dict(enumerate(dims))
            return Tensor(value, self.labels(value, dims, one.labels)), lambda d: places[d] or 0
        outside = numbered(self.graph).get(origin(self.forward.mlir_values[one.value]))
        if outside is None or self.forward.values[one.value].is_computed:
            raise _Missing
        return Tensor(outside, one.labels), lambda d: d

    def dot(self, one: Dot) -> Dot:
        """A product of tensors."""
        (left, of_left), (right, of_right) = self.tensor(one.left), self.tensor(one.right)
        return Dot(left, right, frozenset((of_left(a), of_right(b)) for a, b in one.summed))

    def terms(self, terms: Terms) -> Terms:
        """A polynomial."""
        return frozenset((self.monomial(m), c) for m, c in terms)

    def monomial(self, monomial: Monomial) -> Monomial:
        """A product."""
        return frozenset((self.atom(a), p) for a, p in monomial)

    def leaf(self, one: Tensor) -> Tensor:
        """A tensor; a row statistic that is not read, such as the maximum, has a number of its own: it cancels."""
        try:
            return self.tensor(one)[0]
        except _Missing:
            if one.frame & self.columns:
                raise
            return Tensor(-1 - one.value, one.labels)

    def where(self, kept: Region | Predicate) -> Region | Predicate:
        """Where a mask keeps keys."""
        if isinstance(kept, Region) or _block_of(kept.value) != self.body:
            return kept
        tensor, _ = self.tensor(Tensor(numbered(self.forward)[kept.value], kept.labels))
        return Predicate(self.graph.mlir_values[tensor.value], tensor.labels, kept.is_true)

    def atom(self, one: Atom) -> Atom:
        """An atom."""
        if isinstance(one, Dot):
            return self.dot(one)
        if isinstance(one, Leaf):
            return Leaf(self.leaf(one.tensor))
        if isinstance(one, (Mask, Keep)):
            return dataclasses.replace(one, where=self.where(one.where))
        if isinstance(one, Exp):
            return dataclasses.replace(one, exponent=self.terms(one.exponent))
        if isinstance(one, RowExp):
            return RowExp(self.monomial(one.exponent))
        if isinstance(one, Log):
            return Log(self.terms(one.of))
        assert isinstance(one, Total)
        return Total(self.monomial(one.of), None if one.other is None else self.tensor(one.other)[0])
