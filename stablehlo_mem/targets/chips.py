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
        rounds_operands: whether matmuls of float32 take their operands as bfloat16 and run at that rate, unless a
            higher precision is asked for.
        vector_flops_per_second: rate of elementwise arithmetic; 0 where it is a share of the matmul rate
            (`cost_model.VECTOR_SHARE`).
        bytes_per_second: memory bandwidth.
        link_bytes_per_second: bandwidth to other devices of the same mesh, in one direction.
        host_link_bytes_per_second: bandwidth to the host's memory, in one direction; 0 where there is no other memory.
        step_seconds: overhead of one loop iteration.
        launch_seconds: to start a kernel; 0 where kernels are not counted one by one.
        on_chip_bytes: of the memory on the chip, an L2 cache or a VMEM, in which values stay between the kernels that
            write and read them; 0 where `cache_bytes` says it. It is `on_chip_speedup` times as fast as memory.
        on_chip_value_bytes: of the largest value that stays there.
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
    host_link_bytes_per_second: float = 0.0
    half_flops_per_second: float = 0.0
    rounds_operands: bool = False
    vector_flops_per_second: float = 0.0
    launch_seconds: float = 0.0
    on_chip_bytes: int = 0
    on_chip_value_bytes: int = 0
    on_chip_speedup: float = 1.0
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
        """FLOPs per second of matmuls of floats of so many bytes, at the default precision."""
        is_half = itemsize <= (4 if self.rounds_operands else 2) and self.half_flops_per_second
        return self.half_flops_per_second if is_half else self.flops_per_second


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


_LINKS = {"h200": 4.5e11, "h100": 4.5e11, "a100": 3e11, "v5e": 1e11, "v6e": 2.24e11, "v5p": 3e11}
"""Bytes per second of NVLink and of the interchip interconnect, one direction: half of what the same sources publish,
which count both."""

_HOST_LINKS = {"h200": 5e10, "h100": 5e10, "a100": 2.5e10, "v5e": 1.6e10, "v6e": 1.6e10, "v5p": 1.6e10}
"""Bytes per second of the link to the host, one direction, as copies reach them. GPUs: about four fifths of what 16
lanes of PCIe have in the generation of the data sheets, 64 and 32 GB/s. TPU v5e: 16 lanes of PCIe 3, as users measured
(https://github.com/jax-ml/jax/issues/28988); nothing is published of the others, which are taken for as slow."""


def _cuda(
    name: str, memory_bytes: int, flops: float, half: float, bandwidth: float, vector: float, l2_bytes: int
) -> Chip:
    """A GPU with its published memory, bandwidth, matmul rates and L2 cache: NVIDIA's data sheets of the H200, H100 SXM
    and A100 80GB SXM.

    float32 matmuls have the rate of full precision. JAX's default precision allows TF32, which is several times
    faster, so that recomputing them is less dear than estimated. The rate of elementwise operations is that of all
    lanes at the boost clock. A value stays in the L2 cache if it has at most half of it, beside the value that is
    made of it; the cache has about twice the bandwidth of the memory. A kernel of a CUDA graph takes some 2 us to
    start. A step has about one kernel that the program does not show: a slice or an update that does not fuse (seen
    in compiled programs).
    """
    return Chip(
        name=f"cuda:{name}",
        kind="cuda",
        memory_bytes=memory_bytes,
        flops_per_second=flops,
        half_flops_per_second=half,
        vector_flops_per_second=vector,
        bytes_per_second=bandwidth,
        link_bytes_per_second=_LINKS[name],
        host_link_bytes_per_second=_HOST_LINKS[name],
        step_seconds=2e-6,
        launch_seconds=2e-6,
        on_chip_bytes=l2_bytes,
        on_chip_value_bytes=l2_bytes // 2 - _MIB,
        on_chip_speedup=2.0,
    )


def _tpu(name: str, memory_bytes: int, flops: float, half: float, bandwidth: float, vmem_bytes: int) -> Chip:
    """A TPU with its published memory, bandwidth and dense bfloat16 rate: Google Cloud's documentation.

    Its float32 matmuls round operands to bfloat16 by default; `flops` is the rate of those that do not, several passes
    in bfloat16, taken for about a quarter. A value stays in VMEM if it has at most three quarters of it (seen in
    compiled programs: 95 of 128 MiB do, 128 do not), and of several at a time seven eighths (two of 64 MiB do not):
    kernels need the rest. VMEM is about twenty times as fast as the memory. A kernel takes
    about a microsecond to fill and drain its pipeline. A step has some four small kernels that the program does not
    show: indices, and copies between the memories (seen in compiled programs).
    """
    return Chip(
        name=f"tpu:{name}",
        kind="tpu",
        memory_bytes=memory_bytes,
        flops_per_second=flops,
        half_flops_per_second=half,
        rounds_operands=True,
        bytes_per_second=bandwidth,
        link_bytes_per_second=_LINKS[name],
        host_link_bytes_per_second=_HOST_LINKS[name],
        step_seconds=4e-6,
        launch_seconds=1e-6,
        on_chip_bytes=7 * vmem_bytes // 8,
        on_chip_value_bytes=3 * vmem_bytes // 4,
        on_chip_speedup=20.0,
    )


_H100_LANES = 132 * 128 * 1.98e9
"""Operations per second of an H100's and H200's lanes: cores x lanes x boost clock."""
_A100_LANES = 108 * 64 * 1.41e9

CHIPS: dict[str, Chip] = {
    chip.name: chip
    for chip in (
        _CPU,
        _cuda("h200", 141 * _GB, flops=6.7e13, half=9.89e14, bandwidth=4.8e12, vector=_H100_LANES, l2_bytes=50 * _MIB),
        _cuda("h100", 80 * _GB, flops=6.7e13, half=9.89e14, bandwidth=3.35e12, vector=_H100_LANES, l2_bytes=50 * _MIB),
        _cuda("a100", 80 * _GB, flops=1.95e13, half=3.12e14, bandwidth=2.0e12, vector=_A100_LANES, l2_bytes=40 * _MIB),
        _tpu("v5e", 16 * _GIB, flops=5e13, half=1.97e14, bandwidth=8.2e11, vmem_bytes=128 * _MIB),
        _tpu("v6e", 32 * _GIB, flops=2e14, half=9.18e14, bandwidth=1.6e12, vmem_bytes=128 * _MIB),
        _tpu("v5p", 95 * _GIB, flops=1e14, half=4.59e14, bandwidth=2.8e12, vmem_bytes=128 * _MIB),
    )
}
"""All chips by name; the first of a kind stands for the kind where no device is attached."""
