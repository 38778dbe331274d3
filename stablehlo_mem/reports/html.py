"""Plans and explanations as self-contained HTML pages, for `to_html`, notebooks and the command line's --html.

The charts and the list of buffers are made in the browser by the scripts in `page` from JSON that is embedded.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any

from stablehlo_mem.ir.bindings import named_scope
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
    told_apart_section,
)
from stablehlo_mem.results.explanation import Explanation
from stablehlo_mem.results.memory_history import Buffer, History, Loop
from stablehlo_mem.results.memory_profile import MemoryProfile
from stablehlo_mem.results.plan import Plan
from stablehlo_mem.targets.measurement import Measured, Refused
from stablehlo_mem.utils.units import format_bytes

_SHOWN = 8
"""Rows of a table of values or refusals: a page has room for a few more than a terminal."""
_SCRIPTS = ("bands.js", "chart.js", "names.js", "zoom.js", "buffers.js", "report.js")
"""In the order of the page: the last one starts."""
_LINE_APART = 0.03
"""Distance of the measured from the static peak, over the latter, from which the chart has a line for it.

A nearer one would run through the figure at the peak: letters of 11 of at most 320 pixels.
"""
_BUFFER_HEADS = (
    ("nbytes", "bytes"),
    ("name", "value"),
    ("line", "source line"),
    ("scope", "named scope"),
    ("begin", "begins"),
    ("end", "ends"),
)
"""The columns of the list of buffers: what the script sorts by, and the head."""


def plan_page(plan: Plan) -> str:
    """The page of a plan: memory over the program before and after, the decisions, and the refusals."""
    profiles = {"before": plan.before, "after": plan.after}
    memory, *on_host = memory_sections(profiles)
    sections = [
        _tiles(plan),
        _charts(profiles, plan.budget_bytes),
        _buffers(profiles),
        _section("Decisions", _decisions(plan)),
        _table_section(
            told_apart_section(memory, profiles), *(f'<p class="bad">{escape(n)}</p>' for n in refused_notes(profiles))
        ),
        *map(_table_section, on_host),
        *map(_table_section, (*measured_sections(plan), *peak_sections(plan, _SHOWN))),
        *_advice_section(plan),
        f"<footer>{escape(effort_text(plan))}; made by stablehlo-mem</footer>",
    ]
    return _document(_title(plan.name, headline(plan)), sections, _data(profiles, plan.budget_bytes))


def explanation_page(explanation: Explanation) -> str:
    """The page of an explanation: memory over the program, the steps that are offered, and the refusals."""
    profiles = {"the program": explanation.profile}
    sections = [
        f"<p>{escape(explanation.impossible)}</p>" if explanation.impossible else "",
        _charts(profiles, None),
        _buffers(profiles),
        *map(_table_section, explanation_sections(explanation, _SHOWN)),
        "<footer>static estimates; made by stablehlo-mem</footer>",
    ]
    peak = format_bytes(explanation.profile.peak_bytes)
    title = _title(explanation.name, f"{explanation.target}: {peak} by the static profile")
    return _document(title, sections, _data(profiles, None))


def _title(name: str, text: str) -> str:
    """A headline that begins with the targets, after the program's name if it is known."""
    return f"{name} on {text}" if name else text


def _document(title: str, sections: Sequence[str], data: dict[str, Any]) -> str:
    folder = resources.files("stablehlo_mem.reports") / "page"
    style, *scripts = ((folder / name).read_text(encoding="utf-8") for name in ("report.css", *_SCRIPTS))
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
{"".join(scripts)}</script>
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
        "scopes": history.scopes,
        "temp": history.temp_bytes,
        "fixed": _fixed_parts(profile),
        "measured": profile.peak_bytes if _is_apart(profile) else None,
        "buffers": [*map(_buffer, history.buffers)],
        "loops": list(_loops(history.loops, original)),
    }


def _is_apart(profile: MemoryProfile) -> bool:
    static = profile.static_peak_bytes
    return abs(profile.peak_bytes - static) > _LINE_APART * static


def _buffer(buffer: Buffer) -> dict[str, Any]:
    value = buffer.value
    source = format_source(value.source)
    return {
        "op": value.op_name,
        "name": format_value(value),
        "nbytes": value.nbytes,
        "source": source,
        "line": source.partition(" (")[0],
        "scope": named_scope(value.source),
        "begin": buffer.begin,
        "end": buffer.end,
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
    before, after = (f"peak {when}, {_origin_text(p)}" for when, p in (("before", plan.before), ("after", plan.after)))
    tiles = {
        before: (format_bytes(plan.before.peak_bytes), ""),
        after: (format_bytes(plan.after.peak_bytes), "good" if plan.fits else "bad"),
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
    note = f'<p class="dim">{_charts_note(profile for _, profile in charted)}</p>'
    scale = '<label><input type="checkbox" id="same-scale"> same scale</label>' if len(charted) > 1 else ""
    figures = (_figure(i, name, profile, budget) for i, (name, profile) in enumerate(charted))
    return _section("Memory over the program", note, scale, f'<div class="charts">{"".join(figures)}</div>')


def _charts_note(profiles: Iterable[MemoryProfile]) -> str:
    note = (
        "By the static profile: every kernel in the order it runs, a loop's body once. Drag, or press + and − and the "
    )
    note += "arrow keys on a chart, to see a part of the program."
    if any(map(_is_apart, profiles)):
        note += " Dashed: the peak that the target's compiler reports, with its own padding and scratch."
    return note


def _figure(index: int, name: str, profile: MemoryProfile, budget: int | None) -> str:
    peaks = f"static {format_bytes(profile.static_peak_bytes)}"
    if _origin_text(profile) != "static":
        peaks += f", {_origin_text(profile)} {format_bytes(profile.peak_bytes)}"
    buttons = (("in", "+", "Zoom in"), ("out", "−", "Zoom out"), ("all", "whole program", "The whole program"))
    zoom = "".join(f'<button data-zoom="{by}" aria-label="{label}">{text}</button>' for by, text, label in buttons)
    return (
        f'<figure class="chart" id="chart-{index}"><div class="head"><h3>{escape(name.capitalize())} '
        f'<span class="dim">{escape(peaks)}</span></h3><div class="zoom" role="group" aria-label="Zoom">{zoom}</div>'
        f'</div><svg role="img" tabindex="0" aria-label="{escape(_chart_label(name, profile, budget))}"></svg>'
        '<figcaption class="details" aria-live="polite"></figcaption><ul class="largest"></ul></figure>'
    )


def _origin_text(profile: MemoryProfile) -> str:
    """Where the peak of a profile comes from."""
    if isinstance(profile.measured, Refused) and profile.measured.needed_bytes is not None:
        return "refused at"
    return "measured" if isinstance(profile.measured, Measured) else "static"


def _buffers(profiles: dict[str, MemoryProfile]) -> str:
    """The frame of the list of buffers, which the script fills."""
    names = [name for name, profile in profiles.items() if profile.history is not None]
    if not names:
        return ""
    choices = "".join(f'<option value="{i}">{escape(name)}</option>' for i, name in enumerate(names))
    which = f'<label>of <select id="buffers-of">{choices}</select></label>'
    search = '<label>search <input type="search" id="buffers-search"></label>'
    groups = (("", "nothing"), ("line", "source line"), ("scope", "named scope"))
    grouping = "".join(f'<option value="{key}">{name}</option>' for key, name in groups)
    group = f'<label>group by <select id="buffers-group">{grouping}</select></label>'
    at_peak = '<label><input type="checkbox" id="buffers-peak"> live at the peak</label>'
    heads = "".join(f'<th scope="col"><button data-key="{key}">{head}</button></th>' for key, head in _BUFFER_HEADS)
    table = f"<table><thead><tr>{heads}</tr></thead></table>"
    controls = f'<div class="controls">{which}{search}{group}{at_peak}</div>'
    count = '<p class="dim" id="buffers-count" aria-live="polite"></p>'
    return _section("Buffers", controls, f'<div class="scroll list" id="buffers">{table}</div>', count)


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
    """A table. On narrow screens it becomes a list, its figures after their heads; a table of sums scrolls instead."""
    figures = [i for i in range(len(section.heads)) if i in section.numbers]
    kinds = [' class="number"' if i in figures else "" for i in range(len(section.heads))]
    heads = zip(section.heads, kinds, strict=True)
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' if name else "<td></td>" for name, kind in heads)
    needs_head = figures if len(figures) > 1 else []
    places = [
        kind + (f' data-head="{escape(name)}"' if i in needs_head else "")
        for i, (name, kind) in enumerate(zip(section.heads, kinds, strict=True))
    ]
    cells = (
        "".join(f"<td{place}>{escape(text)}</td>" for text, place in zip(row, places, strict=True))
        for row in section.rows
    )
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="{"scroll sums" if section.sums else "stack"}">{table}</div>'
