"""Rewrites a scan over T steps into a loop over T/k segments of loops over k steps; `rematerialise` calls it.

The stacks of the outer loop have a row for every segment, which holds the rows of its steps. The backward loop that
reads them is rewritten likewise. Then the rows of a segment can be computed again from its first carries, as one row
can (`scan_stacks`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import stablehlo
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph, nested_graph
from stablehlo_mem.ir.trip_count import affine, counted
from stablehlo_mem.rewriting.scan_stacks import Reader, ScanLoop, find_readers


@dataclasses.dataclass(frozen=True)
class Backward:
    """The loop that reads the rows of stacks, from the first to the last or from the last to the first.

    Attributes:
        op: its index in the block of the scan.
        counter: the position of its carry that counts.
        readers: of each stack, by its carry.
        forward: for each reader's op in the loop's body, whether it reads from the first row on.
    """

    op: int
    counter: int
    readers: Mapping[int, tuple[Reader, ...]]
    forward: Mapping[int, bool]


def segment_length(steps: int) -> int:
    """The largest divisor of a number of steps up to its square root, 1 for a prime."""
    return max(k for k in range(1, math.isqrt(steps) + 1) if steps % k == 0)


def find_backward(graph: Graph, scan: ScanLoop, stacks: Sequence[int]) -> Backward | Blocked:
    """The one loop that reads all rows of some of a scan's stacks, in as many steps."""
    results = graph.ops[scan.op].results
    readers: dict[int, tuple[Reader, ...]] = {}
    for carry in stacks:
        row_readers = find_readers(graph, results[carry])
        if isinstance(row_readers, Blocked):
            return row_readers
        readers[carry] = row_readers
    all_readers = [reader for row_readers in readers.values() for reader in row_readers]
    paths = {reader.path for reader in all_readers}
    elsewhere = Blocked("other-readers", "its rows are not all read by one loop over as many steps")
    if len(paths) != 1 or len(path := next(iter(paths))) != 1:
        return elsewhere
    loop = graph.ops[path[0][0]]
    counter = counted(graph, loop)
    if counter is None or counter.steps != scan.steps:
        return elsewhere
    body = nested_graph(graph, path)
    forward: dict[int, bool] = {}
    for op in (body.ops[reader.op] for reader in all_readers):
        row = affine(body, op.operands[1], {body.arguments[counter.carry]: (1, 0)}, scan.steps)
        if row not in ((1, 0), (-1, scan.steps - 1)):
            return elsewhere
        forward[op.index] = row == (1, 0)
    return Backward(loop.index, counter.carry, readers, forward)


def take_in_segments(graph: Graph, scan: ScanLoop, backward: Backward, size: int) -> None:
    """Rewrites a scan and its backward loop into segments of `size` steps, in place."""
    count = scan.steps // size
    handles = {
        carry: [(nested_graph(graph, r.path).handles[r.op], backward.forward[r.op]) for r in readers]
        for carry, readers in backward.readers.items()
    }
    outer = _nest(graph.handles[scan.op], scan.counter, count, size, list(backward.readers))
    reading = _nest(graph.handles[backward.op], backward.counter, count, size, ())
    for carry, readers in handles.items():
        for reader, forward in readers:
            _read(reader, outer.results[carry], reading, backward.counter, (count, size), forward=forward)


def _nest(loop: Any, counter: int, count: int, size: int, stacks: Sequence[int]) -> Any:
    """Replaces a loop over steps by one over segments with a loop over their steps inside; carries stay in order."""
    operands = list(loop.operands)
    body = loop.regions[1].blocks[0]
    returned = body.operations[len(body.operations) - 1].operation.operands
    # What every step hands on unchanged every segment does too: a loop invariant, of which no segment stores a row.
    invariant = [i for i, argument in enumerate(body.arguments) if returned[i] == argument]
    with builders.building(loop, loop.location):
        zero = builders.zeros(operands[counter].type)
        initial = list(operands)
        for i in stacks:
            initial[i] = builders.broadcast_zeros(
                builders.retype(operands[i].type, [count, size, *operands[i].type.shape[1:]])
            )
        initial[counter] = zero
        outer = builders.counted_while(initial, counter, count)
        segment = outer.regions[1].blocks.append(*[v.type for v in initial])
    with builders.building(segment, loop.location):
        index = segment.arguments[counter]
        base = stablehlo.multiply(index, builders.splat(index.type, size))
        begun = list(segment.arguments)
        begun[counter] = zero
        for i in stacks:
            begun[i] = builders.broadcast_zeros(builders.retype(operands[i].type, [size, *operands[i].type.shape[1:]]))
        inner = builders.counted_while(begun, counter, size)
        body.append_to(inner.regions[1])
        following = list(inner.results)
        for i in invariant:
            following[i] = segment.arguments[i]
        following[counter] = stablehlo.add(index, builders.ones(index.type))
        for i in stacks:
            row = builders.reshaped(inner.results[i], [1, *inner.results[i].type.shape])
            following[i] = builders.update_along(segment.arguments[i], row, 0, index)
        stablehlo.return_(following)
    _renumber(inner, body, counter, base, stacks)
    with builders.building(loop, loop.location):
        for i, result in enumerate(loop.results):
            if any(True for _ in result.uses):
                whole = builders.splat(result.type, count * size) if i == counter else outer.results[i]
                result.replace_all_uses_with(builders.reshaped(whole, list(result.type.shape)))
    loop.erase()
    return outer


def _renumber(loop: Any, body: Any, counter: int, base: Any, stacks: Sequence[int]) -> None:
    """Adapts the body of a loop over all steps to a segment: the steps it counts, and the stacks it writes rows to."""
    end = body.operations[len(body.operations) - 1].operation
    step = body.arguments[counter]
    with builders.building(end, end.location):
        following = stablehlo.add(step, builders.ones(step.type))
    end.operands[counter] = following
    local = [following.owner]
    for i in stacks:
        update = end.operands[i].owner
        mlir_type = loop.operands[i].type
        body.arguments[i].set_type(mlir_type)
        update.operation.results[0].set_type(mlir_type)
        local.append(update)
    with builders.building(body.operations[0].operation, end.location):
        number = stablehlo.add(base, step)
    step.replace_all_uses_except(number, [*(o.operation for o in local), number.owner.operation])


def _read(reader: Any, stack: Any, outer: Any, counter: int, sizes: tuple[int, int], *, forward: bool) -> None:
    """Reads a row from a segment of a stack, which the outer loop reads, instead of from the whole stack."""
    count, size = sizes
    segment = outer.regions[1].blocks[0]
    inner = next(op.operation for op in segment.operations if op.operation.name == "stablehlo.while")
    with builders.building(inner, inner.location):
        rows = builders.slice_along(stack, 0, _row_index(segment.arguments[counter], count, forward=forward), 1)
        rows = builders.reshaped(rows, rows.type.shape[1:])
    step = inner.regions[1].blocks[0].arguments[counter]
    with builders.building(reader, reader.location):
        index = builders.convert(_row_index(step, size, forward=forward), reader.operands[1].type.element_type)
        starts = [index, *list(reader.operands)[2:]]
        row = stablehlo.dynamic_slice(rows, starts, reader.attributes["slice_sizes"])
    reader.results[0].replace_all_uses_with(row)
    reader.erase()


def _row_index(index: Any, count: int, *, forward: bool) -> Any:
    return index if forward else stablehlo.subtract(builders.splat(index.type, count - 1), index)
