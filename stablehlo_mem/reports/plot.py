"""Plans as matplotlib figures for papers and slides: `Plan.plot` calls it. matplotlib is optional."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stablehlo_mem.errors import InputError
from stablehlo_mem.reports.phrases import headline
from stablehlo_mem.results.memory_history import History
from stablehlo_mem.results.memory_profile import MemoryProfile
from stablehlo_mem.results.plan import Plan
from stablehlo_mem.utils.units import byte_unit, format_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIZE = (10.0, 3.6)
"""Inches of a figure: two charts side by side on a slide."""


def plot_plan(plan: Plan) -> Figure:
    """Memory over the program, before and after, with the budget and the loops.

    Raises:
        InputError: matplotlib is not installed, or the plan has no history.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("plots need matplotlib: pip install stablehlo-mem[plot]") from error
    figure = Figure(figsize=_SIZE, layout="constrained")
    figure.suptitle(headline(plan))
    axes: Any = figure.subplots(1, 2)
    for axis, name, profile in zip(axes, ("before", "after"), (plan.before, plan.after), strict=True):
        if profile.history is None:
            raise InputError("this plan kept no memory over the program: it cannot be drawn")
        _draw(axis, profile, profile.history, plan.budget_bytes)
        axis.set_title(f"{name}: {format_bytes(profile.static_peak_bytes)} by the static profile", fontsize="medium")
    return figure


def _draw(axis: Any, profile: MemoryProfile, history: History, budget: int | None) -> None:
    unit, name = byte_unit(profile.static_peak_bytes)
    points = range(len(history.ops) + 1)
    fixed = [history.fixed_bytes / unit] * len(history.ops)
    totals = [(history.fixed_bytes + temp) / unit for temp in history.temp_bytes]
    axis.stairs(totals, points, baseline=fixed, fill=True, alpha=0.7, label="temporaries")
    axis.stairs(fixed, points, fill=True, color="0.6", label="arguments, outputs, constants")
    for i, loop in enumerate(history.loops):
        label = "loops" if i == 0 else None
        axis.axvspan(loop.begin, loop.end + 1, color="tab:orange", alpha=0.2, linewidth=0, zorder=0, label=label)
    if budget is not None and budget < 2 * profile.static_peak_bytes:
        axis.axhline(budget / unit, color="tab:red", linestyle="--", label="budget")
    axis.set(xlabel="program order", ylabel=name, xlim=(0, len(history.ops)), ylim=(0, None))
    axis.legend(fontsize="small")
