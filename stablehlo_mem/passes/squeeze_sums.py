"""squeeze-sums: a sum of products is computed without its dimensions of size 1.

Before, with a batch of one:
    %p = stablehlo.multiply %x, %y : tensor<1x512x768xf32>
    %s = stablehlo.reduce(%p init: %zero) applies stablehlo.add across dimensions = [2] : tensor<1x512xf32>
After:
    %r = stablehlo.reshape %p : tensor<512x768xf32>
    %t = stablehlo.reduce(%r init: %zero) applies stablehlo.add across dimensions = [1] : tensor<512xf32>
    %s = stablehlo.reshape %t : tensor<1x512xf32>

XLA:CPU compiles the former as one dot for each row, thirty times slower: the gradient of RMSNorm takes ten times as
long at batch 1 as at batch 2 with as many elements. The loops of splits have no such dimensions, on any target.

Refuses nothing. Leaves alone other sums, at which no compiler is known to be slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stablehlo_mem.analysis.cost_model import Kernel
from stablehlo_mem.analysis.op_cost import op_flops
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.ir.matchers import sums_products_in_units
from stablehlo_mem.rewriting.rewriting_pass import Match, RewritingPass
from stablehlo_mem.sharding_rules.reductions import without_units


class SqueezeSums(RewritingPass):
    """The pass: finds sums of products with a dimension of one element."""

    name = "squeeze-sums"
    roots = frozenset({"stablehlo.reduce"})

    def match(self, graph: Graph, root: int, *, prefer_memory: bool) -> Match | None:
        """The match at a sum that is slow as it is on some target."""
        op = graph.ops[root]
        if not sums_products_in_units(graph, op):
            return None
        operand, result = graph.values[op.operands[0]], graph.values[op.results[0]]
        return Match(
            root=root,
            removed=(root,),
            new_bytes=0,
            kernels=(Kernel(op_flops(graph, op), operand.nbytes + result.nbytes),),
            numerics="exact",
            summary=f"sum {operand} without its dimensions of one element",
        )

    def emit(self, graph: Graph, match: Match) -> Sequence[Any]:
        """The sum between two reshapes."""
        op = graph.ops[match.root]
        operands = [graph.mlir_values[v] for v in op.operands]
        return without_units(graph.handles[op.index], operands, [graph.values[op.results[0]].shape])
