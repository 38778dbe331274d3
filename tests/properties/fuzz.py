"""More random programs than the tests run: `python tests/properties/fuzz.py N SEED`. Prints what it finds.

The programs run in a process of their own: one that crashes costs only itself.
"""

from __future__ import annotations

import os
import pathlib
import random
import subprocess
import sys
import traceback

ROOT = pathlib.Path(__file__).parents[2]
os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(ROOT))


def main(count: int, first: int) -> int:
    failed = 0
    end = first + count
    while first < end:
        command = [sys.executable, __file__, "--worker", str(first), str(end)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as worker:
            assert worker.stdout is not None
            for line in worker.stdout:
                if line.startswith("# "):
                    first = int(line[2:])
                else:
                    print(line, end="", flush=True)
                    failed += line.startswith("---")
        if worker.returncode:
            failed += 1
            print(f"--- {first}: crashed, signal {-worker.returncode}\n{draw(first)}", flush=True)
        first = first + 1 if worker.returncode else end
    print(f"{failed} failures")
    return failed


def draw(number: int) -> object:
    from tests.properties.generate import draw_program

    return draw_program(random.Random(number).randint)


def work(first: int, end: int) -> None:
    from tests.properties.check import Seen, check, report
    from tests.properties.generate import RandomProgram, draw_program

    seen = Seen()
    for number in range(first, end):
        print(f"# {number}", flush=True)
        rng = random.Random(number)
        program: RandomProgram | None = None
        try:
            program = draw_program(rng.randint)
            check(program, rng.randint, number, seen)
        except Exception as error:  # noqa: BLE001 - every error is a finding
            trace = "".join(traceback.format_tb(error.__traceback__, limit=-3))
            print(f"--- {number}: {type(error).__name__}: {str(error)[:800]}\n{program}\n{trace}", flush=True)
    print(report(seen))


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        work(int(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit(main(int(sys.argv[1]), int(sys.argv[2])) > 0)
