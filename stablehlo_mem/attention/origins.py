"""Sees through the carries that loops hand on unchanged: the mask of a scanned layer is computed before the scan."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import dtypes_by_name, ir
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.ir.matchers import SPREADING, splat_number

_OF_A_NUMBER: dict[str, Callable[[float], float]] = {
    "stablehlo.convert": float,
    "stablehlo.sqrt": math.sqrt,
    "stablehlo.rsqrt": lambda number: 1 / math.sqrt(number),
}
"""What is computed of a positive number, in the type of the result."""


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
    """The number that a value is filled with, also where a loop hands the constant on.

    Roots of constants count: `jnp.sqrt(depth)` is an op in a traced program.
    """
    return _number(graph.mlir_values[value])


def _number(value: Any) -> float | int | None:
    value = origin(value)
    number = splat_number(value)
    if number is not None or isinstance(value.owner, ir.Block):
        return number
    op = value.owner.operation
    if op.name in SPREADING:
        return _number(op.operands[0])
    compute = _OF_A_NUMBER.get(op.name)
    inner = _number(op.operands[0]) if compute is not None else None
    if compute is None or inner is None or inner <= 0:
        return None
    return float(np.asarray(compute(inner)).astype(dtypes_by_name()[str(value.type.element_type)]))


@cached_analysis
def same_everywhere(graph: Graph) -> dict[int, int]:
    """For each argument and capture of a block the first one that is the same value."""
    first: dict[Any, int] = {}
    outside = (*graph.arguments, *graph.captured)
    return {v: first.setdefault(origin(graph.mlir_values[v]), v) for v in outside}
