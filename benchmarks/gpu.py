"""Time, memory and results on this machine's GPU, original against optimised: python benchmarks/gpu.py OUT.json.

The budget is arguments + outputs + 10% of the original's temporaries, judged by the GPU's own compiler. Times side by
side in this process, in turn. Memory by the allocator's high-water mark in fresh processes that load the compiled
program from a cache: compiling there would count the autotuner's buffers. Results against the original at the highest
matmul precision.
"""

from __future__ import annotations

import os
import tempfile

# Before jax is imported, and for the fresh processes too, which inherit it.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", tempfile.mkdtemp(prefix="jax-cache-"))
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"

import argparse
import pathlib
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import programs
import record

import stablehlo_mem as shm
from stablehlo_mem.targets.fresh_process import FreshRunError, run_fresh
from stablehlo_mem.utils.units import format_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("names", nargs="*", default=list(programs.ON_GPU))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=7.0, help="begin no program after so many")
    parser.add_argument("--shrink", type=int, default=1, help="divide every large size, for a try")
    arguments = parser.parse_args()
    deadline = time.monotonic() + 60 * arguments.minutes
    data: dict[str, Any] = {**record.header(), "device": jax.devices()[0].device_kind, "programs": {}}
    for name in arguments.names:
        if time.monotonic() > deadline:
            data.setdefault("left_out", []).append(name)
            continue
        data["programs"][name] = attempt(name, shrunk(programs.ON_GPU[name], arguments.shrink), arguments.rounds)
        record.write(data, arguments.output)
    record.write(data, arguments.output)


def shrunk(sizes: tuple[int, ...], factor: int) -> tuple[int, ...]:
    return tuple(size // factor if size > 4096 else size for size in sizes)


def attempt(name: str, sizes: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """One program; what goes wrong with it is its result, and the others still run."""
    started = time.monotonic()
    try:
        row = measure(name, sizes, rounds)
    except Exception as error:  # noqa: BLE001 - a result too
        row = {"error": f"{type(error).__name__}: {error}"[:2000]}
    row = {"sizes": list(sizes), **row, "wall_seconds": time.monotonic() - started}
    print(name, summary(row), flush=True)
    return row


def measure(name: str, sizes: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """Plan, time, compare, and measure memory."""
    platform = "cuda" if jax.default_backend() == "gpu" else jax.default_backend()
    exported = programs.export(name, sizes, platform)
    budget = record.tenth_budget(shm.profile(exported, target=platform))
    started = time.monotonic()
    plan = shm.plan(exported, budget, target=platform)
    row: dict[str, Any] = {
        "budget_bytes": budget,
        "fits": plan.fits,
        "original_peak_bytes": plan.before.peak_bytes,
        "optimised_peak_bytes": plan.after.peak_bytes,
        "steps": list(plan.summaries),
        "compiles": plan.compiles,
        "planning_seconds": plan.planning_seconds,
        "plan_wall_seconds": time.monotonic() - started,
    }
    assert plan.exported is not None
    # Round trips, so that this process and the fresh ones compile the very same bytes.
    both = {"original": bytes(exported.serialize()), "optimised": bytes(plan.exported.serialize())}
    row.update(timed(both, programs.FUNCTIONS[name], rounds))
    for kind, data in both.items():
        row.update(fresh_memory(kind, data))
    return row


def timed(both: dict[str, bytes], function: Any, rounds: int) -> dict[str, Any]:
    """Seconds of both in turn, and the errors of their results."""
    exporteds = {kind: jax.export.deserialize(bytearray(data)) for kind, data in both.items()}
    args = arguments_for(exporteds["original"])
    compiled, row = compile_both(exporteds, args)
    seconds: dict[str, list[float]] = {kind: [] for kind in compiled}
    outputs: dict[str, list[np.ndarray]] = {}
    for index in range(rounds + 1):
        for kind in list(compiled):
            try:
                elapsed, result = execute(compiled[kind], args)
            except jax.errors.JaxRuntimeError as error:
                row[f"{kind}_error"] = str(error)[:300]
                del compiled[kind], seconds[kind]
                continue
            if index == 0:
                outputs[kind] = [np.asarray(leaf) for leaf in jax.tree.leaves(result)]
            else:
                seconds[kind].append(elapsed)
            del result
    row.update({f"{kind}_seconds": times for kind, times in seconds.items()})
    if len(seconds) == 2:
        row["ratio"] = statistics.median(seconds["optimised"]) / statistics.median(seconds["original"])
    compiled.clear()
    row.update(errors(outputs, function, args))
    return row


def compile_both(exporteds: dict[str, Any], args: list[jax.Array]) -> tuple[dict[str, Any], dict[str, Any]]:
    compiled: dict[str, Any] = {}
    row: dict[str, Any] = {}
    for kind, exported in exporteds.items():
        try:
            compiled[kind] = jax.jit(exported.call).lower(*args).compile()
        except jax.errors.JaxRuntimeError as error:
            row[f"{kind}_error"] = str(error)[:300]
    return compiled, row


def execute(compiled: Any, args: list[jax.Array]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = jax.block_until_ready(compiled(*args))
    return time.perf_counter() - started, result


def arguments_for(exported: jax.export.Exported) -> list[jax.Array]:
    """Drawn on the device: normal floats of deviation 1/2, integers below 60."""
    keys = jax.random.split(jax.random.key(0), len(exported.in_avals))
    return [
        jax.random.randint(key, aval.shape, 0, 60, aval.dtype)
        if jnp.issubdtype(aval.dtype, jnp.integer)
        else 0.5 * jax.random.normal(key, aval.shape, aval.dtype)
        for key, aval in zip(keys, exported.in_avals, strict=True)
    ]


def errors(outputs: dict[str, list[np.ndarray]], function: Any, args: list[jax.Array]) -> dict[str, Any]:
    """The worst error of each against the original at the highest precision; of indices, the share that differs."""
    try:
        with jax.default_matmul_precision("highest"):
            exact = [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(function)(*args))]
        against = "original, highest precision"
    except jax.errors.JaxRuntimeError:
        exact, against = outputs.get("original", []), "original"
    row: dict[str, Any] = {"errors_against": against}
    for kind, leaves in outputs.items():
        row[f"{kind}_errors"] = [error(*pair) for pair in zip(leaves, exact, strict=False)]
    return row


def error(got: np.ndarray, exact: np.ndarray) -> float:
    if got.dtype.kind in "iu":
        return float((got != exact).mean())
    scale = float(np.abs(exact).max()) or 1.0
    return float(np.abs(got.astype(np.float64) - exact).max()) / scale


def fresh_memory(kind: str, data: bytes) -> dict[str, Any]:
    try:
        run = run_fresh(data, platform="", timeout=180)
    except FreshRunError as failure:
        return {f"{kind}_memory_error": str(failure)[:300]}
    return {f"{kind}_device_peak_bytes": run.device_peak_bytes, f"{kind}_compile_seconds": run.compile_seconds}


def summary(row: dict[str, Any]) -> str:
    if "error" in row:
        return row["error"][:300]
    peaks = [row.get(f"{kind}_device_peak_bytes") for kind in ("original", "optimised")]
    memory = " → ".join("none" if peak is None else format_bytes(peak) for peak in peaks)
    ratio = f"{row['ratio']:.2f} of the original's time" if "ratio" in row else "original does not run"
    return f"{memory}, budget {format_bytes(row['budget_bytes'])}, {ratio}, {row['wall_seconds']:.0f} s"


if __name__ == "__main__":
    main()
