"""Measures time and memory of a program in a process of its own: what a user sees, not what a compiler reports.

XLA:CPU's report leaves out the scratch of its fused kernels, so only the resident size of a process that does nothing
else is evidence. The demo, benchmarks and tests call it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from stablehlo_mem.errors import StableHLOMemError

_TIMEOUT = 600.0
"""Seconds after which a process is killed: it hangs."""
_WORKER = pathlib.Path(__file__).with_name("_fresh_worker.py")


class FreshRunError(StableHLOMemError, RuntimeError):
    """The process did not finish. `memory` says whether it ran out of memory."""

    def __init__(self, message: str, memory: bool):
        self.memory = memory
        super().__init__(message)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FreshRun:
    """Time and memory of one program in a process of its own.

    Attributes:
        peak_rss_bytes: the highest resident size during the first execution.
        resident_before_bytes: the resident size just before: arguments loaded, program compiled.
        exact: the peak is the kernel's own; False if it was sampled and may have missed short ones.
        argument_bytes, output_bytes: the data going in and coming out.
        seconds: of each execution, the first included.
        compile_seconds: of compiling it.
        digest: equal for bitwise equal outputs.
        outputs: the last execution's outputs in order, () unless asked for.
    """

    peak_rss_bytes: int
    resident_before_bytes: int
    exact: bool
    argument_bytes: int
    output_bytes: int
    seconds: tuple[float, ...]
    compile_seconds: float
    digest: str
    outputs: tuple[np.ndarray[Any, Any], ...] = dataclasses.field(default=(), repr=False)

    @property
    def grown_bytes(self) -> int:
        """Bytes that executing added to the process: outputs, temporaries and scratch."""
        return self.peak_rss_bytes - self.resident_before_bytes

    @property
    def median_seconds(self) -> float:
        """The median execution time."""
        return statistics.median(self.seconds)


def run_fresh(
    exported: bytes | bytearray,
    *,
    seed: int = 0,
    repeats: int = 1,
    arguments: Sequence[np.ndarray[Any, Any]] | None = None,
    keep_outputs: bool = False,
    environment: Mapping[str, str] | None = None,
) -> FreshRun:
    """Runs a serialised `jax.export.Exported` on CPU, in a fresh process that has jax and nothing of this package.

    Args:
        exported: what `Exported.serialize()` gives.
        seed: equal seeds draw equal arguments.
        repeats: how often to execute, for the times.
        arguments: the flat arguments, instead of drawing them.
        keep_outputs: bring the outputs back.
        environment: variables to set beside those of this process.

    Returns:
        Time, memory and a digest of the outputs.

    Raises:
        FreshRunError: the process failed, was killed or took too long.
    """
    spec = {"seed": seed, "repeats": repeats, "keep_outputs": keep_outputs}
    variables = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", **(environment or {})}
    with tempfile.TemporaryDirectory(prefix="stablehlo-mem-") as name:
        directory = pathlib.Path(name)
        (directory / "program.bin").write_bytes(exported)
        (directory / "spec.json").write_text(json.dumps(spec))
        if arguments is not None:
            named: dict[str, Any] = {f"a{i}": array for i, array in enumerate(arguments)}
            np.savez(directory / "arguments.npz", **named)
        _run_worker(directory, variables)
        return _read_result(directory)


def _run_worker(directory: pathlib.Path, variables: dict[str, str]) -> None:
    # -P keeps the script's own folder, with our modules in it, off sys.path.
    command = [sys.executable, "-P", str(_WORKER), str(directory)]
    try:
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired as error:
        raise FreshRunError(f"the process did not finish within {_TIMEOUT:g} s", memory=False) from error
    if done.returncode:
        raise _failure(done.returncode, done.stderr)


def _failure(returncode: int, stderr: str) -> FreshRunError:
    killed = returncode == -9
    lines = [line for line in stderr.splitlines() if line.strip()]
    # A traceback's last entry names the error in one line; XLA's messages go on over many more.
    message = next((line for line in lines if "Error: " in line), lines[-1] if lines else "no message")
    memory = killed or "RESOURCE_EXHAUSTED" in stderr or "MemoryError" in stderr
    reason = "was killed, most likely for want of memory" if killed else f"failed ({returncode}): {message}"
    return FreshRunError(f"the process {reason}", memory=memory)


def _read_result(directory: pathlib.Path) -> FreshRun:
    data: dict[str, Any] = json.loads((directory / "result.json").read_text())
    data["seconds"] = tuple(data["seconds"])
    types: list[tuple[str, list[int]]] = data.pop("outputs", [])
    outputs: list[np.ndarray[Any, Any]] = []
    if types:
        with np.load(directory / "outputs.npz") as file:
            outputs = [file[f"o{i}"].view(jnp.dtype(dtype)).reshape(shape) for i, (dtype, shape) in enumerate(types)]
    return FreshRun(**data, outputs=tuple(outputs))
