"""The Pareto front of the states that the searches of one program have visited: static peaks against seconds.

`planner.evaluator` adds what each search visits, so that no search's result is worse than what an earlier one passed.
"""

from __future__ import annotations

from collections.abc import Iterator

from stablehlo_mem.planner.search_state import SearchState

CLEARLY = 0.05
"""Share of its time by which one program must be faster to be preferred: the error of the time estimates."""


class ParetoFront:
    """States of which none is both slower and larger than another."""

    def __init__(self) -> None:
        self._states: list[SearchState] = []

    def add(self, state: SearchState) -> None:
        """Adds a state, and drops those that it dominates."""
        if any(_dominates(other, state) for other in self._states):
            return
        self._states = [other for other in self._states if not _dominates(state, other)]
        self._states.append(state)

    def within(self, temp_bytes: float) -> Iterator[SearchState]:
        """The states with at most so many bytes of temporaries, fastest first."""
        yield from sorted((s for s in self._states if s.peak.temp_bytes <= temp_bytes), key=lambda s: s.seconds)

    def best(self, goal_bytes: int) -> SearchState:
        """The fastest state within a goal, or the smallest if none is."""
        return next(self.within(goal_bytes), None) or min(self._states, key=lambda s: s.peak.temp_bytes)

    def improve(self, end: SearchState, goal_bytes: int) -> SearchState:
        """The end of a search, or a state within the goal that is faster."""
        fastest = next(self.within(goal_bytes), end)
        return fastest if end.peak.temp_bytes > goal_bytes or fastest.seconds < end.seconds else end


def _dominates(one: SearchState, other: SearchState) -> bool:
    return one.peak.temp_bytes <= other.peak.temp_bytes and one.seconds <= other.seconds
