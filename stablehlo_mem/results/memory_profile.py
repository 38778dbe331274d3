"""The memory profile of a whole module: `profile` returns it, plans hold it, the planner and the api make it."""

from __future__ import annotations

import dataclasses
from typing import Any

from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.peak_memory import Peak, lay_out
from stablehlo_mem.frontend.canonicalize import canonicalize
from stablehlo_mem.ir.bindings import clone_module, ir, is_splat_constant
from stablehlo_mem.ir.donation import donated_arguments
from stablehlo_mem.ir.graph import Graph, blocks_of, entry_graph, nested_graph
from stablehlo_mem.pass_api.candidate import Options
from stablehlo_mem.results.memory_history import History, LiveValue, build_history, live_value
from stablehlo_mem.results.memory_time_curve import CurvePoint
from stablehlo_mem.results.rendering import HasText, curve_of
from stablehlo_mem.targets.chips import Chip
from stablehlo_mem.targets.measurement import Measured, Refused
from stablehlo_mem.targets.target import Target


@dataclasses.dataclass(frozen=True)
class Origin:
    """The program that was profiled, in an immutable form that `optimize` takes, and the target."""

    program: Any
    target: Target


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryProfile(HasText):
    """The memory of one execution, in bytes: static estimates, and the compiler's figures if the program was compiled.

    Attributes:
        live: the values live at the peak, largest first.
        host_fixed_bytes, host_temp_bytes: what is in the host's memory, by the static profile: arguments + outputs −
            aliased, and the most there is of temporaries. All other figures are of the device's memory.
        point: the op at the peak and the user's source line.
        measured: the compiler's figures, `Refused`, or None if the program was not compiled.
        history: static memory over the program, None in a profile without it.
        origin: the program and the target it was profiled for, None in a profile read from a file.
    """

    argument_bytes: int
    output_bytes: int
    temp_bytes: int
    alias_bytes: int
    constant_bytes: int
    live: tuple[LiveValue, ...]
    point: str
    host_fixed_bytes: int = 0
    host_temp_bytes: int = 0
    measured: Measured | Refused | None = None
    history: History | None = None
    origin: Origin | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def static_peak_bytes(self) -> int:
        """Arguments + outputs + temporaries + constants − aliased, by the static profile."""
        return self.argument_bytes + self.output_bytes + self.temp_bytes + self.constant_bytes - self.alias_bytes

    @property
    def peak_bytes(self) -> int:
        """The compiler's figure where there is one, else arguments + outputs + temporaries + constants − aliased."""
        if isinstance(self.measured, Measured):
            return self.measured.peak_bytes
        if isinstance(self.measured, Refused) and self.measured.needed_bytes is not None:
            return self.measured.needed_bytes
        return self.static_peak_bytes

    @property
    def host_bytes(self) -> int:
        """Bytes in the host's memory: the compiler's figure where there is one."""
        if isinstance(self.measured, Measured):
            return self.measured.host_bytes
        return self.host_fixed_bytes + self.host_temp_bytes

    @property
    def devices(self) -> int:
        """The number of devices that the program is distributed over: all figures are those of one of them."""
        return getattr(self.origin.program, "nr_devices", 1) if self.origin is not None else 1

    def curve(self, options: Options | None = None) -> tuple[CurvePoint, ...]:
        """Which budgets are reachable, at what estimated time: `stablehlo_mem.curve` of the program profiled.

        Args:
            options: as in `optimize`.

        Raises:
            InputError: the profile does not hold its program: it is of an optimised program, or read from a file.
        """
        return curve_of(self, options)


def profile_module(module: ir.Module, chip: Chip) -> MemoryProfile:
    """The static profile of a module's main function on a chip; the module is not edited."""
    clone = clone_module(module)
    canonicalize(clone)
    return profile_graph(entry_graph(clone), chip)


def profile_graph(graph: Graph, chip: Chip) -> MemoryProfile:
    """The static profile of a canonicalised main function on a chip."""
    timeline, temporaries = lay_out(graph, chip)
    peak = timeline.peak(temporaries)
    sizes = list(map(compiler_model(chip).buffer_bytes, graph.values))
    arguments = sum(sizes[v] for v in graph.arguments)
    outputs = sum(sizes[v] for v in graph.returned)
    donated = [graph.returned[position] for position in donated_arguments(graph)]
    aliased, constants = sum(sizes[v] for v in donated), constant_bytes(graph)
    host_sizes = [value.host_bytes for value in graph.values]
    on_host = sum(host_sizes[v] for v in (*graph.arguments, *graph.returned)) - sum(host_sizes[v] for v in donated)
    return MemoryProfile(
        argument_bytes=arguments,
        output_bytes=outputs,
        temp_bytes=peak.temp_bytes,
        alias_bytes=aliased,
        constant_bytes=constants,
        live=tuple(live_value(graph, live) for live in peak.live),
        point=_point(graph, peak),
        host_fixed_bytes=on_host,
        host_temp_bytes=peak.host_bytes,
        history=build_history(graph, timeline, temporaries, arguments + outputs + constants - aliased),
    )


def constant_bytes(graph: Graph) -> int:
    """Bytes of the constants embedded in the program; splats take none."""
    return sum(
        block.values[op.results[0]].nbytes
        for block in blocks_of(graph)
        for op in block.ops
        if op.name == "stablehlo.constant" and not is_splat_constant(block.handles[op.index])
    )


def _point(graph: Graph, peak: Peak) -> str:
    block = nested_graph(graph, peak.path)
    name = block.ops[peak.op].name.partition(".")[2]
    return f"{name} at {block.source(peak.op)}".removesuffix(" at ")
