"""Finds the induction variable of a while, a carry that grows by a constant up to another, and the trip count.

The cost model, the analyses of memory and the passes on loops call it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import Graph, Op, Path
from stablehlo_mem.ir.matchers import direction, integers_of, splat_value

_LIKELY_TRIPS = 100
"""Iterations assumed for a loop whose number depends on data: a guess, as few would need no loop. Reports count one."""

_AFFINE = frozenset({f"stablehlo.{name}" for name in ("add", "subtract", "multiply", "clamp", "convert", "select")})
"""The ops by which an index of a loop's body is computed from its counter."""
Affine = tuple[int, int]
"""(a, b): an index that is a · step + b."""
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


@cached_analysis
def induction_variables(graph: Graph, loop: Op) -> dict[int, Affine]:
    """The carries of a while that grow by a constant from a constant on: by its body's argument, in terms of the step.

    `jax.lax.fori_loop` has two, one that counts the steps and one for its function.
    """
    found: dict[int, Affine] = {}
    for carry, argument in enumerate(loop.blocks[1].arguments):
        stride, start = _stride(graph, loop, carry), _integer(graph, loop.operands[carry])
        if stride is not None and start is not None:
            found[argument] = stride, start
    return found


def affine(body: Graph, value: int, variables: Mapping[int, Affine], steps: int) -> Affine | None:
    """(a, b) where an index of a loop's body is a · step + b in all steps, None if it is something else.

    An index that is known to be in bounds may be clamped, or counted from the end where it is negative.

    Args:
        variables: what is known of the body's arguments.
    """
    if value in variables:
        return variables[value]
    number = splat_value(body, value)
    if isinstance(number, int):
        return 0, number
    op = body.producer(value)
    if op is None or op.name not in _AFFINE:
        return None
    if op.name == "stablehlo.select":
        return affine(body, op.operands[2], variables, steps) if _never_holds(body, op, variables, steps) else None
    parts = [affine(body, v, variables, steps) for v in op.operands]
    if any(part is None for part in parts):
        return None
    return _combined(op.name, [part for part in parts if part is not None], steps)


def _combined(name: str, parts: list[Affine], steps: int) -> Affine | None:
    """The same of what an op computes of indices."""
    if name == "stablehlo.convert":
        return parts[0]
    if name == "stablehlo.clamp":
        low, inner, high = parts
        least, most = _range(inner, steps)
        is_inside = not low[0] and not high[0] and low[1] <= least and most <= high[1]
        return inner if is_inside else None
    first, second = parts
    if name == "stablehlo.multiply":
        factor, scaled = (first, second) if not first[0] else (second, first)
        return None if factor[0] else (factor[1] * scaled[0], factor[1] * scaled[1])
    sign = 1 if name == "stablehlo.add" else -1
    return first[0] + sign * second[0], first[1] + sign * second[1]


def _range(index: Affine, steps: int) -> tuple[int, int]:
    """The least and the most of an index in all steps."""
    ends = index[1], index[1] + index[0] * (steps - 1)
    return min(ends), max(ends)


def _never_holds(body: Graph, select: Op, variables: Mapping[int, Affine], steps: int) -> bool:
    """Whether a select that asks whether an index is negative always takes its second value."""
    compare = body.producer(select.operands[0])
    if compare is None or compare.name != "stablehlo.compare" or direction(body, compare) != "LT":
        return False
    index = affine(body, compare.operands[0], variables, steps)
    return index is not None and splat_value(body, compare.operands[1]) == 0 and _range(index, steps)[0] >= 0


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
