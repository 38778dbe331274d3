"""A training step over eight devices at shares of its temporaries: writes results/sharded.json.

The steps are those of `sharded_programs`. Compiled for eight CUDA or TPU devices, without any; nothing is executed.
Figures are those of one device. Collectives are counted in the compiled HLO, those of loops as often as they run.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"

import argparse
import itertools
import time
from typing import Any

import collectives
import record
import sharded_programs
import tables
from sharded_programs import ByHand

import stablehlo_mem as shm
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.pass_api.candidate import Goal
from stablehlo_mem.planner.search_state import start_of
from stablehlo_mem.targets.measurement import Measured
from stablehlo_mem.targets.target import named_targets
from stablehlo_mem.utils.units import format_bytes

PATH = record.RESULTS / "sharded.json"
TARGETS = ("cuda:h200", "tpu:v5e")
SHARES = (0.25, 0.1, 0.05, 0.03)
BY_HAND = {
    "by hand: every layer recomputed": ByHand(remat=True),
    "by hand: in 4 micro-batches too": ByHand(remat=True, micro_batches=4),
    "by hand: in 8 micro-batches too": ByHand(remat=True, micro_batches=8),
}
"""What is written by hand: the more micro-batches, the less memory, and the more is gathered."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", nargs="*", default=list(TARGETS))
    parser.add_argument("--layouts", nargs="*", default=list(sharded_programs.LAYOUTS))
    parser.add_argument("--forms", nargs="*", default=["scanned", "unrolled"], help="of the layers")
    parser.add_argument("--shares", nargs="*", type=float, default=list(SHARES))
    parser.add_argument("--anew", action="store_true", help="rows that there are already too")
    given = parser.parse_args()
    data = {**record.earlier(PATH), **record.header(), "sizes": sharded_programs.SIZES}
    rows = data.setdefault("rows", {})
    for target, layout, form in itertools.product(given.targets, given.layouts, given.forms):
        step = f"{target}, {layout}" + (", unrolled" if form == "unrolled" else "")
        names = {f"{step}, {share:.0%}": share for share in given.shares}
        missing = {name: share for name, share in names.items() if given.anew or name not in rows}
        if missing:
            measure(step, target, layout, form == "scanned", missing, data)


def measure(step: str, target: str, layout: str, scanned: bool, shares: dict[str, float], data: dict[str, Any]) -> None:
    """Adds the rows of a step: of plans for shares of its temporaries, and of versions by hand."""
    platform, rows = target.partition(":")[0], data["rows"]
    exported = sharded_programs.export(layout, platform, scanned=scanned)
    profile, exchanged = shm.profile(exported, target=target), collectives.exchanged_bytes(exported, target)
    for name, share in shares.items():
        rows[name] = row = planned(exported, profile, target, share, exchanged)
        record.write(data, PATH)
        print(name, {**row, "steps": len(row["steps"])}, flush=True)
    batch_of_device = sharded_programs.SIZES["batch"] // sharded_programs.LAYOUTS[layout].mesh[0]
    for label, hand in BY_HAND.items():
        if f"{step}, {label}" in rows or hand.micro_batches > batch_of_device:
            continue  # nothing of ours is in it, or there are not so many
        written = sharded_programs.export(layout, platform, scanned=scanned, by_hand=hand)
        rows[f"{step}, {label}"] = row = by_hand(written, profile, target, exported, exchanged)
        record.write(data, PATH)
        print(label, row, flush=True)


def by_hand(written: Any, before: Any, target: str, exported: Any, exchanged: float) -> dict[str, Any]:
    """What a version by hand comes to, on each device."""
    profile = shm.profile(written, target=target)
    goal = Goal(named_targets(target)[0].chip, shm.Options(), 0)
    hand, ours = (start_of(ingest(one), goal) for one in (written, exported))
    return {
        "fits": True,
        "temporaries": temporaries(profile.measured, profile),
        "before": temporaries(before.measured, before),
        "slowdown": hand.seconds / ours.seconds,
        "flops": hand.flops / ours.flops,
        "exchanged": collectives.exchanged_bytes(written, target) / exchanged,
    }


def planned(exported: Any, profile: Any, target: str, share: float, exchanged: float) -> dict[str, Any]:
    """What the plan for a share of the temporaries comes to, on each device.

    Args:
        exchanged: bytes that a device receives as written.
    """
    before = profile.measured
    started = time.perf_counter()
    budget = record.budget(profile, share)
    plan = shm.plan(exported, budget, target=target, options=shm.Options(cache=False))
    after = plan.after.measured
    return {
        "fits": plan.fits,
        "asked": budget - (profile.peak_bytes - temporaries(before, profile)),
        "temporaries": temporaries(after, plan.after),
        "before": temporaries(before, profile),
        "static before": profile.temp_bytes,
        "static": plan.after.temp_bytes,
        "slowdown": plan.slowdown,
        "flops": plan.cost_after.flops / plan.cost_before.flops,
        "exchanged": collectives.exchanged_bytes(plan.exported, target) / exchanged,
        "compiles": plan.compiles,
        "planning_seconds": round(plan.planning_seconds, 1),
        "waited_seconds": round(time.perf_counter() - started, 1),
        "steps": list(plan.summaries),
    }


def temporaries(measured: Any, profile: Any) -> int:
    """Bytes by the compiler; where it refused the program, those it says it would need."""
    if isinstance(measured, Measured):
        return measured.temp_bytes
    return profile.peak_bytes - (profile.static_peak_bytes - profile.temp_bytes)


def table(data: dict[str, Any]) -> str:
    """One line a layout and share: temporaries of one device before and after, and the estimated time."""
    rows = {tuple(name.rsplit(", ", 1)): row for name, row in data["rows"].items()}
    steps = list(dict.fromkeys(step for step, _ in rows))
    in_order = sorted(rows, key=lambda key: (steps.index(key[0]), _order(key[1])))
    lines = [
        [
            *key,
            format_bytes(row["before"]),
            format_bytes(row["temporaries"]) + ("" if row["fits"] else " (not kept)"),
            f"{row['slowdown']:.2f}",
            f"{row['flops']:.2f}",
            f"{row['exchanged']:.2f}",
        ]
        for key in in_order
        for row in [rows[key]]
    ]
    names = ["step", "budget", "as written", "then", "time", "FLOPs", "exchanged"]
    note = (
        "Temporaries of one of 8 devices as compiled; time and FLOPs, as estimated, and bytes of collectives, counted "
        "in the compiled program, over those as written;"
    )
    return tables.table(names, lines) + f"\n{note} {tables.stamp(data)}.\n"


def _order(label: str) -> float:
    """A sort key: shares, the largest first, then versions by hand as they come."""
    return -float(label.removesuffix("%")) if label.endswith("%") else 0


if __name__ == "__main__":
    main()
