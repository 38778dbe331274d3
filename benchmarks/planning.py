"""What planning costs on CPU, beside what XLA takes to compile the program as written: results/planning.json.

As programs grow: a training step of a GPT-2 with AdamW, its layers unrolled, at a quarter of its temporaries, beside
`profile`, which compiles it. And the programs of suite.py, at its shares: in fresh processes, each of which compiles or
plans once, as a user's does, and in one process, where both are warm. Planning is what `plan` takes without its
compilations; nothing is executed.

`--first-calls` times what a user waits for instead: the first call of `shm.jit` at a tenth of the temporaries, beside
that of `jax.jit`, each in a fresh process with its arguments made. A call traces, plans, compiles and executes.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import record
import suite
import suite_programs
import tables
import training_programs

import stablehlo_mem as shm
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.ir.graph import entry_graph, len_ops

PATH = record.RESULTS / "planning.json"
LAYERS = (18, 36)
SIZES = {"batch": 8, "tokens": 1024, "width": 256, "heads": 4, "vocabulary": 8000}
SHARE = 0.25
COMPILE = "compile"
"""What a fresh process does that is not given a budget."""
FIRST_CALL_SHARE = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", nargs="*", type=int, default=list(LAYERS))
    parser.add_argument("--programs", nargs="*", default=list(suite_programs.CASES), choices=list(suite_programs.CASES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--once", nargs=2, metavar=("PROGRAM", "BUDGET"), help=f"print its seconds; {COMPILE}: XLA's")
    parser.add_argument("--first-calls", action="store_true", help="time first calls, nothing else")
    given = parser.parse_args()
    if given.once:
        name, budget = given.once
        case = suite_programs.CASES[name]
        print(first_call(case, budget) if given.first_calls else once(case.exported(), budget))
        return
    data = {"rows": {}, "programs": {}, **record.earlier(PATH), **record.header(), "sizes": SIZES, "share": SHARE}
    if given.first_calls:
        for name in given.programs:
            data.setdefault("first_calls", {})[name] = row = measure_first_calls(name, given.rounds)
            record.write(data, PATH)
            print(f"{name}: {row}", flush=True)
        return
    for name in given.programs:
        data["programs"][name] = rows = measure_program(name, given.rounds)
        record.write(data, PATH)
        print(f"{name}: {', '.join(f'{where} {ratio(row):.2f}' for where, row in rows.items())}", flush=True)
    for layers in given.layers:
        data["rows"][str(layers)] = row = measure(layers, given.rounds)
        record.write(data, PATH)
        print(f"{layers} layers, {row['ops']:,} ops: {row['planning_seconds']}", flush=True)


def once(exported: jax.export.Exported, budget: str) -> float:
    """Seconds of planning a program for a budget, or of compiling it."""
    jax.devices()  # Starting the backend is neither.
    if budget != COMPILE:
        return shm.plan(exported, int(budget), target="cpu").planning_seconds
    specs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in exported.in_avals]
    started = time.perf_counter()
    jax.jit(exported.call).lower(*specs).compile()
    return time.perf_counter() - started


def first_call(case: suite_programs.Case, budget: str) -> float:
    """Seconds until the results of the first call are there; without a budget of `jax.jit`."""
    arguments = jax.block_until_ready(case.arguments())
    started = time.perf_counter()
    jitted = jax.jit(case.function) if budget == COMPILE else shm.jit(case.function, budget=int(budget))
    jax.block_until_ready(jitted(*arguments))
    return time.perf_counter() - started


def measure_first_calls(name: str, rounds: int) -> dict[str, list[float]]:
    """First calls in fresh processes, in turn."""
    budget = str(record.budget(shm.profile(suite_programs.CASES[name].exported(), target="cpu"), FIRST_CALL_SHARE))
    seconds: dict[str, list[float]] = {"jax": [], "ours": []}
    for _ in range(rounds):
        seconds["jax"].append(once_in_a_fresh_process(name, COMPILE, "--first-calls"))
        seconds["ours"].append(once_in_a_fresh_process(name, budget, "--first-calls"))
    return seconds


def once_in_a_fresh_process(name: str, budget: str, *flags: str) -> float:
    command = [sys.executable, __file__, "--once", name, budget, *flags]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def measure_program(name: str, rounds: int) -> dict[str, Any]:
    """A program of the suite, compiled and planned for each share in turn, where that is new and where it is not."""
    exported = suite_programs.CASES[name].exported()
    profile = shm.profile(exported, target="cpu")
    budgets = {f"{share:.0%}": str(record.budget(profile, share)) for share in suite.SHARES}
    for budget in budgets.values():
        once(exported, budget)
    return {
        "fresh": in_turn(lambda what: once_in_a_fresh_process(name, what), budgets, rounds),
        "warm": in_turn(lambda what: once(exported, what), budgets, rounds),
    }


def in_turn(run: Callable[[str], float], budgets: dict[str, str], rounds: int) -> dict[str, Any]:
    compiling: list[float] = []
    planning: dict[str, list[float]] = {label: [] for label in budgets}
    for _ in range(rounds):
        compiling.append(run(COMPILE))
        for label, budget in budgets.items():
            planning[label].append(run(budget))
    return {"compile_seconds": compiling, "planning_seconds": planning}


def ratio(row: dict[str, Any]) -> float:
    """Of the median of planning to that of compiling, for the share for which it is larger."""
    compiling = statistics.median(row["compile_seconds"])
    return max(statistics.median(seconds) for seconds in row["planning_seconds"].values()) / compiling


def measure(layers: int, rounds: int) -> dict[str, Any]:
    """One size, planned from the start in every round."""
    exported = training_programs.gpt2(layers=layers, **SIZES).flat.export("cpu")
    program = ingest(exported)
    started = time.perf_counter()
    profile = shm.profile(exported, target="cpu")
    profile_seconds = time.perf_counter() - started
    budget = record.budget(profile, SHARE)
    plans: list[shm.Plan] = []
    with record.compiled_once():
        for _ in range(rounds):
            gc.collect()  # The graphs of the round before are none of this one's cost.
            plans.append(shm.plan(exported, budget, target="cpu"))
    return {
        "ops": len_ops(entry_graph(program.module)),
        "profile_seconds": profile_seconds,
        "fits": plans[0].fits,
        "compiles": plans[0].compiles,
        "steps": list(plans[0].summaries),
        "planning_seconds": [plan.planning_seconds for plan in plans],
    }


def table(data: dict[str, Any]) -> str:
    """One line a size, then one a program of the suite."""
    return grown(data) + "\n" + programs(data) + "\n" + first_calls(data)


def first_calls(data: dict[str, Any]) -> str:
    """The first calls of a program, and the ratio of their medians."""
    rows = data.get("first_calls", {})
    lines = [
        [
            name,
            tables.seconds(row["jax"]),
            tables.seconds(row["ours"]),
            f"{statistics.median(row['ours']) / statistics.median(row['jax']):.2f}",
        ]
        for name, row in rows.items()
    ]
    rounds = min((len(row["jax"]) for row in rows.values()), default=0)
    note = f"First calls at a tenth of the temporaries, execution included; medians of {rounds}, in turn, each in a"
    return tables.table(["program", "jax.jit", "shm.jit", "ratio"], lines) + f"\n{note} fresh process.\n"


def programs(data: dict[str, Any]) -> str:
    labels = [f"{share:.0%}" for share in suite.SHARES]
    lines = [
        [
            name,
            tables.seconds(rows["fresh"]["compile_seconds"]),
            *(tables.seconds(rows["fresh"]["planning_seconds"][label]) for label in labels),
            f"{ratio(rows['fresh']):.2f}",
            f"{ratio(rows['warm']):.2f}",
        ]
        for name, rows in data["programs"].items()
    ]
    rounds = min(len(row["compile_seconds"]) for rows in data["programs"].values() for row in rows.values())
    planning = [f"planning at {label}" for label in labels]
    names = ["program", "XLA compiles it", *planning, "planning / compiling", "warm"]
    note = f"Medians of {rounds}, in turn, each in a fresh process; warm: the same in one process, over and over"
    return tables.table(names, lines) + f"\n{note}.\n"


def grown(data: dict[str, Any]) -> str:
    lines = [
        [
            layers,
            f"{row['ops']:,}",
            "yes" if row["fits"] else "no",
            str(row["compiles"]),
            tables.seconds(row["planning_seconds"]),
            tables.seconds([row["profile_seconds"]]),
        ]
        for layers, row in data["rows"].items()
    ]
    names = ["layers", "ops", "kept", "compiles", "planning without them", "a profile, compiled"]
    cpu = f"{data['hardware']['cores']} cores of {data['hardware']['cpu']}"
    rounds = min(len(row["planning_seconds"]) for row in data["rows"].values())
    note = f"A quarter of the temporaries; medians of {rounds}; {cpu}; {tables.stamp(data)}"
    return tables.table(names, lines) + f"\n{note}.\n"


if __name__ == "__main__":
    main()
