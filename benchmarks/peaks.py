"""Peaks as the compilers report them, original against optimised: writes results/peaks.json. Executes nothing.

The budget is arguments + outputs + 10% of the smallest temporaries that the original has on any of the targets
(XLA:CPU's are inflated); for rbf_prime, whose intermediates are 4 TB, arguments + outputs + 256 MiB.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import argparse
from typing import Any

import programs
import record

import stablehlo_mem as shm
from stablehlo_mem.utils.units import format_bytes

PLATFORMS = {"cpu": "cpu", "cuda:h200": "cuda", "tpu:v5e": "tpu"}
FIXED_TEMPORARIES = {"rbf_prime": 256 * 2**20}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(programs.ACCEPTANCE))
    parser.add_argument("--targets", nargs="+", default=list(PLATFORMS), choices=list(PLATFORMS))
    arguments = parser.parse_args()
    data: dict[str, Any] = {**record.header(), "programs": {}}
    for name in arguments.names:
        data["programs"][name] = measure(name, arguments.targets)
        record.write(data, record.RESULTS / "peaks.json")


def measure(name: str, targets: list[str]) -> dict[str, Any]:
    """One program on all targets."""
    sizes = programs.ACCEPTANCE[name]
    exporteds = {t: programs.export(name, sizes, PLATFORMS[t]) for t in targets}
    before = {t: shm.profile(e, target=t) for t, e in exporteds.items()}
    temporaries = FIXED_TEMPORARIES.get(name) or min(record.temp_bytes(p) for p in before.values()) // 10
    rows: dict[str, Any] = {}
    for target, exported in exporteds.items():
        budget = record.fixed_bytes(before[target]) + temporaries
        plan = shm.plan(exported, budget, target=target)
        rows[target] = {
            "budget_bytes": budget,
            "original_peak_bytes": plan.before.peak_bytes,
            "optimised_peak_bytes": plan.after.peak_bytes,
            "fits": plan.fits,
            "compiles": plan.compiles,
            "planning_seconds": plan.planning_seconds,
            "steps": list(plan.summaries),
        }
        print(
            f"{name} {target}: {format_bytes(plan.before.peak_bytes)} → {format_bytes(plan.after.peak_bytes)}, "
            f"budget {format_bytes(budget)}, {'fits' if plan.fits else 'OVER'}",
            flush=True,
        )
    return {"sizes": list(sizes), "targets": rows}


if __name__ == "__main__":
    main()
