"""narrow: what is only sliced afterwards is computed for the slice alone.

Before:
    %l = stablehlo.dot_general %h, %w : tensor<512x50000>
    %y = stablehlo.slice %l [511:512, 0:50000]
After:
    %a = stablehlo.slice %h [511:512, 0:64]
    %y = stablehlo.dot_general %a, %w : tensor<1x50000>

A slice along one dimension is a chunk of it, so the rules of the split say how it passes an op (`rules`): the op runs
on the operands' chunks. Through a concatenation and a padding it goes into the one part that holds it. It goes up as
long as nobody else needs the values, or they are made from nothing. One dimension at a time.

Refuses dimensions that an op needs whole and values that others need, too. Where there are elementwise ops and moves
alone nothing is to be done: the compilers fuse them with the slice, but for what no iteration of a loop changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from stablehlo_mem.analysis.cost_model import Kernel, matmul_of, op_flops
from stablehlo_mem.analysis.fusion_classes import ELEMENTWISE, FUSIBLE, Class, classify
from stablehlo_mem.analysis.loop_invariants import invariant_ops
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.dead_ops import needed_only_by
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.ir.op_attributes import integers
from stablehlo_mem.rewriting.rewriting_pass import Match, RewritingPass
from stablehlo_mem.rewriting.slice_pushdown import GIVEN, Emission, Narrowed, Window, leaves, narrowed, window_bytes
from stablehlo_mem.sharding_rules import rule_of
from stablehlo_mem.sharding_rules.factor_rule import SplitOp, split_along

_SHARE = 0.75
"""A slice of more than this is not worth another form."""
_STARTS = frozenset({"i32", "i64"})


@dataclasses.dataclass(frozen=True)
class _Plan:
    """The slice's own window of its operand, and the narrowed ops, in program order."""

    window: Window
    narrowed: tuple[Narrowed, ...]


class Narrow(RewritingPass):
    """The pass: moves slices up."""

    name = "narrow"
    roots = frozenset({"stablehlo.slice", "stablehlo.dynamic_slice"})

    def match(self, graph: Graph, root: int, *, prefer_memory: bool) -> Match | Blocked | None:
        """The match at a slice of something that a kernel of its own makes."""
        op = graph.ops[root]
        operand = op.operands[0]
        plans = (_Plan(w, narrowed(graph, root, {operand: w})) for w in _windows(graph, op))
        plan = next((p for p in plans if any(_is_kernel(graph, n) for n in p.narrowed)), None)
        if plan is None:
            return _refusal(graph, op)
        kernels = [n for n in plan.narrowed if _is_kernel(graph, n)]
        return Match(
            root=root,
            removed=needed_only_by(graph, root, leaves(graph, plan.narrowed)),
            new_bytes=sum(window_bytes(graph, v, n.window) for n in kernels[:-1] for v in graph.ops[n.op].results),
            kernels=tuple(_kernel(graph, n) for n in plan.narrowed),
            numerics="exact",
            what=f"compute {plan.window.size} of {plan.window.n} along dimension {plan.window.dimension} "
            f"of {graph.values[operand]}",
            detail=plan,
        )

    def emit(self, graph: Graph, match: Match) -> Sequence[Any]:
        """The narrowed ops, and what the slice still takes along its other dimensions."""
        plan, root = match.detail, graph.ops[match.root]
        start = _first(graph, root, plan.window) if plan.window.start == GIVEN else None
        value = Emission(graph, plan.narrowed, start).chunk(root.operands[0], plan.window)
        return [_rest(graph, root, plan.window, value)]


def _windows(graph: Graph, op: Op) -> Iterator[Window]:
    """The windows of a slice, the ones that take the least first."""
    shape, result = graph.values[op.operands[0]].shape, graph.values[op.results[0]].shape
    found: list[Window] = []
    for d, n in enumerate(shape):
        if op.name == "stablehlo.dynamic_slice":
            if graph.values[op.operands[1 + d]].dtype in _STARTS:
                found.append(Window(d, n, GIVEN, result[d]))
        elif result[d]:
            start, stride = (integers(graph, op, name)[d] for name in ("start_indices", "strides"))
            found.append(Window(d, n, start, (result[d] - 1) * stride + 1))
    found = [w for w in found if 0 < w.size <= _SHARE * w.n]
    yield from sorted(found, key=lambda w: w.size / w.n)


def _refusal(graph: Graph, root: Op) -> Blocked | None:
    """Why what a slice takes from is made whole, None if no kernel makes it or nearly all is taken."""
    op = graph.producer(root.operands[0])
    window = next(_windows(graph, root), None)
    if op is None or window is None or not _makes_whole(graph, op):
        return None
    if any(user != root.index for v in op.results for user in graph.users[v]):
        return Blocked("used-whole", "what is sliced is used by others too")
    rule = rule_of(graph, op.index)
    if rule is None:
        return Blocked("no-rule", f"{op.name} is not known to work on parts")
    split_op = split_along(rule, op.index, rule.results[0], window.dimension, window.n)
    if isinstance(split_op, SplitOp) and not split_op.is_local:
        return Blocked("needs-whole-dimension", "parts of its result need more than those parts of its operands")
    return split_op if isinstance(split_op, Blocked) else None


def _is_kernel(graph: Graph, one: Narrowed) -> bool:
    """Whether an op is not simply fused into its slice."""
    return _makes_whole(graph, graph.ops[one.op])


def _makes_whole(graph: Graph, op: Op) -> bool:
    fused = FUSIBLE | {Class.VIEW, Class.GENERATE}
    kind = classify(graph, op)
    # What no iteration changes is computed before the loop, and all of it.
    before = kind in ELEMENTWISE and op.index in invariant_ops(graph)
    return op.name == "stablehlo.reduce_window" or kind not in fused or before


def _kernel(graph: Graph, one: Narrowed) -> Kernel:
    """What a narrowed op costs; memory counts where it is a kernel of its own."""
    op = graph.ops[one.op]
    nbytes = 0
    if _is_kernel(graph, one):
        nbytes = sum(window_bytes(graph, v, one.window) for v in op.results)
        nbytes += sum(window_bytes(graph, v, w) for v, w in zip(op.inputs, one.windows, strict=True))
    flops = op_flops(graph, op) * one.window.size / one.window.n if one.split_op is not None else 0
    return Kernel(flops, nbytes, matmul=matmul_of(graph, op) if classify(graph, op) is Class.DOT else None)


def _first(graph: Graph, root: Op, window: Window) -> Any:
    """The start of a dynamic slice as an i32: in bounds, as they all are in normal form."""
    return builders.convert(graph.mlir_values[root.operands[1 + window.dimension]], ir.IntegerType.get_signless(32))


def _rest(graph: Graph, root: Op, window: Window, value: Any) -> Any:
    """What the slice takes of the narrowed value: all of it, but for its other dimensions and strides."""
    result, dimension = graph.mlir_values[root.results[0]].type, window.dimension
    if value.type.shape == result.shape:
        return value
    if window.start == GIVEN:
        starts = [graph.mlir_values[v] for v in root.operands[1:]]
        starts[dimension] = builders.zeros(starts[dimension].type)
        return stablehlo.dynamic_slice(value, starts, ir.DenseI64ArrayAttr.get(list(result.shape)))
    starts, limits, strides = (
        list(integers(graph, root, name)) for name in ("start_indices", "limit_indices", "strides")
    )
    starts[dimension], limits[dimension] = 0, value.type.shape[dimension]
    return builders.sliced(value, starts, limits, strides)
