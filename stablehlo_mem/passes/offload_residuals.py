"""offload-residuals: values of unrolled layers lie in the host's memory between the forward and the backward pass.

Before:
    %a = stablehlo.dot_general %x, %w
    ...                                        the layers after it, and their gradients
    %g = stablehlo.dot_general %a, %d
After:
    %a = stablehlo.dot_general %x, %w
    %h = stablehlo.custom_call @annotate_device_placement(%a) "pinned_host"
    ...
    %b = stablehlo.custom_call @annotate_device_placement(%h) "device"
    %g = stablehlo.dot_general %b, %d

The results are the same bit for bit. The copies stand where the estimate has them done, to the host, or begun, back:
`rewriting.hold_copies` makes compilers keep to that. Elementwise ops that only kernels of the backward pass compute
are moved there. Only under `Options(host_memory=...)`, which bounds the bytes there.

For CUDA: XLA:TPU drops barriers before it schedules, and starts all copies to the host when the forward pass is over.
JAX's own offload policy lowers no peak there either (docs/passes/offload_residuals.md has the figures). Refuses
nothing: leaves alone what is needed at the peak, what kernels on both sides of it compute from the value, and what the
option leaves no room for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from stablehlo_mem.analysis.peak_memory import Peak
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import Graph, entry_graph
from stablehlo_mem.ir.host_memory import placed
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Refusal, Step, StepParams, and_others, prefix_lengths
from stablehlo_mem.pass_api.pass_protocol import Pass
from stablehlo_mem.rewriting.residuals import Residual, copy_times, find_residual
from stablehlo_mem.utils.units import format_bytes

_PEAK_PER_VALUE = 64
"""A value smaller than the peak over this stays on the device: it frees little for the copies it takes (chosen)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OffloadedResiduals(StepParams):
    """Which values of main lie in the host's memory.

    Attributes:
        values: each one.
        stored, fetched: for each the op before which it is there, and that before which it is copied back.
        late: for each the ops that read the copy.
        moved: ops, each with the op before which it is moved.
        nbytes: of all of them, for people.
    """

    values: tuple[int, ...]
    stored: tuple[int, ...]
    fetched: tuple[int, ...]
    late: tuple[tuple[int, ...], ...]
    moved: tuple[tuple[int, int], ...]
    nbytes: int


class OffloadResiduals(Pass[OffloadedResiduals]):
    """The pass: finds values that wait at the peak for what comes after it."""

    name = "offload-residuals"
    params_type = OffloadedResiduals
    kinds = frozenset({"cuda"})

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
        """Candidates that offload ever more of the values that wait at the peak, the longest waiting first."""
        if goal.options.host_bytes == 0 or not goal.chip.host_link_bytes_per_second:
            return
        place = peak.path[0][0] if peak.path else peak.op
        large = (item for item in peak.live if item.path == () and item.nbytes * _PEAK_PER_VALUE >= peak.temp_bytes)
        found = [find_residual(graph, item.value, place, goal.chip) for item in large]
        residuals = sorted((r for r in found if r is not None), key=lambda r: (r.last - r.first, r.value))
        sizes, room = (r.nbytes for r in residuals), goal.options.host_bytes - peak.host_bytes
        for length in prefix_lengths(sizes, peak.temp_bytes - goal.temp_bytes, room=room):
            yield _candidate(graph, residuals[:length], place, goal)

    def describe(self, params: OffloadedResiduals) -> str:
        """How many values, and how large they are."""
        count = len(params.values)
        return f"{count} value{'s' * (count > 1)} of {format_bytes(params.nbytes)} in the host's memory"

    def apply(self, module: ir.Module, params: OffloadedResiduals) -> None:
        """Copies the values to the host and back, in place."""
        graph = entry_graph(module)
        for value, stored, fetched, late in zip(params.values, params.stored, params.fetched, params.late, strict=True):
            old = graph.mlir_values[value]
            location = graph.handles[graph.values[value].producer].location
            with builders.building(graph.handles[stored], location):
                on_host = placed(old, "pinned_host")
            with builders.building(graph.handles[fetched], location):
                copy = placed(on_host, "device")
            for op in late:
                builders.rebind(graph.handles[op], {old: copy})
        for op, before in params.moved:
            graph.handles[op].move_before(graph.handles[before])


def _candidate(graph: Graph, residuals: Sequence[Residual], place: int, goal: Goal) -> Candidate:
    first, nbytes = residuals[0], sum(r.nbytes for r in residuals)
    copied = copy_times(graph, residuals, place, goal.chip)
    refusal = Refusal.of_value(graph, (), first.value, "no-gain", "keeping it in the host's memory frees nothing")
    params = OffloadedResiduals(
        values=tuple(r.value for r in residuals),
        stored=copied.stored,
        fetched=copied.fetched,
        late=tuple(r.late for r in residuals),
        moved=tuple(sorted({move for r in residuals for move in r.moved})),
        nbytes=nbytes,
    )
    return Candidate(
        step=Step(OffloadResiduals.name, "", params),
        saved_bytes=nbytes,
        added_seconds=copied.waiting_seconds,
        numerics="exact",
        summary=f"keep {refusal.value}{and_others(len(residuals))} in the host's memory until it is used again",
        identity=(OffloadResiduals.name, first.value),
        refusal_if_useless=refusal,
    )
