"""Contractions with a one-hot matrix: they pick rows.

one_hot(index, n) @ w = w[index], and zeros where the index is not among the rows
"""

from __future__ import annotations

import dataclasses
from typing import Any

from stablehlo_mem.analysis.cost_model import Kernel
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.builders import broadcast, convert, reshaped, splat, tensor, transposed, zeros
from stablehlo_mem.ir.dead_ops import needed_only_by
from stablehlo_mem.ir.graph import FLOATS, Graph
from stablehlo_mem.ir.matchers import index_dim, is_equality
from stablehlo_mem.ir.op_attributes import dot_numbers
from stablehlo_mem.ir.view_chains import View, squeezed, view_of
from stablehlo_mem.rewriting.rewriting_pass import Match


@dataclasses.dataclass(frozen=True)
class Lookup:
    """A matmul that picks rows of a table.

    Attributes:
        index: which row, seen over the one-hot matrix: it lies along all of its dimensions but one.
        table: the value the rows of which are picked, along its dimension `dimension`.
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
    lookup = next((found for side in (0, 1) if (found := _lookup(graph, root, side)) is not None), None)
    if lookup is None:
        return None
    rows = graph.values[lookup.table].shape[lookup.dimension]
    return Match(
        root=root,
        removed=needed_only_by(graph, root, (lookup.index.source, lookup.table)),
        new_bytes=result.nbytes,
        kernels=(Kernel(0, 2 * result.nbytes), Kernel(0, 2 * result.nbytes)),
        numerics="relaxed",
        what=f"look rows up in {graph.values[lookup.table]}, of {rows}",
        detail=lookup,
    )


def _lookup(graph: Graph, root: int, side: int) -> Lookup | None:
    op = graph.ops[root]
    one_hot, table = op.operands[side], op.operands[1 - side]
    numbers = dot_numbers(graph, op)
    contracting = [tuple(numbers.lhs_contracting_dimensions), tuple(numbers.rhs_contracting_dimensions)]
    if tuple(numbers.lhs_batching_dimensions) or len(contracting[side]) != 1:
        return None
    index = _index(graph, one_hot, contracting[side][0])
    if index is None or graph.values[table].dtype != graph.values[op.results[0]].dtype:
        return None
    return Lookup(index, table, contracting[1 - side][0], side == 0)


def _index(graph: Graph, value: int, dimension: int) -> View | None:
    """The index that a value is one at, along a dimension, and zero elsewhere; seen over the value."""
    view = view_of(graph, value)
    op = graph.producer(view.source)
    while op is not None and op.name == "stablehlo.convert":
        inner = view_of(graph, op.operands[0])
        view = View(inner.source, tuple(None if d is None else view.dims[d] for d in inner.dims))
        op = graph.producer(view.source)
    if op is None or not is_equality(graph, op):
        return None
    for one, other in (op.operands, op.operands[::-1]):
        along = index_dim(graph, other)
        if along is not None and view.dims[along] == dimension:
            index = view_of(graph, one)
            dims = tuple(None if d is None else view.dims[d] for d in index.dims)
            rest = set(range(len(graph.values[value].shape))) - {dimension}
            sizes = {d for d in rest if graph.values[value].shape[d] != 1}
            if dimension not in dims and sizes <= set(dims):
                return View(index.source, dims)
    return None


def emit_lookup(graph: Graph, match: Match) -> Any:
    """Builds the lookup at the insertion point."""
    lookup: Lookup = match.detail
    table = graph.mlir_values[lookup.table]
    result: Any = graph.mlir_values[graph.ops[match.root].results[0]].type
    index, dims = squeezed(graph, lookup.index)
    index = wide(_in_order(index, dims))
    rest = [size for d, size in enumerate(table.type.shape) if d != lookup.dimension]
    looked_up, kept = list(index.type.shape), len(index.type.shape)
    first = 0 if lookup.is_left else len(rest)
    offsets = range(kept, kept + len(rest)) if lookup.is_left else range(len(rest))
    shape = [*looked_up, *rest] if lookup.is_left else [*rest, *looked_up]
    picked = stablehlo.gather(
        table,
        index,
        _numbers(lookup.dimension, list(offsets), kept),
        ir.DenseI64ArrayAttr.get([1 if d == lookup.dimension else n for d, n in enumerate(table.type.shape)]),
    )
    inside = is_inside(index, table.type.shape[lookup.dimension])
    mask = broadcast(inside, tensor(shape, ir.IntegerType.get_signless(1)), list(range(first, first + kept)))
    value = stablehlo.select(mask, picked, zeros(picked.type))
    return reshaped(value, result.shape)


def _in_order(index: Any, dims: list[int]) -> Any:
    return transposed(index, sorted(range(len(dims)), key=lambda i: dims[i]))


def wide(index: Any) -> Any:
    """An index of at least 32 bits: compilers clamp indices to the rows in their own type."""
    return convert(index, ir.IntegerType.get_signless(32)) if index.type.element_type.width < 32 else index


def _numbers(dimension: int, offsets: list[int], index_rank: int) -> Any:
    return stablehlo.GatherDimensionNumbers.get(
        offset_dims=offsets,
        collapsed_slice_dims=[dimension],
        operand_batching_dims=[],
        start_indices_batching_dims=[],
        start_index_map=[dimension],
        index_vector_dim=index_rank,
    )


def is_inside(index: Any, rows: int) -> Any:
    """Whether an index is one of so many rows."""
    at_least = stablehlo.compare(index, zeros(index.type), stablehlo.ComparisonDirectionAttr.get("GE"))
    below = stablehlo.compare(index, splat(index.type, rows), stablehlo.ComparisonDirectionAttr.get("LT"))
    return stablehlo.and_(at_least, below)
