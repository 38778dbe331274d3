"""rematerialise: what a scan stores for its backward pass is computed again there from what each step began with.

Before:
    %h, %probabilities = scan(layer, %x, %weights)        a row of probabilities [12, 16, 1024, 1024] a layer
    backward loop: %p = %probabilities[i]; ...
After:
    %h, %inputs = scan(layer, %x, %weights)               a row of inputs [1024, 768] a layer
    backward loop: %p = probabilities of layer(%inputs[i], %weights[i]); ...

A *stack* has a row for every step of a loop (`stacks`). A dropped one is not written any more; where a row of it was
read, the ops of the step that made the row are repeated, on the rows of other stacks, on what the loop does not
change, and on the carries the step began with, of which a stack is kept if none is there. As the repetition is inside
another loop, no compiler merges it with the first. Which to drop goes by bytes over the time to compute them again:
Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016, with the layers of a scan as segments.

Refuses stacks that are used as a whole, and steps with side effects.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stablehlo_mem.analysis.cost_model import fused_seconds
from stablehlo_mem.analysis.fusion_classes import CLASSES, Class
from stablehlo_mem.analysis.peak_memory import Peak
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, run_passes, stablehlo
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph, OpId, Path, entry_graph, nested_graph, op_id
from stablehlo_mem.ir.loop_carries import drop_dead_carries, with_carries
from stablehlo_mem.ir.trip_count import block_runs
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Refusal, Step, StepParams
from stablehlo_mem.pass_api.pass_protocol import Pass
from stablehlo_mem.rewriting.rewriting_pass import block_paths
from stablehlo_mem.rewriting.scan_segments import find_backward, segment_length, take_in_segments
from stablehlo_mem.rewriting.scan_stacks import Reader, Recomputation, Scan, find_readers, find_scan, recompute, stored

_SHARES = (0.25, 0.5, 0.75, 1.0)
"""Candidates drop at least so much of what can be dropped."""


@dataclasses.dataclass(frozen=True)
class _Found:
    """A scan, the block it is in, and its stacks that can be dropped with the bytes they have at the peak.

    `alone` says how each is computed again if it is the only one. `inputs` are stacks of what each step begins with:
    they can be dropped in segments. The block runs so many times as `runs` says.
    """

    path: Path
    graph: Graph
    name: OpId
    scan: Scan
    sizes: Mapping[int, int]
    alone: Mapping[int, Recomputation]
    inputs: Mapping[int, int]
    refusals: tuple[Refusal, ...]
    runs: int

    @property
    def body(self) -> Graph:
        return self.graph.ops[self.scan.op].blocks[1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drop(StepParams):
    """Which stacks of a scan are dropped.

    Attributes:
        path, loop: the scan's block, from the entry function's, and its loop in it.
        dropped: the carries of the loop that are the stacks.
        stacks: all stacks of the loop, for people.
        steps: of the loop.
        segment: steps of a segment, where what each segment begins with is stored instead of each step; else 1.
    """

    path: Path
    loop: int
    dropped: tuple[int, ...]
    stacks: int
    steps: int
    segment: int = 1


class Rematerialise(Pass[Drop]):
    """The pass: finds the stacks of scans at the peak whose rows can be computed again where they are read."""

    name = "rematerialise"
    params_type = Drop

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
        """Candidates that drop ever more of each scan's stacks that are alive at the peak."""
        if goal.include_small_values:
            return
        for path in block_paths(graph):
            block = nested_graph(graph, path)
            for op in block.ops:
                scan = find_scan(block, op)
                found = _find(graph, path, scan, peak) if scan is not None else None
                if found is not None:
                    yield from found.refusals
                    yield from _candidates(found, goal)

    def describe(self, params: Drop) -> str:
        """How many stacks are dropped."""
        steps, segment = params.steps, params.segment
        stacks = f"{len(params.dropped)} of {params.stacks} stacks of a loop of {steps} steps"
        return stacks if segment == 1 else f"{stacks}, taken in {steps // segment} segments of {segment}"

    def apply(self, module: ir.Module, params: Drop) -> None:
        """Drops the stacks of a step and computes their rows again where they are read, in place."""
        graph = nested_graph(entry_graph(module), params.path)
        scan = _scan(graph, params.loop)
        dropped = params.dropped
        with module.context:
            if params.segment > 1:
                places = _places(entry_graph(module), (*params.path, (scan.op, 0)))
                _in_segments(graph, scan, dropped, params.segment)
                drop_dead_carries(module)
                *path, (loop, _) = _path_at(entry_graph(module), places)
                graph = nested_graph(entry_graph(module), tuple(path))
                scan = _scan(graph, loop)
                dropped = tuple(scan.rows)
            _Emission(graph, scan, dropped).run()
            drop_dead_carries(module)
        run_passes(module, "cse")


def _scan(graph: Graph, loop: int) -> Scan:
    scan = find_scan(graph, graph.ops[loop])
    if scan is None:
        raise ValueError("rematerialise: there is no such scan")
    return scan


def _places(graph: Graph, path: Path) -> Path:
    """A path by the numbers of its ops among the loops and branches of their blocks: other ops come and go."""
    places: list[tuple[int, int]] = []
    for op, block in path:
        places.append((_controls(graph).index(op), block))
        graph = graph.ops[op].blocks[block]
    return tuple(places)


def _path_at(graph: Graph, places: Path) -> Path:
    """The path of which these are the places."""
    path: list[tuple[int, int]] = []
    for place, block in places:
        path.append((_controls(graph)[place], block))
        graph = graph.ops[path[-1][0]].blocks[block]
    return tuple(path)


def _controls(graph: Graph) -> list[int]:
    return [op.index for op in graph.ops if CLASSES.get(op.name) is Class.CONTROL]


def _in_segments(graph: Graph, scan: Scan, stacks: Sequence[int], size: int) -> None:
    """Takes a scan in segments: the outer loop's stacks are those of segments of the given ones."""
    backward = find_backward(graph, scan, stacks)
    if isinstance(backward, Blocked):
        raise ValueError(f"rematerialise: {backward.message}")
    take_in_segments(graph, scan, backward, size)


def _find(main: Graph, path: Path, scan: Scan, peak: Peak) -> _Found | None:
    """The stacks of a scan at the peak, None if none is alive there."""
    graph = nested_graph(main, path)
    op, body = graph.ops[scan.op], graph.ops[scan.op].blocks[1]
    at_peak = {item.value: item.nbytes for item in peak.live if item.path == path}
    pairs = ((carry, at_peak.get(op.results[carry]) or at_peak.get(op.operands[carry])) for carry in scan.rows)
    live = {carry: nbytes for carry, nbytes in pairs if nbytes}
    if not live:
        return None
    name, source = op_id(main, path, op.index), graph.source(op.index)
    inputs = {carry: nbytes for carry, nbytes in live.items() if stored(body, scan.rows[carry]) in body.arguments}
    alone: dict[int, Recomputation] = {}
    refusals: list[Refusal] = []
    for carry in (carry for carry in live if carry not in inputs):
        value = op.results[carry]
        readers = find_readers(graph, value)
        how = readers if isinstance(readers, Blocked) else recompute(body, scan, [carry])
        if isinstance(how, Blocked):
            description = f"stack {graph.values[value]}"
            refusals.append(Refusal(name, description, live[carry], -1, how.code, how.message, source))
        else:
            alone[carry] = how
    sizes = {carry: live[carry] for carry in alone}
    return _Found(path, graph, name, scan, sizes, alone, inputs, tuple(refusals), block_runs(main, path))


def _candidates(found: _Found, goal: Goal) -> Iterator[Candidate]:
    """Sets of stacks to drop, the cheapest for their bytes first."""
    if not found.sizes and not found.inputs:
        return
    seconds = fused_seconds(found.body, goal.chip)
    order = sorted(found.sizes, key=lambda c: (_seconds(found, found.alone[c], seconds) / found.sizes[c], c))
    reached = list(itertools.accumulate(found.sizes[c] for c in order))
    lengths = {1 + bisect.bisect_left(reached, share * reached[-1]) for share in _SHARES if reached}
    for length in sorted(lengths):
        yield _candidate(found, order[:length], seconds)
    yield from _segmented(found, seconds)


def _seconds(found: _Found, again: Recomputation, seconds: Sequence[float]) -> float:
    """Time to compute the rows of all steps again."""
    return found.scan.steps * sum(seconds[op] for op in again.ops)


def _candidate(found: _Found, dropped: Sequence[int], seconds: Sequence[float]) -> Candidate:
    """A candidate that drops some stacks."""
    again = recompute(found.body, found.scan, dropped)
    assert isinstance(again, Recomputation)
    arguments = (found.body.values[found.body.arguments[c]] for c in again.carries)
    saved = sum(found.sizes[c] for c in dropped) - found.scan.steps * sum(v.nbytes for v in arguments)
    return _proposed(found, dropped, found.sizes, saved, _seconds(found, again, seconds))


def _segmented(found: _Found, seconds: Sequence[float]) -> Iterator[Candidate]:
    """The candidate that keeps what each segment begins with instead of each step."""
    steps, size = found.scan.steps, segment_length(found.scan.steps)
    stacks = list(found.inputs)
    if size == 1 or not stacks or isinstance(find_backward(found.graph, found.scan, stacks), Blocked):
        return
    total = sum(found.inputs.values())
    saved = total - total * (size + steps // size) // steps
    yield _proposed(found, stacks, found.inputs, saved, steps * sum(seconds), size)


def _proposed(
    found: _Found, dropped: Sequence[int], sizes: Mapping[int, int], saved: int, seconds: float, segment: int = 1
) -> Candidate:
    scan, loop = found.scan, found.graph.ops[found.scan.op]
    largest = max(dropped, key=lambda c: sizes[c])
    source = found.graph.source(scan.op)
    what = f"{found.graph.values[loop.results[largest]]}"
    more = f" and {len(dropped) - 1} more" if len(dropped) > 1 else ""
    params = Drop(
        path=found.path,
        loop=scan.op,
        dropped=tuple(sorted(dropped)),
        stacks=len(scan.rows),
        steps=scan.steps,
        segment=segment,
    )
    return Candidate(
        step=Step(Rematerialise.name, "", params),
        saved_bytes=saved,
        added_seconds=found.runs * seconds,
        numerics="exact",
        summary=f"compute stack {what}{more} again where rows are read",
        identity=(Rematerialise.name, found.path, scan.op, what),
        refusal_if_useless=Refusal(
            found.name, f"stack {what}", sizes[largest], -1, "no-gain", "computing it again frees nothing", source
        ),
    )


class _Emission:
    """The loop without some stacks, and their rows computed again."""

    def __init__(self, graph: Graph, scan: Scan, dropped: Sequence[int]):
        self.graph, self.scan, self.dropped = graph, scan, dropped
        self.loop = graph.ops[scan.op]
        self.body = self.loop.blocks[1]
        again = recompute(self.body, scan, dropped)
        if isinstance(again, Blocked):
            raise ValueError(f"rematerialise: {again.message}")
        self.again = again

    def run(self) -> None:
        sites = self.sites()
        handle = self.graph.handles[self.scan.op]
        outside = dict(zip(self.body.arguments, handle.operands, strict=True))
        outside.update({v: self.graph.mlir_values[f] for v, f in self.captured()})
        self.outside = {v: value for v, value in outside.items() if v not in self.changing()}
        self.results = self.with_inputs(handle)
        for (_, index), readers in sites.items():
            self.repeat(index, readers)

    def captured(self) -> Iterator[tuple[int, int]]:
        yield from zip(self.body.captured, self.body.captured_from, strict=True)

    def changing(self) -> set[int]:
        """The body's arguments that differ from step to step."""
        return {v for v, same in zip(self.body.arguments, self.scan.invariant, strict=True) if not same}

    def sites(self) -> dict[tuple[Path, Any], list[tuple[int, Any]]]:
        """The readers of dropped stacks, each with its stack: together those that read the same row."""
        found: dict[tuple[Path, Any], list[tuple[int, Any]]] = {}
        for carry in self.dropped:
            readers = find_readers(self.graph, self.loop.results[carry])
            if isinstance(readers, Blocked):
                raise ValueError(f"rematerialise: {readers.message}")
            for reader in readers:
                handle = self.handle(reader)
                found.setdefault((reader.path, handle.operands[1]), []).append((carry, handle))
        return found

    def handle(self, reader: Reader) -> Any:
        return nested_graph(self.graph, reader.path).handles[reader.op]

    def with_inputs(self, handle: Any) -> dict[int, Any]:
        """The loop with stacks of the carries that are needed: for each value of the body the stack it lies in."""
        steps = self.scan.steps
        arguments = {c: self.body.mlir_values[self.body.arguments[c]] for c in self.again.carries}
        with builders.building(handle, handle.location):
            types = [builders.retype(a.type, [steps, *a.type.shape]) for a in arguments.values()]
            added = [builders.broadcast_zeros(t) for t in types]
        new = with_carries(handle, [True] * len(self.loop.results), added) if added else handle
        body = new.regions[1].blocks[0]
        end = body.operations[len(body.operations) - 1].operation
        first = len(self.loop.results)
        for i, argument in enumerate(arguments.values()):
            with builders.building(end, new.location):
                row = builders.reshaped(argument, [1, *argument.type.shape])
                counter = body.arguments[self.scan.counter]
                end.operands[first + i] = builders.update_along(body.arguments[first + i], row, 0, counter)
        stacks = {self.body.arguments[c]: new.results[first + i] for i, c in enumerate(self.again.carries)}
        return {**stacks, **{value: new.results[carry] for carry, value in self.again.kept.items()}}

    def repeat(self, index: Any, readers: Sequence[tuple[int, Any]]) -> None:
        """Repeats the step of a row before the first of its readers, which are then no longer needed."""
        handles = [handle for _, handle in readers]
        first = next(h for h in handles if all(h == other or h.is_before_in_block(other) for other in handles))
        with builders.building(first, first.location):
            values = dict(self.outside)
            largest = builders.splat(index.type, self.scan.steps - 1)
            row = stablehlo.clamp(builders.zeros(index.type), index, largest)
            counter = self.body.mlir_values[self.body.arguments[self.scan.counter]]
            values[self.body.arguments[self.scan.counter]] = builders.convert(row, counter.type.element_type)
            for value, stack in self.results.items():
                values[value] = builders.reshaped(builders.slice_along(stack, 0, row, 1), self.body.values[value].shape)
            for op in self.again.ops:
                clone = _clone(self.body, op, values)
                values.update(zip(self.body.ops[op].results, clone.results, strict=True))
        for carry, handle in readers:
            with builders.building(handle, handle.location):
                part = _part(values[self.scan.rows[carry]], handle)
            handle.results[0].replace_all_uses_with(part)


def _part(row: Any, reader: Any) -> Any:
    """What a reader takes of a row: all of it, but for dimensions that a split has cut."""
    if row.type == reader.results[0].type:
        return row
    _, first, *starts = reader.operands
    return stablehlo.dynamic_slice(row, [builders.zeros(first.type), *starts], reader.attributes["slice_sizes"])


def _clone(body: Graph, op: int, values: dict[int, Any]) -> Any:
    """An op of a body on other values, what its regions use of the body's replaced likewise."""
    clone = body.handles[op].clone().operation
    builders.rebind(clone, {body.mlir_values[v]: values[v] for v in body.ops[op].inputs if v in values})
    return clone
