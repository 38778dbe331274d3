"""`OpRule`: all that splitting knows about one kind of op, and what its functions are given.

One `OpRule` for each op's name stands in the `OP_RULES` of the module of its family; `registry` joins them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.sharding_rules.factor_rule import FactorRule, SplitOp, shardy_rule
from stablehlo_mem.sharding_rules.halo import Window

Side = Literal["operands", "results"]
"""Of an op, captures among its operands."""


@dataclasses.dataclass(frozen=True)
class Chunk:
    """One chunk of an axis, in the step of the loop that computes it.

    Attributes:
        start: i32 scalar, its first element in each part of the axis.
        size: its number of elements in all parts.
        parts: an axis that lies on several devices is split within the part of each: a chunk is an equal share of every
            part. Any other axis is one part.
        repeated: i32 scalar, how many of its first elements are in the chunk before too; None where none ever are.
        counted: i32 scalar, how many of its first elements are not in the chunk after it; likewise. An element that is
            computed twice may be rounded in two ways: the last chunk's counts, in sums and maxima, and in what the
            loop leaves.
    """

    start: Any
    size: int
    repeated: Any | None = None
    counted: Any | None = None
    parts: int = 1

    def share(self, count: int) -> Chunk:
        """What one of so many equal shares of all parts has of it."""
        return dataclasses.replace(self, size=self.size // count, parts=self.parts // count)

    def start_in(self, elements: int) -> Any:
        """Its first element in a dimension of which it has so many, a multiple of its own; an i32 scalar."""
        return builders.scaled(self.start, elements // self.size)

    def first_read(self, window: Window) -> Any:
        """The first element of a window around the chunk, below zero in the padding; an i32 scalar."""
        start = builders.scaled(self.start, window.stride)
        return stablehlo.subtract(start, builders.i32(window.before)) if window.before else start


class BlockRules(Protocol):
    """The rules of the ops of one block, which ops with regions ask for those inside: see `rule_book.RuleBook`."""

    graph: Graph
    op_rules: Mapping[str, OpRule]
    parts: int

    def split(self, op: int, side: Side, position: int, dimension: int, n: int) -> SplitOp | Blocked:
        """An op split into `n` along a dimension of one of its inputs or results, or why it cannot be."""
        ...

    def of_block(self, graph: Graph, parts: int) -> BlockRules:
        """The rules of another block's ops, along axes of so many parts."""
        ...


@dataclasses.dataclass(frozen=True)
class EmitContext:
    """One op about to be emitted for one chunk of the axis.

    Attributes:
        rules: those of the original block.
        split_op: the op and how it is split.
        operands: its operands, sliced where they carry the axis.
        captures: what its blocks use from outside, likewise.
        result_shapes: shapes of the results on this chunk.
        window_chunks: for operands that are read in windows, the part of the dimension that the operand is.
        carries: where the op is cumulative, its accumulated value before the chunk: one element along the axis.
    """

    rules: BlockRules
    split_op: SplitOp
    operands: Sequence[Any]
    captures: Sequence[Any]
    result_shapes: Sequence[Sequence[int]]
    chunk: Chunk
    window_chunks: Mapping[int, Chunk] = dataclasses.field(default_factory=dict[int, Chunk])
    carries: Sequence[Any] = ()

    @property
    def op(self) -> Any:
        """The original operation."""
        return self.rules.graph.handles[self.split_op.op]

    @property
    def dimension(self) -> int:
        """The dimension of its first operand along which it is split."""
        dimension = self.split_op.operand_dims[0]
        assert dimension is not None
        return dimension


def clone_on_chunk(context: EmitContext) -> list[Any]:
    """The op itself on smaller tensors: right for every op whose attributes do not mention sizes."""
    return builders.clone_with(context.op, context.operands, context.result_shapes)


def clone_with_sizes(attribute: str) -> Callable[[EmitContext], list[Any]]:
    """The same with an attribute of sizes, which is the chunk's where it is not 1."""

    def emit(context: EmitContext) -> list[Any]:
        results, dimension = clone_on_chunk(context), context.split_op.operand_dims[0]
        sizes = list(context.op.attributes[attribute])
        if dimension is not None and sizes[dimension] != 1:
            sizes[dimension] = context.operands[0].type.shape[dimension]
            results[0].owner.attributes[attribute] = ir.DenseI64ArrayAttr.get(sizes)
        return results

    return emit


@dataclasses.dataclass(frozen=True)
class Reduction:
    """How the partial results of an op along a reduction factor are combined.

    Attributes:
        initial: the carries before the first chunk, from the op and its operands.
        combine: next carries from the op, the carries and the partial results.
        identity: the scalar with which an operand's repeated elements are masked, from the op, the operand's
            position and all operands; None where repeating does no harm.
        regroups: whether float rounding may change, from the op.
        init_operands: if the whole is the sum of the partial results, the operands that `initial` starts from; None
            if it is not.
        flops: of one combination, from the op, where that is more than to read and write the carries.
    """

    initial: Callable[[Any, Sequence[Any]], list[Any]]
    combine: Callable[[Any, Sequence[Any], Sequence[Any]], list[Any]]
    identity: Callable[[Any, int, Sequence[Any]], Any]
    regroups: Callable[[Any], bool]
    init_operands: Callable[[Any], tuple[int, ...] | None] = lambda op: None
    flops: Callable[[Any], float] = lambda op: 0.0


@dataclasses.dataclass(frozen=True)
class Cumulative:
    """How an op continues from chunk to chunk.

    Attributes:
        initial: the carries before the first chunk, from the op and its operands: scalars, though later carries have
            the rank of the results.
        emit: its results on a chunk, and the accumulated value at each of its elements.
        regroups: whether float rounding may change, from the op.
    """

    initial: Callable[[Any, Sequence[Any]], list[Any]]
    emit: Callable[[EmitContext], tuple[list[Any], list[Any]]]
    regroups: Callable[[Any], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class RegionEdge:
    """One value at the border of an op's regions: a carry of a loop, a capture, a result of branches.

    Attributes:
        operand: its position among the op's inputs, None for a result of branches.
        result: its position among the op's results, None for a capture.
        enters: (block, value) of the block arguments and captured values that hold it inside.
        returns: (block, value) of the returned values that become it.
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
        reduction: how partial results combine; None: reduction factors block.
        cumulative: how it runs along a cumulative factor; None: its rule has none.
        free: costs nothing to recompute in a loop (a broadcast, iota, splat constant).
        view: its result has its operand's elements in memory order: made in a loop, or before it, as cheaply.
        positional: whether it cannot run on a share of each of several parts (`Chunk.parts`), from the split op: what
            it does depends on where in the axis a chunk lies.
        edges: how values enter and leave its regions, whose ops then make its factor rule; None: its regions (a
            reducer) are part of the op.
    """

    rule: Callable[[Any], FactorRule | None] = shardy_rule
    emit: Callable[[EmitContext], list[Any]] = clone_on_chunk
    reduction: Reduction | None = None
    cumulative: Cumulative | None = None
    free: bool = False
    view: bool = False
    positional: Callable[[SplitOp], bool] = lambda split_op: False
    edges: Callable[[Op], tuple[RegionEdge, ...]] | None = None
