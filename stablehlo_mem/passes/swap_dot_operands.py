"""swap-dot-operands: a dot that is transposed after is made so at once, its operands swapped.

Before, as JAX writes the gradient of every matrix of weights:
    %d = stablehlo.dot_general %g, %x, contracting_dims = [0] x [0] : tensor<99x64xf32>
    %w = stablehlo.transpose %d : tensor<64x99xf32>
After:
    %w = stablehlo.dot_general %x, %g, contracting_dims = [0] x [0] : tensor<64x99xf32>

The compilers do so by themselves where both are side by side, and the profile knows. Where a split adds up the dot's
partial results, though, these stay as they are until the loop ends, and the copy is one more buffer. In the small form
of a program all operands are swapped; in the quick form those that are faster then: on CPU the left operand is read in
another order, so the smaller one had better be it.

Refuses dots whose algorithm names types an operand, and transposes that do more than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stablehlo_mem.cost import matmul_of, op_flops
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.op_classes import dot_numbers, transposed_dot
from stablehlo_mem.rewriting import Kernel, Match, RewritingPass


class SwapDotOperands(RewritingPass):
    """The pass: finds dots that nothing but a transpose of their last two dimensions reads."""

    name = "swap-dot-operands"
    roots = frozenset({"stablehlo.transpose"})

    def match(self, graph: Graph, root: int, *, bytes_first: bool) -> Match | None:
        """The match at a transpose that does to a dot what swapping its operands does."""
        op = graph.ops[root]
        dot = transposed_dot(graph, op)
        if dot is None or "algorithm" in graph.handles[dot.index].attributes:
            return None
        nbytes = sum(graph.values[v].nbytes for v in (*dot.operands, *dot.results))
        return Match(
            root=root,
            removed=(dot.index, root),
            new_bytes=0,
            kernels=(Kernel(op_flops(graph, dot), nbytes, matmul_of(graph, dot).swapped()),),
            numerics="exact",
            what=f"multiply to {graph.values[op.results[0]]} without transposing it after",
            detail=dot,
            always=bytes_first,
        )

    def emit(self, graph: Graph, match: Match) -> Sequence[Any]:
        """The dot with its operands swapped."""
        op, dot = graph.ops[match.root], match.detail
        numbers = dot_numbers(graph, dot)
        left, right = (graph.mlir_values[v] for v in dot.operands)
        precision = graph.handles[dot.index].attributes.get("precision_config", None)
        swapped = stablehlo.DotDimensionNumbers.get(
            list(numbers.rhs_batching_dimensions),
            list(numbers.lhs_batching_dimensions),
            list(numbers.rhs_contracting_dimensions),
            list(numbers.lhs_contracting_dimensions),
        )
        reversed_precision = precision and ir.ArrayAttr.get(list(reversed(list(precision))))
        result = graph.mlir_values[op.results[0]].type
        return [stablehlo.dot_general(result, right, left, swapped, precision_config=reversed_precision)]
