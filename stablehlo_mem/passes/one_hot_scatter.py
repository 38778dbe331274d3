"""one-hot-scatter: a scatter that writes one element a row into a splat becomes a select.

Before, as JAX writes the gradient of `take_along_axis`, and so that of a cross-entropy with integer labels:
    %o = stablehlo.scatter(%zeros, %index, %u) adding one element a row : tensor<4096x32768xf32>
    %s = stablehlo.reduce(%o init: %zero) applies stablehlo.add across dimensions = [1] : tensor<4096xf32>
After:
    %i = stablehlo.iota dim = 1 : tensor<4096x32768xi32>
    %m = stablehlo.compare EQ, %i, %index_broadcast : tensor<4096x32768xi1>
    %o = stablehlo.select %m, %u_broadcast, %zeros : tensor<4096x32768xf32>
    %s = stablehlo.select %inside, %u, %zero : tensor<4096xf32>

A select is fused into the kernels that read it; a scatter's result is a buffer, which is filled, written to and read.

Refuses scatters that write several elements or parts of a row, and operands that are no splats.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from stablehlo_mem.analysis.cost_model import Kernel
from stablehlo_mem.einsum.emit_contraction import sum_over
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.builders import broadcast, convert, index_along, laid_along, retype, splat, tensor, zeros
from stablehlo_mem.ir.dead_ops import needed_only_by
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.ir.matchers import adds, index_dim, integers_of, splat_value, starts_at_zero
from stablehlo_mem.ir.op_attributes import integers
from stablehlo_mem.rewriting.one_hot_lookup import is_inside, wide
from stablehlo_mem.rewriting.rewriting_pass import Match, RewritingPass

Dims = tuple[int | None, ...]
"""For each dimension of a value the one of the scatter's result that it lies along; None for one of size 1."""


@dataclasses.dataclass(frozen=True)
class OneHot:
    """What a scatter writes, and where.

    Attributes:
        dimension: of the result: the index counts along it.
        fill: the number everywhere else.
        index: the value that holds the index; index vectors have one element.
        index_dims, update_dims: the dimensions of the index and of the updates.
    """

    scatter: Op
    dimension: int
    fill: float
    index: int
    index_dims: Dims
    update_dims: Dims


class OneHotScatter(RewritingPass):
    """The pass: finds scatters of one element a row, and sums over the rows they write to."""

    name = "one-hot-scatter"
    roots = frozenset({"stablehlo.scatter", "stablehlo.reduce"})

    def match(self, graph: Graph, root: int, *, prefer_memory: bool) -> Match | None:
        """The match at such a scatter or sum."""
        op = graph.ops[root]
        one = one_hot_of(graph, op) if op.name == "stablehlo.scatter" else _summed(graph, op)
        if one is None:
            return None
        read = (one.index, one.scatter.operands[2])
        result = graph.values[op.results[0]]
        nbytes = result.nbytes + sum(graph.values[v].nbytes for v in read)
        regroups = op is not one.scatter and len(integers(graph, op, "dimensions")) > 1
        return Match(
            root=root,
            removed=needed_only_by(graph, root, read),
            new_bytes=0,
            kernels=(Kernel(math.prod(result.shape), nbytes),),
            numerics="reassociate" if regroups else "exact",
            summary=f"fill {graph.values[one.scatter.results[0]]} by comparing indices instead of scattering",
            detail=one,
            even_if_slower=True,
        )

    def emit(self, graph: Graph, match: Match) -> Sequence[Any]:
        """The select, or the sum of it."""
        one, root = match.detail, graph.ops[match.root]
        index, updates = wide(graph.mlir_values[one.index]), graph.mlir_values[one.scatter.operands[2]]
        if root.index == one.scatter.index:
            return [_selected(graph.mlir_values[root.results[0]].type, one, index, updates)]
        return [_sum_of_selected(graph, root, one, index, updates)]


def one_hot_of(graph: Graph, op: Op) -> OneHot | None:
    """A scatter as one-hot rows, None if it is something else."""
    numbers: Any = stablehlo.ScatterDimensionNumbers(graph.handles[op.index].attributes["scatter_dimension_numbers"])
    fill, body = splat_value(graph, op.operands[0]), op.blocks[0]
    if len(op.results) != 1 or fill is None or not graph.values[op.results[0]].nbytes:
        return None
    replaces = len(body.ops) == 1 and list(body.returned) == [body.arguments[1]]
    if not replaces and not (fill == 0 and adds(body)):
        return None
    index, rows = _address(graph, op, numbers)
    addressed = set(numbers.scattered_dims_to_operand_dims)
    columns = addressed.difference(rows.values())
    result, indices, updates = (graph.values[v].shape for v in (op.results[0], index, op.operands[2]))
    batch = [d for d in range(len(indices)) if d != numbers.index_vector_dim]
    if len(columns) != 1 or any(indices[d] != 1 for d in batch if d not in rows):
        return None
    (column,) = columns
    # XLA:CPU does not write an update whose index type cannot count all columns.
    if result[column] > integers_of(graph.values[index].dtype).stop:
        return None
    windows = [d for d in range(len(result)) if d not in (*numbers.inserted_window_dims, *numbers.input_batching_dims)]
    window_dims = dict(zip(numbers.update_window_dims, windows, strict=True))
    if any(updates[u] != (1 if d in addressed else result[d]) for u, d in window_dims.items()):
        return None
    update_dims: dict[int, int | None] = {u: None if d in addressed else d for u, d in window_dims.items()}
    update_dims |= zip((u for u in range(len(updates)) if u not in window_dims), map(rows.get, batch), strict=True)
    index_dims = tuple(rows.get(d) for d in range(len(indices)))
    return OneHot(op, column, fill, index, index_dims, tuple(update_dims[u] for u in range(len(updates))))


def _address(graph: Graph, op: Op, numbers: Any) -> tuple[int, dict[int, int]]:
    """The value that says where in a row a scatter writes, and for its dimensions that number rows those of the result.

    These are batching dimensions, and those that other parts of the indices count: `x.at[jnp.arange(n), y].set(u)`.
    """
    index = op.operands[1]
    rows = dict(zip(numbers.scatter_indices_batching_dims, numbers.input_batching_dims, strict=True))
    addressed = list(numbers.scattered_dims_to_operand_dims)
    joined = graph.producer(index)
    if joined is None or joined.name != "stablehlo.concatenate" or len(joined.operands) != len(addressed):
        return index, rows
    if ir.IntegerAttr(graph.handles[joined.index].attributes["dimension"]).value != numbers.index_vector_dim:
        return index, rows
    for part, dimension in zip(joined.operands, addressed, strict=True):
        counted, shape = index_dim(graph, part), graph.values[part].shape
        if counted is None or counted in rows or shape[counted] != graph.values[op.results[0]].shape[dimension]:
            index = part
        else:
            rows[counted] = dimension
    return index, rows


def _summed(graph: Graph, reduce: Op) -> OneHot | None:
    """The one-hot rows that a sum adds up, along the dimension of their index among others."""
    if len(reduce.results) != 1 or not adds(reduce.blocks[0]) or not starts_at_zero(graph, reduce):
        return None
    _, op = _zero_preserving(graph, reduce.operands[0])
    one = one_hot_of(graph, op) if op is not None and op.name == "stablehlo.scatter" else None
    is_sum = one is not None and one.fill == 0 and one.dimension in integers(graph, reduce, "dimensions")
    return one if is_sum else None


def _zero_preserving(graph: Graph, value: int) -> tuple[list[Op], Op | None]:
    """The ops, in program order, that lead to a value and keep zeros as they are, and the op before them."""
    chain: list[Op] = []
    op = graph.producer(value)
    while op is not None and op.name in ("stablehlo.negate", "stablehlo.convert"):
        chain.insert(0, op)
        op = graph.producer(op.operands[0])
    return chain, op


def _selected(result: Any, one: OneHot, index: Any, updates: Any) -> Any:
    """A tensor of type `result` with the updates at their indices, and the fill elsewhere."""
    columns = index_along(result.shape, one.dimension, index.type.element_type)
    rows = laid_along(index, one.index_dims, columns.type)
    here = stablehlo.compare(columns, rows, stablehlo.ComparisonDirectionAttr.get("EQ"))
    fill = broadcast(splat(retype(result, ()), one.fill), result)
    return stablehlo.select(here, laid_along(updates, one.update_dims, result), fill)


def _sum_of_selected(graph: Graph, reduce: Op, one: OneHot, index: Any, updates: Any) -> Any:
    """Each row's update where its index is inside, summed over the other dimensions of the sum."""
    rows: Any = graph.mlir_values[one.scatter.results[0]].type
    row_type = retype(rows, [size for d, size in enumerate(rows.shape) if d != one.dimension])
    mask = tensor(row_type.shape, ir.IntegerType.get_signless(1))

    def without(dims: Dims) -> Dims:
        return tuple(None if d is None else d - (d > one.dimension) for d in dims)

    inside = laid_along(is_inside(index, rows.shape[one.dimension]), without(one.index_dims), mask)
    value = stablehlo.select(inside, laid_along(updates, without(one.update_dims), row_type), zeros(row_type))
    for op in _zero_preserving(graph, reduce.operands[0])[0]:
        element = graph.mlir_values[op.results[0]].type.element_type
        value = convert(value, element) if op.name == "stablehlo.convert" else stablehlo.negate(value)
    others = [d - (d > one.dimension) for d in integers(graph, reduce, "dimensions") if d != one.dimension]
    return sum_over(value, others) if others else value
