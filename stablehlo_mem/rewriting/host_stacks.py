"""Stacks of scans that can lie in the host's memory: finds them, and rewrites how they are written and read.

`offload_to_host` calls it. A stack's rows are copied to the host before they are written to it. What is read of it is
copied back a slice along one dimension at a time, as XLA:TPU copies no other, and sliced further on the device. Where
a loop around the slice does not change it, it is copied before the loop.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import is_zero, stablehlo
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph, Op, OpPath, Path, nested_graph
from stablehlo_mem.ir.host_memory import placed
from stablehlo_mem.ir.loop_carries import unchanged
from stablehlo_mem.ir.matchers import splat_number, splat_truth_of
from stablehlo_mem.ir.trip_count import block_runs
from stablehlo_mem.rewriting.scan_stacks import find_readers, find_scan

_SLICE = "stablehlo.dynamic_slice"


@dataclasses.dataclass(frozen=True)
class Stack:
    """A stack of which a scan writes every row, and of which only slices are read afterwards.

    Attributes:
        path, loop, carry: the loop's block from the entry function's, the loop in it, and the carry.
        update: the op of the loop's body that writes.
        reads: how it is read.
        nbytes: of the stack.
        row_bytes: of what one step writes.
    """

    path: Path
    loop: int
    carry: int
    update: OpPath
    reads: tuple[Read, ...]
    nbytes: int
    row_bytes: int


@dataclasses.dataclass(frozen=True)
class Read:
    """The last of the slices of slices that a stack is read through, and how its elements are copied to the device.

    Attributes:
        slices: the ops, of one block, the last one first.
        path: of their block.
        dimension: the dimension along which a slice is copied.
        copied_in: the path of the block in which it is copied.
        nbytes: of the copy.
    """

    slices: tuple[int, ...]
    path: Path
    dimension: int
    copied_in: Path
    nbytes: int


def find_stacks(main: Graph, path: Path, op: Op) -> Iterator[Stack | tuple[int, Blocked]]:
    """The stacks of a loop of a block; or a stack's carry and why it must stay on the device."""
    block = nested_graph(main, path)
    scan = find_scan(block, op, backwards=True)
    # Memory of the host begins as anything, so all of it must be written: a scan's stack is.
    for carry in scan.rows if scan is not None else ():
        if _is_filled(block.mlir_values[op.operands[carry]]):
            reads = _reads(main, path, op.results[carry])
            yield (carry, reads) if isinstance(reads, Blocked) else _stack(block, path, op, carry, reads)


def _stack(block: Graph, path: Path, op: Op, carry: int, reads: tuple[Read, ...]) -> Stack:
    body = op.blocks[1]
    update = body.producer(body.returned[carry])
    assert update is not None
    return Stack(
        path=path,
        loop=op.index,
        carry=carry,
        update=((*path, (op.index, 1)), update.index),
        reads=reads,
        nbytes=block.values[op.results[carry]].nbytes,
        row_bytes=body.values[update.operands[1]].nbytes,
    )


def _is_filled(value: Any) -> bool:
    """Whether a value is a constant that repeats a number or a truth."""
    return splat_number(value) is not None or splat_truth_of(value) is not None


def _reads(main: Graph, path: Path, stack: int) -> tuple[Read, ...] | Blocked:
    """How a stack is read, if it is only sliced."""
    readers = find_readers(nested_graph(main, path), stack, _is_part)
    if isinstance(readers, Blocked):
        return readers
    whole = nested_graph(main, path).values[stack].shape
    places = [((*path, *reader.path), reader.op) for reader in readers]
    return tuple(read for place, op in places for read in _reads_from(main, place, (op,), whole))


def _is_part(graph: Graph, op: Op) -> bool:
    """Whether an op reads at most half of its operand, as a slice."""
    if op.name != _SLICE:
        return False
    part, whole = (math.prod(graph.values[v].shape) for v in (op.results[0], op.operands[0]))
    return 2 * part <= whole


def _reads_from(main: Graph, path: Path, slices: tuple[int, ...], whole: tuple[int, ...]) -> Iterator[Read]:
    """The reads through a chain of slices: those of the slices that alone use its result, if such do."""
    graph = nested_graph(main, path)
    result = graph.ops[slices[0]].results[0]
    users = [graph.ops[user] for user in graph.users[result]]
    if users and all(user.name == _SLICE and user.operands[0] == result for user in users):
        for user in users:
            yield from _reads_from(main, path, (user.index, *slices), whole)
        return
    sliced = [d for d, size in enumerate(graph.values[result].shape) if size < whole[d]]
    ways = [_copied_along(main, path, slices, d, whole) for d in sliced]
    yield min(ways, key=lambda read: (block_runs(main, read.copied_in) * read.nbytes, read.nbytes))


def _copied_along(main: Graph, path: Path, slices: tuple[int, ...], dimension: int, whole: tuple[int, ...]) -> Read:
    """What a chain of slices reads, copied along a dimension, before all loops that leave that unchanged."""
    graph = nested_graph(main, path)
    value = graph.values[graph.ops[slices[0]].results[0]]
    copied = math.prod(whole) // whole[dimension] * value.shape[dimension]
    depth = len(path) - _loops_without(main, path, [_stack_in(graph, slices), *_starts(graph, slices, dimension)])
    return Read(slices, path, dimension, path[:depth], value.nbytes * copied // max(1, math.prod(value.shape)))


def _stack_in(graph: Graph, slices: tuple[int, ...]) -> int:
    """The value that a chain of slices slices."""
    return graph.ops[slices[-1]].operands[0]


def _starts(graph: Graph, slices: tuple[int, ...], dimension: int) -> list[int]:
    """What the starts of a chain of slices along a dimension add up from."""
    starts = [graph.ops[op].operands[1 + dimension] for op in slices]
    return [v for v in starts if not is_zero(graph.mlir_values[v])]


def _loops_without(main: Graph, path: Path, values: list[int]) -> int:
    """How many of the innermost loops around a block leave some of its values unchanged."""
    for count in range(len(path)):
        outer = _outside(main, path[: len(path) - count], values)
        if outer is None:
            return count
        values = outer
    return len(path)


def _outside(main: Graph, path: Path, values: list[int]) -> list[int] | None:
    """The values outside of the loop whose body a path leads to, None if the loop changes one of them."""
    op, number = path[-1]
    loop = nested_graph(main, path[:-1]).ops[op]
    outer = unchanged(loop, number) if loop.name == "stablehlo.while" else {}
    return [outer[v] for v in values] if all(v in outer for v in values) else None


def write_to_host(main: Graph, update: OpPath) -> None:
    """Copies what an op writes to a stack to the host."""
    path, op = update
    written = nested_graph(main, path).handles[op]
    with builders.building(written, written.location):
        written.operands[1] = placed(written.operands[1], "pinned_host")


def read_from_host(main: Graph, read: Read) -> None:
    """Copies what a chain of slices reads of a stack to the device."""
    graph = nested_graph(main, read.path)
    old, values = graph.handles[read.slices[0]], [_stack_in(graph, read.slices)]
    values += _starts(graph, read.slices, read.dimension)
    path, place = read.path, old
    while path != read.copied_in:
        outer = _outside(main, path, values)
        assert outer is not None
        values, path, place = outer, path[:-1], nested_graph(main, path[:-1]).handles[path[-1][0]]
    block = nested_graph(main, path)
    size = old.results[0].type.shape[read.dimension]
    with builders.building(place, old.location):
        stack, *starts = (block.mlir_values[v] for v in values)
        start = _sum(starts, old.operands[1 + read.dimension].type)
        copy = placed(builders.slice_along(stack, read.dimension, start, size), "device")
    with builders.building(old, old.location):
        for dimension, count in enumerate(old.results[0].type.shape):
            if count < copy.type.shape[dimension]:
                starts = [graph.mlir_values[v] for v in _starts(graph, read.slices, dimension)]
                copy = builders.slice_along(copy, dimension, _sum(starts, old.operands[1].type), count)
    old.results[0].replace_all_uses_with(copy)
    old.erase()


def _sum(values: list[Any], scalar: Any) -> Any:
    """The sum of integer scalars of one type, a constant if there are none."""
    total = None
    for value in values:
        total = value if total is None else stablehlo.add(total, value)
    return builders.zeros(scalar) if total is None else total
