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

Refuses stacks that are read as a whole, and what the option leaves no room for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from stablehlo_mem.analysis.cost_model import fused_seconds
from stablehlo_mem.analysis.peak_memory import Peak
from stablehlo_mem.ir.bindings import ir, run_passes
from stablehlo_mem.ir.graph import Graph, OpPath, entry_graph, nested_graph
from stablehlo_mem.ir.trip_count import block_runs, likely_trips
from stablehlo_mem.pass_api.candidate import (
    Candidate,
    Goal,
    Refusal,
    Step,
    StepParams,
    and_others,
    prefix_lengths,
)
from stablehlo_mem.pass_api.pass_protocol import Pass
from stablehlo_mem.rewriting.host_stacks import Stack, find_stacks, read_from_host, write_to_host
from stablehlo_mem.rewriting.rewriting_pass import block_paths
from stablehlo_mem.utils.units import format_bytes

_PEAK_PER_STACK = 64
"""A stack smaller than the peak over this stays on the device: it frees little for the copies it takes (chosen)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OffloadedStacks(StepParams):
    """Which stacks lie in the host's memory.

    Attributes:
        stacks: the carries that are stacks, each with its loop.
        nbytes: of all of them, for people.
    """

    stacks: tuple[tuple[OpPath, int], ...]
    nbytes: int


class OffloadToHost(Pass[OffloadedStacks]):
    """The pass: finds stacks at the peak that can lie in the host's memory."""

    name = "offload-to-host"
    params_type = OffloadedStacks

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
        """Candidates that offload ever more of the stacks that are alive at the peak, the largest first."""
        if goal.options.host_bytes == 0 or not goal.chip.host_link_bytes_per_second:
            return
        stacks: list[Stack] = []
        for found in _stacks_at_peak(graph, peak):
            if isinstance(found, Refusal):
                yield found
            else:
                stacks.append(found)
        stacks = [s for s in stacks if s.nbytes * _PEAK_PER_STACK >= peak.temp_bytes]
        stacks.sort(key=lambda s: (-s.nbytes, s.path, s.loop, s.carry))
        room = goal.options.host_bytes - peak.host_bytes
        yield from (_no_room(graph, s, room) for s in stacks if s.nbytes > room)
        stacks = [s for s in stacks if s.nbytes <= room]
        for length in prefix_lengths((s.nbytes for s in stacks), peak.temp_bytes - goal.temp_bytes, room=room):
            yield _candidate(graph, stacks[:length], goal)

    def describe(self, params: OffloadedStacks) -> str:
        """How many stacks, and how large they are."""
        stacks = f"{len(params.stacks)} stack{'s' if len(params.stacks) > 1 else ''}"
        return f"{stacks} of {format_bytes(params.nbytes)} in the host's memory"

    def apply(self, module: ir.Module, params: OffloadedStacks) -> None:
        """Copies what is written to the host, and what is read to the device, in place."""
        main = entry_graph(module)
        stacks = [_stack(main, place, carry) for place, carry in params.stacks]
        for stack in stacks:
            write_to_host(main, stack.update)
        for read in (read for stack in stacks for read in stack.reads):
            read_from_host(main, read)
        run_passes(module, "canonicalize")


def _stack(main: Graph, place: OpPath, carry: int) -> Stack:
    path, loop = place
    found = find_stacks(main, path, nested_graph(main, path).ops[loop])
    return next(s for s in found if isinstance(s, Stack) and s.carry == carry)


def _stacks_at_peak(graph: Graph, peak: Peak) -> Iterator[Stack | Refusal]:
    """The stacks that are alive at the peak, and why some cannot be offloaded."""
    live = {(item.path, item.value) for item in peak.live}
    for path in block_paths(graph):
        for op in nested_graph(graph, path).ops:
            for found in find_stacks(graph, path, op) if op.name == "stablehlo.while" else ():
                carry = found.carry if isinstance(found, Stack) else found[0]
                if live.isdisjoint({(path, op.operands[carry]), (path, op.results[carry])}):
                    continue
                if isinstance(found, Stack):
                    yield found
                else:
                    value = nested_graph(graph, path).values[op.results[carry]]
                    code, message = found[1].code, found[1].message
                    yield Refusal.at(graph, (path, op.index), f"stored {value}", value.nbytes, code, message)


def _candidate(graph: Graph, stacks: Sequence[Stack], goal: Goal) -> Candidate:
    first, nbytes = stacks[0], sum(s.nbytes for s in stacks)
    place, value = (first.path, first.loop), _title(graph, first)
    more = and_others(len(stacks))
    params = OffloadedStacks(stacks=tuple(((s.path, s.loop), s.carry) for s in stacks), nbytes=nbytes)
    return Candidate(
        step=Step(OffloadToHost.name, "", params),
        saved_bytes=nbytes,
        added_seconds=sum(_waiting_seconds(graph, s, goal) for s in stacks),
        numerics="exact",
        summary=f"keep {value}{more} in the host's memory between the loops",
        identity=(OffloadToHost.name, *place, first.carry),
        refusal_if_useless=Refusal.at(graph, place, value, first.nbytes, "no-gain", "keeping it there frees nothing"),
    )


def _waiting_seconds(graph: Graph, stack: Stack, goal: Goal) -> float:
    """Time that loops wait for a stack: rows are written beside the work of a step, and read before it."""
    block = nested_graph(graph, stack.path)
    loop = block.ops[stack.loop]
    link = goal.chip.host_link_bytes_per_second
    writing = max(0.0, stack.row_bytes / link - sum(fused_seconds(loop.blocks[1], goal.chip)))
    seconds = block_runs(graph, stack.path) * likely_trips(block, loop) * writing
    return seconds + sum(block_runs(graph, read.copied_in) * read.nbytes / link for read in stack.reads)


def _no_room(graph: Graph, stack: Stack, room: int) -> Refusal:
    message = f"host_memory leaves room for {format_bytes(max(0, room))} in the host's memory"
    return Refusal.at(graph, (stack.path, stack.loop), _title(graph, stack), stack.nbytes, "host-memory-full", message)


def _title(graph: Graph, stack: Stack) -> str:
    block = nested_graph(graph, stack.path)
    return f"stored {block.values[block.ops[stack.loop].results[stack.carry]]}"
