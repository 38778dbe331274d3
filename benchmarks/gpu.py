"""Time, memory and results on this machine's GPU: python benchmarks/gpu.py OUT.json [PROGRAM...].

The budget is arguments + outputs + 10% of the original's temporaries, judged by the GPU's own compiler. Contenders are
the program as written, ours, the expert's by hand (the largest chunk within the budget) and the chip's kernel by hand.
Each has two processes with a time limit: one plans and compiles, which tunes kernels and takes memory for that; one
loads what was compiled from a cache, reads the allocator's high-water mark of each contender, the smallest first, and
times all in turn. Errors are against the form by hand in float32 at the highest precision. Beside the clock stand
`hlo_cost`'s count of what was compiled and the library's prediction. A program that OUT.json has already is left out.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cuda,cpu")  # Modules imported below would set it to the CPU.
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.95"

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import gpu_programs
import hlo_cost
import jax
import jax.numpy as jnp
import numpy as np
import record

import stablehlo_mem as shm
from stablehlo_mem.utils.units import format_bytes

CHUNKS = tuple(2**n for n in range(13, -1, -1))
_TRACED = ("original", "optimised")
TIMED_SECONDS = 0.03
"""A sample is so many calls as take this long, for one of a millisecond is not timed well alone."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("names", nargs="*", default=list(gpu_programs.PROGRAMS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=9.0, help="begin nothing after so many")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that each process of one program may take")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for what was compiled, as text, and for kernels")
    parser.add_argument("--phase", choices=("prepare", "execute"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.phase:
        in_this_process(given)
        return
    deadline = time.monotonic() + 60 * given.minutes
    earlier = record.earlier(given.output)
    data = {**record.header(), **{key: earlier[key] for key in ("device", "programs") if key in earlier}}
    data.setdefault("programs", {})
    missing = [name for name in given.names if "original_seconds" not in data["programs"].get(name, {})]
    with tempfile.TemporaryDirectory(prefix="jax-cache-") as cache:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = cache
        for names in gpu_programs.groups(missing):
            if time.monotonic() < deadline:
                for name, row in measured(names, given):
                    device = row.pop("device", data.get("device"))
                    if data.setdefault("device", device) != device:
                        sys.exit(f"{given.output} is of an {data['device']}, not of an {device}: name another file")
                    data["programs"][name] = row
                    print(f"{name}: {summary(row)}", flush=True)
                record.write(data, given.output)


def measured(names: list[str], given: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Programs in two processes; what goes wrong with one is its result, and the others still run."""
    started = time.monotonic()
    failure = ""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--folder", folder, "--rounds", str(given.rounds)]
        kept = ["--keep", str(given.keep)] if given.keep else []
        limit = given.limit * (1 + len(names) / 5)
        for phase in ("prepare", "execute"):
            command = [sys.executable, __file__, str(given.output), *names, *options, *kept, "--phase", phase]
            try:
                result = subprocess.run(command, capture_output=True, text=True, timeout=limit)
                failure += result.stderr[-1500:] if result.returncode else ""
            except subprocess.TimeoutExpired:
                failure += f"{phase} took over {limit:.0f} s. "
            print(f"{phase} of {', '.join(names)}: {time.monotonic() - started:.0f} s {failure[-300:]}", flush=True)
        for name in names:
            row: dict[str, Any] = {"error": failure} if failure else {}
            for file in sorted((pathlib.Path(folder) / name).glob("*.json")):
                row |= json.loads(file.read_text())
            yield name, {**row, "wall_seconds": round((time.monotonic() - started) / len(names), 1)}


def in_this_process(given: argparse.Namespace) -> None:
    """One phase of some programs."""
    if os.environ["JAX_PLATFORMS"].startswith("cuda") and jax.default_backend() != "gpu":
        sys.exit("no GPU: set JAX_PLATFORMS=cpu to try the script without one")
    for name in given.names:
        folder = given.folder / name
        folder.mkdir(exist_ok=True)
        try:
            {"prepare": prepare, "execute": execute}[given.phase](name, folder, given)
        except Exception as error:  # noqa: BLE001 - a result too
            note(folder, given.phase, {"error": f"{type(error).__name__}: {error}"[:1500]})


def prepare(name: str, folder: pathlib.Path, given: argparse.Namespace) -> None:
    """Plans, chooses the chunk by hand, and compiles all, so that the cache has them."""
    program = gpu_programs.PROGRAMS[name]
    exported = jax.export.export(jax.jit(program.function), platforms=[platform()])(*program.specs)
    profile = shm.profile(exported, target=platform())
    budget = record.tenth_budget(profile)
    started = time.monotonic()
    plan = shm.plan(exported, budget, target=platform())
    row: dict[str, Any] = {
        "budget_bytes": budget,
        "fits": plan.fits,
        "steps": list(plan.summaries),
        "predicted": plan.slowdown,
        "compiles": plan.compiles,
        "planning_seconds": plan.planning_seconds,
        "plan_wall_seconds": time.monotonic() - started,
        "chunk": chunk_by_hand(program, budget),
    }
    assert plan.exported is not None
    (folder / "optimised.bin").write_bytes(bytes(plan.exported.serialize()))
    note(folder, "plan", row)
    for kind, function in contenders(name, folder, row["chunk"]).items():
        try:
            compiled = jax.jit(function).lower(*program.specs).compile()
        except jax.errors.JaxRuntimeError as error:
            note(folder, f"compiled {kind}", {f"{kind}_error": str(error)[:300]})
            continue
        text = compiled.as_text()
        if given.keep:
            given.keep.mkdir(parents=True, exist_ok=True)
            (given.keep / f"{name}.{kind}.hlo").write_text(text)
        note(
            folder, f"compiled {kind}", {f"{kind}_peak_bytes": peak(compiled), f"{kind}_counted_seconds": counted(text)}
        )


def counted(text: str) -> float | None:
    """`hlo_cost`'s seconds, None for a text it cannot read."""
    try:
        return hlo_cost.cost(text, "cuda:h200").seconds
    except (KeyError, ValueError, IndexError, TypeError, AttributeError):
        return None


def platform() -> str:
    return "cuda" if jax.default_backend() == "gpu" else jax.default_backend()


def note(folder: pathlib.Path, name: str, row: dict[str, Any]) -> None:
    """Written at once, so that a process that is stopped leaves what it had."""
    (folder / f"{name}.json").write_text(json.dumps(row))


def chunk_by_hand(program: gpu_programs.Program, budget: int) -> int | None:
    """The largest chunk whose peak is within the budget, by the compiler without tuning; None if there is none."""
    if program.by_hand is None:
        return None
    for chunk in CHUNKS:
        try:
            lowered = jax.jit(program.by_hand(chunk)).lower(*program.specs)
        except (TypeError, ValueError):  # The rows cannot be reshaped into such chunks.
            continue
        options = {"xla_gpu_autotune_level": 0} if platform() == "cuda" else None
        if peak(lowered.compile(compiler_options=options)) <= budget:
            return chunk
    return None


def peak(compiled: Any) -> int:
    """Arguments, outputs and temporaries as the compiler reports them, in bytes."""
    found = compiled.memory_analysis()
    return (
        found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes - found.alias_size_in_bytes
    )


def contenders(name: str, folder: pathlib.Path, chunk: int | None) -> dict[str, Any]:
    program = gpu_programs.PROGRAMS[name]
    exported = jax.export.deserialize(bytearray((folder / "optimised.bin").read_bytes()))
    found = {"original": program.function, "optimised": exported.call}
    if program.by_hand is not None and chunk is not None:
        found["by_hand"] = program.by_hand(chunk)
    if program.kernel is not None and platform() == "cuda":
        found["kernel"] = program.kernel
    return found


def execute(name: str, folder: pathlib.Path, given: argparse.Namespace) -> None:
    """High-water marks, times and errors of what `prepare` compiled."""
    program = gpu_programs.PROGRAMS[name]
    chunk = json.loads((folder / "plan.json").read_text())["chunk"]
    compiled = {}
    for kind, function in contenders(name, folder, chunk).items():
        try:
            compiled[kind] = jax.jit(function).lower(*program.specs).compile()
        except jax.errors.JaxRuntimeError:
            continue  # `prepare` wrote down why.
    args = jax.block_until_ready(program.arguments())
    outputs: dict[str, list[np.ndarray]] = {}
    for kind in sorted(compiled, key=lambda kind: peak(compiled[kind])):
        try:
            result = jax.block_until_ready(compiled[kind](*args))
        except jax.errors.JaxRuntimeError as error:
            note(folder, f"ran {kind}", {f"{kind}_error": str(error)[:300]})
            del compiled[kind]
            continue
        outputs[kind] = [np.asarray(leaf) for leaf in jax.tree.leaves(result)]
        del result
        if len(given.names) == 1:  # The mark is of the process, so of the largest program so far.
            mark = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
            note(folder, f"ran {kind}", {f"{kind}_device_peak_bytes": mark})
    note(folder, "times", {"device": jax.devices()[0].device_kind, **timed(compiled, args, given.rounds)})
    note(folder, "errors", errors(program, chunk, args, outputs))
    if given.keep:
        kernels = {kind: kernel_seconds(one, args) for kind, one in compiled.items() if kind in _TRACED}
        (given.keep / f"{name}.kernels.json").write_text(json.dumps(kernels, indent=1))


def timed(compiled: dict[str, Any], args: list[Any], rounds: int) -> dict[str, Any]:
    """Seconds a call of all, in turn."""
    calls = {kind: max(1, round(TIMED_SECONDS / seconds_of(one, args, 1))) for kind, one in compiled.items()}
    samples: dict[str, list[float]] = {kind: [] for kind in compiled}
    for _ in range(rounds):
        for kind, one in compiled.items():
            samples[kind].append(seconds_of(one, args, calls[kind]))
    return {f"{kind}_seconds": times for kind, times in samples.items()}


def seconds_of(compiled: Any, args: list[Any], calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        result = compiled(*args)
    jax.block_until_ready(result)
    return (time.perf_counter() - started) / calls


def errors(
    program: gpu_programs.Program, chunk: int | None, args: list[Any], outputs: dict[str, list[np.ndarray]]
) -> dict[str, Any]:
    """The worst error of each contender's results over the reference's largest; of indices, the share that differs."""
    form = program.function if program.by_hand is None or chunk is None else program.by_hand(chunk)
    exact = [np.asarray(leaf) for leaf in jax.tree.leaves(reference(form)(*args))]
    return {
        f"{kind}_errors": [error(*pair) for pair in zip(leaves, exact, strict=True)] for kind, leaves in outputs.items()
    }


def reference(function: Any) -> Any:
    """In float32, at the highest matmul precision."""

    def wide(tree: Any) -> Any:
        return jax.tree.map(lambda x: x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)

    def call(*args: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return jax.jit(lambda *args: function(*wide(args)))(*args)

    return call


def error(got: np.ndarray, exact: np.ndarray) -> float:
    if got.dtype.kind in "iu":
        return float((got != exact).mean())
    scale = float(np.abs(exact).max()) or 1.0
    return float(np.abs(got.astype(np.float64) - exact).max()) / scale


def kernel_seconds(compiled: Any, args: list[Any]) -> dict[str, Any]:
    """(calls, seconds) of each kernel of one execution, the longest first, as the profiler saw them."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(compiled(*args))
        found: dict[str, list[float]] = {}
        for kernel, nanoseconds in traced(next(pathlib.Path(folder).rglob("*.xplane.pb"))):
            entry = found.setdefault(kernel, [0, 0.0])
            entry[0] += 1
            entry[1] += nanoseconds / 1e9
    return dict(sorted(found.items(), key=lambda item: -item[1][1])[:40])


def traced(path: pathlib.Path) -> Iterator[tuple[str, float]]:
    """Name and nanoseconds of every kernel on the device's streams."""
    for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
        for line in plane.lines:
            if "GPU" in plane.name and "Stream" in line.name:
                yield from ((event.name, event.duration_ns) for event in line.events)


def summary(row: dict[str, Any]) -> str:
    if "optimised_seconds" not in row:
        return row.get("error", "no times")[-400:]
    parts = [f"{row['wall_seconds']:.0f} s, budget {format_bytes(row['budget_bytes'])}, fits {row['fits']}"]
    base = statistics.median(row["original_seconds"]) if row.get("original_seconds") else None
    for kind in ("original", "optimised", "by_hand", "kernel"):
        if times := row.get(f"{kind}_seconds"):
            middle = statistics.median(times)
            memory = row.get(f"{kind}_device_peak_bytes")
            share = f" x{middle / base:.2f}" if base else ""
            by_count = 1e3 * (row.get(f"{kind}_counted_seconds") or 0)
            parts.append(
                f"{kind} {1e3 * middle:.3f} ms{share} (counted {by_count:.3f}),"
                f" {'' if memory is None else format_bytes(memory)},"
                f" errors {' '.join(f'{e:.1e}' for e in row.get(f'{kind}_errors', [])[:3])}"
            )
        elif f"{kind}_error" in row:
            parts.append(f"{kind}: {row[f'{kind}_error'][:100]}")
    if "error" in row:
        parts.append(row["error"][-200:])
    return f"predicted x{row['predicted']:.2f}; " + "; ".join(parts)


if __name__ == "__main__":
    main()
