"""An optimised program runs where there is only jax (with what jax itself needs) and flatbuffers."""

import importlib.util
import itertools
import pathlib
import subprocess
import sys

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import stablehlo_mem as shm
from stablehlo_mem.targets.measurement import Measured
from tests.test_targets import needs

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


COMPILE = """
import sys
import jax, jax.export
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding
program = jax.export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
(device, *_) = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices
on_host = [i in map(int, sys.argv[2].split()) for i in range(len(program.in_avals))]
memories = [SingleDeviceSharding(device, memory_kind="pinned_host" if host else "device") for host in on_host]
specs = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s) for a, s in zip(program.in_avals, memories)]
jitted = jax.jit(program.call, donate_argnums=(0,), out_shardings=(memories[0], SingleDeviceSharding(device)))
figures = jitted.lower(*specs).compile().memory_analysis()
assert "stablehlo_mem" not in sys.modules
print(figures.temp_size_in_bytes, figures.host_argument_size_in_bytes, figures.host_alias_size_in_bytes)
"""


def kernel_rows(x, y):
    return jnp.exp(-((x[:, None] - y[None]) ** 2).sum(-1)).sum(1)


@pytest.mark.parametrize("memory", ["device", "pinned_host"])
def test_runs_with_only_jax_and_flatbuffers(tmp_path: pathlib.Path, memory: str):
    sharding = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0], memory_kind=memory)
    spec = jax.ShapeDtypeStruct((1003, 3), jnp.float32, sharding=sharding)
    original = jax.export.export(jax.jit(kernel_rows), platforms=["cpu"])(spec, spec)
    plan = shm.plan(original, "512KiB", target="cpu")
    assert plan.before.peak_bytes > 512 * 1024 >= plan.after.peak_bytes
    assert plan.exported is not None
    (tmp_path / "program").write_bytes(plan.exported.serialize())
    x = np.random.default_rng(0).normal(size=spec.shape).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    _link_packages(tmp_path / "site")
    paths = [str(tmp_path / name) for name in ("program", "x.npy", "out.npy")]
    _run(tmp_path, RUN, *paths)
    out = np.load(tmp_path / "out.npy")
    np.testing.assert_allclose(out, np.asarray(jax.jit(kernel_rows)(x, x)), rtol=1e-6)


@needs["tpu"]
def test_compiles_with_host_placements_with_only_jax_and_libtpu(tmp_path: pathlib.Path):
    """A donated moment on the host of a TPU, updated some rows at a time."""
    shape = (4096, 1024)
    device, host = (jax.sharding.SingleDeviceSharding(jax.devices()[0], memory_kind=k) for k in (None, "pinned_host"))
    specs = [jax.ShapeDtypeStruct(shape, jnp.float32, sharding=s) for s in (host, device)]

    def update(moment, gradient):
        moment = 0.9 * moment + 0.1 * gradient
        return moment, jnp.tanh(moment).sum(1)

    jitted = jax.jit(update, donate_argnums=0, out_shardings=(host, device))
    plan = shm.plan(jax.export.export(jitted, platforms=["tpu"])(*specs), "20MiB", target="tpu:v5e")
    assert plan.fits
    assert plan.steps
    assert isinstance(plan.after.measured, Measured)
    assert plan.exported is not None
    (tmp_path / "program").write_bytes(plan.exported.serialize())
    _link_packages(tmp_path / "site", "libtpu*")
    printed = _run(tmp_path, COMPILE, str(tmp_path / "program"), "0")
    temporaries, on_host, aliased = map(int, printed.split())
    assert plan.after.measured.temp_bytes <= temporaries < 4 * 2**20  # libtpu reports some bytes twice
    assert (on_host, aliased) == (4 * 4096 * 1024, 4 * 4096 * 1024)


def _run(folder: pathlib.Path, script: str, *arguments: str) -> str:
    """What a script prints in a process with the packages of a folder only."""
    environment = {
        "PYTHONPATH": str(folder / "site"),
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }
    command = [sys.executable, "-S", "-c", script, *arguments]
    return subprocess.run(command, env=environment, cwd=folder, check=True, text=True, stdout=subprocess.PIPE).stdout


def _link_packages(folder: pathlib.Path, *more: str) -> None:
    folder.mkdir()
    found = importlib.util.find_spec("jax")
    assert found is not None
    assert found.origin is not None
    site = pathlib.Path(found.origin).parents[1]
    for path in itertools.chain.from_iterable(map(site.glob, (*NEEDED, *more))):
        (folder / path.name).symlink_to(path)
