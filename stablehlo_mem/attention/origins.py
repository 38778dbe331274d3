"""Sees through the carries that loops hand on unchanged: the mask of a scanned layer is computed before the scan."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import dtypes_by_name, ir
from stablehlo_mem.ir.graph import FLOATS, Graph
from stablehlo_mem.ir.matchers import SPREADING, splat_number

OF_NUMBERS: dict[str, Callable[..., Any]] = {
    "stablehlo.convert": np.positive,
    "stablehlo.sqrt": np.sqrt,
    "stablehlo.rsqrt": lambda number: 1 / np.sqrt(number),
    "stablehlo.negate": np.negative,
    "stablehlo.add": np.add,
    "stablehlo.subtract": np.subtract,
    "stablehlo.multiply": np.multiply,
    "stablehlo.divide": np.divide,
    "stablehlo.power": np.power,
}
"""What a traced program computes of numbers, such as `jnp.sqrt(depth)` or `jnp.power(depth, -0.5)`."""

MAX_DEPTH = 8
"""So many ops deep a number is computed; a scale is the root of a product of sizes at most."""


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

    What is computed of constants alone counts, rounded to the type of the result.
    """
    return number_of(graph.mlir_values[value])


def number_of(value: Any, depth: int = MAX_DEPTH) -> float | int | None:
    """`number_in` of an MLIR value, computed at most so many ops deep."""
    value = origin(value)
    number = splat_number(value)
    if number is not None or isinstance(value.owner, ir.Block):
        return number
    op = value.owner.operation
    if op.name in (*SPREADING, "stablehlo.slice"):
        return number_of(op.operands[0], depth)
    if op.name not in OF_NUMBERS or not depth:
        return None
    numbers: list[float] = []
    for operand in op.operands:
        number = number_of(operand, depth - 1)
        if number is None:
            return None
        numbers.append(float(number))
    return computed(op, numbers)


def computed(op: Any, numbers: Sequence[float]) -> float | None:
    """What an op of `OF_NUMBERS` makes of numbers, None if that is not known: integers are converted only."""
    element_type = str(op.results[0].type.element_type)
    dtype: Any = dtypes_by_name().get(element_type)
    if element_type not in FLOATS:
        if op.name != "stablehlo.convert" or dtype is None or not np.issubdtype(dtype, np.integer):
            return None
        number, held = float(numbers[0]), np.iinfo(dtype)
        return number if number.is_integer() and held.min <= number <= held.max else None
    with np.errstate(all="ignore"):
        rounded = float(np.asarray(OF_NUMBERS[op.name](*map(np.float64, numbers))).astype(dtype))
    return None if math.isnan(rounded) else rounded


@cached_analysis
def numbered(graph: Graph) -> dict[Any, int]:
    """The numbers of a block's values by their origins: the first where a block has one value several times."""
    numbers: dict[Any, int] = {}
    for number, value in enumerate(graph.mlir_values):
        numbers.setdefault(origin(value), number)
    return numbers
