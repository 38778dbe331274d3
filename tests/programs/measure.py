"""Static against measured temporaries of a program: shared by the calibration benchmark and its tests."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
from jax.export import Exported, export
from jax.sharding import SingleDeviceSharding

from stablehlo_mem.frontend.program import Program as Ingested
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.pass_api.candidate import Options
from stablehlo_mem.passes import PASSES
from stablehlo_mem.planner.budget_loop import keep_budget
from stablehlo_mem.results.memory_profile import profile_module
from stablehlo_mem.rewriting.attention_pass import AttentionPass
from stablehlo_mem.targets.compile import refusal
from stablehlo_mem.targets.measurement import Measured, Refused
from stablehlo_mem.targets.target import Target, named_targets
from tests.programs.forward import Program

FLOOR_BYTES = 2**20
FLOOR_SHARE = 0.02
PLANNED_COMPILES = 6
COMPILER_OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "cpu": ({"xla_cpu_experimental_ynn_fusion_type": ""},),
    "cuda": ({}, {"xla_gpu_enable_triton_gemm": False}),
}
"""The scratch of XLA:CPU's YNN fusions is in no report: compared without them. XLA:GPU's autotuner chooses between
Triton and cuBLAS: the larger report counts."""

Share = float | Literal["min"]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Temporaries of one program on one target, in bytes. `measured_bytes` is None where the compiler said none."""

    static_bytes: int
    measured_bytes: int | None
    fixed_bytes: int

    @property
    def is_small(self) -> bool:
        """Whether both figures are too small to matter: under 1 MiB or 2% of arguments + outputs."""
        floor = max(FLOOR_BYTES, FLOOR_SHARE * self.fixed_bytes)
        return max(self.static_bytes, self.measured_bytes or 0) < floor

    @property
    def ratio(self) -> float | None:
        """static / measured, None if nothing was measured; infinite if the compiler uses no temporaries."""
        if self.measured_bytes is None:
            return None
        return self.static_bytes / self.measured_bytes if self.measured_bytes else float("inf")

    def holds(self, *, upper: float | None, lower: float = 0.9) -> bool:
        """Whether static is from `lower` to `upper` times the measured (None: no upper bound), or both small."""
        if self.is_small or self.ratio is None:
            return True
        return self.ratio >= lower and (upper is None or self.ratio <= upper)


def compare(program: Program, target_name: str) -> Comparison:
    """The program as it is."""
    target, exported, ingested = _prepare(program, target_name)
    return _compare(ingested.module, _measure(ingested, exported, target), target)


_KERNELS = ("pallas-attention", "squeeze-sums")
_LOOPS = tuple(one.name for one in PASSES if not isinstance(one, AttentionPass))


def compare_planned(program: Program, target_name: str, share: Share, *, kernels: bool = False) -> Comparison:
    """The program as planned for arguments + outputs + a share of its own temporaries, or for the least there is.

    In loops, or with `kernels` made for attention alone.
    """
    target, exported, ingested = _prepare(program, target_name)
    original = _compare(ingested.module, _measure(ingested, exported, target), target)
    budget = "min" if share == "min" else ingested.floor_bytes + int(share * (original.measured_bytes or 0))
    options = Options(max_compiles=PLANNED_COMPILES, passes=_KERNELS if kernels else _LOOPS)
    plan = keep_budget(ingested, budget, (target,), options)
    assert plan.exported is not None
    measured = plan.after.measured if _reports_once(target) else _measure(ingested, plan.exported, target)
    assert measured is not None
    return _compare(plan.module, measured, target)


def _prepare(program: Program, target_name: str) -> tuple[Target, Exported, Ingested]:
    function, specs = program
    (target,) = named_targets(target_name)
    exported = export(jax.jit(function), platforms=[target.platform])(*specs)
    return target, exported, ingest(exported)


def _compare(module: ir.Module, measured: Measured | Refused, target: Target) -> Comparison:
    static = profile_module(module, target.chip)
    fixed = static.argument_bytes + static.output_bytes
    return Comparison(static.temp_bytes, _temporaries(measured, fixed), fixed)


def _reports_once(target: Target) -> bool:
    """Whether the compiler has one report on a program, the one that plans have: with libtpu it takes seconds."""
    return target.platform not in COMPILER_OPTIONS


def _measure(program: Ingested, exported: Exported, target: Target) -> Measured | Refused:
    if _reports_once(target):
        return target.measure(program, program.module)
    sharding = SingleDeviceSharding(target.devices()[0])
    specs = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in exported.in_avals]
    positional, named = jax.tree.unflatten(exported.in_tree, specs)
    lowered = jax.jit(exported.call).lower(*positional, **named)
    try:
        reports = [_report(lowered.compile(options)) for options in COMPILER_OPTIONS[target.platform]]
    except jax.errors.JaxRuntimeError as error:
        return refusal(str(error), program.floor_bytes)
    return max(reports, key=lambda report: report.peak_bytes)


def _report(compiled: Any) -> Measured:
    analysis = compiled.memory_analysis()
    return Measured(
        argument_bytes=analysis.argument_size_in_bytes,
        output_bytes=analysis.output_size_in_bytes,
        temp_bytes=analysis.temp_size_in_bytes,
        alias_bytes=analysis.alias_size_in_bytes,
        constant_bytes=0,
    )


def _temporaries(measured: Measured | Refused, fixed_bytes: int) -> int | None:
    if isinstance(measured, Measured):
        return measured.temp_bytes
    return None if measured.needed_bytes is None else measured.needed_bytes - fixed_bytes
