"""Runs one serialised Exported and writes down its time and memory: the script that `fresh_process` starts.

It imports jax and numpy only, so that nothing of this package is in its memory.
Usage: python -P _fresh_worker.py DIRECTORY, which holds program.bin and spec.json and gets result.json.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import json
import pathlib
import sys
import threading
import time
from typing import Any

import jax
import jax.export
import numpy as np

Array = np.ndarray[Any, Any]

_SAMPLE_SECONDS = 0.001


class PeakMemory:
    """The highest resident size between `start` and `stop`, and the resident size at `start`.

    The kernel's high-water mark counts from the start of the process, so it is reset first. Where that is not allowed
    (some containers) a thread samples the resident size, and `exact` is False.
    """

    def __init__(self) -> None:
        self.before_bytes = 0
        self.exact = True
        self._sampled = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def start(self) -> None:
        """Returns freed memory to the system, so that allocating it again counts, and starts measuring."""
        gc.collect()
        trim_malloc()
        self.before_bytes = read_status("VmRSS")
        self.exact = reset_high_water_mark()
        if not self.exact:
            self._thread.start()

    def stop(self) -> int:
        """The peak in bytes."""
        if self.exact:
            return read_status("VmHWM")
        self._stop.set()
        self._thread.join()
        return max(self._sampled, read_status("VmRSS"))

    def _sample(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            self._sampled = max(self._sampled, read_status("VmRSS"))


def read_status(key: str) -> int:
    """A size of this process as the kernel counts it, in bytes."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {key} in /proc/self/status: peak memory needs Linux")


def reset_high_water_mark() -> bool:
    """Resets VmHWM to the present resident size; False where that is not possible."""
    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        return read_status("VmHWM") <= read_status("VmRSS") + 2**20
    except (OSError, RuntimeError):
        return False


def trim_malloc() -> None:
    """Gives the heap's free pages back to the system, where the C library can."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def random_array(rng: np.random.Generator, aval: Any) -> Array:
    """An array for an abstract value: normal floats of deviation 1/2, integers below 60, fair booleans."""
    dtype = np.dtype(aval.dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, aval.shape).astype(dtype)
    if dtype.kind in "iu":
        return rng.integers(0, 60, aval.shape).astype(dtype)
    if dtype.kind == "c":
        return (random_part(rng, aval.shape) + 1j * random_part(rng, aval.shape)).astype(dtype)
    return random_part(rng, aval.shape).astype(dtype, copy=False)


def random_part(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Normal float32 numbers of deviation 1/2, scaled in place."""
    array = rng.standard_normal(shape, dtype=np.float32)
    array *= np.float32(0.5)
    return array


def load_arguments(exported: jax.export.Exported, directory: pathlib.Path, seed: int) -> tuple[Any, Any]:
    """(args, kwargs) on the device: from arguments.npz if it is there, else drawn."""
    saved = directory / "arguments.npz"
    if saved.exists():
        with np.load(saved) as file:
            leaves = [file[f"a{i}"] for i in range(len(exported.in_avals))]
    else:
        rng = np.random.default_rng(seed)
        leaves = [random_array(rng, aval) for aval in exported.in_avals]
    return jax.tree.unflatten(exported.in_tree, [jax.device_put(leaf) for leaf in leaves])


def run(directory: pathlib.Path) -> dict[str, Any]:
    """Compiles, executes as often as asked and reports; writes outputs.npz if that is wanted."""
    spec = json.loads((directory / "spec.json").read_text())
    exported = jax.export.deserialize(bytearray((directory / "program.bin").read_bytes()))
    args, kwargs = wait(load_arguments(exported, directory, spec["seed"]))
    started = time.perf_counter()
    compiled = jax.jit(exported.call).lower(*args, **kwargs).compile()
    result: dict[str, Any] = {"compile_seconds": time.perf_counter() - started}
    measured, outputs = execute(compiled, args, kwargs, spec["repeats"])
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(outputs)]
    result |= measured | {
        "argument_bytes": sum(leaf.nbytes for leaf in jax.tree.leaves((args, kwargs))),
        "output_bytes": sum(leaf.nbytes for leaf in leaves),
        "digest": digest(leaves),
    }
    if spec["keep_outputs"]:
        result["outputs"] = save(leaves, directory / "outputs.npz")
    return result


def execute(compiled: Any, args: Any, kwargs: Any, repeats: int) -> tuple[dict[str, Any], Any]:
    """Time and memory, and the outputs of the last execution."""
    memory = PeakMemory()
    memory.start()
    outputs, first = timed(compiled, args, kwargs)
    # The memory of the first execution: later ones find blocks that malloc kept, which the program does not need.
    result: dict[str, Any] = {
        "peak_rss_bytes": memory.stop(),
        "resident_before_bytes": memory.before_bytes,
        "exact": memory.exact,
        "seconds": [first],
    }
    for _ in range(repeats - 1):
        del outputs
        outputs, seconds = timed(compiled, args, kwargs)
        result["seconds"].append(seconds)
    return result, outputs


def save(leaves: list[Array], path: pathlib.Path) -> list[Any]:
    """Writes arrays as bytes, since npz knows no bfloat16 and its like, and returns their types and shapes."""
    named: dict[str, Any] = {f"o{i}": raw(leaf) for i, leaf in enumerate(leaves)}
    np.savez(path, **named)
    return [[str(leaf.dtype), list(leaf.shape)] for leaf in leaves]


def timed(compiled: Any, args: Any, kwargs: Any) -> tuple[Any, float]:
    """The outputs of one execution and its seconds."""
    started = time.perf_counter()
    outputs = wait(compiled(*args, **kwargs))
    return outputs, time.perf_counter() - started


def wait(tree: Any) -> Any:
    """The tree, once all its arrays are computed."""
    for leaf in jax.tree.leaves(tree):
        leaf.block_until_ready()
    return tree


def raw(leaf: Array) -> Array:
    """The bytes of an array."""
    return np.ascontiguousarray(leaf).reshape(-1).view(np.uint8)


def digest(leaves: list[Array]) -> str:
    """One digest of all outputs, their types and shapes: equal only for bitwise equal results."""
    sha = hashlib.sha256()
    for leaf in leaves:
        sha.update(f"{leaf.dtype}{leaf.shape}".encode())
        sha.update(raw(leaf).data)
    return sha.hexdigest()[:16]


def main(path: str) -> None:
    """Runs the program in the directory `path`."""
    directory = pathlib.Path(path)
    (directory / "result.json").write_text(json.dumps(run(directory)))


if __name__ == "__main__":
    main(sys.argv[1])
