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
from stablehlo_mem.sharding_rules.region_propagation import find_split
from stablehlo_mem.sharding_rules.region_rule import region_rule

_DISTRIBUTED = "distributed-dimension"


class RuleBook:
    """The rules of a block's ops, by the rules of all kinds of ops. See `op_rule.BlockRules`.

    Attributes:
        parts: of the axes, see `within`.
        cache: the results of its analyses.
    """

    def __init__(self, graph: Graph, op_rules: Mapping[str, OpRule], parts: int = 1):
        self.graph, self.op_rules, self.parts = graph, op_rules, parts
        self.cache = AnalysisCache()
        self._distributed = parts > 1 or any(value.parts for value in graph.values)

    @cached_analysis
    def within(self, parts: int) -> RuleBook:
        """The rules along axes of so many parts, of each of which a chunk has an equal share.

        Where a dimension lies in parts on several devices, these devices keep their parts: nothing moves between them.
        """
        return self if parts == self.parts else RuleBook(self.graph, self.op_rules, parts)

    def of_block(self, graph: Graph, parts: int) -> RuleBook:
        """The rules of another block's ops, along axes of so many parts."""
        return RuleBook(graph, self.op_rules, parts)

    @cached_analysis
    def split(self, op: int, side: Side, position: int, dimension: int, n: int) -> SplitOp | Blocked:
        """An op split into `n` along a dimension of one of its inputs or results, or why it cannot be."""
        value = self.graph.values[getattr(self.graph.ops[op], "inputs" if side == "operands" else side)[position]]
        if self.parts == 1 and value.parts and value.parts[dimension] > 1:
            return _in_parts(value.parts[dimension])
        rule = self._rule_along(op, side, position, dimension, n)
        if rule is None:
            return Blocked("no-rule", f"there is no rule for splitting {self.graph.ops[op].name}")
        if isinstance(rule, Blocked):
            return rule
        split_op = split_along(
            rule, op, (rule.operands if side == "operands" else rule.results)[position], dimension, n
        )
        if self._distributed and isinstance(split_op, SplitOp):
            split_op = self._why_not_in_parts(split_op) or dataclasses.replace(split_op, parts=self.parts)
        if isinstance(split_op, SplitOp) and self.op_rules[self.graph.ops[op].name].edges is not None:
            split = find_split(self.within(split_op.parts).region(op), split_op)
            return split if isinstance(split, Blocked) else split_op
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
        if op_rule.reduction or not rule.reduction:
            return rule
        return rule.block(set(rule.reduction), "its partial results cannot be combined")

    @cached_analysis
    def region(self, op: int) -> Region:
        """An op with blocks that run."""
        return Region(self, op)

    def _rule_along(self, op: int, side: Side, position: int, dimension: int, n: int) -> FactorRule | Blocked | None:
        op_rule = self.op_rules.get(self.graph.ops[op].name)
        if op_rule is None or op_rule.edges is None or not self._has_tensors(op):
            return self.factor_rule(op)
        edge = self.region(op).edge_at(side, position)
        if edge is None:
            return None
        return region_rule(self.region(op), edge, dimension, n)

    def _has_tensors(self, op: int) -> bool:
        return all(self.graph.values[r].dtype for r in self.graph.ops[op].results)

    def _why_not_in_parts(self, split_op: SplitOp) -> Blocked | None:
        """Why an op cannot be split within the parts of the axis, None if it can."""
        op, values = self.graph.ops[split_op.op], self.graph.values
        operands = zip(op.inputs, split_op.operand_dims, strict=True)
        results = zip(op.results, split_op.result_dims, strict=True)
        parts = {values[v].parts[d] for v, d in (*operands, *results) if d is not None and values[v].parts} - {1}
        if self.parts == 1:
            return _in_parts(min(parts)) if parts else None
        if parts - {self.parts} or split_op.n % self.parts:
            return Blocked(_DISTRIBUTED, "the dimension lies in other parts on several devices")
        if not split_op.is_local or split_op.direction or self.op_rules[op.name].positional(split_op):
            return Blocked(_DISTRIBUTED, "the dimension lies in parts on several devices, and its position counts")
        return None


def _in_parts(parts: int) -> Blocked:
    return Blocked(_DISTRIBUTED, "the dimension lies in parts on several devices", parts=parts)
