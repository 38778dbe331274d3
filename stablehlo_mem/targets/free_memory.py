"""The memory that a target's device has, and what of it is free now. `planner.shares` asks."""

from __future__ import annotations

import os
import pathlib

from stablehlo_mem.targets.devices import local_devices
from stablehlo_mem.targets.target import Target

_MEMINFO = pathlib.Path("/proc/meminfo")


def device_memory(target: Target) -> tuple[int, int]:
    """Bytes that a device has in all, and those that are free.

    Of this machine's devices the one with least free counts. A named chip is taken to be empty. The devices of a CPU
    share the memory of the host; free is what the operating system can give without swapping.
    """
    stats = [] if ":" in target.name else [device.memory_stats() or {} for device in local_devices(target.platform)]
    if stats and all("bytes_limit" in one for one in stats):
        return min(
            ((one["bytes_limit"], one["bytes_limit"] - one.get("bytes_in_use", 0)) for one in stats),
            key=lambda sizes: sizes[1],
        )
    if target.chip.memory_bytes:
        return target.chip.memory_bytes, target.chip.memory_bytes
    total, free = _host_memory()
    return total // max(1, len(stats)), free // max(1, len(stats))


def _host_memory() -> tuple[int, int]:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    lines = _MEMINFO.read_text().splitlines() if _MEMINFO.exists() else []
    available = next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), total)
    return total, available
