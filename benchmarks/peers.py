"""Programs as a user writes them, at a tenth of their temporaries, beside libraries made for them: results/peers.json.

Ours, the program as written where this machine has the memory, and the peers, all in turn in one process, in float32;
memory of each alone in a fresh one. The peers need `pip install -r benchmarks/exla/requirements.txt`.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import dataclasses
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import record
import tables
from exla import contenders, kernel_matvec, knn, transformer
from exla.contenders import Contender

import stablehlo_mem as shm
from stablehlo_mem.utils.units import format_bytes

PATH = record.RESULTS / "peers.json"
OURS, WRITTEN = "ours", "as written"


@dataclasses.dataclass(frozen=True)
class Case:
    """A program and its peers.

    Attributes:
        shapes: of the arguments, float32.
        ours, written: setups of `contenders`; as written None where that takes more memory than there is.
        peers: their setups.
        size, more: arguments of every setup, and of those of the program.
        file: the argument that is the file of ours.
    """

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    ours: str
    written: str | None
    peers: Mapping[str, str]
    size: Mapping[str, Any]
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    file: str = "program"

    def exported(self) -> jax.export.Exported:
        specs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in self.shapes]
        return jax.export.export(jax.jit(self.function), platforms=["cpu"])(*specs)

    def entries(self, program: str) -> list[Contender]:
        mine = {**self.size, **self.more}
        written = [Contender(WRITTEN, self.written, mine)] if self.written else []
        peers = [Contender(name, setup, self.size) for name, setup in self.peers.items()]
        return [Contender(OURS, self.ours, {**mine, self.file: program}), *written, *peers]


def neighbours(n: int, d: int, queries: int) -> Case:
    size = {"metric": "L2", "n": n, "d": d, "queries": queries}
    peers = {"FAISS": f"{knn.SELF}:faiss"}
    return Case(knn.l2, ((n, d), (queries, d)), f"{knn.SELF}:ours", f"{knn.SELF}:as_written", peers, size)


def matvec(n: int, d: int) -> Case:
    name = kernel_matvec.SELF
    shapes = ((n, d), (n, d), (n,))
    return Case(kernel_matvec.direct, shapes, f"{name}:ours", None, {"KeOps": f"{name}:keops"}, {"n": n, "d": d})


def attention(length: int) -> Case:
    name = "exla.transformer"
    shape = (1, transformer.HEADS, length, transformer.WIDTH // transformer.HEADS)
    peers = {"torch SDPA": f"{name}:torch_attention"}
    size, more = {"batch": 1, "length": length}, {"program": "attention"}
    return Case(transformer.attention, (shape,) * 3, f"{name}:ours", f"{name}:as_written", peers, size, more, "path")


CASES = {
    "kNN 200,000 x 5,000 x 32, k = 10": neighbours(200_000, 32, 5_000),
    "Gaussian kernel x vector, 50,000 x 3": matvec(50_000, 3),
    "Gaussian kernel x vector, 50,000 x 10": matvec(50_000, 10),
    "attention 8 x 8,192 x 64": attention(8_192),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="*", default=list(CASES), choices=list(CASES), metavar="ROW")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    rows = record.earlier_rows(PATH, arguments.rows)
    for name in arguments.rows:
        rows[name] = measure(CASES[name], arguments.rounds)
        ordered = {key: rows[key] for key in CASES if key in rows}
        packages = record.versions("faiss-cpu", "pykeops", "torch")
        record.write({**record.header(), "packages": packages, "rows": ordered}, PATH)
        print(f"{name}: {summary(rows[name])}", flush=True)


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """One program: planned, then run beside the others."""
    exported = case.exported()
    budget = record.tenth_budget(shm.profile(exported, target="cpu"))
    plan = shm.plan(exported, budget, target="cpu")
    with contenders.program_file(plan.exported) as program:
        outcomes = contenders.compare(case.entries(program), rounds=rounds)
    return {
        "budget_bytes": budget,
        "fits": plan.fits,
        "original_peak_bytes": plan.before.peak_bytes,
        "peak_bytes": plan.after.peak_bytes,
        "steps": list(plan.summaries),
        "outcomes": {label: outcome.to_json() for label, outcome in outcomes.items()},
    }


def ratios(row: dict[str, Any]) -> dict[str, float]:
    """Of the time of ours to that of each other that ran."""
    medians = {name: statistics.median(o["seconds"]) for name, o in row["outcomes"].items() if o["status"] == "ok"}
    return {name: medians[OURS] / seconds for name, seconds in medians.items() if name != OURS}


def summary(row: dict[str, Any]) -> str:
    kept = "kept" if row["fits"] else "NOT KEPT"
    return ", ".join([kept, *(f"{ratio:.2f} of {name}" for name, ratio in ratios(row).items())])


def table(data: dict[str, Any]) -> str:
    """One line a program: the memory that each adds and its time, and ours over it."""
    lines: list[list[str]] = []
    for name, row in data["rows"].items():
        for who, outcome in row["outcomes"].items():
            ran = outcome["status"] == "ok"
            figures = [format_bytes(outcome["grown_bytes"]), tables.seconds(outcome["seconds"])] if ran else ["", ""]
            ratio = ratios(row).get(who)
            shown = "" if ratio is None else f"{ratio:.2f}"
            lines.append([name, who if ran else f"{who}: {outcome['status']}", *figures, shown])
    cpu = f"{data['hardware']['cores']} cores of {data['hardware']['cpu']}"
    packages = ", ".join(f"{name} {version}" for name, version in data["packages"].items())
    times = tables.medians(data["rows"].values())
    note = f"Memory that executing adds, and {times} runs in turn, float32, budget arguments, "
    note += f"outputs and a tenth of the temporaries; {cpu}; {packages}; {tables.stamp(data)}"
    return tables.table(["program", "", "memory", "time", "ours / it"], lines) + f"\n{note}.\n"


if __name__ == "__main__":
    main()
