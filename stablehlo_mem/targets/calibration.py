"""What this machine's chip does, measured once and kept: the figures by which plans are compared.

The built-in ones (`chips`) are those of a typical chip. `calibrate` measures the rate of matmuls, the bandwidth, what a
step of a loop and a result of a reduction cost beside their work, and reads the size of the cache. From then on targets
that mean this machine's devices have these figures; named chips, which need not be here, keep theirs.
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
_CACHES = "/sys/devices/system/cpu/cpu0/cache"
_LONG_SECONDS = 0.02
"""Work is made ever larger until it takes so long: what comes with every call is little of it then."""
_LEAST: dict[str, float] = {
    "flops_per_second": 1.0,
    "bytes_per_second": 1.0,
    "step_seconds": 0.0,
    "reduced_seconds": 0.0,
    "cache_bytes": 0,
    "cores": 1,
}
"""The fields that are measured, and the least that each can be; whole numbers where this is one."""
_MOST = 1e18
_ROUNDS = 5
_STEPS = 2000
_SHORT = 4


def calibration_path() -> pathlib.Path | None:
    """The file of the figures: $STABLEHLO_MEM_CALIBRATION ("": none), else one among the user's settings."""
    given = os.environ.get(_VARIABLE)
    if given is not None:
        return pathlib.Path(os.path.expanduser(given)) if given else None
    settings = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return pathlib.Path(os.path.expanduser(settings)) / "stablehlo_mem" / "chips.json"


def calibrated(chip: Chip, device_kind: str) -> Chip:
    """A chip with the figures that were measured of this machine's; as it is if none were."""
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
    with jax.default_device(device):
        flops, bandwidth = _matmul_rate(), _bandwidth()
        figures = {"flops_per_second": flops, "bytes_per_second": bandwidth, "step_seconds": _step_seconds()}
        if chip.kind == "cpu":
            figures["reduced_seconds"] = _reduced_seconds(bandwidth)
    # Two digits: the same machine has the same figures, as a rule, and makes the same plans.
    rounded: dict[str, float] = {name: float(f"{value:.1e}") for name, value in figures.items()}
    return {**rounded, **(_cpu_facts() if chip.kind == "cpu" else {})}


def keep(figures: dict[str, float], chip: Chip, device_kind: str) -> None:
    """Writes figures down, beside those of other machines with the same file, if they are to be kept.

    Raises:
        OSError: the file cannot be written; it is as it was.
    """
    path = calibration_path()
    if path is None:
        return
    text = json.dumps({**_read(path), _key(chip, device_kind): figures}, indent=1) + "\n"
    write_whole(path, text.encode())


def _read(path: pathlib.Path) -> dict[str, Any]:
    """What the file says of each machine; nothing if it cannot be read."""
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        _log.warning("the figures in %s are left aside: %r", path, error)
        return {}
    return data if isinstance(data, dict) else {}


def _are_figures(figures: Any) -> bool:
    """Whether figures are as `keep` wrote them: rates and numbers of cores above zero, no field of another kind."""
    if not isinstance(figures, dict):
        return False
    numbers = cast("dict[str, Any]", figures)
    return all(_is_figure(name, value) for name, value in numbers.items())


def _is_figure(name: str, value: Any) -> bool:
    least = _LEAST.get(name)
    if least is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    whole = isinstance(least, int)
    return least <= value <= _MOST and (not whole or isinstance(value, int))


def _key(chip: Chip, device_kind: str) -> str:
    """The machine, as far as it matters: a home directory may be that of many."""
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
    """Cores, and three eighths of the largest cache if the system tells."""
    sizes = [int(text[:-1]) << 10 for text in _cache_sizes() if text.endswith("K") and text[:-1].isdecimal()]
    return {"cores": _cores(), **({"cache_bytes": max(sizes) * 3 // 8} if sizes else {})}


def _cache_sizes() -> Iterator[str]:
    for path in sorted(pathlib.Path(_CACHES).glob("index*/size")):
        yield path.read_text().strip()


def _seconds(fun: Callable[..., Any], *arguments: Any) -> float:
    """The least seconds of an execution: what else the machine does only adds to it."""
    run = jax.jit(fun)
    wait(run(*arguments))
    seconds: list[float] = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        wait(run(*arguments))
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def _rate(sizes: Iterator[int], work: Callable[[int], tuple[float, float]]) -> float:
    """Work by seconds, of the first size that takes long enough."""
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
    """A step of a loop that reads a slice, multiplies it and writes it back, of so few rows that these cost nothing."""
    rows, width = 8, 32

    def body(i: Any, x: Any) -> Any:
        part = jax.lax.dynamic_slice(x, (i * rows, 0), (rows, width))
        return jax.lax.dynamic_update_slice(x, jnp.tanh(part @ weights), (i * rows, 0))

    weights = jnp.full((width, width), 1 / width, jnp.float32)
    x = jnp.ones((_STEPS * rows, width), jnp.float32)
    return _seconds(lambda x: jax.lax.fori_loop(0, _STEPS, body, x), x) / _STEPS


def _reduced_seconds(bytes_per_second: float) -> float:
    """What a sum of few elements takes beyond reading them."""
    count = 1 << 20
    seconds = _seconds(lambda x: (x * x).sum(-1), jnp.ones((count, _SHORT), jnp.float32))
    return max(0.0, seconds / count - 4 * (_SHORT + 1) / bytes_per_second)
