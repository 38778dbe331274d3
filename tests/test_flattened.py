"""`flattened`: an Exported with trees of any classes serialises, runs, and has its derivatives."""

from __future__ import annotations

import dataclasses
import functools
import operator
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import stablehlo_mem as shm


@functools.partial(jax.tree_util.register_dataclass, data_fields=["weight", "bias"], meta_fields=["name"])
@dataclasses.dataclass
class Layer:
    """A node that JAX cannot serialise, as equinox's modules are."""

    weight: Any
    bias: Any
    name: str = "layer"


def attend(layer, x, *, scale):
    scores = jax.nn.softmax(x @ layer.weight @ x.T * scale)
    return Layer(layer.weight, layer.bias + 1), {"out": scores @ x + layer.bias}


@pytest.fixture(scope="module")
def arguments():
    rng = np.random.default_rng(0)
    x, weight, bias = (rng.standard_normal(s).astype(np.float32) for s in ((512, 8), (8, 8), (8,)))
    return (Layer(weight, bias), x), {"scale": np.float32(0.1)}


def test_it_serialises_what_jax_does_not(arguments):
    args, kwargs = arguments
    exported = jax.export.export(jax.jit(attend))(*args, **kwargs)
    with pytest.raises(ValueError, match="serialize"):
        exported.serialize()
    small = shm.optimize(exported, "512KiB", target="cpu")
    assert small is not exported
    read = jax.export.deserialize(shm.flattened(small).serialize(vjp_order=1))
    assert read.in_tree == jax.tree.structure((tuple(range(4)), {}))
    got = jax.tree.unflatten(small.out_tree, read.call(*jax.tree.leaves(arguments)))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), got, attend(*args, **kwargs))


def test_it_is_differentiated_after_it_was_read(arguments):
    args, kwargs = arguments
    exported = jax.export.export(jax.jit(attend))(*args, **kwargs)
    leaves, tree = jax.tree.flatten(arguments)

    def loss(call, *leaves):
        return functools.reduce(operator.add, map(jnp.sum, jax.tree.leaves(call(*leaves))))

    def plain(*leaves):
        args, kwargs = jax.tree.unflatten(tree, leaves)
        return attend(*args, **kwargs)

    want = jax.grad(functools.partial(loss, plain), argnums=range(len(leaves)))(*leaves)
    flat = shm.flattened(exported)
    read, small = jax.export.deserialize(flat.serialize(vjp_order=1)), shm.optimize(flat, "512KiB", target="cpu")
    for given in (read, small):
        got = jax.grad(functools.partial(loss, given.call), argnums=range(len(leaves)))(*leaves)
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), got, want)


def test_without_derivatives_it_has_none(arguments):
    args, kwargs = arguments
    exported = jax.export.export(jax.jit(attend))(*args, **kwargs)
    assert not shm.flattened(dataclasses.replace(exported, _get_vjp=None)).has_vjp()


def test_a_function_is_refused():
    function: Any = attend
    with pytest.raises(shm.InputError, match="export the function first, by shm.export or jax.export.export"):
        shm.flattened(function)
