"""Static against measured temporaries of a program: shared by the calibration benchmark and its tests."""

from __future__ import annotations

import dataclasses

import jax
from jax.export import export

from stablehlo_mem.ingest import ingest
from stablehlo_mem.memory import Measured, MemoryProfile
from stablehlo_mem.module_profile import profile_module
from stablehlo_mem.targets.target import named_targets
from tests.programs.forward import Program

FLOOR_BYTES = 2**20
FLOOR_SHARE = 0.02


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

    def holds(self, *, upper: float | None) -> bool:
        """Whether the static figure is from 0.9 to `upper` times the measured (None: no upper bound), or both small."""
        if self.is_small or self.ratio is None:
            return True
        return self.ratio >= 0.9 and (upper is None or self.ratio <= upper)


def compare(program: Program, target_name: str) -> Comparison:
    function, specs = program
    (target,) = named_targets(target_name)
    ingested = ingest(export(jax.jit(function), platforms=[target.platform])(*specs))
    static = profile_module(ingested.module, target.chip)
    measured = target.measure(ingested, ingested.module)
    fixed = static.argument_bytes + static.output_bytes
    return Comparison(static.temp_bytes, _temporaries(static, measured), fixed)


def _temporaries(static: MemoryProfile, measured: object) -> int | None:
    if isinstance(measured, Measured):
        return measured.temp_bytes
    needed = getattr(measured, "needed_bytes", None)
    return None if needed is None else needed - static.argument_bytes - static.output_bytes
