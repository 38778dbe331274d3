"""What a call of `shm.jit` costs beside one of `jax.jit`, where the function itself takes microseconds.

A function of 20 arguments, called in turns by both: medians of rounds of many calls, and the median of their ratios, in
results/dispatch.json. And how often each traces the function: once a signature.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import record
import tables

import stablehlo_mem as shm

PATH = record.RESULTS / "dispatch.json"
ARGUMENTS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=101)
    parser.add_argument("--calls", type=int, default=1000)
    given = parser.parse_args()
    data = {**record.header(), "arguments": ARGUMENTS, "calls": given.calls, "rounds": given.rounds}
    arguments = [jnp.float32(i) for i in range(ARGUMENTS)]
    data["rows"] = rows = {}
    for name, call in CALLS.items():
        rows[name] = row = measured(call, arguments, given.rounds, given.calls)
        print(f"{name}: {row}", flush=True)
    record.write(data, PATH)


def added(*values: jax.Array) -> jax.Array:
    return sum(values[1:], values[0])


def nested(*values: jax.Array) -> dict[str, Any]:
    return {"pairs": list(itertools.pairwise(values)), "sum": added(*values)}


CALLS: dict[str, Callable[..., Any]] = {"20 scalars": added, "20 scalars, 39 results in a tree": nested}


def measured(fun: Callable[..., Any], arguments: list[jax.Array], rounds: int, calls: int) -> dict[str, Any]:
    """Microseconds a call, the ratio, and the number of traces, each for both."""
    traces = {"jax.jit": 0, "shm.jit": 0}

    def counting(name: str) -> Callable[..., Any]:
        def counted(*values: jax.Array) -> Any:
            traces[name] += 1
            return fun(*values)

        return counted

    ways = {"jax.jit": jax.jit(counting("jax.jit")), "shm.jit": shm.jit(counting("shm.jit"), budget="1GiB")}
    for one in ways.values():
        seconds(one, arguments, calls)
    times = {name: [] for name in ways}
    for i in range(rounds):
        for name in list(ways)[:: 1 if i % 2 else -1]:
            times[name].append(seconds(ways[name], arguments, calls))
    ratios = [b / a for a, b in zip(times["jax.jit"], times["shm.jit"], strict=True)]
    micros = {name: round(1e6 * statistics.median(found), 2) for name, found in times.items()}
    return {"microseconds": micros, "ratio": round(statistics.median(ratios), 3), "traces": traces}


def seconds(fun: Callable[..., Any], arguments: list[jax.Array], calls: int) -> float:
    """Of one call, without waiting for what it returns."""
    started = time.perf_counter()
    for _ in range(calls):
        out = fun(*arguments)
    jax.block_until_ready(out)
    return (time.perf_counter() - started) / calls


def table(data: dict[str, Any]) -> str:
    rows = [
        [name, *(f"{row['microseconds'][way]:.1f} µs" for way in ("jax.jit", "shm.jit")), f"{row['ratio']:.2f}"]
        for name, row in data["rows"].items()
    ]
    traced = ", ".join(f"{way} {n}" for way, n in next(iter(data["rows"].values()))["traces"].items())
    note = f"Medians of {data['rounds']} rounds of {data['calls']:,} calls, in turns; the function was traced: {traced}"
    cores = f"{data['hardware']['cores']} cores of {data['hardware']['cpu']}"
    names = ["a call with", "jax.jit", "shm.jit", "shm.jit / jax.jit"]
    return tables.table(names, rows) + f"\n{note}. {cores}, {tables.stamp(data)}.\n"


if __name__ == "__main__":
    main()
