"""Symbolic dimensions: an Exported is planned for given sizes and has them afterwards."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import deserialize, export, symbolic_shape

import stablehlo_mem as shm
from stablehlo_mem.frontend.program import ingest, kept_donated, symbolic_names
from stablehlo_mem.frontend.symbolic_shapes import at_sizes
from tests.support import exported, in_f64, normals, spec, yardstick

PAIRS = 256 * 512 * 4
"""Bytes of all the distances, the value to be split."""


def nearest(x, y):
    return jnp.exp(-((x[:, None] - y[None]) ** 2).sum(-1)).max(1)


def symbolic(**kwargs):
    n, m = symbolic_shape("n, m", **kwargs)
    return exported(nearest, spec(n, 3), spec(m, 3))


def test_an_exported_is_optimised_for_given_sizes():
    original = symbolic()
    budget = 3 * 4 * (256 + 512) + 256 * 4 + PAIRS // 8
    plan = shm.plan(original, budget, target="cpu", dims={"n": 256, "m": 512})
    assert plan.before.peak_bytes > PAIRS
    assert plan.fits
    assert plan.steps
    assert [aval.shape for aval in plan.exported.in_avals] == [(256, 3), (512, 3)]
    assert [aval.shape for aval in plan.exported.out_avals] == [(256,)]
    assert "?" not in plan.exported.mlir_module()
    x, y = normals(256, 3), normals(512, 3, seed=1)
    new, old = np.asarray(plan.result.call(x, y)), np.asarray(original.call(x, y))
    assert yardstick(new, old, in_f64(nearest, x, y)[0]) is None


def test_other_sizes_are_other_plans():
    sizes = [{"n": n, "m": 512} for n in (64, 256)]
    first, second = (shm.plan(symbolic(), PAIRS, target="cpu", dims=dims) for dims in sizes)
    assert not first.steps  # a quarter of the pairs
    assert second.steps


def test_a_serialised_exported_comes_back_serialised():
    data = bytes(symbolic().serialize(vjp_order=1))
    plan = shm.plan(data, None, target="cpu", dims={"n": 8, "m": 16})
    result = deserialize(bytearray(plan.result))
    assert result.in_avals[1].shape == (16, 3)
    assert result.has_vjp()


def test_calling_convention_and_derivatives_survive():
    (n,) = symbolic_shape("n")

    def step(state, unused, *, batch):
        return {"state": state["w"] + batch.sum(), "loss": (batch * state["w"][:, None]).sum()}

    jitted = jax.jit(step, donate_argnums=0)
    platforms = ("cpu", "tpu")
    original = export(jitted, platforms=platforms)({"w": spec(n)}, spec(3), batch=spec(n, 2 * n))
    concrete = at_sizes(original, {"n": 4})
    same = export(jitted, platforms=platforms)({"w": spec(4)}, spec(3), batch=spec(4, 8))
    for field in ("fun_name", "in_tree", "in_avals", "out_tree", "out_avals", "platforms"):
        assert getattr(concrete, field) == getattr(same, field), field
    assert kept_donated(ingest(concrete)) == kept_donated(ingest(same)) == (0,)
    w, batch = normals(4), normals(4, 8)
    grads = jax.grad(lambda w: concrete.call({"w": w}, np.zeros(3, np.float32), batch=batch)["loss"])(w)
    np.testing.assert_allclose(grads, batch.sum(1), rtol=1e-5)


def test_without_a_vjp_there_is_none_afterwards():
    data = symbolic().serialize(vjp_order=0)
    assert not at_sizes(deserialize(data), {"n": 8, "m": 8}).has_vjp()


def test_double_precision_stays():
    with jax.enable_x64(True):
        (n,) = symbolic_shape("n")
        original = export(jax.jit(jnp.sin))(spec(n, dtype=np.float64))
    assert at_sizes(original, {"n": 4}).in_avals[0].dtype == np.float64


def test_names_in_expressions():
    (n, m) = symbolic_shape("n, m")
    original = exported(lambda x, y: x[: y.shape[0]] * 2, spec(2 * n + m), spec(m))
    assert symbolic_names(original) == ("m", "n")
    assert at_sizes(original, {"n": 3, "m": 5}).in_avals[0].shape == (11,)


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"n": 8}, "no size for m: nearest has symbolic dimensions n, m"),
        ({"n": 8, "m": 8, "k": 8}, "nearest has no symbolic dimension k; it has n, m"),
        ({"n": 8, "m": "8"}, "a size is an integer, not m='8'"),
        ({"n": 8, "m": 2**31}, "makes .* longer than JAX refines dimensions to: 2,147,483,647"),
        ({1: 8}, "give names and their sizes"),
        ([("n", 8)], "give names and their sizes"),
        ({"n": 8, "m": 0}, "not exported for n=8, m=0.*>= 1"),
        ({"n": 8, "m": -8}, r"an array of shape \[-8, 3\]"),
        ({"n": 8, "m": 4}, r"not exported for n=8, m=4.*m.*n"),
    ],
)
def test_sizes_that_are_none(dims, message):
    with pytest.raises(shm.InputError, match=re.compile(message, re.DOTALL)):
        shm.plan(symbolic(constraints=["m >= n"]), None, target="cpu", dims=dims)


def test_what_has_no_symbolic_dimensions():
    with pytest.raises(shm.InputError, match="sin has no symbolic dimensions"):
        shm.plan(exported(jnp.sin, spec(4)), None, target="cpu", dims={"n": 4})
    with pytest.raises(shm.InputError, match="give a jax.export.Exported with symbolic dimensions, not str"):
        shm.plan("module {}", None, target="cpu", dims={"n": 4})


def test_without_sizes_the_error_says_how_to_give_them():
    with pytest.raises(shm.InputError, match=r"nearest has a dynamic shape.*dims=\{'n': \.\.\., 'm': \.\.\.\}"):
        shm.plan(symbolic(), None, target="cpu")
