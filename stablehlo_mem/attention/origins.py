"""Sees through the carries that loops hand on unchanged: the mask of a scanned layer is computed before the scan."""

from __future__ import annotations

from typing import Any

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.ir.matchers import splat_number


def origin(value: Any) -> Any:
    """The MLIR value that a carry of loops has in every iteration; the value itself if it is no such carry."""
    while isinstance(value.owner, ir.Block):
        loop: Any = value.owner.owner
        if loop is None or loop.operation.name != "stablehlo.while":
            return value
        number = ir.BlockArgument(value).arg_number
        body = loop.operation.regions[1].blocks[0]
        returned = body.operations[len(body.operations) - 1].operation.operands[number]
        if returned != body.arguments[number]:
            return value
        value = loop.operation.operands[number]
    return value


@cached_analysis
def number_in(graph: Graph, value: int) -> float | int | None:
    """The number that a value is filled with, also where a loop hands the constant on."""
    return splat_number(origin(graph.mlir_values[value]))


@cached_analysis
def same_everywhere(graph: Graph) -> dict[int, int]:
    """For each argument and capture of a block the first one that is the same value."""
    first: dict[Any, int] = {}
    outside = (*graph.arguments, *graph.captured)
    return {v: first.setdefault(origin(graph.mlir_values[v]), v) for v in outside}
