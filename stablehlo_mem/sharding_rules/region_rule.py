"""The factor rule of an op with regions along one dimension, made of how that dimension propagates through it.

`RuleBook` asks for it; `region_propagation` does the work.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.structural_equality import equal_ops_cache
from stablehlo_mem.sharding_rules.factor_rule import UNIT_DIMENSION, Dims, FactorRule
from stablehlo_mem.sharding_rules.region_edges import PARTIAL, WHOLE, Region, RegionSplit
from stablehlo_mem.sharding_rules.region_propagation import finest_split, split_region


def region_rule(region: Region, edge: int, dimension: int, n: int) -> FactorRule | Blocked:
    """The rule for an axis of `n` elements along a dimension of an edge, and for what is split together with it.

    Or why it cannot be split. With another `n`, other edges may be. It is also the rule along the other dimensions that
    are split with it. Equal ops share their rules.
    """
    rules = equal_ops_cache(region.graph, region.op.index).tables["region_rule"]
    n //= region.shares
    key = (edge, dimension, n, region.parts)
    if key in rules:
        return rules[key]
    split = finest_split(region, edge, dimension, n)
    if isinstance(split, Blocked):
        # No rule of all edges is made: a loop of hundreds would take long to ask about each.
        is_unit = region.shape(edge)[dimension] == 1
        rules[key] = UNIT_DIMENSION if is_unit else Blocked("needs-whole-dimension", split.message)
    else:
        # An unrelated edge that `finest_split` added may go with another dimension as well: it has its own rule.
        own = split_region(region, ((edge, dimension),), n)
        same = own.dims if isinstance(own, RegionSplit) and split.n == n else ()
        keys = [key, *((*item, n, region.parts) for item in same)]
        rules |= dict.fromkeys(keys, _Builder(region).rule_of_split(split))
    return rules[key]


class _Builder:
    """Numbers the factors: one for every dimension of every edge, and one more for its minor part if it is merged."""

    def __init__(self, region: Region):
        self.region = region
        ranks = [len(region.shape(edge)) for edge in range(len(region.edges))]
        self.first = list(itertools.accumulate(ranks, initial=0))
        self.sizes = [1] * (2 * self.first[-1])

    def rule_of_split(self, split: RegionSplit) -> FactorRule:
        """All that is split together is one factor, with the number of the first of its dimensions."""
        factor = self.first[split.dims[0][0]] + split.dims[0][1]
        self.sizes[factor] = split.n * self.region.shares
        factors: dict[tuple[int, int], tuple[int, ...]] = {}
        for edge, dimension in split.dims:
            minor = self.first[-1] + self.first[edge] + dimension
            self.sizes[minor] = self.region.shape(edge)[dimension] // split.n
            factors[edge, dimension] = (factor, minor) if self.sizes[minor] > 1 else (factor,)
        edges = list(zip(self.region.edges, split.forms, strict=True))
        return dataclasses.replace(
            self.rule(factors),
            reduction=frozenset({factor} if PARTIAL in split.forms else ()),
            invariant_results=tuple((factor, e.result) for e, f in edges if f == WHOLE and e.result is not None),
            init_operands=tuple((factor, e.operand) for e, f in edges if f == PARTIAL and e.operand is not None),
        )

    def rule(self, factors: Mapping[tuple[int, int], tuple[int, ...]]) -> FactorRule:
        """The rule in which dimensions of edges have these factors, and all others none."""
        region = self.region
        operands: list[Dims] = [((),) * len(region.graph.values[v].shape) for v in region.op.inputs]
        results: list[Dims] = [((),) * len(region.graph.values[v].shape) for v in region.op.results]
        for number, edge in enumerate(region.edges):
            dims = tuple(factors.get((number, d), ()) for d in range(len(region.shape(number))))
            if edge.operand is not None:
                operands[edge.operand] = dims
            if edge.result is not None:
                results[edge.result] = dims
        return FactorRule(tuple(self.sizes), tuple(operands), tuple(results))
