"""The ten nearest neighbours, ours beside other ways to find them on this CPU: writes results/exla_knn.json.

Data are drawn in the published shapes. The limit of a row is arguments + outputs + 10% of the matrix of distances (at
least 8 of its rows and 16 MB), and for the cosine the normalised points. Queries are 10,000, or as many as take a pass
of a few seconds on two cores.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import argparse
import functools
import pathlib
import statistics
import sys
from collections.abc import Callable
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

SELF = "exla.knn"
K = 10
SHAPES = {
    **{f"random {n} x {d}": (n, d) for n in (10_000, 1_000_000, 10_000_000) for d in (3, 10, 100)},
    "MNIST-shaped": (60_000, 784),
    **{f"Glove-shaped {d}": (1_183_514, d) for d in (50, 100, 200)},
}
PASS_SECONDS = 0.5
LEAST_QUERIES = 10
"""Of fewer most of the time goes into reading the points once, whatever is done with them."""
PAIR_SECONDS = {"L2": (2e-9, 4e-11), "L1": (1.5e-9, 1.5e-10), "cosine": (2e-9, 4e-11)}
"""What a pair of points takes about, and each of its dimensions: for the choice of the number of queries alone."""
ROWS, LEAST_BYTES = 8, 16 * 10**6
"""What a limit leaves room for at least: where there are few queries a tenth is less than a row of distances, and of
few bytes the threads' own packed tiles are a good part."""
NOT_TRIED_BYTES = 12 * 10**9
SAMPLES = 8
"""Queries whose neighbours are checked against exact distances."""
SLACK = 1e-5
"""Error of a squared distance by norms in float32, as a share of the norms: so far two neighbours may be mixed up."""
HOW: dict[str, Any] = {"timeout": 600.0, "memory_bytes": 16 * 10**9}


def normalised(a):
    return a / jnp.linalg.norm(a, axis=-1, keepdims=True)


def l2(x, q):
    squared = (q**2).sum(-1)[:, None] + (x**2).sum(-1)[None] - 2 * q @ x.T
    return jax.lax.top_k(-squared, K)


def l1(x, q):
    return jax.lax.top_k(-jnp.abs(q[:, None] - x[None]).sum(-1), K)


def cosine(x, q):
    return jax.lax.top_k(normalised(q) @ normalised(x).T, K)


METRICS: dict[str, Callable[..., Any]] = {"L2": l2, "L1": l1, "cosine": cosine}


@functools.cache
def data(n: int, d: int, queries: int) -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    return tuple(jnp.asarray(rng.standard_normal((rows, d), dtype=np.float32)) for rows in (n, queries))


def as_written(metric: str, **size: int) -> worker.Execution:
    return worker.jax_execution(METRICS[metric], *data(**size))


def ours(metric: str, program: str, **size: int) -> worker.Execution:
    return worker.exported_execution(program, *data(**size))


def lax_map(metric: str, batch: int, **size: int) -> worker.Execution:
    """One query by hand, what does not depend on it computed once."""

    def l2_map(x, q):
        squares = (x**2).sum(-1)
        return over(lambda row: jax.lax.top_k(-((row**2).sum() + squares - 2 * (x @ row)), K), q)

    def l1_map(x, q):
        return over(lambda row: jax.lax.top_k(-jnp.abs(row - x).sum(-1), K), q)

    def cosine_map(x, q):
        unit = normalised(x)
        return over(lambda row: jax.lax.top_k(unit @ normalised(row), K), q)

    over = functools.partial(jax.lax.map, batch_size=batch)
    by_hand = {"L2": l2_map, "L1": l1_map, "cosine": cosine_map}
    return worker.jax_execution(by_hand[metric], *data(**size))


def faiss(metric: str, **size: int) -> worker.Execution:
    """A flat index, filled before; for the cosine of normalised points. The queries are normalised in the search."""
    import faiss

    x, q = (np.asarray(a) for a in data(**size))
    kinds = {"L2": faiss.METRIC_L2, "L1": faiss.METRIC_L1, "cosine": faiss.METRIC_INNER_PRODUCT}
    index = faiss.IndexFlat(size["d"], kinds[metric])
    index.add(x if metric != "cosine" else _unit(x))
    return lambda: index.search(q if metric != "cosine" else _unit(q), K)


def keops(metric: str, **size: int) -> worker.Execution:
    from pykeops.numpy import LazyTensor

    def search(x, q):
        rows, columns = LazyTensor(q[:, None, :]), LazyTensor(x[None, :, :])
        if metric == "cosine":
            rows, columns = LazyTensor(_unit(q)[:, None, :]), LazyTensor(_unit(x)[None, :, :])
            return (-(rows | columns)).Kmin_argKmin(K, dim=1)
        difference = rows - columns
        distances = (difference**2).sum(-1) if metric == "L2" else difference.abs().sum(-1)
        return distances.Kmin_argKmin(K, dim=1)

    search(*(np.asarray(a) for a in data(20, size["d"], 5)))  # compiles
    x, q = (np.asarray(a) for a in data(**size))
    return lambda: search(x, q)


def _unit(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return a / np.linalg.norm(a, axis=-1, keepdims=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="*", default=list(SHAPES), help=f"of: {', '.join(SHAPES)}")
    parser.add_argument("--metrics", nargs="*", default=list(METRICS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="only the rows of 10,000 points, 3 rounds")
    arguments = parser.parse_args()
    names = [name for name in arguments.rows if not arguments.quick or SHAPES[name][0] == 10_000]
    rounds = 3 if arguments.quick else arguments.rounds
    path = record.RESULTS / "exla_knn.json"
    every = [f"{name}, {metric}" for name in SHAPES for metric in METRICS]
    chosen = {f"{name}, {metric}": (metric, *SHAPES[name]) for name in names for metric in arguments.metrics}
    rows = record.earlier_rows(path, chosen)
    for name, case in chosen.items():
        rows[name] = measure(*case, rounds)
        ordered = {key: rows[key] for key in every if key in rows}
        record.write({**record.header(), "rounds": rounds, "k": K, "rows": ordered}, path)
        print(f"{name}: {summary(rows[name])}", flush=True)


def query_count(metric: str, n: int, d: int) -> int:
    """Of 10,000 as many as take about PASS_SECONDS, rounded down to 1, 2 or 5 times a power of ten; LEAST_QUERIES."""
    pair, dimension = PAIR_SECONDS[metric]
    affordable = PASS_SECONDS / (n * (pair + d * dimension))
    counts = [m * 10**e for e in range(5) for m in (1, 2, 5) if m * 10**e <= 10_000]
    return max([LEAST_QUERIES, *(c for c in counts if c <= affordable)])


def limit_bytes(metric: str, n: int, d: int, queries: int) -> int:
    """Arguments, outputs, some rows of the distances, and for the cosine the normalised points."""
    unit = 4 * n * d if metric == "cosine" else 0
    return 4 * (n + queries) * d + 8 * K * queries + 4 * n * rows_allowed(n, queries) + unit


def rows_allowed(n: int, queries: int) -> int:
    """Rows of distances there is room for: a tenth, but ROWS and LEAST_BYTES at least."""
    return max(queries // 10, ROWS, LEAST_BYTES // (4 * n))


def measure(metric: str, n: int, d: int, rounds: int) -> dict[str, Any]:
    """One row: our plan, the sweep, every contender, and whether their results agree."""
    size = {"n": n, "d": d, "queries": query_count(metric, n, d)}
    limit = limit_bytes(metric, **size)
    shapes = [jax.ShapeDtypeStruct((rows, d), jnp.float32) for rows in (n, size["queries"])]
    exported = jax.export.export(jax.jit(METRICS[metric]), platforms=["cpu"])(*shapes)
    made = shm.plan(exported, limit, target="cpu")
    plan = record.fastest_within(exported, made, limit)
    row: dict[str, Any] = {
        **size,
        "metric": metric,
        "limit_bytes": limit,
        "fits": made.fits,
        "unchanged": made.result is exported,
        "original_peak_bytes": plan.before.peak_bytes,
        "optimised_peak_bytes": plan.after.peak_bytes,
        "steps": list(plan.summaries),
        "compiles": plan.compiles,
        "planning_seconds": plan.planning_seconds,
    }
    with contenders.program_file(plan.exported) as program:
        return row | execute(row, {"metric": metric, **size}, program, rounds)


def execute(row: dict[str, Any], case: dict[str, Any], program: str, rounds: int) -> dict[str, Any]:
    sweep = [Contender(f"lax.map {b}", f"{SELF}:lax_map", {**case, "batch": b}) for b in batches(row)]
    allowed = row["limit_bytes"] - 4 * (row["n"] + row["queries"]) * row["d"]
    best, swept = fastest(sweep, rounds=1, allowed_bytes=allowed, **HOW)
    entries = [
        Contender("ours", f"{SELF}:ours", {**case, "program": program}),
        best,
        Contender("FAISS", f"{SELF}:faiss", case),
        Contender("KeOps", f"{SELF}:keops", case),
    ]
    matrix = 4 * row["queries"] * row["n"]
    if matrix <= NOT_TRIED_BYTES:
        entries.insert(1, Contender("JAX as written", f"{SELF}:as_written", case))
    outcomes = compare(entries, rounds=rounds, **HOW)
    growth = outcomes["ours"].grown_bytes
    idle = contenders.run([Contender("a small matmul", "exla.worker:small_matmul", {})], rounds=0)[0].grown_bytes or 0
    return {
        "batch": best.arguments["batch"],
        "swept_seconds": swept,
        "recall": recalls(row, outcomes),
        "process_bytes": idle,
        "within": growth is not None and growth - idle <= allowed,
        "outcomes": {name: outcome.to_json() for name, outcome in outcomes.items()},
    }


def batches(row: dict[str, Any]) -> list[int]:
    """Powers of two whose block of distances is within the limit, up to 2,048."""
    largest = rows_allowed(row["n"], row["queries"])
    return powers_of_two(8 if largest > 64 else 1, min(2048, largest))


def recalls(row: dict[str, Any], outcomes: dict[str, Outcome]) -> dict[str, float]:
    """Of each contender the share of neighbours, of a few queries, as near as the tenth by exact distances.

    Raises:
        AssertionError: neighbours are missing that float32 does not explain.
    """
    x, q = _drawn(row)
    found = {name: np.asarray(o.outputs[1])[:SAMPLES].astype(int) for name, o in outcomes.items() if o.outputs}
    hits: dict[str, list[float]] = {name: [] for name in found}
    for i, query in enumerate(q[:SAMPLES]):
        distances, slack = exact_distances(row["metric"], x, query)
        tenth = np.partition(distances, K - 1)[K - 1]
        for name, indices in found.items():
            hits[name].append(float(np.mean(distances[indices[i]] <= tenth + slack)))
            assert len(set(indices[i])) == K, f"{name} names a neighbour twice"
    shares = {name: float(np.mean(values)) for name, values in hits.items()}
    assert all(share >= 0.99 for share in shares.values()), f"neighbours are missing: {shares}"
    return shares


def _drawn(row: dict[str, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The data as the contenders draw them; kept by nobody."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((row["n"], row["d"]), dtype=np.float32)
    return x, rng.standard_normal((row["queries"], row["d"]), dtype=np.float32)


def exact_distances(metric: str, x: np.ndarray[Any, Any], query: np.ndarray[Any, Any]) -> tuple[Any, float]:
    """Distances in float64, a block at a time, and by how much float32 may misjudge one."""
    query = query.astype(np.float64)
    distances = np.concatenate([_exact(metric, block, query) for block in np.array_split(x, -(-len(x) // 100_000))])
    norms = {"L2": float(query @ query) + 4 * len(query), "L1": float(np.abs(query).sum()), "cosine": 1.0}
    return distances, SLACK * norms[metric]


def _exact(metric: str, block: np.ndarray[Any, Any], query: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    block = block.astype(np.float64)
    if metric == "L2":
        return ((block - query) ** 2).sum(-1)
    if metric == "L1":
        return np.abs(block - query).sum(-1)
    return -(block @ query) / (np.linalg.norm(block, axis=-1) * np.linalg.norm(query))


def summary(row: dict[str, Any]) -> str:
    best = f"lax.map {row['batch']}"
    ratios = {name: contenders.ratio_cell(row["outcomes"], "ours", name) for name in ("FAISS", "KeOps", best)}
    kept = "within" if row["fits"] and row["within"] else "NOT within"
    words = ", ".join(f"{ratio or '?'} of {name}" for name, ratio in ratios.items())
    return f"{row['queries']:,} queries, {kept} {format_bytes(row['limit_bytes'])}; time {words}"


def table(data: dict[str, Any]) -> str:
    """One line a row: memory, times, and the ratios of ours."""
    lines = []
    for name, row in data["rows"].items():
        best = f"lax.map {row['batch']}"
        outcomes = row["outcomes"]
        not_tried = {"status": f"needs {format_bytes(row['original_peak_bytes'])}"}
        cells = [outcomes.get(who, not_tried) for who in ("ours", "JAX as written", best, "FAISS", "KeOps")]
        growth = tables.optional(outcomes["ours"].get("grown_bytes"), format_bytes)
        ratios = [contenders.ratio_cell(outcomes, "ours", who) for who in (best, "FAISS", "KeOps")]
        allowed = row["limit_bytes"] - 4 * (row["n"] + row["queries"]) * row["d"]
        sizes = [f"{row['queries']:,}", growth, format_bytes(allowed)]
        lines.append(
            [
                name + (" (no budget)" if row["unchanged"] else ""),
                *sizes,
                *map(contenders.time_cell, cells),
                str(row["batch"]),
                *ratios,
            ]
        )
    names = ["points, metric", "queries", "memory added", "allowed", "ours", "JAX as written", "best lax.map", "FAISS"]
    names += ["KeOps", "batch", "ours / lax.map", "ours / FAISS", "ours / KeOps"]
    note = f"CPU, float32, k = {data['k']}; medians of {data['rounds']} runs in turn; memory beside the arguments"
    idle = [row["process_bytes"] for row in data["rows"].values() if "process_bytes" in row]
    if idle:
        note += f", of which the first execution of a small matmul adds {format_bytes(int(statistics.median(idle)))}"
    return tables.table(names, lines) + f"\n{note}; {tables.stamp(data)}.\n"


if __name__ == "__main__":
    main()
