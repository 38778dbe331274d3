"""What every recipe ends with: the peak before and after, and whether the numbers of both runs are the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def compare(plain: Any, planned: Any, plans: Sequence[Any], rtol: float = 1e-4) -> None:
    """Prints peaks and the largest difference.

    Args:
        plain: numbers of the run as written, such as the loss of each step.
        planned: the same of the run within the budget.
        plans: those made for the second run.
        rtol: allowed difference, relative to the largest number: sums that are added up in parts round differently, and
            what an optimiser makes of that grows from step to step.

    Raises:
        AssertionError: no program was over the budget, one is still, or the numbers differ.
    """
    changed = [plan for plan in plans if plan.steps]
    assert changed, "every program fits as it is: nothing was to do"
    for plan in changed:
        before, after, budget = plan.before.peak_bytes, plan.after.peak_bytes, plan.budget_bytes
        print(f"peak: {before / 2**20:.0f} MiB as written, {after / 2**20:.1f} MiB within {budget / 2**20:.0f} MiB")
        assert after <= budget < before
    first, second = np.asarray(plain, np.float64), np.asarray(planned, np.float64)
    difference = np.abs(second - first).max() / np.abs(first).max()
    print(f"largest difference: {difference:.1e} of {first.size} numbers such as {first.flat[-1]:.5g}")
    assert difference <= rtol
