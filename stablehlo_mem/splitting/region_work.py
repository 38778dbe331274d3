"""The work in the blocks of a split op (a while, a case): what chunks share, and what each of them repeats.

`axis` asks where a chunk would repeat most of it, `chunk_cost` what that takes.
"""

from __future__ import annotations

from collections.abc import Callable

from stablehlo_mem.analysis.loop_invariants import invariant_ops
from stablehlo_mem.analysis.op_cost import op_flops
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.ir.trip_count import likely_trips
from stablehlo_mem.sharding_rules import OP_RULES, rule_book
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.sharding_rules.region_propagation import split_of

Measure = Callable[[Graph, int], float]
"""What one op takes that runs whole."""
RepeatedMeasure = Callable[[Graph, SplitOp], float]
"""What every chunk of a split op takes, however small it is."""


def region_work(
    graph: Graph,
    split_op: SplitOp,
    measure: Measure,
    hoisted: Callable[[Graph], frozenset[int]] = invariant_ops,
    repeated: RepeatedMeasure = lambda _graph, _split_op: 0.0,
) -> tuple[float, float]:
    """What the ops in the blocks of a split op take that run whole, and those that are split; 0 if it has no blocks.

    Args:
        graph: the block of the op.
        split_op: it and how it is split.
        measure: what one run of an op takes.
        hoisted: the ops of a loop's body that run once.
        repeated: what of a split op counts as if it ran whole, as every chunk repeats it.
    """
    op = graph.ops[split_op.op]
    if OP_RULES[op.name].edges is None:
        return 0.0, 0.0
    region = rule_book(graph).within(split_op.parts).region(split_op.op)
    split, trips = split_of(region, split_op), likely_trips(graph, op) if op.name == "stablehlo.while" else 1
    whole = shared = 0.0
    for number, block in enumerate(region.blocks):
        once = hoisted(block)
        for variant in region.needed(split, number):
            runs = 1 if variant.op in once else trips
            if variant.split_op is None:
                whole += runs * measure(block, variant.op)
            else:
                inner = region_work(block, variant.split_op, measure, hoisted, repeated)
                whole += runs * (inner[0] + repeated(block, variant.split_op))
                shared += runs * (inner[1] + measure(block, variant.op))
    return whole, shared


@cached_analysis
def repeats_most(graph: Graph, split_op: SplitOp) -> bool:
    """Whether chunks of a split op repeat more arithmetic in its blocks than they share."""
    whole, shared = region_work(graph, split_op, lambda block, op: op_flops(block, block.ops[op]))
    return whole > shared
