"""fold-transposes: loops read what a transposed copy was made of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import stablehlo_mem as shm
from stablehlo_mem.passes.fold_transposes import FoldTransposes
from tests.support import exported, normals, refusals, rewritten, spec

PASS = FoldTransposes()
ONLY = shm.Options(passes=("fold-transposes",))


def scanned(x, y):
    """Sums of exponentials, sixteen rows of x at a time, against a transposed y."""
    t = y.T
    return jax.lax.map(lambda rows: jnp.exp(rows @ t).sum(-1), x.reshape(-1, 16, x.shape[1]))


def powers(x, y):
    """The transposed value on both sides of one dot, and in a loop in the loop."""
    t = (x @ y).T

    def step(_, a):
        return jax.lax.fori_loop(0, 2, lambda _, b: b @ t, jnp.tanh(t @ t) + a @ t)

    return jax.lax.fori_loop(0, 3, step, x)


def batched(x, y):
    t = y.transpose(0, 2, 1)
    return jax.lax.fori_loop(0, 2, lambda _, a: jnp.tanh(a @ t), x)


CASES = {
    "scanned": (scanned, normals(64, 8), normals(32, 8)),
    "powers": (powers, normals(8, 8), normals(8, 8, seed=1)),
    "batched": (batched, normals(3, 8, 8), normals(3, 8, 8, seed=1)),
}


@pytest.mark.parametrize("name", CASES)
def test_gives_the_same_bits(name):
    after = rewritten(PASS, *CASES[name])
    assert after.count == 1
    assert "stablehlo.transpose" not in after.text
    assert after.same_bits


@settings(max_examples=10, deadline=None)
@given(order=st.permutations(range(4)), dtype=st.sampled_from([np.float32, np.int32]))
@example(order=[0, 1, 3, 2], dtype=np.float32)
@example(order=[0, 2, 1, 3], dtype=np.int32)
def test_at_any_order(order, dtype):
    """Four dimensions in any order: one of them batch, one contracted, two in the result.

    Folded where batch dimensions stay in front and those of the result in order; only the two examples are so.
    """
    y = np.random.default_rng(0).integers(-9, 9, (2, 3, 4, 5)).astype(dtype)
    x = np.random.default_rng(1).integers(-9, 9, (y.shape[order[0]], 6, y.shape[order[2]])).astype(dtype)

    def f(x, y):
        t = y.transpose(order)
        return jax.lax.fori_loop(
            0, 3, lambda i, a: a + jnp.einsum("bmk,bnkp->bmnp", x + i, t).sum(), jnp.zeros((), dtype)
        )

    after = rewritten(PASS, f, x, y)
    assert after.count == (order[0] == 0 and order[1] < order[3] and order != [0, 1, 2, 3])
    assert after.same_bits


@pytest.mark.parametrize(
    ("f", "code"),
    [
        (lambda x, t: jax.lax.fori_loop(0, 2, lambda i, a: a @ t + t, x), "used-otherwise"),
        (lambda x, t: jax.lax.fori_loop(0, 2, lambda i, a: (a[0] @ a[1], a[1] + 1), (x, t)), "used-otherwise"),
        (lambda x, t: x @ t + t, "used-otherwise"),
        (lambda x, t: x + t, None),
    ],
)
def test_refuses(f, code):
    assert refusals(PASS, lambda x, y: f(x, y.T), normals(8, 8), normals(8, 8))[0] == code


def test_refuses_to_move_the_copy_into_the_loop():
    def heads_first(q, k):
        t = k.transpose(1, 0, 2)
        return jax.lax.fori_loop(0, 2, lambda i, a: a + jnp.einsum("hqd,hkd->hqk", q, t), jnp.zeros((4, 8, 8)))

    def swapped(x, y):
        t = y.transpose(1, 0, 2)
        return jax.lax.fori_loop(0, 2, lambda i, a: a + jnp.einsum("qd,nmd->qnm", x, t), jnp.zeros((8, 4, 8)))

    assert refusals(PASS, heads_first, normals(4, 8, 2), normals(8, 4, 2))[0] == "batch-order"
    assert refusals(PASS, swapped, normals(8, 2), normals(8, 4, 2))[0] == "free-order"


def test_saves_time_on_its_own():
    plan = shm.plan(exported(scanned, spec(32, 64), spec(16384, 64)), None, target="cpu", options=ONLY)
    assert [s.pass_name for s in plan.steps] == ["fold-transposes"]
    assert plan.after.peak_bytes < plan.before.peak_bytes


@pytest.mark.parametrize("target", ["cpu", "cuda:h200"])
def test_brings_a_program_within_its_budget(target):
    if target != "cpu":
        pytest.importorskip("jax_plugins.xla_cuda12")
    program = exported(scanned, spec(256, 256), spec(16384, 256), platform=target.partition(":")[0])
    plan = shm.plan(program, "24MiB", target=target, options=ONLY)
    assert plan.before.peak_bytes > 24 * 2**20 >= plan.after.peak_bytes
    assert plan.fits
