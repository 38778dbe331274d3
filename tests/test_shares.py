"""Budgets that are shares of a program's temporaries, or of the memory of a device."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stablehlo_mem as shm
from stablehlo_mem.planner.shares import of_device
from stablehlo_mem.targets import free_memory
from stablehlo_mem.targets.chips import CHIPS
from stablehlo_mem.targets.target import named_targets
from stablehlo_mem.utils.units import parse_budget
from tests.support import exported

MIB = 2**20


class Device:
    """Stands for a device of this machine, as JAX shows it."""

    def __init__(self, limit: int, in_use: int):
        self.stats = {"bytes_limit": limit, "bytes_in_use": in_use}

    def memory_stats(self) -> dict[str, int]:
        return self.stats


@pytest.fixture
def devices(monkeypatch):
    """Two devices of 16 MiB, 4 and 6 of which are in use."""
    there = [Device(16 * MIB, 4 * MIB), Device(16 * MIB, 6 * MIB)]
    monkeypatch.setattr(free_memory, "local_devices", lambda platform: there)
    return there


def kernel(x):
    return jnp.exp(-jnp.abs(x[:, None] - x[None])).sum(1)


def test_what_is_free_on_the_fullest_device(devices):
    cpu = named_targets("cpu")
    assert of_device(parse_budget("device"), cpu) == 10 * MIB
    assert of_device(parse_budget("50% of device"), cpu) == 5 * MIB


def test_arguments_that_are_there_are_free_but_no_more_than_there_is(devices):
    cpu = named_targets("cpu")
    assert of_device(parse_budget("device"), cpu, held_bytes=2 * MIB) == 12 * MIB
    assert of_device(parse_budget("device"), cpu, held_bytes=20 * MIB) == 16 * MIB


def test_a_named_chip_is_empty():
    assert of_device(parse_budget("device"), named_targets("tpu:v5e")) == CHIPS["tpu:v5e"].memory_bytes
    of_both = of_device(parse_budget("10% of device"), named_targets(("tpu:v5e", "cuda:h200")))
    assert of_both == CHIPS["tpu:v5e"].memory_bytes // 10


def test_the_memory_of_a_cpu_is_what_the_host_can_give():
    total, free = free_memory.device_memory(named_targets("cpu")[0])
    assert 0 < free <= total


def test_other_budgets_stay_as_they_are():
    for budget in (5, "min", None, "25%"):
        assert of_device(parse_budget(budget), named_targets("cpu")) == parse_budget(budget)


def test_a_tenth_of_the_temporaries():
    program = exported(kernel, jax.ShapeDtypeStruct((2048,), jnp.float32))
    before: Any = shm.profile(program, target="cpu").measured
    plan = shm.plan(program, "10%", target="cpu")
    assert plan.fits
    assert plan.steps
    budget = before.peak_bytes - before.temp_bytes + before.temp_bytes // 10
    assert plan.budget_bytes == budget
    assert plan.after.peak_bytes <= budget < before.peak_bytes
    assert shm.explain(program, budget="10%", target="cpu").goal_bytes <= before.temp_bytes // 5


def test_a_function_is_kept_within_what_is_free(devices):
    x = jnp.linspace(0, 1, 2048)
    assert not shm.jit(kernel).plan(x[:16]).steps
    plan = shm.jit(kernel).plan(x)
    assert plan.steps
    assert plan.fits
    assert plan.budget_bytes == 10 * MIB + x.nbytes
    assert plan.after.peak_bytes <= plan.budget_bytes < plan.before.peak_bytes
    np.testing.assert_allclose(shm.jit(kernel)(x), jax.jit(kernel)(x), rtol=1e-5)


def test_a_share_is_one_of_the_derivatives_own_temporaries(tmp_path, monkeypatch):
    """Planned, and replayed from the cache."""
    monkeypatch.setenv("STABLEHLO_MEM_CACHE", str(tmp_path))
    program = exported(lambda x: kernel(x).sum(), jax.ShapeDtypeStruct((2048,), jnp.float32))
    for _ in range(2):
        vjp = shm.optimize(program, "10%", target="cpu").vjp()
        measured: Any = shm.profile(vjp, target="cpu").measured
        original: Any = shm.profile(program.vjp(), target="cpu").measured
        assert measured.temp_bytes <= original.temp_bytes // 10


def test_what_is_smaller_but_too_slow_is_said():
    program = exported(
        lambda q, k, v: jax.nn.softmax(q @ k.T) @ v, *[jax.ShapeDtypeStruct((2048, 64), jnp.float32)] * 3
    )
    with pytest.raises(shm.BudgetError, match=r"times the estimated time: .*; Options\(max_slowdown=2.0\)") as raised:
        shm.optimize(program, 4 * 2048 * 64 * 4, target="cpu")  # no more than arguments and outputs
    best = raised.value.best
    assert best is not None
    assert best.smaller_but_slow is not None
    assert best.smaller_but_slow.peak_bytes < best.after.peak_bytes
    assert best.smaller_but_slow.slowdown > 2


def test_a_budget_by_position():
    x = jnp.linspace(0, 1, 2048)
    assert shm.jit(kernel, "4MiB").plan(x).budget_bytes == 4 * MIB
