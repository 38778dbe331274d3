"""Time and memory on this CPU, original against optimised: writes results/cpu_speed.json.

The budget is arguments + outputs + 10% of the temporaries that the original is seen to take: what executing it adds to
a fresh process, less its outputs (XLA:CPU's reports can be far off, either way). Both run with XLA's default options:
times side by side in this process, in turn, so that what else the machine does hits both; memory in fresh processes.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import argparse
import statistics
import time
from typing import Any

import jax
import numpy as np
import programs
import record

import stablehlo_mem as shm
from stablehlo_mem.targets.fresh_process import run_fresh
from stablehlo_mem.utils.units import format_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(programs.ON_CPU))
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    data: dict[str, Any] = {**record.header(), "rounds": arguments.rounds, "programs": {}}
    for name in arguments.names:
        data["programs"][name] = row = measure(name, programs.ON_CPU[name], arguments.rounds)
        record.write(data, record.RESULTS / "cpu_speed.json")
        sizes = f"{format_bytes(row['original_grown_bytes'])} → {format_bytes(row['optimised_grown_bytes'])}"
        print(f"{name}: {row['ratio']:.2f} of the original's time, {sizes}", flush=True)


def measure(name: str, sizes: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """One program: plan, time, memory."""
    exported = programs.export(name, sizes, "cpu")
    before = run_fresh(exported.serialize())
    budget = before.argument_bytes + before.output_bytes + (before.grown_bytes - before.output_bytes) // 10
    plan = shm.plan(exported, budget, target="cpu")
    assert plan.exported is not None
    original, optimised = interleaved([exported, plan.exported], rounds)
    after = run_fresh(plan.exported.serialize())
    return {
        "sizes": list(sizes),
        "budget_bytes": budget,
        "fits": plan.fits,
        "original_peak_bytes": plan.before.peak_bytes,
        "optimised_peak_bytes": plan.after.peak_bytes,
        "original_grown_bytes": before.grown_bytes,
        "optimised_grown_bytes": after.grown_bytes,
        "original_seconds": original,
        "optimised_seconds": optimised,
        "ratio": statistics.median(optimised) / statistics.median(original),
        "steps": list(plan.summaries),
        "compiles": plan.compiles,
        "planning_seconds": plan.planning_seconds,
    }


def interleaved(exporteds: list[jax.export.Exported], rounds: int) -> tuple[list[float], ...]:
    """Seconds of each program, executed in turn; one untimed round first."""
    rng = np.random.default_rng(0)
    args = [jax.device_put(0.5 * rng.standard_normal(a.shape, dtype=np.float32)) for a in exporteds[0].in_avals]
    compiled = [jax.jit(e.call).lower(*args).compile() for e in exporteds]
    seconds: tuple[list[float], ...] = tuple([] for _ in exporteds)
    for _ in range(rounds + 1):
        for run, times in zip(compiled, seconds, strict=True):
            started = time.perf_counter()
            jax.block_until_ready(run(*args))
            times.append(time.perf_counter() - started)
    return tuple(times[1:] for times in seconds)


if __name__ == "__main__":
    main()
