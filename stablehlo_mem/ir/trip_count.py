"""Finds the induction variable of a while, a carry that grows by a constant up to another, and the trip count.

The cost model, the analyses of memory and the passes on loops call it.
"""

from __future__ import annotations

import dataclasses

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import Graph, Op, Path
from stablehlo_mem.ir.matchers import direction, integers_of, splat_value

_LIKELY_TRIPS = 100
"""Iterations assumed for a loop whose number depends on data: a guess, as few would need no loop. Reports count one."""

_AFFINE = frozenset({f"stablehlo.{name}" for name in ("add", "subtract", "multiply", "clamp", "convert")})
"""The ops by which an index of a loop's body is computed from its counter."""
_SWAPPED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}


@dataclasses.dataclass(frozen=True)
class Counter:
    """The carry in which a while counts its steps.

    Attributes:
        carry: its position.
        start: its value in the first step.
        stride: what each step adds to it, never 0.
        steps: how many there are.
    """

    carry: int
    start: int
    stride: int
    steps: int


def find_counter(graph: Graph, loop: Op) -> Counter | None:
    """The counter of a while, None where its trip count does not follow from constants."""
    condition, _ = loop.blocks
    compare = condition.producer(condition.returned[0])
    if compare is None or compare.name != "stablehlo.compare":
        return None
    holds = direction(condition, compare)
    first, second = compare.operands
    return _counter(graph, loop, first, holds, second) or _counter(
        graph, loop, second, _SWAPPED.get(holds, holds), first
    )


def counted(graph: Graph, op: Op) -> Counter | None:
    """The counter of an op that is a while and counts its steps from 0, one by one."""
    counter = find_counter(graph, op) if op.name == "stablehlo.while" else None
    return counter if counter is not None and (counter.start, counter.stride) == (0, 1) else None


def affine(body: Graph, value: int, counter: int, steps: int) -> tuple[int, int] | None:
    """(a, b) where an index of a loop's body is a · counter + b in all steps, None if it is something else."""
    if value == counter:
        return 1, 0
    number = splat_value(body, value)
    if isinstance(number, int):
        return 0, number
    op = body.producer(value)
    if op is None or op.name not in _AFFINE:
        return None
    parts = [affine(body, v, counter, steps) for v in op.operands]
    if op.name == "stablehlo.convert":
        return parts[0]
    if op.name == "stablehlo.clamp":
        low, inner, high = parts
        within = inner in ((1, 0), (-1, steps - 1)) and low == (0, 0) and high == (0, steps - 1)
        return inner if within else None
    one, other = parts
    if op.name == "stablehlo.multiply":
        factor, scaled = (one, other) if one and not one[0] else (other, one)
        return (factor[1] * scaled[0], factor[1] * scaled[1]) if factor and scaled and not factor[0] else None
    sign = 1 if op.name == "stablehlo.add" else -1
    return (one[0] + sign * other[0], one[1] + sign * other[1]) if one and other else None


def _counter(graph: Graph, loop: Op, counted: int, holds: str, limit: int) -> Counter | None:
    """The counter of a while that runs while a relation holds between two values of its condition."""
    condition, body = loop.blocks
    if counted not in condition.arguments:
        return None
    carry = condition.arguments.index(counted)
    start, bound = _integer(graph, loop.operands[carry]), _constant(graph, loop, condition, limit)
    stride = _stride(graph, loop, carry)
    if start is None or bound is None or not stride:
        return None
    steps = _steps(start, bound, stride, holds)
    dtype = body.values[body.arguments[carry]].dtype
    # A counter wraps around beyond its type.
    if steps is None or start + steps * stride not in integers_of(dtype):
        return None
    return Counter(carry, start, stride, steps)


def _stride(graph: Graph, loop: Op, carry: int) -> int | None:
    """What the body of a while adds to a carry."""
    body = loop.blocks[1]
    argument, step = body.arguments[carry], body.producer(body.returned[carry])
    if step is None or step.name != "stablehlo.add" or argument not in step.operands:
        return None
    left, right = step.operands
    return _constant(graph, loop, body, right if left == argument else left)


def _steps(start: int, bound: int, stride: int, holds: str) -> int | None:
    """How often a number can grow by a stride while a relation to a bound holds; None if for ever or unknown."""
    steps, rest = divmod(bound - start, stride)
    if holds == "NE":
        return steps if steps >= 0 and not rest else None
    if holds == ("LT" if stride > 0 else "GT"):
        return max(0, steps + bool(rest))
    return max(0, steps + 1) if holds == ("LE" if stride > 0 else "GE") else None


def _constant(graph: Graph, loop: Op, block: Graph, value: int) -> int | None:
    """The integer that a value in a block of a while is in every step: a constant, or a carry that stays one."""
    if value not in block.arguments:
        return _integer(block, value)
    carry, body = block.arguments.index(value), loop.blocks[1]
    return _integer(graph, loop.operands[carry]) if body.returned[carry] == body.arguments[carry] else None


def _integer(graph: Graph, value: int) -> int | None:
    number = splat_value(graph, value)
    return number if isinstance(number, int) else None


@cached_analysis
def trip_count(graph: Graph, op: Op, unknown: int = 1) -> int:
    """How often a while runs, `unknown` where it has no counter."""
    counter = find_counter(graph, op)
    return unknown if counter is None else counter.steps


def likely_trips(graph: Graph, op: Op) -> int:
    """How often a while is assumed to run: its trip count, or a typical one where that is unknown."""
    return trip_count(graph, op, _LIKELY_TRIPS)


def block_runs(main: Graph, path: Path) -> int:
    """How often the block that a path from `main` leads to runs: once for each step of the loops around it."""
    runs, graph = 1, main
    for op, block in path:
        runs *= likely_trips(graph, graph.ops[op]) if graph.ops[op].name == "stablehlo.while" else 1
        graph = graph.ops[op].blocks[block]
    return runs
