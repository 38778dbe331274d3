"""One point of memory against time."""

from __future__ import annotations

import dataclasses

from stablehlo_mem.results.decision import Decision


@dataclasses.dataclass(frozen=True)
class CurvePoint:
    """A budget that is reachable by the static analyses; no compiler was asked.

    Attributes:
        peak_bytes: arguments + outputs + temporaries + constants − aliased.
        seconds: estimated time of one execution: for comparing points, not for predicting a clock.
        slowdown: the same over that of the original.
        decisions: the steps that lead there, none for the original.
    """

    peak_bytes: int
    seconds: float
    slowdown: float
    decisions: tuple[Decision, ...]
