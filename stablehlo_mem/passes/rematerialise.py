"""rematerialise: what a scan stores for its backward pass is computed again there from what each step began with.

Before:
    %h, %probabilities = scan(layer, %x, %weights)        a row of probabilities [12, 16, 1024, 1024] a layer
    backward loop: %p = %probabilities[i]; ...
After:
    %h, %inputs = scan(layer, %x, %weights)               a row of inputs [1024, 768] a layer
    backward loop: %p = probabilities of layer(%inputs[i], %weights[i]); ...

A *stack* has a row for every step of a loop (`scan_stacks`). A dropped stack is not written any more. Where a row of
it was read, the ops that computed the row are repeated. They read rows of other stacks, loop invariants, and the
carries that the step began with; a stack of these is added if there is none. The repetition is inside another loop, so
no compiler merges it with the original. Stacks that take the least time per byte are dropped first: Chen et al.,
"Training Deep Nets with Sublinear Memory Cost", 2016, with the layers of a scan as segments.

Refuses stacks that are used as a whole, and steps with side effects.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from stablehlo_mem.analysis.cost_model import fused_seconds
from stablehlo_mem.analysis.peak_memory import Peak
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.block_cse import block_cse
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph, OpPath, Path, entry_graph, nested_graph
from stablehlo_mem.ir.loop_carries import carried_names, drop_dead_carries, unchanged, with_stacks
from stablehlo_mem.ir.trip_count import block_runs
from stablehlo_mem.pass_api.candidate import (
    Candidate,
    Goal,
    Options,
    Refusal,
    Step,
    and_others,
    prefix_lengths,
)
from stablehlo_mem.pass_api.pass_protocol import Pass
from stablehlo_mem.rewriting.rewriting_pass import block_paths
from stablehlo_mem.rewriting.scan_segments import find_backward, segment_length, take_in_segments
from stablehlo_mem.rewriting.scan_stacks import RowRecomputation, ScanLoop, find_readers, find_scan, recompute, stored
from stablehlo_mem.rewriting.shard_map_pairs import PairedParams, apply_in_pair, in_pairs
from stablehlo_mem.rewriting.stack_readers import is_taken_in

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DroppedStacks(PairedParams):
    """Which stacks of a scan are dropped.

    Attributes:
        path, loop: the scan's block, from the entry function's, and its loop in it.
        dropped: the carries of the loop that are the stacks.
        stacks: all stacks of the loop, for people.
        steps: of the loop.
        segment: steps of a segment, where the carries are stored once for each segment instead of each step; else 1.
    """

    path: Path
    loop: int
    dropped: tuple[int, ...]
    stacks: int
    steps: int
    segment: int = 1


class Rematerialise(Pass[DroppedStacks]):
    """The pass: finds the stacks of scans at the peak whose rows can be computed again where they are read."""

    name = "rematerialise"
    params_type = DroppedStacks

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
        """Candidates that drop ever more of each scan's stacks that are alive at the peak."""
        yield from _proposals(graph, peak, goal)
        yield from in_pairs(_proposals, graph, peak, goal)

    def describe(self, params: DroppedStacks) -> str:
        """How many stacks are dropped."""
        steps, segment = params.steps, params.segment
        stacks = f"{len(params.dropped)} of the {params.stacks} values that a loop of {steps} steps stores for later"
        return stacks if segment == 1 else f"{stacks}, by segments of {segment} steps"

    def apply(self, module: ir.Module, params: DroppedStacks) -> None:
        """Drops the stacks of a step and computes their rows again where they are read, in place."""
        apply_in_pair(module, params, _apply)


def _proposals(graph: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
    for path in block_paths(graph):
        block = nested_graph(graph, path)
        for op in block.ops:
            scan = find_scan(block, op)
            if scan is not None:
                yield from _ScanAtPeak(graph, path, scan, peak).proposals(goal)


def _apply(module: ir.Module, params: DroppedStacks) -> None:
    main = entry_graph(module)
    graph = nested_graph(main, params.path)
    scan, dropped = _scan(graph, params.loop), params.dropped
    with module.context:
        if params.segment > 1:
            number = _loops(main).index((params.path, params.loop))
            take_in_segments(graph, scan, _possible(find_backward(graph, scan, dropped)), params.segment)
            drop_dead_carries(module)
            block_cse(module)  # rows of one index are computed together: their readers are to have one index
            main = entry_graph(module)
            path, loop = _loops(main)[number]
            graph = nested_graph(main, path)
            scan = _scan(graph, loop)
            dropped = tuple(scan.rows)
        _RowRecomputer(graph, scan, dropped).run()
        drop_dead_carries(module)
    block_cse(module)


def _loops(main: Graph) -> list[OpPath]:
    """All loops of a module, outer ones before those in their bodies."""
    paths = ((path, nested_graph(main, path)) for path in block_paths(main))
    return [(path, op.index) for path, graph in paths for op in graph.ops if op.name == "stablehlo.while"]


def _scan(graph: Graph, loop: int) -> ScanLoop:
    scan = find_scan(graph, graph.ops[loop])
    if scan is None:
        raise ValueError("rematerialise: there is no such scan")
    return scan


def _possible(result: T | Blocked) -> T:
    """The result of an analysis that a step depends on: it was possible for the module the step was made for."""
    if isinstance(result, Blocked):
        raise ValueError(f"rematerialise: {result.message}")
    return result


class _ScanAtPeak:
    """A scan, and the bytes that each of its stacks has at the peak."""

    def __init__(self, main: Graph, path: Path, scan: ScanLoop, peak: Peak):
        self.main, self.path, self.scan = main, path, scan
        self.graph = nested_graph(main, path)
        self.loop = self.graph.ops[scan.op]
        self.body = self.loop.blocks[1]
        self.temp_bytes = peak.temp_bytes
        live = peak.live_in(path)
        results, operands = self.loop.results, self.loop.operands
        sizes = ((carry, live.get(results[carry]) or live.get(operands[carry])) for carry in scan.rows)
        self.nbytes = {carry: nbytes for carry, nbytes in sizes if nbytes}

    def proposals(self, goal: Goal) -> Iterator[Candidate | Refusal]:
        """Sets of stacks to drop, the cheapest for their bytes first, and why others are not dropped."""
        inputs = [c for c in self.nbytes if stored(self.body, self.scan.rows[c]) in self.body.arguments]
        alone: dict[int, RowRecomputation] = {}
        for carry in (c for c in self.nbytes if c not in inputs):
            readers = find_readers(self.graph, self.loop.results[carry])
            result = readers if isinstance(readers, Blocked) else recompute(self.body, self.scan, [carry])
            if isinstance(result, Blocked):
                yield self.refusal(carry, result.code, result.message)
            else:
                alone[carry] = result
        if alone or inputs:
            seconds = fused_seconds(self.body, goal.chip)
            order = sorted(alone, key=lambda c: (self.seconds(alone[c], seconds) / self.nbytes[c], c))
            yield from self.prefixes(order, seconds, self.temp_bytes - goal.temp_bytes)
            for stacks in [inputs, [*inputs, *alone]] if alone else [inputs]:
                yield from self.in_segments(stacks, seconds, goal.options)

    def prefixes(self, order: Sequence[int], seconds: Sequence[float], over: int) -> Iterator[Candidate]:
        """Candidates that drop the first stacks: shares of their bytes, and just enough for what is over the goal."""
        lengths = prefix_lengths(self.nbytes[c] for c in order)
        is_enough = False
        for length in range(1, len(order) + 1):
            if is_enough and length not in lengths:
                continue
            candidate = self.without(order[:length], seconds)
            is_first_enough = not is_enough and candidate.saved_bytes >= over
            is_enough |= is_first_enough
            if is_first_enough or length in lengths:
                yield candidate

    def seconds(self, again: RowRecomputation, seconds: Sequence[float]) -> float:
        """Time to compute the rows of all steps again."""
        return self.scan.steps * sum(seconds[op] for op in again.ops)

    def without(self, dropped: Sequence[int], seconds: Sequence[float]) -> Candidate:
        """The candidate that drops some stacks."""
        again = recompute(self.body, self.scan, dropped)
        assert isinstance(again, RowRecomputation)
        added = self.scan.steps * sum(self.body.values[self.body.arguments[c]].nbytes for c in again.carries)
        saved = sum(self.nbytes[c] for c in dropped) - added
        return self.candidate(dropped, saved, self.seconds(again, seconds))

    def in_segments(self, stacks: Sequence[int], seconds: Sequence[float], options: Options) -> Iterator[Candidate]:
        """The candidate that stores what each segment begins with, and of stacks the rows of one segment at a time.

        Not while readers of another stack can join the loop (`fuse-into-scan`), which is over segments afterwards.
        """
        steps, size = self.scan.steps, segment_length(self.scan.steps)
        if not stacks or size == 1 or isinstance(find_backward(self.graph, self.scan, stacks), Blocked):
            return
        again = recompute(self.body, self.scan, stacks)
        if isinstance(again, Blocked):
            return
        if not any(is_taken_in(self.main, self.path, self.scan.op, carry, options) for carry in self.nbytes):
            total = sum(self.nbytes[c] for c in stacks)
            begun = sum(self.body.values[self.body.arguments[c]].nbytes for c in again.carries)
            saved = total - total * size // steps - begun * (steps // size)
            yield self.candidate(stacks, saved, steps * sum(seconds), size)

    def candidate(self, dropped: Sequence[int], saved_bytes: int, seconds: float, segment: int = 1) -> Candidate:
        scan = self.scan
        refusal = self.refusal(
            max(dropped, key=lambda c: self.nbytes[c]), "no-gain", "computing it again frees nothing"
        )
        more = and_others(len(dropped))
        params = DroppedStacks(
            path=self.path,
            loop=scan.op,
            dropped=tuple(sorted(dropped)),
            stacks=len(scan.rows),
            steps=scan.steps,
            segment=segment,
        )
        return Candidate(
            step=Step(Rematerialise.name, "", params),
            saved_bytes=saved_bytes,
            added_seconds=block_runs(self.main, self.path) * seconds,
            numerics="exact",
            summary=f"compute {refusal.value}{more} again in each step that reads it, instead of storing all steps",
            identity=(Rematerialise.name, self.path, scan.op, refusal.value, segment > 1),
            refusal_if_useless=refusal,
        )

    def refusal(self, stack: int, code: str, message: str) -> Refusal:
        value = f"stored {self.graph.values[self.loop.results[stack]]}"
        return Refusal.at(self.main, (self.path, self.scan.op), value, self.nbytes[stack], code, message)


class _RowRecomputer:
    """Rewrites a loop to one without some of its stacks, and computes their rows again where they are read."""

    def __init__(self, graph: Graph, scan: ScanLoop, dropped: Sequence[int]):
        self.graph, self.scan, self.dropped = graph, scan, dropped
        self.loop = graph.ops[scan.op]
        self.body = self.loop.blocks[1]
        self.again = _possible(recompute(self.body, scan, dropped))

    def run(self) -> None:
        readers_of_rows = self.readers_of_rows()
        invariants = unchanged(self.loop, 1).items()
        self.outside = {self.body.mlir_values[v]: self.graph.mlir_values[outer] for v, outer in invariants}
        self.stacks = self.with_input_stacks()
        for (_, row), readers in readers_of_rows.items():
            self.repeat(row, readers)

    def readers_of_rows(self) -> dict[tuple[Path, Any], list[tuple[int, Any]]]:
        """The ops that read dropped stacks, each with its stack, by their block and the index of the row they read."""
        readers: dict[tuple[Path, Any], list[tuple[int, Any]]] = {}
        for carry in self.dropped:
            for reader in _possible(find_readers(self.graph, self.loop.results[carry])):
                handle = nested_graph(self.graph, reader.path).handles[reader.op]
                readers.setdefault((reader.path, handle.operands[1]), []).append((carry, handle))
        return readers

    def with_input_stacks(self) -> dict[int, Any]:
        """Adds stacks of the carries that are needed; returns for each value of the body that is read its stack."""
        handle, count = self.graph.handles[self.scan.op], len(self.loop.results)
        arguments = [self.body.mlir_values[self.body.arguments[c]] for c in self.again.carries]
        new = with_stacks(handle, arguments, self.scan.counter, self.scan.steps)
        stacks = {self.body.arguments[c]: new.results[i] for i, c in enumerate(self.again.carries, count)}
        return {**stacks, **{value: new.results[carry] for carry, value in self.again.rows_read.items()}}

    def repeat(self, index: Any, readers: Sequence[tuple[int, Any]]) -> None:
        """Repeats a step before the first reader of its row, and replaces the results of all readers."""
        handles = [handle for _, handle in readers]
        first = next(h for h in handles if all(h == other or h.is_before_in_block(other) for other in handles))
        body, carried = self.body, carried_names(first)
        values = {inner: carried.get(outer, outer) for inner, outer in self.outside.items()}
        with builders.building(first, first.location):
            counter = body.mlir_values[body.arguments[self.scan.counter]]
            # In normal form the start of a slice is in bounds, so it is the number of a step as it is: slices that the
            # reading loop has already are equal to those of the repeated step, and compilers merge them.
            values[counter] = builders.convert(index, counter.type.element_type)
            for value, stack in self.stacks.items():
                row = builders.slice_along(carried.get(stack, stack), 0, index, 1)
                values[body.mlir_values[value]] = builders.reshaped(row, body.values[value].shape)
            builders.repeat_ops([body.handles[op] for op in self.again.ops], values)
        for carry, handle in readers:
            with builders.building(handle, handle.location):
                part = _part(values[body.mlir_values[self.scan.rows[carry]]], handle)
            handle.results[0].replace_all_uses_with(part)


def _part(row: Any, reader: Any) -> Any:
    """What a reader takes of a row: all of it, but for dimensions that a split has sliced."""
    if row.type == reader.results[0].type:
        return row
    _, first, *starts = reader.operands
    return stablehlo.dynamic_slice(row, [builders.zeros(first.type), *starts], reader.attributes["slice_sizes"])
