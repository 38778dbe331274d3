"""Contenders, each run as its own users would: time, memory and results of python functions in fresh processes.

A contender is a *setup*, "module:function" of a file of this folder, with JSON arguments. In a process of its own
(`worker.py`) the setup loads or draws the data, compiles what there is to compile and returns a function without
arguments: one execution, whose result is an array or a tuple of arrays. That is all a benchmark has to write:

    def lax_map(n, batch):  # a setup; `data` should be cached, so that contenders of one process share it
        x = data(n)
        return worker.jax_execution(lambda x: jax.lax.map(f, x, batch_size=batch), x)

    sweep = [Contender(f"map {b}", "this_file:lax_map", {"n": n, "batch": b}) for b in powers_of_two(16, 4096)]
    best, _ = fastest(sweep)
    outcomes = compare([Contender("ours", "this_file:ours", {...}), best], rounds=5)

`compare` gives memory and results of each alone, and times of all side by side in one process, taken in turn.
A contender that runs out of memory or time, or whose package is missing, is an `Outcome` that says so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

FOLDER = pathlib.Path(__file__).parent
THREADS = 2
MEMORY_BYTES = 12 * 10**9
"""A process that grows beyond this is ended: out of memory."""
COMMON_MEMORY_BYTES = 20 * 10**9
"""Likewise for the process in which all take turns: each may hold data of its own there."""
_POLL_SECONDS = 0.02

Status = Literal["ok", "out of memory", "timed out", "skipped", "failed"]


@dataclasses.dataclass(frozen=True)
class Contender:
    """What is run: the setup's "module:function" and its JSON arguments."""

    name: str
    setup: str
    arguments: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a contender.

    Attributes:
        status: "ok", or why there are no figures; `reason` says more.
        seconds: of each execution but the first.
        first_seconds: of the first execution, which is not compiling: that is done before.
        grown_bytes: resident memory the first execution added at its peak: outputs, temporaries, scratch.
        outputs: the results of the first execution.
    """

    status: Status
    reason: str = ""
    seconds: tuple[float, ...] = ()
    first_seconds: float | None = None
    grown_bytes: int | None = None
    outputs: tuple[np.ndarray[Any, Any], ...] = dataclasses.field(default=(), repr=False)

    @property
    def median(self) -> float | None:
        """The median of `seconds`; of a process with no further rounds the first execution."""
        return statistics.median(self.seconds) if self.seconds else self.first_seconds

    def to_json(self) -> dict[str, Any]:
        """Everything but the outputs, what is not there left out."""
        items = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.repr}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in items.items() if v not in (None, "", ())}


def compare(contenders: Sequence[Contender], *, rounds: int, timeout: float = 600, **how: Any) -> dict[str, Outcome]:
    """Each alone in a process of its own for memory and results; those that ran, in turn in one process for times.

    Args:
        rounds: timed executions of each, each after one that is not timed.
        timeout: seconds for each process alone, and for each contender in the common one.
        how: see `run`.
    """
    alone = {c.name: run([c], rounds=0, timeout=timeout, **how)[0] for c in contenders}
    able = [c for c in contenders if alone[c.name].status == "ok"]
    if not able or not rounds:
        return alone
    how["memory_bytes"] = COMMON_MEMORY_BYTES
    timed = run(able, rounds=rounds, timeout=timeout * len(able), **how)
    for contender, outcome in zip(able, timed, strict=True):
        mine = alone[contender.name]
        alone[contender.name] = dataclasses.replace(
            outcome, outputs=mine.outputs, grown_bytes=mine.grown_bytes, first_seconds=mine.first_seconds
        )
    return alone


def fastest(
    contenders: Sequence[Contender], *, rounds: int = 2, allowed_bytes: float = float("inf"), **how: Any
) -> tuple[Contender, dict[str, Any]]:
    """The one of the lowest median, all in turn in one process; and the medians, None where there is none.

    Args:
        allowed_bytes: resident memory it may add, run alone; if none keeps that, it is the one that adds the least.
    """
    outcomes = run(contenders, rounds=rounds, **how)
    medians = {c.name: o.median for c, o in zip(contenders, outcomes, strict=True)}
    return fastest_within(contenders, medians, lambda c: run([c], rounds=0, **how)[0], allowed_bytes), medians


def fastest_within(
    contenders: Sequence[Contender],
    medians: Mapping[str, float | None],
    alone: Callable[[Contender], Outcome],
    allowed_bytes: float,
) -> Contender:
    """The one of the lowest median that adds no more resident memory; if none does, the one that adds the least.

    Args:
        alone: what comes of one in a process of its own; asked of the fastest first, until one is found.
    """
    grown: dict[str, float] = {}
    for one in sorted(contenders, key=lambda c: medians[c.name] or float("inf")):
        nbytes = alone(one).grown_bytes
        grown[one.name] = float("inf") if nbytes is None else nbytes
        if grown[one.name] <= allowed_bytes:
            return one
    return min(contenders, key=lambda c: grown[c.name])


@contextlib.contextmanager
def program_file(exported: Any) -> Iterator[str]:
    """A plan's `jax.export.Exported` as a file for `worker.exported_execution`, while contenders run it."""
    assert exported is not None
    with tempfile.TemporaryDirectory(prefix="exla-") as name:
        path = pathlib.Path(name) / "program"
        path.write_bytes(exported.serialize())
        yield str(path)


def worst_error(outcomes: Mapping[str, Outcome], reference: str, tolerance: float) -> float | None:
    """The largest difference to the reference's outputs, as a share of the largest value of each, where that ran.

    Of the first outputs and all of floats: indices beside distances may differ where these are equal but for rounding.

    Raises:
        AssertionError: it is larger than the tolerance, so than rounding explains.
    """
    if reference not in outcomes or not outcomes[reference].outputs:
        return None
    errors: list[float] = []
    for position, exact in enumerate(outcomes[reference].outputs):
        if position == 0 or np.issubdtype(exact.dtype, np.floating):
            values = [o.outputs[position] for o in outcomes.values() if len(o.outputs) > position]
            # A vector may come as a matrix of one column.
            errors += [np.abs(v.reshape(exact.shape) - exact).max() / np.abs(exact).max() for v in values]
    # NumPy's max, unlike Python's, lets no NaN pass.
    error = float(np.max(errors))
    assert error <= tolerance, f"results differ by {error}"
    return error


def powers_of_two(lowest: int, highest: int) -> list[int]:
    """Those between two numbers, both included; the lowest in any case."""
    return [2**i for i in range(31) if lowest <= 2**i <= highest] or [lowest]


def time_cell(outcome: Mapping[str, Any]) -> str:
    """The median time of an outcome's JSON for a table, or why there is none."""
    seconds = outcome.get("seconds")
    if outcome["status"] != "ok" or not seconds:
        return outcome["status"]
    median = statistics.median(seconds)
    return f"{median:.2f} s" if median >= 1 else f"{1000 * median:.3g} ms"


def ratio_cell(outcomes: Mapping[str, Mapping[str, Any]], one: str, other: str) -> str:
    """The ratio of two medians for a table, "" where one is missing."""
    both = [outcomes.get(name, {}).get("seconds") for name in (one, other)]
    return f"{statistics.median(both[0]) / statistics.median(both[1]):.2f}" if all(both) else ""


def run(
    contenders: Sequence[Contender],
    *,
    rounds: int,
    timeout: float = 600,
    memory_bytes: int = MEMORY_BYTES,
    x64: bool = False,
) -> list[Outcome]:
    """Contenders in one fresh process with `THREADS` threads, executed in turn: once, then `rounds` times twice,
    the second for time.

    Args:
        timeout: seconds after which the process is ended.
        memory_bytes: resident size at which it is ended: the machine should not swap, nor its out-of-memory killer
            choose somebody else.
        x64: whether JAX knows 64-bit types.
    """
    with tempfile.TemporaryDirectory(prefix="exla-") as name:
        directory = pathlib.Path(name)
        spec = {"rounds": rounds, "contenders": [dataclasses.asdict(c) for c in contenders]}
        (directory / "spec.json").write_text(json.dumps(spec))
        status, reason = _run_process(directory, x64, timeout, memory_bytes)
        return [_read(directory, index, status, reason) for index in range(len(contenders))]


def _run_process(directory: pathlib.Path, x64: bool, timeout: float, memory_bytes: int) -> tuple[Status, str]:
    """Runs the worker and says how it ended."""
    command = [sys.executable, str(FOLDER / "worker.py"), str(directory)]
    started = time.monotonic()
    with (directory / "stderr").open("w") as stderr:
        process = subprocess.Popen(command, env=_environment(x64), stdout=stderr, stderr=stderr)
        try:
            while process.poll() is None:
                if time.monotonic() - started > timeout:
                    return "timed out", f"after {timeout:g} s"
                if _resident_bytes(process.pid) > memory_bytes:
                    return "out of memory", f"over {memory_bytes / 1e9:g} GB"
                time.sleep(_POLL_SECONDS)
        finally:
            process.kill()
            process.wait()
    return _ended(process.returncode, (directory / "stderr").read_text())


def _ended(returncode: int, stderr: str) -> tuple[Status, str]:
    if returncode == 0:
        return "ok", ""
    lines = [line for line in stderr.splitlines() if line.strip()]
    if returncode == -9 or "bad_alloc" in stderr or "RESOURCE_EXHAUSTED" in stderr:
        return "out of memory", lines[-1] if lines else "killed"
    return "failed", f"exit {returncode}: {lines[-1] if lines else 'no message'}"


def _environment(x64: bool) -> dict[str, str]:
    """One environment for all: the CPU, as many threads in OpenMP and BLAS as JAX has."""
    libraries = ("OMP", "OPENBLAS", "MKL")
    return {
        **os.environ,
        **{f"{library}_NUM_THREADS": str(THREADS) for library in libraries},
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_X64": str(int(x64)),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "EXLA_THREADS": str(THREADS),
    }


def _resident_bytes(pid: int) -> int:
    try:
        return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _read(directory: pathlib.Path, index: int, status: Status, reason: str) -> Outcome:
    """What the worker wrote of a contender; what it had no time to finish has the process's own end."""
    path = directory / f"{index}.json"
    data: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if not data.pop("done", False):
        data |= {"status": status if status != "ok" else "failed", "reason": reason}
    data["seconds"] = tuple(data.get("seconds", ()))
    outputs = directory / f"{index}.npz"
    if outputs.exists() and data["status"] == "ok":
        with np.load(outputs) as file:
            data["outputs"] = tuple(file[name] for name in file.files)
    return Outcome(**data)
