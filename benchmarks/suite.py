"""A dozen programs at 25% and 10% of their temporaries, beside themselves unsplit and by hand: results/suite.json.

Ours and the program as written, the best of a sweep of batch sizes by hand at the same memory, all in turn in one
process; memory of each alone in a fresh one. What planning takes is in planning.py.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import contextlib
import statistics
from typing import Any

import record
import suite_programs
import tables
from exla import contenders, worker
from exla.contenders import Contender

import stablehlo_mem as shm
from stablehlo_mem.utils.units import format_bytes

PATH = record.RESULTS / "suite.json"
SHARES = (0.25, 0.1)
BATCHES = contenders.powers_of_two(1, 4096)
WRITTEN = "as written"
SELF = "suite"
START_SECONDS, HOPELESS = 30, 20
"""A batch size by hand that takes so many times as long as the program as written, after that start, is given up."""
TOLERANCE = 1e-3
"""Of a result's largest value: beyond it, no rounding explains a difference."""


def as_written(name: str) -> worker.Execution:
    return worker.jax_execution(suite_programs.CASES[name].function, *suite_programs.arguments(name))


def ours(name: str, program: str) -> worker.Execution:
    return worker.exported_execution(program, *suite_programs.arguments(name))


def by_hand(name: str, batch: int) -> worker.Execution:
    make = suite_programs.CASES[name].by_hand
    assert make is not None
    return worker.jax_execution(make(batch), *suite_programs.arguments(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = list(suite_programs.CASES)
    parser.add_argument("--rows", nargs="*", default=names, choices=names, metavar="PROGRAM", help=", ".join(names))
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    rows = record.earlier_rows(PATH, arguments.rows)
    for name in arguments.rows:
        rows[name] = measure(name, arguments.rounds)
        ordered = {key: rows[key] for key in names if key in rows}
        record.write({**record.header(), "rows": ordered}, PATH)
        print(f"{name}: {summary(rows[name])}", flush=True)


def measure(name: str, rounds: int) -> dict[str, Any]:
    """One program: planned for each share, then run beside the others."""
    exported = suite_programs.CASES[name].exported()
    profile = shm.profile(exported, target="cpu")
    plans = {f"{share:.0%}": shm.plan(exported, record.budget(profile, share), target="cpu") for share in SHARES}
    row = {
        "original_peak_bytes": profile.peak_bytes,
        "plans": {label: figures(plan) for label, plan in plans.items()},
    }
    with contextlib.ExitStack() as stack:
        files = {label: stack.enter_context(contenders.program_file(plan.exported)) for label, plan in plans.items()}
        return row | execute(name, files, rounds)


def figures(plan: shm.Plan) -> dict[str, Any]:
    return {
        "budget_bytes": plan.budget_bytes,
        "peak_bytes": plan.after.peak_bytes,
        "fits": plan.fits,
        "steps": list(plan.summaries),
        "compiles": plan.compiles,
        "planning_seconds": plan.planning_seconds,
    }


def execute(name: str, files: dict[str, str], rounds: int) -> dict[str, Any]:
    """Ours, as written, and of each share the fastest by hand that takes no more memory than ours."""
    written = Contender(WRITTEN, f"{SELF}:as_written", {"name": name})
    mine = [Contender(f"ours, {label}", f"{SELF}:ours", {"name": name, "program": f}) for label, f in files.items()]
    grown = {c.name: contenders.run([c], rounds=0)[0].grown_bytes or 0 for c in mine}
    sweep = [Contender(f"by hand {b}", f"{SELF}:by_hand", {"name": name, "batch": b}) for b in BATCHES]
    timeout = START_SECONDS + HOPELESS * (contenders.run([written], rounds=1)[0].median or 0)
    swept = {c.name: contenders.run([c], rounds=1, timeout=timeout)[0] for c in sweep}
    medians = {batch: outcome.median for batch, outcome in swept.items()}
    best = {
        c.name: contenders.fastest_within(sweep, medians, lambda one: swept[one.name], 1.05 * grown[c.name])
        for c in mine
    }
    others = list({c.name: c for c in best.values()}.values())
    entries = [written, *mine, *others]
    outcomes = contenders.compare(entries, rounds=rounds)
    return {
        "best": {label: c.name for label, c in best.items()},
        "worst_error": contenders.worst_error(outcomes, WRITTEN, TOLERANCE),
        "outcomes": {label: outcome.to_json() for label, outcome in outcomes.items()},
    }


def median(row: dict[str, Any], name: str) -> float:
    return statistics.median(row["outcomes"][name]["seconds"])


def ratios(row: dict[str, Any], label: str) -> tuple[float, float]:
    """Of the time of ours to that as written, and to the best by hand."""
    name = f"ours, {label}"
    return median(row, name) / median(row, WRITTEN), median(row, name) / median(row, row["best"][name])


def summary(row: dict[str, Any]) -> str:
    parts: list[str] = []
    for label, plan in row["plans"].items():
        written, hand = ratios(row, label)
        kept = "kept" if plan["fits"] else "NOT KEPT"
        parts.append(f"{label} {kept}: {written:.2f} of unsplit, {hand:.2f} of {row['best'][f'ours, {label}']}")
    return "; ".join(parts)


def table(data: dict[str, Any]) -> str:
    """One line a program: memory, times and ratios at each share, then what planning takes."""
    lines: list[list[str]] = []
    for name, row in data["rows"].items():
        plans = row["plans"].items()
        kept = [format_bytes(plan["peak_bytes"]) + ("" if plan["fits"] else " (not kept)") for _, plan in plans]
        times = [
            tables.seconds(row["outcomes"][who]["seconds"]) for who in (WRITTEN, *(f"ours, {x}" for x, _ in plans))
        ]
        shares = [f"{ratio:.2f}" for label, _ in plans for ratio in ratios(row, label)]
        compiles = str(max(plan["compiles"] for _, plan in plans))
        lines.append([name, format_bytes(row["original_peak_bytes"]), *kept, *times, *shares, compiles])
    labels = [f"{share:.0%}" for share in SHARES]
    names = [
        "program",
        "peak as written",
        *(f"at {x}" for x in labels),
        "time as written",
        *(f"at {x}" for x in labels),
    ]
    names += [f"{x} / {who}" for x in labels for who in ("unsplit", "by hand")]
    means = [statistics.geometric_mean([ratios(row, label)[0] for row in data["rows"].values()]) for label in labels]
    cpu = f"{data['hardware']['cores']} cores of {data['hardware']['cpu']}"
    note = f"{cpu}, float32; {tables.medians(data['rows'].values())} runs in turn; geometric mean over unsplit "
    note += ", ".join(f"{mean:.2f} at {label}" for mean, label in zip(means, labels, strict=True))
    note += f"; {tables.stamp(data)}"
    return tables.table([*names, "compiles"], lines) + f"\n{note}.\n"


if __name__ == "__main__":
    main()
