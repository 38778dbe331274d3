"""A row of the rules table: all that the split knows about one kind of op."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from stablehlo_mem.ir import build
from stablehlo_mem.rules.rule import Node, Rule, shardy_rule


@dataclasses.dataclass(frozen=True)
class Site:
    """One op about to run on one chunk of the axis.

    Attributes:
        op: the original operation.
        node: how it is split.
        operands: its operands, sliced where they carry the axis.
        result_shapes: shapes of the results on this chunk.
        start: i32 scalar, first element of the axis in this chunk.
        size: elements of the axis in a chunk.
    """

    op: Any
    node: Node
    operands: Sequence[Any]
    result_shapes: Sequence[Sequence[int]]
    start: Any
    size: int


def clone_on_chunk(site: Site) -> list[Any]:
    """The op itself on smaller tensors: right for every op whose attributes do not mention sizes."""
    return build.clone_with(site.op, site.operands, site.result_shapes)


@dataclasses.dataclass(frozen=True)
class Reduction:
    """How the partial results of an op along a reducing factor become the whole.

    Attributes:
        initial: the carries before the first chunk, from the op and its operands.
        combine: next carries from the carries, the partial results and the op.
        identity: the scalar with which an operand's repeated elements are masked, from the op, the operand's
            position and all operands; None where repeating does no harm.
        regroups: whether float rounding may change, from the op.
    """

    initial: Callable[[Any, Sequence[Any]], list[Any]]
    combine: Callable[[Any, Sequence[Any], Sequence[Any]], list[Any]]
    identity: Callable[[Any, int, Sequence[Any]], Any]
    regroups: Callable[[Any], bool]


@dataclasses.dataclass(frozen=True)
class Row:
    """One kind of op.

    Attributes:
        rule: its factor rule, None where it is a barrier.
        emit: the op on one chunk.
        reduction: how partial results combine; None: reducing factors block.
        free: costs nothing to recompute in a loop (a broadcast, iota, splat constant).
        view: shows its operand's elements as they lie: it may as well be in a loop that reads it whole as before it.
    """

    rule: Callable[[Any], Rule | None] = shardy_rule
    emit: Callable[[Site], list[Any]] = clone_on_chunk
    reduction: Reduction | None = None
    free: bool = False
    view: bool = False
