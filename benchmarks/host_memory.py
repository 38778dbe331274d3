"""Full fine-tuning of a Llama-like model of 8 billion parameters on one TPU v5p: writes results/host_memory.json.

AdamW with float32 moments on bfloat16 parameters; the moments are in the host's memory, or the parameters too, or
also gradients and what the layers save between forward and backward. Compiled for the chip, without one; nothing is
executed. Times and the share of the link are this library's own estimates.
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
from stablehlo_mem.analysis.host_link import busy_bytes
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.pass_api.candidate import Goal
from stablehlo_mem.planner.search_state import start_of
from stablehlo_mem.results.plan import Plan
from stablehlo_mem.targets.chips import Chip
from stablehlo_mem.targets.measurement import Measured
from stablehlo_mem.targets.target import named_targets
from stablehlo_mem.utils.units import format_bytes

PATH = record.RESULTS / "host_memory.json"
TARGET = "tpu:v5p"
SIZES = Sizes(1, 4096, layers=32, width=4096, hidden=14336, heads=32, kv_heads=8, vocabulary=128_256)
MOMENTS, ALL = ("opt_state",), ("params", "opt_state")
CASES: dict[str, tuple[tuple[str, ...], str, str | None]] = {
    "moments": (MOMENTS, "device", None),
    "moments and parameters": (ALL, "20GiB", None),
    "moments, parameters, temporaries": (ALL, "6GiB", "96GiB"),
}
"""Which arguments are on the host, the budget, and how much host memory temporaries may take."""
MAX_COMPILES = 3
"""Each takes minutes: the program as written, and two plans."""


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
    options = shm.Options(cache=False, max_compiles=MAX_COMPILES, host_memory=host_memory)
    step = shm.jit(program.function, budget, host=host, target=TARGET, options=options, donate_argnums=program.donated)
    return step.plan(*program.specs)


def measured(plan: Plan) -> dict[str, Any]:
    """What the compiler says of a plan, and its time as estimated."""
    after, chip = plan.after.measured, named_targets(TARGET)[0].chip
    assert isinstance(after, Measured)
    assert plan.cost_after is not None
    state = start_of(ingest(plan.exported), Goal(chip, shm.Options(), 0))  # the graph's handles live as long as it does
    return {
        "budget_bytes": plan.budget_bytes,
        "fits": plan.fits,
        "peak_bytes": after.peak_bytes,
        "static_temp_bytes": plan.after.temp_bytes,
        "temp_bytes": after.temp_bytes,
        "host_bytes": after.host_fixed_bytes + after.host_temp_bytes,
        "as_written_bytes": plan.before.peak_bytes,
        "seconds": plan.cost_after.seconds,
        "link_seconds": link_seconds(state.graph, chip),
        "flops": plan.cost_after.flops,
        "compiles": plan.compiles,
        "planning_seconds": round(plan.planning_seconds, 1),
        "compile_seconds": round(plan.compile_seconds, 1),
        "steps": list(plan.summaries),
        "refusals": [f"{r.code}: {r.message}" for r in plan.refusals],
    }


def link_seconds(graph: Graph, chip: Chip) -> float:
    """Seconds that the link is busy in one execution of a block, in the direction in which it is busier."""
    copied = (sum(busy_bytes(graph, op, to_host) for op in range(len(graph.ops))) for to_host in (True, False))
    return max(copied) / chip.host_link_bytes_per_second


def table(data: dict[str, Any]) -> str:
    """One line a case: its peak, what is on the host, its estimated time and how long the link is busy in it."""
    lines = [
        [
            name,
            format_bytes(row["as_written_bytes"]),
            format_bytes(row["budget_bytes"]),
            format_bytes(row["peak_bytes"]) + ("" if row["fits"] else " (not kept)"),
            format_bytes(row["host_bytes"]),
            f"{row['seconds']:.1f} s",
            f"{row['link_seconds'] / row['seconds']:.0%}",
        ]
        for name, row in data["rows"].items()
    ]
    names = ["on the host", "device, as written", "budget", "device", "host", "time", "link busy"]
    note = f"Peaks as compiled for {data['target']}, times as estimated, {tables.stamp(data)}."
    return f"{tables.table(names, lines)}\n{note}\n"


if __name__ == "__main__":
    main()
