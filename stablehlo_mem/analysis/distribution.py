"""What one device does of an op in a program that Shardy distributes, and what it exchanges with others for it.

The graph knows the parts of each dimension (`ir.shards`), not the mesh axes. A partitioner shares an op out as its
result lies, or as an operand does, or all of them, and moves what lies otherwise: operands are gathered, or change the
dimension that is shared out; results are summed over devices, gathered, or change it too. Of these ways we count the
one that leaves each device least to do and, of several, moves least. `cost_model` charges an op's arithmetic on one
device and what that receives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.sharding_rules import rule_of
from stablehlo_mem.sharding_rules.factor_rule import Dims, FactorRule

_EXCHANGING = ("stablehlo.dot_general", "stablehlo.convolution", "stablehlo.reduce")
"""Ops whose operands and results are moved: what others exchange depends on the partitioner's choices and is less."""

_Parts = dict[int, int]
"""By how many devices each factor of an op is shared out; those of no other are left out."""


@cached_analysis
def sharing_devices(graph: Graph, op: Op) -> int:
    """How many devices share out the arithmetic of an op, as many as can: 1 in a program for one."""
    if not _is_distributed(graph):
        return 1
    rule = rule_of(graph, op.index)
    if rule is None:
        return max((math.prod(graph.values[v].parts) for v in op.results), default=1)
    counts = (math.prod(way.values()) for way in _ways(graph, op, rule))
    return max(count for count in counts if count <= _most_parts(graph))


@cached_analysis
def exchanged_bytes(graph: Graph, op: Op) -> float:
    """Bytes that one device receives so that an op can run, shared out by as many as can."""
    rule = rule_of(graph, op.index) if op.name in _EXCHANGING and _is_distributed(graph) else None
    if rule is None:
        return 0.0
    count = sharing_devices(graph, op)
    ways = (way for way in _ways(graph, op, rule) if math.prod(way.values()) == count)
    return min(_moved_bytes(graph, op, rule, way) for way in ways)


def _ways(graph: Graph, op: Op, rule: FactorRule) -> Iterator[_Parts]:
    """As the results lie, with and without the sums that all operands share out alike; as operands lie."""
    results: _Parts = {}
    for value, dims in zip(op.results, rule.results, strict=True):
        results |= _parts(graph, value, dims, rule)
    operands = [_parts(graph, value, dims, rule) for value, dims in zip(op.inputs, rule.operands, strict=True)]
    carrying = {f: [i for i, dims in enumerate(rule.operands) if any(f in d for d in dims)] for f in rule.reduction}
    sums = {f: min((operands[i].get(f, 1) for i in carrying[f]), default=1) for f in rule.reduction}
    yield {**results, **{factor: count for factor, count in sums.items() if count > 1}}
    yield results
    yield from operands
    yield {factor: count for parts in operands for factor, count in parts.items()}
    yield {}


def _moved_bytes(graph: Graph, op: Op, rule: FactorRule, way: _Parts) -> float:
    """Bytes that one device receives if an op is shared out in a way."""
    total = 0.0
    for value, dims in zip(op.inputs, rule.operands, strict=True):
        missing, gained = _change(_parts(graph, value, dims, rule), {f: way.get(f, 1) for d in dims for f in d})
        if missing > 1:
            total += graph.values[value].nbytes * max(1.0, missing / gained)
    sums = math.prod(way.get(factor, 1) for factor in rule.reduction)
    for value, dims in zip(op.results, rule.results, strict=True):
        lies = _parts(graph, value, dims, rule)
        missing, gained = _change({f: way.get(f, 1) for d in dims for f in d}, lies)
        nbytes = graph.values[value].nbytes * gained / missing
        # As it is computed it may lack parts that it is to have, and have others; a sum is in parts of its own.
        if sums > 1:
            # A ring sums up the parts; if the result does not stay in them it gathers the sums.
            nbytes *= 1 if gained >= sums else 2
        elif missing == 1:
            nbytes = 0
        total += nbytes * (1 if sums > 1 or gained > 1 else missing)
    return total


def _change(before: _Parts, after: _Parts) -> tuple[float, float]:
    """By how much less and by how much more of the factors a value is shared out: 8 rows as 2 x 4 give 4 and 4."""
    ratios = [before.get(f, 1) / after.get(f, 1) for f in {*before, *after}]
    return math.prod(max(1.0, r) for r in ratios), math.prod(max(1.0, 1 / r) for r in ratios)


def _parts(graph: Graph, value: int, dims: Dims, rule: FactorRule) -> _Parts:
    """In how many parts a value lies along the major factor of each dimension."""
    pairs = zip(dims, graph.values[value].parts, strict=False)
    majors = ((next((f for f in factors if rule.sizes[f] != 1), None), count) for factors, count in pairs)
    return {factor: count for factor, count in majors if factor is not None and count > 1}


@cached_analysis
def _most_parts(graph: Graph) -> int:
    """The most parts that any value lies in."""
    return max((math.prod(value.parts) for value in graph.values), default=1)


def _is_distributed(graph: Graph) -> bool:
    return _most_parts(graph) > 1
