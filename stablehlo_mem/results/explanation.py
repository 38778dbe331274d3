"""What is live at a program's peak and which steps would lower it: what `explain` returns, `planner.explain` makes."""

from __future__ import annotations

import dataclasses
import json

from stablehlo_mem.pass_api.candidate import Candidate, Refusal
from stablehlo_mem.results.memory_profile import MemoryProfile
from stablehlo_mem.results.rendering import HasPage
from stablehlo_mem.utils.plain_data import plain_data


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation(HasPage):
    """Where a program's memory goes and which steps the passes propose there; nothing was compiled.

    Attributes:
        target: the name of the target.
        profile: the static memory profile of the original program.
        goal_bytes: the temporaries that the passes were asked to reach.
        impossible: why no plan can keep the budget that was asked for, "" if one might.
        quicker: steps that save time anywhere in the program; planning takes them first.
        offers: steps that would lower the peak, in the order in which the search tries them.
        refusals: what the passes could not propose and why, largest value first.
    """

    target: str
    profile: MemoryProfile
    goal_bytes: int
    quicker: tuple[Candidate, ...]
    offers: tuple[Candidate, ...]
    refusals: tuple[Refusal, ...]
    impossible: str = ""

    def to_json(self) -> str:
        """All of it as JSON text."""
        data = plain_data(self)
        data["profile"]["peak_bytes"] = self.profile.peak_bytes
        return json.dumps(data, indent=2)
