"""What planning costs as programs grow: steps of a GPT-2, its layers unrolled, on CPU: results/planning.json.

A step with AdamW at a quarter of its temporaries, `--rounds` times; nothing is executed. Planning is what `plan` takes
without its compilations; beside it what `profile` takes, which compiles the program as written.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import time
from typing import Any

import record
import tables
import training_programs

import stablehlo_mem as shm
from stablehlo_mem.ingest import ingest
from stablehlo_mem.ir.graph import entry_graph, len_ops

PATH = record.RESULTS / "planning.json"
LAYERS = (18, 36)
SIZES = {"batch": 8, "tokens": 1024, "width": 256, "heads": 4, "vocabulary": 8000}
SHARE = 0.25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", nargs="*", type=int, default=list(LAYERS))
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    rows = record.earlier_rows(PATH, [str(layers) for layers in given.layers])
    for layers in given.layers:
        rows[str(layers)] = row = measure(layers, given.rounds)
        ordered = {key: rows[key] for key in sorted(rows, key=int)}
        record.write({**record.header(), "sizes": SIZES, "share": SHARE, "rounds": given.rounds, "rows": ordered}, PATH)
        print(f"{layers} layers, {row['ops']:,} ops: {row['planning_seconds']}", flush=True)


def measure(layers: int, rounds: int) -> dict[str, Any]:
    """One size, planned from the start in every round."""
    exported = training_programs.gpt2(layers=layers, **SIZES).flat.export("cpu")
    program = ingest(exported)
    started = time.perf_counter()
    profile = shm.profile(exported, target="cpu")
    profile_seconds = time.perf_counter() - started
    budget = record.fixed_bytes(profile) + int(SHARE * record.temp_bytes(profile))
    plans = [shm.plan(exported, budget, target="cpu") for _ in range(rounds)]
    return {
        "ops": len_ops(entry_graph(program.module)),
        "profile_seconds": profile_seconds,
        "fits": plans[0].fits,
        "compiles": plans[0].compiles,
        "steps": list(plans[0].summaries),
        "planning_seconds": [plan.planning_seconds for plan in plans],
    }


def table(data: dict[str, Any]) -> str:
    """One line a size."""
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
    note = f"A quarter of the temporaries; medians of {data['rounds']}; {cpu}; {tables.stamp(data)}"
    return tables.table(names, lines) + f"\n{note}.\n"


if __name__ == "__main__":
    main()
