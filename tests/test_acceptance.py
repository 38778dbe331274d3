"""The programs of the first issue, as a user writes them, at full size on three compilers: the budget is kept.

The budget is arguments + outputs + a tenth of the smallest temporaries that the original has on any of the three
targets; the last program gets 256 MiB. What is measured here is compiled here, not by the library.
"""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export
from jax.sharding import SingleDeviceSharding

import stablehlo_mem as shm
from stablehlo_mem.targets.chips import CHIPS
from stablehlo_mem.targets.devices import topology_devices
from tests.programs.forward import attention, head, kmeans, knn, mlp, rbf
from tests.support import UNOPTIMISED, memory_of, spec

MIB = 2**20
PLATFORMS = {"cpu": "cpu", "tpu:v5e": "tpu", "cuda:h200": "cuda"}
PLUGINS = {"tpu:v5e": "libtpu", "cuda:h200": "jax_plugins.xla_cuda12"}


@dataclasses.dataclass(frozen=True)
class Case:
    """`room`: bytes for temporaries: a tenth of the smallest of the original's, as the compilers of jaxlib 0.10.2 and
    libtpu gave them (`FIT_BASELINE=1` of the acceptance judge), in MiB; where the TPU's refuses, by its message."""

    fun: Callable[..., Any]
    specs: tuple[Any, ...]
    room: int


CASES = {
    "attention": Case(attention, (spec(8, 16384, 64),) * 3, 8256 * MIB // 10),
    "kernel": Case(rbf, (spec(50_000, 8), spec(50_000, 8), spec(50_000)), 9537 * MIB // 10),
    "nearest": Case(knn, (spec(50_000, 32), spec(50_000, 32)), 9537 * MIB // 10),
    "head": Case(head, (spec(16384, 2048), spec(2048, 131072), spec(16384, dtype=np.int32)), 8208 * MIB // 10),
    "mlp": Case(mlp, (spec(65536, 1024), spec(1024, 16384), spec(16384, 1024)), 4096 * MIB // 10),
    "assignment": Case(kmeans, (spec(1_000_000, 64), spec(1024, 64)), 3910 * MIB // 10),
    "kernel_prime": Case(rbf, (spec(1_000_003, 8), spec(1_000_003, 8), spec(1_000_003)), 256 * MIB),
}


def place(specs, target):
    if target == "cpu":
        return specs
    sharding = SingleDeviceSharding(topology_devices(CHIPS[target], 1)[0])
    return [jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding) for s in specs]


def compiled_bytes(fun, specs, target):
    """(arguments + outputs, temporaries) by the target's compiler."""
    options = UNOPTIMISED if target == "cpu" else None
    return memory_of(jax.jit(fun).lower(*place(specs, target)).compile(compiler_options=options))


def fixed_bytes(case, target):
    """Arguments + outputs as the target lays them out: of a program that reads all and computes next to nothing."""
    outputs = jax.eval_shape(case.fun, *case.specs)

    def trivial(*arguments):
        first = sum(a.reshape(-1)[0].astype(jnp.float32) for a in arguments)
        return jax.tree.map(lambda o: jnp.full(o.shape, first).astype(o.dtype), outputs)

    return compiled_bytes(trivial, case.specs, target)[0]


def original_bytes(case, target):
    try:
        return sum(compiled_bytes(case.fun, case.specs, target))
    except jax.errors.JaxRuntimeError as error:
        if not re.search(r"RESOURCE_EXHAUSTED|[Oo]ut of memory", str(error)):
            raise
        return float("inf")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("target", PLATFORMS)
def test_the_budget_is_kept(target, name):
    if target in PLUGINS:
        pytest.importorskip(PLUGINS[target])
    case = CASES[name]
    budget = fixed_bytes(case, target) + case.room
    if name != "kernel_prime":  # terabytes: no compiler need be asked
        assert original_bytes(case, target) > budget
    original = export(jax.jit(case.fun), platforms=[PLATFORMS[target]])(*case.specs)
    plan = shm.plan(original, budget, target=target)
    assert plan.fits
    assert plan.steps
    # Two need no loop: on GPU and TPU rbf is fused once its short sum is unrolled, on TPU attention has a kernel.
    fused = target != "cpu" and case.fun is rbf
    text = plan.result.mlir_module()
    assert fused or "stablehlo.while" in text or "@tpu_custom_call" in text
    fixed, temporaries = compiled_bytes(plan.result.call, case.specs, target)
    assert fixed + temporaries <= budget
    assert shm.optimize(plan.result, budget, target=target) is plan.result
