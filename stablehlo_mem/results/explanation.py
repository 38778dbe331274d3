"""What stands at a program's peak, and what could be done there: plain data."""

from __future__ import annotations

import dataclasses
import json

from stablehlo_mem.pass_api.candidate import Candidate, Refusal
from stablehlo_mem.results.memory_profile import MemoryProfile
from stablehlo_mem.results.rendering import Drawn
from stablehlo_mem.utils.plain_data import plain_data


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation(Drawn):
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

    def to_json(self) -> str:
        """All of it as JSON text."""
        data = plain_data(self)
        data["profile"]["peak_bytes"] = self.profile.peak_bytes
        return json.dumps(data, indent=2)
