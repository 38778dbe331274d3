"""Plans and what they are made of: frozen data without MLIR objects, so that it can be cached, replayed and printed."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from jax.export import Exported

from stablehlo_mem.ir.bindings import ir, parse_module
from stablehlo_mem.pass_api.candidate import Options, Refusal, Step
from stablehlo_mem.results.decision import Decision
from stablehlo_mem.results.memory_profile import MemoryProfile
from stablehlo_mem.results.rendering import Drawn, provided
from stablehlo_mem.targets.measurement import Measured, Refused
from stablehlo_mem.utils.plain_data import plain_data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from stablehlo_mem.results.check import Check
    from stablehlo_mem.results.memory_time_curve import CurvePoint


@dataclasses.dataclass(frozen=True)
class Cost:
    """The time and the arithmetic of one execution, estimated: for comparing programs, not for predicting a clock."""

    seconds: float
    flops: float


@dataclasses.dataclass(frozen=True)
class Figures:
    """What one target's compiler reported of the program as it was given and as it came out."""

    target: str
    before: Measured | Refused
    after: Measured | Refused


@dataclasses.dataclass(frozen=True)
class Timing:
    """A plan that was timed on the device.

    Attributes:
        what: how its decisions are done, in words.
        estimated, measured: seconds of one execution; measured is the median of a few.
        is_taken: whether it is the plan.
    """

    what: str
    estimated: float
    measured: float
    is_taken: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan(Drawn):
    """What `optimize` decided, what it is worth, and the program that came out.

    Attributes:
        budget_bytes: the budget, None for "min" and for no limit.
        target: names of the targets the plan was made for.
        before, after: memory on the first target; on several, `measured` is the worst of them.
        steps: the decisions in order, each with its one-line summary in `summaries`.
        decisions: the same for reports, with what each was estimated to be worth.
        cost_before, cost_after: estimates for the target that the steps were chosen for, None in a plan without them.
        figures: the compilers' own, one for each target.
        timings: of the plans that `Options.tune` had timed, the fastest first.
        options: what was allowed.
        refusals: what stands in the way at the final peak, largest value first.
        compiles: how often a compiler was asked.
        fits: whether the measured peak is within the budget on every target.
        result: the optimised program, of the kind that was given; the very same object if nothing was to do.
        exported: the result as an Exported, None if the input was none.
        bytecode: the optimised module.
        planning_seconds: analysis and rewriting, compilation aside.
    """

    budget_bytes: int | None
    target: tuple[str, ...]
    before: MemoryProfile
    after: MemoryProfile
    steps: tuple[Step, ...]
    summaries: tuple[str, ...]
    refusals: tuple[Refusal, ...]
    compiles: int
    fits: bool
    planning_seconds: float
    result: Any = dataclasses.field(repr=False)
    exported: Exported | None = dataclasses.field(repr=False)
    bytecode: bytes = dataclasses.field(repr=False)
    options: Options = Options()
    decisions: tuple[Decision, ...] = ()
    cost_before: Cost | None = None
    cost_after: Cost | None = None
    figures: tuple[Figures, ...] = ()
    timings: tuple[Timing, ...] = ()

    @property
    def module(self) -> ir.Module:
        """The optimised module, parsed afresh: yours to change."""
        return parse_module(self.bytecode)

    def to_json(self) -> str:
        """The decisions and figures as JSON text; the programs (`result`, `exported`, `bytecode`) are left out."""
        data = plain_data(self)
        data["before"]["peak_bytes"] = self.before.peak_bytes
        data["after"]["peak_bytes"] = self.after.peak_bytes
        return json.dumps(data, indent=2)

    def plot(self) -> Figure:
        """Memory over the program, before and after, as a matplotlib figure.

        Raises:
            InputError: matplotlib is not installed: `pip install stablehlo-mem[plot]`.
        """
        return provided(self, "plot")(self)

    def curve(self) -> tuple[CurvePoint, ...]:
        """Which budgets are reachable, at what estimated time: `stablehlo_mem.curve` of the original program.

        Raises:
            InputError: the plan does not know its program, being read from a file, say.
        """
        return self.before.curve(self.options)

    def check(self, *args: Any, seed: int = 0, **kwargs: Any) -> Check:
        """Runs the original and `result` on the same arguments, and holds the results to the original in float64.

        On the device that was planned for; where that is not here or the original does not fit it, on the CPU. The
        yardstick is that of docs/numerics.md. Nothing is donated, nothing is kept.

        Args:
            *args: the program's arguments, or all their arrays one after the other; without any they are drawn:
                normal floats of deviation 1/2, whole numbers below 60.
            seed: equal seeds draw equal arguments.
            **kwargs: the program's keyword arguments.

        Returns:
            What was found, each result within its limit.

        Raises:
            CheckError: a result is beyond its limit, or NaNs or infinities are at other places; it carries the check.
            InputError: the plan does not know its program, the arguments do not suit it, the program is for several
                devices, or neither the device nor the host can run it or has room for the original.
        """
        return provided(self, "check")(self, args, kwargs, seed)
