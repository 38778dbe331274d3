"""Runs modules on a device of this machine or on its host, if memory is free: `checking` compares results."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Generator, Sequence
from typing import Any

import jax
import numpy as np
from jax.export import Exported

from stablehlo_mem.frontend.wrap_module import wrap_module
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import main_function
from stablehlo_mem.targets.compile import executable, measure_exported
from stablehlo_mem.targets.measurement import Measured
from stablehlo_mem.utils.units import format_bytes

Array = np.ndarray[Any, Any]

_MEMINFO = pathlib.Path("/proc/meminfo")
_GROUP = pathlib.Path("/sys/fs/cgroup")
_SHARE = 0.9
"""Share of the free memory that a run may need: the rest is for what the report leaves out."""


class CannotRunError(Exception):
    """A module cannot be run at a place; the message says why."""


@dataclasses.dataclass(frozen=True)
class Place:
    """A device of this machine, by the platform's name in an Exported; the host is platform "cpu"."""

    platform: str
    device: Any

    @property
    def name(self) -> str:
        """Its name in messages."""
        return "the CPU" if self.platform == "cpu" else self.device.device_kind

    def wrapped(self, module: ir.Module) -> Exported:
        """A module for one device as an Exported for this platform, with flat arguments and results."""
        return wrap_module(module, main_function(module), self.platform)

    def needed_bytes(self, wrapped: Exported) -> int:
        """Bytes that one execution needs by the compiler's report, nothing donated.

        Raises:
            CannotRunError: the compiler refuses it.
        """
        measured = measure_exported(wrapped, (), 0, self.platform, [self.device])
        if isinstance(measured, Measured):
            return measured.peak_bytes
        if measured.needed_bytes is not None:
            return measured.needed_bytes
        raise CannotRunError(f"{self.name} does not run the program: {_first_line(measured.message)}")

    def require_room(self, needed_bytes: int) -> None:
        """Raises a CannotRunError if more is needed than is free, where that is known."""
        free = host_free_bytes() if self.platform == "cpu" else _device_free_bytes(self.device)
        if free is not None and needed_bytes > _SHARE * free:
            raise CannotRunError(
                f"{format_bytes(needed_bytes)} are needed on {self.name}, where {format_bytes(free)} are free"
            )

    def run(self, wrapped: Exported, arguments: Sequence[Array]) -> list[Array]:
        """The results of one execution, on the host.

        Raises:
            CannotRunError: it does not compile, or fails.
        """
        return self.compiled(wrapped)(arguments)

    def compiled(self, wrapped: Exported) -> Callable[[Sequence[Array]], list[Array]]:
        """A module's executions, of which each raises as `run` does.

        Raises:
            CannotRunError: it does not compile.
        """
        with jax.enable_x64(True), self._errors():
            call, used = executable(wrapped, (), self.platform, [self.device])

        def run(arguments: Sequence[Array]) -> list[Array]:
            with jax.enable_x64(True), self._errors():
                on_device = jax.device_put([arguments[i] for i in used], self.device)
                return [np.asarray(result) for result in call(*on_device)]

        return run

    @contextlib.contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            raise CannotRunError(f"{self.name} does not run the program: {_first_line(str(error))}") from error


def host_free_bytes() -> int | None:
    """Bytes that this process can allocate without swapping, None if the system does not say."""
    limits: list[int] = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = [line for line in _MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:")]
        limits.append(int(lines[0].split()[1]) * 1024)
    with contextlib.suppress(OSError, ValueError):  # "max", or no group of its own
        limit, used = (int((_GROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        limits.append(limit - used + _reclaimable_bytes())
    return min(limits, default=None)


def _reclaimable_bytes() -> int:
    """Bytes of the group's cached files, which the kernel frees when memory is needed."""
    lines = (_GROUP / "memory.stat").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))


def _device_free_bytes(device: Any) -> int | None:
    statistics = device.memory_stats() or {}
    limit = statistics.get("bytes_limit")
    return None if limit is None else limit - statistics.get("bytes_in_use", 0)


def _first_line(message: str) -> str:
    return message.strip().partition("\n")[0]
