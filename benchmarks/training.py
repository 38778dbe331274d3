"""Training under a budget: peaks of whole steps as three compilers report them; writes results/training.json.

The budget of a row is arguments + outputs − aliased + a fraction of the original's temporaries on that target: those
its compiler reports, on CPU without YNN fusions, whose scratch is in no report. Executes nothing. Every original and
every row has a process of its own with a time limit: libtpu dies of some programs. A row that misses says what is
live at its peak and why it was not made smaller; one that is cut off, how far it came and where it was.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import dataclasses
import faulthandler
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from typing import Any

import jax
import record
import tables
import training_programs
from jax.sharding import SingleDeviceSharding

import stablehlo_mem as shm
from stablehlo_mem.reports.phrases import budget_error_text, format_value
from stablehlo_mem.targets.compile import refusal
from stablehlo_mem.targets.measurement import Measured, Refused
from stablehlo_mem.targets.target import Target, named_targets
from stablehlo_mem.utils.units import format_bytes

TARGETS = ("cpu", "tpu:v5e", "cuda:h200")
PATH = record.RESULTS / "training.json"
FRACTIONS = {
    **dict.fromkeys(("attention", "head", "mlp", "contrastive", "ntxent"), (0.10, 0.25)),
    **dict.fromkeys(("gpt2", "gpt2_scanned"), (0.20, 0.25)),
    **dict.fromkeys(("vit", "neural_ode", "recurrent"), (0.25,)),
}
"""The shares of its temporaries each program must do with."""
COMPILER_OPTIONS: dict[str, dict[str, Any]] = {"cpu": {"xla_cpu_experimental_ynn_fusion_type": ""}}
PLAIN_GEMMS: dict[str, Any] = {"xla_gpu_enable_triton_gemm": False}
"""For what XLA:GPU does not compile otherwise."""
TIMEOUT = 300.0
SHOWN = 8
"""Live values and refusals kept of a row that misses."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="*", default=list(FRACTIONS), metavar="PROGRAM", help=", ".join(FRACTIONS))
    parser.add_argument("--targets", nargs="*", default=list(TARGETS), choices=TARGETS)
    parser.add_argument("--fractions", nargs="*", type=float, help="only these, of those a program has")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help="seconds a row may take")
    parser.add_argument("--compiles", type=int, default=shm.Options().max_compiles, help="at most so many a row")
    parser.add_argument("--anew", action="store_true", help="measure the originals anew too")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(json.loads(given.worker[0]), pathlib.Path(given.worker[1]))
        return
    for name in given.rows:
        wanted = [f for f in FRACTIONS[name] if given.fractions is None or f in given.fractions]
        for target in given.targets:
            original = original_of(name, target, given)
            for fraction in wanted:
                put("rows", f"{name} on {target} at {fraction:.0%}", row_of(original, fraction, given))


def put(part: str, key: str, row: dict[str, Any]) -> None:
    """Writes one more result at once, and says it."""
    earlier = record.earlier(PATH)
    parts = {name: earlier.get(name, {}) for name in ("originals", "rows")}
    parts[part][key] = row
    parts = {name: {k: parts[name][k] for k in sorted(parts[name], key=_order)} for name in parts}
    header = record.header()
    header["versions"] |= record.versions("optax")
    record.write({**header, **parts}, PATH)
    print(f"{key}: {summary(row)}", flush=True)


def _order(key: str) -> tuple[int, int, str]:
    name, _, rest = key.partition(" on ")
    return list(FRACTIONS).index(name), TARGETS.index(rest.partition(" at ")[0]), rest


def original_of(name: str, target: str, given: argparse.Namespace) -> dict[str, Any]:
    """The original's figures: those of an earlier run, if the program is still the same."""
    key, case = f"{name} on {target}", {"program": name, "target": target, "sizes": training_programs.SIZES[name]}
    earlier = record.earlier(PATH).get("originals", {}).get(key)
    if earlier and earlier.items() >= case.items() and not given.anew and earlier["status"] == "compiled":
        return earlier
    put("originals", key, original := {**case, **apart(case, given.timeout)})
    return original


def row_of(original: dict[str, Any], fraction: float, given: argparse.Namespace) -> dict[str, Any]:
    case = {key: original[key] for key in ("program", "target", "sizes")} | {"fraction": fraction}
    if "temp_bytes" not in original:
        return case | {"status": "no figure for the original"}
    budget = original["fixed_bytes"] + int(fraction * original["temp_bytes"])
    case["budget_bytes"] = budget
    case |= {"original_peak_bytes": original["peak_bytes"], "max_compiles": given.compiles}
    return case | apart(case, given.timeout)


def apart(case: dict[str, Any], timeout: float) -> dict[str, Any]:
    """What `work` writes, in a process of its own; of one that ends badly, what it had written until then."""
    with tempfile.TemporaryDirectory(prefix="training-") as name:
        path = pathlib.Path(name) / "result.json"
        command = [sys.executable, __file__, "--worker", json.dumps(case | {"timeout": timeout}), str(path)]
        begun, ended = time.monotonic(), {}
        with (pathlib.Path(name) / "stderr").open("w+") as stderr:
            try:
                code = subprocess.run(command, stderr=stderr, timeout=timeout, check=False).returncode
                ended = {"status": "crashed", "exit": code} if code else {}
            except subprocess.TimeoutExpired:
                ended = {"status": "timed out"}
            stderr.seek(0)
            text = stderr.read()
        result = json.loads(path.read_text()) if path.exists() else {}
        if ended:
            result |= {**ended, "stack": stack(text)}
        return result | {"wall_seconds": round(time.monotonic() - begun, 1)}


def stack(stderr: str) -> list[str]:
    """Our own innermost frames of a dumped stack, or the last lines there are."""
    frames = re.findall(r'File "[^"]*/(stablehlo_mem/[^"]*)", line (\d+) in (\w+)', stderr)
    return [f"{file}:{line} {name}" for file, line, name in frames[:SHOWN]] or stderr.splitlines()[-3:]


def work(case: dict[str, Any], path: pathlib.Path) -> None:
    """In a process of its own: the original's figures, or with a budget the plan."""
    faulthandler.enable()
    faulthandler.dump_traceback_later(max(1.0, case["timeout"] - 10))
    program = training_programs.program(case["program"], case["sizes"])
    result = planned(program, case, path) if "budget_bytes" in case else figures(program, case["target"])
    path.write_text(json.dumps(result))


def figures(program: training_programs.Program, name: str) -> dict[str, Any]:
    """What the target's compiler says of the program as it is; of one that it refuses, what its message says."""
    (target,) = named_targets(name)
    sharding = SingleDeviceSharding(target.devices()[0])
    specs = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding), program.specs)
    lowered = program.jitted.lower(*specs)
    arguments, outputs = (sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(tree)) for tree in shapes(program))
    donated = sum(s.size * s.dtype.itemsize for i in program.donated for s in jax.tree.leaves(program.specs[i]))
    fixed = arguments + outputs - min(donated, outputs)
    options, refused = COMPILER_OPTIONS.get(target.platform), None
    try:
        analysis = compiled(lowered, options, target.platform).memory_analysis()
    except jax.errors.JaxRuntimeError as error:
        refused = refusal(str(error), fixed)
        if refused.needed_bytes is None:
            return {"status": "failed", "error": " ".join(str(error).split())[:400]}
        temp, alias = refused.needed_bytes - fixed, min(donated, outputs)
    else:
        arguments, outputs = analysis.argument_size_in_bytes, analysis.output_size_in_bytes
        temp, alias = analysis.temp_size_in_bytes, analysis.alias_size_in_bytes
    fixed = arguments + outputs - alias
    return {
        "status": "compiled",
        "refused": refused is not None,
        "fixed_bytes": fixed,
        "alias_bytes": alias,
        "temp_bytes": temp,
        "peak_bytes": fixed + temp,
    }


def shapes(program: training_programs.Program) -> tuple[Any, Any]:
    return program.specs, jax.eval_shape(program.function, *program.specs)


def compiled(lowered: Any, options: dict[str, Any] | None, platform: str) -> Any:
    try:
        return lowered.compile(compiler_options=options)
    except jax.errors.JaxRuntimeError as error:
        if platform != "cuda" or "RESOURCE_EXHAUSTED" in str(error):
            raise
        return lowered.compile(compiler_options=PLAIN_GEMMS)


def planned(program: training_programs.Program, case: dict[str, Any], path: pathlib.Path) -> dict[str, Any]:
    """The plan for a budget; what every compilation found is written at once."""
    (target,) = named_targets(case["target"])
    options = shm.Options(max_compiles=case["max_compiles"])
    attempts: list[dict[str, Any]] = []
    begun = time.perf_counter()

    @dataclasses.dataclass(frozen=True)
    class Watched(Target):
        """The target, and what was asked of its compiler."""

        def measure(self, program: Any, module: Any) -> Measured | Refused:
            started = time.perf_counter()
            found = super().measure(program, module)
            peak = found.peak_bytes if isinstance(found, Measured) else found.needed_bytes
            took = {"at_seconds": round(started - begun, 1), "seconds": round(time.perf_counter() - started, 1)}
            attempts.append({"peak_bytes": peak, "refused": isinstance(found, Refused), **took})
            path.write_text(json.dumps({"attempts": attempts, "compiles": len(attempts)}))
            return found

    exported = program.export(target.platform)
    try:
        watched = Watched(target.name, target.platform, target.chip)
        plan = shm.plan(exported, case["budget_bytes"], target=watched, options=options)
    except shm.StableHLOMemError as error:
        return {"status": "failed", "error": f"{type(error).__name__}: {error}"[:2000], "attempts": attempts}
    result = {
        "status": "fits" if plan.fits else "over",
        "library_original_peak_bytes": plan.before.peak_bytes,
        "optimised_peak_bytes": plan.after.peak_bytes,
        "compiles": plan.compiles,
        "planning_seconds": round(plan.planning_seconds, 2),
        "unchanged": plan.result is exported,
        "steps": list(plan.summaries),
        "attempts": attempts,
    }
    return result if plan.fits else {**result, "error": budget_error_text(plan), **why(plan)}


def why(plan: shm.Plan) -> dict[str, Any]:
    """What stands in the way: the values live at the peak that is left, and the refusals."""
    measured = plan.after.measured
    return {
        "point": plan.after.point,
        "live": [f"{format_bytes(v.nbytes)} {format_value(v)} {v.source}" for v in plan.after.live[:SHOWN]],
        "refusals": list(
            dict.fromkeys(
                f"{format_bytes(r.nbytes)} {r.value} dim {r.dimension}: {r.message} [{r.code}] {r.location}"
                for r in plan.refusals
            )
        )[:SHOWN],
        "static_temp_bytes": plan.after.temp_bytes,
        "measured_temp_bytes": measured.temp_bytes if isinstance(measured, Measured) else None,
    }


def summary(row: dict[str, Any]) -> str:
    """A result in one line."""
    if "fraction" not in row:
        if row["status"] != "compiled":
            return row["status"]
        refused = " (refused)" if row["refused"] else ""
        return f"{format_bytes(row['peak_bytes'])}{refused}, temporaries {format_bytes(row['temp_bytes'])}"
    if "budget_bytes" not in row:
        return row["status"]
    sizes = f"{format_bytes(row['original_peak_bytes'])} → {best(row)}, budget {format_bytes(row['budget_bytes'])}"
    return f"{sizes}, {verdict(row)}, {row.get('compiles', 0)} compiles, {row['wall_seconds']:.0f} s"


def best(row: dict[str, Any]) -> str:
    """The optimised peak; of a row that was cut off, the lowest until then."""
    if "optimised_peak_bytes" in row:
        return format_bytes(row["optimised_peak_bytes"])
    peaks = [a["peak_bytes"] for a in row.get("attempts", ())[1:] if a["peak_bytes"] is not None]
    return f"{format_bytes(min(peaks))} so far" if peaks else ""


def verdict(row: dict[str, Any]) -> str:
    return {"fits": "yes", "over": "no"}.get(row["status"], row["status"])


def table(data: dict[str, Any]) -> str:
    """One line a program, target and share."""
    rows = data["rows"].values()
    lines = [
        [
            row["program"],
            row["target"],
            f"{row['fraction']:.0%}",
            tables.optional(row.get("original_peak_bytes"), format_bytes),
            best(row),
            format_bytes(row["budget_bytes"]) if "budget_bytes" in row else "",
            verdict(row),
            f"{row['planning_seconds']:.0f} s" if "planning_seconds" in row else "",
            str(row.get("compiles", "")),
        ]
        for row in rows
    ]
    names = ["program", "target", "share", "peak before", "after", "budget", "kept", "planning", "compiles"]
    note = "Share: of the original's temporaries, beside arguments + outputs − aliased; peaks as compiled"
    return tables.table(names, lines) + f"\n{met(rows)}. {note}, {tables.stamp(data)}.\n"


def met(rows: Iterable[dict[str, Any]]) -> str:
    """How many rows keep their budgets, by target."""
    counts = {t: [row["status"] == "fits" for row in rows if row["target"] == t] for t in TARGETS}
    return "Kept: " + ", ".join(f"{t} {sum(kept)} of {len(kept)}" for t, kept in counts.items() if kept)


if __name__ == "__main__":
    main()
