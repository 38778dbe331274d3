"""An optimised program runs where there is only jax (with what jax itself needs) and flatbuffers."""

import importlib.util
import pathlib
import subprocess
import sys

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

import stablehlo_mem as shm

NEEDED = ("jax", "jaxlib", "numpy", "scipy", "ml_dtypes", "opt_einsum", "flatbuffers", "numpy.libs", "scipy.libs")

RUN = """
import sys
import jax, jax.export, numpy as np
for absent in ("stablehlo_mem", "rich", "hypothesis"):
    try:
        __import__(absent)
    except ModuleNotFoundError:
        continue
    raise SystemExit(f"{absent} is there")
program = jax.export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
x = np.load(sys.argv[2])
np.save(sys.argv[3], np.asarray(jax.jit(program.call)(x, x)))
"""


def kernel_rows(x, y):
    return jnp.exp(-((x[:, None] - y[None]) ** 2).sum(-1)).sum(1)


def test_runs_with_only_jax_and_flatbuffers(tmp_path: pathlib.Path):
    spec = jax.ShapeDtypeStruct((1003, 3), jnp.float32)
    original = jax.export.export(jax.jit(kernel_rows), platforms=["cpu"])(spec, spec)
    plan = shm.plan(original, "512KiB", target="cpu")
    assert plan.before.peak_bytes > 512 * 1024 >= plan.after.peak_bytes
    assert plan.exported is not None
    (tmp_path / "program").write_bytes(plan.exported.serialize())
    x = np.random.default_rng(0).normal(size=spec.shape).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    _link_packages(tmp_path / "site")
    paths = [str(tmp_path / name) for name in ("program", "x.npy", "out.npy")]
    environment = {"PYTHONPATH": str(tmp_path / "site"), "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-S", "-c", RUN, *paths], env=environment, cwd=tmp_path, check=True)
    out = np.load(tmp_path / "out.npy")
    np.testing.assert_allclose(out, np.asarray(jax.jit(kernel_rows)(x, x)), rtol=1e-6)


def _link_packages(folder: pathlib.Path) -> None:
    folder.mkdir()
    found = importlib.util.find_spec("jax")
    assert found is not None
    assert found.origin is not None
    site = pathlib.Path(found.origin).parents[1]
    for name in NEEDED:
        if (site / name).exists():
            (folder / name).symlink_to(site / name)
