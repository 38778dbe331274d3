"""fold-transposes: dots that read a transposed copy read what it is a copy of.

Before:
    %t = stablehlo.transpose %y : tensor<8192x64xf32> to tensor<64x8192xf32>
    stablehlo.while { ... stablehlo.dot_general %x, %t, contracting_dims = [1] x [0] ... }
After:
    stablehlo.while { ... stablehlo.dot_general %x, %y, contracting_dims = [1] x [1] ... }

The compilers fold a transpose into a dot beside it by themselves, but on CPU and GPU not into a loop: there it is a
buffer that lives as long as the loop. Beside a dot it goes so that neither the profile nor a split takes it for one.
A carry that only handed it on is given a constant, which every compiler drops.

Refuses transposes that something else than a dot reads in the loop, and dots that would have to copy or transpose
instead: to bring batch dimensions to the front, or to put the dimensions of the result in order.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from stablehlo_mem.analysis.cost_model import Kernel
from stablehlo_mem.ir.bindings import RULE, ir, stablehlo
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.builders import zeros
from stablehlo_mem.ir.dead_ops import needed_only_by
from stablehlo_mem.ir.graph import Graph, Op, Path, nested_graph
from stablehlo_mem.ir.loop_carries import invariant_carries
from stablehlo_mem.ir.op_attributes import DotNumbers, dot_numbers, integers
from stablehlo_mem.rewriting.rewriting_pass import Match, RewritingPass

_READERS = frozenset({"stablehlo.dot_general", "stablehlo.while"})


@dataclasses.dataclass(frozen=True)
class _Use:
    """One reading of the transposed value, by `path` from its block: a dot's operand, or a carry that hands it on."""

    path: Path
    op: int
    operand: int


class FoldTransposes(RewritingPass):
    """The pass: finds transposes that loops read."""

    name = "fold-transposes"
    roots = frozenset({"stablehlo.transpose"})

    def match(self, graph: Graph, root: int, *, prefer_memory: bool) -> Match | Blocked | None:
        """The match at a transpose that dots read, here or in a loop, and nobody else."""
        del prefer_memory
        op = graph.ops[root]
        users = {graph.ops[user].name for user in graph.users[op.results[0]]}
        if not users & _READERS:
            return None
        order = integers(graph, op, "permutation")
        uses: list[_Use] = []
        for use in _uses(graph, (), op.results[0]):
            if isinstance(use, Blocked):
                return use
            blocked = _cannot_fold(nested_graph(graph, use.path), use, order)
            if blocked is not None:
                return blocked
            uses.append(use)
        value = graph.values[op.operands[0]]
        folded_anyway = "stablehlo.while" not in users
        return Match(
            root=root,
            removed=needed_only_by(graph, root, op.operands),
            new_bytes=0,
            kernels=(Kernel(0, 2 * value.nbytes),) if folded_anyway else (),
            numerics="exact",
            what=f"multiply {value} without transposing it before",
            detail=tuple(uses),
            always=True,
        )

    def emit(self, graph: Graph, match: Match) -> Sequence[Any]:
        """Edits the dots where they are: the transpose that is left in the root's place has no users."""
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
        return [stablehlo.transpose(source, ir.DenseI64ArrayAttr.get(list(order)))]


def _uses(graph: Graph, path: Path, value: int) -> Iterator[_Use | Blocked]:
    """Where a value is read, in the block of a path and in the loops in it; or what reads it otherwise."""
    for user in graph.users[value]:
        op = graph.ops[user]
        if op.name == "stablehlo.while":
            yield from _uses_in_loop(graph, path, op, value)
        elif op.name == "stablehlo.dot_general":
            yield from (_Use(path, user, i) for i, v in enumerate(op.operands) if v == value)
        else:
            yield Blocked("used-otherwise", f"{op.name} reads it transposed")


def _uses_in_loop(graph: Graph, path: Path, loop: Op, value: int) -> Iterator[_Use | Blocked]:
    if value in loop.blocks[0].captured_from:
        yield Blocked("used-otherwise", "the condition of a loop reads it transposed")
    body, inside = loop.blocks[1], (*path, (loop.index, 1))
    captured = (body.captured[i] for i, v in enumerate(body.captured_from) if v == value)
    yield from itertools.chain.from_iterable(_uses(body, inside, v) for v in captured)
    for i, (operand, invariant) in enumerate(zip(loop.operands, invariant_carries(loop), strict=True)):
        if operand != value:
            continue
        argument = body.arguments[i]
        if not invariant or graph.users[loop.results[i]] or loop.blocks[0].users[loop.blocks[0].arguments[i]]:
            yield Blocked("used-otherwise", "a loop changes it or hands it on")
            continue
        yield _Use(path, loop.index, i)
        yield from _uses(_without_terminator(body, argument), inside, argument)


def _without_terminator(body: Graph, argument: int) -> Graph:
    """The body's graph without the terminator's use of a carry that it hands on unchanged."""
    users = list(body.users)
    users[argument] = tuple(u for u in users[argument] if u != body.ops[-1].index)
    return dataclasses.replace(body, users=tuple(users))


def _cannot_fold(graph: Graph, use: _Use, order: Sequence[int]) -> Blocked | None:
    """Why a dot cannot read the operand untransposed at no cost, None if it can."""
    op = graph.ops[use.op]
    if op.name == "stablehlo.while":
        return None
    batch, contracting = (of_both[use.operand] for of_both in _dimensions(dot_numbers(graph, op)))
    free = [order[d] for d in range(len(order)) if d not in batch and d not in contracting]
    if free != sorted(free):
        return Blocked("free-order", "the result of a dot would have to be transposed instead")
    if [order[d] for d in batch] != list(range(len(batch))):
        return Blocked("batch-order", "a dot would copy it to bring its batch dimensions to the front")
    return None


def _dimensions(numbers: DotNumbers) -> tuple[list[list[int]], list[list[int]]]:
    """The batch and the contracting dimensions of a dot, each of both operands."""
    batch = [list(numbers.lhs_batching_dimensions), list(numbers.rhs_batching_dimensions)]
    return batch, [list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions)]


def _folded(dot: Any, operand: int, order: Sequence[int]) -> Any:
    """A dot's dimension numbers for an operand as it was before a transpose."""
    # As they are now: the other operand may have been folded.
    batch, contracting = _dimensions(DotNumbers.of(dot.attributes["dot_dimension_numbers"]))
    for of_both in (batch, contracting):
        of_both[operand] = [order[d] for d in of_both[operand]]
    return stablehlo.DotDimensionNumbers.get(batch[0], batch[1], contracting[0], contracting[1])
