"""unroll-reductions: a short dimension that exists only to be reduced is taken apart.

Before:
    %d = stablehlo.abs %s : tensor<500x10000x3xf32>
    %l = stablehlo.reduce(%d init: %zero) applies stablehlo.add across dimensions = [2]
After:
    %d0 = stablehlo.abs %s0 : tensor<500x10000x1xf32>
    %l0 = stablehlo.reshape %d0 : tensor<500x10000xf32>
    ... likewise %l1 and %l2
    %l = %l0 + %l1 + %l2

The three-dimensional values are broadcasts of small ones, combined element by element. An element of the dimension is
a chunk of it, so the rules of the split say how the ops run on it and how the partial results combine. What is left is
elementwise: XLA:CPU vectorises it along the long dimension that remains, where for the short one it starts a kernel
for every result, and reduces more than 32 elements from memory. Operands that have the short dimension last are
transposed, so that what the kernel reads lies side by side, unless memory comes first.

Refuses those that would make too many ops: of the module, of a fusion in which YNNPACK reduces the results again, or of
another kernel that does. Leaves alone long ones, and what reads operands as large as what is reduced.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from stablehlo_mem.analysis import xla_cpu
from stablehlo_mem.analysis.cost_model import Kernel, op_flops
from stablehlo_mem.analysis.fusion_classes import ELEMENTWISE, FUSIBLE, Class, classify
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.dead_ops import needed_only_by
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.ir.op_attributes import integers
from stablehlo_mem.rewriting.rewriting_pass import Match, RewritingPass
from stablehlo_mem.rewriting.slice_pushdown import GIVEN, Emission, Narrowed, Window, cut, leaves, narrowed
from stablehlo_mem.sharding_rules import OP_RULES, rule_of
from stablehlo_mem.sharding_rules.factor_rule import SplitOp, split_along
from stablehlo_mem.sharding_rules.op_rule import Reduction

_LONGEST = 48
"""Of a longer dimension YNNPACK sums one result faster than a kernel reads all its rows (seen on CPU)."""
_LONGEST_NESTED = 32
"""A longer dimension is no faster one by one if its results are reduced on the fly: such a kernel is a scalar loop."""
_MOST_OPS = 4096
_SHARE = 0.25
"""What is read may have so many of the elements reduced: where it is all of them, memory is read as it lies."""
_GROUP = 16
"""Elements summed before the next are: the rounding errors of long sums grow with their length."""


@dataclasses.dataclass(frozen=True)
class _Unrolled:
    """A reduction over `n` elements, one at a time.

    Attributes:
        windows: of its operands, None: whole.
        narrowed: the ops that make them.
        turned: the values that are transposed to have the reduced dimension first.
    """

    n: int
    windows: tuple[Window | None, ...]
    narrowed: tuple[Narrowed, ...]
    turned: frozenset[int]


class UnrollReductions(RewritingPass):
    """The pass: takes short reduced dimensions apart."""

    name = "unroll-reductions"
    roots = frozenset({"stablehlo.reduce"})

    def match(self, graph: Graph, root: int, *, prefer_memory: bool) -> Match | Blocked | None:
        """The match at a reduction along one dimension of a value that is made of smaller ones."""
        op = graph.ops[root]
        split_op = _node(graph, op)
        # What makes a long one is not looked at: that may be much, and is the same for every loop of a search.
        if split_op is None or split_op.n > _LONGEST:
            return None
        windows = tuple(None if d is None else Window(d, split_op.n, GIVEN, 1) for d in split_op.operand_dims)
        wanted = {v: w for v, w in zip(op.inputs, windows, strict=True) if w is not None}
        ops = narrowed(graph, root, wanted, lambda op: classify(graph, op) in _FUSED)
        read = sum(math.prod(graph.values[v].shape) for v in leaves(graph, ops))
        operand = graph.values[op.operands[0]]
        if not ops or read > _SHARE * math.prod(operand.shape):
            return None
        blocked = _too_many(graph, op, split_op.n, ops)
        if blocked is not None:
            return blocked
        turned = frozenset(() if prefer_memory else _strided(graph, ops))
        turned_bytes = sum(graph.values[v].nbytes for v in turned)
        results = sum(graph.values[v].nbytes for v in op.results)
        return Match(
            root=root,
            removed=needed_only_by(graph, root, leaves(graph, ops)),
            new_bytes=turned_bytes,
            kernels=(
                *(Kernel(op_flops(graph, graph.ops[n.op]), 0) for n in ops),
                Kernel(op_flops(graph, op), results),
                Kernel(0, 2 * turned_bytes),
            ),
            numerics="reassociate" if _reduction().regroups(graph.handles[root]) else "exact",
            what=f"reduce the {split_op.n} elements along dimension {split_op.operand_dims[0]} of {operand} one by one",
            detail=_Unrolled(split_op.n, windows, ops, turned),
        )

    def emit(self, graph: Graph, match: Match) -> Sequence[Any]:
        """The partial result of every element, combined a group at a time."""
        return _Emission(graph, graph.ops[match.root], match.detail).run()


_FUSED = FUSIBLE | {Class.VIEW, Class.GENERATE}


def _reduction() -> Reduction:
    reduction = OP_RULES["stablehlo.reduce"].reduction
    assert reduction is not None
    return reduction


def _node(graph: Graph, op: Op) -> SplitOp | None:
    """How a reduce runs on one element of the only dimension it reduces, None if it reduces others or cannot."""
    shape = graph.values[op.operands[0]].shape
    reduced = [d for d in integers(graph, op, "dimensions") if shape[d] != 1]
    rule = rule_of(graph, op.index)
    if rule is None or len(reduced) != 1 or not math.prod(shape):
        return None
    split_op = split_along(rule, op.index, rule.operands[0], reduced[0], shape[reduced[0]])
    return split_op if isinstance(split_op, SplitOp) and split_op.reducing else None


def _too_many(graph: Graph, op: Op, n: int, ops: Sequence[Narrowed]) -> Blocked | None:
    """Why so many elements, of these ops each, are not taken apart."""
    operand = graph.values[op.operands[0]]
    if n * len(ops) > _MOST_OPS:
        return Blocked("too-many", f"{n} elements of {operand} are {len(ops)} ops each one by one")
    if n > _LONGEST_NESTED and _is_reduced_again(graph, op):
        return Blocked("reduced-again", f"the {n} elements of {operand} are reduced in a kernel that reduces")
    after, each = xla_cpu.fused_after(graph, op), _fused_ops(graph, ops)
    if after and after + n * each > xla_cpu.MOST_OPS:
        found = f"the {n} elements of {operand} are {each} ops each one by one"
        return Blocked("reduced-again", f"{found}, too many for a kernel that reduces them again")
    return None


def _is_reduced_again(graph: Graph, op: Op) -> bool:
    """Whether a reduction's results reach another one through ops that are computed on the fly."""
    stack, seen = [op.index], {op.index}
    while stack:
        users = {u for v in graph.ops[stack.pop()].results for u in graph.users[v]} - seen
        if any(classify(graph, graph.ops[u]) is Class.REDUCE for u in users):
            return True
        seen |= users
        stack += [u for u in users if classify(graph, graph.ops[u]) in _FUSED]
    return False


def _fused_ops(graph: Graph, ops: Sequence[Narrowed]) -> int:
    """The ops and operands that an element brings into a fusion, and the one that adds it to the others."""
    kinds = [classify(graph, graph.ops[n.op]) for n in ops]
    return len(leaves(graph, ops)) + sum(kind not in (Class.VIEW, Class.GENERATE) for kind in kinds) + 1


def _strided(graph: Graph, ops: Sequence[Narrowed]) -> set[int]:
    """The values that are cut along their last dimension: an element of it is spread all over the value."""
    made = {n.op for n in ops}
    pairs = ((v, w) for n in ops for v, w in zip(graph.ops[n.op].inputs, n.windows, strict=True))
    cuts = {(v, w.dimension) for v, w in pairs if w is not None and graph.values[v].producer not in made}
    shapes = ((v, d, graph.values[v].shape) for v, d in cuts)
    return {v for v, d, shape in shapes if d == len(shape) - 1 and math.prod(shape[:d]) > 1}


class _Emission:
    """The new form of one reduction."""

    def __init__(self, graph: Graph, root: Op, found: _Unrolled):
        self.graph, self.root, self.found = graph, root, found
        self.op = graph.handles[root.index]
        self.count = len(root.results)
        self.turned = {v: _first(graph.mlir_values[v]) for v in sorted(found.turned)}

    def run(self) -> list[Any]:
        reduction, n = _reduction(), self.found.n
        total = reduction.initial(self.op, [self.graph.mlir_values[v] for v in self.root.operands])
        for first in range(0, n, _GROUP):
            group = [builders.convert(v, t.type.element_type) for v, t in zip(self.element(first), total, strict=True)]
            for k in range(first + 1, min(first + _GROUP, n)):
                group = reduction.combine(self.op, group, self.element(k))
            total = reduction.combine(self.op, total, group)
        return [builders.convert(v, r.type.element_type) for v, r in zip(total, self.op.results, strict=True)]

    def element(self, k: int) -> list[Any]:
        """One element of the reduced dimension of each operand, as it is."""
        body = _Element(self.graph, self.found.narrowed, k, self.turned)
        pairs = zip(self.root.operands[: self.count], self.found.windows, strict=False)
        shape = self.graph.values[self.root.results[0]].shape
        return [builders.reshaped(body.without(v, w), shape) for v, w in pairs]


class _Element(Emission):
    """What one element of the reduced dimension takes; transposed values are cut where they are transposed.

    Elementwise ops and broadcasts work without the dimension of one element that is left: YNNPACK, which is given them
    together with a reduction of what they make, is fifty times slower with it (seen on CPU).

    Attributes:
        squeezed: values made without it, each with where it was.
    """

    def __init__(self, graph: Graph, ops: Sequence[Narrowed], k: int, turned: dict[int, Any]):
        self.turned = turned
        self.squeezed: dict[int, tuple[Any, int]] = {}
        super().__init__(graph, ops, k)

    def emit(self, one: Narrowed) -> None:
        op, dimension = self.graph.ops[one.op], one.window.dimension
        if any(self.graph.values[v].shape[dimension] != one.window.n for v in op.results):
            super().emit(one)
        elif classify(self.graph, op) in ELEMENTWISE:
            operands = [self.without(v, w) for v, w in zip(op.inputs, one.windows, strict=True)]
            shapes = [_without(self.graph.values[v].shape, dimension) for v in op.results]
            made = builders.clone_with(self.graph.handles[one.op], operands, shapes)
            self.squeezed.update((v, (value, dimension)) for v, value in zip(op.results, made, strict=True))
        elif op.name == "stablehlo.broadcast_in_dim":
            self.squeezed[op.results[0]] = self.broadcast(op, one.windows[0], dimension), dimension
        else:
            super().emit(one)

    def broadcast(self, op: Op, window: Window | None, dimension: int) -> Any:
        """A broadcast without a dimension of its result."""
        source, dims = op.operands[0], integers(self.graph, op, "broadcast_dimensions")
        value = self.without(source, window)
        if window is None and dimension in dims:
            value = builders.reshaped(value, _without(value.type.shape, dims.index(dimension)))
        result = op.results[0]
        shape = _without(self.graph.values[result].shape, dimension)
        kept = [d - (d > dimension) for d in dims if d != dimension]
        return builders.broadcast(value, builders.retype(self.graph.mlir_values[result].type, shape), kept)

    def without(self, value: int, window: Window | None) -> Any:
        """A value in a window of one element, without that dimension."""
        if value in self.squeezed:
            return self.squeezed[value][0]
        if window is None:
            return self.chunk(value, window)
        if value in self.turned:
            row = cut(self.turned[value], dataclasses.replace(window, dimension=0), self.start)
            return builders.reshaped(row, row.type.shape[1:])
        part = self.chunk(value, window)
        return builders.reshaped(part, _without(part.type.shape, window.dimension))

    def chunk(self, value: int, window: Window | None) -> Any:
        if value in self.squeezed:
            made, dimension = self.squeezed[value]
            return builders.reshaped(made, [*made.type.shape[:dimension], 1, *made.type.shape[dimension:]])
        return super().chunk(value, window)

    def cut(self, value: int, window: Window) -> Any:
        if value not in self.turned:
            return super().cut(value, window)
        row = self.without(value, window)
        return builders.reshaped(row, [*row.type.shape, 1])


def _without(shape: Sequence[int], dimension: int) -> list[int]:
    """A shape without one of its dimensions."""
    return [*shape[:dimension], *shape[dimension + 1 :]]


def _first(value: Any) -> Any:
    """A value with its last dimension in front."""
    last = ir.RankedTensorType(value.type).rank - 1
    return builders.transposed(value, [last, *range(last)])
