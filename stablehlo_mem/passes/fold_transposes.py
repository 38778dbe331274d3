"""fold-transposes: dots that read a transposed copy read what it is a copy of.

Before:
    %t = stablehlo.transpose %y : tensor<8192x64xf32> to tensor<64x8192xf32>
    stablehlo.while { ... stablehlo.dot_general %x, %t, contracting_dims = [1] x [0] ... }
After:
    stablehlo.while { ... stablehlo.dot_general %x, %y, contracting_dims = [1] x [1] ... }

The compilers fold a transpose into a dot beside it by themselves, but on CPU and GPU not into a loop: there the copy is
alive as long as the loop runs. A transpose beside its dot is folded too, so that neither the profile nor a split takes
it for a buffer. A carry that only hands it on is set to a constant, which every compiler drops.

Refuses transposes that other ops than dots read, and dots that would need a copy or transpose instead: to bring batch
dimensions to the front, or to put the dimensions of the result in order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from stablehlo_mem.analysis.cost_model import Kernel
from stablehlo_mem.ir.bindings import RULE, stablehlo
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.builders import transposed, zeros
from stablehlo_mem.ir.dead_ops import needed_only_by
from stablehlo_mem.ir.graph import Graph, Op, Path, nested_graph
from stablehlo_mem.ir.loop_carries import is_only_read, readers_in
from stablehlo_mem.ir.op_attributes import DotNumbers, dot_numbers, integers
from stablehlo_mem.rewriting.rewriting_pass import Match, RewritingPass


@dataclasses.dataclass(frozen=True)
class _OperandUse:
    """A use of the transposed value, in the block at `path` from its own: an operand of a dot, or a loop's carry."""

    path: Path
    op: int
    operand: int


class FoldTransposes(RewritingPass):
    """The pass: finds transposes that loops read."""

    name = "fold-transposes"
    roots = frozenset({"stablehlo.transpose"})

    def match(self, graph: Graph, root: int, *, prefer_memory: bool) -> Match | Blocked | None:
        """The match at a transpose that dots read, here or in a loop, and nobody else."""
        op = graph.ops[root]
        users = {graph.ops[user].name for user in graph.users[op.results[0]]}
        if not users & {"stablehlo.dot_general", "stablehlo.while"}:
            return None
        order = integers(graph, op, "permutation")
        uses: list[_OperandUse] = []
        for use in _uses(graph, (), op.results[0]):
            if isinstance(use, Blocked):
                return use
            blocked = _cannot_fold(nested_graph(graph, use.path), use, order)
            if blocked is not None:
                return blocked
            uses.append(use)
        value = graph.values[op.operands[0]]
        is_folded_anyway = "stablehlo.while" not in users
        return Match(
            root=root,
            removed=needed_only_by(graph, root, op.operands),
            new_bytes=0,
            kernels=(Kernel(0, 2 * value.nbytes),) if is_folded_anyway else (),
            numerics="exact",
            summary=f"multiply by {value} as it is stored, without a transposed copy",
            detail=tuple(uses),
            even_if_slower=True,
        )

    def emit(self, graph: Graph, match: Match) -> Sequence[Any]:
        """Edits the dots in place; the transpose that replaces the root has no users."""
        op = graph.ops[match.root]
        source, order = graph.mlir_values[op.operands[0]], integers(graph, op, "permutation")
        for use in match.detail:
            handle = nested_graph(graph, use.path).handles[use.op]
            if handle.name == "stablehlo.while":
                handle.operands[use.operand] = zeros(handle.operands[use.operand].type)
            else:
                handle.attributes["dot_dimension_numbers"] = _folded(handle, use.operand, order)
                handle.operands[use.operand] = source
                if RULE in handle.attributes:
                    del handle.attributes[RULE]
        return [transposed(source, order)]


def _uses(graph: Graph, path: Path, value: int) -> Iterator[_OperandUse | Blocked]:
    """The uses of a value in the block at a path and in the loops in it, or why one is none that can be folded."""
    for op in (graph.ops[user] for user in readers_in(graph, value)):
        if op.name == "stablehlo.while":
            yield from _uses_in_loop(graph, path, op, value)
        elif op.name == "stablehlo.dot_general":
            yield from (_OperandUse(path, op.index, i) for i, v in enumerate(op.operands) if v == value)
        else:
            yield Blocked("used-otherwise", f"{op.name} reads it transposed")


def _uses_in_loop(graph: Graph, path: Path, loop: Op, value: int) -> Iterator[_OperandUse | Blocked]:
    if value in loop.blocks[0].captured_from:
        yield Blocked("used-otherwise", "the condition of a loop reads it transposed")
    body, inside = loop.blocks[1], (*path, (loop.index, 1))
    for i in (i for i, v in enumerate(body.captured_from) if v == value):
        yield from _uses(body, inside, body.captured[i])
    for i in (i for i, v in enumerate(loop.operands) if v == value):
        if is_only_read(graph, loop, i):
            yield _OperandUse(path, loop.index, i)
            yield from _uses(body, inside, body.arguments[i])
        else:
            yield Blocked("used-otherwise", "a loop changes it or hands it on")


def _cannot_fold(graph: Graph, use: _OperandUse, order: Sequence[int]) -> Blocked | None:
    """Why a dot cannot read the operand untransposed at no cost, None if it can."""
    op = graph.ops[use.op]
    if op.name == "stablehlo.while":
        return None
    numbers = dot_numbers(graph, op)
    batch, contracting = (of_both[use.operand] for of_both in (numbers.batching, numbers.contracting))
    free = [order[d] for d in range(len(order)) if d not in batch and d not in contracting]
    if free != sorted(free):
        return Blocked("free-order", "the result of a dot would have to be transposed instead")
    if [order[d] for d in batch] != list(range(len(batch))):
        return Blocked("batch-order", "a dot would copy it to bring its batch dimensions to the front")
    return None


def _folded(dot: Any, operand: int, order: Sequence[int]) -> Any:
    """A dot's dimension numbers for an operand as it was before a transpose."""
    # As they are now: the other operand may have been folded.
    numbers = DotNumbers.of(dot.attributes["dot_dimension_numbers"])
    batch, contracting = ([*map(list, of_both)] for of_both in (numbers.batching, numbers.contracting))
    for of_both in (batch, contracting):
        of_both[operand] = [order[d] for d in of_both[operand]]
    return stablehlo.DotDimensionNumbers.get(batch[0], batch[1], contracting[0], contracting[1])
