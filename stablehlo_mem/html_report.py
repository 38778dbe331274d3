"""Plans and explanations as one page for a browser: nothing is fetched, everything is in the file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any

from stablehlo_mem.explanation import Explanation
from stablehlo_mem.history import History, Loop
from stablehlo_mem.memory import MemoryProfile
from stablehlo_mem.plan import Candidate, Decision, Figures, Plan, Refusal
from stablehlo_mem.wording import (
    PARTS,
    advice,
    cost_text,
    distinct,
    effort_text,
    format_bytes,
    format_seconds,
    format_source,
    format_value,
    grouped,
    headline,
    how_text,
    measured_part,
    numerics_text,
    refused_text,
    static_part,
    why_text,
    worth_text,
)

_SHOWN = 8
"""Rows of a table of values, offers or refusals."""
_FRAME_HEIGHT = 900


def plan_page(plan: Plan) -> str:
    """The page of a plan: memory over the program before and after, the decisions, and what stands in the way."""
    profiles = {"before": plan.before, "after": plan.after}
    sections = [
        _tiles(plan),
        _charts(profiles, plan.budget_bytes),
        _section("Decisions", _decisions(plan)),
        _section("Memory of one execution", _memory_table(profiles), *_refused_notes(profiles)),
        *_figures_section(plan.figures),
        *_live_section(plan.before, "Live at the peak before"),
        *(_live_section(plan.after, "Live at the peak after") if plan.steps else ()),
        *_refusal_section(plan.refusals),
        *_advice_section(plan),
        f"<footer>{escape(effort_text(plan))}; made by stablehlo-mem</footer>",
    ]
    return _document(headline(plan), sections, _data(profiles, plan.budget_bytes))


def explanation_page(explanation: Explanation) -> str:
    """The page of an explanation: memory over the program, what could be done at its peak, what not and why."""
    profiles = {"the program": explanation.profile}
    sections = [
        _charts(profiles, None),
        _section("Memory of one execution", _memory_table(profiles)),
        *_live_section(explanation.profile, "Live at the peak"),
        *_offers_section(explanation.quicker, "Steps that save time, taken first"),
        *_offers_section(
            explanation.offers,
            f"Steps offered at this peak for temporaries of at most {format_bytes(explanation.goal_bytes)}",
        ),
        *_refusal_section(explanation.refusals),
        "<footer>static estimates; made by stablehlo-mem</footer>",
    ]
    peak = format_bytes(explanation.profile.peak_bytes)
    return _document(f"{explanation.target}: {peak} by the static profile", sections, _data(profiles, None))


def frame(page: str) -> str:
    """A page in a frame of its own, for notebooks: its styles and scripts touch nothing around it."""
    return (
        f'<iframe srcdoc="{escape(page)}" sandbox="allow-scripts" title="stablehlo-mem report" '
        f'style="width: 100%; height: {_FRAME_HEIGHT}px; border: 0"></iframe>'
    )


def _document(title: str, sections: Sequence[str], data: dict[str, Any]) -> str:
    folder = resources.files("stablehlo_mem") / "page"
    style, script = ((folder / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    # "<" would let a source path end the element early.
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
    """What the script draws: a chart for each profile whose history is known."""
    known = [(profile, profile.history) for profile in profiles.values() if profile.history is not None]
    own = Counter((loop.source, loop.steps) for loop in known[0][1].loops) if known else Counter[tuple[str, int]]()
    return {"budget": budget, "charts": [_chart(profile, history, own) for profile, history in known]}


def _chart(profile: MemoryProfile, history: History, own: Counter[tuple[str, int]]) -> dict[str, Any]:
    return {
        "ops": history.ops,
        "temp": history.temp_bytes,
        "fixed": _fixed(profile),
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
        "loops": list(_loops(history.loops, own)),
    }


def _fixed(profile: MemoryProfile) -> list[dict[str, Any]]:
    outputs = profile.output_bytes - profile.alias_bytes
    parts = {"arguments": profile.argument_bytes, "outputs": outputs, "constants": profile.constant_bytes}
    return [{"name": name, "nbytes": nbytes} for name, nbytes in parts.items() if nbytes > 0]


def _loops(loops: Iterable[Loop], own: Counter[tuple[str, int]]) -> Iterable[dict[str, Any]]:
    """Loops for drawing; `made` are those that the program did not have from the start."""
    left = Counter(own)
    for loop in loops:
        made = not left[loop.source, loop.steps]
        left[loop.source, loop.steps] -= not made
        source = format_source(loop.source)
        yield {"begin": loop.begin, "end": loop.end, "steps": loop.steps, "depth": loop.depth, "source": source} | {
            "made": made
        }


def _tiles(plan: Plan) -> str:
    tiles = {
        "peak before": (format_bytes(plan.before.peak_bytes), ""),
        "peak after": (format_bytes(plan.after.peak_bytes), "good" if plan.fits else "bad"),
    }
    if plan.budget_bytes is not None:
        tiles["budget, " + ("kept" if plan.fits else "not kept")] = (format_bytes(plan.budget_bytes), "")
    if plan.cost_before is not None and plan.cost_after is not None and plan.cost_before.seconds:
        tiles["estimated time"] = (f"×{plan.cost_after.seconds / plan.cost_before.seconds:.2f}", "")
    tiles["steps"] = (str(len(plan.steps)), "")
    cells = (f'<div><dt>{escape(k)}</dt><dd class="{c}">{escape(v)}</dd></div>' for k, (v, c) in tiles.items())
    return f'<dl class="tiles">{"".join(cells)}</dl>'


def _charts(profiles: dict[str, MemoryProfile], budget: int | None) -> str:
    """The places of the charts, with the words for those who do not see them."""
    known = [(name, profile) for name, profile in profiles.items() if profile.history is not None]
    if not known:
        return _section("Memory over the program", '<p class="dim">Not kept in this plan.</p>')
    note = '<p class="dim">Static profile: every kernel in the order it runs, a loop\'s body once.</p>'
    scale = '<label><input type="checkbox" id="same-scale"> same scale</label>' if len(known) > 1 else ""
    figures = (
        f'<figure class="chart" id="chart-{i}"><h3>{escape(name.capitalize())}</h3>'
        f'<svg role="img" aria-label="{escape(_spoken(name, profile, budget))}"></svg>'
        f'<figcaption class="details" aria-live="polite"></figcaption><ul class="largest"></ul></figure>'
        for i, (name, profile) in enumerate(known)
    )
    return _section("Memory over the program", note, scale, f'<div class="charts">{"".join(figures)}</div>')


def _spoken(name: str, profile: MemoryProfile, budget: int | None) -> str:
    """A chart in a sentence."""
    text = f"Memory over the program, {name}: at most {format_bytes(profile.static_peak_bytes)}"
    text += f" at {profile.point}" if profile.point else ""
    largest = f"; largest there {format_value(profile.live[0])}" if profile.live else ""
    return text + largest + (f"; the budget is {format_bytes(budget)}" if budget is not None else "")


def _decisions(plan: Plan) -> str:
    if not plan.steps:
        return f"<p>{'No decision was needed.' if plan.fits else 'Nothing could be done.'}</p>"
    cards = [_decision(number, decision) for number, decision in enumerate(plan.decisions, 1)]
    cards += [f'<li class="decision">{escape(text)}</li>' for text in plan.summaries[len(plan.decisions) :]]
    costs = ""
    if plan.cost_before is not None and plan.cost_after is not None:
        costs = f"<p>Estimated {escape(cost_text(plan.cost_before, plan.cost_after))}</p>"
    return f'<ol class="decisions">{"".join(cards)}</ol>{costs}'


def _decision(number: int, decision: Decision) -> str:
    lines = (
        f"{decision.pass_name}, {numerics_text(decision.numerics)}{how_text(decision)}",
        f"at {format_source(decision.location)}",
        f"estimated: {worth_text(decision)}",
    )
    words = "".join(f'<p class="dim">{escape(line)}</p>' for line in lines)
    return f'<li class="decision"><strong>{number}. {escape(decision.what)}</strong>{words}</li>'


def _memory_table(profiles: dict[str, MemoryProfile]) -> str:
    columns = [
        (f"{name} {source}", profile, source)
        for name, profile in profiles.items()
        for source in ("static", "measured")
        if source == "static" or profile.measured is not None
    ]
    rows: list[str] = []
    for label, attribute in (*PARTS, ("peak", "peak_bytes")):
        name = f"− {label}" if attribute == "alias_bytes" else label
        cells = (_cell(_figure(profile, source, attribute), "number") for _, profile, source in columns)
        rows.append(f'<tr class="{attribute}">{_cell(name)}{"".join(cells)}</tr>')
    heads = "".join(f'<th scope="col" class="number">{escape(name)}</th>' for name, _, _ in columns)
    return f'<div class="scroll">{_table("", "<td></td>" + heads, "".join(rows))}</div>'


def _figure(profile: MemoryProfile, source: str, attribute: str) -> str:
    if source == "static" or profile.measured is None:
        return format_bytes(static_part(profile, attribute))
    return measured_part(profile.measured, attribute)


def _refused_notes(profiles: dict[str, MemoryProfile]) -> Iterable[str]:
    notes = (refused_text(name, profile.measured) for name, profile in profiles.items())
    return (f'<p class="bad">{escape(note)}</p>' for note in notes if note)


def _figures_section(figures: Sequence[Figures]) -> Iterable[str]:
    if len(figures) > 1:
        rows = (
            (one.target, measured_part(one.before, "peak_bytes"), measured_part(one.after, "peak_bytes"))
            for one in figures
        )
        yield _section("Measured by each target's compiler", _rows(("target", "before", "after"), rows, (1, 2)))


def _live_section(profile: MemoryProfile, title: str) -> Iterable[str]:
    if profile.live:
        live = grouped(profile.live)
        rows = ((size, format_value(value), format_source(value.source)) for size, value in live[:_SHOWN])
        point = f'<p class="dim">{escape(format_source(profile.point))}</p>' if profile.point else ""
        table = _rows(("bytes", "value", "source"), rows, (0,))
        yield _section(title, point, table, _more(len(live)))


def _offers_section(offers: Sequence[Candidate], title: str) -> Iterable[str]:
    rows = (
        (
            format_bytes(offer.saved_bytes),
            format_seconds(offer.added_seconds),
            numerics_text(offer.numerics),
            f"{offer.summary} [{offer.step.pass_name}]",
            format_source(offer.otherwise.location),
        )
        for offer in offers[:_SHOWN]
    )
    heads = ("frees", "adds", "numerics", "what", "source")
    yield _section(title, _rows(heads, rows, (0, 1)) if offers else "<p>None.</p>", _more(len(offers)))


def _refusal_section(refusals: Sequence[Refusal]) -> Iterable[str]:
    different = distinct(refusals)
    if different:
        rows = (
            (format_bytes(r.nbytes), r.value, f"{why_text(r)} [{r.code}]", format_source(r.location))
            for r in different[:_SHOWN]
        )
        table = _rows(("bytes", "value", "why", "source"), rows, (0,))
        yield _section("Not made smaller", table, _more(len(different)))


def _advice_section(plan: Plan) -> Iterable[str]:
    lines = advice(plan)
    if lines:
        yield _section("What may help", f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>")


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def _rows(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int]) -> str:
    """A table that becomes a list on narrow screens."""
    kinds = ["number" if i in numbers else "" for i in range(len(heads))]
    head = "".join(f'<th scope="col" class="{k}">{escape(name)}</th>' for name, k in zip(heads, kinds, strict=True))
    cells = ("".join(_cell(text, k) for text, k in zip(row, kinds, strict=True)) for row in rows)
    return _table("stack", head, "".join(f"<tr>{row}</tr>" for row in cells))


def _table(kind: str, head: str, body: str) -> str:
    return f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _cell(text: str, kind: str = "") -> str:
    return f'<td class="{kind}">{escape(text)}</td>' if kind else f"<td>{escape(text)}</td>"


def _more(count: int) -> str:
    return f'<p class="dim">… and {count - _SHOWN} more</p>' if count > _SHOWN else ""
