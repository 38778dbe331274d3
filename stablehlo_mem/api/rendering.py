"""Gives the public types their reports, pages, plots, curves and checks. The package calls it when it is imported."""

from __future__ import annotations

from typing import Any

from stablehlo_mem.checking.plan_check import check_plan
from stablehlo_mem.planner.pareto_curve import curve_of_profile
from stablehlo_mem.reports.html import explanation_page, frame, plan_page
from stablehlo_mem.reports.plot import plot_plan
from stablehlo_mem.results.check import Check
from stablehlo_mem.results.explanation import Explanation
from stablehlo_mem.results.memory_profile import MemoryProfile
from stablehlo_mem.results.plan import Plan
from stablehlo_mem.results.rendering import provide


def provide_rendering() -> None:
    """Registers for each public type the functions that `results.rendering` looks up."""
    for kind in (Plan, MemoryProfile, Explanation, Check):
        provide(kind, text=_text)
    provide(Plan, page=plan_page, frame=lambda plan: frame(plan_page(plan)), plot=plot_plan, check=check_plan)
    provide(Explanation, page=explanation_page, frame=lambda explanation: frame(explanation_page(explanation)))
    provide(MemoryProfile, curve=curve_of_profile)


def _text(result: Any) -> str:
    from stablehlo_mem.reports.text import text_of  # planning does not wait for rich to be imported

    return text_of(result)
