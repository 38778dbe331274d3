"""Plots of memory against time as SVG, without a library for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from stablehlo_mem.utils.units import format_bytes

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 640, 400, 60, 30, 50
COLOURS = {"written": "#000000", "ours": "#1565c0", "by hand": "#e65100"}
STYLE = "font-family='sans-serif' font-size='12' fill='#333333'"


def memory_against_time(title: str, points: Sequence[Mapping[str, Any]]) -> str:
    """Peaks in powers of two from left to right, times as shares of the original's; lines join what none beats."""
    logs = [math.log2(p["peak"]) for p in points]
    low, high = math.floor(min(logs)), math.ceil(max(logs))
    most = 1.1 * max(1.0, *(p["time"] for p in points))

    def x(log: float) -> float:
        return round(LEFT + (log - low) / max(1, high - low) * (WIDTH - LEFT - 20), 1)

    def y(time: float) -> float:
        return round(HEIGHT - BOTTOM - time / most * (HEIGHT - BOTTOM - TOP), 1)

    def text(left: float, top: float, words: str, anchor: str = "middle") -> str:
        return f"<text x='{left}' y='{top}' text-anchor='{anchor}' {STYLE}>{words}</text>"

    def line(*ends: float, colour: str = "#dddddd") -> str:
        return "<line x1='{}' y1='{}' x2='{}' y2='{}' stroke='{}'/>".format(*ends, colour)

    parts = [text(WIDTH / 2, 18, f"{title}: time, as a share of the original's, against peak memory")]
    for log in range(low, high + 1):
        parts += [line(x(log), TOP, x(log), HEIGHT - BOTTOM), text(x(log), HEIGHT - 32, format_bytes(2**log))]
    step = next(s for s in (0.1, 0.2, 0.25, 0.5, 1, 2, 5, 10, 100) if most / s <= 10 or s == 100)
    for i in range(int(most / step) + 1):
        parts += [
            line(LEFT, y(i * step), WIDTH - 20, y(i * step)),
            text(LEFT - 8, y(i * step) + 4, f"{i * step:g}", "end"),
        ]
    for i, (kind, colour) in enumerate(COLOURS.items()):
        mine = sorted((p for p in points if p["kind"] == kind), key=lambda p: (p["peak"], p["time"]))
        best = [p for j, p in enumerate(mine) if all(p["time"] < q["time"] for q in mine[:j])]
        corners = " ".join(f"{x(math.log2(p['peak']))},{y(p['time'])}" for p in best)
        parts.append(f"<polyline points='{corners}' fill='none' stroke='{colour}'/>")
        for p in mine:
            where = f"cx='{x(math.log2(p['peak']))}' cy='{y(p['time'])}'"
            parts.append(f"<circle {where} r='4' fill='{colour}'><title>{p['title']}</title></circle>")
        left = LEFT + 40 + 150 * i
        parts += [f"<circle cx='{left}' cy='{HEIGHT - 12}' r='4' fill='{colour}'/>"]
        parts += [text(left + 10, HEIGHT - 8, "as written" if kind == "written" else kind, "start")]
    body = "\n".join(parts)
    frame = f"<rect width='{WIDTH}' height='{HEIGHT}' fill='#ffffff'/>"
    return f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}'>\n{frame}\n{body}\n</svg>\n"
