"""What XLA:CPU hands to YNNPACK: reductions, and what they are made of, up to so many ops in one fusion.

A fusion grows from a reduction up, to ops that nobody else needs: `ynn_support.cc` and `library_rewriter.cc` of XLA.
"""

from __future__ import annotations

import math

from stablehlo_mem.ir.graph import FLOATS, Graph, Op, cached_analysis
from stablehlo_mem.ir.op_attributes import integers

MOST_OPS = 100
"""A fusion has no more, its operands included: what is left over of a long chain is written to memory (seen on CPU)."""
_SHORT = 256
"""Elements that are reduced as they are made: more of them do better in loops that stay in the cache (seen on CPU)."""
_REDUCERS = frozenset({"stablehlo.add", "stablehlo.maximum", "stablehlo.minimum"})
_UNARY = (
    "abs ceil convert exponential exponential_minus_one floor log log_plus_one logistic negate round_nearest_even rsqrt"
    " sign sqrt tanh"
)
_BINARY = "add divide maximum minimum multiply power subtract"
_MOVES = "broadcast_in_dim concatenate pad reshape transpose"
_FUSED = frozenset({"chlo.erf", *(f"stablehlo.{name}" for name in f"{_UNARY} {_BINARY} {_MOVES}".split())})


def reduces(graph: Graph, op: Op) -> bool:
    """Whether YNNPACK can do a reduction: sums and extrema of floats."""
    made_by = {inner.name for block in op.blocks for inner in block.ops[:-1]}
    return op.name == "stablehlo.reduce" and made_by <= _REDUCERS and _is_float(graph, op)


def fused_after(graph: Graph, op: Op) -> int:
    """The number of ops after an op in the fusion that takes it in, its last reduction included; 0 if none does."""
    after = _following(graph, op)
    ends = (i for i in reversed(after) if graph.ops[i].name == "stablehlo.reduce")
    return next((count for end in ends if (count := _taken_in(graph, op.index, end, after))), 0)


@cached_analysis
def streamed_into(graph: Graph, value: int) -> int | None:
    """The reduction along a short dimension in which YNNPACK reduces a value as it makes it, if that is all it is for.

    What the reduction needs beside its operand it does not need then either.
    """
    op = graph.producer(value)
    while op is not None and op.name in _FUSED and _is_float(graph, op):
        users = {u for v in op.results for u in graph.users[v]}
        op = graph.ops[users.pop()] if len(users) == 1 else None
        if op is not None and reduces(graph, op):
            shape = graph.values[op.operands[0]].shape
            reduced = math.prod(shape[d] for d in integers(graph, op, "dimensions"))
            return op.index if reduced <= _SHORT else None
    return None


def _is_float(graph: Graph, op: Op) -> bool:
    return all(graph.values[v].dtype in FLOATS for v in op.results)


def is_fused(graph: Graph, op: Op) -> bool:
    """Whether YNNPACK knows an op that a reduction is made of."""
    return (op.name in _FUSED and _is_float(graph, op)) or reduces(graph, op)


@cached_analysis
def _following(graph: Graph, op: Op) -> tuple[int, ...]:
    """The ops that read a result, or what such ops make of it, as far as YNNPACK knows them; in program order."""
    found: set[int] = set()
    pending = [op]
    while pending and len(found) <= MOST_OPS:
        users = {u for v in pending.pop().results for u in graph.users[v]} - found
        known = {u for u in users if is_fused(graph, graph.ops[u])}
        found |= known
        pending += [graph.ops[u] for u in known]
    return tuple(sorted(found))


def _taken_in(graph: Graph, op: int, end: int, after: tuple[int, ...]) -> int:
    """How many ops a fusion that ends in a reduction has after an op, if it takes that in, else 0."""
    inside = {end}
    for i in (op, *after)[::-1]:
        users = {u for v in graph.ops[i].results for u in graph.users[v]}
        if users and users <= inside:
            inside.add(i)
    return len(inside) - 1 if op in inside else 0
