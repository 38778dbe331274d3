"""What static searches come to: `python benchmarks/searches.py` writes passes and digests to results/searches.json.

Nothing is compiled or timed. `--check` compares with what is written there instead: a change that is to leave plans as
they are (a rename, a move) is checked by it. Programs of the suite, of training, of AutoChunk and the fuzzer's first
hundred, on three targets, for shares of their temporaries.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import autochunk
import jax
import record
import suite_programs
import training_programs

from stablehlo_mem.frontend.canonicalize import remove_rules
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.ir.bindings import clone_module, fingerprint, ir
from stablehlo_mem.pass_api.candidate import Goal, Options
from stablehlo_mem.planner.discrepancy_search import search
from stablehlo_mem.planner.greedy_search import cheapen
from stablehlo_mem.planner.search_state import SearchState, start_of
from stablehlo_mem.targets.target import named_targets

sys.path.insert(0, str(record.RESULTS.parents[1]))

from tests.properties.check import trial_of

PATH = record.RESULTS / "searches.json"
TARGETS = ("cpu", "cuda:h200", "tpu:v5e")
SHARES = {"50%": 0.5, "25%": 0.25, "10%": 0.1, "min": 0.0}
FUZZED = 100


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--programs", nargs="+", help="those whose names begin so")
    arguments = parser.parse_args()
    known = record.earlier_rows(PATH, ())
    rows: dict[str, Any] = {} if arguments.check or not arguments.programs else known
    differing = 0
    for name, exported in programs():
        if arguments.programs and not name.startswith(tuple(arguments.programs)):
            continue
        for key, row in found(exported):
            same = known.get(f"{name}, {key}") == row
            differing += arguments.check and not same
            rows[f"{name}, {key}"] = row
            if arguments.check and not same:
                print(f"differs: {name}, {key}: {row}", flush=True)
        if not arguments.check:
            record.write({**record.header(), "rows": rows}, PATH)
    print(f"{len(rows)} searches, {differing} differ" if arguments.check else f"{len(rows)} searches")
    return int(differing > 0)


def programs() -> Iterator[tuple[str, Any]]:
    """Names and functions that export for a platform."""
    for name, case in suite_programs.CASES.items():
        yield f"suite: {name}", lambda p, c=case: jax.export.export(jax.jit(c.function), platforms=[p])(*c.specs())
    for name, sizes in training_programs.SMALL.items():
        yield f"training: {name}", training_programs.program(name, sizes).flat.export
    for name, (fun, shapes, data) in autochunk.PROGRAMS.items():
        given = autochunk.specs(shapes), data
        yield f"autochunk: {name}", lambda p, f=fun, g=given: jax.export.export(jax.jit(f), platforms=[p])(*g)
    for seed in range(FUZZED):
        yield f"fuzz: {seed}", lambda p, s=seed: _fuzzed(s, p)


def _fuzzed(seed: int, platform: str) -> Any:
    program, _ = trial_of(seed)
    with jax.enable_x64(True):
        return jax.export.export(jax.jit(program), platforms=[platform])(*program.arguments)


def found(export: Any) -> Iterator[tuple[str, str]]:
    """What searches of a program come to on each target, by target and share.

    The passes taken, a digest of the module that they make, and the static temporaries in bytes.
    """
    for key, _, quick, goal in tasks(export):
        state, _ = search(quick, goal)
        passes = " ".join(step.pass_name for step in state.steps)
        yield key, f"{passes or 'nothing'}; {fingerprint(_plain(state.module))}; {state.peak.temp_bytes}"


def tasks(export: Any) -> Iterator[tuple[str, SearchState, SearchState, Goal]]:
    """The searches of a program: target and share, the program as written, what the search begins from, its goal."""
    for target in named_targets(TARGETS):
        begun = start_of(ingest(export(target.platform)), Goal(target.chip, Options(), 0))
        quick = cheapen(begun, Goal(target.chip, Options(), 0), any_peak=False)
        for share, part in SHARES.items():
            goal = Goal(target.chip, Options(), int(part * begun.peak.temp_bytes))
            yield f"{target.name}, {share}", begun, quick, goal


def _plain(module: ir.Module) -> ir.Module:
    copy = clone_module(module)
    remove_rules(copy)
    return copy


if __name__ == "__main__":
    sys.exit(main())
