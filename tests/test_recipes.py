"""Every recipe whose packages are installed runs: its plan fires, keeps the budget, and the losses are the same."""

from __future__ import annotations

import ast
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
FOLDER = ROOT / "examples" / "recipes"
RECIPES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "comparing")

pytestmark = pytest.mark.skipif(not RECIPES, reason="a source distribution has no recipes")


def needed(recipe: str) -> set[str]:
    """The packages that a recipe imports."""
    nodes = list(ast.walk(ast.parse((FOLDER / f"{recipe}.py").read_text())))
    modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {module.partition(".")[0] for module in modules} - {"comparing"}


def run(recipe: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    command = [sys.executable, str(FOLDER / f"{recipe}.py")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("recipe", RECIPES)
def test_it_runs(recipe: str) -> None:
    missing = sorted(name for name in needed(recipe) if importlib.util.find_spec(name) is None)
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: `make examples`, or see docs/recipes.md")
    done = run(recipe)
    if recipe == "torchax_step" and "has no overload name" in done.stderr:
        pytest.skip("torchax 0.0.13 cannot be imported with this torch")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"peak: \d+ MiB as written, [\d.]+ MiB within", done.stdout)
    assert "largest difference: " in done.stdout


def test_a_recipe_without_a_plan_fails() -> None:
    """What `comparing` is for: a budget that everything keeps proves nothing."""
    code = "from comparing import compare; compare([1.0], [1.0], [])"
    done = subprocess.run([sys.executable, "-c", code], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert "nothing was to do" in done.stderr


def test_every_recipe_is_on_the_page() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text()
    assert [recipe for recipe in RECIPES if f"<!-- file: examples/recipes/{recipe}.py -->" not in page] == []


def test_the_recipes_name_what_they_need() -> None:
    """Their packages are in the extra `recipes`, but for two that bring PyTorch or need another Python."""
    text = (ROOT / "pyproject.toml").read_text()
    (extra,) = re.findall(r"^recipes = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)
    distributions = {"haiku": "dm-haiku", "orbax": "orbax-checkpoint"}
    packages = {distributions.get(name, name) for recipe in RECIPES for name in needed(recipe)}
    others = {"jax", "numpy", "stablehlo_mem", "maxtext", "torchax", "torch", *sys.stdlib_module_names}
    assert {name for name in packages - others if f'"{name}>=' not in extra} == set()
