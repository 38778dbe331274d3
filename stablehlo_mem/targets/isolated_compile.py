"""Compiles in a process of its own, as libtpu ends the process it is in when it overflows its stack.

`Target.measure` asks for it. The process runs `_isolated_worker`: it reads requests from standard input and writes
replies until there are no more requests.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from typing import IO

from stablehlo_mem.targets.measurement import Measured, Refused

_ROOT = pathlib.Path(__file__).parents[2]
_COMMAND = (sys.executable, "-m", "stablehlo_mem.targets._isolated_worker")
_SHOWN_BYTES = 500
"""Bytes of what the compiler wrote before it died that the refusal quotes."""


@dataclasses.dataclass(frozen=True)
class Request:
    """A program to compile.

    Attributes:
        target: the name of a target that is a chip, such as "tpu:v5e".
        exported: a serialised Exported with flat trees.
        donated: indices of donated arguments.
        floor_bytes: bytes of arguments and outputs.
    """

    target: str
    exported: bytes
    donated: tuple[int, ...]
    floor_bytes: int


def measure_isolated(request: Request) -> Measured | Refused:
    """What `compile.measure` gives, from the isolated process; a refusal if the process died.

    Raises:
        StableHLOMemError: as `compile.measure` does.
    """
    return _worker(os.getpid()).ask(request)


@functools.cache
def _worker(pid: int) -> _Worker:
    """The worker of a process: a forked process has one of its own."""
    worker = _Worker()
    atexit.register(worker.close)
    return worker


class _Worker:
    """A process that compiles, started on the first request and again after it died."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.stderr: IO[bytes] | None = None

    def ask(self, request: Request) -> Measured | Refused:
        with self.lock:
            process = self.running()
            try:
                pickle.dump(request, _pipe(process.stdin))
                _pipe(process.stdin).flush()
                reply = pickle.load(_pipe(process.stdout))
            except (EOFError, OSError, pickle.UnpicklingError):
                refused = Refused(f"the compiler {_ending(process)}: {self.last_words()}", None)
                self.close()
                return refused
        if isinstance(reply, Exception):
            raise reply
        return reply

    def running(self) -> subprocess.Popen[bytes]:
        """The process, a new one if none is alive."""
        if self.process is None or self.process.poll() is not None:
            self.close()
            self.stderr = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the process)
            path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
            self.process = subprocess.Popen(
                _COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.stderr,
                env={**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"},
            )
        return self.process

    def close(self) -> None:
        """Ends the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout, self.stderr):
                with contextlib.suppress(OSError):  # what a dead process did not read cannot be flushed
                    _pipe(pipe).close()
            self.process = None

    def last_words(self) -> str:
        """The end of what the process wrote."""
        if self.stderr is None:
            return ""
        size = self.stderr.seek(0, os.SEEK_END)
        self.stderr.seek(max(0, size - _SHOWN_BYTES))
        return " ".join(self.stderr.read().decode(errors="replace").split())


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _ending(process: subprocess.Popen[bytes]) -> str:
    code = process.wait()
    return f"died ({signal.Signals(-code).name})" if code < 0 else f"ended ({code})"
