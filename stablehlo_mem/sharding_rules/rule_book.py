"""`RuleBook`: the factor rules of the ops of one block, and the ops split by them, each derived once.

`splitting/` asks the book of a program (`registry.rule_book`) at every step by which it grows an axis.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from stablehlo_mem.ir.analysis_cache import AnalysisCache, cached_analysis
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.sharding_rules.factor_rule import FactorRule, SplitOp, split_along
from stablehlo_mem.sharding_rules.op_rule import OpRule, Side
from stablehlo_mem.sharding_rules.region_edges import Region
from stablehlo_mem.sharding_rules.region_rule import region_rule

_DISTRIBUTED = Blocked("distributed-dimension", "the dimension lies in parts on several devices")


class RuleBook:
    """The rules of a block's ops, by the rules of all kinds of ops. See `op_rule.BlockRules`.

    Attributes:
        cache: the results of its analyses.
    """

    def __init__(self, graph: Graph, op_rules: Mapping[str, OpRule]):
        self.graph, self.op_rules = graph, op_rules
        self.cache = AnalysisCache()
        self._distributed = any(value.parts for value in graph.values)

    def of_block(self, graph: Graph) -> RuleBook:
        """The rules of another block's ops."""
        return RuleBook(graph, self.op_rules)

    @cached_analysis
    def split(self, op: int, side: Side, position: int, dimension: int, n: int) -> SplitOp | Blocked:
        """An op split into `n` along a dimension of one of its inputs or results, or why it cannot be."""
        rule = self._rule_along(op, side, position, dimension, n)
        if rule is None:
            return Blocked("no-rule", f"there is no rule for splitting {self.graph.ops[op].name}")
        split_op = split_along(
            rule, op, (rule.operands if side == "operands" else rule.results)[position], dimension, n
        )
        if self._distributed and isinstance(split_op, SplitOp) and self._is_distributed(split_op):
            return _DISTRIBUTED
        return split_op

    @cached_analysis
    def factor_rule(self, op: int) -> FactorRule | None:
        """The factor rule of an op, None if it cannot be split at all.

        None for control flow too: it has a rule along each dimension, which `split` makes as it needs it.
        """
        data, op_rule = self.graph.ops[op], self.op_rules.get(self.graph.ops[op].name)
        if op_rule is None or op_rule.edges is not None or not self._has_tensors(op):
            return None
        rule = op_rule.rule(self.graph.handles[op])
        if rule is None:
            return None
        # What its reducer captures is needed whole.
        captures = tuple(((),) * len(self.graph.values[v].shape) for v in data.captures)
        rule = dataclasses.replace(rule, operands=rule.operands + captures) if captures else rule
        return rule if op_rule.reduction else rule.block(set(rule.reduction), "its partial results cannot be combined")

    @cached_analysis
    def region(self, op: int) -> Region:
        """An op with blocks that run."""
        return Region(self, op)

    def _rule_along(self, op: int, side: Side, position: int, dimension: int, n: int) -> FactorRule | None:
        op_rule = self.op_rules.get(self.graph.ops[op].name)
        if op_rule is None or op_rule.edges is None or not self._has_tensors(op):
            return self.factor_rule(op)
        edge = self.region(op).edge_at(side, position)
        if edge is None:
            return None
        return region_rule(self.region(op), edge, dimension, n)

    def _has_tensors(self, op: int) -> bool:
        return all(self.graph.values[r].dtype for r in self.graph.ops[op].results)

    def _is_distributed(self, split_op: SplitOp) -> bool:
        """Whether a split dimension lies in parts on several devices: each chunk would be on one of them alone."""
        op, values = self.graph.ops[split_op.op], self.graph.values
        operands = zip(op.inputs, split_op.operand_dims, strict=True)
        results = zip(op.results, split_op.result_dims, strict=True)
        pairs = (*operands, *results)
        return any(d is not None and values[v].parts and values[v].parts[d] > 1 for v, d in pairs)
