"""Where the dimensions of an attention go in a kernel that knows batch, heads, queries, keys and depth only."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax

from stablehlo_mem.attention.algebra import HalfPlane, Labels, Predicate, Tensor
from stablehlo_mem.attention.masks import Condition, Segments, conditions, segments_of
from stablehlo_mem.attention.pattern import Attention, Gradient
from stablehlo_mem.ir.bindings import dtypes_by_name, ir, stablehlo
from stablehlo_mem.ir.builders import broadcast, convert, index_along, reduced, reshaped, splat, tensor, transposed
from stablehlo_mem.ir.graph import Graph

LEFT_OUT = -(2.0**15), -(2.0**41)
"""What stands for -inf in a bias, in f16 and in wider types: cuDNN subtracts such numbers from each other. They are
JAX's own (`get_large_negative_number`)."""


@dataclasses.dataclass(frozen=True)
class KernelShape:
    """What a kernel is made for.

    Attributes:
        batch, heads, kv_heads, queries, keys, depth, value_depth: its sizes; `heads` is a multiple of `kv_heads`.
        dtype: of all operands.
        scale: of the products of queries and keys.
        causal: whether the query i has the keys up to i only.
        bias: batch and heads of the bias, 1 where it is the same for all; None without one.
        rows_first: whether the dimensions are batch, queries, heads, depth; otherwise batch, heads, queries, depth.
        key_mask: whether there is a mask of batch and keys, beside or without a bias.
        segments: whether a query has the keys of its own segment only, whose numbers are given.
        precision: of the matmuls of float32: "default" or "highest".
    """

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    depth: int
    value_depth: int
    dtype: str
    scale: float
    causal: bool
    bias: tuple[int, int] | None
    rows_first: bool
    key_mask: bool = False
    segments: bool = False
    precision: str = "default"

    def sides(self, heads: int, rows: int, depth: int) -> tuple[int, int, int, int]:
        """The shape of an operand."""
        return (self.batch, rows, heads, depth) if self.rows_first else (self.batch, heads, rows, depth)

    def spec(self, shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
        """An operand of a shape, as JAX traces it."""
        return jax.ShapeDtypeStruct(shape, dtypes_by_name()[self.dtype])

    @property
    def query(self) -> tuple[int, int, int, int]:
        """The shape of the queries."""
        return self.sides(self.heads, self.queries, self.depth)

    @property
    def key(self) -> tuple[int, int, int, int]:
        """The shape of the keys."""
        return self.sides(self.kv_heads, self.keys, self.depth)

    @property
    def value(self) -> tuple[int, int, int, int]:
        """The shape of the values."""
        return self.sides(self.kv_heads, self.keys, self.value_depth)

    @property
    def output(self) -> tuple[int, int, int, int]:
        """The shape of the output."""
        return self.sides(self.heads, self.queries, self.value_depth)

    @property
    def bias_shape(self) -> tuple[int, int, int, int] | None:
        """The shape of the bias."""
        return None if self.bias is None else (*self.bias, self.queries, self.keys)

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key, of all heads."""
        return self.batch * self.heads * self.queries * self.keys

    @property
    def row_count(self) -> int:
        """Queries of all heads."""
        return self.batch * self.heads * self.queries


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which dimensions of the scores are a kernel's batch, heads, queries and keys.

    Attributes:
        batch, heads: in order; the heads of the keys come before those that share keys.
        shared: the last of `heads`, that share keys.
        conditions: the masks that become a bias.
        key_masks: those that the kernel takes as they are.
        row_masks: those that leave out whole queries: no kernel needs them, see `empty_rows`.
        segments: the mask of segments that the kernel takes.
    """

    shape: KernelShape
    sizes: tuple[int, ...]
    batch: tuple[int, ...]
    heads: tuple[int, ...]
    shared: tuple[int, ...]
    row: int
    column: int
    key_masks: tuple[Condition, ...]
    conditions: tuple[Condition, ...]
    row_masks: tuple[Condition, ...] = ()
    segments: Segments | None = None

    @property
    def key_heads(self) -> tuple[int, ...]:
        """The dimensions of the scores that are the heads of keys and values."""
        return tuple(label for label in self.heads if label not in self.shared)

    def groups(self, row: int | None = None) -> tuple[tuple[int, ...], ...]:
        """The dimensions of the scores along each dimension of an operand but its depth."""
        rows = (self.row if row is None else row,)
        return (self.batch, rows, self.heads) if self.shape.rows_first else (self.batch, self.heads, rows)


def layout_of(
    graph: Graph, attention: Attention, *, rows_first: bool | None = None, has_key_masks: bool = False
) -> Layout:
    """How an attention fits a kernel.

    Args:
        rows_first: see `KernelShape`; None for the order in which the queries lie.
        has_key_masks: whether the kernel takes masks of batch and keys, and of segments, other than by a bias.
    """
    scores = attention.scores
    (column,) = scores.columns.labels
    found = [c for mask in attention.masks for c in conditions(mask.where)]
    row = _row(attention, found, column)
    causal = any(isinstance(c, HalfPlane) and c.is_causal(row, column) for c in found)
    rest = tuple(c for c in found if not (isinstance(c, HalfPlane) and c.is_causal(row, column)))
    order = [label for label in scores.queries.labels if label is not None and label >= 0]
    batch = [label for label in order if label in scores.batch]
    shared = tuple(label for label in order if label in scores.rows and label != row)
    split = 1 if len(batch) > 1 or shared else 0
    heads = (*batch[split:], *shared)
    if rows_first is None:
        rows_first = bool(heads) and order.index(row) < max(order.index(label) for label in heads)
    keys_only = {*batch[:split], column}
    row_masks = [c for c in rest if column not in c.frame]
    key_masks = [c for c in rest if has_key_masks and c.frame <= keys_only and c not in row_masks]
    others = [c for c in rest if c not in (*key_masks, *row_masks)]
    of_segments = [c for c in others if has_key_masks and segments_of(c, batch[:split], row, column) is not None]
    others = [c for c in others if c not in of_segments[:1]]
    sizes = scores.sizes
    count = lambda labels: math.prod(sizes[label] for label in labels)  # noqa: E731
    own = lambda t: math.prod(_own_sizes(graph, t))  # noqa: E731
    return Layout(
        shape=KernelShape(
            batch=count(batch[:split]),
            heads=count(heads),
            kv_heads=count(batch[split:]),
            queries=sizes[row],
            keys=sizes[column],
            depth=own(scores.queries),
            value_depth=own(attention.values),
            dtype=graph.values[scores.queries.value].dtype,
            scale=attention.scale,
            causal=causal,
            bias=_bias_sides(attention, others, batch[:split], heads, count),
            rows_first=rows_first,
            key_mask=bool(key_masks),
            segments=bool(of_segments),
            precision=scores.precision,
        ),
        sizes=sizes,
        batch=tuple(batch[:split]),
        heads=heads,
        shared=shared,
        row=row,
        column=column,
        key_masks=tuple(key_masks),
        conditions=tuple(others),
        row_masks=tuple(row_masks),
        segments=segments_of(of_segments[0], batch[:split], row, column) if of_segments else None,
    )


def _row(attention: Attention, found: Sequence[Condition], column: int) -> int:
    """The dimension of the scores that is the kernel's queries: that of a causal mask, or the longest."""
    rows = attention.scores.rows
    causal = (label for c in found if isinstance(c, HalfPlane) for label in rows if c.is_causal(label, column))
    longest = max(rows, key=lambda label: (attention.scores.sizes[label], label))
    return next(causal, longest)


def _own_sizes(graph: Graph, one: Tensor) -> list[int]:
    shape = graph.values[one.value].shape
    return [size for size, label in zip(shape, one.labels, strict=True) if label is not None and label < 0]


def _bias_sides(
    attention: Attention, rest: Sequence[Condition], batch: Sequence[int], heads: Sequence[int], count: Any
) -> tuple[int, int] | None:
    if not rest and not attention.biases:
        return None
    present = frozenset().union(*(bias.frame for bias, _ in attention.biases), *(c.frame for c in rest))
    return tuple(count(side) if present & set(side) else 1 for side in (batch, heads))  # type: ignore[return-value]


class Placement:
    """Builds the operands of a kernel from values of the program, and the program's results from the kernel's."""

    def __init__(self, graph: Graph, attention: Attention, layout: Layout):
        self.graph, self.attention, self.layout, self.shape = graph, attention, layout, layout.shape

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
        return operands + (self.segments(layout.segments) if layout.segments is not None else [])

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
        kept = self.all_kept(self.layout.key_masks, labels, full)
        numbers = convert(kept, ir.IntegerType.get_signless(32))
        return reshaped(numbers, [self.shape.batch, self.shape.keys])

    def all_kept(self, conditions: Sequence[Condition], labels: Sequence[int], full: Sequence[int]) -> Any:
        """The conjunction of conditions as a predicate of some dimensions of the scores."""
        return functools.reduce(stablehlo.and_, [self.kept(condition, labels, full) for condition in conditions])

    def rows_with_keys(self) -> Any:
        """Which queries have any key: batch x heads x queries; None if all have one. See `empty_rows`."""
        layout = self.layout
        found = [*layout.conditions, *layout.key_masks, *layout.row_masks]
        found += [layout.segments.condition] if layout.segments is not None else []
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
        element = self.graph.mlir_values[self.attention.scores.queries.value].type.element_type
        return convert(reshaped(value, [*sizes, last]), element)

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
        element = self.graph.mlir_values[self.attention.scores.queries.value].type.element_type
        total: Any = None
        # One bias is only moved; what is scaled or added up is so in float32.
        one = [factor for _, factor in self.attention.biases] == [1.0]
        wide = element if one else ir.F32Type.get()
        for bias, factor in self.attention.biases:
            value = convert(self.spread(self.graph.mlir_values[bias.value], bias.labels, labels, full), wide)
            value = value if factor == 1 else stablehlo.multiply(value, splat(value.type, factor))
            total = value if total is None else stablehlo.add(total, value)
        predicate = self.all_kept(layout.conditions, labels, full) if layout.conditions else None
        bias = splat(tensor(full, element), 0) if total is None else convert(total, element)
        if predicate is not None:
            fill = LEFT_OUT[0] if shape.dtype == "f16" else LEFT_OUT[1]
            bias = stablehlo.select(predicate, bias, splat(bias.type, fill))
        return reshaped(bias, shape.bias_shape)

    def kept(self, condition: Condition, labels: Sequence[int], full: Sequence[int]) -> Any:
        """A condition as a predicate of the bias' dimensions."""
        if isinstance(condition, Predicate):
            value = self.spread(condition.value, condition.labels, labels, full)
            return value if condition.is_true else stablehlo.not_(value)
        index = splat(tensor(full, ir.IntegerType.get_signless(32)), condition.offset)
        for label, factor in sorted(condition.factors):
            along = index_along(full, labels.index(label))
            index = stablehlo.add(index, stablehlo.multiply(along, splat(along.type, factor)))
        return stablehlo.compare(index, splat(index.type, 0), stablehlo.ComparisonDirectionAttr.get("GE"))

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
