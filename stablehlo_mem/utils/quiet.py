"""Keeps off the screen what compilers say of hardware that is not there, and nothing else.

The package's first import of JAX and `targets.devices` begin there: plugins write to file descriptor 2 from C++, where
neither Python's `sys.stderr` nor JAX's logging levels reach, before any option could silence them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import tempfile
import threading
from collections.abc import Generator

_NOISE = re.compile(
    "|".join(
        (
            r"WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR",
            r"WARNING: Logging before InitGoogle\(\) is written to STDERR",
            r".*\bcudart_stub\.cc:\d+\] Could not find cuda drivers on your machine.*",
            r"Failed to find host bounds for accelerator type: WARNING: could not determine TPU.*",
            r".*\bcommon_lib\.cc:\d+\] INVALID_ARGUMENT: Error: unexpected worker hostname.*",
            r"=== Source Location Trace: ===\s*",
            r"learning/45eac/tfrc/runtime/libtpu_init_utils\.cc:\d+",
        )
    )
)
"""What is written where a plugin is installed and its hardware is not there (jax 0.10 and 0.11, libtpu)."""
_NVIDIA_DEVICE = "/dev/nvidiactl"
"""There where NVIDIA's driver is: a plugin that finds no CUDA libraries is then worth a line."""
_STDERR = 2
_one_at_a_time = threading.RLock()
"""The descriptor belongs to the process: a second thread would put back the first one's file."""


@contextlib.contextmanager
def quiet() -> Generator[None]:
    """Drops lines of `_NOISE` that are written to standard error in the block; the rest is written when it ends.

    It is for the start of plugins, which takes moments, not for compilations: what a process wrote in the block before
    it dies is lost.
    """
    with _one_at_a_time, contextlib.ExitStack() as stack:
        try:
            saved = os.dup(_STDERR)
        except OSError:  # there is no standard error
            yield
            return
        stack.enter_context(_without_plugin_errors())
        written = stack.enter_context(tempfile.TemporaryFile())
        _flush()
        os.dup2(written.fileno(), _STDERR)
        try:
            yield
        finally:
            _flush()
            os.dup2(saved, _STDERR)
            os.close(saved)
            written.seek(0)
            for line in written.read().decode(errors="replace").splitlines(keepends=True):
                if not _NOISE.fullmatch(line.rstrip("\n")):
                    os.write(_STDERR, line.encode())


def _flush() -> None:
    with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, or none
        sys.stderr.flush()


@contextlib.contextmanager
def _without_plugin_errors() -> Generator[None]:
    """Leaves out the traceback that JAX logs for a CUDA plugin without CUDA; where there is a GPU its reason stays."""
    logger = logging.getLogger("jax._src.xla_bridge")
    logger.addFilter(_is_worth_logging)
    try:
        yield
    finally:
        logger.removeFilter(_is_worth_logging)


def _is_worth_logging(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if not (isinstance(error, RuntimeError) and str(error).startswith("Unable to load CUDA")):
        return True
    record.exc_info, record.msg = None, f"{record.msg}: {error}"
    return os.path.exists(_NVIDIA_DEVICE)
