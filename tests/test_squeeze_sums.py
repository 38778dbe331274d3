"""squeeze-sums: sums of products are made without dimensions of one element."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stablehlo_mem as shm
from stablehlo_mem.passes.squeeze_sums import SqueezeSums
from tests.support import exported, in_f64, normals, rewritten, spec, yardstick

PASS = SqueezeSums()
X, Y, C = normals(1, 6, 8), normals(1, 6, 8, seed=1), normals(1, 6, 1)


def weighted(x, y, c):
    return (x * c * y).sum(-1)


def averaged(x, y, c):
    return jnp.einsum("bqk->bq", x / (1 + c**2)) + y[..., 0]


def everything_but_the_batch(x, y, c):
    return (x * y).sum((1, 2)) + c.sum()


@pytest.mark.parametrize("f", [weighted, averaged, everything_but_the_batch])
def test_gives_the_same_bits(f):
    after = rewritten(PASS, f, X, Y, C)
    assert after.count == 1
    assert "stablehlo.reshape" in after.text
    assert after.same_bits


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y, c: (x * x).sum(-1),
        lambda x, y, c: (x * 2).sum(-1),
        lambda x, y, c: jnp.exp(x - c).sum(-1),
        lambda x, y, c: (x * y).max(-1),
        lambda x, y, c: (x * y).sum(0),
        lambda x, y, c: jax.lax.reduce(x * y, 0.0, lambda a, b: jnp.maximum(a + b, a), (2,)),
        lambda x, y, c: (lambda p: (p, p.sum(-1)))(x * y),
        lambda x, y, c: (x.astype(jnp.int32) * y.astype(jnp.int32)).sum(-1),
    ],
)
def test_leaves_alone_what_is_not_slow(f):
    assert rewritten(PASS, f, X, Y, C).count == 0


def rms_gradient(x, w):
    return jax.grad(lambda x, w: jnp.tanh(x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w).sum())(x, w)


@pytest.mark.parametrize(("target", "batch", "pays"), [("cpu", 1, True), ("cpu", 2, False), ("cuda:h200", 1, False)])
def test_pays_where_the_compiler_is_slow(target, batch, pays):
    if target != "cpu":
        pytest.importorskip("jax_plugins.xla_cuda12")
    shape = (batch, 512 // batch, 768)
    program = exported(rms_gradient, spec(*shape), spec(768), platform=target.partition(":")[0])
    plan = shm.plan(program, None, target=target)
    assert ("squeeze-sums" in {s.pass_name for s in plan.steps}) is pays
    if pays:
        x, w = normals(*shape), normals(768)
        new, old = (np.asarray(f(x, w)) for f in (plan.result.call, jax.jit(rms_gradient)))
        assert yardstick(new, old, *in_f64(rms_gradient, x, w)) is None
