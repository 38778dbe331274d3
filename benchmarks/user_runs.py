"""Programs as users of JAX's libraries write them, at shares of their temporaries: results/user_runs.json.

On CPU. Each is planned once, without the cache; `--run` runs the plans that fit beside the program as written, in turn
in one process. Rows that there are already are kept. The load of the machine stands in each row: both programs suffer
from it alike, and seconds of planning are the processor's, which hardly do.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import numpy as np
import record
import tables
import user_programs
import user_science

import stablehlo_mem as shm

PATH = record.RESULTS / "user_runs.json"
PROGRAMS = {**user_programs.PROGRAMS, **user_science.PROGRAMS}
SHARES = {"50%": 0.5, "10%": 0.1, "min": None}
MAX_SECONDS = 300
ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = list(PROGRAMS)
    parser.add_argument("--programs", nargs="*", default=names, choices=names, metavar="PROGRAM", help=", ".join(names))
    parser.add_argument("--shares", nargs="*", default=list(SHARES), choices=list(SHARES))
    parser.add_argument("--anew", action="store_true", help="rows that there are already too")
    parser.add_argument("--run", action="store_true", help="what fits, beside the program as written")
    given = parser.parse_args()
    data = {"rows": {}, **record.earlier(PATH), **record.header()}
    for name in given.programs:
        rows = {} if given.anew else {label: data["rows"].get(f"{name}, {label}") for label in given.shares}
        for label, row in measured(name, given.shares, rows, given.run):
            data["rows"][f"{name}, {label}"] = row
            order = [f"{program}, {share}" for program in names for share in SHARES]
            data["rows"] = {key: data["rows"][key] for key in order if key in data["rows"]}
            record.write(data, PATH)
            print(f"{name}, {label}:", {key: value for key, value in row.items() if key != "steps"}, flush=True)
            print(*(f"    {step}" for step in row["steps"]), sep="\n", flush=True)


def measured(name: str, labels: list[str], rows: dict[str, Any], run: bool) -> Any:
    """Yields the shares of a program that are not in `rows`, or not timed there, and their rows."""
    missing = [x for x in labels if not rows.get(x) or (run and rows[x]["fits"] and "seconds" not in rows[x])]
    if not missing:
        return
    function, arguments = PROGRAMS[name]()
    exported = exported_program(function, arguments)
    profile = shm.profile(exported, target="cpu")
    written = executed(exported, arguments) if run else None
    for label in missing:
        share = SHARES[label]
        budget = "min" if share is None else record.budget(profile, share)
        started, used = time.perf_counter(), time.process_time()
        options = shm.Options(cache=False, max_seconds=MAX_SECONDS)
        plan = shm.plan(exported, budget, target="cpu", options=options)
        waited = {"cpu_seconds": time.process_time() - used, "waited_seconds": time.perf_counter() - started}
        row = figures(plan) | {key: round(value, 1) for key, value in waited.items()}
        row["load"] = round(os.getloadavg()[0], 1)
        if written and plan.fits and plan.exported is not None:
            row |= timed(written, executed(plan.exported, arguments))
        yield label, row


def figures(plan: shm.Plan) -> dict[str, Any]:
    return {
        "fits": plan.fits,
        "too_slow": plan.too_slow,
        "affordable_peak_bytes": plan.affordable_peak_bytes,
        "before_peak_bytes": plan.before.peak_bytes,
        "budget_bytes": plan.budget_bytes,
        "peak_bytes": plan.after.peak_bytes,
        "slowdown": round(plan.slowdown, 3),
        "compiles": plan.compiles,
        "planning_seconds": round(plan.planning_seconds, 1),
        "compile_seconds": round(plan.compile_seconds, 1),
        "steps": list(plan.summaries),
        "refusals": [refusal.message for refusal in plan.refusals[:3]] if not plan.fits else [],
    }


def exported_program(function: Callable[..., Any], arguments: tuple[Any, ...]) -> jax.export.Exported:
    specs = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), arguments)
    return jax.export.export(jax.jit(function), platforms=["cpu"])(*specs)


Execution = Callable[[], Any]


def executed(exported: jax.export.Exported, arguments: tuple[Any, ...]) -> Execution:
    """A program compiled with XLA's default options, to be called."""
    on_device = jax.device_put(arguments)
    compiled = jax.jit(exported.call).lower(*on_device).compile()
    return lambda: jax.block_until_ready(compiled(*on_device))


def timed(written: Execution, ours: Execution) -> dict[str, Any]:
    """Medians of both, in turn, after one execution of each, and how far apart their results are."""
    seconds: dict[Execution, list[float]] = {written: [], ours: []}
    error = max(map(difference, jax.tree.leaves(ours()), jax.tree.leaves(written())), default=0.0)
    for _ in range(ROUNDS):
        for run, times in seconds.items():
            started = time.perf_counter()
            run()
            times.append(time.perf_counter() - started)
    unsplit, split = (statistics.median(times) for times in seconds.values())
    ratio = round(split / unsplit, 2)
    return {"error": error, "unsplit_seconds": round(unsplit, 3), "seconds": round(split, 3), "ratio": ratio}


def table(data: dict[str, Any]) -> str:
    """One line a program: its peak as written, and what each budget gives."""
    rows = data["rows"]
    names = dict.fromkeys(key.rpartition(", ")[0] for key in rows)
    lines = [[name, *_cells({share: rows.get(f"{name}, {share}") for share in SHARES})] for name in names]
    heads = [head for share in SHARES for head in (share, "time")]
    budgets = [row for key, row in rows.items() if not key.endswith("min")]
    kept, timed_rows = sum(row["fits"] for row in budgets), [row for row in rows.values() if "ratio" in row]
    note = (
        f"Time over that of the program as written, in turn, medians of {ROUNDS}; ~ where it is an estimate. {kept} of "
        f"{len(budgets)} budgets are kept. Load of the machine from {min(row['load'] for row in timed_rows)} to "
        f"{max(row['load'] for row in timed_rows)} on {data['hardware']['cores']} cores, {tables.stamp(data)}."
    )
    return tables.table(["program", "peak as written", *heads], lines) + f"\n{note}\n"


def _cells(rows: dict[str, dict[str, Any] | None]) -> list[str]:
    """The peak as written, then the peak and the time at each share; what was reached where a budget is not kept."""
    cells = [next(tables.format_bytes(row["before_peak_bytes"]) for row in rows.values() if row)]
    for row in rows.values():
        if row is None:
            cells += ["", ""]
        elif row["fits"]:
            time = f"{row['ratio']:.2f}" if "ratio" in row else f"~{row['slowdown']:.2f}"
            cells += [tables.format_bytes(row["peak_bytes"]), time]
        else:
            reached = tables.format_bytes(row["affordable_peak_bytes"] or row["peak_bytes"])
            cells += [f"{reached} (not kept: {tables.format_bytes(row['budget_bytes'])})", ""]
    return cells


def difference(one: jax.Array, other: jax.Array) -> float:
    """The largest difference, over the largest value."""
    one, other = (np.asarray(x, np.float64) for x in (one, other))
    return float(np.abs(one - other).max() / max(np.abs(other).max(), np.finfo(np.float32).tiny))


if __name__ == "__main__":
    main()
