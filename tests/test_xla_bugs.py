"""What XLA computes wrongly, and that no rewrite of ours meets it.

The `xfail`s are strict: one that passes says that the installed XLA no longer has the bug. Then docs/xla_bugs.md gets
the version, and what avoids the bug goes once no supported XLA has it.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stablehlo_mem as shm
from stablehlo_mem.frontend.program import emit
from stablehlo_mem.passes.narrow import Narrow
from tests.support import exported, normal, normals, program_of, rewrite, run, same_bits, text
from tests.xla_bugs import (
    dot_of_three_dimensions,
    half_of_products,
    largest_of_rows,
    slice_of_a_slice,
    update_of_a_slice,
    update_of_one_row,
)

LINE = np.arange(16, dtype=np.float32)
STARTS = [(14, 0), (4, 9), (4, -3), (12, 3)]


def compiled(fun, *args):
    return np.asarray(jax.jit(fun)(*args))


def eager(fun, *args):
    """One op at a time: there is nothing to fold."""
    with jax.disable_jit():
        return np.asarray(fun(*map(jnp.asarray, args)))


def all_right(fun, starts, *more):
    pairs = [tuple(map(np.int32, pair)) for pair in starts]
    return all(same_bits(compiled(fun, LINE, *p, *more), eager(fun, LINE, *p, *more)) for p in pairs)


@pytest.mark.xfail(strict=True, reason="jax-ml/jax#40849, openxla/xla#49121")
def test_slices_of_slices_keep_their_clamps():
    assert all_right(slice_of_a_slice, STARTS)


@pytest.mark.xfail(strict=True, reason="openxla/xla#49121")
def test_updates_of_slices_keep_their_clamps():
    assert all_right(update_of_a_slice, STARTS, np.float32([-1]))


@pytest.mark.xfail(strict=True, reason="openxla/xla#49121: a scatter of one update becomes slices")
def test_an_update_out_of_bounds_is_dropped():
    assert all_right(update_of_one_row, [(4, 9), (4, 5)])


def wrong_products(fun):
    """How many results are far from those of one op at a time."""
    rng = np.random.default_rng(0)
    c, x = (rng.normal(size=shape).astype(np.float32) for shape in ((400, 3), (512, 400, 3)))
    return int((abs(np.asarray(fun(c, x)) - eager(half_of_products, c, x)) > 1e-3).sum())


@pytest.mark.xfail(strict=True, reason="jax-ml/jax#39103")
def test_sums_of_products_are_right():
    """From the 32,768th result on, another part of the first factor is read."""
    assert not wrong_products(jax.jit(half_of_products))


def test_in_normal_form_the_repeated_factor_comes_second():
    program = program_of(half_of_products, np.zeros((400, 3), np.float32), np.zeros((512, 400, 3), np.float32))
    assert not wrong_products(jax.jit(emit(program, normal(program)).call))


@pytest.mark.xfail(strict=True, reason="YNNPACK")
def test_maxima_keep_nans():
    rows = np.zeros((64, 256), np.float32)
    rows[3, 5] = np.nan
    assert np.isnan(compiled(largest_of_rows, rows)).any()


@pytest.mark.xfail(strict=True, reason="DotThunk", raises=jax.errors.JaxRuntimeError)
def test_a_dot_of_bf16_runs():
    compiled(dot_of_three_dimensions, jnp.ones((64, 16), jnp.bfloat16), jnp.ones((64, 2, 4), jnp.bfloat16))


IN_NORMAL_FORM = [
    *((fun, start) for fun in (slice_of_a_slice, update_of_a_slice) for start in STARTS),
    # An update that is dropped is the program's own: as it is given it is wrong, and left so.
    *((update_of_one_row, start) for start in STARTS if start[1] in (0, 3)),
]


@pytest.mark.parametrize(("fun", "start"), IN_NORMAL_FORM)
def test_in_normal_form_they_are_right(fun, start):
    """Where the starts are in bounds there is no clamp to lose."""
    args = LINE, *map(np.int32, start), *([np.float32([-1])] if fun is update_of_a_slice else [])
    program = program_of(fun, *args)
    assert same_bits(run(program, normal(program), *args)[0], eager(fun, *args))


@pytest.mark.parametrize("start", [(14, 0), (6, 9), (-3, -3)])
def test_slices_that_are_brought_together_are_right(start):
    """A slice moves up through a product to another slice: the two are folded then."""

    def fun(x, w, i, j):
        rows = jax.lax.dynamic_slice_p.bind(x, i, jnp.int32(0), slice_sizes=(8, 8))
        return jax.lax.dynamic_slice_p.bind(rows @ w, j, jnp.int32(0), slice_sizes=(2, 64))

    # Small whole numbers: their sums are exact in any order.
    args = *(np.round(9 * normals(*shape)) for shape in ((16, 8), (8, 64))), *map(np.int32, start)
    program = program_of(fun, *args)
    module = normal(program)
    assert rewrite(module, Narrow(), prefer_memory=True) == 1
    np.testing.assert_array_equal(run(program, module, *args)[0], eager(fun, *args))


def test_starts_in_a_plan_are_in_bounds():
    """Starts that a program leaves to be clamped are so explicitly in what comes out, on every target."""

    def fun(x, w, u, i):
        return jnp.tanh(jax.lax.dynamic_slice_p.bind(x, i, jnp.int32(0), slice_sizes=(448, 8)) @ w) @ u

    args = normals(512, 8), normals(8, 256), normals(256), np.int32(500)
    for target in ("cpu", "cuda:h200", "tpu:v5e"):
        original = exported(fun, *args, platform=target.partition(":")[0])
        plan = shm.plan(original, "min", target=target, options=shm.Options(cache=False))
        if not plan.steps:
            assert target == "tpu:v5e", "nothing was rewritten"
            continue
        written = text(plan.module)
        (clamped,) = re.findall(r"(%\w+) = stablehlo.clamp", written)
        assert "stablehlo.while" in written
        # The slice may be taken in a loop.
        assert re.search(rf"stablehlo.dynamic_slice %\w+, {clamped}, ", written)
