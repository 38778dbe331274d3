"""What is built is what is imported: sdist → wheel → an empty folder, every pass in it and nothing else."""

import ast
import os
import pathlib
import subprocess
import sys
import tarfile
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PASSES = sorted(p.stem for p in (ROOT / "stablehlo_mem" / "passes").glob("*.py") if p.stem != "__init__")

IMPORT_ALL = """
import importlib, pkgutil, sys
sys.path[:] = [sys.argv[1]] + [p for p in sys.path if p != sys.argv[2]]
import stablehlo_mem, stablehlo_mem.passes
assert stablehlo_mem.__file__.startswith(sys.argv[1]), stablehlo_mem.__file__
names = sorted(m.name for m in pkgutil.iter_modules(stablehlo_mem.passes.__path__))
for name in names:
    importlib.import_module("stablehlo_mem.passes." + name)
print(*names)
"""


def run(*command, **kwargs):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT))  # the wheel from the sdist
    return folder


def test_the_installed_wheel_imports_every_pass(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--quiet", "--target", str(tmp_path), str(wheel))
    names = run(sys.executable, "-c", IMPORT_ALL, str(tmp_path), str(ROOT), cwd=tmp_path).split()
    assert names == PASSES
    assert "split_into_loops" in names


def test_the_wheel_holds_the_package_only(built):
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {
        "stablehlo_mem/py.typed",
        "stablehlo_mem/reports/page/report.css",
        *(f"stablehlo_mem/reports/page/{name}.js" for name in ("bands", "buffers", "chart", "names", "report", "zoom")),
    } <= set(names)
    assert {n.split("/")[0].removesuffix(".dist-info").split("-")[0] for n in names} == {"stablehlo_mem"}


def test_the_sdist_holds_tests_and_documents_and_no_environment(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert {"stablehlo_mem", "tests", "docs", "pyproject.toml", "README.md", "LICENSE"} <= tops
    assert not {".venv", "passes", "benchmarks", ".git"} & tops


def test_an_editable_install_makes_only_the_package_importable(tmp_path):
    script = "import importlib.util as u; print([u.find_spec(n) for n in ('passes', 'benchmarks')])"
    assert run(sys.executable, "-I", "-c", script, cwd=tmp_path).strip() == "[None, None]"


def imported(path):
    """Every module a file imports, and every `jax.something` it goes into by attributes."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node)


def test_private_names_of_jax_are_in_one_file():
    def is_private(name):
        package, *parts = name.split(".")
        return package == "jaxlib" or (
            package == "jax" and any(p.startswith("_") and not p.endswith("__") for p in parts)
        )

    files = {
        p.relative_to(ROOT).as_posix()
        for p in (ROOT / "stablehlo_mem").rglob("*.py")
        if any(map(is_private, imported(p)))
    }
    assert files == {"stablehlo_mem/ir/bindings.py"}


IMPORTS = """
import sys
import jax
jax_alone = set(sys.modules)
import stablehlo_mem
added = {m for m in sys.modules if m not in jax_alone}
of_others = {m for m in added if not m.startswith("stablehlo_mem")}
print(len(jax_alone), len(of_others), *sorted({m.partition(".")[0] for m in added} - sys.stdlib_module_names))
"""


def test_importing_it_brings_little_beside_jax():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    of_jax, of_others, *packages = run(sys.executable, "-c", IMPORTS, env=environment).split()
    assert set(packages) == {"stablehlo_mem", "jax"}  # no plotting, no tables, no compiler plugins, nothing optional
    assert int(of_others) < int(of_jax) / 10


def test_the_examples_name_what_they_need():
    """Optional packages the examples import are in the extra `examples`."""
    text = (ROOT / "pyproject.toml").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("examples = ")]
    for package in ("flax", "gpjax", "jax-md", "optax"):
        assert f'"{package}>=' in line
