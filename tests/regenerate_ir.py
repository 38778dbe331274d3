"""Writes the expected part of tests/ir/*.mlir anew: `python tests/regenerate_ir.py [NAME...]`. Read the diff."""

import os
import pathlib
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from tests.textual import CASES, expected_and_actual, write

if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        expected, actual = expected_and_actual(name)
        if expected != actual:
            write(name, actual)
            print(f"{name}: written")
