"""Squared-exponential kernel matvec in float64 under memory limits: writes results/exla_kernel_matvec.json.

Each point (n, d, limit) is planned for three targets; up to n = 100,000 the CPU plans run, in turn with JAX as written,
the best of a sweep of `lax.map(batch_size)`, and KeOps. A limit that the original keeps gives back the original: what
runs there is the plan without a limit, the fastest there is, if it keeps the limit too.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import argparse
import dataclasses
import functools
import hashlib
import itertools
import pathlib
import sys
import tempfile
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

sys.path.append(str(pathlib.Path(__file__).parent.parent))  # as `tables.py` imports this from there

import record
import tables
from exla import contenders, worker
from exla.contenders import Contender, Outcome, compare, fastest, powers_of_two

import stablehlo_mem as shm
from stablehlo_mem.utils.units import format_bytes

TARGETS = ("cpu", "tpu:v5e", "cuda:h200")
LIMITS = {"100 MB": 10**8, "500 MB": 5 * 10**8, "1 GB": 10**9, "5 GB": 5 * 10**9, "20 GB": 2 * 10**10}
SIZES = (1_000, 10_000, 30_000, 100_000, 1_000_000)
DIMENSIONS = (3, 10)
RUN_UP_TO = 100_000
SWEPT_ROWS = 10_000
"""At most so many rows are computed to choose the batch: a step takes as long whatever their number."""
SLACK = 1.15
"""Resident growth over what the limit leaves beside the arguments, at most."""
TOLERANCE = 1e-10
SELF = "exla.kernel_matvec"
HOW: dict[str, Any] = {"timeout": 1200.0, "x64": True}


def direct(x, y, v):
    return jnp.exp(-0.5 * ((x[:, None] - y[None]) ** 2).sum(-1)) @ v


def norms(x, y, v):
    squared = (x**2).sum(-1)[:, None] + (y**2).sum(-1)[None] - 2 * x @ y.T
    return jnp.exp(-0.5 * squared) @ v


FORMS = {"direct": direct, "norms": norms}
"""Two ways to write it; `direct` is the one that runs."""


@functools.cache
def data(n: int, d: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    return tuple(jnp.asarray(rng.standard_normal(shape)) for shape in ((n, d), (n, d), (n,)))


def as_written(n: int, d: int) -> worker.Execution:
    return worker.jax_execution(direct, *data(n, d))


def ours(n: int, d: int, program: str) -> worker.Execution:
    return worker.exported_execution(program, *data(n, d))


def lax_map(n: int, d: int, batch: int, rows: int | None = None) -> worker.Execution:
    """By hand, of all points or the first so many."""

    def matvec(x, y, v):
        return jax.lax.map(lambda row: jnp.exp(-0.5 * ((row - y) ** 2).sum(-1)) @ v, x, batch_size=batch)

    x, y, v = data(n, d)
    return worker.jax_execution(matvec, x[:rows], y, v)


def keops(n: int, d: int) -> worker.Execution:
    from pykeops.numpy import LazyTensor

    def matvec(x, y, v):
        squared = ((LazyTensor(x[:, None, :]) - LazyTensor(y[None, :, :])) ** 2).sum(-1)
        return ((-0.5 * squared).exp() @ v[:, None])[:, 0]

    matvec(*(np.asarray(a) for a in data(10, d)))  # compiles
    arrays = [np.asarray(a) for a in data(n, d)]
    return lambda: matvec(*arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="*", default=[f"{n}x{d}" for n in SIZES for d in DIMENSIONS], help="as 10000x3")
    parser.add_argument("--targets", nargs="*", default=list(TARGETS), help="plan for these, and run if the CPU is one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="no more than 10,000 points, 3 rounds")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    rows = [tuple(int(size) for size in row.split("x")) for row in arguments.rows]
    rounds = 3 if arguments.quick else arguments.rounds
    rows = [(n, d) for n, d in rows if n <= 10_000 or not arguments.quick]
    path = record.RESULTS / "exla_kernel_matvec.json"
    every = [f"{n}x{d}" for n in SIZES for d in DIMENSIONS]
    done = record.earlier(path).get("rows", {})
    # The original, which every limit begins with, takes a TPU's compiler minutes.
    with record.compiled_once():
        for n, d in rows:
            earlier = done.get(f"{n}x{d}", {"points": []})
            done[f"{n}x{d}"] = row = measure(n, d, rounds, arguments.targets, earlier)
            ordered = {key: done[key] for key in every if key in done}
            record.write({**record.header(), "rounds": rounds, "rows": ordered}, path)
            print(f"{n:,} x {d}: {summary(row)}", flush=True)


def measure(n: int, d: int, rounds: int, targets: list[str], earlier: dict[str, Any]) -> dict[str, Any]:
    """One size: every plan of both forms, those for other targets as they were, and what runs."""
    with tempfile.TemporaryDirectory(prefix="exla-") as name:
        directory = pathlib.Path(name)
        kept = {(p["form"], p["limit"], p["target"]): p for p in earlier["points"] if p["target"] not in targets}
        cases = itertools.product(FORMS, LIMITS, TARGETS)
        made = {c: plan(c[0], n, d, c[1], c[2], directory) if c[2] in targets else kept.get(c) for c in cases}
        points = [point for point in made.values() if point is not None]
        row = {**earlier, "n": n, "d": d, "points": points}
        runs = n <= RUN_UP_TO and "cpu" in targets
        return row | (execute(n, d, points, rounds, directory) if runs else {})


def plan(form: str, n: int, d: int, limit: str, target: str, directory: pathlib.Path) -> dict[str, Any]:
    """The plan of one point; what is to run on this machine is left in the directory, equal programs once."""
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float64) for shape in ((n, d), (n, d), (n,))]
    platform = target.partition(":")[0]
    exported = jax.export.export(jax.jit(FORMS[form]), platforms=[platform])(*shapes)
    point = {"form": form, "limit": limit, "limit_bytes": LIMITS[limit], "target": target}
    try:
        made = shm.plan(exported, LIMITS[limit], target=target)
    except shm.BudgetError as error:
        return {**point, "status": "below arguments and outputs", "needed_bytes": error.needed_bytes}
    except shm.TargetError as error:
        return {**point, "status": "not compiled", "reason": str(error)}
    point |= {
        "status": "kept" if made.fits else "not kept",
        "unchanged": made.result is exported,
        "original_peak_bytes": made.before.peak_bytes,
        "optimised_peak_bytes": made.after.peak_bytes,
        "steps": list(made.summaries),
        "compiles": made.compiles,
        "planning_seconds": made.planning_seconds,
    }
    if target == "cpu" and form == "direct" and n <= RUN_UP_TO:
        run = record.fastest_within(exported, made, LIMITS[limit])
        name = hashlib.sha256(run.bytecode).hexdigest()[:12]
        assert run.exported is not None
        (directory / name).write_bytes(run.exported.serialize())
        point |= {"program": name, "no_budget": run is not made}
    return point


def execute(n: int, d: int, points: list[dict[str, Any]], rounds: int, directory: pathlib.Path) -> dict[str, Any]:
    """Runs the contenders: every different plan among them, each under the name of its program."""
    size = {"n": n, "d": d}
    some = {**size, "rows": min(n, SWEPT_ROWS)}
    sweep = [Contender(f"lax.map {b}", f"{SELF}:lax_map", {**some, "batch": b}) for b in powers_of_two(8, 2048)]
    best, swept = fastest(sweep, rounds=2, **HOW)
    best = dataclasses.replace(best, arguments={**size, "batch": best.arguments["batch"]})
    programs = dict.fromkeys(point["program"] for point in points if "program" in point)
    entries = [
        *(Contender(name, f"{SELF}:ours", {**size, "program": str(directory / name)}) for name in programs),
        Contender("JAX as written", f"{SELF}:as_written", size),
        best,
        Contender("KeOps", f"{SELF}:keops", size),
    ]
    outcomes = compare(entries, rounds=rounds, **HOW)
    for point in points:
        if point.get("program") in outcomes:
            point |= judge(point, n, d, outcomes[point["program"]], outcomes[best.name])
    return {
        "batch": best.arguments["batch"],
        "swept_seconds": swept,
        "worst_error": contenders.worst_error(outcomes, best.name, TOLERANCE),
        "outcomes": {name: outcome.to_json() for name, outcome in outcomes.items()},
    }


def judge(point: dict[str, Any], n: int, d: int, mine: Outcome, best: Outcome) -> dict[str, Any]:
    """What was measured of one plan on this machine."""
    room = SLACK * (point["limit_bytes"] - 8 * (2 * n * d + n))
    within = mine.grown_bytes is not None and mine.grown_bytes <= room
    ratio = mine.median / best.median if mine.seconds and best.seconds else None
    return {"grown_bytes": mine.grown_bytes, "allowed_growth_bytes": int(room), "within": within, "ratio": ratio}


def check(row: dict[str, Any]) -> list[str]:
    """The points of a row that did not keep their limits, in words."""
    failed = [p for p in row["points"] if p["status"] in ("not kept", "not compiled") or not p.get("within", True)]
    return [f"{p['form']} {p['limit']} on {p['target']}: {p['status']}" for p in failed]


def summary(row: dict[str, Any]) -> str:
    ratios = [p["ratio"] for p in row["points"] if p.get("ratio")]
    kept = sum(p["status"] == "kept" for p in row["points"])
    speed = f"; {min(ratios):.2f} to {max(ratios):.2f} of lax.map {row['batch']}" if ratios else ""
    return f"{kept} of {len(row['points'])} limits kept{speed}" + "".join(f"\n  {line}" for line in check(row))


def table(data: dict[str, Any]) -> str:
    """The runs, then the compiled peaks of all sizes."""
    return f"{run_table(data)}\n{peak_table(data)}"


def run_table(data: dict[str, Any]) -> str:
    lines = [
        [
            f"{row['n']:,} x {row['d']}, {point['limit']}" + (" (no budget)" if point["no_budget"] else ""),
            tables.optional(point["grown_bytes"], format_bytes),
            format_bytes(point["allowed_growth_bytes"]),
            *(contenders.time_cell(row["outcomes"][name]) for name in (point["program"], *others(row))),
            *(contenders.ratio_cell(row["outcomes"], point["program"], name) for name in others(row)[1:]),
        ]
        for row in data["rows"].values()
        for point in row["points"]
        if "ratio" in point
    ]
    names = ["n x d, limit", "memory added", "allowed", "ours", "JAX as written", "best lax.map", "KeOps"]
    note = f"CPU, float64; medians of {data['rounds']} runs in turn; no budget: the original keeps the limit"
    return tables.table([*names, "ours / lax.map", "ours / KeOps"], lines) + f"\n{note}; {tables.stamp(data)}.\n"


def others(row: dict[str, Any]) -> tuple[str, str, str]:
    return "JAX as written", f"lax.map {row['batch']}", "KeOps"


def peak_table(data: dict[str, Any]) -> str:
    """One line a size, form and target: peaks as compiled at every limit."""
    lines = []
    for row in data["rows"].values():
        for form in FORMS:
            for target in TARGETS:
                points = [p for p in row["points"] if (p["form"], p["target"]) == (form, target)]
                before = next((p["original_peak_bytes"] for p in points if "original_peak_bytes" in p), None)
                cells = [peak_cell(point) for point in points]
                lines.append(
                    [f"{row['n']:,} x {row['d']} {form}", target, tables.optional(before, format_bytes), *cells]
                )
    names = ["n x d", "target", "original", *LIMITS]
    note = "Peaks as the compilers report them, float64; as it was: the original keeps the limit"
    return tables.table(names, lines) + f"\n{note}; {tables.stamp(data)}.\n"


def peak_cell(point: dict[str, Any]) -> str:
    if "optimised_peak_bytes" not in point:
        return point["status"]
    if point["unchanged"]:
        return "as it was"
    return format_bytes(point["optimised_peak_bytes"]) + (" (not kept)" if point["status"] == "not kept" else "")


if __name__ == "__main__":
    main()
