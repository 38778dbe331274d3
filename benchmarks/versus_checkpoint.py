"""Peaks of gradients beside `jax.checkpoint` by hand, as three compilers report them: results/versus_checkpoint.json.

The programs and the versions by hand are those of `training_runs.py`. Nothing is executed. *Ours* is planned for the
peak of the best version that uses `jax.checkpoint` alone, and for "min".
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import pathlib
import sys
from typing import Any

import jax

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # as `tables.py` imports this from there

import record
import tables
import training_by_hand
import training_programs
from training_programs import Program
from training_runs import SIZES

import stablehlo_mem as shm
from stablehlo_mem.targets.measurement import Measured
from stablehlo_mem.utils.units import format_bytes

PATH = record.RESULTS / "versus_checkpoint.json"
TARGETS = ("cpu", "tpu:v5e", "cuda:h200")
ALONE = {
    "attention": ("checkpoint",),
    "head": ("checkpoint",),
    "mlp": ("checkpoint",),
    "gpt2_scanned": ("checkpoint of attention", "checkpoint of layers"),
}
"""The versions that put `jax.checkpoint` around something, and change nothing else."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", nargs="*", default=list(ALONE), choices=list(ALONE))
    parser.add_argument("--anew", action="store_true", help="rows that there are already too")
    given = parser.parse_args()
    data = {**record.earlier(PATH), **record.header()}
    rows: dict[str, Any] = data.setdefault("rows", {})
    for name in given.programs:
        for target in TARGETS:
            if f"{name} on {target}" in rows and not given.anew:
                continue
            rows[f"{name} on {target}"] = row = measure(name, target)
            record.write(data, PATH)
            print(f"{name} on {target}", row)


def measure(name: str, target: str) -> dict[str, Any]:
    """Peaks of one program on one target: as written, by hand, ours; None where the compiler refused."""
    sizes = SIZES[name]
    settings = training_by_hand.versions(name, sizes)
    by_hand = {
        version: peak(training_by_hand.program(name, sizes, settings[version]), target) for version in ALONE[name]
    }
    original = exported(training_programs.program(name, sizes), target)
    best = min(one for one in by_hand.values() if one is not None)
    plan = shm.plan(original, best, target=target)
    least = shm.plan(original, "min", target=target)
    return {
        "sizes": sizes,
        "original_peak_bytes": plan.before.peak_bytes,
        "by_hand_peak_bytes": by_hand,
        "fits": plan.fits,
        "ours_peak_bytes": plan.after.peak_bytes,
        "unchanged": not plan.steps,
        "min_peak_bytes": least.after.peak_bytes,
    }


def peak(program: Program, target: str) -> int | None:
    """What the compiler reports, as the library counts it."""
    profile = shm.profile(exported(program, target), target=target)
    return profile.measured.peak_bytes if isinstance(profile.measured, Measured) else None


def exported(program: Program, target: str) -> jax.export.Exported:
    return jax.export.export(program.jitted, platforms=[target.partition(":")[0]])(*program.specs)


def table(data: dict[str, Any]) -> str:
    """One line a program and target."""
    lines = [
        [
            key.partition(" on ")[0],
            key.partition(" on ")[2],
            format_bytes(row["original_peak_bytes"]),
            format_bytes(min(n for n in row["by_hand_peak_bytes"].values() if n is not None)),
            ours(row),
            format_bytes(row["min_peak_bytes"]),
        ]
        for key, row in data["rows"].items()
    ]
    names = ["gradient of", "target", "peak as written", "best jax.checkpoint", "ours, that budget", 'ours, "min"']
    return tables.table(names, lines) + f"\nPeaks as the compilers report them, {tables.stamp(data)}.\n"


def ours(row: dict[str, Any]) -> str:
    if row["unchanged"]:
        return "as it was"
    return format_bytes(row["ours_peak_bytes"]) + ("" if row["fits"] else " (not kept)")


if __name__ == "__main__":
    main()
