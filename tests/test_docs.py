"""The documents say what is so: their tables come from committed results, their first example runs."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parent.parent
TABLES = ROOT / "benchmarks" / "tables.py"

pytestmark = pytest.mark.skipif(not TABLES.exists(), reason="a source distribution has no benchmarks")


def test_tables_are_those_of_the_committed_results() -> None:
    done = subprocess.run([sys.executable, str(TABLES), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_first_example_of_the_readme_runs() -> None:
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(code, names)
    q = jnp.ones((2, 32, 64))
    np.testing.assert_allclose(names["fast"](q, q, q), names["attention"](q, q, q))


def test_links_of_the_documents_lead_somewhere() -> None:
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
            assert (document.parent / link).exists(), f"{document.name}: {link}"
