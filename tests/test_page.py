"""What a real browser makes of the page of a plan."""

from __future__ import annotations

import itertools
import math
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

import stablehlo_mem as shm
from tests.browser import Browser, find_browser
from tests.page_plans import EVIL, attention, attention_plan, crowded, evil
from tests.support import spec

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium on this machine")


@pytest.fixture(scope="module")
def plan() -> shm.Plan:
    return attention_plan()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def page(plan: shm.Plan, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("page") / "plan.html"
    plan.to_html(path)
    return path


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


def test_pointing_at_a_buffer_names_it(browser: Browser, page: pathlib.Path) -> None:
    browser.open(page)
    assert "Point at a buffer" in browser.value(DETAILS)
    x, y = browser.value(MIDDLE)
    browser.move(x, y)
    assert "f32[2,768,768]: 4.5 MiB" in browser.value(DETAILS)
    assert "page_plans.py" in browser.value(DETAILS)
    browser.move(1, 1)
    assert "Point at a buffer" in browser.value(DETAILS)
    browser.click(x, y)
    browser.move(1, 1)
    assert "f32[2,768,768]" in browser.value(DETAILS)
    browser.key("Escape")
    assert "Point at a buffer" in browser.value(DETAILS)


def test_pointing_at_a_loop_says_whose_it_is(browser: Browser, page: pathlib.Path, plan: shm.Plan) -> None:
    browser.open(page)
    box = "(() => { const b = CHARTS[1].loops[0].bar.getBoundingClientRect(); return [b.x + b.width / 2, b.y + 3]; })()"
    browser.move(*browser.value(box))
    details = browser.value("document.querySelector('#chart-1 .details').textContent")
    assert plan.after.history is not None
    assert f"Loop, {plan.after.history.loops[0].steps} steps, made by this plan" in details


def test_a_keyboard_reaches_the_largest_buffers(browser: Browser, page: pathlib.Path) -> None:
    browser.open(page)
    browser.value("document.querySelector('#chart-0 .largest button').focus()")
    browser.value("document.activeElement.click()")
    assert browser.value("document.activeElement.getAttribute('aria-pressed')") == "true"
    assert "f32[2,768,768]" in browser.value(DETAILS)
    assert browser.value("document.querySelectorAll('#chart-0 path.band.on').length") == 1


def test_the_same_scale_is_a_choice(browser: Browser, page: pathlib.Path) -> None:
    browser.open(page)
    height = "document.querySelector('#chart-1 path.total').getBoundingClientRect().height"
    own = browser.value(height)
    browser.value("document.getElementById('same-scale').click()")
    assert browser.value(height) < 0.7 * own


def test_nothing_in_a_name_is_run(browser: Browser, plan: shm.Plan, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "evil.html"
    evil(plan).to_html(path)
    browser.open(path)
    browser.value("document.querySelector('#chart-0 .largest button').click()")
    assert EVIL in browser.value(DETAILS)
    assert browser.value("window.hacked") is None
    assert browser.complaints == []


def test_a_notebook_shows_it_in_a_frame(browser: Browser, plan: shm.Plan, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "notebook.html"
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{plan._repr_html_()}</body>", encoding="utf-8")
    browser.open(path)
    assert "<h1>" in browser.value("document.querySelector('iframe').srcdoc")
    assert browser.complaints == []


@pytest.fixture(scope="module")
def crowd(plan: shm.Plan, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("crowd") / "plan.html"
    crowded(plan).to_html(path)
    return path


CUT = """[...document.querySelectorAll('table')].flatMap((table) => {
  const box = table.parentElement;
  const first = table.querySelector('tbody td:first-child, tbody th:first-child');
  const [inside, edge] = [box.getBoundingClientRect(), document.documentElement.clientWidth];
  const cells = [...table.rows].filter((row) => row.offsetParent).map((row) => row.lastElementChild);
  const right = Math.max(...cells.map((cell) => cell.getBoundingClientRect().right));
  const scrolls = getComputedStyle(box).overflowX === 'auto' && getComputedStyle(first).position === 'sticky';
  const reached = scrolls ? box.scrollWidth - box.clientWidth : 0;
  return inside.right <= edge + 1 && right <= inside.right + reached + 1 ? [] : [table.textContent.slice(0, 80)];
})"""


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("dark", [False, True])
def test_no_table_is_cut(browser: Browser, plan: shm.Plan, width: int, dark: bool, tmp_path: pathlib.Path) -> None:
    explanation = shm.explain(attention, *[spec(2, 768, 32)] * 3, target="cpu")
    for name, result in {"plan": plan, "crowd": crowded(plan), "explanation": explanation}.items():
        path = tmp_path / f"{name}.html"
        result.to_html(path)
        browser.open(path, width, 900, dark=dark)
        assert browser.value("document.documentElement.scrollWidth") <= width
        assert browser.value("document.body.scrollWidth <= document.body.clientWidth")
        assert browser.value("document.querySelectorAll('table').length") >= 2
        assert browser.value(CUT) == [], name
        browser.screenshot(tmp_path / f"{name}.png", whole=True)
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000


def test_a_phone_shows_what_is_after(browser: Browser, crowd: pathlib.Path) -> None:
    browser.open(crowd, 400, 844)
    fits = "(() => { const box = document.querySelector('.sums'); return box.scrollWidth <= box.clientWidth; })()"
    assert browser.value(fits)
    head = browser.value("document.querySelector('.sums th:last-child').textContent")
    assert head == "after measured"


def test_the_compilers_own_is_told_apart(browser: Browser, crowd: pathlib.Path) -> None:
    browser.open(crowd)
    assert browser.value("document.querySelectorAll('svg line.measured').length") == 2
    rows = "[...document.querySelectorAll('.sums tr')].map((row) => row.textContent)"
    assert any("the compiler's own: padding, scratch" in row and "60 MiB" in row for row in browser.value(rows))
    assert browser.value("document.querySelector('h1').textContent").startswith("crowded on cpu: ")


ROWS = "[...document.querySelectorAll('#buffers tbody tr:not(.group)')].filter((r) => r.offsetParent)"


def choose(browser: Browser, control: str, value: str, event: str = "change") -> None:
    browser.value(
        f"(() => {{ const c = document.getElementById('buffers-{control}'); c.value = '{value}'; "
        f"c.dispatchEvent(new Event('{event}')); }})()"
    )


def test_all_buffers_are_listed_and_sorted_by_any_column(browser: Browser, crowd: pathlib.Path) -> None:
    browser.open(crowd)
    assert browser.value(f"{ROWS}.length") == 60
    sizes = browser.value(f"{ROWS}.map((r) => parseFloat(r.cells[0].textContent))")
    assert sizes == sorted(sizes, reverse=True)
    for column, key in enumerate(("nbytes", "name", "line", "scope", "begin", "end")):
        browser.value(f"document.querySelector('#buffers [data-key={key}]').click()")
        assert browser.value(f"document.querySelectorAll('#buffers th')[{column}].ariaSort") == "ascending"
        shown = browser.value(f"{ROWS}.map((r) => CHARTS[0].large.find((b) => b.row === r).{key})")
        assert shown == sorted(shown)
    browser.value("document.querySelector('#buffers [data-key=end]').click()")
    ends = browser.value(f"{ROWS}.map((r) => parseInt(r.cells[5].textContent))")
    assert ends == sorted(ends, reverse=True)


def test_the_list_is_searched_and_has_what_is_live_at_the_peak(browser: Browser, crowd: pathlib.Path) -> None:
    browser.open(crowd)
    choose(browser, "search", "layers.py:12 mlp", "input")
    cells = browser.value(f"{ROWS}.map((r) => r.textContent)")
    assert 0 < len(cells) < 60
    assert all("layers.py:12" in text and "mlp" in text for text in cells)
    choose(browser, "search", "", "input")
    browser.value("document.getElementById('buffers-peak').click()")
    at_peak = "CHARTS[0].large.filter((b) => b.begin <= CHARTS[0].summit && CHARTS[0].summit <= b.end).length"
    assert browser.value(f"{ROWS}.length") == browser.value(at_peak) < 60


@pytest.mark.parametrize(("key", "count"), [("line", 4), ("scope", 6)])
def test_groups_say_what_of_them_is_live_at_the_peak(
    browser: Browser, plan: shm.Plan, crowd: pathlib.Path, key: str, count: int
) -> None:
    browser.open(crowd)
    choose(browser, "group", key)
    heads = browser.value("[...document.querySelectorAll('#buffers .group')].map((g) => g.textContent)")
    assert len(heads) == count
    history = crowded(plan).before.history
    assert history is not None
    peak = history.temp_bytes.index(max(history.temp_bytes))
    listed = sum(b.value.nbytes for b in history.buffers if b.begin <= peak <= b.end)
    sums = [float(head.split()[0]) for head in heads]
    assert sums == sorted(sums, reverse=True)
    assert sum(sums) * 2**20 == listed == max(history.temp_bytes) - 2**19
    browser.value("document.querySelector('#buffers .group button').click()")
    assert browser.value(f"{ROWS}.length") < 60
    browser.value("document.querySelector('#buffers .group button').click()")
    assert browser.value(f"{ROWS}.length") == 60


def test_a_moment_that_is_chosen_takes_the_place_of_the_peak(browser: Browser, crowd: pathlib.Path) -> None:
    browser.open(crowd, 1400, 1200)
    count = "document.getElementById('buffers-count').textContent"
    bold = "[...document.querySelectorAll('#buffers tr.live')].length"
    live = "CHARTS[1].large.filter((b) => b.begin <= 10 && 10 <= b.end).length"
    assert "live at the peak" in browser.value(count)
    place = """(() => {
      const [c, b] = [CHARTS[1], CHARTS[1].svg.getBoundingClientRect()];
      return [b.x + c.x(10.5), b.y + c.frame.top + 1];
    })()"""
    browser.click(*browser.value(place))
    assert browser.value("[CHARTS[1].pinned.point, CHARTS[1].pinned.band]") == [10, None]
    assert f"live at 11 {browser.value('CHARTS[1].ops[10]')} (in bold)" in browser.value(count)
    assert browser.value(bold) == browser.value(live) > 0
    browser.key("Escape")
    assert "live at the peak" in browser.value(count)


def test_a_row_and_its_band_are_chosen_together(browser: Browser, crowd: pathlib.Path) -> None:
    browser.open(crowd, 1400, 1200)
    browser.value(f"{ROWS}[40].querySelector('button').click()")
    assert browser.value("CHARTS[0].pinned.band.row.rowIndex") == 41
    assert browser.value("CHARTS[0].pinned.band.path.classList.contains('on')")
    assert browser.value("document.querySelectorAll('#chart-0 path.band.on').length") == 1
    x, y = browser.value(MIDDLE.replace("CHARTS[0]", "CHARTS[1]"))
    browser.click(x, y)
    assert browser.value("document.getElementById('buffers-of').value") == "1"
    assert browser.value("CHARTS[1].pinned.band.row.classList.contains('on')")
    seen = """(() => {
      const smallest = CHARTS[1].large.reduce((a, b) => (b.nbytes < a.nbytes ? b : a));
      pin(CHARTS[1], { band: smallest });
      const [row, box] = [smallest.row, BOX].map((e) => e.getBoundingClientRect());
      return BOX.scrollTop > 0 && box.top < row.top && row.bottom <= box.bottom;
    })()"""
    assert browser.value(seen)


VIEW = "CHARTS[0].view"


def test_a_range_that_is_dragged_fills_the_chart(browser: Browser, crowd: pathlib.Path) -> None:
    browser.open(crowd)
    left, right, y = browser.value(
        "(() => { const [c, b] = [CHARTS[0], CHARTS[0].svg.getBoundingClientRect()]; "
        "return [b.x + c.x(30.5), b.x + c.x(59.5), b.y + 100]; })()"
    )
    assert browser.value("document.querySelector('#chart-0 [data-zoom=all]').disabled")
    browser.drag((left, y), (right, y))
    assert browser.value(VIEW) == [30, 59]
    assert "31 to 60 of 120" in browser.value("CHARTS[0].svg.textContent")
    assert browser.value("CHARTS[1].view") == [0, 119]
    assert browser.value("CHARTS[0].pinned") is None
    drawn = browser.value("CHARTS[0].bands.filter((b) => b.path).every((b) => b.begin <= 59 && 30 <= b.end)")
    assert drawn
    browser.value("document.querySelector('#chart-0 [data-zoom=all]').click()")
    assert browser.value(VIEW) == [0, 119]
    assert browser.complaints == []


def test_keys_zoom_and_move(browser: Browser, crowd: pathlib.Path) -> None:
    browser.open(crowd)
    browser.value("CHARTS[0].svg.focus()")
    views = []
    for key in ("+", "+", "ArrowRight", "ArrowLeft", "ArrowLeft", "-", "-", "ArrowLeft"):
        browser.key(key)
        views.append(browser.value(VIEW))
    assert views == [[30, 89], [45, 74], [53, 82], [45, 74], [37, 66], [22, 81], [0, 119], [0, 119]]
    for _ in range(9):
        browser.key("+")
    first, last = browser.value(VIEW)
    assert last - first == 3
    browser.key("0")
    assert browser.value(VIEW) == [0, 119]


NAMES = "[...document.querySelectorAll('#chart-0 svg text.name')].map((t) => t.textContent)"
OVERLAPS = """(() => {
  const boxes = [...document.querySelectorAll('#chart-0 svg text.name')].map((t) => t.getBoundingClientRect());
  boxes.sort((a, b) => a.left - b.left);
  const edge = document.querySelector('#chart-0 svg').getBoundingClientRect().right + 1;
  return boxes.filter((box, i) => (i && box.left < boxes[i - 1].right) || box.right > edge).length;
})()"""


@pytest.mark.parametrize("width", [400, 1400])
def test_names_stand_along_the_axis(browser: Browser, crowd: pathlib.Path, page: pathlib.Path, width: int) -> None:
    browser.open(crowd, width, 900)
    names = browser.value(NAMES)
    assert {"attention", "mlp"} <= set(names)
    assert browser.value(OVERLAPS) == 0
    browser.value(
        "CHARTS[0].scopes = CHARTS[0].scopes.map((scope, i) => `${scope}/part_${Math.floor(i / 6)}`); drawAll()"
    )
    assert ("part_0" in browser.value(NAMES)) is (width == 1400)
    browser.value("zoom(CHARTS[0], 0, 11)")
    assert {"part_0", "part_1"} <= set(browser.value(NAMES))
    assert browser.value(OVERLAPS) == 0
    browser.open(page, width, 900)
    assert browser.value(NAMES)
    assert browser.value(OVERLAPS) == 0


RGB = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgb = (band) => {
    canvas.fillStyle = getComputedStyle(band.path).fill;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  return CHARTS.map((chart) => chart.large.map((band) => ({ ...band, path: 0, row: 0, rgb: rgb(band) })));
})()"""
CLEARLY = 0.08
"""Distance in OKLab from which colours are clearly different: four times what is just noticed (0.02)."""


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dark", [False, True])
def test_neighbours_have_clearly_different_colours(
    browser: Browser, plan: shm.Plan, tmp_path: pathlib.Path, seed: int, dark: bool
) -> None:
    path = tmp_path / "plan.html"
    crowded(plan, seed).to_html(path)
    browser.open(path, dark=dark)
    for bands in browser.value(RGB):
        pairs = [(a, b) for a, b in itertools.combinations(bands, 2) if touch(a, b)]
        assert len(pairs) > 60
        assert min(math.dist(oklab(a["rgb"]), oklab(b["rgb"])) for a, b in pairs) > CLEARLY


def touch(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether a band is above or below another at some point, or beside it from one point to the next."""
    for i in range(a["begin"], a["end"] + 1):
        low, high = a["bottom"][i - a["begin"]], a["top"][i - a["begin"]]
        for j in (i - 1, i, i + 1):
            if b["begin"] <= j <= b["end"]:
                bottom, top = b["bottom"][j - b["begin"]], b["top"][j - b["begin"]]
                if (low in (top, bottom) or high in (top, bottom)) if i == j else bottom < high and low < top:
                    return True
    return False


def oklab(rgb: list[int]) -> list[float]:
    """An sRGB colour in OKLab (https://bottosson.github.io/posts/oklab)."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in rgb))
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    middle = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return [
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    ]
