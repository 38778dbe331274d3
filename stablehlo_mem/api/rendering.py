"""Registers how the public types print, draw and check themselves, see `results.rendering`.

The package calls it when it is imported.
"""

from __future__ import annotations

from typing import Any

from stablehlo_mem.checking.plan_check import check_plan
from stablehlo_mem.planner.pareto_curve import curve_of_profile
from stablehlo_mem.reports.html import explanation_page, plan_page
from stablehlo_mem.reports.plot import plot_plan
from stablehlo_mem.results.explanation import Explanation
from stablehlo_mem.results.memory_profile import MemoryProfile
from stablehlo_mem.results.plan import Plan
from stablehlo_mem.results.rendering import HasText, check_of, curve_of, page_of, plot_of, text_of


def register_rendering() -> None:
    """Registers the functions of each public type."""
    text_of.register(HasText, _text)
    page_of.register(Plan, plan_page)
    page_of.register(Explanation, explanation_page)
    plot_of.register(Plan, plot_plan)
    curve_of.register(MemoryProfile, curve_of_profile)
    check_of.register(Plan, check_plan)


def _text(result: Any) -> str:
    from stablehlo_mem.reports.text import plain_text  # planning does not wait for rich to be imported

    return plain_text(result)
