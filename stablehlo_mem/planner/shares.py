"""Budgets that are shares, in bytes: of a device's memory, or of a program's temporaries.

`budget_loop.keep_budget` calls `of_device` before anything is compiled, and `of_temporaries` once the original is.
"""

from __future__ import annotations

from stablehlo_mem.targets.free_memory import device_memory
from stablehlo_mem.targets.target import Target
from stablehlo_mem.utils.units import Budget, Share


def of_device(budget: Budget, targets: tuple[Target, ...], held_bytes: int = 0) -> Budget:
    """A budget in bytes if it is a share of the memory that is free on the devices, of several the smallest.

    Args:
        held_bytes: of the program's arguments where these are on the device already, so that they are not free.
    """
    if not isinstance(budget, Share) or budget.of != "device":
        return budget
    sizes = map(device_memory, targets)
    return max(1, int(budget.fraction * min(min(total, free + held_bytes) for total, free in sizes)))


def of_temporaries(budget: Share, fixed_bytes: int, peak_bytes: float) -> int:
    """The bytes that no plan changes, and a share of the others."""
    return fixed_bytes + int(budget.fraction * (int(peak_bytes) - fixed_bytes))
