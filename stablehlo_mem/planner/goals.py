"""The sequence of static goals of the budget loop, which lead the compiler's figure to the budget."""

from __future__ import annotations

import math

SHRINK = 0.8
"""The first static goal is this share of what would just fit if the profile erred by one factor everywhere."""
CLOSE_GOALS = 1.25
"""Goals within this ratio are not searched between: the program differs little."""
HOPELESS = 2
"""If a program misses its goal by more than this factor, by the profile and by the compiler, no other first steps are
tried from its form: on the suite they ended within it of the first. Nor are other forms of a large program."""
_AIM = 0.97
"""Share of the room that later goals aim at: programs have peaks in steps, and the interpolation errs."""
_LEAST_RATIO = 0.1
"""A goal is at least this share of the last program's peak, however much more the compiler needs."""


class Goals:
    """Static goals, each lower than the last, interpolated from what the compiler reported of the programs before.

    The next goal lies on the line through the last two programs, static bytes against the compiler's (the secant
    method), and is no larger than the ratio of the room to the last one's figure gives. If a goal gives a program worse
    than the best so far, a goal between the two follows once: the profile may be right for the best program and wrong
    only for the last.

    Args:
        first: the first goal, in bytes of temporaries.
        room: bytes that the budget leaves for temporaries.
        original: temporaries of the unchanged program: by the profile, and as the compiler reports them.

    Attributes:
        goal: the current goal.
        between: whether it lies between two earlier ones.
    """

    def __init__(self, first: float, room: float, original: tuple[float, float]):
        self.first, self.room, self.original = first, room, original
        self.restart()

    def restart(self) -> None:
        """Returns to the first goal, for a search with another first step."""
        self.goal = self.lower = self.first
        self.latest = self.original
        self.best_static: int | None = None
        self.between = False

    def follow(self, static: int, temp: float, *, better: bool) -> None:
        """Sets the next goal after a program with `static` bytes of temporaries was measured at `temp`.

        Args:
            better: whether its peak is the lowest so far.
        """
        lower = interpolated((static, temp), self.latest, self.room)
        self.latest = (static, temp)
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


def interpolated(one: tuple[float, float], larger: tuple[float, float], room: float) -> float:
    """The static peak at which the compiler should report what just fits the room.

    It is on the line through two programs, each given by its static temporaries and the compiler's, and never more than
    their ratio in the first program gives.
    """
    static, temp = one
    aim = _AIM * min(room, temp)
    ratio = max(_LEAST_RATIO, aim / temp) if temp > 0 else _AIM
    return max(_LEAST_RATIO * static, min(on_line(one, larger, aim), ratio * static))


def on_line(one: tuple[float, float], larger: tuple[float, float], temp: float) -> float:
    """The static peak at which the line through two programs has so many bytes by the compiler.

    Infinite if the compiler sees no more in the larger program, or refused it without a figure.
    """
    width, rise = larger[0] - one[0], larger[1] - one[1]
    return one[0] + (temp - one[1]) * width / rise if width > 0 and 0 < rise < math.inf else math.inf


def is_far(temp_bytes: float, goal: float) -> bool:
    """Whether a goal is missed by far."""
    return temp_bytes > HOPELESS * goal
