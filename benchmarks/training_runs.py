"""Training steps run on this CPU beside versions made to fit by hand: writes results/training_runs.json.

Each program runs as written, as planned for shares of its temporaries, as planned for the peak of each version by hand,
and in those versions (`training_by_hand.py`). Memory of each alone in a fresh process; times in one process, in turn.
Peaks are those the library goes by on CPU, the larger of two compilations; shares are of the temporaries reported
without YNN fusions, as in `training.py`. A train step runs on its own results, its state donated.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import functools
import hashlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import record
import tables
import training
import training_by_hand
import training_plots
import training_programs
from exla import contenders, worker
from exla.contenders import Contender, Outcome
from training_programs import Program

import stablehlo_mem as shm
from stablehlo_mem.utils.units import format_bytes

PATH = record.RESULTS / "training_runs.json"
IMAGES = tables.ROOT / "docs" / "img"
_GPT2 = {"batch": 8, "tokens": 512, "layers": 6, "width": 384, "heads": 6, "vocabulary": 8192}
SIZES: dict[str, dict[str, int]] = {
    "attention": {"heads": 8, "tokens": 4096, "width": 64},
    "head": {"tokens": 4096, "width": 512, "vocabulary": 32768},
    "gpt2": _GPT2,
    "gpt2_scanned": _GPT2,
    "mlp": {"tokens": 16384, "width": 256, "hidden": 8192},
}
"""Originals of 1 to 6 GB, some seconds each."""
SHARES = (1.0, 0.75, 0.5, 0.35, 0.25, 0.15, 0.1)
WRITTEN = "as written"
SELF = "training_runs"
TOLERANCE = 1e-3
"""Of a result's largest value: beyond it, no rounding explains a difference."""
CHUNKER = (6.8, 1.57)
"""PyTorch's automatic chunker on a head with its cross-entropy, 64 chunks: memory before / after, time after / before.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="*", default=list(SIZES), choices=list(SIZES), metavar="PROGRAM")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--timeout", type=float, default=600, help="seconds a plan, or a version alone, may take")
    parser.add_argument("--no-peers", action="store_true", help="no plans for the peaks of the versions by hand")
    parser.add_argument("--by-hand", nargs="*", metavar="VERSION", help="only these versions by hand")
    parser.add_argument("--quick", action="store_true", help="milliseconds a program, results elsewhere")
    parser.add_argument("--plot", action="store_true", help="only draw what was measured")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    path = PATH.with_name("training_runs_quick.json") if given.quick else PATH
    if given.worker:
        work(pathlib.Path(given.worker))
        return
    for name in [] if given.plot else given.rows:
        sizes = (training_programs.SMALL if given.quick else SIZES)[name]
        row = measure(name, sizes, given)
        rows = record.earlier_rows(path, [name]) | {name: row}
        ordered = {name: rows[name] for name in SIZES if name in rows}
        header = record.header()
        header["versions"] |= record.versions("optax")
        record.write({**header, "rounds": given.rounds, "rows": ordered}, path)
        print(f"{name}: {summary(row)}", flush=True)
    if not given.quick:
        plot(record.earlier(path))


def measure(name: str, sizes: dict[str, int], given: argparse.Namespace) -> dict[str, Any]:
    """One program: the original, its plans and the versions by hand, compiled; then all of them run."""
    with tempfile.TemporaryDirectory(prefix="training-") as folder:
        ask = functools.partial(apart, {"program": name, "sizes": sizes}, pathlib.Path(folder), given.timeout)
        original = ask({})
        if original["status"] != "ok":
            return {"sizes": sizes, "original": original, "ours": [], "by_hand": [], "outcomes": {}}
        by_hand = [
            {"name": version, "settings": settings, **ask({"settings": settings})}
            for version, settings in training_by_hand.versions(name, sizes).items()
            if given.by_hand is None or version in given.by_hand
        ]
        budgets = dict(shares(original))
        if not given.no_peers:
            budgets |= {f"as {v['name']}": v["peak_bytes"] for v in by_hand if v["status"] == "ok"}
        ours = [{"label": label, "budget": budget, **ask({"budget": budget})} for label, budget in budgets.items()]
        entries = [
            Contender(WRITTEN, f"{SELF}:as_written", {"program": name, "sizes": sizes}),
            *different(name, sizes, ours),
            *(
                Contender(v["name"], f"{SELF}:version", {"program": name, "sizes": sizes, "settings": v["settings"]})
                for v in by_hand
                if v["status"] == "ok"
            ),
        ]
        outcomes = contenders.compare(entries, rounds=given.rounds, timeout=given.timeout)
    row = {"sizes": sizes, "original": original, "ours": ours, "by_hand": by_hand}
    plain = {label: outcome.to_json() for label, outcome in outcomes.items()}
    return {**row, "errors": errors(outcomes), "outcomes": plain}


def shares(original: Mapping[str, Any]) -> Iterable[tuple[str, int | str]]:
    """Budgets: arguments + outputs − aliased and shares of the temporaries; the least there is."""
    for share in SHARES:
        yield f"{share:.0%}", original["fixed_bytes"] + int(share * original["temp_bytes"])
    yield "min", "min"


def different(name: str, sizes: dict[str, int], ours: list[dict[str, Any]]) -> list[Contender]:
    """The plans that give different programs, each once, by the label of the first; all are told whose they are."""
    found: dict[str, Contender] = {}
    for plan in ours:
        if plan["status"] not in ("fits", "over"):
            continue
        one = Contender(WRITTEN, "", {})
        arguments = {"program": name, "sizes": sizes, "path": plan.pop("path")}
        if not plan["unchanged"]:
            one = found.setdefault(plan["digest"], Contender(f"ours, {plan['label']}", f"{SELF}:planned", arguments))
        plan["runs_as"] = one.name
    return list(found.values())


def apart(case: dict[str, Any], folder: pathlib.Path, timeout: float, more: dict[str, Any]) -> dict[str, Any]:
    """What `work` finds, in a process of its own: compilers keep memory, and some plans take long."""
    path = folder / f"{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps(case | more))
    command = [sys.executable, __file__, "--worker", str(path)]
    try:
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return {"status": "timed out"}
    if done.returncode:
        return {"status": "failed", "error": (done.stderr.strip().splitlines() or [str(done.returncode)])[-1]}
    return json.loads(path.read_text())


def work(path: pathlib.Path) -> None:
    """In a process of its own: the figures of the original or of a version by hand, or a plan."""
    case = json.loads(path.read_text())
    program = of_case(case["program"], case["sizes"], case.get("settings"))
    exported = program.export("cpu")
    if "budget" in case:
        result = plan(exported, case["budget"], path.with_suffix(".program"))
    else:
        result = {"status": "ok", "peak_bytes": shm.profile(exported, target="cpu").peak_bytes}
        if "settings" not in case:
            result |= training.figures(program, "cpu") | result
            result["argument_bytes"] = sum(s.size * s.dtype.itemsize for s in program.specs)
    path.write_text(json.dumps(result))


def plan(exported: jax.export.Exported, budget: int | str, path: pathlib.Path) -> dict[str, Any]:
    """A plan's figures; its program is left in a file."""
    made = shm.plan(exported, budget, target="cpu")
    assert made.exported is not None
    path.write_bytes(made.exported.serialize())
    return {
        "status": "fits" if made.fits else "over",
        "unchanged": made.result is exported,
        "peak_bytes": made.after.peak_bytes,
        "steps": list(made.summaries),
        "compiles": made.compiles,
        "planning_seconds": round(made.planning_seconds, 2),
        "digest": hashlib.sha256(made.bytecode).hexdigest()[:12],
        "path": str(path),
    }


def of_case(name: str, sizes: dict[str, int], settings: dict[str, Any] | None = None) -> Program:
    """A program of leaves, as written or by hand."""
    if settings is None:
        return training_programs.program(name, sizes).flat
    return training_by_hand.program(name, sizes, settings).flat


def as_written(program: str, sizes: dict[str, int]) -> worker.Execution:
    return execution(program, sizes, of_case(program, sizes).function)


def version(program: str, sizes: dict[str, int], settings: dict[str, Any]) -> worker.Execution:
    return execution(program, sizes, of_case(program, sizes, settings).function)


def planned(program: str, sizes: dict[str, int], path: str) -> worker.Execution:
    exported = jax.export.deserialize(bytearray(pathlib.Path(path).read_bytes()))
    return execution(program, sizes, exported.call)


def execution(name: str, sizes: dict[str, int], function: Callable[..., Any]) -> worker.Execution:
    """One step; of a train step, on what the step before left. It returns what is to be compared."""
    donated = of_case(name, sizes).donated
    leaves = data(name, json.dumps(sizes))
    compiled = jax.jit(function, donate_argnums=donated).lower(*leaves).compile()
    chosen = compared(name, sizes)
    state = [jnp.copy(leaf) for leaf in leaves[: len(donated)]]  # donated come first, and come back first

    def execute() -> Any:
        results = jax.block_until_ready(compiled(*state, *leaves[len(donated) :]))
        state[:] = results[: len(donated)]
        # A copy: what NumPy looks at cannot be donated.
        return [jnp.copy(results[i]) for i in chosen] if donated else results

    return execute


def compared(name: str, sizes: dict[str, int]) -> list[int]:
    """Which results tell whether two agree: of a train step the loss and small first moments, else all."""
    program = training_programs.program(name, sizes)
    found = jax.tree_util.tree_leaves_with_path(jax.eval_shape(program.function, *program.specs))
    if not program.donated:
        return list(range(len(found)))
    moments = (i for i, (path, s) in enumerate(found) if ".mu" in jax.tree_util.keystr(path) and s.size <= 2**16)
    return [len(found) - 1, *moments]


@functools.cache
def data(name: str, sizes: str) -> list[jax.Array]:
    """The arguments' leaves. Of a train step: weights of deviation 0.02, scales of one, a state that is new."""
    program = training_programs.program(name, json.loads(sizes))
    rng = np.random.default_rng(0)

    def draw(path: Any, s: Any) -> jax.Array:
        if s.dtype == jnp.int32:
            return jnp.asarray(rng.integers(0, json.loads(sizes)["vocabulary"], s.shape, np.int32))
        scale = 0.02 if program.donated else 0.5
        ones = "scale" in jax.tree_util.keystr(path)
        return jnp.ones(s.shape) if ones else jnp.asarray(scale * rng.standard_normal(s.shape, np.float32))

    if not program.donated:
        return jax.tree.leaves(jax.tree_util.tree_map_with_path(draw, program.specs))
    parameters, _, *batch = program.specs
    parameters, *batch = jax.tree_util.tree_map_with_path(draw, (parameters, *batch))
    return jax.tree.leaves((parameters, training_programs.OPTIMISER.init(parameters), *batch))


def errors(outcomes: Mapping[str, Outcome]) -> dict[str, float]:
    """Of each that ran, the largest difference of a result to the original's, as a share of its largest value."""
    exact = outcomes[WRITTEN].outputs
    found: dict[str, float] = {}
    for name, outcome in outcomes.items():
        pairs = zip(outcome.outputs, exact, strict=True) if outcome.outputs and exact else ()
        shares = [float(np.abs(new - old).max() / max(np.abs(old).max(), 1e-30)) for new, old in pairs]
        if shares:
            found[name] = max(shares)
    wrong = {name: error for name, error in found.items() if not error <= TOLERANCE}
    if wrong:
        print(f"RESULTS DIFFER: {wrong}", flush=True)
    return found


def points(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What ran: name, kind, compiled peak, resident peak (arguments and growth) and time as a share of the original's.

    Plans of one program are one point, named by all their budgets; the original is ours too where it fits.
    """
    names: dict[str, list[str]] = {}
    peaks: dict[str, int] = {WRITTEN: row["original"].get("peak_bytes", 0)}
    for one in row["ours"]:
        if "runs_as" in one:
            names.setdefault(one["runs_as"], []).append(one["label"])
            peaks.setdefault(one["runs_as"], one["peak_bytes"])
    by_hand = {v["name"]: v["peak_bytes"] for v in row["by_hand"] if v["status"] == "ok"}
    original = median(row, WRITTEN)
    found: list[dict[str, Any]] = []
    for name, peak in (peaks | by_hand).items():
        outcome, time = row["outcomes"].get(name, {}), median(row, name)
        if outcome.get("status") != "ok" or time is None or original is None:
            continue
        kind = "written" if name == WRITTEN else "by hand" if name in by_hand else "ours"
        labels = [label for label in names.get(name, ()) if not label.startswith("as ")]
        peers = [label.removeprefix("as ") for label in names.get(name, ()) if label.startswith("as ")]
        found.append(
            {
                "name": name,
                "title": ", ".join(labels) or f"for the peak of: {peers[0]}" if kind == "ours" else name,
                "labels": names.get(name, []),
                "kind": kind,
                "peak": peak,
                "grown": outcome["grown_bytes"],
                "seconds": time,
                "time": time / original,
            }
        )
    return found


def median(row: Mapping[str, Any], name: str) -> float | None:
    seconds = row["outcomes"].get(name, {}).get("seconds")
    return statistics.median(seconds) if seconds else None


def against(found: Sequence[Mapping[str, Any]], peer: Mapping[str, Any], measure: str) -> float | None:
    """Our time over that of a version by hand, at the same memory or less."""
    times = [p["seconds"] for p in found if p["kind"] != "by hand" and p[measure] <= peer[measure]]
    return min(times) / peer["seconds"] if times else None


def front(found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that no other beats in memory or time without being worse in the other."""

    def beats(q: Mapping[str, Any], p: Mapping[str, Any]) -> bool:
        mine, other = (p["peak"], p["seconds"]), (q["peak"], q["seconds"])
        return other != mine and all(a <= b for a, b in zip(other, mine, strict=True))

    return [p for p in found if not any(beats(q, p) for q in found)]


def summary(row: Mapping[str, Any]) -> str:
    """In a few words: time at a quarter, the worst against those of the front by hand, what went wrong."""
    if row["original"]["status"] != "ok":
        return f"the original {row['original']['status']}"
    texts = [quarter(row), peers(row)]
    bad = [f"{p['label']} {p['status']}" for p in row["ours"] if p["status"] != "fits"]
    bad += [f"{v['name']} {v['status']}" for v in row["by_hand"] if v["status"] != "ok"]
    bad += [f"{name} {o['status']}" for name, o in row["outcomes"].items() if o["status"] != "ok"]
    return "; ".join([*texts, *bad])


def quarter(row: Mapping[str, Any]) -> str:
    (time,) = [p["time"] for p in points(row) if "25%" in p["labels"]] or [None]
    return "no time at 25%" if time is None else f"at 25% of its temporaries {time:.2f} of its time"


def peers(row: Mapping[str, Any]) -> str:
    found = points(row)
    best = front([p for p in found if p["kind"] == "by hand"])
    ratios = [against(found, p, "peak") for p in best]
    worst = max((r for r in ratios if r is not None), default=None)
    text = "none by hand" if worst is None else f"at most {worst:.2f} of the time of the best by hand at their peaks"
    missing = sum(r is None for r in ratios)
    return text + (f", {missing} of {len(ratios)} below our least" if missing else "")


def chunker(row: Mapping[str, Any]) -> str:
    """The line of PyTorch's automatic chunker."""
    memory, time = CHUNKER
    found = points(row)
    before = row["original"]["peak_bytes"]
    able = [p for p in found if p["kind"] == "ours" and p["peak"] * memory <= before]
    asked = f"asked for: {memory}x less memory at no more than {time} of the time"
    if not able:
        return f"no plan takes {memory}x less memory ({asked})"
    best = min(able, key=lambda p: p["seconds"])
    met = "met" if best["time"] <= time else "not met"
    return f"{before / best['peak']:.1f}x less memory at {best['time']:.2f} of the time ({asked}, {met})"


def table(data: dict[str, Any]) -> str:
    """For each program a table, its plot and what to see in it."""
    return "\n".join(program_table(name, row, data["rounds"]) for name, row in data["rows"].items()) + note(data)


def program_table(name: str, row: Mapping[str, Any], rounds: int) -> str:
    found = points(row)
    title = f"**{name}**, {', '.join(f'{size:,} {key}' for key, size in row['sizes'].items())}\n\n"
    if not found:
        return f"{title}{summary(row)}.\n"
    best = front([p for p in found if p["kind"] == "by hand"])
    lines = [
        [
            f"{p['kind']}: {p['title']}" if p["kind"] != "written" else p["title"],
            format_bytes(p["peak"]),
            format_bytes(p["grown"]),
            tables.seconds([p["seconds"]]),
            f"{p['time']:.2f}",
            *(ratio(against(found, p, by)) if p["kind"] == "by hand" else "" for by in ("peak", "grown")),
            "yes" if p in best else "",
        ]
        for p in sorted(found, key=lambda p: ("written", "ours", "by hand").index(p["kind"]))
    ]
    names = ["version", "peak", "memory added", "time", "/ as written"]
    names += ["ours / it, at its peak", "at its memory added", "on their front"]
    texts = [summary(row), *([chunker(row)] if name == "head" else [])]
    image = (
        f"\n![{name}: memory against time](img/{image_name(name)})\n" if (IMAGES / image_name(name)).exists() else ""
    )
    return f"{title}{tables.table(names, lines)}\nMedians of {rounds}; {'; '.join(texts)}.\n{image}"


def ratio(value: float | None) -> str:
    return "none so small" if value is None else f"{value:.2f}"


def note(data: dict[str, Any]) -> str:
    hardware = data["hardware"]
    cores = f"{hardware['cores']} cores of {hardware['cpu']}, {contenders.THREADS} threads"
    return f"\nPeaks as compiled; memory added in a fresh process. {cores}, {tables.stamp(data)}.\n"


def image_name(name: str) -> str:
    return f"training_{name}.svg"


def plot(data: Mapping[str, Any]) -> None:
    """Memory against time, a file a program."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, row in data.get("rows", {}).items():
        if found := points(row):
            (IMAGES / image_name(name)).write_text(training_plots.memory_against_time(name, found))


if __name__ == "__main__":
    main()
