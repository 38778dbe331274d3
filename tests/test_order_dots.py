"""Dots of bfloat16 with results in float32: XLA:CPU cannot run all of them."""

from __future__ import annotations

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import exported, normal, normals, spec, text

import stablehlo_mem as shm
from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.frontend.program import emit, ingest
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
    results = jax.jit(emit(program, module).call)(x, *ys)  # with YNNPACK, which `run` leaves out
    for got, want in zip(results, wide, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_plan_of_a_sum_in_bf16():
    """What the program sums in bfloat16, in a dot that XLA:CPU runs, is summed in f32 chunk by chunk."""

    def moments(x, y):
        return jnp.einsum("km,knl->mnl", jnp.tanh(x), jnp.exp(y))

    args = spec(16384, 32, dtype=jnp.bfloat16), spec(16384, 8, 8, dtype=jnp.bfloat16)
    program = exported(moments, *args)
    before = shm.profile(program, target="cpu")
    budget = before.argument_bytes + before.output_bytes + before.temp_bytes // 4
    assert before.peak_bytes > budget
    plan = shm.plan(program, budget, target="cpu", options=shm.Options(cache=False))
    assert plan.fits
    assert re.search(r"tensor<\d+x32xbf16>, tensor<\d+x64xbf16>\) -> tensor<32x64xf32>", text(plan.module))
    x, y = (jnp.asarray(normals(*one.shape), jnp.bfloat16) for one in args)
    wide = moments(*(one.astype(jnp.float32) for one in (x, y)))
    got = jax.jit(plan.exported.call)(x, y)
    np.testing.assert_allclose(np.float32(got), wide, rtol=0.02, atol=0.02 * float(abs(wide).max()))
