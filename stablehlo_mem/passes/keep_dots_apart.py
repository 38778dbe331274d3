"""keep-dots-apart: dots whose results are added to sums are not merged, so that each adds to its sum in place.

XLA:GPU computes small dots that have an operand in common as one dot. What follows then reads slices of its result,
also the additions that a dot's own kernel would do. In the gradients of a layer's weights, chunk by chunk, that takes
a buffer as large as these sums, and as long again as the dots.

Before, in a loop over chunks:
    %a = stablehlo.dot_general %x, %v : tensor<2048x5632xf32>
    %sum_a1 = stablehlo.add %sum_a, %a
    %b = stablehlo.dot_general %x, %w : tensor<2048x5632xf32>
    %sum_b1 = stablehlo.add %sum_b, %b
After:
    %a = stablehlo.dot_general %x, %v : tensor<2048x5632xf32>
    %sum_a1 = stablehlo.add %sum_a, %a
    %x1 = stablehlo.optimization_barrier %x
    %b = stablehlo.dot_general %x1, %w : tensor<2048x5632xf32>
    %sum_b1 = stablehlo.add %sum_b, %b
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from stablehlo_mem.analysis.cost_model import Kernel
from stablehlo_mem.analysis.dot_merging import alike_dots
from stablehlo_mem.analysis.op_cost import matmul_of, op_flops
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.barriers import behind_barriers
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.rewriting.rewriting_pass import Match, RewritingPass


@dataclasses.dataclass(frozen=True)
class _SharedOperand:
    """A dot that has an operand in common with others.

    Attributes:
        dot, side: the dot, and which operand.
        number: of the dots before it that have it. So many barriers tell it from all of them.
    """

    dot: Op
    side: int
    number: int


class KeepDotsApart(RewritingPass):
    """The pass: finds sums of dots that have an operand in common with earlier dots."""

    name = "keep-dots-apart"
    kinds = frozenset({"cuda"})
    roots = frozenset({"stablehlo.add"})
    is_enabled_by_others = True

    def match(self, graph: Graph, root: int, *, prefer_memory: bool) -> Match | None:
        """The match at the addition of a dot that nothing else reads."""
        op = graph.ops[root]
        shared = next((found for v in op.operands if (found := _shared(graph, v)) is not None), None)
        if shared is None:
            return None
        dot, result = shared.dot, graph.values[op.results[0]]
        term = next(v for v in op.operands if v != dot.results[0])
        nbytes = sum(graph.values[v].nbytes for v in (*dot.operands, term, *op.results))
        return Match(
            root=root,
            removed=(dot.index, root),
            new_bytes=0,
            kernels=(Kernel(op_flops(graph, dot) + op_flops(graph, op), nbytes, matmul_of(graph, dot)),),
            numerics="exact",
            summary=f"keep the matmul {result} apart from others of its operand, so that it adds to its sum in place",
            detail=shared,
        )

    def emit(self, graph: Graph, match: Match) -> Sequence[Any]:
        """The dot of its operand behind barriers, and the addition."""
        shared = match.detail
        dot, add = (graph.handles[i] for i in (shared.dot.index, match.root))
        behind = behind_barriers(dot.operands[shared.side], shared.number)
        apart = dot.clone().operation
        apart.operands[shared.side] = behind
        copies = {dot.results[0]: apart.results[0]}
        builders.repeat_ops([add], copies)
        return [copies[add.results[0]]]


def _shared(graph: Graph, value: int) -> _SharedOperand | None:
    """The dot that computes a value for one addition only, if earlier dots have an operand in common with it."""
    dot = graph.producer(value)
    if dot is None or len(graph.users[value]) > 1:
        return None
    places = ((alike.side, alike.dots.index(dot.index)) for alike in alike_dots(graph) if dot.index in alike.dots)
    return next((_SharedOperand(dot, side, number) for side, number in places if number), None)
