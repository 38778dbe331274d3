"""blocked-top-k: the same elements at the same indices, bit by bit, for less."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stablehlo_mem as shm
from stablehlo_mem.passes.blocked_top_k import BlockedTopK
from tests.support import exported, normals, rewritten, spec
from tests.test_sort_to_top_k import data

PASS = BlockedTopK()
TYPES = ["float32", "bfloat16", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32"]


def largest(k):
    return lambda x: jax.lax.top_k(x, k)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [4096, 5000, 10007])
def test_gives_the_same_bits(dtype, n):
    after = rewritten(PASS, largest(7), data(0, (3, n), jnp.dtype(dtype)))
    assert after.count == 1
    assert after.text.count("chlo.top_k") == 2
    assert after.same_bits


def test_gives_the_same_bits_of_doubles():
    with jax.enable_x64(True):
        doubles = data(0, (2, 6000), jnp.dtype("float32")).astype(np.float64)
        after = rewritten(PASS, largest(7), doubles)
    assert after.count == 1
    assert after.same_bits


@settings(max_examples=16, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    shape=st.sampled_from([(), (1,), (5,), (2, 3), (0,)]),
    n=st.integers(4096, 9000),
    k=st.integers(1, 20),
    spread=st.integers(1, 10_000),
)
def test_ties_stay_in_order(seed, shape, n, k, spread):
    """Few different numbers: nearly every block's maximum is a tie."""
    x = np.random.default_rng(seed).integers(0, spread, (*shape, n)).astype(np.float32)
    after = rewritten(PASS, largest(k), x)
    assert after.count == (0 not in shape)
    assert after.same_bits


@pytest.mark.parametrize(("n", "k"), [(4095, 1), (4096, 200), (100, 100)])
def test_few_elements_or_many_wanted_stay(n, k):
    assert rewritten(PASS, largest(k), data(0, (3, n), jnp.dtype("float32"))).count == 0


def neighbours(x, q):
    return jax.lax.top_k(-((q[:, None] - x[None]) ** 2).sum(-1), 5)


@pytest.mark.parametrize("target", ["cpu", "cuda:h200"])
def test_neighbours_keep_their_budget(target):
    if target != "cpu":
        pytest.importorskip("jax_plugins.xla_cuda12")
    shapes = [spec(20_000, 8), spec(500, 8)]
    program = exported(neighbours, *shapes, platform=target.partition(":")[0])
    before = shm.profile(program, target=target).peak_bytes
    budget = before // 10
    plan = shm.plan(program, budget, target=target)
    assert before > budget >= plan.after.peak_bytes
    if target == "cpu":
        assert "blocked-top-k" in [step.pass_name for step in plan.steps]
        x, q = normals(20_000, 8), normals(500, 8)
        expected, found = neighbours(x, q), plan.result.call(x, q)
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
        assert (found[1] == expected[1]).mean() > 0.999
