"""Matches loops that store a row for every step in stacks, and the ops that read these rows; `rematerialise` calls it.

`jax.lax.scan` becomes a while that counts from 0 and writes each step's outputs, a gradient's residuals among them,
into stacks with dynamic_update_slice; the backward loop reads the rows in reverse with dynamic_slice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping

from stablehlo_mem.analysis.fusion_classes import Class, classify
from stablehlo_mem.analysis.host_link import placements
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph, Op, Path, effects
from stablehlo_mem.ir.loop_carries import invariant_carries, is_only_read, readers_in, update_in_place
from stablehlo_mem.ir.matchers import splat_value
from stablehlo_mem.ir.op_attributes import integers
from stablehlo_mem.ir.trip_count import Counter, affine, counted


@dataclasses.dataclass(frozen=True)
class ScanLoop:
    """A while that counts its steps from 0.

    Attributes:
        op: its index in the block's graph.
        steps: how many.
        counter: the position of the carry that counts.
        invariant: for each carry, whether the body hands it on unchanged.
        rows: for each carry that is a stack, the value of the body that each step writes into its row of it.
    """

    op: int
    steps: int
    counter: int
    invariant: tuple[bool, ...]
    rows: Mapping[int, int]


@dataclasses.dataclass(frozen=True)
class Reader:
    """A slice that reads a part of a stack.

    Attributes:
        path: of its block, from the stack's.
        op: its index there.
    """

    path: Path
    op: int


@dataclasses.dataclass(frozen=True)
class RowRecomputation:
    """What computes rows of stacks again.

    Attributes:
        ops: of the body, in program order.
        carries: the positions of the carries whose value at the step is needed.
        rows_read: the other stacks of which rows are read, each with the value of the body that it stores.
    """

    ops: tuple[int, ...]
    carries: tuple[int, ...]
    rows_read: Mapping[int, int]


def find_scan(graph: Graph, op: Op, *, backwards: bool = False) -> ScanLoop | None:
    """The scan that a while is, None if it is none or it stores nothing.

    Args:
        backwards: whether stacks whose last row is written in the first step count too, as gradients of scans have.
    """
    counter = counted(graph, op)
    if counter is None or counter.steps < 2:
        return None
    rows = {i: row for i in range(len(op.results)) if (row := _row(op.blocks[1], i, counter, backwards)) is not None}
    return ScanLoop(op.index, counter.steps, counter.carry, invariant_carries(op), rows) if rows else None


def _row(body: Graph, carry: int, counter: Counter, backwards: bool) -> int | None:
    """The value that every step writes into its own row of a carry, None if the carry is no stack."""
    update = update_in_place(body, carry)
    if update is None:
        return None
    shape = body.values[update.operands[0]].shape
    whole_row = body.values[update.operands[1]].shape == (1, *shape[1:])
    first, *others = update.operands[2:]
    orders = [(1, 0), (-1, counter.steps - 1)][: 1 + backwards]
    in_order = affine(body, first, {body.arguments[counter.carry]: (1, 0)}, counter.steps) in orders
    in_order = in_order and all(splat_value(body, v) == 0 for v in others)
    return update.operands[1] if whole_row and in_order and shape[0] == counter.steps else None


def reads_row(graph: Graph, op: Op) -> bool:
    """Whether an op reads one row of its operand, or a part of it."""
    return op.name == "stablehlo.dynamic_slice" and integers(graph, op, "slice_sizes")[0] == 1


def find_readers(
    graph: Graph, value: int, reads_part: Callable[[Graph, Op], bool] = reads_row
) -> tuple[Reader, ...] | Blocked:
    """All readers of a stack, if it is only read in parts, in its block or in blocks inside."""
    readers: list[Reader] = []
    for reader in _readers(graph, value, (), reads_part):
        if isinstance(reader, Blocked):
            return reader
        readers.append(reader)
    return tuple(readers)


def _readers(
    graph: Graph, value: int, path: Path, reads_part: Callable[[Graph, Op], bool]
) -> Iterator[Reader | Blocked]:
    for op in (graph.ops[user] for user in readers_in(graph, value)):
        if op.operands[:1] == (value,) and reads_part(graph, op):
            yield Reader(path, op.index)
        elif op.name == "stablehlo.while":
            body = op.blocks[1]
            for i in (i for i, v in enumerate(op.operands) if v == value):
                if is_only_read(graph, op, i):
                    yield from _readers(body, body.arguments[i], (*path, (op.index, 1)), reads_part)
                else:
                    yield Blocked("used-whole", f"{op.name} uses all of it")
        elif op is graph.ops[-1]:
            yield Blocked("returned", "it is handed on as a whole")
        elif value in op.operands:
            yield Blocked("used-whole", f"{op.name} uses all of it")
        for i, block in enumerate(op.blocks):
            if value in block.captured_from:
                inner = block.captured[block.captured_from.index(value)]
                yield from _readers(block, inner, (*path, (op.index, i)), reads_part)


def stored(body: Graph, row: int) -> int:
    """The value whose elements a row has, reshapes and other views left out."""
    return body.under(row, lambda op: classify(body, op) is Class.VIEW and len(op.operands) == 1)


def recompute(body: Graph, scan: ScanLoop, dropped: Iterable[int]) -> RowRecomputation | Blocked:
    """How the rows of some stacks are computed again from other stacks, loop invariants and carries.

    Slices of an invariant in the host's memory, such as a layer's parameters, are copied to the device again.
    """
    on_host = Blocked("in-host-memory", "it is in the host's memory")
    dropped = set(dropped)
    stack_of = {stored(body, row): carry for carry, row in scan.rows.items() if carry not in dropped}
    position = {v: i for i, v in enumerate(body.arguments)}
    ops: set[int] = set()
    carries: set[int] = set()
    rows_read: dict[int, int] = {}
    stack = [scan.rows[carry] for carry in dropped]
    seen = set(stack)
    while stack:
        value = stack.pop()
        if value in stack_of:
            rows_read[stack_of[value]] = value
        elif value in position:
            if position[value] != scan.counter and not scan.invariant[position[value]]:
                if body.values[value].host_bytes:
                    return on_host
                carries.add(position[value])
        elif (op := body.producer(value)) is not None:
            if op.index in effects(body):
                return Blocked("effects", f"{op.name} cannot be run twice")
            if body.values[value].host_bytes and op.index in placements(body):
                return on_host
            ops.add(op.index)
            inputs = [v for v in op.inputs if v not in seen]
            seen.update(inputs)
            stack += inputs
    return RowRecomputation(tuple(sorted(ops)), tuple(sorted(carries)), rows_read)
