"""`OP_RULES`: the rule of every op that can be split, by name. Start here to give an op a rule.

Each module that is joined below holds the rules of one family of ops in an `OP_RULES` of its own. A new op is one more
entry in the module whose ops are most like it (elementwise, reductions, indexing, gather_scatter, linalg, windows):

- `OpRule()` if Shardy's own rule is right and the op's attributes mention no sizes;
- `rule=` a function of the op that returns its `FactorRule`, or None where it cannot be split;
- `emit=` a function that builds the op on one chunk, where a clone on smaller tensors would be wrong;
- `reduction=` how its partial results combine, where it has reduction factors;
- `cumulative=`, `edges=` for scans and for control flow only.

An op without an entry is a barrier: it is computed whole. Then add an example to docs/generate/ops.mlir (elementwise
ops need none), and a numerical one to tests/test_factor_rule.py. docs/ops.md lists what each rule says.
"""

from __future__ import annotations

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.sharding_rules import (
    associative_scan,
    control_flow,
    elementwise,
    gather_scatter,
    indexing,
    linalg,
    ragged_dot,
    reductions,
    shard_map,
    top_k,
    windows,
)
from stablehlo_mem.sharding_rules.factor_rule import FactorRule
from stablehlo_mem.sharding_rules.op_rule import OpRule, Reduction
from stablehlo_mem.sharding_rules.rule_book import RuleBook

OP_RULES: dict[str, OpRule] = {
    **elementwise.OP_RULES,
    **reductions.OP_RULES,
    **ragged_dot.OP_RULES,
    **top_k.OP_RULES,
    **indexing.OP_RULES,
    **gather_scatter.OP_RULES,
    **linalg.OP_RULES,
    **windows.OP_RULES,
    **control_flow.OP_RULES,
    **shard_map.OP_RULES,
    **associative_scan.OP_RULES,
}


@cached_analysis
def rule_book(graph: Graph) -> RuleBook:
    """The factor rules of a block's ops."""
    return RuleBook(graph, OP_RULES)


def rule_of(graph: Graph, op: int) -> FactorRule | None:
    """The factor rule of an op, None if it cannot be split at all, and for control flow: see `RuleBook`."""
    return rule_book(graph).factor_rule(op)


def reduction_of(op_name: str) -> Reduction:
    """How the partial results of an op combine that has some."""
    reduction = OP_RULES[op_name].reduction
    assert reduction is not None
    return reduction


def is_free(op: Op) -> bool:
    """Whether an op costs nothing where its result is used: it is fused into its users."""
    op_rule = OP_RULES.get(op.name)
    return op_rule is not None and op_rule.free
