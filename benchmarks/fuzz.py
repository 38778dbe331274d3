"""Differential fuzzing: `make fuzz N=1000` checks the next thousand random programs and writes results/fuzz.json.

`python benchmarks/fuzz.py --forced 1000` draws the rewrites too: steps of all passes in all blocks, whatever they bring
(tests/properties/forced.py), and writes results/fuzz_forced.json.

Programs are numbered: a seed is a program, a budget and data. Each call goes on where the last one ended, so that a
long run can be made in pieces; a piece is of one version of the package. Programs run in a process of their own, a
hundred at a time: one that crashes it is a finding and costs only itself. LLVM does not optimise there, which takes a
third less time; what XLA does, and the memory it reports, is the same.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import record

from stablehlo_mem.planner.plan_cache import package_digest

ROOT = pathlib.Path(__file__).parents[1]
_AT_A_TIME = 100
_FLAGS = "--xla_backend_optimization_level=0"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, help="how many programs")
    parser.add_argument("--first", type=int, help="seed of the first; by default the next that has not run")
    parser.add_argument("--forced", action="store_true", help="with rewrites that are drawn")
    arguments = parser.parse_args()
    path = record.RESULTS / ("fuzz_forced.json" if arguments.forced else "fuzz.json")
    data = record.earlier(path)
    pieces: list[dict[str, Any]] = data.get("pieces", [])
    first = arguments.first if arguments.first is not None else max((p["end"] for p in pieces), default=0)
    piece = _piece(pieces, first)
    before = len(piece["findings"])
    end = first + arguments.count
    while piece["end"] < end:
        for row in checked(piece["end"], min(piece["end"] + _AT_A_TIME, end), forced=arguments.forced):
            add(row, piece)
        record.write({**summary(pieces), "pieces": pieces}, path)
        print(f"{piece['end'] - first} programs, {len(piece['findings']) - before} findings", flush=True)
    return len(piece["findings"]) - before


def _piece(pieces: list[dict[str, Any]], first: int) -> dict[str, Any]:
    """The piece that a run adds to: the last one, if it ended there with the same of everything."""
    made_by = {**record.header(), "package": package_digest()[:16], "flags": _FLAGS}
    if pieces and pieces[-1]["end"] == first and made_by.items() <= pieces[-1].items():
        return pieces[-1]
    pieces.append({**made_by, "first": first, "end": first, "counts": {}, "findings": []})
    return pieces[-1]


def checked(first: int, end: int, *, forced: bool) -> Iterator[dict[str, Any]]:
    """The outcomes of some seeds in order, up to one that ends the process."""
    how = ["--forced"] if forced else []
    command = [sys.executable, str(ROOT / "tests" / "properties" / "seeds.py"), *how, str(first), str(end)]
    environment = {**os.environ, "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {_FLAGS}"}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **pipes, env=environment, text=True) as worker:
        assert worker.stdout is not None
        for line in worker.stdout:
            row = json.loads(line)
            yield row
            first = row["seed"] + 1
    if worker.returncode and first < end:
        yield {"seed": first, "counts": {}, "finding": f"the process ended: {_reason(worker.returncode)}"}


def add(row: dict[str, Any], piece: dict[str, Any]) -> None:
    """Adds an outcome to a piece."""
    counts = collections.Counter(piece["counts"])
    counts.update(row.pop("counts"))
    piece |= {"end": row["seed"] + 1, "counts": dict(sorted(counts.items()))}
    if "finding" in row:
        piece["findings"].append(row)
        print(json.dumps(row, indent=1), flush=True)


def _reason(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"status {code}"


def summary(pieces: list[dict[str, Any]]) -> dict[str, Any]:
    """The sums over all pieces."""
    counts: collections.Counter[str] = collections.Counter()
    for piece in pieces:
        counts.update(piece["counts"])
    findings = sum(len(p["findings"]) for p in pieces)
    return {"programs": sum(p["end"] - p["first"] for p in pieces), "findings": findings, "counts": dict(counts)}


if __name__ == "__main__":
    sys.exit(main() > 0)
