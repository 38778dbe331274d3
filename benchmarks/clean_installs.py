"""Installs the built wheel in clean environments and uses it: `python benchmarks/clean_installs.py [PYTHON...]`.

For each Python that is found (python3.11 to python3.14 on the path and in ~/.pyenv, or the interpreters given) and each
release of JAX that supports it: a new virtual environment, `pip install WHEEL jax==RELEASE`, and a program that is
brought within a budget, checked and serialised, in a folder without this repository. Results: clean_installs.json.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import record

ROOT = pathlib.Path(__file__).resolve().parent.parent
RELEASES = ("0.10.2", "0.11.*", "0.12.*")
"""Of JAX: the ones that pyproject.toml allows."""
MINORS = range(11, 15)
PROGRAM = """
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax, jax.numpy as jnp, numpy as np
import stablehlo_mem as shm

def attention(q, k, v):
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(jnp.einsum("hqd,hkd->hqk", q, k) / 8), v)

q = jnp.asarray(np.random.default_rng(0).normal(size=(4, 1024, 64)), jnp.float32)
plan = shm.jit(attention, "10MiB").plan(q, q, q)
assert plan.fits and plan.steps and plan.before.peak_bytes > 20 * 2**20, plan
assert plan.check(q, q, q).ok
np.testing.assert_allclose(shm.jit(attention, "10MiB")(q, q, q), attention(q, q, q), rtol=1e-5, atol=1e-6)
small = shm.export(jax.jit(attention), budget="10MiB")(q, q, q)
again = jax.export.deserialize(bytearray(small.serialize()))
np.testing.assert_allclose(again.call(q, q, q), attention(q, q, q), rtol=1e-5, atol=1e-6)
mesh = jax.make_mesh((4,), ("heads",), axis_types=(jax.sharding.AxisType.Auto,))
sharded = jax.device_put(q, jax.NamedSharding(mesh, jax.P("heads")))
shared = shm.jit(attention, "3MiB").plan(sharded, sharded, sharded)
assert shared.fits and shared.steps and "each of 4 devices" in str(shared), shared
result = shm.jit(attention, "3MiB")(sharded, sharded, sharded)
np.testing.assert_allclose(result, attention(q, q, q), rtol=1e-5, atol=1e-6)
print(jax.__version__)
"""


def pythons() -> Iterator[str]:
    """Interpreters, one of each minor version."""
    for minor in MINORS:
        name = f"python3.{minor}"
        found = sorted(pathlib.Path.home().glob(f".pyenv/versions/*/bin/{name}"))
        path = str(found[-1]) if found else shutil.which(name)
        if path is not None:
            yield path


def wheel(folder: str) -> str:
    """The wheel of this repository, built."""
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", folder, str(ROOT)], check=True, stdout=subprocess.DEVNULL
    )
    return str(next(pathlib.Path(folder).glob("*.whl")))


def tried(python: str, release: str, built: str) -> str:
    """The version of JAX that the program ran with, or why it did not."""
    with tempfile.TemporaryDirectory() as folder:
        run = lambda *command: subprocess.run(  # noqa: E731
            command, cwd=folder, capture_output=True, text=True, check=False, env=environment()
        )
        inside = str(pathlib.Path(folder) / "env" / "bin" / "python")
        for command in (
            (python, "-m", "venv", "env"),
            (inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", built, f"jax=={release}"),
            (inside, "-c", PROGRAM),
        ):
            done = run(*command)
            if "No matching distribution found for jax" in done.stderr:
                return "JAX has no such release for it"
            if done.returncode:
                return f"failed: {(done.stderr.strip() or done.stdout.strip()).splitlines()[-1]}"
        return done.stdout.strip()


def environment() -> dict[str, str]:
    return {**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, "JAX_PLATFORMS": "cpu"}


def main() -> None:
    rows: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        built = wheel(folder)
        for python in sys.argv[1:] or pythons():
            for release in RELEASES:
                name = f"{pathlib.Path(python).name}, jax {release}"
                rows[name] = tried(python, release, built)
                print(f"{name}: {rows[name]}", flush=True)
    record.write({**record.header(), "rows": rows}, record.RESULTS / "clean_installs.json")


if __name__ == "__main__":
    main()
