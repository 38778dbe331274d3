"""What splitting means for each op: a factor rule and a way to run on a slice. One row an op, one table."""

from __future__ import annotations

from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph, Op, remembered
from stablehlo_mem.ir.structural_equality import known_of_alike
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
from stablehlo_mem.sharding_rules.factor_rule import Node, Rule, place
from stablehlo_mem.sharding_rules.op_rule import Reduction, Row
from stablehlo_mem.sharding_rules.region_edges import Flow, Side, Table

ROWS: dict[str, Row] = {
    **elementwise.ROWS,
    **reductions.ROWS,
    **indexing.ROWS,
    **gather_scatter.ROWS,
    **linalg.ROWS,
    **windows.ROWS,
}


def rule_of(graph: Graph, op: int) -> Rule | None:
    """The factor rule of an op, None if it is a barrier: its name has no row, or its row has no rule for it.

    Of control flow too: its rule is made of those of the ops in it, where a `RuleBook` is asked for it.
    """
    one = graph.ops[op]
    row = ROWS.get(one.name)
    if row is None or row.slots is not None or not _has_tensors(graph, op):
        return None
    rule = row.rule(graph.handles[op])
    if rule is None:
        return None
    rule = rule.with_captures(tuple(len(graph.values[v].shape) for v in one.captures))
    return rule if row.reduction else rule.block(set(rule.reduction), "its partial results cannot be combined")


def is_free(op: Op) -> bool:
    """Whether an op costs nothing where its result is used: it is made in its users' kernels."""
    row = ROWS.get(op.name)
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
        self._placed: dict[tuple[int, Side, int, int, int], Node | Blocked] = {}

    def placed(self, op: int, side: Side, position: int, dimension: int, n: int) -> Node | Blocked:
        """An op split into `n` along a dimension of one of its inputs or results, or why it cannot be."""
        key = (op, side, position, dimension, n)
        if key not in self._placed:
            self._placed[key] = self._place(op, side, position, dimension, n)
        return self._placed[key]

    def _place(self, op: int, side: Side, position: int, dimension: int, n: int) -> Node | Blocked:
        rule = self._rule(op, side, position, dimension, n)
        if rule is None:
            return Blocked("no-rule", f"there is no rule for splitting {self.graph.ops[op].name}")
        node = place(rule, op, (rule.operands if side == "operands" else rule.results)[position], dimension, n)
        return _DISTRIBUTED if self._distributed and isinstance(node, Node) and self._is_distributed(node) else node

    def _is_distributed(self, node: Node) -> bool:
        """Whether one of the dimensions lies in parts on several devices: its chunks would be on one of them each."""
        op = self.graph.ops[node.op]
        pairs = (*zip(op.inputs, node.operand_dims, strict=True), *zip(op.results, node.result_dims, strict=True))
        values = self.graph.values
        return any(d is not None and values[v].parts and values[v].parts[d] > 1 for v, d in pairs)

    def _rule(self, op: int, side: Side, position: int, dimension: int, n: int) -> Rule | None:
        row = ROWS.get(self.graph.ops[op].name)
        if row is not None and row.slots is not None and _has_tensors(self.graph, op):
            return self._rule_of_flow(op, row, side, position, dimension, n)
        if op not in self._rules:
            self._rules[op] = rule_of(self.graph, op)
        return self._rules[op]

    def _rule_of_flow(self, op: int, row: Row, side: Side, position: int, dimension: int, n: int) -> Rule | None:
        if op not in self._flows:
            self._flows[op] = Flow(self.graph, op, row, _TABLE)
        slot = self._flows[op].slot_at(side, position)
        if slot is None:
            return None
        along: dict[tuple[int, int, int], Rule] = known_of_alike(self.graph, op)
        key = (slot, dimension, n)
        if key not in along:
            rule, same = control_flow.rule_along(self._flows[op], *key)
            along |= {(*place, n): rule for place in same.items()}
            along[key] = rule
        return along[key]


@remembered
def rule_book(graph: Graph) -> RuleBook:
    """The factor rules of a block's ops, kept with its graph."""
    return RuleBook(graph)


def _reduction_of(name: str) -> Reduction | None:
    row = ROWS.get(name)
    return row.reduction if row else None


_TABLE = Table(RuleBook, _reduction_of)
ROWS.update(control_flow.rows(ROWS, _TABLE))
ROWS.update(associative_scan.rows(ROWS, _TABLE))
