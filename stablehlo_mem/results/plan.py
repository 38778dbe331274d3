"""Plans and what they are made of: frozen data without MLIR objects, so that it can be cached, replayed and printed."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from jax.export import Exported

from stablehlo_mem.analysis.peak_memory import Measured, MemoryProfile, Refused
from stablehlo_mem.ir.bindings import ir, parse_module
from stablehlo_mem.ir.graph import OpId
from stablehlo_mem.targets.chips import Chip

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from stablehlo_mem.checking.plan_check import Check
    from stablehlo_mem.planner.pareto_curve import CurvePoint

Numerics = Literal["exact", "reassociate", "relaxed"]
"""exact: no float sum is regrouped; reassociate: sums may be; relaxed: also cheaper, less precise forms."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What `optimize` may do.

    Attributes:
        numerics: see `Numerics`.
        passes: names of the passes allowed, None for all.
        tune: time the best few plans on this machine's device, on drawn arguments, and take the fastest. What is found
            depends on the machine and what else it does; with "min" nothing is timed.
        max_compiles: how often the target's compiler may be asked.
        verify: run the MLIR verifier and check the signature of the result.
        cache: may plans of earlier calls be reused: those in $STABLEHLO_MEM_CACHE, or beside the executables that JAX
            keeps (`jax_compilation_cache_dir`). `jit` keeps its own too.
    """

    numerics: Numerics = "reassociate"
    passes: tuple[str, ...] | None = None
    tune: bool = False
    max_compiles: int = 16
    verify: bool = True
    cache: bool = True


def allows(options: Options, numerics: Numerics) -> bool:
    """Whether options allow what needs these numerics."""
    return weakest((options.numerics, numerics)) == options.numerics


def weakest(numerics: Iterable[Numerics]) -> Numerics:
    """The least strict of some."""
    return max(numerics, key=get_args(Numerics).index)


@dataclasses.dataclass(frozen=True)
class Goal:
    """What the passes are asked for: at most `temp_bytes` of temporaries, by the static profile of a chip.

    `far` asks for steps that take smaller values along too: they reach further from the values at the peak.
    `bytes_first` asks for what saves time only in forms that take the least memory. `share` of the temporaries is what
    a step may take where the others alone are over the goal: later steps make those smaller.
    """

    chip: Chip
    options: Options
    temp_bytes: int
    far: bool = False
    bytes_first: bool = False
    share: float = 0.25


@dataclasses.dataclass(frozen=True)
class Step:
    """One decision: a pass, the fingerprint of the module it applies to and JSON parameters."""

    pass_name: str
    input_fingerprint: str
    params: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Size:
    """A step in another size: the parameters that differ, and what it is then thought to be worth.

    `moved_seconds` is the part of the time that `cost.graph_seconds` does not see, as it knows no caches.
    """

    params: Mapping[str, Any]
    saved_bytes: int
    added_seconds: float
    moved_seconds: float


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A step somebody could take and what it is thought to be worth.

    Attributes:
        saved_bytes: static estimate of the bytes freed at the peak.
        added_seconds: static estimate of the time added (negative: saved).
        numerics: the weakest `Options.numerics` that allows it.
        summary: what it does, in a few words for people: "split exponential f32[64,128] along dimension 0".
        otherwise: the refusal to report if the step turns out not to lower the peak; its location is the step's.
        sizes: all the sizes the step could have, its own among them, fastest first; () if it has one only.
        moved_seconds: see `Size`.
        edit: does the step to a copy of the module it was proposed for, knowing what was found out then; None: as any
            other, by its pass. It stays in this process.
        effect: hashable; candidates for one module that have it and their size in common lead to the same module. None
            where nothing is known.
        opens: lowers nothing by itself, but what follows may: it is judged by the best step after it.
    """

    step: Step
    saved_bytes: int
    added_seconds: float
    numerics: Numerics
    summary: str
    otherwise: Refusal
    sizes: tuple[Size, ...] = ()
    moved_seconds: float = 0.0
    edit: Callable[[ir.Module, Step], None] | None = dataclasses.field(default=None, repr=False, compare=False)
    effect: Any = dataclasses.field(default=None, repr=False, compare=False)
    opens: bool = False

    def resized(self, size: Size) -> Candidate:
        """The candidate in another size."""
        return dataclasses.replace(
            self,
            step=dataclasses.replace(self.step, params={**self.step.params, **size.params}),
            saved_bytes=size.saved_bytes,
            added_seconds=size.added_seconds,
            moved_seconds=size.moved_seconds,
        )


@dataclasses.dataclass(frozen=True)
class Refusal:
    """Why a value was not made smaller.

    Attributes:
        op: the op that stands in the way.
        value: how it reads to people, e.g. "dot_general f32[8,16384,16384]".
        nbytes: bytes of that value.
        dimension: the dimension that could not be split, -1 for the value as a whole.
        code: a stable short name of the reason, e.g. "needs-whole-dimension".
        message: the reason for people.
        location: the user's source line, "" if unknown.
    """

    op: OpId
    value: str
    nbytes: int
    dimension: int
    code: str
    message: str
    location: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decision:
    """A step that was taken, for people; its worth by the static estimates at the moment it was taken.

    Attributes:
        pass_name: the pass that took it.
        what: what was done: "split dot_general f32[8,8192,8192] along dimension 1".
        how: "1 loop of 128 steps, 64 of 8192 at a time".
        location: the user's source line, "" if unknown.
        numerics: the weakest `Options.numerics` that allows it: "exact" steps regroup no sum.
        saved_bytes: by which the static peak fell; negative where it rose, to save time or to make room for another.
        added_seconds: the estimate of the time added, negative where some is saved.
        added_flops: the arithmetic added, negative where some is saved.
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
class Plan:
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

    def __str__(self) -> str:
        from stablehlo_mem.reports.text import plan_text  # reports know plans, never the other way at import time

        return plan_text(self)

    def _repr_html_(self) -> str:
        """The page of `to_html`, in a frame of its own: what notebooks show."""
        from stablehlo_mem.reports.html import frame, plan_page

        return frame(plan_page(self))

    def to_json(self) -> str:
        """The decisions and figures as JSON text; the programs (`result`, `exported`, `bytecode`) are left out."""
        data = plain_data(self)
        data["before"]["peak_bytes"] = self.before.peak_bytes
        data["after"]["peak_bytes"] = self.after.peak_bytes
        return json.dumps(data, indent=2)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan as one page for a browser, nothing else needed: memory over the program, before and after.

        Args:
            path: the file; one that is there is written over.

        Raises:
            OSError: it cannot be written.
        """
        from stablehlo_mem.reports.html import plan_page

        pathlib.Path(path).write_text(plan_page(self), encoding="utf-8")

    def plot(self) -> Figure:
        """Memory over the program, before and after, as a matplotlib figure.

        Raises:
            InputError: matplotlib is not installed: `pip install stablehlo-mem[plot]`.
        """
        from stablehlo_mem.reports.plot import plot_plan

        return plot_plan(self)

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
        from stablehlo_mem.checking.plan_check import check_plan  # plans are data: what runs them comes in here

        return check_plan(self, args, kwargs, seed)


def plain_data(value: Any) -> Any:
    """Dataclasses and mappings as dicts, tuples as lists, all the way down; fields that are not shown are left out."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain_data(getattr(value, field.name)) for field in dataclasses.fields(value) if field.repr}
    if isinstance(value, Mapping):
        return {str(key): plain_data(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (tuple, list)):
        return [plain_data(item) for item in cast("list[Any]", value)]
    return value
