"""The documents say what is so: their tables come from committed results, their first example runs."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import stablehlo_mem as shm
from stablehlo_mem.analysis.compiler_model import CompilerModel
from stablehlo_mem.ir.bindings import chlo, stablehlo
from stablehlo_mem.sharding_rules import OP_RULES
from tests.textual import CASES

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


def test_lines_of_prose_have_at_most_120_characters() -> None:
    """Rows of tables and blocks of code may be longer."""
    documents = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
    long = {
        document.name: [line for line in prose(document.read_text()) if len(line) > 120 and not line.startswith("|")]
        for document in documents
    }
    assert {name: lines for name, lines in long.items() if lines} == {}


def test_every_generated_block_has_an_end() -> None:
    """What has none is not generated, and so not shown."""
    for document in (ROOT / "docs").rglob("*.md"):
        begun = re.findall(r"^<!-- (table|ir|source|file|api): ", document.read_text(), re.MULTILINE)
        ended = re.findall(r"^<!-- end of (table|ir|source|file|api) -->", document.read_text(), re.MULTILINE)
        assert begun == ended, document.name


PAGES = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
RUN = {
    "the tutorial runs and prints what it shows": ["tutorial.md"],
    "errors have the words that are shown": ["errors.md"],
    "pictures are of the plans that are made": [f"images/{path.name}" for path in (ROOT / "docs").glob("images/*.svg")],
}


@pytest.mark.parametrize("files", RUN.values(), ids=RUN)
def test_what_is_run_is_up_to_date(files: list[str]) -> None:
    for module in ("libtpu", "jax_plugins.xla_cuda12"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"they compile for other chips too, and {module} is not installed")
    check(*files)


def test_what_is_quoted_is_up_to_date() -> None:
    """The IR of the pass pages, the table of ops, the names of the API, source."""
    check(*(page for page in PAGES if [page] not in RUN.values()))


def test_ten_mistakes_and_more_are_on_the_page_of_errors() -> None:
    shown = re.findall(r"^```text\n(\w+): .+?^```", (ROOT / "docs" / "errors.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(shown) >= 10
    assert set(shown) == {"BudgetError", "CheckError", "InputError", "TargetError"}


def test_the_site_builds_without_a_warning(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    done = run("-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    assert (tmp_path / "api" / "index.html").exists()


def test_every_op_is_in_the_table_of_ops() -> None:
    table = (ROOT / "docs" / "ops.md").read_text()
    missing = [
        name for name in registered(stablehlo) | set(OP_RULES) if not re.search(rf"^\| {name} ", table, re.MULTILINE)
    ]
    assert missing == []
    # What CHLO has for JAX: not the forms with implicit broadcasts.
    ops = {name for name in registered(chlo) if not name.startswith(("chlo.broadcast_", "chlo._"))}
    assert [name for name in ops if f"| {name} " not in table] == []


def test_the_table_of_ops_says_what_the_rules_say() -> None:
    rows = dict(re.findall(r"^\| (stablehlo\.\w+) \| (.*) \|$", (ROOT / "docs" / "ops.md").read_text(), re.MULTILINE))
    assert rows["stablehlo.dot_general"].startswith("`[a, b, c], [a, c, d] → [a, b, d]` | a, b, d | c (not with")
    assert rows["stablehlo.sort"] == "`[a, b] → [a, b]` | a |  | b: elements are ordered along it"
    assert rows["stablehlo.infeed"] == "| | | all: a side effect: the program is refused"


def test_every_public_name_has_a_docstring_and_a_place_on_the_api_page() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    assert [name for name in shm.__all__ if f"### `{name}`\n" not in page] == []
    assert [name for name in shm.__all__ if not (getattr(shm, name).__doc__ or "").strip()] == []


def test_every_public_name_is_used_in_a_test() -> None:
    others = [path.read_text() for path in (ROOT / "tests").rglob("*.py") if path.name != "test_docs.py"]
    unused = [name for name in shm.__all__ if not any(re.search(rf"\bshm\.{name}\b", text) for text in others)]
    assert unused == []


def test_every_question_to_a_compiler_is_on_the_page_of_targets() -> None:
    page = (ROOT / "docs" / "writing_a_target.md").read_text()
    assert [name for name in vars(CompilerModel) if name[0] != "_" and f"`{name}`" not in page] == ["materialises"]
    assert "def materialises(" in page
    files = re.findall(r"^\| `(\w+/\w+\.py)`", page, re.MULTILINE)
    missing = [file for file in files if not (ROOT / "stablehlo_mem" / file).exists()]
    assert missing == ["analysis/your_compiler.py"]


def test_every_pass_has_a_page_with_textual_cases() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "passes").glob("*.md")}
    assert pages == {path.stem for path in (ROOT / "stablehlo_mem" / "passes").glob("*.py")} - {"__init__"}
    for page in pages:
        shown = re.findall(r"<!-- ir: (\w+) -->", (ROOT / "docs" / "passes" / f"{page}.md").read_text())
        assert shown, page
        assert set(shown) <= set(CASES), page


def prose(text: str) -> list[str]:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL).splitlines()


def check(*files: str) -> None:
    done = run(str(ROOT / "docs" / "generate"), "--check", *files)
    assert done.returncode == 0, f"run `python docs/generate`\n{done.stdout}{done.stderr}"


def registered(dialect: Any) -> set[str]:
    found = (getattr(value, "OPERATION_NAME", None) for value in vars(dialect).values() if isinstance(value, type))
    return {name for name in found if name}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
