"""Which static peaks to search for, one after the other, until what a compiler measures is within a budget."""

from __future__ import annotations

import math

SHRINK = 0.8
"""How far below what would just fit the next static goal is set: the compilers' peaks are not smooth."""


class Goals:
    """Static goals, each below the last by as much as the compiler was seen to need more than the profile said.

    After an attempt that turned out worse than the best one there is one between the two: what the profile misjudged
    may be what the last step led to, and not what had led to the best.

    Args:
        first: the goal to begin with, in bytes.
        room: bytes the budget leaves for temporaries.

    Attributes:
        goal: the one to search for.
        between: whether it lies between two attempts.
    """

    def __init__(self, first: float, room: float):
        self.first, self.room = first, room
        self.restart()

    def restart(self) -> None:
        """Begins again, for another beginning of the search."""
        self.goal = self.lower = self.first
        self.best_static: int | None = None
        self.between = False

    def follow(self, static: int, temp: float, *, better: bool) -> None:
        """The next goal, after temporaries of `static` bytes were measured as `temp`: better or worse than before."""
        lower = static * max(0.1, min(1.0, self.room / temp if temp > 0 else 1.0)) * SHRINK
        self.lower = min(lower, self.lower)
        if better:
            self.goal, self.between, self.best_static = lower, False, static
        elif self.best_static is None or self.between:
            self.descend()
        else:
            self.goal, self.between = math.sqrt(self.best_static * static), True

    def descend(self) -> bool:
        """Goes down to where it would be without a goal between, if there is one."""
        above = self.goal > self.lower
        self.goal, self.between = self.lower, False
        return above
