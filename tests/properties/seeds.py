"""Programs by their seeds, checked one after the other: what `benchmarks/fuzz.py` runs in a process of its own.

`python tests/properties/seeds.py FIRST END` prints a line of JSON after each, with `--forced` of programs whose
rewrites are forced. `python tests/properties/seeds.py --smaller SEED` drops steps of a failing program as long as it
fails in the same way.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import sys
import traceback
from collections.abc import Callable, Iterator

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from tests.properties import forced
from tests.properties.check import Seen, Trial, check, trial_of
from tests.properties.drawing import RandomProgram, without_unused


def work(first: int, end: int) -> None:
    for seed in range(first, end):
        seen = Seen()
        program, trial = trial_of(seed)
        finding = failure(program, trial, seed, seen)
        row = {"seed": seed, "counts": seen.counts}
        if finding:
            row |= {"finding": finding, "trial": dataclasses.asdict(trial), "program": str(program).split("\n")}
        print(json.dumps(row), flush=True)


def work_forced(first: int, end: int) -> None:
    for seed in range(first, end):
        seen = Seen()
        finding = _wrong(lambda seed=seed, seen=seen: forced.check(seed, seen))
        row = {"seed": seed, "counts": seen.counts}
        if finding:
            row |= {"finding": finding, "program": str(forced.drawn_program(seed)[0]).split("\n")}
        print(json.dumps(row), flush=True)


def failure(program: RandomProgram, trial: Trial, seed: int, seen: Seen) -> str | None:
    """What is wrong with a program, None if nothing is."""
    return _wrong(lambda: check(program, trial, seed, seen))


def _wrong(run: Callable[[], None]) -> str | None:
    try:
        run()
    except Exception as error:  # noqa: BLE001 - every error is a finding
        frame = traceback.extract_tb(error.__traceback__)[-1]
        message = (str(error).splitlines() or [""])[0][:300]
        return f"{type(error).__name__} in {pathlib.Path(frame.filename).name}, {frame.name}: {message}"
    return None


def smaller(seed: int) -> RandomProgram:
    """A program with as few steps as fail in the same function in the same way."""
    program, trial = trial_of(seed)
    wanted = failure(program, trial, seed, Seen())
    assert wanted is not None, "nothing fails"
    kind = wanted.partition(":")[0]
    print(f"{trial}\n{wanted}\n{program}\n", flush=True)
    found = True
    while found:
        for less in _less(program):
            message = failure(less, trial, seed, Seen())
            found = message is not None and message.partition(":")[0] == kind
            if found:
                program = less
                print(f"{message}\n{program}\n", flush=True)
                break
    return program


def _less(program: RandomProgram) -> Iterator[RandomProgram]:
    """Programs with fewer outputs, of fewer steps, with an operand in the place of a step of its shape."""
    given = len(program.arguments)
    if len(program.outputs) > 1:
        yield from (without_unused(dataclasses.replace(program, outputs=(one,))) for one in program.outputs)
    for value in range(given, given + len(program.steps)):
        if value not in program.outputs:
            yield without_unused(dataclasses.replace(program, outputs=(value,)))
    for i, step in enumerate(program.steps):
        for operand in step.inputs:
            name = {given + i: operand}
            steps = tuple(
                dataclasses.replace(s, inputs=tuple(name.get(v, v) for v in s.inputs)) if j > i else s
                for j, s in enumerate(program.steps)
            )
            outputs = tuple(name.get(v, v) for v in program.outputs)
            yield without_unused(dataclasses.replace(program, steps=steps, outputs=outputs))


if __name__ == "__main__":
    if sys.argv[1] == "--smaller":
        smaller(int(sys.argv[2]))
    elif sys.argv[1] == "--forced":
        work_forced(int(sys.argv[2]), int(sys.argv[3]))
    else:
        work(int(sys.argv[1]), int(sys.argv[2]))
