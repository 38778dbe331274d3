"""The page of a plan: what is in it, and what a real browser makes of it."""

from __future__ import annotations

import dataclasses
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import stablehlo_mem as shm
from stablehlo_mem.reports.html import explanation_page, plan_page
from stablehlo_mem.utils.units import format_bytes
from tests.page_plans import attention_plan, crowded, evil
from tests.support import exported, spec


@pytest.fixture(scope="module")
def plan() -> shm.Plan:
    return attention_plan()


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


PAGE = pathlib.Path(shm.__file__).parent / "reports" / "page"


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


def test_buffers_have_their_lines_and_scopes(plan: shm.Plan) -> None:
    (scores,) = [b for b in data_of(plan_page(plan))["charts"][0]["buffers"] if b["op"] == "dot_general"]
    assert re.fullmatch(r"tests/page_plans\.py:\d+", scores["line"])
    assert scores["source"].startswith(scores["line"] + " (jit(attention)/heads/")
    assert scores["scope"] == "heads"
    assert {"heads", ""} >= set(data_of(plan_page(plan))["charts"][0]["scopes"]) > {""}


def test_the_title_has_the_programs_name(plan: shm.Plan) -> None:
    assert "<h1>attention on cpu: " in plan_page(plan)
    assert "<title>attention on cpu: " in plan_page(plan)
    assert "<h1>cpu: " in plan_page(dataclasses.replace(plan, name=""))
    explanation = shm.explain(exported(scores_of, spec(256, 8)), target="cpu")
    assert "<h1>scores_of on cpu: " in explanation_page(explanation)


def scores_of(x):
    return jax.nn.softmax(x @ x.T).sum()


def test_a_modules_name_is_its_own() -> None:
    text = exported(scores_of, spec(256, 8)).mlir_module()
    assert shm.explain(text, target="cpu").name == "jit_scores_of"
    assert shm.explain(text.replace("module @jit_scores_of", "module"), target="cpu").name == "the module"


def test_static_and_measured_are_told_apart(plan: shm.Plan) -> None:
    page = plan_page(crowded(plan))
    before, _ = data_of(page)["charts"]
    static = crowded(plan).before.static_peak_bytes
    assert before["measured"] == crowded(plan).before.peak_bytes == static + 60 * 2**20
    assert f"static {format_bytes(static)}, measured {format_bytes(static + 60 * 2**20)}" in page
    assert "Dashed: the peak that the target" in page
    row = "<tr><td>of these the compiler&#x27;s own: padding, scratch</td>"
    cells = "".join(f'<td class="number" data-head="{head}">{text}</td>' for head, text in OWN.items())
    assert row + cells + "</tr>" in page


OWN = {"before static": "", "before measured": "60 MiB", "after static": "", "after measured": "60 MiB"}


def test_what_is_near_is_not_told_apart(plan: shm.Plan) -> None:
    near = dataclasses.replace(plan.before, measured=None)
    page = plan_page(dataclasses.replace(plan, before=near, after=near))
    assert [chart["measured"] for chart in data_of(page)["charts"]] == [None, None]
    assert "Dashed" not in page
    assert "own: padding" not in page
    assert f"static {format_bytes(near.static_peak_bytes)}</span>" in page


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


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node.js on this machine")
def test_bands_that_touch_differ_in_colour(plan: shm.Plan, tmp_path: pathlib.Path) -> None:
    """What no browser is needed for: 8 hues in 2 shades, and one hue for one name where the neighbours leave it."""
    script = PAGE / "bands.js"
    print_colours = """
      const charts = JSON.parse(require('fs').readFileSync(0)).charts.map(stacked);
      colour(charts);
      const pairs = charts.flatMap((c) => [...touching(c)].flatMap(([a, others]) => [...others].map((b) => [a, b])));
      const names = new Map(charts.flatMap((c) => c.large).map((b) => [b.name, b]));
      console.log(JSON.stringify([pairs.map(([a, b]) => [a.fill, b.fill]), names.size]));"""
    path = tmp_path / "colours.js"
    path.write_text(script.read_text() + print_colours)
    for seed in range(3):
        data = json.dumps(data_of(plan_page(crowded(plan, seed))))
        run = subprocess.run(["node", path], input=data, capture_output=True, text=True, check=True)
        pairs, names = json.loads(run.stdout)
        assert len(pairs) > 200
        assert names == 7
        assert all(a != b for a, b in pairs)
        assert len({fill for pair in pairs for fill in pair}) <= 16


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node.js on this machine")
def test_the_script_parses(plan: shm.Plan, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "page.js"
    path.write_text(re.findall(r"<script>(.*?)</script>", plan_page(plan), re.DOTALL)[-1])
    subprocess.run(["node", "--check", path], check=True)
