"""One step of a plan as reports show it. The planner makes it when it takes the step."""

from __future__ import annotations

import dataclasses

from stablehlo_mem.pass_api.candidate import Numerics


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decision:
    """A step of a plan, and what the static analyses estimated of it when it was taken.

    Attributes:
        pass_name: the pass that proposed it.
        what: what was done: "split dot_general f32[8,8192,8192] along dimension 1".
        how: "1 loop of 128 steps, 64 of 8192 at a time".
        location: the user's source line, "" if unknown.
        numerics: the weakest `Options.numerics` that allows it: "exact" steps regroup no sum.
        saved_bytes: by how much the static peak fell; negative if it rose, to save time or to enable a later step.
        added_seconds: estimated time added, negative if time is saved.
        added_flops: arithmetic added, negative if some is saved.
    """

    pass_name: str
    what: str
    how: str
    location: str
    numerics: Numerics
    saved_bytes: int
    added_seconds: float
    added_flops: float

    @property
    def summary(self) -> str:
        """One line: what, how exact, where and how."""
        return f"{self.what} ({'; '.join(filter(None, (self.numerics, self.location)))}): {self.how}"
