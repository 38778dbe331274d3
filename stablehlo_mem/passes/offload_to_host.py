"""offload-to-host: what a scan stores for a later loop lies in the host's memory between the two.

Before, a scan over layers and its gradient:
    loop:     %s1 = stablehlo.dynamic_update_slice %s0, %row, %i, ...
    ...
    backward: %row = stablehlo.dynamic_slice %stack, %j, ...
After:
    loop:     %h = stablehlo.custom_call @annotate_device_placement(%row) "pinned_host"
              %s1 = stablehlo.dynamic_update_slice %s0, %h, %i, ...
    ...
    backward: %h = stablehlo.dynamic_slice %stack, %j, ...
              %row = stablehlo.custom_call @annotate_device_placement(%h) "device"

XLA allocates the stack in the host's memory, and copies rows there and back beside the work of the loops. The results
are the same bit for bit. Only under `Options(host_memory=...)`, which bounds the bytes there.

Refuses stacks that are read as a whole, chips without another memory, and what the option leaves no room for.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from stablehlo_mem.analysis.cost_model import fused_seconds
from stablehlo_mem.analysis.peak_memory import Peak
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph, Op, Path, entry_graph, nested_graph
from stablehlo_mem.ir.host_memory import placed
from stablehlo_mem.ir.matchers import splat_number, splat_truth_of
from stablehlo_mem.ir.trip_count import block_runs, likely_trips
from stablehlo_mem.pass_api.candidate import Candidate, Goal, OpPath, Refusal, Step, StepParams
from stablehlo_mem.pass_api.pass_protocol import Pass
from stablehlo_mem.rewriting.rewriting_pass import block_paths
from stablehlo_mem.rewriting.scan_stacks import SLICED, Reader, find_readers, is_part
from stablehlo_mem.utils.units import format_bytes

_SHARES = (0.25, 0.5, 0.75, 1.0)
"""Candidates offload at least so much of what can be offloaded: a few for the planner to choose from."""

_PEAK_PER_STACK = 64
"""A stack smaller than the peak over this stays on the device: it frees little for the copies it takes (chosen)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OffloadedStacks(StepParams):
    """Which stacks lie in the host's memory.

    Attributes:
        updates: the ops that write to them.
        slices: the ops that read them.
        nbytes: of all of them, for people.
    """

    updates: tuple[OpPath, ...]
    slices: tuple[OpPath, ...]
    nbytes: int


@dataclasses.dataclass(frozen=True)
class Stack:
    """A carry to which a loop only writes slices, and of which only slices are read afterwards.

    Attributes:
        path, loop, carry: the loop's block from the entry function's, the loop in it, and the carry.
        update: the op of the loop's body that writes.
        slices: the ops that read.
        nbytes: of the stack.
        slice_bytes: of what one step writes.
    """

    path: Path
    loop: int
    carry: int
    update: OpPath
    slices: tuple[OpPath, ...]
    nbytes: int
    slice_bytes: int


class OffloadToHost(Pass[OffloadedStacks]):
    """The pass: finds stacks at the peak that can lie in the host's memory."""

    name = "offload-to-host"
    params_type = OffloadedStacks

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
        """Candidates that offload ever more of the stacks that are alive at the peak, the largest first."""
        if goal.options.host_bytes == 0 or goal.include_small_values:
            return
        if not goal.chip.host_link_bytes_per_second:
            yield from _without_second_memory(graph, peak, goal)
            return
        stacks: list[Stack] = []
        for found in _stacks_at_peak(graph, peak):
            if isinstance(found, Refusal):
                yield found
            else:
                stacks.append(found)
        stacks = [s for s in stacks if s.nbytes * _PEAK_PER_STACK >= peak.temp_bytes]
        stacks.sort(key=lambda s: (-s.nbytes, s.update))
        room = goal.options.host_bytes - peak.host_bytes
        yield from (_no_room(graph, s, room) for s in stacks if s.nbytes > room)
        yield from _prefixes(graph, [s for s in stacks if s.nbytes <= room], peak, goal, room)

    def describe(self, params: OffloadedStacks) -> str:
        """How many stacks, and how large they are."""
        stacks = f"{len(params.updates)} stack{'s' if len(params.updates) > 1 else ''}"
        return f"{stacks} of {format_bytes(params.nbytes)} in the host's memory"

    def apply(self, module: ir.Module, params: OffloadedStacks) -> None:
        """Copies what is written to the host, and what is read to the device, in place."""
        main = entry_graph(module)
        updates = [(nested_graph(main, path[:-1]), path[-1][0], op) for path, op in params.updates]
        slices = [nested_graph(main, path).handles[op] for path, op in params.slices]
        for graph, loop, op in updates:
            _write_to_host(graph, graph.ops[loop], op)
        for handle in slices:
            _read_from_host(handle)


def _without_second_memory(graph: Graph, peak: Peak, goal: Goal) -> Iterator[Refusal]:
    message = f"{goal.chip.name} has no memory beside the one it computes in: nothing can be kept elsewhere"
    for live in peak.live[:1]:
        block = nested_graph(graph, live.path)
        producer = block.values[live.value].producer
        place = (live.path, max(0, producer))
        yield Refusal.at(graph, place, str(block.values[live.value]), live.nbytes, "no-host-memory", message)


def _stacks_at_peak(graph: Graph, peak: Peak) -> Iterator[Stack | Refusal]:
    """The stacks that are alive at the peak, and why some cannot be offloaded."""
    live = {(item.path, item.value) for item in peak.live}
    for path in block_paths(graph):
        block = nested_graph(graph, path)
        for loop in (op for op in block.ops if op.name == "stablehlo.while"):
            for carry, values in enumerate(zip(loop.operands, loop.results, strict=True)):
                if any((path, value) in live for value in values):
                    yield from _stack(graph, path, loop, carry)


def _stack(main: Graph, path: Path, loop: Op, carry: int) -> Iterator[Stack | Refusal]:
    """The stack that a carry is, or why it cannot be offloaded; nothing if it is no stack."""
    block, body = nested_graph(main, path), loop.blocks[1]
    update = _only_update(loop, carry)
    if update is None or not _is_filled(block.mlir_values[loop.operands[carry]]):
        return
    result = block.values[loop.results[carry]]
    readers = find_readers(block, result.index, is_part)
    if isinstance(readers, Blocked):
        place = (path, loop.index)
        yield Refusal.at(main, place, f"stack {result}", result.nbytes, readers.code, readers.message)
    elif readers:
        yield Stack(
            path=path,
            loop=loop.index,
            carry=carry,
            update=((*path, (loop.index, 1)), update.index),
            slices=tuple(_read_through(block, path, readers)),
            nbytes=result.nbytes,
            slice_bytes=body.values[update.operands[1]].nbytes,
        )


def _read_through(block: Graph, path: Path, readers: Sequence[Reader]) -> Iterator[OpPath]:
    """The last slices of those that a stack of a block is read through."""
    for reader in readers:
        for op in _last_slices(nested_graph(block, reader.path), reader.op):
            yield (*path, *reader.path), op


def _last_slices(graph: Graph, op: int) -> Iterator[int]:
    """The slices that an op's elements are read through: itself, or those that alone read its result."""
    result = graph.ops[op].results[0]
    users = [graph.ops[user] for user in graph.users[result]]
    if users and all(user.name in SLICED and user.operands[0] == result for user in users):
        for user in users:
            yield from _last_slices(graph, user.index)
    else:
        yield op


def _is_filled(value: Any) -> bool:
    """Whether a value is a constant that repeats a number or a truth."""
    return splat_number(value) is not None or splat_truth_of(value) is not None


def _only_update(loop: Op, carry: int) -> Op | None:
    """The op that writes slices to a carry, if the loop does nothing else with it."""
    condition, body = loop.blocks
    argument = body.arguments[carry]
    update = body.producer(body.returned[carry])
    if update is None or update.name != "stablehlo.dynamic_update_slice" or update.operands[0] != argument:
        return None
    is_only_use = body.users[argument] == (update.index,) and update.operands.count(argument) == 1
    is_handed_on = body.users[update.results[0]] == (len(body.ops) - 1,) and body.returned.count(update.results[0]) == 1
    return update if is_only_use and is_handed_on and not condition.users[condition.arguments[carry]] else None


def _prefixes(graph: Graph, stacks: Sequence[Stack], peak: Peak, goal: Goal, room: int) -> Iterator[Candidate]:
    """Candidates with the first stacks: shares of their bytes, and just enough for what is over the goal."""
    reached = list(itertools.accumulate(s.nbytes for s in stacks))
    reached = reached[: bisect.bisect_right(reached, room)]
    if reached:
        aims = [*(share * reached[-1] for share in _SHARES), peak.temp_bytes - goal.temp_bytes]
        lengths = {1 + bisect.bisect_left(reached, aim) for aim in aims if aim <= reached[-1]}
        yield from (_candidate(graph, stacks[:length], goal) for length in sorted(lengths))


def _candidate(graph: Graph, stacks: Sequence[Stack], goal: Goal) -> Candidate:
    first, nbytes = stacks[0], sum(s.nbytes for s in stacks)
    place, value = (first.path, first.loop), _title(graph, first)
    more = f" and {len(stacks) - 1} more" if len(stacks) > 1 else ""
    updates, slices = tuple(s.update for s in stacks), tuple(p for s in stacks for p in s.slices)
    return Candidate(
        step=Step(OffloadToHost.name, "", OffloadedStacks(updates=updates, slices=slices, nbytes=nbytes)),
        saved_bytes=nbytes,
        added_seconds=sum(_waiting_seconds(graph, s, goal) for s in stacks),
        numerics="exact",
        summary=f"keep {value}{more} in the host's memory",
        identity=(OffloadToHost.name, *place, first.carry),
        refusal_if_useless=Refusal.at(graph, place, value, first.nbytes, "no-gain", "keeping it there frees nothing"),
    )


def _waiting_seconds(graph: Graph, stack: Stack, goal: Goal) -> float:
    """Time that loops wait for a stack: rows are written beside the work of a step, and read before it."""
    block = nested_graph(graph, stack.path)
    loop = block.ops[stack.loop]
    link = goal.chip.host_link_bytes_per_second
    writing = max(0.0, stack.slice_bytes / link - sum(fused_seconds(loop.blocks[1], goal.chip)))
    seconds = block_runs(graph, stack.path) * likely_trips(block, loop) * writing
    for path, op in stack.slices:
        body = nested_graph(graph, path)
        seconds += block_runs(graph, path) * body.values[body.ops[op].results[0]].nbytes / link
    return seconds


def _no_room(graph: Graph, stack: Stack, room: int) -> Refusal:
    message = f"host_memory leaves room for {format_bytes(max(0, room))} in the host's memory"
    return Refusal.at(graph, (stack.path, stack.loop), _title(graph, stack), stack.nbytes, "host-memory-full", message)


def _title(graph: Graph, stack: Stack) -> str:
    block = nested_graph(graph, stack.path)
    return f"stack {block.values[block.ops[stack.loop].results[stack.carry]]}"


def _write_to_host(graph: Graph, loop: Op, op: int) -> None:
    """Copies what an op writes to a carry, which then begins as a constant of its own: no other value shares it."""
    body, handle = loop.blocks[1], graph.handles[loop.index]
    update, carry = body.handles[op], body.returned.index(body.ops[op].results[0])
    with builders.building(handle, handle.location):
        handle.operands[carry] = handle.operands[carry].owner.clone().results[0]
    with builders.building(update, update.location):
        update.operands[1] = placed(update.operands[1], "pinned_host")


def _read_from_host(old: Any) -> None:
    """Copies what an op reads to the device."""
    with builders.building(old, old.location):
        copied = placed(old.clone().results[0], "device")
    old.results[0].replace_all_uses_with(copied)
    old.erase()
