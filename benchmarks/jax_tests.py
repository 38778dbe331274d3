"""JAX's own tests of `jax.jit`, with `shm.jit` in its place and a budget that everything keeps: results/jax_tests.json.

`git archive jax-v0.10.2 tests/api_test.py tests/pjit_test.py` of a clone of JAX, unpacked, is what it takes: the folder
with both files. In a copy of them every `jax.jit`, and `jit` imported from jax, becomes one name, which stands for
`jax.jit` in one run and for `shm.jit` in the other; both have one device. What is listed are the tests that pass with
`jax.jit` and do not with `shm.jit`.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import collections
import io
import pathlib
import subprocess
import sys
import tempfile
import tokenize
import xml.etree.ElementTree as ET
from typing import Any

import record
import tables

PATH = record.RESULTS / "jax_tests.json"
FILES = ("api_test.py", "pjit_test.py")
NAME = "jit_under_test"
WAYS = ("jax.jit", "shm.jit")
SHIM = f"""import functools
import os

import jax

if os.environ["JIT_UNDER_TEST"] == "shm.jit":
    import stablehlo_mem as shm

    {NAME} = functools.wraps(jax.jit)(functools.partial(shm.jit, budget=2**60))
else:
    {NAME} = jax.jit
"""
ONE_DEVICE = {"jtu.request_cpu_devices(8)": "jtu.request_cpu_devices(1)"}
OPTIONS = ("-q", "-n", "0", "-p", "no:cacheprovider", "--noconftest", "-o", "addopts=", "-W", "ignore")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="JAX's tests")
    parser.add_argument("--files", nargs="*", default=list(FILES), choices=FILES)
    parser.add_argument("--only", default="", help="pytest's -k; nothing is written then")
    given = parser.parse_args()
    data = {"files": {}, **record.earlier(PATH), **record.header()}
    for file in given.files:
        outcomes = {way: run(given.folder / file, way, given.only) for way in WAYS}
        data["files"][file] = row = compared(outcomes)
        print(f"{file}: {row['passed']}, {len(row['differing'])} differ", *row["differing"], sep="\n  ")
        if not given.only:
            record.write(data, PATH)


RESIDUALS = "reverse mode computes again: other residuals than `jax.jit` has"
WRITTEN = "what a jaxpr looks like: the primitive stands in it"
REASONS = {
    "test_closed_constants_at_top_level": WRITTEN,
    "test_eval_shape_trace_cache_share": "a count of traces: `jax.eval_shape` of the function itself is another one",
    "test_excess_precision_hell": "what is computed again in the backward program XLA rounds otherwise than forward",
    "test_jit_traceback": "how deep the Python stack is below a traced function",
    "test_name_stack_annotation": "what a jaxpr looks like: the name of what is computed again is on each op",
    "test_nested_jit_hoisting": WRITTEN,
    "test_remat_checkpoint_dots_jit_old_remat": RESIDUALS,
    "test_saved_residuals_utility_jit": RESIDUALS,
}
"""Why tests pass with `jax.jit` alone."""


def table(data: dict[str, Any]) -> str:
    """Each test that differs, with its reason; a KeyError if it has none."""
    rows = [
        [file.removesuffix(".py"), f"`{test}`", REASONS[test.split(".")[-1]]]
        for file, row in data["files"].items()
        for test in row["differing"]
    ]
    passed = sum(row["passed"] for row in data["files"].values())
    note = f"{len(rows)} of the {passed:,} tests that pass with `jax.jit`; {tables.stamp(data)}"
    return tables.table(["file", "test", "why"], rows) + f"\n{note}.\n"


def compared(outcomes: dict[str, dict[str, str]]) -> dict[str, Any]:
    """How often each outcome is, and which tests pass with `jax.jit` alone, or with `shm.jit` alone."""
    plain, ours = (outcomes[way] for way in WAYS)
    return {
        "outcomes": {way: dict(sorted(collections.Counter(found.values()).items())) for way, found in outcomes.items()},
        "passed": sum(outcome == "passed" for outcome in plain.values()),
        "differing": sorted(t for t, outcome in plain.items() if outcome == "passed" and ours.get(t) != "passed"),
        "better": sorted(t for t, outcome in plain.items() if outcome == "failed" and ours.get(t) == "passed"),
    }


def run(file: pathlib.Path, way: str, only: str) -> dict[str, str]:
    """The outcome of each test of a file, in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / f"{NAME}.py").write_text(SHIM)
        (folder / file.name).write_text(replaced(file.read_text()))
        report = folder / "report.xml"
        choice = ("-k", only) if only else ()
        command = [sys.executable, "-m", "pytest", file.name, *OPTIONS, *choice, f"--junitxml={report}"]
        paths = os.pathsep.join([str(folder), str(pathlib.Path(__file__).parents[1])])
        env = {**os.environ, "PYTHONPATH": paths, "JIT_UNDER_TEST": way, "JAX_NUM_GENERATED_CASES": "10"}
        subprocess.run(command, cwd=folder, env=env, check=False, stdout=None if only else subprocess.DEVNULL)
        return dict(outcome(case) for case in ET.parse(report).iter("testcase"))


def outcome(case: ET.Element) -> tuple[str, str]:
    kinds = {"failure": "failed", "error": "failed", "skipped": "skipped"}
    found = next((kinds[child.tag] for child in case if child.tag in kinds), "passed")
    return f"{case.get('classname', '').split('.')[-1]}.{case.get('name')}", found


def replaced(source: str) -> str:
    """The tests with `jax.jit`, `api.jit` and `jit` from jax by another name, on the same lines, and one device."""
    for old, new in ONE_DEVICE.items():
        source = source.replace(old, new)
    lines = source.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    spans: list[tuple[tuple[int, int], tuple[int, int]]] = []
    for before, dot, name in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if before.string in ("jax", "api") and dot.string == "." and name.string == "jit":
            spans.append((before.start, name.end))
    for (row, begin), (_, end) in reversed(spans):
        lines[row - 1] = lines[row - 1][:begin] + NAME + lines[row - 1][end:]
    for i, line in enumerate(lines):
        if line.startswith("from jax import") and "jit" in line.replace(",", " ").split():
            lines[i] = f"{line.rstrip()}; from {NAME} import {NAME} as jit\n"
        elif line == "import jax\n":
            lines[i] = f"import jax; from {NAME} import {NAME}\n"
    return "".join(lines)


if __name__ == "__main__":
    main()
