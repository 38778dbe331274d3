"""swap-dot-operands: a dot whose result is transposed gets its operands swapped, so that its result needs no transpose.

Before, as JAX writes the gradient of every matrix of weights:
    %d = stablehlo.dot_general %g, %x, contracting_dims = [0] x [0] : tensor<99x64xf32>
    %w = stablehlo.transpose %d : tensor<64x99xf32>
After:
    %w = stablehlo.dot_general %x, %g, contracting_dims = [0] x [0] : tensor<64x99xf32>

The compilers do this themselves where dot and transpose are side by side, and the profile knows it. But where a split
adds up partial results of the dot, the transpose stays behind the loop, as one more buffer. Where memory is preferred
all such dots are swapped. Otherwise those that are faster then: on CPU the left operand is packed transposed, so it
should be the smaller one. For XLA:GPU also those that are not slower: where a loop writes what is transposed into a
stack, it would transpose all of the stack.

If both operands lie transposed, then swapped they lie as a matmul reads them, and another transpose follows. einsum
writes `bhqk,bhkd->bqhd`, attention with its heads inside, like this:
    %d = stablehlo.dot_general %v, %p, contracting_dims = [2] x [3] : tensor<bxhxdxq>
    %o = stablehlo.transpose %d : tensor<bxqxhxd>
After:
    %d = stablehlo.dot_general %p, %v, contracting_dims = [3] x [2] : tensor<bxhxqxd>
    %o = stablehlo.transpose %d : tensor<bxqxhxd>

Refuses dots that name an algorithm, which has types for each operand, and other transposes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.cost_model import Kernel
from stablehlo_mem.analysis.fusion_classes import CLASSES, Class, transposed_dot
from stablehlo_mem.analysis.op_cost import matmul_of, op_flops
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.ir.op_attributes import dot_numbers, dot_operands_transposed, integers
from stablehlo_mem.rewriting.rewriting_pass import Match, RewritingPass
from stablehlo_mem.targets.chips import Chip


@dataclasses.dataclass(frozen=True)
class _Swap:
    """A dot whose operands are swapped, and how the dimensions of its new result are permuted after."""

    dot: Op
    permutation: tuple[int, ...]

    @property
    def transposes(self) -> bool:
        """Whether there is anything to permute."""
        return self.permutation != tuple(range(len(self.permutation)))


class SwapDotOperands(RewritingPass):
    """The pass: finds dots that nothing but a transpose reads."""

    name = "swap-dot-operands"
    roots = frozenset({"stablehlo.transpose"})

    def match(self, graph: Graph, root: int, *, prefer_memory: bool) -> Match | None:
        """The match at the transpose of a dot."""
        op = graph.ops[root]
        swap = _swap_at(graph, op)
        if swap is None or "algorithm" in graph.handles[swap.dot.index].attributes:
            return None
        dot, result = swap.dot, graph.values[op.results[0]]
        swapped = Kernel(op_flops(graph, dot), 0, matmul_of(graph, dot).swapped(), moves=dot)
        how = "without transposing its operands" if swap.transposes else "without transposing it afterwards"
        return Match(
            root=root,
            removed=(dot.index, root),
            new_bytes=result.nbytes if swap.transposes else 0,
            kernels=(swapped, Kernel(0, 0, moves=op)) if swap.transposes else (swapped,),
            numerics="exact",
            summary=f"swap the operands of the matmul {result}, to compute it {how}",
            detail=swap,
            even_if_slower=prefer_memory and not swap.transposes,
        )

    def pays_anyway(self, graph: Graph, match: Match, chip: Chip) -> bool:
        """Also where no transpose is left, the dot costs the same in either order, and stacks would be transposed."""
        if match.even_if_slower or match.detail.transposes or not compiler_model(chip).transposes_stacks:
            return match.even_if_slower
        dot = match.detail.dot
        as_it_is = Kernel(op_flops(graph, dot), 0, matmul_of(graph, dot))
        return match.kernels[0].seconds(chip) <= as_it_is.seconds(chip)

    def emit(self, graph: Graph, match: Match) -> Sequence[Any]:
        """The dot with its operands swapped, and transposed if anything is left to permute."""
        op, swap = graph.ops[match.root], match.detail
        numbers = dot_numbers(graph, swap.dot)
        left, right = (graph.mlir_values[v] for v in swap.dot.operands)
        precision = graph.handles[swap.dot.index].attributes.get("precision_config", None)
        swapped = stablehlo.DotDimensionNumbers.get(
            list(numbers.rhs_batching_dimensions),
            list(numbers.lhs_batching_dimensions),
            list(numbers.rhs_contracting_dimensions),
            list(numbers.lhs_contracting_dimensions),
        )
        reversed_precision = precision and ir.ArrayAttr.get(list(reversed(list(precision))))
        result = graph.mlir_values[op.results[0]].type
        shape = [result.shape[swap.permutation.index(d)] for d in range(len(swap.permutation))]
        new = stablehlo.dot_general(
            builders.retype(result, shape), right, left, swapped, precision_config=reversed_precision
        )
        return [builders.transposed(new, swap.permutation)]


def _swap_at(graph: Graph, op: Op) -> _Swap | None:
    """The swap that a transpose asks for: it does the same, or both operands lie transposed as they are."""
    dot = graph.producer(op.operands[0])
    if dot is None or CLASSES.get(dot.name) is not Class.DOT or len(graph.users[dot.results[0]]) > 1:
        return None
    if transposed_dot(graph, op) is None and not all(dot_operands_transposed(graph, dot)):
        return None
    numbers, rank = dot_numbers(graph, dot), len(graph.values[dot.results[0]].shape)
    batch = len(numbers.lhs_batching_dimensions)
    left = len(graph.values[dot.operands[0]].shape) - len(numbers.lhs_contracting_dimensions)
    order = [*range(batch), *range(left, rank), *range(batch, left)]
    return _Swap(dot, tuple(order.index(d) for d in integers(graph, op, "permutation")))
