"""The page of a plan: what is in it, and what a real browser makes of it."""

from __future__ import annotations

import dataclasses
import html
import json
import pathlib
import re
import sys
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import stablehlo_mem as shm
from stablehlo_mem.reports.html import plan_page
from stablehlo_mem.utils.units import format_bytes
from tests.page_plans import attention_plan, evil
from tests.support import exported, spec


@pytest.fixture(scope="module")
def plan() -> shm.Plan:
    return attention_plan()


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_page_fetches_nothing(plan: shm.Plan) -> None:
    page = plan_page(plan)
    assert not re.search(r"(src|href)=|@import|url\(|fetch\(|XMLHttpRequest", page)
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}


def test_the_charts_hold_the_static_profiles(plan: shm.Plan) -> None:
    before, after = data_of(plan_page(plan))["charts"]
    for chart, profile in ((before, plan.before), (after, plan.after)):
        assert max(chart["temp"]) == profile.temp_bytes
        assert sum(part["nbytes"] for part in chart["fixed"]) == profile.static_peak_bytes - profile.temp_bytes
    assert "dot_general f32[2,768,768]" in {buffer["name"] for buffer in before["buffers"]}
    assert any("page_plans.py" in buffer["source"] for buffer in before["buffers"])
    assert before["loops"] == []
    assert after["loops"]
    for loop, decision in zip(after["loops"], plan.decisions, strict=True):
        assert loop["made"]
        assert f"of {loop['steps']} steps" in decision.how


def test_a_loop_of_the_program_is_not_taken_for_the_plans() -> None:
    def scanned(x):
        return jax.lax.scan(lambda c, row: (c + row, jnp.exp(row[:, None] * row).sum()), x[0], x)

    plan = shm.plan(exported(scanned, spec(6, 768)), "1MiB", target="cpu")
    assert plan.steps
    _, after = data_of(plan_page(plan))["charts"]
    assert sorted((loop["depth"], loop["made"]) for loop in after["loops"]) == [(0, False), (1, True)]


def test_the_page_says_what_the_text_says(plan: shm.Plan) -> None:
    page = plan_page(plan)
    decision = plan.decisions[0]
    for text in (
        decision.what,
        decision.how,
        format_bytes(plan.before.peak_bytes),
        format_bytes(plan.after.peak_bytes),
    ):
        assert text in page
    assert "aria-label" in page
    assert 'name="viewport"' in page
    assert "prefers-color-scheme: dark" in page


def test_a_plan_without_history_has_a_page_all_the_same(plan: shm.Plan) -> None:
    bare = dataclasses.replace(
        plan,
        before=dataclasses.replace(plan.before, history=None),
        after=dataclasses.replace(plan.after, history=None),
    )
    assert "Not kept in this plan" in plan_page(bare)
    assert data_of(plan_page(bare))["charts"] == []


def test_names_are_not_taken_for_markup(plan: shm.Plan) -> None:
    page = plan_page(evil(plan))
    assert "<img" not in page
    assert page.count("<script") == 2


def test_to_html_writes_the_page_and_notebooks_show_it(plan: shm.Plan, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "plan.html"
    plan.to_html(path)
    assert path.read_text(encoding="utf-8") == plan_page(plan)
    shown = plan._repr_html_()
    assert html.escape(plan_page(plan)) in shown
    assert shown.startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;')
    with pytest.raises(OSError, match="no/such"):
        plan.to_html("/no/such/folder/plan.html")


def test_plot_draws_both_sides(plan: shm.Plan, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("matplotlib")
    figure = plan.plot()
    assert [axis.get_title().partition(":")[0] for axis in figure.axes] == ["before", "after"]
    figure.savefig(tmp_path / "plan.png")
    assert (tmp_path / "plan.png").stat().st_size > 1000


def test_plot_without_matplotlib_names_the_extra(plan: shm.Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(shm.InputError, match=r"pip install stablehlo-mem\[plot\]"):
        plan.plot()
