"""Dimensions of values as the op that makes them sees them, for people."""

from __future__ import annotations

from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.ir.op_attributes import dot_numbers


def origin_of(graph: Graph, value: int, dimension: int) -> str:
    """Where a matmul's dimension comes from: " (dimension 0 of its left operand)"; "" for other ops."""
    producer = graph.producer(value)
    if producer is None or producer.name != "stablehlo.dot_general":
        return ""
    numbers = dot_numbers(graph, producer)
    batch = len(numbers.lhs_batching_dimensions)
    if dimension < batch:
        return " (a batch dimension)"
    left, right = (len(graph.values[v].shape) for v in producer.operands[:2])
    summed = {*numbers.lhs_batching_dimensions, *numbers.lhs_contracting_dimensions}
    free = [("left", d) for d in range(left) if d not in summed]
    summed = {*numbers.rhs_batching_dimensions, *numbers.rhs_contracting_dimensions}
    free += [("right", d) for d in range(right) if d not in summed]
    side, number = free[dimension - batch]
    return f" (dimension {number} of its {side} operand)"
