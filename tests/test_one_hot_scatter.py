"""one-hot-scatter: a scatter that writes one element a row where all else is one number becomes a select."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stablehlo_mem as shm
from stablehlo_mem.passes.one_hot_scatter import OneHotScatter
from tests.support import OPTIMISED, exported, in_f64, normals, rewritten, spec, yardstick

PASS = OneHotScatter()
LABELS = np.array([0, 3, 7, -1, 40, -40], np.int32)
"""Of 8: two of them are none."""


def along_axis(x, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(x), y[..., None], -1, mode="clip").mean()


def by_two_indices(x, y):
    return -jax.nn.log_softmax(x)[jnp.arange(len(y)), y].mean()


def from_optax(x, y):
    return optax.softmax_cross_entropy_with_integer_labels(x, y).mean()


def of_narrow_logits(x, y):
    return along_axis(x.astype(jnp.bfloat16), y).astype(jnp.float32)


@pytest.mark.parametrize("loss", [along_axis, by_two_indices, from_optax, of_narrow_logits])
def test_cross_entropies(loss):
    """The gradient has no scatter any longer, nor a sum over the classes of what was scattered, and the same bits."""
    after = rewritten(PASS, jax.value_and_grad(loss), normals(6, 8), LABELS)
    assert after.count >= 1
    assert "scatter" not in after.text
    assert after.text.count("applies stablehlo.add across dimensions = [1] : (tensor<6x8xf32>") == 1
    assert after.same_bits


def test_of_sequences():
    y = np.random.default_rng(0).integers(0, 8, (3, 5)).astype(np.int32)
    after = rewritten(PASS, jax.value_and_grad(along_axis), normals(3, 5, 8), y)
    assert (after.count, after.same_bits) == (2, True)
    assert "scatter" not in after.text


def rows_set(u, y):
    return jnp.full((6, 8), 3.0).at[jnp.arange(6), y].set(u[:, 0])


def rows_of_rows(u, y):
    return jnp.zeros((6, 8, 4)).at[jnp.arange(6), y].add(u)


def one_of_a_vector(u, y):
    return jnp.zeros(8).at[y[1]].set(u[0, 0])


def narrow_index(u, y):
    return jnp.zeros((6, 100)).at[jnp.arange(6), y.astype(jnp.int8)].add(u[:, 0])


def unsigned_index(u, y):
    return jnp.zeros((6, 8)).at[jnp.arange(6), y.astype(jnp.uint32)].add(u[:, 0])


def whole_numbers(u, y):
    return jnp.zeros((6, 8), jnp.int32).at[jnp.arange(6), y].add(y).sum(1)


def bfloat16(u, y):
    return -(-jnp.zeros((6, 8), jnp.bfloat16).at[jnp.arange(6), y].add(u[:, 0].astype(jnp.bfloat16))).sum(1)


def one_by_one(u, y):
    """The scatter has a window of one element."""
    return jax.grad(lambda x: (jax.vmap(lambda row, i: jnp.sin(row)[i])(x, y) * u[:, 0]).sum())(jnp.ones((6, 8)))


def wide_count(u, y):
    """What counts the rows is of another type: so JAX writes it under x64."""
    rows = jax.lax.iota(jnp.uint32, 6).astype(jnp.int32)
    return jnp.zeros((6, 8)).at[rows, y].add(u[:, 0])


def in_a_loop(u, y):
    def step(i, total):
        return total + jnp.zeros((6, 8)).at[jnp.arange(6), y + i].add(u[:, 0])

    return jax.lax.fori_loop(0, 3, step, jnp.ones((6, 8)))


@pytest.mark.parametrize(
    "f",
    [
        rows_set,
        rows_of_rows,
        one_of_a_vector,
        narrow_index,
        unsigned_index,
        whole_numbers,
        bfloat16,
        one_by_one,
        wide_count,
        in_a_loop,
    ],
)
def test_scatters_of_one_element_a_row(f):
    after = rewritten(PASS, f, normals(6, 4), LABELS)
    assert after.count >= 1
    assert "scatter" not in after.text
    assert after.same_bits


def test_sums_over_rows_too():
    after = rewritten(PASS, lambda u, y: rows_of_rows(u, y).sum((0, 1)), normals(6, 4), LABELS)
    assert (after.count, after.wrong) == (1, [])
    assert "6x8x4" not in after.text


def histogram(u, y):
    return jnp.zeros(8).at[y].add(u[:, 0])


def several_a_row(u, y):
    return jnp.zeros((6, 8)).at[jnp.arange(6)[:, None], y[None]].add(1.0)


def part_of_a_row(u, y):
    return jnp.zeros((6, 8)).at[1, y[1]].add(u[0, 0])


def not_of_one_number(u, y):
    return jnp.outer(u[:, 0], u[:, 1]).at[jnp.arange(6), y].set(0.0)


def to_ones(u, y):
    return jnp.ones((6, 8)).at[jnp.arange(6), y].add(u[:, 0])


def largest(u, y):
    return jnp.zeros((6, 8)).at[jnp.arange(6), y].max(u[:, 0])


def of_fewer_rows(u, y):
    return jnp.zeros((9, 8)).at[jnp.arange(6), y].add(u[:, 0])


def index_too_narrow(u, y):
    """It cannot say that a row beyond 127 is none; XLA:CPU drops all."""
    numbers = jax.lax.ScatterDimensionNumbers((1,), (0,), (0,))
    return jax.lax.scatter_add(jnp.zeros((129, 4)), y[:1, None].astype(jnp.int8), u[:1], numbers)


def index_vectors_side_by_side(u, y):
    """Concatenated along the rows, not along the vectors."""
    index = jnp.concatenate([jax.lax.broadcasted_iota(jnp.int32, (1, 2), 1), y[None, :2]], 0)
    numbers = jax.lax.ScatterDimensionNumbers((), (0, 1), (0, 1))
    return jax.lax.scatter_add(jnp.zeros((2, 8)), index, u[:2, 0], numbers)


def part_of_the_rest(u, y):
    return jnp.zeros((6, 8, 5)).at[jnp.arange(6), y, :4].add(u)


@pytest.mark.parametrize(
    "f",
    [
        histogram,
        several_a_row,
        part_of_a_row,
        not_of_one_number,
        to_ones,
        largest,
        of_fewer_rows,
        index_too_narrow,
        index_vectors_side_by_side,
        part_of_the_rest,
    ],
)
def test_leaves_alone_what_is_no_select(f):
    # Without the compiler of fusions, XLA:CPU refuses indices of 8 bits.
    after = rewritten(PASS, f, normals(6, 4), LABELS, options=OPTIMISED)
    assert after.count == 0
    assert "scatter" in after.text


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(1, 9),
    st.integers(0, 3),
    st.sampled_from([np.float32, np.int32, np.float16, ml_dtypes.bfloat16]),
    st.integers(0, 2**32 - 1),
)
def test_any_put_along_an_axis(batch, size, axis, dtype, seed):
    """Whatever the dimensions; indices out of bounds, with a sum over the rows, in f32 where that is narrow."""
    axis = axis % (len(batch) + 1)
    rng = np.random.default_rng(seed)
    rows = [*batch[:axis], 1, *batch[axis:]]
    index = rng.integers(-2 * size, 2 * size, rows).astype(np.int32)
    u = rng.integers(-9, 9, rows).astype(dtype)

    def fun(u, index):
        zeros = jnp.zeros([*batch[:axis], size, *batch[axis:]], dtype)
        out = jnp.put_along_axis(zeros, index, u, axis, inplace=False)
        return out, out.sum(axis)

    after = rewritten(PASS, fun, u, index)
    assert after.count == 2
    assert after.same_bits


def head(x, w, y):
    return along_axis(x @ w, y)


@pytest.mark.parametrize(("target", "tokens"), [("cpu", 512), ("cuda:h200", 4096), ("tpu:v5e", 4096)])
def test_a_head_needs_less(target, tokens):
    """On CPU its classes are not written once more; the other compilers need no more for them as it is."""
    platform = target.partition(":")[0]
    if platform != "cpu":
        pytest.importorskip("jax_plugins.xla_cuda12" if platform == "cuda" else "libtpu")
    fun = jax.value_and_grad(head, (0, 1))
    program = exported(fun, spec(tokens, 64), spec(64, 8192), spec(tokens, dtype=np.int32), platform=platform)
    before = shm.profile(program, target=target).peak_bytes
    fixed = sum(a.size * a.dtype.itemsize for a in (*program.in_avals, *program.out_avals))
    budget = fixed + (before - fixed) // 5
    if platform == "cpu":
        alone = shm.plan(program, "min", target=target, options=shm.Options(passes=("one-hot-scatter",)))
        assert alone.after.peak_bytes - fixed < 0.7 * (before - fixed)
    plan = shm.plan(program, budget, target=target)
    assert plan.fits
    assert before > budget >= plan.after.peak_bytes
    assert "one-hot-scatter" in {step.pass_name for step in plan.steps}
    if platform == "cpu":
        args = normals(tokens, 64), normals(64, 8192, seed=1), np.arange(tokens, dtype=np.int32) * 16
        results = [[np.asarray(r) for r in jax.tree.leaves(f(*args))] for f in (plan.result.call, jax.jit(fun))]
        three = zip(*results, jax.tree.leaves(in_f64(fun, *args)), strict=True)
        assert [wrong for new, old, exact in three if (wrong := yardstick(new, old, exact))] == []
