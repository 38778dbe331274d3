"""Every example runs: its plan does something, keeps the budget, and the results are those of the plain program."""

from __future__ import annotations

import ast
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parent.parent / "examples"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "showing")

pytestmark = pytest.mark.skipif(not EXAMPLES, reason="a source distribution has no examples")


def needed(example: str) -> set[str]:
    """The packages an example imports at its top."""
    tree = ast.parse((FOLDER / f"{example}.py").read_text())
    modules = [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {module.partition(".")[0] for module in modules} - {"showing"}


@pytest.mark.parametrize("example", EXAMPLES)
def test_it_runs(example: str) -> None:
    missing = sorted(name for name in needed(example) if importlib.util.find_spec(name) is None)
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: pip install -e '.[examples]'")
    path = os.pathsep.join([str(FOLDER.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{example}.py")],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "difference" in done.stdout


def test_every_example_is_on_the_page_of_examples() -> None:
    page = (FOLDER.parent / "docs" / "examples.md").read_text()
    assert [example for example in EXAMPLES if f"`{example}.py`" not in page] == []
