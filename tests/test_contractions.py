"""contractions: what comes out, to the letter, in tests/ir/contractions_*.mlir; here results, and the whole way."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stablehlo_mem as shm
from stablehlo_mem.passes.contractions import Contractions
from stablehlo_mem.passes.normalise import remove_rules
from stablehlo_mem.plan import Options
from tests import textual
from tests.support import exported, in_f64, normal, program_of, rewrite, run, spec, text, yardstick

PASS = Contractions()
CASES = [name for name in textual.CASES if name.startswith("contractions_")]


@pytest.mark.parametrize("name", CASES)
def test_text(name):
    expected, actual = textual.expected_and_actual(name)
    assert actual == expected


@pytest.mark.parametrize("name", CASES)
def test_finds_nothing_in_what_it_made(name):
    expected, _ = textual.expected_and_actual(name)
    assert rewrite(normal(expected), PASS) == 0


def rewritten(fun, *args):
    """How often the pass fires, and what is wrong with the results then."""
    program = program_of(fun, *args)
    module = normal(program)
    count = rewrite(module, PASS)
    assert rewrite(module, PASS) == 0
    remove_rules(module)
    results = zip(run(program, module, *args), run(program, None, *args), in_f64(fun, *args), strict=True)
    return count, [wrong for wrong in (yardstick(*three) for three in results) if wrong], text(module)


def numbers(*shape, dtype: Any = np.float32, seed=0):
    return np.random.default_rng(seed + len(shape)).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
def test_rows_with_rows(dtype):
    x, y = numbers(40, 30, dtype=dtype), numbers(50, 30, dtype=dtype, seed=1)
    count, wrong, after = rewritten(lambda x, y: (x[:, None] * y[None]).sum(-1), x, y)
    assert (count, wrong) == (1, [])
    assert "40x50x30" not in after


def test_in_a_loop():
    """The constants of its body, the zero a sum starts at among them, lie outside it."""

    def fun(x, y):
        return jax.lax.fori_loop(0, 3, lambda _, z: (0.1 * z[:, None] * y[None]).sum(-1) @ x, x)

    count, wrong, after = rewritten(fun, numbers(30, 20), numbers(30, 20, seed=1))
    assert (count, wrong) == (1, [])
    assert "30x30x20" not in after


def test_f64():
    with jax.enable_x64(True):
        x, y = numbers(40, 30, dtype=np.float64), numbers(50, 30, dtype=np.float64)
        count, wrong, _ = rewritten(lambda x, y: (x[:, None] * y[None]).sum(-1), x, y)
    assert (count, wrong) == (1, [])


def test_integers_stay_exact():
    x, y = (np.random.default_rng(i).integers(-(2**30), 2**30, (7, 9)).astype(np.int32) for i in range(2))
    assert rewritten(lambda x, y: (x[:, None] * y[None]).sum(-1), x, y)[:2] == (1, [])


@st.composite
def einsums(draw):
    """Labels of 2 to 5 factors, those of the result and the sizes."""
    sizes = {label: draw(st.integers(1, 5)) for label in "abcdef"}
    some = st.lists(st.sampled_from("abcdef"), min_size=0, max_size=4, unique=True)
    factors = draw(st.lists(some, min_size=2, max_size=5))
    everything = sorted({label for labels in factors for label in labels})
    kept = draw(st.permutations([label for label in everything if draw(st.booleans())]))
    return factors, kept, everything, sizes


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(einsums())
def test_any_sum_of_products_of_broadcasts(case):
    factors, kept, everything, sizes = case
    args = [numbers(*(sizes[label] for label in labels), seed=i) for i, labels in enumerate(factors)]
    full = [sizes[label] for label in everything]

    def fun(*args):
        product: Any = 1.0
        for arg, labels in zip(args, factors, strict=True):
            order = sorted(range(len(labels)), key=lambda i: labels[i])
            dims = [everything.index(labels[i]) for i in order]
            product = product * jax.lax.broadcast_in_dim(arg.transpose(order), full, dims)
        summed = product.sum([i for i, label in enumerate(everything) if label not in kept])
        rest = [label for label in everything if label in kept]
        return summed.transpose([rest.index(label) for label in kept])

    assert rewritten(fun, *args)[1] == []


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint8])
@pytest.mark.parametrize("shape", [(7,), (2, 7), ()])
def test_one_hot_lookups(dtype, shape):
    index = np.random.default_rng(0).integers(0, 6, shape).astype(dtype)
    count, wrong, after = rewritten(lambda i, w: jax.nn.one_hot(i, 4) @ w, index, numbers(4, 5))
    assert (count, wrong) == (1, [])
    assert "gather" in after


def test_negative_indices_give_zeros():
    index = np.array([-1, 0, 3, 4, -(2**31)], np.int32)
    assert rewritten(lambda i, w: w.T @ jax.nn.one_hot(i, 4).T, index, numbers(4, 5))[:2] == (1, [])


def test_one_hot_with_a_wrapping_iota_stays():
    index = np.arange(7).astype(np.uint8)
    assert rewritten(lambda i, w: jax.nn.one_hot(i, 300) @ w, index, numbers(300, 5))[:2] == (0, [])


X, Y = spec(500, 64), spec(600, 64)


def products(x, y):
    return (x[:, None] * y[None]).sum(-1)


def test_the_fastest_plan_contracts():
    plan = shm.plan(exported(products, X, Y), None)
    assert [step.pass_name for step in plan.steps] == ["contractions"]
    assert "500x600x64" not in str(plan.module)
    assert plan.after.peak_bytes < 500 * 600 * 64 * 4
    x, y = numbers(500, 64), numbers(600, 64)
    np.testing.assert_allclose(plan.result.call(x, y), x @ y.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [Options(numerics="exact"), Options(passes=("split-into-loops",))])
def test_options_switch_it_off(options):
    assert shm.plan(exported(products, X, Y), None, options=options).steps == ()


def test_one_hot_needs_relaxed_numerics():
    fun = exported(lambda i, w: jax.nn.one_hot(i, 5000) @ w, spec(3000, dtype=np.int32), spec(5000, 64))
    assert shm.plan(fun, None).steps == ()
    plan = shm.plan(fun, None, options=Options(numerics="relaxed"))
    assert [step.pass_name for step in plan.steps] == ["contractions"]
    assert plan.after.peak_bytes < 3000 * 5000 * 4


def test_gradients_contract_too():
    def loss(x, y):
        return (jnp.tanh((x[:, None] * y[None]).sum(-1))).sum()

    plan = shm.plan(exported(jax.grad(loss, argnums=(0, 1)), X, Y), None)
    assert "contractions" in [step.pass_name for step in plan.steps]
    assert "500x600x64" not in str(plan.module)
