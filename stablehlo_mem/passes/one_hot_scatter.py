"""one-hot-scatter: a scatter that writes one element a row where all else is one number becomes a select.

Before, as JAX writes the gradient of `take_along_axis`, and so that of a cross-entropy with integer labels:
    %o = stablehlo.scatter(%zeros, %index, %u) adding one element a row : tensor<4096x32768xf32>
    %s = stablehlo.reduce(%o init: %zero) applies stablehlo.add across dimensions = [1] : tensor<4096xf32>
After:
    %i = stablehlo.iota dim = 1 : tensor<4096x32768xi32>
    %m = stablehlo.compare EQ, %i, %index_broadcast : tensor<4096x32768xi1>
    %o = stablehlo.select %m, %u_broadcast, %zeros : tensor<4096x32768xf32>
    %s = stablehlo.select %inside, %u, %zero : tensor<4096xf32>

A select is computed by whoever reads it; a scatter's result is a buffer, which is filled, written to and read.

Refuses several elements a row, parts of rows, and operands of more than one number.
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
"""For each dimension of a value the one of the scatter's result that it lies along; None for one of one element."""


@dataclasses.dataclass(frozen=True)
class OneHot:
    """What a scatter writes, and where.

    Attributes:
        dimension: of the result, along which the index counts.
        fill: the number everywhere else.
        index: the value that says where; index vectors are of one number.
        index_dims: of that.
        update_dims: of the updates.
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
        del prefer_memory
        op = graph.ops[root]
        one = one_hot_of(graph, op) if op.name == "stablehlo.scatter" else _summed(graph, op)
        if one is None:
            return None
        kept = (one.index, one.scatter.operands[2])
        result = graph.values[op.results[0]]
        nbytes = result.nbytes + sum(graph.values[v].nbytes for v in kept)
        regroups = op is not one.scatter and len(integers(graph, op, "dimensions")) > 1
        return Match(
            root=root,
            removed=needed_only_by(graph, root, kept),
            new_bytes=0,
            kernels=(Kernel(math.prod(result.shape), nbytes),),
            numerics="reassociate" if regroups else "exact",
            what=f"select what was scattered to {graph.values[one.scatter.results[0]]}",
            detail=one,
            always=True,
        )

    def emit(self, graph: Graph, match: Match) -> Sequence[Any]:
        """The select, or the sum of it."""
        one, root = match.detail, graph.ops[match.root]
        return [_selected(graph, one) if root.index == one.scatter.index else _sum_of_selected(graph, root, one)]


def one_hot_of(graph: Graph, op: Op) -> OneHot | None:
    """A scatter as one-hot rows, None if it is something else."""
    numbers: Any = stablehlo.ScatterDimensionNumbers(graph.handles[op.index].attributes["scatter_dimension_numbers"])
    fill = splat_value(graph, op.operands[0])
    if len(op.results) != 1 or fill is None or not graph.values[op.results[0]].nbytes:
        return None
    if not _sets(op) and not (fill == 0 and adds(op.blocks[0])):
        return None
    index, rows = _address(graph, op, numbers)
    addressed = set(numbers.scattered_dims_to_operand_dims)
    columns = addressed.difference(rows.values())
    result, indices, updates = (graph.values[v].shape for v in (op.results[0], index, op.operands[2]))
    places = [d for d in range(len(indices)) if d != numbers.index_vector_dim]
    if len(columns) != 1 or any(indices[d] != 1 for d in places if d not in rows):
        return None
    (column,) = columns
    # XLA:CPU drops what it is to write by an index whose type does not reach as far.
    if result[column] > integers_of(graph.values[index].dtype).stop:
        return None
    windows = [d for d in range(len(result)) if d not in (*numbers.inserted_window_dims, *numbers.input_batching_dims)]
    along: dict[int, int | None] = dict(zip(numbers.update_window_dims, windows, strict=True))
    if any(updates[u] != (1 if d in addressed else result[d]) for u, d in along.items() if d is not None):
        return None
    along = {u: None if d in addressed else d for u, d in along.items()}
    along |= zip((u for u in range(len(updates)) if u not in along), map(rows.get, places), strict=True)
    index_dims = tuple(rows.get(d) for d in range(len(indices)))
    return OneHot(op, column, fill, index, index_dims, tuple(along[u] for u in range(len(updates))))


def _sets(scatter: Op) -> bool:
    """Whether a scatter writes its updates as they are."""
    body = scatter.blocks[0]
    return len(body.ops) == 1 and list(body.returned) == [body.arguments[1]]


def _address(graph: Graph, op: Op, numbers: Any) -> tuple[int, dict[int, int]]:
    """The value that says where in a row a scatter writes, and which dimensions of it go with which of the result.

    Batching dimensions do, and those that other parts of the indices count: `x.at[jnp.arange(n), y].set(u)`.
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
    """The one-hot rows that a sum adds up, along their own dimension among others."""
    if len(reduce.results) != 1 or not adds(reduce.blocks[0]) or not starts_at_zero(graph, reduce):
        return None
    _, op = _above_zeros(graph, reduce.operands[0])
    one = one_hot_of(graph, op) if op is not None and op.name == "stablehlo.scatter" else None
    is_sum = one is not None and one.fill == 0 and one.dimension in integers(graph, reduce, "dimensions")
    return one if is_sum else None


def _above_zeros(graph: Graph, value: int) -> tuple[list[Op], Op | None]:
    """The ops, in program order, that lead to a value and keep zeros what they are, and the op before them."""
    chain: list[Op] = []
    op = graph.producer(value)
    while op is not None and op.name in ("stablehlo.negate", "stablehlo.convert"):
        chain.insert(0, op)
        op = graph.producer(op.operands[0])
    return chain, op


def _selected(graph: Graph, one: OneHot) -> Any:
    index, updates = _operands(graph, one)
    result: Any = graph.mlir_values[one.scatter.results[0]].type
    columns = index_along(result.shape, one.dimension, index.type.element_type)
    rows = laid_along(index, one.index_dims, columns.type)
    here = stablehlo.compare(columns, rows, stablehlo.ComparisonDirectionAttr.get("EQ"))
    fill = broadcast(splat(retype(result, ()), one.fill), result)
    return stablehlo.select(here, laid_along(updates, one.update_dims, result), fill)


def _sum_of_selected(graph: Graph, reduce: Op, one: OneHot) -> Any:
    """Each row's update where its index is inside, summed over what else there is to sum over."""
    index, updates = _operands(graph, one)
    rows: Any = graph.mlir_values[one.scatter.results[0]].type
    kept = retype(rows, [size for d, size in enumerate(rows.shape) if d != one.dimension])
    mask = tensor(kept.shape, ir.IntegerType.get_signless(1))

    def without(dims: Dims) -> Dims:
        return tuple(None if d is None else d - (d > one.dimension) for d in dims)

    inside = laid_along(is_inside(index, rows.shape[one.dimension]), without(one.index_dims), mask)
    value = stablehlo.select(inside, laid_along(updates, without(one.update_dims), kept), zeros(kept))
    for op in _above_zeros(graph, reduce.operands[0])[0]:
        element = graph.mlir_values[op.results[0]].type.element_type
        value = convert(value, element) if op.name == "stablehlo.convert" else stablehlo.negate(value)
    others = [d - (d > one.dimension) for d in integers(graph, reduce, "dimensions") if d != one.dimension]
    return sum_over(value, others) if others else value


def _operands(graph: Graph, one: OneHot) -> tuple[Any, Any]:
    """The index and the updates."""
    index, updates = (graph.mlir_values[v] for v in (one.index, one.scatter.operands[2]))
    return wide(index), updates
