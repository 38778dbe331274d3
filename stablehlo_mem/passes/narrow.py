"""narrow: what is only sliced afterwards is computed for the slice alone.

Before:
    %l = stablehlo.dot_general %h, %w : tensor<512x50000>
    %y = stablehlo.slice %l [511:512, 0:50000]
After:
    %a = stablehlo.slice %h [511:512, 0:64]
    %y = stablehlo.dot_general %a, %w : tensor<1x50000>

The slice is pushed up past the ops that compute its operand (`slice_pushdown`), one dimension at a time, as long as
nobody else uses the values on the way or they cost nothing. Past a concatenation or a padding it goes into the one
operand that holds it.

Refuses dimensions that an op needs whole, and values that others use, too. Leaves alone chains of elementwise ops and
moves, which compilers fuse with the slice themselves; but not those of a loop that no iteration changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from stablehlo_mem.analysis.cost_model import Kernel
from stablehlo_mem.analysis.fusion_classes import ELEMENTWISE, FUSED_OR_GENERATED, Class, classify
from stablehlo_mem.analysis.loop_invariants import invariant_ops
from stablehlo_mem.analysis.op_cost import matmul_of, op_flops
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.dead_ops import needed_only_by
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.ir.op_attributes import integers
from stablehlo_mem.rewriting.rewriting_pass import Match, RewritingPass
from stablehlo_mem.rewriting.slice_pushdown import (
    GIVEN,
    NarrowedEmitter,
    NarrowedOp,
    SliceRange,
    leaves,
    narrow_producers,
    range_bytes,
)
from stablehlo_mem.sharding_rules import rule_of
from stablehlo_mem.sharding_rules.factor_rule import SplitOp, split_along

_MAX_SHARE = 0.75
"""A slice of more than this is left alone: a guess, as the ops would cost nearly the same."""
_STARTS = frozenset({"i32", "i64"})
"""Element types of the starts of a dynamic slice that are pushed up: emitted ops count in i32."""


@dataclasses.dataclass(frozen=True)
class _NarrowedSlice:
    """The range of its operand that a slice takes along one dimension, and the narrowed ops, in program order."""

    taken: SliceRange
    ops: tuple[NarrowedOp, ...]


class Narrow(RewritingPass):
    """The pass: moves slices up."""

    name = "narrow"
    is_enabled_by_others = True
    roots = frozenset({"stablehlo.slice", "stablehlo.dynamic_slice"})

    def match(self, graph: Graph, root: int, *, prefer_memory: bool) -> Match | Blocked | None:
        """The match at a slice of something that a kernel of its own makes."""
        op = graph.ops[root]
        operand = op.operands[0]
        for taken in _ranges(graph, op):
            narrowed = narrow_producers(graph, root, {operand: taken})
            kernels = [n for n in narrowed if _is_kernel(graph, graph.ops[n.op])]
            if kernels:
                break
        else:
            return _refusal(graph, op)
        return Match(
            root=root,
            removed=needed_only_by(graph, root, leaves(graph, narrowed)),
            new_bytes=sum(range_bytes(graph, v, n.result_range) for n in kernels[:-1] for v in graph.ops[n.op].results),
            kernels=tuple(_kernel(graph, n) for n in narrowed),
            numerics="exact",
            summary=f"compute only the {taken.size} of {taken.n} elements along dimension {taken.dimension} of "
            f"{graph.values[operand]} that are read",
            detail=_NarrowedSlice(taken, narrowed),
        )

    def emit(self, graph: Graph, match: Match) -> Sequence[Any]:
        """The narrowed ops, and what the slice still takes along its other dimensions."""
        one, root = match.detail, graph.ops[match.root]
        start: Any = None
        if one.taken.start == GIVEN:
            # In bounds, as all starts are in normal form.
            start = graph.mlir_values[root.operands[1 + one.taken.dimension]]
            start = builders.convert(start, ir.IntegerType.get_signless(32))
        value = NarrowedEmitter(graph, one.ops, start).chunk(root.operands[0], one.taken)
        return [_rest(graph, root, one.taken, value)]


def _ranges(graph: Graph, op: Op) -> list[SliceRange]:
    """What a slice takes along each dimension, the smallest share first."""
    shape, result = graph.values[op.operands[0]].shape, graph.values[op.results[0]].shape
    ranges: list[SliceRange] = []
    for d, n in enumerate(shape):
        if op.name == "stablehlo.dynamic_slice":
            if graph.values[op.operands[1 + d]].dtype in _STARTS:
                ranges.append(SliceRange(d, n, GIVEN, result[d]))
        elif result[d]:
            start, stride = (integers(graph, op, name)[d] for name in ("start_indices", "strides"))
            ranges.append(SliceRange(d, n, start, (result[d] - 1) * stride + 1))
    return sorted((r for r in ranges if 0 < r.size <= _MAX_SHARE * r.n), key=lambda r: r.size / r.n)


def _refusal(graph: Graph, root: Op) -> Blocked | None:
    """Why the operand of a slice is computed whole, None if no kernel computes it or nearly all is taken."""
    op = graph.producer(root.operands[0])
    taken = next(iter(_ranges(graph, root)), None)
    if op is None or taken is None or not _is_kernel(graph, op):
        return None
    if any(user != root.index for v in op.results for user in graph.users[v]):
        return Blocked("used-whole", "what is sliced is used by others too")
    rule = rule_of(graph, op.index)
    if rule is None:
        return Blocked("no-rule", f"{op.name} is not known to work on parts")
    split_op = split_along(rule, op.index, rule.results[0], taken.dimension, taken.n)
    if isinstance(split_op, SplitOp) and not split_op.is_local:
        return Blocked("needs-whole-dimension", "parts of its result need more than those parts of its operands")
    return split_op if isinstance(split_op, Blocked) else None


def _is_kernel(graph: Graph, op: Op) -> bool:
    """Whether an op is a kernel of its own, or hoisted out of a loop, rather than fused into a slice of its result."""
    kind = classify(graph, op)
    is_hoisted = kind in ELEMENTWISE and op.index in invariant_ops(graph)
    return op.name == "stablehlo.reduce_window" or kind not in FUSED_OR_GENERATED or is_hoisted


def _kernel(graph: Graph, one: NarrowedOp) -> Kernel:
    """What a narrowed op costs; memory counts where it is a kernel of its own."""
    op, taken = graph.ops[one.op], one.result_range
    nbytes = 0
    if _is_kernel(graph, op):
        nbytes = sum(range_bytes(graph, v, taken) for v in op.results)
        nbytes += sum(range_bytes(graph, v, r) for v, r in zip(op.inputs, one.operand_ranges, strict=True))
    flops = op_flops(graph, op) * taken.size / taken.n if one.split_op is not None else 0
    return Kernel(flops, nbytes, matmul=matmul_of(graph, op) if classify(graph, op) is Class.DOT else None)


def _rest(graph: Graph, root: Op, taken: SliceRange, value: Any) -> Any:
    """What the slice takes of the narrowed value: all of it, but for its other dimensions and strides."""
    result, dimension = graph.mlir_values[root.results[0]].type, taken.dimension
    if value.type.shape == result.shape:
        return value
    if taken.start == GIVEN:
        starts = [graph.mlir_values[v] for v in root.operands[1:]]
        starts[dimension] = builders.zeros(starts[dimension].type)
        return stablehlo.dynamic_slice(value, starts, ir.DenseI64ArrayAttr.get(list(result.shape)))
    starts, limits, strides = (
        list(integers(graph, root, name)) for name in ("start_indices", "limit_indices", "strides")
    )
    starts[dimension], limits[dimension] = 0, value.type.shape[dimension]
    return builders.sliced(value, starts, limits, strides)
