"""One point of memory against time: what `curve` returns, `planner.pareto_curve` makes."""

from __future__ import annotations

import dataclasses

from stablehlo_mem.results.decision import Decision


@dataclasses.dataclass(frozen=True)
class CurvePoint:
    """A budget that can be reached according to the static analyses; nothing was compiled.

    Attributes:
        peak_bytes: arguments + outputs + temporaries + constants − aliased.
        seconds: estimated time of one execution: good for comparing points, not for predicting wall time.
        slowdown: `seconds` over that of the original.
        decisions: the steps that lead there, none for the original.
    """

    peak_bytes: int
    seconds: float
    slowdown: float
    decisions: tuple[Decision, ...]
