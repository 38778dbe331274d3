"""The page of a plan: what is in it, and what a real browser makes of it."""

from __future__ import annotations

import dataclasses
import html
import json
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import stablehlo_mem as shm
from stablehlo_mem.reports.html import plan_page
from stablehlo_mem.results.memory_history import Buffer, LiveValue
from stablehlo_mem.utils.units import format_bytes
from tests.browser import Browser, find_browser
from tests.support import exported, spec

EVIL = "</script><script>window.hacked = 1</script><img src=x onerror=window.hacked=1>"


def attention(q, k, v):
    return jax.nn.softmax(jnp.einsum("hqd,hkd->hqk", q, k), -1) @ v


@pytest.fixture(scope="module")
def plan() -> shm.Plan:
    """8 MiB of scores in 3 MiB, of which 768 KiB go in and out."""
    made = shm.plan(exported(attention, *[spec(2, 768, 32)] * 3), "3MiB", target="cpu")
    assert made.fits
    assert made.before.peak_bytes > 3 * 2**20
    assert made.steps
    return made


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
    assert any("test_html.py" in buffer["source"] for buffer in before["buffers"])
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


def evil(plan: shm.Plan) -> shm.Plan:
    history = plan.before.history
    assert history is not None
    buffer = Buffer(LiveValue(EVIL, "f32", (1,), 2**20, EVIL), 0, 0)
    live = (buffer.value, *plan.before.live)
    before = dataclasses.replace(plan.before, history=dataclasses.replace(history, buffers=(buffer,)), live=live)
    return dataclasses.replace(plan, before=before)


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


needs_browser = pytest.mark.skipif(find_browser() is None, reason="no Chromium on this machine")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def page(plan: shm.Plan, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("page") / "plan.html"
    plan.to_html(path)
    return path


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_a_browser_draws_it(
    browser: Browser, plan: shm.Plan, page: pathlib.Path, width: int, height: int, dark: bool, tmp_path: pathlib.Path
) -> None:
    browser.open(page, width, height, dark=dark)
    assert browser.complaints == []
    assert browser.value("document.querySelectorAll('svg').length") == 2
    assert browser.value("document.querySelectorAll('#chart-0 path.band').length") >= 3
    assert browser.value("document.querySelectorAll('#chart-1 rect.loop.made').length") == len(plan.steps)
    assert browser.value("document.documentElement.scrollWidth") <= width
    ground = browser.value("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") is not dark
    browser.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 10_000


MIDDLE = """(() => {
  const band = CHARTS[0].large.reduce((a, b) => (b.nbytes > a.nbytes ? b : a));
  const box = band.path.getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
})()"""
DETAILS = "document.querySelector('#chart-0 .details').textContent"


@needs_browser
def test_pointing_at_a_buffer_names_it(browser: Browser, page: pathlib.Path) -> None:
    browser.open(page)
    assert "Point at a buffer" in browser.value(DETAILS)
    x, y = browser.value(MIDDLE)
    browser.move(x, y)
    assert "f32[2,768,768]: 4.5 MiB" in browser.value(DETAILS)
    assert "test_html.py" in browser.value(DETAILS)
    browser.move(1, 1)
    assert "Point at a buffer" in browser.value(DETAILS)
    browser.click(x, y)
    browser.move(1, 1)
    assert "f32[2,768,768]" in browser.value(DETAILS)
    browser.key("Escape")
    assert "Point at a buffer" in browser.value(DETAILS)


@needs_browser
def test_pointing_at_a_loop_says_whose_it_is(browser: Browser, page: pathlib.Path, plan: shm.Plan) -> None:
    browser.open(page)
    box = "(() => { const b = CHARTS[1].loops[0].bar.getBoundingClientRect(); return [b.x + b.width / 2, b.y + 3]; })()"
    browser.move(*browser.value(box))
    details = browser.value("document.querySelector('#chart-1 .details').textContent")
    assert plan.after.history is not None
    assert f"Loop, {plan.after.history.loops[0].steps} steps, made by this plan" in details


@needs_browser
def test_a_keyboard_reaches_the_largest_buffers(browser: Browser, page: pathlib.Path) -> None:
    browser.open(page)
    browser.value("document.querySelector('#chart-0 .largest button').focus()")
    browser.value("document.activeElement.click()")
    assert browser.value("document.activeElement.getAttribute('aria-pressed')") == "true"
    assert "f32[2,768,768]" in browser.value(DETAILS)
    assert browser.value("document.querySelectorAll('#chart-0 path.band.on').length") == 1


@needs_browser
def test_the_same_scale_is_a_choice(browser: Browser, page: pathlib.Path) -> None:
    browser.open(page)
    height = "document.querySelector('#chart-1 path.total').getBoundingClientRect().height"
    own = browser.value(height)
    browser.value("document.getElementById('same-scale').click()")
    assert browser.value(height) < 0.7 * own


@needs_browser
def test_nothing_in_a_name_is_run(browser: Browser, plan: shm.Plan, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "evil.html"
    evil(plan).to_html(path)
    browser.open(path)
    browser.value("document.querySelector('#chart-0 .largest button').click()")
    assert EVIL in browser.value(DETAILS)
    assert browser.value("window.hacked") is None
    assert browser.complaints == []


@needs_browser
def test_a_notebook_shows_it_in_a_frame(browser: Browser, plan: shm.Plan, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "notebook.html"
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{plan._repr_html_()}</body>", encoding="utf-8")
    browser.open(path)
    assert "<h1>" in browser.value("document.querySelector('iframe').srcdoc")
    assert browser.complaints == []
