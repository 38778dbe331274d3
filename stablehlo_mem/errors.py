"""The typed errors of stablehlo-mem: all derive from `StableHLOMemError`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stablehlo_mem.checking.plan_check import Check
    from stablehlo_mem.results.plan import Plan, Refusal


class StableHLOMemError(Exception):
    """Base of every error raised on purpose by stablehlo-mem."""


class InputError(StableHLOMemError, ValueError):
    """The module, the budget or an option is not one we can work with."""


class TargetError(StableHLOMemError, ValueError):
    """The target is unknown, its compiler is not installed, or it does not fit the module."""


class PassError(StableHLOMemError, RuntimeError):
    """A pass broke the module: a bug in stablehlo-mem. Names the pass and those that ran before it."""

    def __init__(self, pass_name: str, message: str, before: tuple[str, ...] = ()):
        self.pass_name = pass_name
        self.before = before
        after = f" (after {', '.join(before)})" if before else ""
        super().__init__(f"pass {pass_name}{after}: {message}")


class CheckError(StableHLOMemError):
    """A plan's program does not compute what the original does: a bug in stablehlo-mem. `check` has the figures."""

    def __init__(self, message: str, check: Check):
        self.check = check
        super().__init__(message)


class BudgetError(StableHLOMemError):
    """The budget could not be kept.

    Attributes:
        budget_bytes: what was asked for.
        needed_bytes: what the unoptimised program needs.
        reached_bytes: the smallest peak reached.
        best: the plan that reached it, or None if nothing was attempted.
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
