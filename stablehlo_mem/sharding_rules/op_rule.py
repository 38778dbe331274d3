"""A row of the rules table: all that the split knows about one kind of op."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import stablehlo
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.sharding_rules.factor_rule import Rule, SplitOp, shardy_rule
from stablehlo_mem.sharding_rules.halo import Window


@dataclasses.dataclass(frozen=True)
class Chunk:
    """One chunk of an axis, where it is worked on.

    Attributes:
        start: i32 scalar, its first element.
        size: its number of elements.
        repeated: i32 scalar, how many of its first elements the chunk before has as well; None where none ever are.
        counted: i32 scalar, how many of its first elements the chunk after it has not; likewise. An element that is
            computed twice may be rounded in two ways: it counts as its last chunk has it, in sums and maxima, and in
            what the loop leaves.
    """

    start: Any
    size: int
    repeated: Any | None = None
    counted: Any | None = None

    def first_read(self, window: Window) -> Any:
        """Where a window around the chunk begins, below zero in the padding; an i32 scalar."""
        start = self.start if window.stride == 1 else stablehlo.multiply(self.start, builders.i32(window.stride))
        return stablehlo.subtract(start, builders.i32(window.before)) if window.before else start


@dataclasses.dataclass(frozen=True)
class EmitContext:
    """One op about to run on one chunk of the axis.

    Attributes:
        graph: the original block.
        split_op: the op and how it is split.
        operands: its operands, sliced where they carry the axis.
        captures: what its blocks use from outside, likewise.
        result_shapes: shapes of the results on this chunk.
        read: for operands that are read in windows, the part of the dimension that is there.
        before: what the op came to before the chunk begins, where it is cumulative: one element along the axis.
    """

    graph: Graph
    split_op: SplitOp
    operands: Sequence[Any]
    captures: Sequence[Any]
    result_shapes: Sequence[Sequence[int]]
    chunk: Chunk
    read: Mapping[int, Chunk] = dataclasses.field(default_factory=dict[int, Chunk])
    before: Sequence[Any] = ()

    @property
    def op(self) -> Any:
        """The original operation."""
        return self.graph.handles[self.split_op.op]


def clone_on_chunk(site: EmitContext) -> list[Any]:
    """The op itself on smaller tensors: right for every op whose attributes do not mention sizes."""
    return builders.clone_with(site.op, site.operands, site.result_shapes)


def _adds_nothing(op: Any) -> tuple[int, ...] | None:
    return None


@dataclasses.dataclass(frozen=True)
class Reduction:
    """How the partial results of an op along a reducing factor become the whole.

    Attributes:
        initial: the carries before the first chunk, from the op and its operands.
        combine: next carries from the carries, the partial results and the op.
        identity: the scalar with which an operand's repeated elements are masked, from the op, the operand's
            position and all operands; None where repeating does no harm.
        regroups: whether float rounding may change, from the op.
        addends: if partial results just add up, the operands that `initial` starts from; None if they do not.
    """

    initial: Callable[[Any, Sequence[Any]], list[Any]]
    combine: Callable[[Any, Sequence[Any], Sequence[Any]], list[Any]]
    identity: Callable[[Any, int, Sequence[Any]], Any]
    regroups: Callable[[Any], bool]
    addends: Callable[[Any], tuple[int, ...] | None] = _adds_nothing


@dataclasses.dataclass(frozen=True)
class Cumulative:
    """How an op goes on from chunk to chunk.

    Attributes:
        initial: what it begins with, from the op and its operands, as scalars: what it comes to is as the results are.
        emit: its results on a chunk, and what it comes to at each of its elements.
        regroups: whether float rounding may change, from the op.
    """

    initial: Callable[[Any, Sequence[Any]], list[Any]]
    emit: Callable[[EmitContext], tuple[list[Any], list[Any]]]
    regroups: Callable[[Any], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class RegionEdge:
    """What is one value at the edges of an op's blocks: a carry of a loop, a capture, a result of branches.

    Attributes:
        operand: its position among the op's inputs, None for a result of branches.
        result: its position among the op's results, None for a capture.
        enters: (block, value) of the arguments and captured values it is inside.
        returns: (block, value) of the returned values it is made of.
    """

    operand: int | None
    result: int | None
    enters: tuple[tuple[int, int], ...]
    returns: tuple[tuple[int, int], ...]


@dataclasses.dataclass(frozen=True)
class OpRule:
    """One kind of op.

    Attributes:
        rule: its factor rule, None where it is a barrier.
        emit: the op on one chunk.
        reduction: how partial results combine; None: reducing factors block.
        cumulative: how it runs along a cumulative factor; None: its rule has none.
        free: costs nothing to recompute in a loop (a broadcast, iota, splat constant).
        view: shows its operand's elements as they lie: it may as well be in a loop that reads it whole as before it.
        slots: how values pass through its blocks, which then make its rule; None: its blocks are part of the op.
    """

    rule: Callable[[Any], Rule | None] = shardy_rule
    emit: Callable[[EmitContext], list[Any]] = clone_on_chunk
    reduction: Reduction | None = None
    cumulative: Cumulative | None = None
    free: bool = False
    view: bool = False
    edges: Callable[[Op], tuple[RegionEdge, ...]] | None = None
