"""A Llama-like step beside the remat policies its users tune by hand: results/versus_policies.json.

Peaks are the compilers'. Each policy is compiled; *ours* is the step as written, planned for the policy's peak. FLOPs
and seconds are this library's own estimates of both programs. Nothing is executed.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import time
from typing import Any, get_args

import jax
import llama_programs
import record
import tables
from llama_programs import Attention, Policy, Sizes

import stablehlo_mem as shm
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.pass_api.candidate import Goal, Options
from stablehlo_mem.planner.search_state import start_of
from stablehlo_mem.targets.measurement import Measured
from stablehlo_mem.targets.target import named_targets
from stablehlo_mem.utils.units import format_bytes

PATH = record.RESULTS / "versus_policies.json"
CASES: dict[str, tuple[str, Sizes, Attention]] = {
    "v5p, 8 x 2,048, flash": ("tpu:v5p", Sizes(8, 2048), "flash"),
    "v5p, 8 x 2,048, plain": ("tpu:v5p", Sizes(8, 2048), "plain"),
    "v5p, 1 x 8,192, plain": ("tpu:v5p", Sizes(1, 8192), "plain"),
    "v5e, 1 x 2,048, flash": ("tpu:v5e", Sizes(1, 2048, layers=4), "flash"),
    "v5e, 1 x 2,048, plain": ("tpu:v5e", Sizes(1, 2048, layers=4), "plain"),
    "h200, 8 x 2,048, plain": ("cuda:h200", Sizes(8, 2048), "plain"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--policies", nargs="*", default=list(get_args(Policy))[1:], choices=list(get_args(Policy)))
    parser.add_argument("--anew", action="store_true", help="rows that there are already too")
    given = parser.parse_args()
    data = {**record.earlier(PATH), **record.header()}
    rows: dict[str, Any] = data.setdefault("rows", {})
    for case in given.cases:
        for policy in given.policies:
            if f"{case}: {policy}" not in rows or given.anew:
                rows[f"{case}: {policy}"] = row = measure(*CASES[case], policy)
                record.write(data, PATH)
                print(f"{case}: {policy}", row, flush=True)


def measure(target: str, sizes: Sizes, attention: Attention, policy: Policy) -> dict[str, Any]:
    """The figures of a policy and of the plan for its peak."""
    by_hand = exported(target, sizes, attention, policy)
    measured = shm.profile(by_hand, target=target).measured
    goal = Goal(named_targets(target)[0].chip, Options(), 0)
    hand = start_of(ingest(by_hand), goal)
    budget = measured.peak_bytes if isinstance(measured, Measured) else measured.needed_bytes
    row = {"hand_peak_bytes": budget, "hand_flops": hand.flops, "hand_seconds": hand.seconds}
    started = time.perf_counter()
    plan = shm.plan(exported(target, sizes, attention, "none"), budget, target=target, options=Options(cache=False))
    return {
        **row,
        "fits": plan.fits,
        "peak_bytes": plan.after.peak_bytes,
        "before_peak_bytes": plan.before.peak_bytes,
        "flops": plan.cost_after.flops,
        "seconds": plan.cost_after.seconds,
        "unsplit_flops": plan.cost_before.flops,
        "unsplit_seconds": plan.cost_before.seconds,
        "compiles": plan.compiles,
        "planning_seconds": round(plan.planning_seconds, 1),
        "waited_seconds": round(time.perf_counter() - started, 1),
        "steps": list(plan.summaries),
    }


def table(data: dict[str, Any]) -> str:
    """One line a policy of each case: its peak and ours, and our FLOPs and seconds over the policy's."""
    lines = [
        [
            *name.rsplit(": ", 1),
            format_bytes(row["hand_peak_bytes"]),
            format_bytes(row["peak_bytes"]) + ("" if row["fits"] else " (not kept)"),
            f"{row['flops'] / row['hand_flops']:.2f}",
            f"{row['seconds'] / row['hand_seconds']:.2f}",
            f"{row['hand_seconds'] / row['unsplit_seconds']:.2f}",
        ]
        for name, row in data["rows"].items()
    ]
    names = ["step", "saved", "peak of the policy", "ours", "FLOPs, ours / its", "time", "its time / as written"]
    return tables.table(names, lines) + f"\nPeaks as compiled, FLOPs and times as estimated, {tables.stamp(data)}.\n"


def exported(target: str, sizes: Sizes, attention: Attention, policy: Policy) -> jax.export.Exported:
    return llama_programs.llama(sizes, attention, policy).export(target.partition(":")[0])


if __name__ == "__main__":
    main()
