"""contractions: what comes out, to the letter, in tests/ir/contractions_*.mlir; here results, and the whole way."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import stablehlo_mem as shm
from stablehlo_mem.pass_api.candidate import Options
from stablehlo_mem.passes.contractions import Contractions
from tests.support import exported, normals, rewritten, spec

PASS = Contractions()


def products(x, y):
    return (x[:, None] * y[None]).sum(-1)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
def test_rows_with_rows(dtype):
    x, y = normals(40, 30, dtype=dtype), normals(50, 30, dtype=dtype)
    after = rewritten(PASS, products, x, y)
    assert (after.count, after.wrong) == (1, [])
    assert "40x50x30" not in after.text


def test_in_a_loop():
    """The constants of its body, the zero a sum starts at among them, lie outside it."""

    def fun(x, y):
        return jax.lax.fori_loop(0, 3, lambda _, z: (0.1 * z[:, None] * y[None]).sum(-1) @ x, x)

    after = rewritten(PASS, fun, normals(30, 20), normals(30, 20, seed=1))
    assert (after.count, after.wrong) == (1, [])
    assert "30x30x20" not in after.text


def test_f64():
    with jax.enable_x64(True):
        x, y = normals(40, 30, dtype=np.float64), normals(50, 30, dtype=np.float64)
        after = rewritten(PASS, products, x, y)
    assert (after.count, after.wrong) == (1, [])


def test_integers_stay_exact():
    x, y = (np.random.default_rng(i).integers(-(2**30), 2**30, (7, 9)).astype(np.int32) for i in range(2))
    after = rewritten(PASS, products, x, y)
    assert (after.count, after.wrong) == (1, [])


@st.composite
def einsums(draw):
    """Labels of 2 to 5 factors, those of the result and the sizes."""
    sizes = {label: draw(st.integers(1, 5)) for label in "abcdef"}
    some = st.lists(st.sampled_from("abcdef"), min_size=0, max_size=4, unique=True)
    factors = draw(st.lists(some, min_size=2, max_size=5))
    everything = sorted({label for labels in factors for label in labels})
    kept = draw(st.permutations([label for label in everything if draw(st.booleans())]))
    return factors, kept, sizes


@settings(deadline=None, max_examples=16, suppress_health_check=[HealthCheck.too_slow])
@given(einsums())
@example((["ac", "bc"], "ba", {"a": 4, "b": 5, "c": 3}))
@example((["dbc", "adc"], "dab", {"a": 4, "b": 5, "c": 3, "d": 2}))
@example((["ef", "ef", "bc", "e", "c"], "bf", {"b": 2, "c": 2, "e": 2, "f": 2}))
@example((["ae", "b", "eb", "eb", "b"], "a", {"a": 2, "b": 2, "e": 4}))
def test_any_sum_of_products_of_broadcasts(case):
    factors, kept, sizes = case
    everything = sorted({label for labels in factors for label in labels})
    args = [normals(*(sizes[label] for label in labels), seed=i) for i, labels in enumerate(factors)]
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

    after = rewritten(PASS, fun, *args)
    assert after.wrong == []
    if len(factors) == 2:
        one, other = ({label for label in labels if sizes[label] > 1} for labels in factors)
        is_summed, is_batched = bool(one & other - set(kept)), bool(one & other & set(kept))
        own = [bool(part & set(kept)) for part in (one - other, other - one)]
        assert after.count == (is_summed and (all(own) if is_batched else any(own)))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint8])
@pytest.mark.parametrize("shape", [(7,), (2, 7), ()])
def test_one_hot_lookups(dtype, shape):
    index = np.random.default_rng(0).integers(0, 6, shape).astype(dtype)
    after = rewritten(PASS, lambda i, w: jax.nn.one_hot(i, 4) @ w, index, normals(4, 5))
    assert (after.count, after.wrong) == (1, [])
    assert "gather" in after.text


def test_negative_indices_give_zeros():
    index = np.array([-1, 0, 3, 4, -(2**31)], np.int32)
    after = rewritten(PASS, lambda i, w: w.T @ jax.nn.one_hot(i, 4).T, index, normals(4, 5))
    assert (after.count, after.wrong) == (1, [])


def test_one_hot_with_a_wrapping_iota_stays():
    index = np.arange(7).astype(np.uint8)
    assert rewritten(PASS, lambda i, w: jax.nn.one_hot(i, 300) @ w, index, normals(300, 5)).count == 0


X, Y = spec(500, 64), spec(600, 64)


def test_the_fastest_plan_contracts():
    plan = shm.plan(exported(products, X, Y), None)
    assert [step.pass_name for step in plan.steps] == ["contractions"]
    assert "500x600x64" not in str(plan.module)
    assert plan.after.peak_bytes < 500 * 600 * 64 * 4
    x, y = normals(500, 64), normals(600, 64)
    np.testing.assert_allclose(plan.result.call(x, y), x @ y.T, rtol=1e-4, atol=1e-4)


def names(plan):
    return [step.pass_name for step in plan.steps]


@pytest.mark.parametrize("options", [Options(numerics="exact"), Options(passes=("split-into-loops",))])
def test_options_switch_it_off(options):
    assert "contractions" not in names(shm.plan(exported(products, X, Y), None, options=options))


def test_one_hot_needs_relaxed_numerics():
    fun = exported(lambda i, w: jax.nn.one_hot(i, 5000) @ w, spec(3000, dtype=np.int32), spec(5000, 64))
    assert "contractions" not in names(shm.plan(fun, None))
    plan = shm.plan(fun, None, options=Options(numerics="relaxed"))
    assert names(plan) == ["contractions"]
    assert plan.after.peak_bytes < 3000 * 5000 * 4


def test_gradients_contract_too():
    def loss(x, y):
        return (jnp.tanh((x[:, None] * y[None]).sum(-1))).sum()

    plan = shm.plan(exported(jax.grad(loss, argnums=(0, 1)), X, Y), None)
    assert "contractions" in [step.pass_name for step in plan.steps]
    assert "500x600x64" not in str(plan.module)
