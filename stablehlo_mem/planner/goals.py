"""The sequence of static goals of the budget loop, which lead the compiler's figure to the budget."""

from __future__ import annotations

import math

SHRINK = 0.8
"""The next static goal is this share of what would just fit: the compiler's peak is no smooth function of the goal."""


class Goals:
    """Static goals, each lower than the last by the ratio of the compiler's figure to the profile's.

    If a goal gives a program worse than the best so far, a goal between the two follows once: the profile may be right
    for the best program and wrong only for the last.

    Args:
        first: the first goal, in bytes of temporaries.
        room: bytes that the budget leaves for temporaries.

    Attributes:
        goal: the current goal.
        between: whether it lies between two earlier ones.
    """

    def __init__(self, first: float, room: float):
        self.first, self.room = first, room
        self.restart()

    def restart(self) -> None:
        """Returns to the first goal, for a search with another first step."""
        self.goal = self.lower = self.first
        self.best_static: int | None = None
        self.between = False

    def follow(self, static: int, temp: float, *, better: bool) -> None:
        """Sets the next goal after a program with `static` bytes of temporaries was measured at `temp`.

        Args:
            better: whether its peak is the lowest so far.
        """
        lower = static * max(0.1, min(1.0, self.room / temp if temp > 0 else 1.0)) * SHRINK
        self.lower = min(lower, self.lower)
        if better:
            self.goal, self.between, self.best_static = lower, False, static
        elif self.best_static is None or self.between:
            self.drop_midpoint()
        else:
            self.goal, self.between = math.sqrt(self.best_static * static), True

    def drop_midpoint(self) -> bool:
        """Lowers the goal to what it would be without a goal between; returns whether that is lower."""
        is_lower = self.goal > self.lower
        self.goal, self.between = self.lower, False
        return is_lower
