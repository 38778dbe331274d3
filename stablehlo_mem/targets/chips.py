"""What the analyses know about each chip: plain data."""

from __future__ import annotations

import dataclasses
from typing import Literal

Kind = Literal["cpu", "cuda", "tpu"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chip:
    """A chip, for the static analyses.

    Attributes:
        name: e.g. "tpu:v5e".
        kind: the compiler that serves it; decides what is fused.
        memory_bytes: device memory, 0 for "whatever the host has".
        flops_per_second: dense float32 matmul rate.
        bytes_per_second: memory bandwidth.
        step_seconds: overhead of one loop iteration.
        cache_bytes: intermediates of one step up to which a loop is as fast as it gets, 0 where size does not matter.
            On CPU three eighths of the shared cache: what else a step reads and writes needs the rest.
        cores: that rows of a kernel are dealt out to, as far as it matters.
        lanes: elements of the innermost dimension that a kernel works on at a time; with fewer it takes as long.
        packed_rows: a matmul of so many rows takes twice the time for each FLOP: an operand is packed for all of its
            rows and columns, however few. 0 where only memory tells.
        turned_rows: so many more if the left operand lies transposed, [contracted, rows], or the right one does too.
        reduced_seconds: overhead of each result of a reduction, whatever its length. XLA:CPU starts a kernel for each.
        unit_sum_seconds: overhead of each element of a sum of products with a dimension of one element. XLA:CPU makes a
            dot of each row of it.
        unseen_bytes: scratch that is in no report, for which a first goal leaves room: XLA:CPU's matmuls pack tiles.
    """

    name: str
    kind: Kind
    memory_bytes: int
    flops_per_second: float
    bytes_per_second: float
    step_seconds: float
    cache_bytes: int
    cores: int = 1
    lanes: int = 1
    packed_rows: int = 0
    turned_rows: int = 0
    reduced_seconds: float = 0.0
    unit_sum_seconds: float = 0.0
    unseen_bytes: int = 0

    def __hash__(self) -> int:
        return hash((self.name, self.memory_bytes))


_GIB = 2**30
_MIB = 2**20

CHIPS: dict[str, Chip] = {
    chip.name: chip
    for chip in (
        Chip(
            name="cpu",
            kind="cpu",
            memory_bytes=0,
            flops_per_second=1e11,
            bytes_per_second=2e10,
            step_seconds=2e-5,
            cache_bytes=12 * _MIB,
            packed_rows=24,
            turned_rows=75,
            cores=2,
            lanes=32,
            reduced_seconds=4e-9,
            unit_sum_seconds=1.5e-8,
            unseen_bytes=_MIB,
        ),
        Chip(
            name="cuda:h200",
            kind="cuda",
            memory_bytes=141 * 10**9,
            flops_per_second=6e13,
            bytes_per_second=4.8e12,
            step_seconds=2e-5,
            cache_bytes=0,
        ),
        Chip(
            name="cuda:h100",
            kind="cuda",
            memory_bytes=80 * 10**9,
            flops_per_second=6e13,
            bytes_per_second=3.35e12,
            step_seconds=2e-5,
            cache_bytes=0,
        ),
        Chip(
            name="cuda:a100",
            kind="cuda",
            memory_bytes=80 * 10**9,
            flops_per_second=1.9e13,
            bytes_per_second=2.0e12,
            step_seconds=2e-5,
            cache_bytes=0,
        ),
        Chip(
            name="tpu:v5e",
            kind="tpu",
            memory_bytes=16 * _GIB,
            flops_per_second=5e13,
            bytes_per_second=8.2e11,
            step_seconds=1e-5,
            cache_bytes=0,
        ),
        Chip(
            name="tpu:v6e",
            kind="tpu",
            memory_bytes=32 * _GIB,
            flops_per_second=2e14,
            bytes_per_second=1.6e12,
            step_seconds=1e-5,
            cache_bytes=0,
        ),
        Chip(
            name="tpu:v5p",
            kind="tpu",
            memory_bytes=95 * _GIB,
            flops_per_second=1e14,
            bytes_per_second=2.8e12,
            step_seconds=1e-5,
            cache_bytes=0,
        ),
    )
}
