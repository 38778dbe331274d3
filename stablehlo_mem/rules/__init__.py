"""What splitting means for each op: a factor rule and a way to run on a slice. One row an op, one table."""

from __future__ import annotations

from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.rules import control_flow, elementwise, gather_scatter, indexing, linalg, reductions, windows
from stablehlo_mem.rules.flow import Table
from stablehlo_mem.rules.row import Reduction, Row
from stablehlo_mem.rules.rule import Rule

ROWS: dict[str, Row] = {
    **elementwise.ROWS,
    **reductions.ROWS,
    **indexing.ROWS,
    **gather_scatter.ROWS,
    **linalg.ROWS,
    **windows.ROWS,
}


def rule_of(graph: Graph, op: int) -> Rule | None:
    """The factor rule of an op, None if it is a barrier: its name has no row, or its row has no rule for it."""
    one = graph.ops[op]
    row = ROWS.get(one.name)
    if row is None or not all(graph.values[r].dtype for r in one.results):
        return None
    if row.slots is not None:
        return control_flow.flow_rule(graph, op, row.slots(one), _TABLE)
    rule = row.rule(graph.handles[op])
    if rule is None:
        return None
    rule = rule.with_captures(tuple(len(graph.values[v].shape) for v in one.captures))
    return rule if row.reduction else rule.block(set(rule.reduction), "its partial results cannot be combined")


def _reduction_of(name: str) -> Reduction | None:
    row = ROWS.get(name)
    return row.reduction if row else None


_TABLE = Table(rule_of, _reduction_of)
ROWS.update(control_flow.rows(ROWS, _TABLE))
