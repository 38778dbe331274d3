"""narrow: what is only sliced is computed for the slice, bit by bit the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stablehlo_mem as shm
from stablehlo_mem.frontend.canonicalize import attach_rules
from stablehlo_mem.passes.narrow import Narrow
from tests.support import (
    OPTIMISED,
    exported,
    normal,
    normals,
    program_of,
    refusals,
    rewrite,
    rewritten,
    run,
    same_bits,
    spec,
)

PASS = Narrow()
ONLY = shm.Options(passes=("narrow",))


CASES = {
    "logits": (lambda h, w, b: jax.nn.gelu(h @ w + b)[-1], normals(16, 8), normals(8, 50), normals(50)),
    "batch": (lambda h, w: jnp.einsum("bsd,dv->bsv", h, w)[:, -1, :], normals(3, 16, 8), normals(8, 50)),
    "softmax": (lambda q, k: (jax.nn.softmax(q @ k.T) @ k)[:3], normals(16, 8), normals(20, 8)),
    "dynamic": (lambda h, w, i: jax.lax.dynamic_slice(h @ w, (i, 0), (2, 50)), normals(16, 8), normals(8, 50), 30),
    "negative": (lambda h, w, i: jax.lax.dynamic_slice(h @ w, (i, 0), (2, 50)), normals(16, 8), normals(8, 50), -3),
    "reduction": (lambda x: jnp.exp(x).sum(1)[2:4], normals(16, 8)),
    "specials": (
        lambda x: (x[:, :, None] * x[:, None, :]).max(1)[3:5],
        np.resize(np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1], np.float32), (8, 6)),
    ),
    "variadic": (lambda x: jnp.argmax(x, 1)[2:4], normals(16, 8)),
    "concatenation": (lambda x: jnp.concatenate([x @ x, x @ x @ x])[10:12], normals(8, 8)),
    "padding": (lambda x: jnp.pad(x @ x, ((2, 3), (0, 0)))[4:6], normals(8, 8)),
    "cut off": (lambda x: jax.lax.pad(x @ x, 0.0, ((-2, 3, 0), (0, 0, 0)))[1:3], normals(8, 8)),
    "iota": (lambda x: jnp.where(jnp.arange(8)[:, None] > 3, x @ x, 0.0)[3:5], normals(8, 8)),
    "merged": (lambda x: (x @ x).reshape(4, 2, 8)[1:2], normals(8, 8)),
    "divided": (lambda x, y: jnp.einsum("abd,de->abe", x, y).reshape(12, 8)[4:8], normals(3, 4, 8), normals(8, 8)),
    "strided": (lambda x, y: (x @ y)[1:6:2], normals(16, 8), normals(8, 8)),
    "used twice": (lambda x: (x @ x.T)[:3], normals(16, 8)),
    "cumulative": (lambda x: jnp.cumsum(x, axis=1)[:3], normals(16, 8)),
    "sorted": (lambda x: jnp.sort(x @ x.T, axis=1)[:3], normals(16, 8)),
    "convolution": (lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME")[:1], normals(4, 2, 8, 8), normals(3, 2, 3, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_gives_the_same_bits(name):
    f, *args = CASES[name]
    args = [np.asarray(a, np.int32) if isinstance(a, int) else a for a in args]
    after = rewritten(PASS, f, *args, options=OPTIMISED)
    assert after.count == 1
    assert after.same_bits


@settings(max_examples=16, deadline=None)
@given(data=st.data(), dtype=st.sampled_from([np.float32, np.int32, jnp.bfloat16]))
def test_at_any_size(data, dtype):
    shape = [data.draw(st.integers(1, 9)) for _ in range(3)]
    starts = [data.draw(st.integers(0, n - 1)) for n in shape]
    limits = [data.draw(st.integers(s + 1, n)) for s, n in zip(starts, shape, strict=True)]
    strides = [data.draw(st.integers(1, 3)) for _ in shape]
    order = data.draw(st.permutations(range(3)))

    def f(x):
        y = jnp.max(x[..., None] + x[..., :1, None], -1).transpose(order)
        y = jax.lax.transpose(y * 2 + jnp.arange(y.shape[0], dtype=y.dtype)[:, None, None], np.argsort(order))
        return jax.lax.slice(y, starts, limits, strides)

    x = np.asarray(jnp.asarray(np.random.default_rng(0).integers(-9, 9, shape)).astype(dtype))
    program = program_of(f, x)
    module = normal(program)
    taken = [(len(range(*part)) - 1) * part[2] + 1 for part in zip(starts, limits, strides, strict=True)]
    assert rewrite(module, PASS) == any(t <= 3 / 4 * n for t, n in zip(taken, shape, strict=True))
    for _ in shape[1:]:
        attach_rules(module)
        rewrite(module, PASS)
    attach_rules(module)
    assert rewrite(module, PASS) == 0
    for new, old in zip(run(program, module, x), run(program, None, x), strict=True):
        assert same_bits(new, old)


@pytest.mark.parametrize(
    ("f", "code"),
    [
        (lambda x: jnp.sort(x @ x)[:, :2], "needs-whole-dimension"),
        (lambda x: [y := x @ x, y[:2]][0:2], "used-whole"),
        (lambda x: jax.lax.fori_loop(0, 3, lambda i, y: y @ x, x)[:2], "no-rule"),
        (lambda x: (x @ x)[:7], None),
        (lambda x: (x * x)[:2], None),
        (lambda x: jax.lax.optimization_barrier(x @ x)[:2], None),
    ],
)
def test_refuses(f, code):
    assert refusals(PASS, f, normals(8, 8)) == [code]


def test_works_in_loops():
    def f(x, w):
        return jax.lax.fori_loop(0, 5, lambda i, h: jnp.tanh((jnp.concatenate([h, x]) @ w)[:4]), x[:4])

    after = rewritten(PASS, f, normals(12, 8), normals(8, 8), options=OPTIMISED)
    assert after.count == 1
    assert after.same_bits


def last_logits(h, w):
    return (h @ w)[:, -1:]


def test_saves_time_on_its_own():
    plan = shm.plan(exported(last_logits, spec(4, 512, 64), spec(64, 8192)), None, target="cpu", options=ONLY)
    assert [s.pass_name for s in plan.steps] == ["narrow"]
    assert plan.after.peak_bytes < plan.before.peak_bytes / 10


@pytest.mark.parametrize("target", ["cpu", "cuda:h200"])
def test_brings_a_program_within_its_budget(target):
    if target != "cpu":
        pytest.importorskip("jax_plugins.xla_cuda12")
    program = exported(last_logits, spec(4, 512, 64), spec(64, 8192), platform=target.partition(":")[0])
    plan = shm.plan(program, "4MiB", target=target, options=ONLY)
    assert plan.before.peak_bytes > 4 * 2**20 >= plan.after.peak_bytes
    assert plan.fits
