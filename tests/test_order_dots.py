"""Dots of bfloat16 with results in float32: XLA:CPU cannot run all of them."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import exported, normal, normals, run, spec

import stablehlo_mem as shm
from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.rewriting.order_dots import order_dots
from stablehlo_mem.targets.target import named_targets

SIZES = {"b": 3, "c": 2, "k": 64, "m": 16, "n": 8, "l": 5}


def _random(labels):
    return jnp.asarray(normals(*(SIZES[c] for c in labels)), jnp.bfloat16)


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("bkm", "bkn", "bmn"),
        ("km", "knl", "mnl"),
        ("bckm", "bckn", "bcmn"),
        ("bkm", "bknl", "bmnl"),
        ("bk", "bkn", "bn"),
    ],
)
def test_any_order_runs(left, right, result):
    """Every order of the right operand's dimensions; the left one as XLA leaves it, and transposed."""
    (cpu,) = named_targets("cpu")
    orders = ["".join(order) for order in itertools.permutations(right)][::4]

    def dots(x, *ys):
        forms = (left, x), (left[::-1], x.T)
        pairs = [(order, y, *form) for order, y in zip(orders, ys, strict=True) for form in forms]
        return [
            jnp.einsum(f"{form},{order}->{result}", one, y, preferred_element_type=jnp.float32)
            for order, y, form, one in pairs
        ]

    x, ys = _random(left), [_random(order) for order in orders]
    program = ingest(exported(dots, x, *ys))
    module = normal(program)
    order_dots(module, compiler_model(cpu.chip).ordered_dots)
    module.operation.verify()
    wide = dots(np.float64(x), *map(np.float64, ys))
    for got, want in zip(run(program, module, x, *ys), wide, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_plan_of_a_projection_in_bf16():
    """The gradient of a projection onto heads, summed over chunks of the batch in f32, as Flax's attention has it."""

    def loss(x, w):
        return (jnp.tanh(jnp.einsum("bsd,dhe->bshe", x, w)).astype(jnp.float32) ** 2).mean()

    args = spec(32, 64, 64, dtype=jnp.bfloat16), spec(64, 8, 64, dtype=jnp.bfloat16)
    program = exported(jax.grad(loss, 1), *args)
    before = shm.profile(program, target="cpu")
    budget = before.argument_bytes + before.output_bytes + before.temp_bytes // 4
    assert before.peak_bytes > budget
    plan = shm.plan(program, budget, target="cpu", options=shm.Options(cache=False))
    assert plan.fits
    assert plan.steps
    rng = np.random.default_rng(0)
    x, w = (jnp.asarray(rng.normal(size=one.shape) / 8, jnp.bfloat16) for one in args)
    got = jax.jit(plan.exported.call)(x, w)
    want = jax.grad(loss, 1)(*(one.astype(jnp.float32) for one in (x, w)))
    np.testing.assert_allclose(np.float32(got), np.float32(want), rtol=0.05, atol=1e-2 * float(abs(want).max()))
