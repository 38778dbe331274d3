"""What splitting means for each op: a factor rule and a way to run on a slice. One row an op, one table."""

from __future__ import annotations

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.ir.structural_equality import cached_for_equal_ops
from stablehlo_mem.sharding_rules import (
    associative_scan,
    control_flow,
    elementwise,
    gather_scatter,
    indexing,
    linalg,
    reductions,
    windows,
)
from stablehlo_mem.sharding_rules.factor_rule import Rule, SplitOp, place
from stablehlo_mem.sharding_rules.op_rule import OpRule, Reduction
from stablehlo_mem.sharding_rules.region_edges import Flow, Side, Table

OP_RULES: dict[str, OpRule] = {
    **elementwise.OP_RULES,
    **reductions.OP_RULES,
    **indexing.OP_RULES,
    **gather_scatter.OP_RULES,
    **linalg.OP_RULES,
    **windows.OP_RULES,
}


def rule_of(graph: Graph, op: int) -> Rule | None:
    """The factor rule of an op, None if it is a barrier: its name has no row, or its row has no rule for it.

    Of control flow too: its rule is made of those of the ops in it, where a `RuleBook` is asked for it.
    """
    one = graph.ops[op]
    row = OP_RULES.get(one.name)
    if row is None or row.edges is not None or not _has_tensors(graph, op):
        return None
    rule = row.rule(graph.handles[op])
    if rule is None:
        return None
    rule = rule.with_captures(tuple(len(graph.values[v].shape) for v in one.captures))
    return rule if row.reduction else rule.block(set(rule.reduction), "its partial results cannot be combined")


def is_free(op: Op) -> bool:
    """Whether an op costs nothing where its result is used: it is made in its users' kernels."""
    row = OP_RULES.get(op.name)
    return row is not None and row.free


def _has_tensors(graph: Graph, op: int) -> bool:
    return all(graph.values[r].dtype for r in graph.ops[op].results)


_DISTRIBUTED = Blocked("distributed-dimension", "the dimension lies in parts on several devices")


class RuleBook:
    """The factor rules of a block's ops, each derived once; of control flow only along what is asked for."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self._distributed = any(value.parts for value in graph.values)
        self._rules: dict[int, Rule | None] = {}
        self._flows: dict[int, Flow] = {}
        self._placed: dict[tuple[int, Side, int, int, int], SplitOp | Blocked] = {}

    def placed(self, op: int, side: Side, position: int, dimension: int, n: int) -> SplitOp | Blocked:
        """An op split into `n` along a dimension of one of its inputs or results, or why it cannot be."""
        key = (op, side, position, dimension, n)
        if key not in self._placed:
            self._placed[key] = self._place(op, side, position, dimension, n)
        return self._placed[key]

    def _place(self, op: int, side: Side, position: int, dimension: int, n: int) -> SplitOp | Blocked:
        rule = self._rule(op, side, position, dimension, n)
        if rule is None:
            return Blocked("no-rule", f"there is no rule for splitting {self.graph.ops[op].name}")
        split_op = place(rule, op, (rule.operands if side == "operands" else rule.results)[position], dimension, n)
        return (
            _DISTRIBUTED
            if self._distributed and isinstance(split_op, SplitOp) and self._is_distributed(split_op)
            else split_op
        )

    def _is_distributed(self, split_op: SplitOp) -> bool:
        """Whether one of the dimensions lies in parts on several devices: its chunks would be on one of them each."""
        op = self.graph.ops[split_op.op]
        pairs = (
            *zip(op.inputs, split_op.operand_dims, strict=True),
            *zip(op.results, split_op.result_dims, strict=True),
        )
        values = self.graph.values
        return any(d is not None and values[v].parts and values[v].parts[d] > 1 for v, d in pairs)

    def _rule(self, op: int, side: Side, position: int, dimension: int, n: int) -> Rule | None:
        row = OP_RULES.get(self.graph.ops[op].name)
        if row is not None and row.edges is not None and _has_tensors(self.graph, op):
            return self._rule_of_flow(op, row, side, position, dimension, n)
        if op not in self._rules:
            self._rules[op] = rule_of(self.graph, op)
        return self._rules[op]

    def _rule_of_flow(self, op: int, row: OpRule, side: Side, position: int, dimension: int, n: int) -> Rule | None:
        if op not in self._flows:
            self._flows[op] = Flow(self.graph, op, row, _TABLE)
        edge = self._flows[op].slot_at(side, position)
        if edge is None:
            return None
        return _flow_rules(self.graph, op).along(self._flows[op], edge, dimension, n)


class _FlowRules:
    """The factor rules of equal ops with blocks, each derived once: by edge, dimension and `n`."""

    def __init__(self) -> None:
        self._rules: dict[tuple[int, int, int], Rule] = {}

    def along(self, flow: Flow, edge: int, dimension: int, n: int) -> Rule:
        """The rule along a dimension of an edge; it is also that of all the dimensions that are split with it."""
        key = (edge, dimension, n)
        if key not in self._rules:
            rule, same = control_flow.rule_along(flow, *key)
            self._rules |= {(*place, n): rule for place in same.items()}
            self._rules[key] = rule
        return self._rules[key]


@cached_for_equal_ops
def _flow_rules(graph: Graph, op: int) -> _FlowRules:
    del graph, op
    return _FlowRules()


@cached_analysis
def rule_book(graph: Graph) -> RuleBook:
    """The factor rules of a block's ops, kept with its graph."""
    return RuleBook(graph)


def _reduction_of(name: str) -> Reduction | None:
    row = OP_RULES.get(name)
    return row.reduction if row else None


_TABLE = Table(RuleBook, _reduction_of)
OP_RULES.update(control_flow.rows(OP_RULES, _TABLE))
OP_RULES.update(associative_scan.rows(OP_RULES, _TABLE))
