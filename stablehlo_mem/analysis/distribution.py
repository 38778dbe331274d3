"""What one device does of an op in a program that Shardy distributes, and what it exchanges with others for it.

The graph knows the parts of each dimension (`ir.shards`), not the mesh axes. A factor of an op is shared out by as many
devices as its result has parts of it, or, if the op reduces over it, as all its operands have. An operand with more
parts is gathered; a result of which devices have partial sums is reduced. `cost_model` charges both.
"""

from __future__ import annotations

import math

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.sharding_rules import rule_of
from stablehlo_mem.sharding_rules.factor_rule import Dims, FactorRule

_EXCHANGING = ("stablehlo.dot_general", "stablehlo.convolution", "stablehlo.reduce")
"""Ops whose operands are gathered and results reduced; what other ops exchange depends on the partitioner's choices and
is less."""


@cached_analysis
def sharing_devices(graph: Graph, op: Op) -> int:
    """How many devices share out the arithmetic of an op: 1 in a program for one."""
    if not _is_distributed(graph):
        return 1
    rule = rule_of(graph, op.index)
    if rule is None:
        return max((math.prod(graph.values[v].parts) for v in op.results), default=1)
    # A mesh axis may share out the sum and the result, which is then reduced and scattered: it counts once.
    return min(math.prod(_parts_of_factors(graph, op, rule).values()), _most_parts(graph))


@cached_analysis
def exchanged_bytes(graph: Graph, op: Op) -> float:
    """Bytes that one device receives so that an op can run: gathered operands, and sums over devices.

    The gathered operand, whole, and the result twice, as a ring reduces and gathers it; once if it stays in parts.
    """
    if not _is_distributed(graph) or op.name not in _EXCHANGING:
        return 0.0
    rule = rule_of(graph, op.index)
    if rule is None:
        return 0.0
    of_factors, total = _parts_of_factors(graph, op, rule), 0.0
    for value, dims in zip(op.inputs, rule.operands, strict=True):
        more = math.prod(p // of_factors.get(f, 1) for f, p in _parts(graph, value, dims, rule).items())
        total += graph.values[value].nbytes * more if more > 1 else 0
    if any(of_factors.get(factor, 1) > 1 for factor in rule.reduction):
        total += sum(graph.values[v].nbytes * max(2, math.prod(graph.values[v].parts)) for v in op.results)
    return total


def _parts_of_factors(graph: Graph, op: Op, rule: FactorRule) -> dict[int, int]:
    """By how many devices each factor of an op is shared out; those of no other are left out."""
    parts: dict[int, int] = {}
    for value, dims in zip(op.results, rule.results, strict=True):
        parts |= _parts(graph, value, dims, rule)
    for factor in rule.reduction:
        carrying = [
            _parts(graph, value, dims, rule).get(factor, 1)
            for value, dims in zip(op.inputs, rule.operands, strict=True)
            if any(factor in factors for factors in dims)
        ]
        parts[factor] = min(carrying, default=1)
    return parts


def _parts(graph: Graph, value: int, dims: Dims, rule: FactorRule) -> dict[int, int]:
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
