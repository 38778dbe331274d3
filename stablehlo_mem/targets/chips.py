"""The chips and their figures: plain data, which the analyses, the passes and the planner read.

A chip names its compiler by `kind`. How the compiler is reached is in `targets.devices`, what it does to a program in
`analysis.compilers`.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

Kind = Literal["cpu", "cuda", "tpu"]
"""The compilers, by the name that an Exported has for the platform. A chip of kind "cpu" is the host itself."""

_GB = 10**9
_GIB = 2**30
_MIB = 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chip:
    """A chip, for the static analyses. What is 0 or 1 by default costs nothing, or does not matter.

    Attributes:
        name: e.g. "tpu:v5e".
        kind: the compiler that serves it, by the name that an Exported has for the platform.
        memory_bytes: device memory, 0 for "whatever the host has".
        flops_per_second: dense float32 matmul rate.
        half_flops_per_second: dense matmul rate of bfloat16 and narrower floats; 0 where it is that of float32.
        bytes_per_second: memory bandwidth.
        link_bytes_per_second: bandwidth to other devices of the same mesh, in one direction.
        step_seconds: overhead of one loop iteration.
        cache_bytes: bytes of the intermediates of one iteration up to which a loop is as fast as it gets. On CPU three
            eighths of the shared cache: what else an iteration reads and writes needs the rest.
        cores: that share out the rows of a kernel.
        lanes: elements of the innermost dimension that a kernel computes at a time; fewer take as long.
        packed_rows: rows of one operand of a matmul at which packing the other operand takes as long as the arithmetic,
            so that the matmul takes twice the time. An operand is packed as a whole, however few rows the other has.
        transposed_rows: rows to add to that if the left operand lies transposed, or the right one does too.
        reduced_seconds: overhead of each result of a reduction, whatever its length: XLA:CPU starts a kernel for each.
        unit_sum_seconds: overhead of each element of a sum of products over a dimension of one element: XLA:CPU
            compiles a dot for each row.
        unseen_bytes: scratch that is in no compiler's report: XLA:CPU's matmuls pack tiles. The search leaves room.
    """

    name: str
    kind: Kind
    memory_bytes: int
    flops_per_second: float
    bytes_per_second: float
    step_seconds: float
    link_bytes_per_second: float = 0.0
    half_flops_per_second: float = 0.0
    cache_bytes: int = 0
    cores: int = 1
    lanes: int = 1
    packed_rows: int = 0
    transposed_rows: int = 0
    reduced_seconds: float = 0.0
    unit_sum_seconds: float = 0.0
    unseen_bytes: int = 0

    def __hash__(self) -> int:
        return hash((self.name, self.memory_bytes))

    @property
    def fastest_flops_per_second(self) -> float:
        """The dense matmul rate of the dtype with the highest."""
        return max(self.flops_per_second, self.half_flops_per_second)

    def matmul_rate(self, itemsize: float) -> float:
        """FLOPs per second of matmuls of floats of so many bytes."""
        return self.half_flops_per_second if itemsize <= 2 and self.half_flops_per_second else self.flops_per_second


_CPU = Chip(
    name="cpu",
    kind="cpu",
    memory_bytes=0,
    flops_per_second=1e11,
    bytes_per_second=2e10,
    link_bytes_per_second=2e10,
    step_seconds=2e-6,
    cache_bytes=12 * _MIB,
    packed_rows=24,
    transposed_rows=75,
    cores=2,
    lanes=32,
    reduced_seconds=4e-9,
    unit_sum_seconds=1.5e-8,
    unseen_bytes=_MIB,
)
"""A typical server with two cores. `calibrate` measures most of these figures on the user's machine. The others
(`packed_rows`, `transposed_rows`, `lanes`, `unit_sum_seconds`) were chosen to match timings on such a server."""
_STEP_SECONDS: dict[Kind, float] = {"cuda": 2e-5, "tpu": 1e-5}
"""Overhead of a loop iteration on accelerators: rough figures, not measured. On CUDA it is a few kernel launches."""


def _accelerator(
    kind: Kind, name: str, memory_bytes: int, flops: float, half: float, bandwidth: float, link: float
) -> Chip:
    """A chip with its published memory, bandwidths and dense bfloat16 rate, and a rough rate of float32 matmuls.

    The link is NVLink's or the interchip interconnect's, half of the published figure that counts both directions.

    Published: NVIDIA's data sheets of the H200, H100 SXM and A100 80GB SXM; the pages of TPU versions in Google Cloud's
    documentation. For CUDA the float32 rate is near the published one. For TPU none is published: several passes in
    bfloat16 make it, and it is taken for about a quarter.
    """
    return Chip(
        name=f"{kind}:{name}",
        kind=kind,
        memory_bytes=memory_bytes,
        flops_per_second=flops,
        half_flops_per_second=half,
        bytes_per_second=bandwidth,
        link_bytes_per_second=link,
        step_seconds=_STEP_SECONDS[kind],
    )


CHIPS: dict[str, Chip] = {
    chip.name: chip
    for chip in (
        _CPU,
        _accelerator("cuda", "h200", 141 * _GB, flops=6e13, half=9.89e14, bandwidth=4.8e12, link=4.5e11),
        _accelerator("cuda", "h100", 80 * _GB, flops=6e13, half=9.89e14, bandwidth=3.35e12, link=4.5e11),
        _accelerator("cuda", "a100", 80 * _GB, flops=1.9e13, half=3.12e14, bandwidth=2.0e12, link=3e11),
        _accelerator("tpu", "v5e", 16 * _GIB, flops=5e13, half=1.97e14, bandwidth=8.2e11, link=1e11),
        _accelerator("tpu", "v6e", 32 * _GIB, flops=2e14, half=9.18e14, bandwidth=1.6e12, link=2.24e11),
        _accelerator("tpu", "v5p", 95 * _GIB, flops=1e14, half=4.59e14, bandwidth=2.8e12, link=3e11),
    )
}
"""All chips by name; the first of a kind stands for the kind where no device is attached."""
