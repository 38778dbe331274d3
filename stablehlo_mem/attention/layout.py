"""Where the dimensions of an attention go in a kernel that knows batch, heads, queries, keys and depth only."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax

from stablehlo_mem.attention.algebra import HalfPlane, Tensor
from stablehlo_mem.attention.masks import Condition, Segments, conditions, segments_of
from stablehlo_mem.attention.pattern import Attention
from stablehlo_mem.ir.bindings import dtypes_by_name
from stablehlo_mem.ir.graph import Graph, dtype_bytes


@dataclasses.dataclass(frozen=True)
class KernelShape:
    """What a kernel is made for.

    Attributes:
        batch, heads, kv_heads, queries, keys, depth, value_depth: its sizes; `heads` is a multiple of `kv_heads`.
        dtype: of all operands.
        scale: of the products of queries and keys.
        causal: whether the query i has the keys up to i only.
        window: whether it has so many of them at most; only if causal and without bias.
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
    window: int | None = None
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
        """Pairs of a query and a key, of all heads; of a window those in it."""
        return self.batch * self.heads * self.queries * min(self.keys, self.window or self.keys)

    @property
    def row_count(self) -> int:
        """Queries of all heads."""
        return self.batch * self.heads * self.queries


@dataclasses.dataclass(frozen=True)
class MaskKinds:
    """The masks that a kernel takes other than by a bias: of batch and keys, of segments, of windows."""

    of_keys: bool = False
    segments: bool = False
    windows: bool = False


@dataclasses.dataclass(frozen=True)
class Masks:
    """The masks of an attention by what becomes of them in a kernel.

    Attributes:
        causal: whether there is a causal one.
        of_keys: those of batch and keys that the kernel takes as they are.
        of_rows: those that leave out whole queries: no kernel needs them, see `empty_rows`.
        segments: the one of segments that the kernel takes.
        window: how many keys up to itself a query has, where the kernel takes that.
        others: those that become a bias.
    """

    causal: bool
    of_keys: tuple[Condition, ...]
    of_rows: tuple[Condition, ...]
    segments: Segments | None
    window: int | None
    others: tuple[Condition, ...]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which dimensions of the scores are a kernel's batch, heads, queries and keys.

    Attributes:
        batch, heads: in order; the heads of the keys come before those that share keys.
        shared: the last of `heads`, that share keys.
        masks: what becomes of the masks.
    """

    shape: KernelShape
    sizes: tuple[int, ...]
    batch: tuple[int, ...]
    heads: tuple[int, ...]
    shared: tuple[int, ...]
    row: int
    column: int
    masks: Masks

    @property
    def key_heads(self) -> tuple[int, ...]:
        """The dimensions of the scores that are the heads of keys and values."""
        return tuple(label for label in self.heads if label not in self.shared)

    def groups(self, row: int | None = None) -> tuple[tuple[int, ...], ...]:
        """The dimensions of the scores along each dimension of an operand but its depth."""
        rows = (self.row if row is None else row,)
        return (self.batch, rows, self.heads) if self.shape.rows_first else (self.batch, self.heads, rows)


def layout_of(graph: Graph, attention: Attention, kernel: MaskKinds, *, rows_first: bool | None = None) -> Layout:
    """How an attention fits a kernel.

    Args:
        kernel: the masks that it takes other than by a bias, beside causal ones.
        rows_first: see `KernelShape`; None for the order in which the queries lie.
    """
    scores = attention.scores
    (column,) = scores.columns.labels
    found = [c for mask in attention.masks for c in conditions(mask.where)]
    row = _row(attention, found, column)
    order = [label for label in scores.queries.labels if label is not None and label >= 0]
    batch = [label for label in order if label in scores.batch]
    shared = tuple(label for label in order if label in scores.rows and label != row)
    split = 1 if len(batch) > 1 or shared else 0
    heads = (*batch[split:], *shared)
    if rows_first is None:
        rows_first = bool(heads) and order.index(row) < max(order.index(label) for label in heads)
    masks = _sorted_masks(found, kernel, batch[:split], row, column, has_bias=bool(attention.biases))
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
            dtype=graph.values[widest(graph, attention).value].dtype,
            scale=attention.scale,
            causal=masks.causal,
            bias=_bias_sides(attention, masks.others, batch[:split], heads, count),
            rows_first=rows_first,
            key_mask=bool(masks.of_keys),
            segments=masks.segments is not None,
            window=masks.window,
            precision=scores.precision,
        ),
        sizes=sizes,
        batch=tuple(batch[:split]),
        heads=heads,
        shared=shared,
        row=row,
        column=column,
        masks=masks,
    )


def _sorted_masks(
    found: Sequence[Condition], kernel: MaskKinds, batch: Sequence[int], row: int, column: int, *, has_bias: bool
) -> Masks:
    """The masks by what becomes of them in a kernel."""
    planes = [c for c in found if isinstance(c, HalfPlane)]
    causal = any(c.is_causal(row, column) for c in planes)
    rest = [c for c in found if not (isinstance(c, HalfPlane) and c.is_causal(row, column))]
    of_rows = tuple(c for c in rest if column not in c.frame)
    rest = [c for c in rest if c not in of_rows]
    of_keys = tuple(c for c in rest if kernel.of_keys and c.frame <= {*batch, column})
    rest = [c for c in rest if c not in of_keys]
    all_segments = [segments_of(c, batch, row, column) for c in rest if kernel.segments]
    segments = next((one for one in all_segments if one is not None), None)
    rest = [c for c in rest if segments is None or c != segments.condition]
    windows = [size for c in rest if isinstance(c, HalfPlane) and (size := c.window(row, column)) is not None]
    if kernel.windows and causal and len(rest) == len(windows) > 0 and not has_bias:
        return Masks(causal, of_keys, of_rows, segments, min(windows), ())
    return Masks(causal, of_keys, of_rows, segments, None, tuple(rest))


def widest(graph: Graph, attention: Attention) -> Tensor:
    """The one of queries, keys and values whose type takes the most bytes: the others are converted to it."""
    operands = (attention.scores.queries, attention.scores.keys, attention.values)
    return max(operands, key=lambda tensor: dtype_bytes(graph.values[tensor.value].dtype))


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
