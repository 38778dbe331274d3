"""Plans: frozen data without MLIR objects, so that they can be cached, replayed and printed. The planner makes them."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from jax.export import Exported

from stablehlo_mem.ir.bindings import ir, parse_module
from stablehlo_mem.pass_api.candidate import Options, Refusal, Step
from stablehlo_mem.results.decision import Decision
from stablehlo_mem.results.memory_profile import MemoryProfile
from stablehlo_mem.results.rendering import HasPage, check_of, plot_of
from stablehlo_mem.targets.measurement import Measured, Refused
from stablehlo_mem.utils.plain_data import plain_data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from stablehlo_mem.results.check import Check
    from stablehlo_mem.results.memory_time_curve import CurvePoint


@dataclasses.dataclass(frozen=True)
class Cost:
    """Estimated time and arithmetic of one execution: good for comparing programs, not for predicting wall time."""

    seconds: float
    flops: float

    def over(self, original: Cost) -> float:
        """The ratio of the times; 1.0 if nothing is known of the original's."""
        return self.seconds / original.seconds if original.seconds else 1.0


@dataclasses.dataclass(frozen=True)
class Figures:
    """What one target's compiler reported of the original and of the optimised program."""

    target: str
    before: Measured | Refused
    after: Measured | Refused


@dataclasses.dataclass(frozen=True)
class Timing:
    """A plan that `Options.tune` timed on the device.

    Attributes:
        what: the `how` of its decisions.
        estimated, measured: seconds of one execution; measured is the median of a few.
        is_taken: whether this plan was chosen.
    """

    what: str
    estimated: float
    measured: float
    is_taken: bool


@dataclasses.dataclass(frozen=True)
class TooSlow:
    """A program beyond `Options.max_slowdown`: its measured peak, and its estimated time over the original's."""

    peak_bytes: int
    slowdown: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan(HasPage):
    """The steps that `optimize` takes, what they change in memory and time, and the optimised program.

    Attributes:
        budget_bytes: the budget, None for "min" and for no limit.
        target: names of the targets the plan was made for.
        before, after: memory on the first target; on several, `measured` is the worst of them.
        steps: what was done, in order, each with its one-line summary in `summaries`.
        decisions: the steps as reports show them, with the estimates of each.
        cost_before, cost_after: estimates for the target that the steps were chosen for, None if there are none.
        figures: what each target's compiler reported.
        timings: the plans that `Options.tune` timed, fastest first.
        options: the options of the call.
        refusals: why the final peak is not lower, largest value first.
        compiles: the number of compilations.
        fits: whether the measured peak is within the budget on every target, and the plan is not too slow.
        too_slow: whether the peak is within the budget and the estimated time beyond `Options.max_slowdown`.
        affordable_peak_bytes: of a plan that is too slow, the smallest peak of a compiled program that is not.
        smaller_but_slow: where the budget is not kept, the smallest compiled program that is too slow, if smaller.
        result: the optimised program, of the kind that was given; the very same object if there are no steps.
        exported: the result as an Exported, None if the input was not an Exported.
        bytecode: the optimised module.
        planning_seconds: wall time of analysis and rewriting, without compilations.
        compile_seconds: wall time of the compilations.
        name: the program's, "" in a plan of an earlier version.
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
    too_slow: bool = False
    affordable_peak_bytes: int | None = None
    compile_seconds: float = 0.0
    smaller_but_slow: TooSlow | None = None
    name: str = ""

    @property
    def slowdown(self) -> float:
        """The estimated time over the original's; 1.0 without estimates."""
        if self.cost_before is None or self.cost_after is None:
            return 1.0
        return self.cost_after.over(self.cost_before)

    @property
    def module(self) -> ir.Module:
        """The optimised module, parsed anew at each access: the caller may change it."""
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
        return plot_of(self)

    def curve(self) -> tuple[CurvePoint, ...]:
        """Which budgets are reachable, at what estimated time: `stablehlo_mem.curve` of the original program.

        Raises:
            InputError: the plan does not hold its program, as when it was read from a file.
        """
        return self.before.curve(self.options)

    def check(self, *args: Any, seed: int = 0, **kwargs: Any) -> Check:
        """Runs the original and `result` on the same arguments and compares both with the original in float64.

        They run on the device that was planned for, or on the CPU if this machine lacks that device or the original
        does not fit it. docs/numerics.md states the limits. Nothing is donated or stored.

        Args:
            *args: the program's arguments, or their flat leaves in order; if there are none they are drawn: normal
                floats of deviation 1/2, integers below 60.
            seed: equal seeds draw equal arguments.
            **kwargs: the program's keyword arguments.

        Returns:
            The errors of all results, each within its limit.

        Raises:
            CheckError: a result is over its limit, or NaNs or infinities are at other places; it carries the check.
            InputError: the plan does not hold its program, the arguments do not suit it, the program is for several
                devices, or neither the device nor the host can run it or has room for the original.
        """
        return check_of(self, args, kwargs, seed)
