"""The error of a budget that cannot be kept; it carries the best plan. The planner raises it."""

from __future__ import annotations

from stablehlo_mem.errors import StableHLOMemError
from stablehlo_mem.pass_api.candidate import Refusal
from stablehlo_mem.results.plan import Plan


class BudgetError(StableHLOMemError):
    """The budget could not be kept.

    Attributes:
        budget_bytes: the budget that was asked for.
        needed_bytes: the peak of the unoptimised program. If the budget is below arguments + outputs − aliased, nothing
            is planned, and this is their sum.
        reached_bytes: the smallest peak reached within `Options.max_slowdown`; the same sum if nothing is planned.
        best: the plan of the smallest peak, None if nothing is planned. If it is `too_slow`, it keeps the budget.
        obstacles: the refusals at the peak, largest value first.
    """

    def __init__(
        self,
        message: str,
        *,
        budget_bytes: int,
        needed_bytes: int,
        reached_bytes: int,
        best: Plan | None,
        obstacles: tuple[Refusal, ...] = (),
    ):
        self.budget_bytes = budget_bytes
        self.needed_bytes = needed_bytes
        self.reached_bytes = reached_bytes
        self.best = best
        self.obstacles = obstacles
        super().__init__(message)

    def of(self, part: str) -> BudgetError:
        """The same error, said of a part of what was asked for."""
        return BudgetError(
            f"{part}: {self}",
            budget_bytes=self.budget_bytes,
            needed_bytes=self.needed_bytes,
            reached_bytes=self.reached_bytes,
            best=self.best,
            obstacles=self.obstacles,
        )
