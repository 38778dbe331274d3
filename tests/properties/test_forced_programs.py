"""Random programs whose rewrites are forced: every pass in every block, whatever it brings. More: fuzz.py --forced.

They run in processes of their own, where LLVM does not optimise: it would vectorise by the shape, and round otherwise.
"""

import collections
import json
import os
import pathlib
import subprocess
import sys

import pytest

SEEDS = pathlib.Path(__file__).with_name("seeds.py")
EACH = 24


@pytest.mark.parametrize("first", range(0, 4 * EACH, EACH))
def test_forced_programs_compute_the_same(first):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"
    command = [sys.executable, str(SEEDS), "--forced", str(first), str(first + EACH)]
    environment = {**os.environ, "XLA_FLAGS": flags}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["seed"] for row in rows] == list(range(first, first + EACH))
    assert not [row for row in rows if "finding" in row]
    counts = sum((collections.Counter(row["counts"]) for row in rows), collections.Counter())
    assert counts["changed"] >= EACH // 2
    assert counts["equal"] > 0
