"""Slices of bfloat16 arrays in loops: XLA:CPU would widen the whole array."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import exported, normal, normals, run, same_bits, spec

import stablehlo_mem as shm
from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.rewriting.slice_as_integers import slice_as_integers
from stablehlo_mem.targets.target import named_targets


def _gathered(x):
    """Sums of the rows that each step gathers."""
    rows = jnp.arange(64).reshape(8, 8) * 7 % 64
    return jax.lax.scan(lambda total, some: (total + jnp.tanh(x[some]).sum(0), None), jnp.zeros_like(x[0]), rows)[0]


def _rows(x):
    """tanh, row by row: reads rows of an array that no step changes and writes rows of one that every step does."""

    def body(i, out):
        row = jax.lax.dynamic_slice_in_dim(x, i, 1)
        return jax.lax.dynamic_update_slice_in_dim(out, jnp.tanh(row), i, 0)

    return jax.lax.fori_loop(0, x.shape[0], body, jnp.zeros_like(x))


@pytest.mark.parametrize("fun", [_rows, _gathered])
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_no_copy_of_the_whole_array(dtype, fun):
    program = ingest(exported(fun, spec(64, 4096, dtype=jnp.dtype(dtype))))
    module = normal(program)
    (target,) = named_targets("cpu")
    slice_as_integers(module, compiler_model(target.chip).widens_slices)
    module.operation.verify()
    before, after = (target.measure(program, one) for one in (program.module, module))
    assert before.temp_bytes >= 2 * 64 * 4096
    assert after.temp_bytes < 64 * 4096
    x = normals(64, 4096).astype(jnp.dtype(dtype))
    assert all(map(same_bits, run(program, module, x), run(program, None, x)))


def test_plan_of_a_block_in_bf16():
    """A normalised convolution: its input is read by three loops, and would be kept in f32 for them."""

    def block(x, w):
        wide = x.astype(jnp.float32)
        normal = (wide - wide.mean((1, 3), keepdims=True)) * jax.lax.rsqrt(wide.var((1, 3), keepdims=True) + 1e-5)
        numbers = ("NHWC", "HWIO", "NHWC")
        hidden = jax.nn.silu(normal).astype(x.dtype)
        return x + jax.lax.conv_general_dilated(hidden, w, (1, 1), "SAME", dimension_numbers=numbers)

    args = spec(4, 128, 64, 64, dtype=jnp.bfloat16), spec(3, 3, 64, 64, dtype=jnp.bfloat16)
    program = exported(block, *args)
    profile = shm.profile(program, target="cpu")
    budget = profile.peak_bytes - profile.temp_bytes + profile.temp_bytes // 10
    plan = shm.plan(program, budget, target="cpu", options=shm.Options(cache=False))
    assert plan.fits
    assert plan.steps
    assert plan.after.peak_bytes <= budget < profile.peak_bytes
    assert "bitcast_convert" in str(plan.module)
    arrays = [np.asarray(normals(*a.shape, seed=i) / 8, a.dtype) for i, a in enumerate(args)]
    new, old = (np.asarray(jax.jit(f)(*arrays), np.float32) for f in (plan.exported.call, block))
    exact = np.asarray(block(*(jnp.asarray(a, jnp.float32) for a in arrays)))
    assert np.abs(new - exact).max() <= 1.1 * np.abs(old - exact).max()


def test_floats_that_the_compiler_knows_stay():
    program = ingest(exported(_rows, spec(64, 4096, dtype=np.float16)))
    module = normal(program)
    slice_as_integers(module, compiler_model(named_targets("cpu")[0].chip).widens_slices)
    assert str(module) == str(normal(program))
