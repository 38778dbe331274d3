"""unroll-reductions: a reduction over a short dimension becomes elementwise ops on its slices.

Before:
    %d = stablehlo.abs %s : tensor<500x10000x3xf32>
    %l = stablehlo.reduce(%d init: %zero) applies stablehlo.add across dimensions = [2]
After:
    %d0 = stablehlo.abs %s0 : tensor<500x10000x1xf32>
    %l0 = stablehlo.reshape %d0 : tensor<500x10000xf32>
    ... likewise %l1 and %l2
    %l = %l0 + %l1 + %l2

The operand of the reduction is computed elementwise from broadcasts of smaller values. Each element of the dimension is
a slice, which is pushed up to those values (`slice_pushdown`). XLA:CPU vectorises the result along the long dimension
that remains. It does not vectorise the original: that runs a scalar loop for each result, and reduces more than 32
elements from memory. Unless memory is preferred to time, operands that have the short dimension last are transposed, so
that the kernel reads contiguous memory.

Refuses what would take too many ops: in the module, in a YNNPACK fusion that reduces the results again, or in another
kernel that does. Leaves alone long dimensions, and reductions that read about as many elements as they reduce.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

from stablehlo_mem.analysis.compiler_model import LONGEST_UNROLLED
from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.cost_model import Kernel
from stablehlo_mem.analysis.fusion import plan_buffers
from stablehlo_mem.analysis.fusion_classes import ELEMENTWISE, FUSED_OR_GENERATED, FUSIBLE, Class, classify
from stablehlo_mem.analysis.op_cost import op_flops
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.dead_ops import needed_only_by
from stablehlo_mem.ir.graph import Graph, Op, readers_through
from stablehlo_mem.ir.op_attributes import integers
from stablehlo_mem.rewriting.rewriting_pass import Match, RewritingPass
from stablehlo_mem.rewriting.slice_pushdown import (
    GIVEN,
    NarrowedEmitter,
    NarrowedOp,
    SliceRange,
    cut,
    leaves,
    narrow_producers,
)
from stablehlo_mem.sharding_rules import reduction_of, rule_of
from stablehlo_mem.sharding_rules.factor_rule import SplitOp, split_along
from stablehlo_mem.targets.chips import Chip

_MAX_LENGTH_NESTED = 32
"""The same where the results are reduced in the same kernel, which is a scalar loop then (seen on CPU)."""
_MAX_OPS = 4096
"""Ops that one reduction may become: a guess, to bound the time of compilation."""
_MAX_READ_SHARE = 0.25
"""Elements read, as a share of those reduced. If all are read, memory limits the time, and it is best read in order."""
_GROUP = 16
"""Elements that are summed before their sum is added to the total: rounding errors grow with the length of a sum."""


@dataclasses.dataclass(frozen=True)
class _Unrolled:
    """A reduction over `n` elements, one at a time.

    Attributes:
        ranges: the slice of each operand that an element is, None: the whole.
        narrowed: the ops that compute these slices.
        transposed: the values read that are transposed to have the reduced dimension first.
    """

    n: int
    ranges: tuple[SliceRange | None, ...]
    narrowed: tuple[NarrowedOp, ...]
    transposed: frozenset[int]


class UnrollReductions(RewritingPass):
    """The pass: finds reductions over a short dimension of a value that is computed from smaller ones."""

    name = "unroll-reductions"
    roots = frozenset({"stablehlo.reduce"})

    def match(self, graph: Graph, root: int, *, prefer_memory: bool) -> Match | Blocked | None:
        """The match at a reduction along one dimension of a value that is computed from smaller ones."""
        op = graph.ops[root]
        split_op = _split_op(graph, op)
        # The producers of a long dimension are not looked at: they may be many, and are the same in every search.
        if split_op is None or split_op.n > LONGEST_UNROLLED:
            return None
        ranges = tuple(None if d is None else SliceRange(d, split_op.n, GIVEN, 1) for d in split_op.operand_dims)
        wanted = {v: taken for v, taken in zip(op.inputs, ranges, strict=True) if taken is not None}
        narrowed = narrow_producers(graph, root, wanted, lambda op: classify(graph, op) in FUSED_OR_GENERATED)
        read = leaves(graph, narrowed)
        operand = graph.values[op.operands[0]]
        elements_read = sum(math.prod(graph.values[v].shape) for v in read)
        if not narrowed or elements_read > _MAX_READ_SHARE * math.prod(operand.shape):
            return None
        blocked = _too_many_ops(graph, op, split_op.n, narrowed)
        if blocked is not None:
            return blocked
        transposed = frozenset(() if prefer_memory else _strided(graph, narrowed))
        transposed_bytes = sum(graph.values[v].nbytes for v in transposed)
        return Match(
            root=root,
            removed=needed_only_by(graph, root, read),
            new_bytes=transposed_bytes,
            kernels=(
                *(Kernel(op_flops(graph, graph.ops[n.op]), 0) for n in narrowed),
                Kernel(op_flops(graph, op), sum(graph.values[v].nbytes for v in op.results)),
                Kernel(0, 2 * transposed_bytes),
            ),
            numerics="reassociate" if reduction_of("stablehlo.reduce").regroups(graph.handles[root]) else "exact",
            summary=f"reduce {operand} along dimension {split_op.operand_dims[0]} as {split_op.n} elementwise terms",
            detail=_Unrolled(split_op.n, ranges, narrowed, transposed),
        )

    def why_not_on(self, graph: Graph, match: Match, chip: Chip) -> Blocked | None:
        """The kernel that reduces the results again has no room for so many ops."""
        root, form = graph.ops[match.root], match.detail
        # The operands and ops that an element brings into the fusion, and the op that adds it to the others.
        kinds = [classify(graph, graph.ops[one.op]) for one in form.narrowed]
        fused = sum(kind not in (Class.VIEW, Class.GENERATE) for kind in kinds)
        each = len(leaves(graph, form.narrowed)) + fused + 1
        if form.n * each <= compiler_model(chip).room_in_fusion(graph, root):
            return None
        message = f"the {form.n} elements of {graph.values[root.operands[0]]} are {each} ops each one by one"
        return Blocked("reduced-again", f"{message}, too many for a kernel that reduces them again")

    def pays_anyway(self, graph: Graph, match: Match, chip: Chip) -> bool:
        """A short one that is a kernel by itself: as elementwise ops it may be computed in those that read it."""
        if not compiler_model(chip).is_short_reduction(graph, graph.ops[match.root]):
            return False
        buffers, value = plan_buffers(graph, chip), graph.ops[match.root].results[0]
        kernels = buffers.readers.get(value, ())
        return bool(kernels) and all(classify(graph, graph.ops[k]) in FUSIBLE | {Class.REDUCE} for k in kernels)

    def emit(self, graph: Graph, match: Match) -> Sequence[Any]:
        """The partial result of every element, combined a group at a time."""
        root, form, reduction = graph.ops[match.root], match.detail, reduction_of("stablehlo.reduce")
        handle = graph.handles[match.root]
        transposed = {v: _last_dimension_first(graph.mlir_values[v]) for v in sorted(form.transposed)}
        operands = list(zip(root.operands[: len(root.results)], form.ranges, strict=False))
        shape = graph.values[root.results[0]].shape

        def element(k: int) -> list[Any]:
            emitter = _ElementEmitter(graph, form.narrowed, k, transposed)
            return [builders.reshaped(emitter.without(v, taken), shape) for v, taken in operands]

        total = reduction.initial(handle, [graph.mlir_values[v] for v in root.operands])
        for first in range(0, form.n, _GROUP):
            group = [builders.convert(v, t.type.element_type) for v, t in zip(element(first), total, strict=True)]
            for k in range(first + 1, min(first + _GROUP, form.n)):
                group = reduction.combine(handle, group, element(k))
            total = reduction.combine(handle, total, group)
        return [builders.convert(v, r.type.element_type) for v, r in zip(total, handle.results, strict=True)]


def _split_op(graph: Graph, op: Op) -> SplitOp | None:
    """How a reduce runs on one element of the only dimension it reduces, None if it reduces others or cannot."""
    shape = graph.values[op.operands[0]].shape
    reduced = [d for d in integers(graph, op, "dimensions") if shape[d] != 1]
    rule = rule_of(graph, op.index)
    if rule is None or len(reduced) != 1 or not math.prod(shape):
        return None
    split_op = split_along(rule, op.index, rule.operands[0], reduced[0], shape[reduced[0]])
    return split_op if isinstance(split_op, SplitOp) and split_op.reducing else None


def _too_many_ops(graph: Graph, op: Op, n: int, narrowed: Sequence[NarrowedOp]) -> Blocked | None:
    """Why a reduction of `n` elements that take these ops each is left as it is, None if it is not."""
    operand = graph.values[op.operands[0]]
    if n * len(narrowed) > _MAX_OPS:
        return Blocked("too-many", f"{n} elements of {operand} are {len(narrowed)} ops each one by one")
    if n > _MAX_LENGTH_NESTED and _is_reduced_again(graph, op):
        return Blocked("reduced-again", f"the {n} elements of {operand} are reduced in a kernel that reduces")
    return None


def _is_reduced_again(graph: Graph, op: Op) -> bool:
    """Whether a reduction's results reach another one through ops that are fused."""
    readers = readers_through(graph, op.results, lambda reader: classify(graph, reader) in FUSED_OR_GENERATED)
    return any(classify(graph, graph.ops[reader]) is Class.REDUCE for reader in readers)


def _strided(graph: Graph, narrowed: Sequence[NarrowedOp]) -> Iterator[int]:
    """The values read that are sliced along their last dimension: the elements of a slice lie far apart in memory."""
    read = leaves(graph, narrowed)
    for one in narrowed:
        for v, taken in zip(graph.ops[one.op].inputs, one.operand_ranges, strict=True):
            *lead, _ = graph.values[v].shape or (1,)
            if v in read and taken is not None and taken.dimension == len(lead) and math.prod(lead) > 1:
                yield v


class _ElementEmitter(NarrowedEmitter):
    """Emits one element of the reduced dimension, that dimension dropped wherever possible.

    Elementwise ops and broadcasts work without the dimension of size 1 that is left of it: with it, YNNPACK is fifty
    times slower if it is given them together with a reduction of their results (seen on CPU). A transposed value is
    sliced where it is transposed.

    Attributes:
        squeezed: values computed without the dimension, each with its position.
    """

    def __init__(self, graph: Graph, narrowed: Sequence[NarrowedOp], k: int, transposed: dict[int, Any]):
        self.transposed = transposed
        self.squeezed: dict[int, tuple[Any, int]] = {}
        super().__init__(graph, narrowed, k)

    def emit(self, one: NarrowedOp) -> None:
        op, dimension = self.graph.ops[one.op], one.result_range.dimension
        if any(self.graph.values[v].shape[dimension] != one.result_range.n for v in op.results):
            super().emit(one)
        elif classify(self.graph, op) in ELEMENTWISE:
            operands = [self.without(v, taken) for v, taken in zip(op.inputs, one.operand_ranges, strict=True)]
            shapes = [_dropped(self.graph.values[v].shape, dimension) for v in op.results]
            made = builders.clone_with(self.graph.handles[one.op], operands, shapes)
            self.squeezed.update((v, (value, dimension)) for v, value in zip(op.results, made, strict=True))
        elif op.name == "stablehlo.broadcast_in_dim":
            self.squeezed[op.results[0]] = self.broadcast(op, one.operand_ranges[0], dimension), dimension
        else:
            super().emit(one)

    def broadcast(self, op: Op, taken: SliceRange | None, dimension: int) -> Any:
        """A broadcast without a dimension of its result."""
        dims = integers(self.graph, op, "broadcast_dimensions")
        value = self.without(op.operands[0], taken)
        if taken is None and dimension in dims:
            value = builders.reshaped(value, _dropped(value.type.shape, dims.index(dimension)))
        result = self.graph.mlir_values[op.results[0]].type
        others = [d - (d > dimension) for d in dims if d != dimension]
        return builders.broadcast(value, builders.retype(result, _dropped(result.shape, dimension)), others)

    def without(self, value: int, taken: SliceRange | None) -> Any:
        """A value in a range of one element, without that dimension."""
        if value in self.squeezed:
            return self.squeezed[value][0]
        if taken is None:
            return self.chunk(value, taken)
        if value in self.transposed:
            row = cut(self.transposed[value], dataclasses.replace(taken, dimension=0), self.start)
            return builders.reshaped(row, row.type.shape[1:])
        part = self.chunk(value, taken)
        return builders.reshaped(part, _dropped(part.type.shape, taken.dimension))

    def chunk(self, value: int, taken: SliceRange | None) -> Any:
        if value in self.squeezed:
            made, dimension = self.squeezed[value]
            return builders.reshaped(made, [*made.type.shape[:dimension], 1, *made.type.shape[dimension:]])
        return super().chunk(value, taken)

    def cut(self, value: int, taken: SliceRange) -> Any:
        if value not in self.transposed:
            return super().cut(value, taken)
        row = self.without(value, taken)
        return builders.reshaped(row, [*row.type.shape, 1])


def _dropped(shape: Sequence[int], dimension: int) -> list[int]:
    """A shape without one of its dimensions."""
    return [*shape[:dimension], *shape[dimension + 1 :]]


def _last_dimension_first(value: Any) -> Any:
    last = len(value.type.shape) - 1
    return builders.transposed(value, [last, *range(last)])
