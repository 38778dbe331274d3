"""Matches a matmul with a one-hot matrix, and emits it as a gather of rows; the pass `contractions` calls it.

one_hot(index, n) @ w  →  w[index], and zeros where the index is not among the rows
"""

from __future__ import annotations

import dataclasses
from typing import Any

from stablehlo_mem.analysis.cost_model import Kernel
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.builders import broadcast, convert, reshaped, splat, tensor, transposed, zeros
from stablehlo_mem.ir.dead_ops import needed_only_by
from stablehlo_mem.ir.graph import FLOATS, Graph, Op
from stablehlo_mem.ir.matchers import index_dim, is_equality
from stablehlo_mem.ir.op_attributes import dot_numbers
from stablehlo_mem.ir.view_chains import View, squeezed, view_of
from stablehlo_mem.rewriting.rewriting_pass import Match


@dataclasses.dataclass(frozen=True)
class Lookup:
    """A matmul that picks rows of a table.

    Attributes:
        index: which row, as a view in the one-hot matrix: it lies along all dimensions of that but one.
        table: the value whose rows are picked, along its dimension `dimension`.
        is_left: whether the one-hot matrix is the matmul's left operand.
    """

    index: View
    table: int
    dimension: int
    is_left: bool


def match_lookup(graph: Graph, root: int) -> Match | None:
    """The lookup that a matmul is."""
    op = graph.ops[root]
    result = graph.values[op.results[0]]
    if result.dtype not in FLOATS or not all(size for v in op.operands for size in graph.values[v].shape):
        return None
    lookup = _lookup(graph, op, 0) or _lookup(graph, op, 1)
    if lookup is None:
        return None
    return Match(
        root=root,
        removed=needed_only_by(graph, root, (lookup.index.source, lookup.table)),
        new_bytes=result.nbytes,
        kernels=(Kernel(0, 2 * result.nbytes), Kernel(0, 2 * result.nbytes)),
        numerics="relaxed",
        summary=f"read rows of {graph.values[lookup.table]} by their index instead of multiplying by one-hot vectors",
        detail=lookup,
    )


def _lookup(graph: Graph, dot: Op, side: int) -> Lookup | None:
    """The lookup that a dot is if its operand on one side is a one-hot matrix."""
    one_hot, table = dot.operands[side], dot.operands[1 - side]
    numbers = dot_numbers(graph, dot)
    if numbers.lhs_batching_dimensions or len(numbers.contracting[side]) != 1:
        return None
    index = _index(graph, one_hot, numbers.contracting[side][0])
    if index is None or graph.values[table].dtype != graph.values[dot.results[0]].dtype:
        return None
    return Lookup(index, table, numbers.contracting[1 - side][0], side == 0)


def _index(graph: Graph, value: int, dimension: int) -> View | None:
    """The index at which a value is one along a dimension, and zero elsewhere; as a view in the value."""
    view = view_of(graph, value)
    op = graph.producer(view.source)
    while op is not None and op.name == "stablehlo.convert":
        view = _composed(view, view_of(graph, op.operands[0]))
        op = graph.producer(view.source)
    if op is None or not is_equality(graph, op):
        return None
    for one, other in (op.operands, op.operands[::-1]):
        along = index_dim(graph, other)
        if along is not None and view.dims[along] == dimension:
            index = _composed(view, view_of(graph, one))
            sizes = enumerate(graph.values[value].shape)
            if dimension not in index.dims and {d for d, n in sizes if n != 1 and d != dimension} <= set(index.dims):
                return index
    return None


def _composed(view: View, inner: View) -> View:
    """What a view shows, its source being a view itself."""
    return View(inner.source, tuple(None if d is None else view.dims[d] for d in inner.dims))


def emit_lookup(graph: Graph, match: Match) -> Any:
    """Builds the lookup at the insertion point."""
    lookup: Lookup = match.detail
    table = graph.mlir_values[lookup.table]
    result: Any = graph.mlir_values[graph.ops[match.root].results[0]].type
    index, dims = squeezed(graph, lookup.index)
    index = wide(transposed(index, sorted(range(len(dims)), key=dims.__getitem__)))
    row = [size for d, size in enumerate(table.type.shape) if d != lookup.dimension]
    index_shape, rank = list(index.type.shape), len(dims)
    first = 0 if lookup.is_left else len(row)
    offsets = range(rank, rank + len(row)) if lookup.is_left else range(len(row))
    shape = [*index_shape, *row] if lookup.is_left else [*row, *index_shape]
    rows = stablehlo.gather(
        table,
        index,
        stablehlo.GatherDimensionNumbers.get(list(offsets), [lookup.dimension], [], [], [lookup.dimension], rank),
        ir.DenseI64ArrayAttr.get([1 if d == lookup.dimension else n for d, n in enumerate(table.type.shape)]),
    )
    inside = is_inside(index, table.type.shape[lookup.dimension])
    mask = broadcast(inside, tensor(shape, ir.IntegerType.get_signless(1)), list(range(first, first + rank)))
    return reshaped(stablehlo.select(mask, rows, zeros(rows.type)), result.shape)


def wide(index: Any) -> Any:
    """An index of at least 32 bits: compilers clamp an index in its own type."""
    return convert(index, ir.IntegerType.get_signless(32)) if index.type.element_type.width < 32 else index


def is_inside(index: Any, rows: int) -> Any:
    """Whether an index is one of so many rows."""
    at_least = stablehlo.compare(index, zeros(index.type), stablehlo.ComparisonDirectionAttr.get("GE"))
    below = stablehlo.compare(index, splat(index.type, rows), stablehlo.ComparisonDirectionAttr.get("LT"))
    return stablehlo.and_(at_least, below)
