"""Whether a larger budget is ever slower, or missed where a smaller one is kept: writes results/monotone.json.

Twelve budgets for each program of the suite and the small ones of training, each planned by itself, on CPU unless
`--target` names another. Times are estimates; nothing is executed.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import itertools
from typing import Any

import record
import searches

import stablehlo_mem as shm

PATH = record.RESULTS / "monotone.json"
SHARES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.05, 0.02)
"""Of the temporaries, largest first."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", nargs="+", default=["suite:", "training:"], help="those whose names begin so")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--anew", action="store_true", help="rows that there are already too")
    given = parser.parse_args()
    data = {**record.earlier(PATH), **record.header()}
    rows: dict[str, Any] = data.setdefault("rows", {})
    for name, export in searches.programs():
        key = name if given.target == "cpu" else f"{name}, {given.target}"
        if name.startswith(tuple(given.programs)) and (key not in rows or given.anew):
            rows[key] = row = planned(export(given.target.split(":")[0]), given.target)
            record.write(data, PATH)
            print(key, list(violations(row)) or "monotone", flush=True)


def planned(exported: Any, target: str) -> list[dict[str, Any]]:
    """What plans for all budgets come to."""
    profile = shm.profile(exported, target=target)
    row: list[dict[str, Any]] = []
    for share in SHARES:
        plan = shm.plan(exported, record.budget(profile, share), target=target, options=shm.Options(cache=False))
        assert plan.cost_after is not None
        figures = {"fits": plan.fits, "peak_bytes": plan.after.peak_bytes, "seconds": plan.cost_after.seconds}
        row.append({"share": share, "slowdown": plan.slowdown, "too_slow": plan.too_slow, **figures})
    return row


def violations(row: list[dict[str, Any]]) -> list[str]:
    """Pairs of neighbouring budgets of which the larger one is missed alone, or slower."""
    pairs = itertools.pairwise(row)
    named = (
        (f"{larger['share']:.0%} against {smaller['share']:.0%}", larger, smaller)
        for larger, smaller in pairs
        if smaller["fits"]
    )
    return [
        f"{name}: {'missed' if not larger['fits'] else larger['seconds'] / smaller['seconds']}"
        for name, larger, smaller in named
        if not larger["fits"] or larger["seconds"] > smaller["seconds"]
    ]


if __name__ == "__main__":
    main()
