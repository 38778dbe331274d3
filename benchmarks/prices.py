"""The price of memory by our own estimate: for each search of `searches.py` its static peak and estimated slowdown.

`prices.py OUT.json` writes them; `prices.py OUT.json --against BEFORE.json` compares two versions of the planner.
Nothing is compiled.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import pathlib
import time
from typing import Any

import searches

from stablehlo_mem.pass_api.candidate import Options
from stablehlo_mem.planner.discrepancy_search import search

MAX_SLOWDOWN = Options().max_slowdown
assert MAX_SLOWDOWN is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--against", type=pathlib.Path)
    parser.add_argument("--programs", nargs="+", default=["suite:", "training:", "autochunk:"])
    parser.add_argument("--only-compare", action="store_true")
    given = parser.parse_args()
    if not given.only_compare:
        rows: dict[str, Any] = {}
        for name, export in searches.programs():
            if name.startswith(tuple(given.programs)):
                rows.update(prices(name, export))
                given.out.write_text(json.dumps(rows, indent=1))
    if given.against:
        compare(json.loads(given.against.read_text()), json.loads(given.out.read_text()))


def prices(name: str, export: Any) -> dict[str, Any]:
    """For each target and share of the temporaries: static bytes and goal, slowdown, planning seconds."""
    rows: dict[str, Any] = {}
    for key, begun, quick, goal in searches.tasks(export):
        started = time.process_time()
        state, _ = search(quick, dataclasses.replace(goal, max_seconds=MAX_SLOWDOWN * begun.seconds))
        rows[f"{name}, {key}"] = {
            "goal": goal.temp_bytes,
            "bytes": state.peak.temp_bytes,
            "slowdown": state.seconds / begun.seconds if begun.seconds else 1.0,
            "planning": round(time.process_time() - started, 2),
        }
    return rows


def compare(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Prints goals lost and won, and the ratio of slowdowns where both are reached."""
    ratios: list[float] = []
    for key, new in after.items():
        old = before.get(key)
        if old is None or not key.endswith("%"):
            continue
        was, now = (row["bytes"] <= row["goal"] for row in (old, new))
        if was != now:
            print("lost" if was else "won", key, old, new)
        elif was and old["slowdown"] > 0 and new["slowdown"] > 0:
            ratios.append(new["slowdown"] / old["slowdown"])
            if not 0.98 <= ratios[-1] <= 1.02:
                print(f"{ratios[-1]:.3f} {key}: {old} {new}")
    planning = [sum(row["planning"] for row in rows.values()) for rows in (before, after)]
    mean = math.exp(sum(map(math.log, ratios)) / max(1, len(ratios)))
    print(f"{len(ratios)} pairs: geometric mean {mean:.4f}, worst {max(ratios):.3f}; planning {planning} s")


if __name__ == "__main__":
    main()
