"""Builds what a kernel of attention reads of the program's values, and the program's values from what it returns.

`rewriting.attention_pass` makes a `Placement` for each attention; `layout` says which dimensions go where.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from stablehlo_mem.attention.algebra import HalfPlane, Labels, Predicate, Tensor
from stablehlo_mem.attention.layout import Layout, widest
from stablehlo_mem.attention.masks import Comparison, Condition, Segments
from stablehlo_mem.attention.pattern import Attention, Gradient
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.builders import broadcast, convert, index_along, reduced, reshaped, splat, tensor, transposed
from stablehlo_mem.ir.graph import Graph

LEFT_OUT = -(2.0**15), -(2.0**41)
"""What stands for -inf in a bias, in f16 and in wider types: cuDNN subtracts such numbers from each other. They are
JAX's own (`get_large_negative_number`)."""


class Placement:
    """Builds the operands of a kernel from values of the program, and the program's results from the kernel's."""

    def __init__(self, graph: Graph, attention: Attention, layout: Layout):
        self.graph, self.attention, self.layout, self.shape = graph, attention, layout, layout.shape
        self.element = graph.mlir_values[widest(graph, attention).value].type.element_type

    def operands(self) -> list[Any]:
        """Queries, keys, values; the bias, the mask of keys and the segments of queries and keys, if there are any."""
        scores, layout = self.attention.scores, self.layout
        pairs = dict(scores.dot.summed)
        depth = own_dims(scores.queries)
        keys = [pairs[d] for d in depth]
        operands = [
            self.placed(scores.queries, depth, layout.row),
            self.placed(scores.keys, keys, layout.column),
            self.placed(self.attention.values, own_dims(self.attention.values), layout.column),
        ]
        operands += [self.bias()] if self.shape.bias is not None else []
        operands += [self.key_mask()] if self.shape.key_mask else []
        return operands + (self.segments(layout.masks.segments) if layout.masks.segments is not None else [])

    def segments(self, segments: Segments) -> list[Any]:
        """The numbers of the segments: batch x queries, batch x keys."""
        layout, numbers = self.layout, []
        for one, sequence in ((segments.queries, layout.row), (segments.keys, layout.column)):
            labels = [*layout.batch, sequence]
            full = [layout.sizes[label] for label in labels]
            number = self.spread(one.value, one.labels, labels, full)
            number = convert(number, ir.IntegerType.get_signless(32))
            numbers.append(reshaped(number, [self.shape.batch, layout.sizes[sequence]]))
        return numbers

    def key_mask(self) -> Any:
        """1 for the keys of an example that count, 0 for the others: batch x keys."""
        labels = [*self.layout.batch, self.layout.column]
        full = [self.layout.sizes[label] for label in labels]
        kept = self.all_kept(self.layout.masks.of_keys, labels, full)
        numbers = convert(kept, ir.IntegerType.get_signless(32))
        return reshaped(numbers, [self.shape.batch, self.shape.keys])

    def all_kept(self, conditions: Sequence[Condition], labels: Sequence[int], full: Sequence[int]) -> Any:
        """The conjunction of conditions as a predicate of some dimensions of the scores."""
        return functools.reduce(stablehlo.and_, [self.kept(condition, labels, full) for condition in conditions])

    def rows_with_keys(self) -> Any:
        """Which queries have any key: batch x heads x queries; None if all have one. See `empty_rows`."""
        layout = self.layout
        masks = layout.masks
        found = [*masks.others, *masks.of_keys, *masks.of_rows]
        found += [masks.segments.condition] if masks.segments is not None else []
        if not found:
            return None
        if self.shape.causal:
            found.append(HalfPlane(0, frozenset({(layout.row, 1), (layout.column, -1)})))
        present = frozenset({layout.column}).union(*(c.frame for c in found))
        rows = [*layout.batch, *layout.heads, layout.row]
        labels = [label for label in (*rows, layout.column) if label in present]
        kept = self.all_kept(found, labels, [layout.sizes[label] for label in labels])
        any_kept = reduced(kept, [len(labels) - 1], 0, stablehlo.or_)
        full = tensor([layout.sizes[label] for label in rows], any_kept.type.element_type)
        spread = broadcast(any_kept, full, [rows.index(label) for label in labels[:-1]])
        return reshaped(spread, [self.shape.batch, self.shape.heads, self.shape.queries])

    def output_gradient(self, gradient: Gradient) -> Any:
        """The gradient of the output, its depth in the order of the values'."""
        places = {value: own for own, value in gradient.pairs}
        return self.placed(gradient.of_output, [places[d] for d in own_dims(self.attention.values)], self.layout.row)

    def placed(self, one: Tensor, depth: Sequence[int], row: int) -> Any:
        """A tensor in the kernel's order of dimensions."""
        groups = [[label for label in group if label in one.frame] for group in self.layout.groups(row)]
        value = self.graph.mlir_values[one.value]
        order = [one.labels.index(label) for group in groups for label in group] + list(depth)
        kept = sorted(order)
        sizes = [math.prod(self.layout.sizes[label] for label in group) for group in groups]
        last = math.prod(value.type.shape[d] for d in depth)
        if order != kept:
            value = reshaped(value, [value.type.shape[d] for d in kept])
            value = _transposed(value, [kept.index(d) for d in order])
        return convert(reshaped(value, [*sizes, last]), self.element)

    def bias(self) -> Any:
        """The biases and masks as one array of batch, heads, queries and keys."""
        layout, shape = self.layout, self.shape
        assert shape.bias is not None
        assert shape.bias_shape is not None
        sides = [
            side if n > 1 or not side else () for n, side in zip(shape.bias, (layout.batch, layout.heads), strict=True)
        ]
        labels = [*sides[0], *sides[1], layout.row, layout.column]
        full = [layout.sizes[label] for label in labels]
        element, total = self.element, None
        # One bias is only moved; what is scaled or added up is so in float32.
        one = [factor for _, factor in self.attention.biases] == [1.0]
        wide = element if one else ir.F32Type.get()
        for bias, factor in self.attention.biases:
            value = convert(self.spread(self.graph.mlir_values[bias.value], bias.labels, labels, full), wide)
            value = value if factor == 1 else stablehlo.multiply(value, splat(value.type, factor))
            total = value if total is None else stablehlo.add(total, value)
        predicate = self.all_kept(layout.masks.others, labels, full) if layout.masks.others else None
        bias = splat(tensor(full, element), 0) if total is None else convert(total, element)
        if predicate is not None:
            fill = LEFT_OUT[0] if shape.dtype == "f16" else LEFT_OUT[1]
            bias = stablehlo.select(predicate, bias, splat(bias.type, fill))
        return reshaped(bias, shape.bias_shape)

    def kept(self, condition: Condition, labels: Sequence[int], full: Sequence[int]) -> Any:
        """A condition as a predicate of the bias' dimensions."""
        if isinstance(condition, Predicate):
            value = self.predicate(condition, labels, full)
            return value if condition.is_true else stablehlo.not_(value)
        index = splat(tensor(full, ir.IntegerType.get_signless(32)), condition.offset)
        for label, factor in sorted(condition.factors):
            along = index_along(full, labels.index(label))
            index = stablehlo.add(index, stablehlo.multiply(along, splat(along.type, factor)))
        return stablehlo.compare(index, splat(index.type, 0), stablehlo.ComparisonDirectionAttr.get("GE"))

    def predicate(self, condition: Predicate, labels: Sequence[int], full: Sequence[int]) -> Any:
        """A predicate of the program along more dimensions; a comparison is made anew, where it lies along fewer."""
        if not isinstance(condition, Comparison):
            return self.spread(condition.value, condition.labels, labels, full)
        left, right = (self.spread(side.value, side.labels, labels, full) for side in condition.sides)
        attributes = condition.value.owner.operation.attributes
        return stablehlo.compare(
            left, right, attributes["comparison_direction"], compare_type=attributes.get("compare_type", None)
        )

    def spread(self, value: Any, of: Labels, labels: Sequence[int], full: Sequence[int]) -> Any:
        """A value broadcast to dimensions of the scores."""
        present = [label for label in of if label is not None]
        value = reshaped(value, [self.layout.sizes[label] for label in present])
        order = sorted(present, key=list(labels).index)
        value = transposed(value, [present.index(label) for label in order])
        dims = [list(labels).index(label) for label in order]
        return broadcast(value, tensor(full, value.type.element_type), dims) if len(dims) < len(full) else value

    def result(self, value: Any, labels: Labels, like: Any, own: Sequence[int], row: int, heads: Sequence[int]) -> Any:
        """A kernel's output or gradient as the program has it.

        Args:
            labels: of the program's value, whose type `like` is.
            own: the program's numbers of the dimensions that make up the depth.
            heads: the dimensions of the scores that make up the heads.
        """
        groups = (self.layout.batch, (row,), heads) if self.shape.rows_first else (self.layout.batch, heads, (row,))
        flat = [label for group in groups for label in group] + [-1 - d for d in own]
        sizes = {label: size for size, label in zip(like.shape, labels, strict=True) if label is not None}
        order = [flat.index(label) for label in labels if label is not None]
        if order != sorted(order):
            value = _transposed(reshaped(value, [sizes[label] for label in flat]), order)
        return convert(reshaped(value, like.shape), like.element_type)


def _transposed(value: Any, order: Sequence[int]) -> Any:
    """A value with its dimensions in an order; two transposes become one."""
    owner: Any = value.owner
    if not isinstance(owner, ir.Block) and owner.operation.name == "stablehlo.transpose":
        inner = list(ir.DenseI64ArrayAttr(owner.operation.attributes["permutation"]))
        return transposed(owner.operation.operands[0], [inner[d] for d in order])
    return transposed(value, order)


def own_dims(one: Tensor) -> list[int]:
    """The dimensions of a tensor that the scores do not have."""
    return [d for d, label in enumerate(one.labels) if label is not None and label < 0]
