"""sort-to-top-k: the same elements in the same order, for less."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stablehlo_mem as shm
from stablehlo_mem.passes.sort_to_top_k import SortToTopK
from tests.support import exported, refusals, rewritten, spec

PASS = SortToTopK()
ONLY = shm.Options(passes=("sort-to-top-k",))

FUNCTIONS = {
    "first": lambda x: jnp.sort(x)[:, :5],
    "last": lambda x: jnp.sort(x)[:, -5:],
    "both halves of one end": lambda x: (jnp.sort(x)[:, 2:5], jnp.sort(x)[:, 0]),
    "first indices": lambda x: jnp.argsort(x)[:, :20],
    "last indices": lambda x: jnp.argsort(x)[:, -7:],
    "descending": lambda x: jnp.sort(x, descending=True)[:, :5],
    "descending indices": lambda x: jnp.argsort(x, descending=True)[:, :5],
    "of the negated": lambda x: -jnp.sort(-x)[:, :5],
    "flipped": lambda x: jnp.flip(jnp.argsort(x), -1)[:, :5],
    "along the first dimension": lambda x: jnp.argsort(x.T, axis=0)[:5],
    "payloads": lambda x: [y[:2, :5] for y in jax.lax.sort((x, x * 2, jnp.cumsum(x, 1)), num_keys=1)],
    "last payloads": lambda x: [y[:, -3:] for y in jax.lax.sort((x, jnp.cumsum(x, 1)), num_keys=1)],
}


def data(seed, shape, dtype):
    """Many ties, and for floats NaNs of both signs, infinities, zeros of both signs and denormals."""
    rng = np.random.default_rng(seed)
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        return rng.choice(np.array([info.min, info.max, 0, 1, 2, 3], dtype), shape)
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40], np.float32)
    values = np.where(rng.random(shape) < 0.5, rng.choice(special, shape), rng.integers(-3, 4, shape))
    return np.asarray(jnp.asarray(values.astype(np.float32)).astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gives_the_same_bits(name, dtype):
    after = rewritten(PASS, FUNCTIONS[name], data(0, (4, 100), jnp.dtype(dtype)))
    assert after.count == 1
    assert "stablehlo.sort" not in after.text
    assert after.same_bits


def with_positions(x, dtype):
    """The first elements and where they were, the positions converted and spread over the rows."""
    positions = jnp.broadcast_to(jnp.arange(x.shape[1]).astype(dtype), x.shape)
    return [y[:, :5] for y in jax.lax.sort((x, positions), num_keys=1)]


@pytest.mark.parametrize(("dtype", "gathers"), [("int32", 1), ("int16", 1), ("float32", 2), ("int8", 2)])
def test_positions_are_those_of_the_top_k_where_their_type_holds_them(dtype, gathers):
    """The key is gathered in any case; so are floats, and positions in int8, which does not count 300 columns."""
    after = rewritten(PASS, lambda x: with_positions(x, dtype), data(0, (4, 300), np.float32))
    assert after.count == 1
    assert after.text.count('"stablehlo.gather"') == gathers
    assert after.same_bits


@settings(max_examples=16, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    rows=st.integers(1, 4),
    columns=st.integers(68, 300),
    k=st.integers(1, 17),
    last=st.booleans(),
    descending=st.booleans(),
    dtype=st.sampled_from(["float32", "bfloat16", "int8"]),
)
def test_at_any_size(seed, rows, columns, k, last, descending, dtype):
    def f(x):
        taken = slice(columns - k, None) if last else slice(k)
        return tuple(sort(x, axis=1, descending=descending)[:, taken] for sort in (jnp.sort, jnp.argsort))

    after = rewritten(PASS, f, data(seed, (rows, columns), jnp.dtype(dtype)))
    assert after.count == 2
    assert after.same_bits


@pytest.mark.parametrize(
    ("f", "dtype", "code"),
    [
        (lambda x: jnp.sort(x)[:, :30], np.float32, "too-many"),
        (lambda x: jnp.sort(x)[:, :5], np.int32, "no-top-k"),
        (lambda x: jax.lax.sort((x, x), num_keys=2)[1][:, :5], np.float32, "unknown-comparator"),
        (lambda x: jax.lax.sort((x, x * 2), is_stable=False)[1][:, :5], np.float32, "not-stable"),
        (lambda x: jnp.sort(x)[:, ::4], np.float32, None),
        (lambda x: jnp.sort(x), np.float32, None),
        (lambda x: (jnp.sort(x)[:, :5], jnp.sort(x).sum()), np.float32, None),
        (lambda x: jnp.quantile(x, 0.01), np.float32, None),
    ],
)
def test_refuses(f, dtype, code):
    assert refusals(PASS, f, np.ones((4, 100), dtype)) == [code]


def neighbours(x, y):
    return jnp.argsort((y * y).sum(-1) - 2 * x @ y.T, axis=1)[:, :10]


def test_saves_time_on_its_own():
    plan = shm.plan(exported(neighbours, spec(256, 16), spec(16384, 16)), None, target="cpu", options=ONLY)
    assert [s.pass_name for s in plan.steps] == ["sort-to-top-k"]
    assert plan.after.peak_bytes < 0.6 * plan.before.peak_bytes


@pytest.mark.parametrize("target", ["cpu", "tpu:v5e"])
def test_brings_a_program_within_its_budget(target):
    if target != "cpu":
        pytest.importorskip("libtpu")
    program = exported(neighbours, spec(256, 16), spec(16384, 16), platform=target.partition(":")[0])
    budget = 17 * 2**20 + 2**18 if target == "cpu" else 4 * 2**20
    plan = shm.plan(program, budget, target=target, options=ONLY)
    assert plan.before.peak_bytes > budget >= plan.after.peak_bytes
    assert plan.fits
