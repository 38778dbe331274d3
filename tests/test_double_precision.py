"""A module in double precision: the same program, its arithmetic in float64, or the op that stands in the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stablehlo_mem.checking.double_precision import NoDouble, in_double
from stablehlo_mem.ir.bindings import parse_artifact, parse_module
from stablehlo_mem.targets.execution import Place
from tests.support import exported, in_f64, normals, spec

X = normals(6, 6)
Z = (normals(6, 6) + 1j * normals(6, 6, seed=1)).astype(np.complex64)


def wide(fun: Callable[..., Any], *args: np.ndarray) -> list[np.ndarray]:
    one = exported(fun, *(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in args))
    module = in_double(parse_artifact(one.mlir_module_serialized))
    assert not isinstance(module, NoDouble), module.reason
    place = Place("cpu", jax.devices("cpu")[0])
    return place.run(place.wrapped(module), args)


def scanned(x: jax.Array) -> Any:
    return jax.lax.scan(lambda c, row: (jnp.tanh(c + row), c.sum()), jnp.zeros(6, x.dtype), x)


def chosen(x: jax.Array) -> Any:
    return jax.lax.cond(x[0, 0] > 0, lambda a: a / 3, lambda a: a.T / 7, x)


@pytest.mark.parametrize(
    ("fun", "args"),
    [
        (lambda x: jax.nn.softmax(x @ x.T) @ x, (X,)),
        (lambda x: (x.argmax(1), jax.lax.top_k(x, 2), jnp.sort(x, 0), jnp.cumsum(x, 1)), (X,)),
        (scanned, (X,)),
        (chosen, (X,)),
        (jax.grad(lambda x: jax.nn.logsumexp(x @ x) ** 2), (X,)),
        (lambda x: x.at[jnp.arange(3) * 2].add(x[:3]), (X,)),
        (lambda x: jnp.linalg.cholesky(x @ x.T + 6 * jnp.eye(6)), (X,)),
        (lambda x: jnp.linalg.svd(x)[1], (X,)),
        (lambda x: jnp.linalg.eigvalsh(x + x.T), (X,)),
        (lambda x: abs(jnp.linalg.qr(x)[1]), (X,)),
        (lambda x: jnp.linalg.solve(x, x.T), (X,)),
        (lambda z: (z @ z.conj().T, abs(jnp.linalg.qr(z)[1]), jnp.fft.fft(z)), (Z,)),
        (lambda x: jnp.where(x > 0, jnp.inf, -jnp.inf), (X,)),
        (lambda x: jnp.where(x > 0, jnp.nan, x), (X,)),
        (lambda x: jax.lax.conv(x[None, None], x[None, None, :3, :3], (1, 1), "SAME"), (X,)),
    ],
)
def test_arithmetic_is_in_double_precision(fun: Callable[..., Any], args: tuple[np.ndarray, ...]) -> None:
    assert_close(wide(fun, *args), in_f64(fun, *args))


@pytest.mark.parametrize(
    ("fun", "rightly"),
    [
        (lambda x: jax.lax.reduce_precision(x, 5, 10) * 3, lambda x: x * 3),
        (lambda x: jnp.dot(x, x, precision=jax.lax.DotAlgorithmPreset.F32_F32_F32), lambda x: x @ x),
        (lambda x: (x.astype(jnp.bfloat16) @ x.astype(jnp.bfloat16).T).astype(jnp.float32), lambda x: x @ x.T),
    ],
)
def test_what_asks_for_less_gets_double_precision(fun: Callable[..., Any], rightly: Callable[..., Any]) -> None:
    assert_close(wide(fun, X), in_f64(rightly, X))


def assert_close(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, right in zip(found, expected, strict=True):
        assert one.dtype == right.dtype or right.dtype.kind == "i"
        np.testing.assert_allclose(one, right, rtol=1e-12, atol=1e-13)


def test_random_bits_are_those_of_the_original() -> None:
    def draw(seed: jax.Array) -> jax.Array:
        return jax.random.uniform(jax.random.key(seed), (100,))

    seed = np.asarray(3, np.int32)
    found = wide(draw, seed)[0]
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, jax.jit(draw)(seed), atol=1e-7)


def test_constants_are_those_of_the_program() -> None:
    constant = np.float32(0.1)
    found = wide(lambda x: x * constant, np.ones(2, np.float32))[0]
    assert found[0] == np.float64(constant) != 0.1


def test_the_arguments_keep_their_types_and_the_module_is_left_alone() -> None:
    module = parse_artifact(exported(lambda x: x * 2, spec(3)).mlir_module_serialized)
    before = str(module)
    double = in_double(module)
    assert not isinstance(double, NoDouble)
    assert "@main(%arg0: tensor<3xf32>) -> (tensor<3xf64>" in str(double)
    assert str(module) == before


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("%0 = stablehlo.bitcast_convert %x : (tensor<4xf32>) -> tensor<4xi32>", "stablehlo.bitcast_convert of tensor"),
        ("%0 = stablehlo.custom_call @mine(%x) : (tensor<4xf32>) -> tensor<4xi32>", "custom_call mine"),
    ],
)
def test_what_stands_in_the_way_is_named(body: str, reason: str) -> None:
    text = f"func.func public @main(%x: tensor<4xf32>) -> tensor<4xi32> {{ {body}\nreturn %0 : tensor<4xi32> }}"
    found = in_double(parse_module(text))
    assert isinstance(found, NoDouble)
    assert found.reason.startswith(reason)


def test_there_is_nothing_to_double_in_whole_numbers_and_in_doubles() -> None:
    whole, double = (
        in_double(parse_module(f"func.func public @main(%x: {t}) -> {t} {{ return %x : {t} }}"))
        for t in ("tensor<4xi32>", "tensor<4xf64>")
    )
    assert whole == NoDouble("")
    assert double == NoDouble("the program computes in float64 itself")
