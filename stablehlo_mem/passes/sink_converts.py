"""sink-converts: a value that a loop reads slice by slice is converted slice by slice in the loop, not whole before it.

Before, a scan over layers; a TPU makes a bfloat16 copy of all of %weights before the loop:
    %w = stablehlo.dynamic_slice %weights, %i, ... : tensor<1x1024x4096xf32>
    %y = stablehlo.dot_general %x, %w
After:
    %w = stablehlo.dynamic_slice %weights, %i, ... : tensor<1x1024x4096xf32>
    %b = stablehlo.bitcast_convert %w : tensor<1x1024x4096xui32>
    %c = stablehlo.optimization_barrier %b : tensor<1x1024x4096xui32>
    %v = stablehlo.bitcast_convert %c : tensor<1x1024x4096xf32>
    %y = stablehlo.dot_general %x, %v

XLA:TPU multiplies in bfloat16 and moves the converts that this needs out of loops, past slices and barriers, but not
past a barrier of bits. The same numbers are multiplied. Only for TPUs.

Refuses nothing. Leaves alone what a loop reads whole: it would be converted whole in every step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.fusion_classes import data_source
from stablehlo_mem.analysis.op_cost import vector_seconds
from stablehlo_mem.analysis.peak_memory import Peak
from stablehlo_mem.ir.bindings import ir, is_constant, stablehlo
from stablehlo_mem.ir.builders import building, tensor
from stablehlo_mem.ir.graph import Graph, Op, OpPath, Path, entry_graph, nested_graph
from stablehlo_mem.ir.loop_carries import unchanged
from stablehlo_mem.ir.trip_count import block_runs
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Refusal, Step, StepParams, and_others
from stablehlo_mem.pass_api.pass_protocol import Pass


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeldSlices(StepParams):
    """The slices that are put behind barriers."""

    slices: tuple[OpPath, ...]


class SinkConverts(Pass[HeldSlices]):
    """The pass: finds slices of what loops do not change and a TPU converts before them."""

    name = "sink-converts"
    params_type = HeldSlices

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
        """A candidate for each loop around the peak, or at it, before which something is converted."""
        if not compiler_model(goal.chip).hoists_operand_converts:
            return
        for path, index in peak.ops_around:
            block = nested_graph(graph, path)
            copied = set(compiler_model(goal.chip).copied_before_loop(block, block.ops[index]))
            slices = dict(_slices(block, path, block.ops[index], copied))
            if slices:
                yield _candidate(graph, (path, index), slices, goal)

    def describe(self, params: HeldSlices) -> str:
        """The pass, and of how many slices."""
        return f"{self.name} of {len(params.slices)} slices"

    def apply(self, module: ir.Module, params: HeldSlices) -> None:
        """Puts a barrier of bits after each slice, in place."""
        main = entry_graph(module)
        for handle in [nested_graph(main, path).handles[op] for path, op in params.slices]:
            _hold(handle)


def _slices(block: Graph, path: Path, loop: Op, copied: set[int]) -> Iterator[tuple[OpPath, int]]:
    """The slices, in a loop and the loops in it, of values around it that are copied; each with its value."""
    if loop.name != "stablehlo.while" or not copied:
        return
    body, inner = loop.blocks[1], (*path, (loop.index, 1))
    sources = {v: data_source(block, outer) for v, outer in unchanged(loop, 1).items()}
    sources = {v: source for v, source in sources.items() if source in copied}
    for op in body.ops:
        if op.name == "stablehlo.dynamic_slice" and _moves(body, loop, op):
            source = sources.get(data_source(body, op.operands[0]))
            if source is not None:
                yield (inner, op.index), source
        yield from ((slice_, sources[v]) for slice_, v in _slices(body, inner, op, set(sources)))


def _moves(body: Graph, loop: Op, slice_: Op) -> bool:
    """Whether a loop takes another slice in each step: the compiler moves an invariant one out of it."""
    starts = [v for v in slice_.operands[1:] if not is_constant(body.mlir_values[v])]
    return not set(starts) <= unchanged(loop, 1).keys()


def _candidate(graph: Graph, loop: OpPath, slices: dict[OpPath, int], goal: Goal) -> Candidate:
    path, index = loop
    block = nested_graph(graph, path)
    sliced = [block.values[v] for v in sorted(set(slices.values()))]
    largest = max(sliced, key=lambda v: v.nbytes)
    more = and_others(len(sliced))
    seconds = 0.0
    for inner, op in slices:
        body = nested_graph(graph, inner)
        nbytes = body.values[body.ops[op].results[0]].nbytes
        seconds += block_runs(graph, inner) * vector_seconds(0, nbytes, goal.chip)
    copy, message = f"bfloat16 copy of {largest}", "converting its slices in the loop frees nothing"
    return Candidate(
        step=Step(SinkConverts.name, "", HeldSlices(slices=tuple(slices))),
        saved_bytes=sum(v.nbytes for v in sliced) // 2,
        added_seconds=seconds,
        numerics="exact",
        summary=f"convert {largest}{more} slice by slice inside the loop that reads it, without a converted copy",
        identity=(SinkConverts.name, path, index),
        refusal_if_useless=Refusal.at(graph, loop, copy, largest.nbytes // 2, "no-gain", message),
    )


def _hold(old: Any) -> None:
    """Puts a slice behind a barrier of bits."""
    with building(old, old.location):
        new = old.clone().results[0]
        bits = tensor(new.type.shape, ir.IntegerType.get_unsigned(32))
        held = stablehlo.OptimizationBarrierOp([stablehlo.bitcast_convert(bits, new)]).results[0]
        value = stablehlo.bitcast_convert(new.type, held)
    old.results[0].replace_all_uses_with(value)
    old.erase()
