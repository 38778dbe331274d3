"""Targets: named, resolved for a program, and measuring what its compiler says; devices are not needed."""

import dataclasses
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tomllib
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export

import stablehlo_mem as shm
from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.errors import InputError, TargetError
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.targets import compile as compiling
from stablehlo_mem.targets import devices, isolated_compile
from stablehlo_mem.targets.chips import CHIPS, Kind
from stablehlo_mem.targets.compile import hlo_constant_bytes, refusal
from stablehlo_mem.targets.gpu_configs import target_config
from stablehlo_mem.targets.measurement import Measured, Refused
from stablehlo_mem.targets.target import named_targets, resolve_targets

needs = {
    "cpu": pytest.mark.skipif(False, reason=""),
    "tpu": pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed"),
    "cuda": pytest.mark.skipif(not devices.is_installed("cuda"), reason="no CUDA plugin is installed"),
}
NAMES = [pytest.param(name, marks=needs[chip.kind]) for name, chip in CHIPS.items()]
THREE = [pytest.param(name, marks=needs[CHIPS[name].kind]) for name in ("cpu", "tpu:v5e", "cuda:h200")]
MIB = 2**20


def measure(name, fun, *specs, donate=(), x64=False):
    (target,) = named_targets(name)
    with jax.enable_x64(x64):
        program = ingest(export(jax.jit(fun, donate_argnums=donate), platforms=(target.platform,))(*specs))
    return target.measure(program, program.module)


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


@pytest.mark.parametrize("name", THREE)
def test_a_sort_of_scores_is_measured(name):
    measured = measure(name, lambda q, k: jnp.sort(q @ k.T)[:, :128], f32(8192, 128), f32(8192, 128))
    assert isinstance(measured, Measured)
    assert measured.argument_bytes == 8 * MIB
    assert measured.output_bytes == 4 * MIB
    assert 256 * MIB <= measured.temp_bytes < 800 * MIB  # the scores, and sorted
    assert measured.peak_bytes == 12 * MIB + measured.temp_bytes + measured.constant_bytes


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("specs", [(), (f32(4),)], ids=["no arguments", "none that is used"])
def test_programs_of_nothing_are_compiled_for_their_target(name, specs):
    measured = measure(name, lambda *_: jnp.zeros((8, 128)), *specs)
    assert isinstance(measured, Measured)
    assert measured.output_bytes == 8 * 128 * 4


@pytest.mark.parametrize("name", THREE)
def test_embedded_constants_are_counted(name):
    table = np.random.default_rng(0).standard_normal((2048, 1024)).astype(np.float32)
    measured = measure(name, lambda x: x @ jnp.asarray(table), f32(16, 2048))
    assert isinstance(measured, Measured)
    assert 4 * MIB <= measured.constant_bytes < 9 * MIB  # the TPU compiler keeps it as bf16


@pytest.mark.parametrize("name", THREE)
def test_donation_is_kept(name):
    def step(unused, state, gradient):
        return state - gradient

    measured = measure(name, step, f32(7), f32(1024, 1024), f32(1024, 1024), donate=1)
    assert isinstance(measured, Measured)
    assert measured.alias_bytes == 4 * MIB
    assert measured.peak_bytes < 9 * MIB


@pytest.mark.parametrize("name", THREE)
def test_unused_arguments_do_not_count(name):
    measured = measure(name, lambda unused, x: x + 1, f32(1024, 1024), f32(256, 1024))
    assert isinstance(measured, Measured)
    assert measured.argument_bytes == MIB


@pytest.mark.parametrize("name", THREE)
def test_64_bit_modules_measure_where_x64_is_off(name):
    assert not jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    wide = jax.ShapeDtypeStruct((256, 1024), np.float64)
    measured = measure(name, lambda x: x + jnp.arange(1024), wide, x64=True)
    assert isinstance(measured, Measured)
    assert measured.argument_bytes == measured.output_bytes == 2 * MIB


@pytest.mark.parametrize("name", THREE)
def test_keys_are_arguments_like_others(name):
    key = jax.eval_shape(lambda: jax.random.key(0))
    measured = measure(name, lambda k, x: x + jax.random.normal(k, x.shape), key, f32(256, 1024))
    assert isinstance(measured, Measured)
    assert measured.argument_bytes >= MIB + 8


@pytest.mark.parametrize("name", THREE)
def test_a_raw_module_measures_as_the_exported_does(name):
    def loss(x, y):
        return jax.nn.softmax(x @ y).sum(), x * 2

    specs = f32(1024, 512), f32(512, 1024)
    (target,) = named_targets(name)
    program = ingest(str(jax.jit(loss, donate_argnums=0).lower(*specs).compiler_ir()))
    raw = target.measure(program, program.module)
    assert raw == measure(name, loss, *specs, donate=0)
    assert isinstance(raw, Measured)
    assert raw.alias_bytes == 2 * MIB


def kmeans(x, c):
    return jnp.argmin(((x[:, None] - c[None]) ** 2).sum(-1), 1)


def attention(q):
    return jax.nn.softmax(q @ q.T) @ q


@pytest.mark.parametrize(
    ("fun", "shapes", "at_least"),
    [
        (kmeans, [(600_000, 16), (1024, 16)], 2300 * MIB),  # with the fusions; 2 MiB without
        (attention, [(4096, 64)], 64 * MIB),  # the scores, without the fusions; 0 with
    ],
)
def test_cpu_reports_with_and_without_fusions_and_the_larger_counts(fun, shapes, at_least):
    measured = measure("cpu", fun, *(f32(*shape) for shape in shapes))
    assert isinstance(measured, Measured)
    assert measured.temp_bytes >= at_least


@pytest.mark.parametrize(
    ("fails_with_options", "message", "refused"),
    [
        (False, "RESOURCE_EXHAUSTED: Out of memory allocating 8.0GiB", True),
        (False, "INTERNAL: no such luck", True),
        (True, "RESOURCE_EXHAUSTED: Out of memory allocating 8.0GiB", True),
        (True, "INTERNAL: no such luck", False),
        (True, "INVALID_ARGUMENT: No such compile option: 'xla_cpu_experimental_ynn_fusion_type'", False),
    ],
)
def test_a_failure_of_one_of_the_cpu_reports(monkeypatch, fails_with_options, message, refused):
    compile_original = jax.stages.Lowered.compile

    def compile_or_fail(self, compiler_options=None):
        is_without_fusions = "xla_cpu_experimental_ynn_fusion_type" in (compiler_options or {})
        if is_without_fusions is fails_with_options:
            raise jax.errors.JaxRuntimeError(message)
        return compile_original(self, compiler_options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", compile_or_fail)
    measured = measure("cpu", kmeans, f32(6000, 16), f32(1024, 16))
    if refused:
        assert measured == Refused(message, measured.needed_bytes)
        assert measured.needed_bytes == (8 * 2**30 if "RESOURCE" in message else None)
    else:
        assert isinstance(measured, Measured)
        assert measured.temp_bytes >= 6000 * 1024 * 4  # the fused report alone


def test_without_fusions_there_is_nothing_else_to_report():
    for fun in (jnp.sort, jnp.cumsum, jnp.linalg.cholesky, lambda x: jnp.sin(x) + jnp.cos(x).T):
        lowered = jax.jit(fun).lower(f32(256, 256))
        plain = lowered.compile(compiler_options=compiling._NO_YNN_FUSIONS).as_text()
        assert compiling._YNN_FUSION not in plain
        assert lowered.compile().as_text() == plain


def test_a_report_is_the_same_without_the_passes_of_llvm():
    def attention(q):
        return (jax.nn.softmax(q @ q.T) @ q).sum()

    fused = {k: v for k, v in compiling._NO_YNN_FUSIONS.items() if "ynn" in k}
    assert len(fused) == len(compiling._NO_YNN_FUSIONS) - 1
    for fun in (attention, jax.grad(attention)):
        lowered = jax.jit(fun).lower(f32(2048, 64))
        quick, usual = (lowered.compile(compiler_options=o) for o in (compiling._NO_YNN_FUSIONS, fused))
        assert compiling._YNN_FUSION in lowered.compile().as_text()
        assert compiling._figures(quick, quick.as_text()) == compiling._figures(usual, usual.as_text())


@needs["tpu"]
def test_a_refusal_says_what_is_needed():
    def attention(q):
        return jax.grad(lambda q: (jax.nn.softmax(q @ q.T) @ q).sum())(q)

    refused = measure("tpu:v5e", attention, f32(65536, 64))
    assert isinstance(refused, Refused)
    assert refused.needed_bytes is not None
    assert 16 * 2**30 <= refused.needed_bytes < 34 * 2**30
    assert "HBM" in refused.message or "hbm" in refused.message


DIES = "import os, pickle, sys; pickle.load(sys.stdin.buffer); print('stack overflow', file=sys.stderr); os.abort()"


@needs["tpu"]
def test_a_compiler_that_dies_refuses_and_the_next_one_lives(monkeypatch):
    mine = isolated_compile._Worker()
    monkeypatch.setattr(isolated_compile, "_worker", lambda pid: mine)
    with monkeypatch.context() as dying:
        dying.setattr(isolated_compile, "_COMMAND", (sys.executable, "-c", DIES))
        refused = measure("tpu:v5e", lambda x: x @ x.T, f32(64, 64))
    assert isinstance(refused, Refused)
    assert refused.needed_bytes is None
    assert "died (SIGABRT): " in refused.message
    assert "stack overflow" in refused.message
    assert isinstance(measure("tpu:v5e", lambda x: x @ x.T, f32(64, 64)), Measured)
    mine.close()


def test_refusals_are_read_as_the_compilers_write_them():
    temporaries = "RESOURCE_EXHAUSTED: total memory required for HLO temporaries (2.50G) exceeds available HBM"
    assert refusal(temporaries, 100).needed_bytes == int(2.5 * 2**30) + 100
    total = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.00G of 15.75G hbm."
    assert refusal(total, 100).needed_bytes == 20 * 2**30
    assert refusal("INTERNAL: Couldn't find output tile sizes", 100).needed_bytes is None


def test_constants_are_read_from_compiled_text():
    text = """
  %c.1 = f32[4096,1000]{1,0:T(8,128)} constant({...})
  %c.2 = pred[10]{0} constant({1,0})
  %c.3 = c64[2,3]{1,0} constant({...}), metadata={op_name="constant(x)"}
  %c.4 = bf16[8]{0:T(256)} constant({...})
  %c.5 = s4[8]{0} constant({...})
  %scalar = f32[] constant(1)
  %x = f32[100]{0} add(%constant, %c.1)
"""
    assert hlo_constant_bytes(text) == 4096 * 1000 * 4 + 10 + 6 * 8 + 16 + 4


@needs["cuda"]
def test_chips_differ_where_their_compilers_do():
    assert devices.topology_devices(CHIPS["cuda:a100"], 1)[0].device_kind == "NVIDIA A100-SXM4-80GB"
    assert "H200" in devices.topology_devices(CHIPS["cuda:h200"], 1)[0].device_kind


def test_every_kind_of_chip_has_its_places():
    """What docs/writing_a_target.md lists, where a place that is forgotten shows only when the chip is used."""
    kinds = set(get_args(Kind))
    assert set(devices.COMPILERS) == {chip.kind for chip in CHIPS.values()} == kinds
    assert all(compiler_model(chip) for chip in CHIPS.values())
    project = tomllib.loads((pathlib.Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert kinds - {"cpu"} <= set(project["optional-dependencies"])
    assert {name for name, chip in CHIPS.items() if chip.kind == "tpu"} == set(devices._GRIDS)
    assert all(target_config(name) for name, chip in CHIPS.items() if chip.kind == "cuda")


def test_a_chip_of_an_unknown_kind_is_refused_by_name():
    chip = dataclasses.replace(CHIPS["tpu:v5e"], name="npu:one", kind="npu")
    with pytest.raises(TargetError, match="npu:one is of an unknown kind 'npu': known are cpu, cuda, tpu"):
        devices.topology_devices(chip, 1)
    with pytest.raises(TargetError, match="must be attached"):
        devices.topology_devices(CHIPS["cpu"], 1)


@pytest.mark.parametrize(
    ("name", "chip", "count"),
    [("tpu:v5e:2x4", "tpu:v5e", 8), ("tpu:v5p:2x2x1", "tpu:v5p", 4), ("cuda:h200x8", "cuda:h200", 8)],
)
def test_topologies_by_name(name, chip, count):
    if not devices.is_installed(CHIPS[chip].kind):
        pytest.skip("needs its compiler")
    (target,) = named_targets(name)
    assert target.chip is CHIPS[chip]
    assert len(target.devices()) == count


@needs["tpu"]
def test_a_topology_that_the_compiler_does_not_know():
    (target,) = named_targets("tpu:v5e:3x5")
    with pytest.raises(TargetError, match="no tpu:v5e in a grid of 3x5: it knows 2x2, 2x4"):
        target.devices()


def test_resolving():
    one = ingest(export(jax.jit(jnp.sin), platforms=("cpu",))(f32(4)))
    two = ingest(export(jax.jit(jnp.sin), platforms=("cpu", "tpu"))(f32(4)))
    raw = ingest(str(jax.jit(jnp.sin).lower(f32(4)).compiler_ir()))
    assert [t.name for t in resolve_targets(None, one)] == ["cpu"]
    assert [t.name for t in resolve_targets(("tpu:v5e", "cpu"), two)] == ["tpu:v5e", "cpu"]
    assert [t.name for t in resolve_targets("tpu:v6e", raw)] == ["tpu:v6e"]
    mine = shm.Target("tpu:v5e", "tpu", CHIPS["tpu:v5e"])
    assert resolve_targets(mine, raw) == (mine,)
    if not devices.local_devices("cuda"):
        assert resolve_targets("cuda", raw)[0].name == "cuda:h200"


@pytest.mark.parametrize(
    ("target", "platforms", "message"),
    [
        ("quantum", ("cpu",), "unknown target 'quantum'.*tpu:v5e"),
        ("tpu:v1", ("tpu",), "unknown target"),
        ("tpu:v5ex4", ("tpu",), "unknown target"),
        ("cuda:h200:2x4", ("cuda",), "unknown target"),
        (3, ("cpu",), "name or a"),
        ((), ("cpu",), "no target"),
        (None, ("tpu",), "default backend.*exported for tpu"),
        ("cpu", ("tpu", "cuda"), "exported for tpu, cuda"),
        (None, ("cpu", "tpu"), "one target each"),
        ("cpu", ("cpu", "tpu"), "target for tpu too"),
    ],
)
def test_targets_that_do_not_suit(target, platforms, message):
    program = ingest(export(jax.jit(jnp.sin), platforms=platforms)(f32(4)))
    with pytest.raises(TargetError, match=message):
        resolve_targets(target, program)


@pytest.mark.parametrize(("name", "extra"), [("tpu:v5e", "tpu"), ("cuda:h200", "cuda")])
def test_a_missing_plugin_names_the_extra(monkeypatch, name, extra):
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    devices.topology_devices.cache_clear()
    with pytest.raises(TargetError, match=rf"pip install stablehlo-mem\[{extra}\]"):
        shm.Target(name, extra, CHIPS[name]).devices()


def test_a_raw_module_over_several_devices():
    text = """module attributes {mhlo.num_partitions = 8 : i32} {
      func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> } }"""
    program = ingest(text)
    with pytest.raises(InputError, match="8 devices"):
        named_targets("cpu")[0].measure(program, program.module)


SHARDED = """
import json, numpy as np, jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.targets.target import named_targets
sharding = NamedSharding(Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y")), P("x", "y"))
spec = jax.ShapeDtypeStruct((1024, 1024), jnp.float32, sharding=sharding)
exported = jax.export.export(jax.jit(lambda x: x @ x.T), platforms=("cpu", "tpu"))(spec)
program = ingest(exported)
print(json.dumps([t.measure(program, program.module).argument_bytes for t in named_targets(("cpu", "tpu:v5e"))]))
from stablehlo_mem.targets.compile import measure
try:
    measure(program, program.module, "cpu", jax.devices()[:1])
except Exception as error:
    print(error)
"""


@needs["tpu"]
def test_shardings_over_several_devices():
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = subprocess.run([sys.executable, "-c", SHARDED], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    measured, too_few = done.stdout.splitlines()
    assert json.loads(measured) == [MIB, MIB]
    assert "4 devices and this target has 1" in too_few


UNTOUCHED = """
import os, sys
before = dict(os.environ)
import jax
values = {k: getattr(jax.config, k) for k in ("jax_enable_x64", "jax_platforms")}
import stablehlo_mem, stablehlo_mem.targets.devices
from jax._src import xla_bridge
assert not xla_bridge.backends_are_initialized()
assert values == {k: getattr(jax.config, k) for k in values}
assert {k: v for k, v in os.environ.items() if before.get(k) != v} == {}, set(os.environ) - set(before)
"""


def test_importing_starts_nothing():
    done = subprocess.run([sys.executable, "-c", UNTOUCHED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@needs["cuda"]
@needs["tpu"]
def test_topologies_without_any_setting_of_the_users():
    script = """
import os, jax
from stablehlo_mem.targets.target import named_targets
targets = named_targets(("cuda:h100", "tpu:v5e"))
print([t.devices()[0].platform for t in targets], "ALLOW_MULTIPLE_LIBTPU_LOAD" in os.environ)
"""
    environment = {k: v for k, v in os.environ.items() if k not in {"JAX_PLATFORMS", *devices._TPU_ENVIRONMENT}}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("False"), done.stderr
    assert "'tpu'" in done.stdout


@needs["tpu"]
def test_a_topology_is_described_quietly_and_leaves_the_environment_alone():
    script = """
import os, sys, jax
jax.local_devices()
print("loading", file=sys.stderr, flush=True)
before = dict(os.environ)
from stablehlo_mem.targets.target import named_targets
for target in named_targets(("tpu:v5e", "tpu:v6e", "tpu:v5p")):
    target.devices(16)
assert dict(os.environ) == before
"""
    environment = {k: v for k, v in os.environ.items() if k not in devices._TPU_ENVIRONMENT}
    environment["JAX_PLATFORMS"] = "cpu"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.rstrip().endswith("loading"), done.stderr
