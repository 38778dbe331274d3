"""What splitting means for each op: a factor rule and a way to run on a slice. One row an op, one table."""

from __future__ import annotations

from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.rules import elementwise, gather_scatter, indexing, linalg, reductions, windows
from stablehlo_mem.rules.row import Row
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
    row = ROWS.get(graph.ops[op].name)
    if row is None or not all(graph.values[r].dtype for r in graph.ops[op].results):
        return None
    rule = row.rule(graph.handles[op])
    if rule is None or row.reduction is not None:
        return rule
    return rule.block(set(rule.reduction), "its partial results cannot be combined")
