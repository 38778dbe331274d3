"""Full fine-tuning of a Llama-like model of 8 billion parameters on one TPU v5p: writes results/host_memory.json.

AdamW with float32 moments on bfloat16 parameters; the moments are in the host's memory, or the parameters too. Compiled
for the chip, without one; nothing is executed. Times and the share of the link are this library's own estimates.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")

import argparse
import dataclasses
from typing import Any

import llama_programs
import optax
import record
import tables
from llama_programs import Sizes

import stablehlo_mem as shm
from stablehlo_mem.analysis.host_link import link_seconds
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.pass_api.candidate import Goal
from stablehlo_mem.planner.search_state import start_of
from stablehlo_mem.results.plan import Plan
from stablehlo_mem.targets.measurement import Measured
from stablehlo_mem.targets.target import named_targets
from stablehlo_mem.utils.units import format_bytes

PATH = record.RESULTS / "host_memory.json"
TARGET = "tpu:v5p"
SIZES = Sizes(1, 4096, layers=32, width=4096, hidden=14336, heads=32, kv_heads=8, vocabulary=128_256)
MOMENTS, ALL = ("opt_state",), ("params", "opt_state")
CASES: dict[str, tuple[tuple[str, ...], str, str | None]] = {
    "moments, what the chip has": (MOMENTS, "device", None),
    "moments, 48 GiB": (MOMENTS, "48GiB", None),
    "moments and parameters, 24 GiB": (ALL, "24GiB", None),
    "moments, parameters and what plans put there, 8 GiB": (ALL, "8GiB", "128GiB"),
}
"""Which arguments are on the host, the budget, and how much of the host's memory plans may use beside them."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--anew", action="store_true", help="rows that there are already too")
    given = parser.parse_args()
    data = {**record.earlier(PATH), **record.header(), "target": TARGET, "sizes": dataclasses.asdict(SIZES)}
    rows: dict[str, Any] = data.setdefault("rows", {})
    for case in given.cases:
        if case not in rows or given.anew:
            rows[case] = row = measured(planned(*CASES[case]))
            record.write(data, PATH)
            print(case, row, flush=True)


def planned(host: tuple[str, ...], budget: str, host_memory: str | None) -> Plan:
    """The plan of the step with some arguments on the host."""
    program = llama_programs.fine_tuning(SIZES, optax.adamw(1e-5, weight_decay=0.1))
    options = shm.Options(cache=False, host_memory=host_memory)
    step = shm.jit(program.function, budget, host=host, target=TARGET, options=options, donate_argnums=program.donated)
    return step.plan(*program.specs)


def measured(plan: Plan) -> dict[str, Any]:
    """What the compiler says of a plan, and its time as estimated."""
    after, chip = plan.after.measured, named_targets(TARGET)[0].chip
    assert plan.exported is not None
    graph = start_of(ingest(plan.exported), Goal(chip, shm.Options(), 0)).graph
    figures = dataclasses.asdict(after) if isinstance(after, Measured) else {"refused": after.message}
    return {
        "budget_bytes": plan.budget_bytes,
        "fits": plan.fits,
        "peak_bytes": plan.after.peak_bytes,
        "host_bytes": after.host_fixed_bytes + after.host_temp_bytes if isinstance(after, Measured) else 0,
        "figures": figures,
        "needed_bytes": plan.before.peak_bytes,
        "seconds": plan.cost_after.seconds if plan.cost_after else None,
        "link_seconds": link_seconds(graph, chip),
        "flops": plan.cost_after.flops if plan.cost_after else None,
        "compiles": plan.compiles,
        "planning_seconds": round(plan.planning_seconds, 1),
        "compile_seconds": round(plan.compile_seconds, 1),
        "steps": list(plan.summaries),
        "refusals": [f"{r.code}: {r.message}" for r in plan.refusals],
    }


def table(data: dict[str, Any]) -> str:
    """One line a case: its peak, what is on the host, its estimated time and how long the link is busy in it."""
    lines = [
        [
            name.rsplit(", ", 1)[0],
            format_bytes(row["budget_bytes"]),
            format_bytes(row["peak_bytes"]) + ("" if row["fits"] else " (not kept)"),
            format_bytes(row["host_bytes"]),
            f"{row['seconds']:.1f} s",
            f"{row['link_seconds'] / row['seconds']:.0%}",
            f"{row['compiles']}",
        ]
        for name, row in data["rows"].items()
    ]
    names = ["on the host", "budget", "device", "host", "time", "link busy", "compiles"]
    return (
        tables.table(names, lines)
        + f"\nPeaks as compiled for {data['target']}, times as estimated, {tables.stamp(data)}.\n"
    )


if __name__ == "__main__":
    main()
