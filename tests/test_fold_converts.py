"""fold-converts: dots of narrow operands, every product and sum as before."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stablehlo_mem as shm
from stablehlo_mem.passes.fold_converts import FoldConverts
from tests.support import exported, refusals, rewritten, spec

PASS = FoldConverts()
ONLY = shm.Options(passes=("fold-converts",))
WIDE = {"bfloat16": np.float32, "float16": np.float32, "int8": np.int32}


def data(seed, shape, dtype):
    rng = np.random.default_rng(seed)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    values = rng.normal(size=shape).astype(np.float32)
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-7], np.float32)
    return np.asarray(jnp.asarray(np.where(rng.random(shape) < 0.02, rng.choice(special, shape), values)).astype(dtype))


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from(sorted(WIDE)),
    m=st.integers(1, 40),
    k=st.integers(1, 300),
    n=st.integers(1, 40),
    turned=st.booleans(),
)
def test_gives_the_same_bits(seed, dtype, m, k, n, turned):
    def f(x, w):
        x, w = x.astype(WIDE[dtype]), w.astype(WIDE[dtype])
        return (x.T if turned else x) @ w, jnp.einsum("...k,kn->...n", x.T[:, None] if turned else x[:, None], w)

    x, w = data(seed, (k, m) if turned else (m, k), jnp.dtype(dtype)), data(seed + 1, (k, n), jnp.dtype(dtype))
    after = rewritten(PASS, f, x, w)
    assert after.count >= 1
    assert after.same_bits


@pytest.mark.parametrize(
    ("f", "dtypes", "code"),
    [
        (lambda x, w: x.astype(np.float32) @ w, ("bfloat16", "float32"), "mixed-types"),
        (lambda x, w: x.astype(np.float32) @ w.astype(np.float32), ("bfloat16", "float16"), "mixed-types"),
        (lambda x, w: x.astype(np.float32) @ w.astype(np.float32), ("int8", "int8"), "not-widened"),
        (lambda x, w: x.astype(np.uint32) @ w.astype(np.uint32), ("uint8", "uint8"), "not-widened"),
        (lambda x, w: x @ w, ("float32", "float32"), None),
        (lambda x, w: jnp.dot(x, w, preferred_element_type=np.float32), ("bfloat16", "bfloat16"), None),
    ],
)
def test_refuses(f, dtypes, code):
    assert refusals(PASS, f, *(data(0, (8, 8), jnp.dtype(d)) for d in dtypes)) == [code]


def quantised(x, w):
    return x.astype(np.int32) @ w.astype(np.int32)


def test_saves_time_on_its_own():
    specs = spec(4096, 1024, dtype=np.int8), spec(1024, 4, dtype=np.int8)
    plan = shm.plan(exported(quantised, *specs), None, target="cpu", options=ONLY)
    assert [s.pass_name for s in plan.steps] == ["fold-converts"]


def test_brings_a_program_within_its_budget():
    pytest.importorskip("jax_plugins.xla_cuda12")
    specs = spec(2048, 2048, dtype=np.int8), spec(2048, 2048, dtype=np.int8)
    plan = shm.plan(exported(quantised, *specs, platform="cuda"), "33MiB", target="cuda:h200", options=ONLY)
    assert plan.before.peak_bytes > 33 * 2**20 >= plan.after.peak_bytes
    assert plan.fits
