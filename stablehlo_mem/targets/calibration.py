"""Measures the figures of this machine's chip once and stores them in a file: plans are compared by them.

The built-in figures (`chips`) are those of a typical chip. `calibrate` measures the rate of matmuls, the bandwidth, the
overhead of a loop's iteration and of a reduction's result, and reads the size of the cache. `target` then gives these
figures to targets that mean this machine's devices; named chips, which need not be attached, keep the built-in ones.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import pathlib
import platform
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import jax
import jax.numpy as jnp

from stablehlo_mem.targets._fresh_worker import wait
from stablehlo_mem.targets.chips import Chip
from stablehlo_mem.utils.atomic_write import write_whole

_log = logging.getLogger(__name__)

_VARIABLE = "STABLEHLO_MEM_CALIBRATION"
"""The environment variable that names the file of the figures."""
_CACHES = "/sys/devices/system/cpu/cpu0/cache"
"""Where Linux tells the sizes of the caches."""
_LONG_SECONDS = 0.02
"""Seconds that a measured call takes at least, so that the overhead of a call matters little."""
_LEAST: dict[str, float] = {
    "flops_per_second": 1.0,
    "bytes_per_second": 1.0,
    "step_seconds": 0.0,
    "reduced_seconds": 0.0,
    "cache_bytes": 0,
    "cores": 1,
}
"""The fields of `Chip` that are measured, and the least value of each; an integer's field has integers."""
_MOST = 1e18
"""The largest value of any field; anything larger is no measurement."""
_ROUNDS = 5
"""Executions of which the fastest counts."""
_ITERATIONS = 2000
"""Iterations of the loop that measures the overhead of an iteration."""
_SUMMED = 4
"""Elements of each sum that measures the overhead of a reduction's result."""


def calibration_path() -> pathlib.Path | None:
    """The file of the figures: $STABLEHLO_MEM_CALIBRATION ("": none), else one among the user's settings."""
    path = os.environ.get(_VARIABLE)
    if path is not None:
        return pathlib.Path(os.path.expanduser(path)) if path else None
    settings = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return pathlib.Path(os.path.expanduser(settings)) / "stablehlo_mem" / "chips.json"


def calibrated(chip: Chip, device_kind: str) -> Chip:
    """A chip with the figures measured on this machine, unchanged if there are none."""
    path = calibration_path()
    figures = _read(path).get(_key(chip, device_kind)) if path is not None else None
    if figures is None:
        return chip
    if not _are_figures(figures):
        _log.warning("the figures in %s are left aside: %r", path, figures)
        return chip
    return dataclasses.replace(chip, **figures)


def measured(chip: Chip, device: Any) -> dict[str, float]:
    """The figures of a device, by fields of `Chip`: seconds, FLOPs and bytes. Takes some seconds."""
    is_host = chip.kind == "cpu"
    with jax.default_device(device):
        flops, bandwidth = _matmul_rate(), _bandwidth()
        figures = {"flops_per_second": flops, "bytes_per_second": bandwidth, "step_seconds": _step_seconds()}
        if is_host:
            figures["reduced_seconds"] = _reduced_seconds(bandwidth)
    # Two digits: calibrating the same machine again gives, as a rule, the same figures and so the same plans.
    rounded: dict[str, float] = {name: float(f"{value:.1e}") for name, value in figures.items()}
    return {**rounded, **(_cpu_facts() if is_host else {})}


def keep(figures: dict[str, float], chip: Chip, device_kind: str) -> None:
    """Stores figures, beside those of other machines with the same file, unless the user wants no file.

    Raises:
        OSError: the file cannot be written; it is unchanged.
    """
    path = calibration_path()
    if path is None:
        return
    text = json.dumps({**_read(path), _key(chip, device_kind): figures}, indent=1) + "\n"
    write_whole(path, text.encode())


def _read(path: pathlib.Path) -> dict[str, Any]:
    """The figures of each machine in the file; none if it cannot be read."""
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        _log.warning("the figures in %s are left aside: %r", path, error)
        return {}
    return data if isinstance(data, dict) else {}


def _are_figures(figures: Any) -> bool:
    """Whether figures are as `keep` wrote them: measured fields only, rates and numbers of cores above zero."""
    if not isinstance(figures, dict):
        return False
    return all(_is_figure(name, value) for name, value in cast("dict[str, Any]", figures).items())


def _is_figure(name: str, value: Any) -> bool:
    least = _LEAST.get(name)
    if least is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return least <= value <= _MOST and (isinstance(least, float) or isinstance(value, int))


def _key(chip: Chip, device_kind: str) -> str:
    """The name of the machine in the file, which machines that share a home directory share."""
    if chip.kind != "cpu":
        return device_kind
    return f"{processor()}, {_cores()} cores"


def processor() -> str:
    """The name of this machine's CPU."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_facts() -> dict[str, float]:
    """The number of cores, and three eighths of the largest cache if the system knows its size."""
    sizes = [int(text[:-1]) << 10 for text in _cache_sizes() if text.endswith("K") and text[:-1].isdecimal()]
    return {"cores": _cores(), **({"cache_bytes": max(sizes) * 3 // 8} if sizes else {})}


def _cache_sizes() -> Iterator[str]:
    for path in sorted(pathlib.Path(_CACHES).glob("index*/size")):
        yield path.read_text().strip()


def _seconds(fun: Callable[..., Any], *arguments: Any) -> float:
    """The seconds of the fastest execution: other work on the machine only adds to the time."""
    run = jax.jit(fun)
    wait(run(*arguments))
    seconds: list[float] = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        wait(run(*arguments))
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def _rate(sizes: Iterator[int], work: Callable[[int], tuple[float, float]]) -> float:
    """Work per second, at the first size that takes long enough."""
    done, seconds = 0.0, math.inf
    for size in sizes:
        done, seconds = work(size)
        if seconds >= _LONG_SECONDS:
            break
    return done / seconds


def _matmul_rate() -> float:
    def work(n: int) -> tuple[float, float]:
        x = jnp.full((n, n), 1 / n, jnp.float32)
        return 2.0 * n**3, _seconds(jnp.matmul, x, x)

    return _rate((1 << k for k in range(9, 14)), work)


def _bandwidth() -> float:
    def work(n: int) -> tuple[float, float]:
        return 8.0 * n, _seconds(lambda x: x + 1, jnp.zeros(n, jnp.float32))

    return _rate((1 << k for k in range(24, 30)), work)


def _step_seconds() -> float:
    """An iteration of a loop that reads a slice, multiplies it and writes it back; a slice so small costs nothing."""
    rows, width = 8, 32

    def body(i: Any, x: Any) -> Any:
        part = jax.lax.dynamic_slice(x, (i * rows, 0), (rows, width))
        return jax.lax.dynamic_update_slice(x, jnp.tanh(part @ weights), (i * rows, 0))

    weights = jnp.full((width, width), 1 / width, jnp.float32)
    x = jnp.ones((_ITERATIONS * rows, width), jnp.float32)
    return _seconds(lambda x: jax.lax.fori_loop(0, _ITERATIONS, body, x), x) / _ITERATIONS


def _reduced_seconds(bytes_per_second: float) -> float:
    """What a sum of few elements takes beyond reading them and writing the result."""
    count = 1 << 20
    seconds = _seconds(lambda x: (x * x).sum(-1), jnp.ones((count, _SUMMED), jnp.float32))
    return max(0.0, seconds / count - 4 * (_SUMMED + 1) / bytes_per_second)
