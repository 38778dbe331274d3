"""What stands at a program's peak, and what could be done there: the search's first look, for people."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from typing import Literal

from stablehlo_mem.analysis.peak_memory import MemoryProfile, Origin
from stablehlo_mem.frontend.program import Program
from stablehlo_mem.planner.greedy_search import anywhere, propose
from stablehlo_mem.planner.search_state import start_of
from stablehlo_mem.planner.validation import check_options
from stablehlo_mem.results.memory_profile import profile_graph
from stablehlo_mem.results.plan import Candidate, Goal, Options, Refusal, plain_data
from stablehlo_mem.targets.target import Target

_PART = 4
"""Without a budget, steps are asked for one part in so many of the temporaries."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation:
    """What needs the memory of a program and what the passes say to that; no compiler was asked.

    Attributes:
        target: the name of the target.
        profile: the memory of the program as it is, static.
        goal_bytes: the temporaries that the steps were asked to reach.
        quicker: steps that save time, wherever they are: they are taken before any other.
        offers: steps that would lower the peak, the ones to try first in front.
        refusals: what was not offered and why, largest value first.
    """

    target: str
    profile: MemoryProfile
    goal_bytes: int
    quicker: tuple[Candidate, ...]
    offers: tuple[Candidate, ...]
    refusals: tuple[Refusal, ...]

    def __str__(self) -> str:
        from stablehlo_mem.reports.text import explanation_report, render_text  # rich is not needed to explain

        return render_text(explanation_report(self))

    def _repr_html_(self) -> str:
        """The page of `to_html`, in a frame of its own: what notebooks show."""
        from stablehlo_mem.reports.html import explanation_page, frame

        return frame(explanation_page(self))

    def to_json(self) -> str:
        """All of it as JSON text."""
        data = plain_data(self)
        data["profile"]["peak_bytes"] = self.profile.peak_bytes
        return json.dumps(data, indent=2)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Writes it as one page for a browser: memory over the program, what could be done, what not.

        Args:
            path: the file; one that is there is written over.

        Raises:
            OSError: it cannot be written.
        """
        from stablehlo_mem.reports.html import explanation_page

        pathlib.Path(path).write_text(explanation_page(self), encoding="utf-8")


def explain_program(
    program: Program, target: Target, budget: int | Literal["min"] | None, options: Options
) -> Explanation:
    """What the passes say to a program at its peak.

    Args:
        budget: bytes of the whole peak to aim at, "min" for as little as can be, None for a quarter of the temporaries.

    Raises:
        InputError: an option has no meaning.
    """
    check_options(options)
    goal = Goal(target.chip, options, 0)
    state = start_of(program, goal)
    profile = dataclasses.replace(profile_graph(state.graph, target.chip), origin=Origin(program.lasting, target))
    goal = dataclasses.replace(goal, temp_bytes=_goal_bytes(profile, budget))
    near, refusals = propose(state, goal)
    far, _ = propose(state, dataclasses.replace(goal, far=True))
    helping = {(c.summary, c.saved_bytes): c for c in reversed([*near, *far]) if c.saved_bytes > 0}
    return Explanation(
        target=target.name,
        profile=profile,
        goal_bytes=goal.temp_bytes,
        quicker=tuple(anywhere(state, goal)),
        offers=tuple(reversed(helping.values())),
        refusals=refusals,
    )


def _goal_bytes(profile: MemoryProfile, budget: int | Literal["min"] | None) -> int:
    if isinstance(budget, int):
        return max(0, budget - profile.static_peak_bytes + profile.temp_bytes)
    return 0 if budget == "min" else profile.temp_bytes // _PART
