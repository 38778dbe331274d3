"""Sees a dot_general as queries times keys: the frame in which all that is computed from the scores is described."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from stablehlo_mem.attention.algebra import Columns, Dot, Labels, Tensor, Terms
from stablehlo_mem.attention.origins import numbered, origin
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import FLOATS, Graph, Op, reachable
from stablehlo_mem.ir.matchers import converts_floats
from stablehlo_mem.ir.op_attributes import dot_labels
from stablehlo_mem.ir.view_chains import view_of

_MAX_REACH = 60
"""Ops from a dot_general to the exponential of its result, at most: a bound on the time."""


@dataclasses.dataclass(frozen=True)
class Scores:
    """A dot_general as queries times keys.

    Attributes:
        op: the dot_general, negative if it is in another block.
        queries: the tensor with the rows.
        keys: the tensor with the columns.
        sizes: of the dimensions of the scores, by label.
        columns: the dimensions that only the keys have.
        rows: the dimensions that only the queries have.
        precision: any that the program asks for but the default one is taken for the "highest".
    """

    op: int
    queries: Tensor
    keys: Tensor
    dot: Dot
    labels: Labels
    sizes: tuple[int, ...]
    rows: frozenset[int]
    columns: Columns
    precision: str = "default"

    @property
    def batch(self) -> frozenset[int]:
        """The dimensions that both have."""
        return self.queries.frame & self.keys.frame


@dataclasses.dataclass(frozen=True)
class Known:
    """What a value is, and where its dimensions lie."""

    labels: Labels
    terms: Terms


@dataclasses.dataclass(frozen=True)
class Contraction:
    """A dot_general of a traced matrix with another tensor.

    Attributes:
        op: the dot_general.
        terms: the matrix.
        other: the tensor.
        summed: the dimensions of the scores that are summed over.
        labels: of the result.
    """

    op: int
    terms: Terms
    other: Tensor
    summed: frozenset[int]
    labels: Labels


@dataclasses.dataclass(frozen=True)
class Trace:
    """The values that are computed from scores, and the contractions of those that are matrices."""

    scores: Scores
    known: dict[int, Known]
    contractions: tuple[Contraction, ...]

    def matrices(self, graph: Graph) -> list[int]:
        """The ops with which matrices begin: that of the scores, or those that read what another loop stacked."""
        if self.scores.op >= 0:
            return [self.scores.op]
        slices = (graph.producer(v) for v, known in self.known.items() if not self.scores.columns.is_row(known.terms))
        return [op.index for op in slices if op is not None and op.name == "stablehlo.dynamic_slice"]


@cached_analysis
def scores_at(graph: Graph, op: int, *, left_is_keys: bool) -> Scores | None:
    """A dot_general as scores, its right operand as the keys or its left one."""
    dot = graph.ops[op]
    if graph.values[dot.results[0]].dtype not in FLOATS:
        return None
    left, right, sizes, rank = dot_labels(graph, dot)
    number = iter(range(rank))
    frame = [None if size == 1 else next(number) for size in sizes[:rank]]
    tensors = [resolved(graph, v, in_frame(side, frame)) for v, side in zip(dot.operands, (left, right), strict=True)]
    pairs = summed_pairs(graph, dot, tensors, (left, right), rank)
    if pairs is None:
        return None
    queries, keys = tensors[::-1] if left_is_keys else tensors
    if left_is_keys:
        pairs = [(b, a) for a, b in pairs]
    columns, rows = keys.frame - queries.frame, queries.frame - keys.frame
    if not columns or not rows:
        return None
    kept = tuple(size for size in sizes[:rank] if size != 1)
    return Scores(
        op=op,
        queries=queries,
        keys=keys,
        dot=Dot(queries, keys, frozenset(pairs)),
        labels=tuple(frame),
        sizes=kept,
        rows=rows,
        columns=Columns(columns, math.prod(kept[c] for c in columns)),
        precision="highest" if "HIGH" in str(graph.handles[op].attributes.get("precision_config", "")) else "default",
    )


def in_frame(side: tuple[int, ...], frame: list[int | None]) -> Labels:
    """The labels of a dot's operand: what the result does not have is its own."""
    return tuple(frame[label] if label < len(frame) else -1 - d for d, label in enumerate(side))


def summed_pairs(
    graph: Graph, dot: Op, tensors: list[Tensor], sides: tuple[tuple[int, ...], ...], rank: int
) -> list[tuple[int, int]] | None:
    """The dimensions of two resolved tensors that are summed over together."""
    pairs: list[tuple[int, int]] = []
    views = [source_dims(graph, v, t) for v, t in zip(dot.operands, tensors, strict=True)]
    left = graph.values[dot.operands[0]].shape
    for d, label in enumerate(sides[0]):
        if label < rank or left[d] == 1:
            continue
        places = [views[0].get(d), views[1].get(sides[1].index(label))]
        if places[0] is None or places[1] is None:
            return None
        pairs.append((places[0], places[1]))
    return pairs


def source_dims(graph: Graph, value: int, tensor: Tensor) -> dict[int, int]:
    """For each dimension of a value the dimension of what it resolves to."""
    marked = resolved(graph, value, tuple(range(len(graph.values[value].shape))), own=False)
    return {} if marked.value != tensor.value else {d: i for i, d in enumerate(marked.labels) if d is not None}


def resolved(graph: Graph, value: int, labels: Labels, *, own: bool = True) -> Tensor:
    """What a value shows, through views and conversions to wider floats, with the labels of its dimensions.

    Args:
        own: number the dimensions that are not the scores' by their places.
    """
    while True:
        view = view_of(graph, value)
        through = tuple(None if d is None else labels[d] for d in view.dims)
        lost = {label for label in labels if label is not None} - {label for label in through if label is not None}
        if view.source == value or any(label < 0 for label in lost):
            op = graph.producer(value)
            if op is None or not converts_floats(graph, op) or not _widens(graph, op):
                break
            value = op.operands[0]
        else:
            value, labels = view.source, through
    shape = graph.values[value].shape
    labels = tuple(None if size == 1 else label for size, label in zip(shape, labels, strict=True))
    if own:
        labels = tuple(-1 - d if label is not None and label < 0 else label for d, label in enumerate(labels))
    return Tensor(numbered(graph)[origin(graph.mlir_values[value])], labels)


def _widens(graph: Graph, op: Op) -> bool:
    before, after = (graph.values[v].nbytes for v in (op.operands[0], op.results[0]))
    return before < after


def reaches_exponential(graph: Graph, value: int) -> bool:
    """Whether an exponential of a dot's result is near."""
    count = 0

    def users(v: int) -> Iterator[int]:
        nonlocal count
        for user in graph.users[v]:
            op = graph.ops[user]
            count += 1
            if count <= _MAX_REACH and op.name != "stablehlo.dot_general" and not (op.blocks and len(op.results) > 1):
                yield from op.results

    names = (graph.producer(v) for v in reachable([value], users))
    return any(op is not None and op.name == "stablehlo.exponential" for op in names)
