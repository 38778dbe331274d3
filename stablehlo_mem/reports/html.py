"""Plans and explanations as self-contained HTML pages, for `to_html`, notebooks and the command line's --html.

The charts are drawn in the browser by `page/report.js` from JSON that is embedded in the page.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any

from stablehlo_mem.reports.phrases import advice, effort_text, format_source, format_value, headline
from stablehlo_mem.reports.tables import (
    Section,
    decision_entries,
    explanation_sections,
    measured_sections,
    memory_sections,
    outcome,
    peak_sections,
    refused_notes,
)
from stablehlo_mem.results.explanation import Explanation
from stablehlo_mem.results.memory_history import History, Loop
from stablehlo_mem.results.memory_profile import MemoryProfile
from stablehlo_mem.results.plan import Plan
from stablehlo_mem.utils.units import format_bytes

_SHOWN = 8
"""Rows of a table of values or refusals: a page has room for a few more than a terminal."""


def plan_page(plan: Plan) -> str:
    """The page of a plan: memory over the program before and after, the decisions, and the refusals."""
    profiles = {"before": plan.before, "after": plan.after}
    memory, *on_host = memory_sections(profiles)
    sections = [
        _tiles(plan),
        _charts(profiles, plan.budget_bytes),
        _section("Decisions", _decisions(plan)),
        _table_section(memory, *(f'<p class="bad">{escape(n)}</p>' for n in refused_notes(profiles))),
        *map(_table_section, on_host),
        *map(_table_section, (*measured_sections(plan), *peak_sections(plan, _SHOWN))),
        *_advice_section(plan),
        f"<footer>{escape(effort_text(plan))}; made by stablehlo-mem</footer>",
    ]
    return _document(headline(plan), sections, _data(profiles, plan.budget_bytes))


def explanation_page(explanation: Explanation) -> str:
    """The page of an explanation: memory over the program, the steps that are offered, and the refusals."""
    profiles = {"the program": explanation.profile}
    sections = [
        _charts(profiles, None),
        *map(_table_section, explanation_sections(explanation, _SHOWN)),
        "<footer>static estimates; made by stablehlo-mem</footer>",
    ]
    peak = format_bytes(explanation.profile.peak_bytes)
    return _document(f"{explanation.target}: {peak} by the static profile", sections, _data(profiles, None))


def _document(title: str, sections: Sequence[str], data: dict[str, Any]) -> str:
    folder = resources.files("stablehlo_mem.reports") / "page"
    style, script = ((folder / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    # A "<" in a source path could end the script element.
    embedded = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{"".join(section + chr(10) for section in sections)}</main>
<script type="application/json" id="data">{embedded}</script>
<script>
{script}</script>
</body>
</html>
"""


def _data(profiles: dict[str, MemoryProfile], budget: int | None) -> dict[str, Any]:
    """What the script draws: a chart for each profile that has a history."""
    charted = [(profile, profile.history) for profile in profiles.values() if profile.history is not None]
    original = Counter((loop.source, loop.steps) for _, history in charted[:1] for loop in history.loops)
    return {"budget": budget, "charts": [_chart(profile, history, original) for profile, history in charted]}


def _chart(profile: MemoryProfile, history: History, original: Counter[tuple[str, int]]) -> dict[str, Any]:
    return {
        "ops": history.ops,
        "temp": history.temp_bytes,
        "fixed": _fixed_parts(profile),
        "buffers": [
            {
                "op": b.value.op_name,
                "name": format_value(b.value),
                "nbytes": b.value.nbytes,
                "source": format_source(b.value.source),
                "begin": b.begin,
                "end": b.end,
            }
            for b in history.buffers
        ],
        "loops": list(_loops(history.loops, original)),
    }


def _fixed_parts(profile: MemoryProfile) -> list[dict[str, Any]]:
    outputs = profile.output_bytes - profile.alias_bytes
    parts = {"arguments": profile.argument_bytes, "outputs": outputs, "constants": profile.constant_bytes}
    return [{"name": name, "nbytes": nbytes} for name, nbytes in parts.items() if nbytes > 0]


def _loops(loops: Iterable[Loop], original: Counter[tuple[str, int]]) -> Iterable[dict[str, Any]]:
    """Loops for drawing; `made` says that the plan made them: the original has no more loops of that line and steps."""
    unmatched = Counter(original)
    for loop in loops:
        made = not unmatched[loop.source, loop.steps]
        unmatched[loop.source, loop.steps] -= not made
        yield {**dataclasses.asdict(loop), "source": format_source(loop.source), "made": made}


def _tiles(plan: Plan) -> str:
    tiles = {
        "peak before": (format_bytes(plan.before.peak_bytes), ""),
        "peak after": (format_bytes(plan.after.peak_bytes), "good" if plan.fits else "bad"),
    }
    if plan.budget_bytes is not None:
        tiles["budget, " + ("kept" if plan.fits else "not kept")] = (format_bytes(plan.budget_bytes), "")
    if plan.cost_before is not None and plan.cost_after is not None and plan.cost_before.seconds:
        tiles["estimated time"] = (f"×{plan.slowdown:.2f}", "")
    tiles["steps"] = (str(len(plan.steps)), "")
    cells = (f'<div><dt>{escape(k)}</dt><dd class="{c}">{escape(v)}</dd></div>' for k, (v, c) in tiles.items())
    return f'<dl class="tiles">{"".join(cells)}</dl>'


def _charts(profiles: dict[str, MemoryProfile], budget: int | None) -> str:
    """The elements that the script draws the charts in, with labels for screen readers."""
    charted = [(name, profile) for name, profile in profiles.items() if profile.history is not None]
    if not charted:
        return _section("Memory over the program", '<p class="dim">Not kept in this plan.</p>')
    note = '<p class="dim">Static profile: every kernel in the order it runs, a loop\'s body once.</p>'
    scale = '<label><input type="checkbox" id="same-scale"> same scale</label>' if len(charted) > 1 else ""
    figures = (
        f'<figure class="chart" id="chart-{i}"><h3>{escape(name.capitalize())}</h3>'
        f'<svg role="img" aria-label="{escape(_chart_label(name, profile, budget))}"></svg>'
        f'<figcaption class="details" aria-live="polite"></figcaption><ul class="largest"></ul></figure>'
        for i, (name, profile) in enumerate(charted)
    )
    return _section("Memory over the program", note, scale, f'<div class="charts">{"".join(figures)}</div>')


def _chart_label(name: str, profile: MemoryProfile, budget: int | None) -> str:
    text = f"Memory over the program, {name}: at most {format_bytes(profile.static_peak_bytes)}"
    text += f" at {profile.point}" if profile.point else ""
    largest = f"; largest there {format_value(profile.live[0])}" if profile.live else ""
    return text + largest + (f"; the budget is {format_bytes(budget)}" if budget is not None else "")


def _decisions(plan: Plan) -> str:
    cards = [_decision(what, lines) for what, lines in decision_entries(plan)]
    listed = f'<ol class="decisions">{"".join(cards)}</ol>' if cards else ""
    return listed + (f"<p>{escape(outcome(plan))}</p>" if outcome(plan) else "")


def _decision(what: str, lines: Iterable[str]) -> str:
    words = "".join(f'<p class="dim">{escape(line)}</p>' for line in lines)
    return f'<li class="decision"><strong>{escape(what)}</strong>{words}</li>'


def _advice_section(plan: Plan) -> Iterable[str]:
    lines = advice(plan)
    if lines:
        yield _section("What may help", f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>")


def _table_section(section: Section, *below: str) -> str:
    note = f'<p class="dim">{escape(section.note)}</p>' if section.note else ""
    more = f'<p class="dim">… and {section.more} more</p>' if section.more else ""
    return _section(section.title, note, _table(section) if section.rows else "", more, *below)


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def _table(section: Section) -> str:
    """A table. On narrow screens it becomes a list, or scrolls if its last row is a sum."""
    kinds = [' class="number"' if i in section.numbers else "" for i in range(len(section.heads))]
    heads = zip(section.heads, kinds, strict=True)
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' if name else "<td></td>" for name, kind in heads)
    cells = (
        "".join(f"<td{kind}>{escape(text)}</td>" for text, kind in zip(row, kinds, strict=True)) for row in section.rows
    )
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="{"scroll" if section.sums else "stack"}">{table}</div>'
