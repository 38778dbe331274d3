"""The process of contenders.py: sets contenders up and executes them in turn. Usage: python worker.py DIRECTORY.

The directory holds spec.json and gets I.json and I.npz, the figures and results of the I-th contender.
"""

from __future__ import annotations

import os

if __name__ == "__main__":  # before anything counts the cores
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(os.environ["EXLA_THREADS"])])

import dataclasses
import gc
import importlib
import json
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import numpy as np

FOLDER = pathlib.Path(__file__).parent
Execution = Callable[[], Any]


def jax_execution(function: Callable[..., Any], *arguments: Any) -> Execution:
    """Compiles a function for arguments; the execution waits for its results."""
    jax.block_until_ready(arguments)  # copies that are still being made would count for the first execution
    compiled = jax.jit(function).lower(*arguments).compile()
    return lambda: jax.block_until_ready(compiled(*arguments))


def small_matmul() -> Execution:
    """What a first execution adds to a process whatever it computes: the threads' stacks, pages of code."""
    x = jax.numpy.ones((256, 256))
    return jax_execution(lambda x: x @ x.T, x)


def exported_execution(path: str, *arguments: Any) -> Execution:
    """Likewise of a serialised `jax.export.Exported`: how a plan comes in, as planning would leave its memory here."""
    exported = jax.export.deserialize(bytearray(pathlib.Path(path).read_bytes()))
    return jax_execution(exported.call, *arguments)


@dataclasses.dataclass
class Entry:
    """A contender at work; `failure` is (status, reason) once it cannot go on."""

    index: int
    execute: Execution | None = None
    failure: tuple[str, str] | None = None
    figures: dict[str, Any] = dataclasses.field(default_factory=lambda: {"seconds": []})

    def attempt(self, action: Callable[[], Any]) -> Any:
        """The action's result; None where it fails, as is noted, or where the contender failed before."""
        if self.failure:
            return None
        try:
            return action()
        except ModuleNotFoundError as error:
            self.failure = "skipped", f"{error.name} is not installed: pip install -r benchmarks/exla/requirements.txt"
        except MemoryError as error:
            self.failure = "out of memory", str(error)
        except jax.errors.JaxRuntimeError as error:
            exhausted = "RESOURCE_EXHAUSTED" in str(error)
            self.failure = "out of memory" if exhausted else "failed", str(error).splitlines()[0]
        return None

    def write(self, directory: pathlib.Path, done: bool) -> None:
        status, reason = self.failure or ("ok", "")
        data = {**self.figures, "status": status, "reason": reason, "done": done or self.failure is not None}
        (directory / f"{self.index}.json").write_text(json.dumps(data))


def set_up(contender: dict[str, Any]) -> Execution:
    module, _, function = contender["setup"].partition(":")
    return getattr(importlib.import_module(module), function)(**contender["arguments"])


def first_execution(entry: Entry, directory: pathlib.Path) -> None:
    """The execution that is measured for memory: later ones find blocks that malloc kept."""
    from stablehlo_mem.targets._fresh_worker import PeakMemory

    memory = PeakMemory()
    memory.start()
    seconds, outputs = entry.attempt(lambda: timed(entry.execute)) or (None, ())
    grown_bytes = memory.stop() - memory.before_bytes
    if seconds is not None:
        entry.figures |= {"first_seconds": seconds, "grown_bytes": grown_bytes}
        np.savez(directory / f"{entry.index}.npz", *(np.asarray(leaf) for leaf in jax.tree.leaves(outputs)))


def timed(execute: Execution | None) -> tuple[float, Any]:
    assert execute is not None
    started = time.perf_counter()
    outputs = execute()
    return time.perf_counter() - started, outputs


def timed_round(entry: Entry) -> None:
    """The second of two executions: the first finds caches and free memory as another contender left them.

    What ran after a program of gigabytes took up to half again as long as what ran after itself.
    """
    entry.attempt(lambda: timed(entry.execute))
    result = entry.attempt(lambda: timed(entry.execute)[0])
    if result is not None:
        entry.figures["seconds"].append(result)


def main(path: str) -> None:
    directory = pathlib.Path(path)
    sys.path.append(str(FOLDER.parent))  # this script's own folder is there already
    spec = json.loads((directory / "spec.json").read_text())
    entries = [Entry(index) for index in range(len(spec["contenders"]))]
    for entry, contender in zip(entries, spec["contenders"], strict=True):
        entry.execute = entry.attempt(lambda contender=contender: set_up(contender))
        first_execution(entry, directory)
        entry.write(directory, done=not spec["rounds"])
    gc.disable()
    for i in range(spec["rounds"]):
        for entry in entries:
            timed_round(entry)
            entry.write(directory, done=i == spec["rounds"] - 1)


if __name__ == "__main__":
    main(sys.argv[1])
