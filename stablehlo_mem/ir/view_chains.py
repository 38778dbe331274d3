"""Finds the value that another one shows: broadcast, transposed, with dimensions of one element added or dropped.

Matchers look through such chains of views with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.builders import reshaped
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.ir.op_attributes import integers

_VIEWS = ("stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.transpose")


@dataclasses.dataclass(frozen=True)
class View:
    """A value seen as its source spread over the value's dimensions.

    Attributes:
        source: the value that is shown.
        dims: for each dimension of the source the value's dimension it lies along; None for one of one element that
            lies along none. The value repeats the source along all its other dimensions.
    """

    source: int
    dims: tuple[int | None, ...]


@cached_analysis
def view_of(graph: Graph, value: int) -> View:
    """The value furthest back that a value shows, the value itself if it shows none."""
    view = View(value, tuple(range(len(graph.values[value].shape))))
    while True:
        op = graph.producer(view.source)
        places = places_in_result(graph, op) if op is not None else None
        if op is None or places is None:
            return view
        view = View(op.operands[0], tuple(None if d is None else view.dims[d] for d in places))


def squeezed(graph: Graph, view: View) -> tuple[Any, list[int]]:
    """Builds the source without the dimensions that lie along none, and says where each of the others lies."""
    value = graph.mlir_values[view.source]
    shape = [size for size, d in zip(value.type.shape, view.dims, strict=True) if d is not None]
    return reshaped(value, shape), [d for d in view.dims if d is not None]


def places_in_result(graph: Graph, op: Op) -> tuple[int | None, ...] | None:
    """For each dimension of a view's operand the result's dimension it becomes; None if the op is no view."""
    if op.name not in _VIEWS:
        return None
    before, after = (graph.values[v].shape for v in (op.operands[0], op.results[0]))
    return _places(op.name, before, after, lambda attribute: integers(graph, op, attribute))


def places_of(handle: Any) -> tuple[int | None, ...] | None:
    """The same of an MLIR operation."""
    if handle.name not in _VIEWS:
        return None
    before, after = (tuple(v.type.shape) for v in (handle.operands[0], handle.results[0]))
    return _places(handle.name, before, after, lambda name: tuple(ir.DenseI64ArrayAttr(handle.attributes[name])))


def _places(
    name: str, before: tuple[int, ...], after: tuple[int, ...], integers_of: Callable[[str], tuple[int, ...]]
) -> tuple[int | None, ...] | None:
    """The places of a view; None of a reshape that does more than add and drop dimensions of one element."""
    if name == "stablehlo.broadcast_in_dim":
        dims = integers_of("broadcast_dimensions")
        return tuple(d if size == after[d] else None for size, d in zip(before, dims, strict=True))
    if name == "stablehlo.transpose":
        permutation = integers_of("permutation")
        return tuple(permutation.index(d) for d in range(len(permutation)))
    places = [d for d, size in enumerate(after) if size != 1]
    if [size for size in before if size != 1] != [after[d] for d in places]:
        return None
    rest = iter(places)
    return tuple(next(rest) if size != 1 else None for size in before)
