"""Queries whose keys are all masked: what programs compute for them, which no kernel does.

A program fills the scores of masked keys with one number, or adds a number beside which the scores are lost. Where all
keys of a query are masked its probabilities are equal and its output is the mean of all values; or zero, if the program
sets the probabilities of masked keys to zero as well. Kernels skip masked keys, or add a number beside which logarithms
of sums are lost. So outputs of such queries are replaced, their gradients kept from the kernel, and what they add to
the gradient of the values is added. What is added to scores lets their gradients through, with P = 1 / n:

    dQ_i = scale · dO_i · (Vᵀ K / n - mean(V) mean(K)ᵀ)        dK_j = scale / n · (V_j - mean(V)) · Σ_i dO_i Q_iᵀ
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from stablehlo_mem.attention.layout import KernelShape
from stablehlo_mem.frontend.inline import inlined
from stablehlo_mem.ir.bindings import dtypes_by_name


def output(shape: KernelShape, of_kernel: Any, values: Any, kept: Any) -> Any:
    """The output, for queries without keys the mean of the values.

    Args:
        kept: which queries have keys, batch x heads x queries.
    """
    (result,) = inlined(_lowered(_output, shape, shape.output, shape.value), [of_kernel, values, kept])
    return result


def masked(shape: KernelShape, gradient: Any, kept: Any) -> Any:
    """The gradient of the output, zero for queries without keys."""
    (result,) = inlined(_lowered(_masked, shape, shape.output), [gradient, kept])
    return result


def value_gradient(shape: KernelShape, of_kernel: Any, gradient: Any, kept: Any) -> Any:
    """The gradient of the values with what queries without keys add: the same for each key."""
    (result,) = inlined(_lowered(_value_gradient, shape, shape.value, shape.output), [of_kernel, gradient, kept])
    return result


def query_gradient(shape: KernelShape, of_kernel: Any, gradient: Any, keys: Any, values: Any, kept: Any) -> Any:
    """The gradient of the queries with that of queries without keys, where masks are added to scores."""
    text = _lowered(_query_gradient, shape, shape.query, shape.output, shape.key, shape.value)
    (result,) = inlined(text, [of_kernel, gradient, keys, values, kept])
    return result


def key_gradient(shape: KernelShape, of_kernel: Any, gradient: Any, queries: Any, values: Any, kept: Any) -> Any:
    """The gradient of the keys with what queries without keys add, where masks are added to scores."""
    text = _lowered(_key_gradient, shape, shape.key, shape.output, shape.query, shape.value)
    (result,) = inlined(text, [of_kernel, gradient, queries, values, kept])
    return result


@functools.lru_cache(maxsize=64)
def _lowered(function: Any, shape: KernelShape, *shapes: tuple[int, ...]) -> str:
    dtype = dtypes_by_name()[shape.dtype]
    kept = jax.ShapeDtypeStruct((shape.batch, shape.heads, shape.queries), jnp.bool_)
    specs = [*(jax.ShapeDtypeStruct(one, dtype) for one in shapes), kept]
    with jax.enable_x64(False):
        return jax.jit(functools.partial(function, shape)).trace(*specs).lower(lowering_platforms=("cpu",)).as_text()


def _rows(shape: KernelShape, kept: Any) -> Any:
    """The predicate in the order of the kernel's dimensions."""
    return (kept.transpose(0, 2, 1) if shape.rows_first else kept)[..., None]


def _sequence(shape: KernelShape) -> int:
    return 1 if shape.rows_first else 2


def _output(shape: KernelShape, of_kernel: Any, values: Any, kept: Any) -> Any:
    mean = values.astype(jnp.float32).mean(_sequence(shape), keepdims=True)
    groups = shape.heads // shape.kv_heads
    heads = 2 if shape.rows_first else 1
    return jnp.where(_rows(shape, kept), of_kernel, jnp.repeat(mean, groups, heads).astype(of_kernel.dtype))


def _masked(shape: KernelShape, gradient: Any, kept: Any) -> Any:
    return jnp.where(_rows(shape, kept), gradient, 0)


def _value_gradient(shape: KernelShape, of_kernel: Any, gradient: Any, kept: Any) -> Any:
    lost = jnp.where(_rows(shape, kept), 0, gradient).astype(jnp.float32).sum(_sequence(shape), keepdims=True)
    heads = 2 if shape.rows_first else 1
    groups = shape.heads // shape.kv_heads
    grouped = (*lost.shape[:heads], shape.kv_heads, groups, *lost.shape[heads + 1 :])
    added = lost.reshape(grouped).sum(heads + 1) / shape.keys
    return (of_kernel.astype(jnp.float32) + added).astype(of_kernel.dtype)


def _grouped(shape: KernelShape, value: Any) -> Any:
    """Batch, key heads, queries of a key head, rows, depth."""
    value = value.transpose(0, 2, 1, 3) if shape.rows_first else value
    batch, heads, rows, depth = value.shape
    return value.reshape(batch, shape.kv_heads, heads // shape.kv_heads, rows, depth)


def _as_before(shape: KernelShape, grouped: Any) -> Any:
    batch, kv_heads, groups, rows, depth = grouped.shape
    value = grouped.reshape(batch, kv_heads * groups, rows, depth)
    return value.transpose(0, 2, 1, 3) if shape.rows_first else value


_in_float32 = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
"""Products summed in float32 of operands as they are: converted ones would be arrays of their own."""


def _query_gradient(shape: KernelShape, of_kernel: Any, gradient: Any, keys: Any, values: Any, kept: Any) -> Any:
    lost = _grouped(shape, jnp.where(_rows(shape, kept), 0, gradient))
    keys, values = (_grouped(shape, x)[:, :, 0] for x in (keys, values))
    means = (x.astype(jnp.float32).mean(2) for x in (values, keys))
    covariance = _in_float32("bhkv,bhkd->bhvd", values, keys) / shape.keys - jnp.einsum("bhv,bhd->bhvd", *means)
    covariance = (covariance * shape.scale).astype(of_kernel.dtype)
    return of_kernel + _as_before(shape, jnp.einsum("bhgqv,bhvd->bhgqd", lost, covariance))  # one of them is zero


def _key_gradient(shape: KernelShape, of_kernel: Any, gradient: Any, queries: Any, values: Any, kept: Any) -> Any:
    lost = _grouped(shape, jnp.where(_rows(shape, kept), 0, gradient))
    values = _grouped(shape, values)[:, :, 0]
    of_lost = _in_float32("bhgqv,bhgqd->bhvd", lost, _grouped(shape, queries)) * (shape.scale / shape.keys)
    of_lost = of_lost.astype(values.dtype)
    mean = values.astype(jnp.float32).mean(2, keepdims=True)
    added = _in_float32("bhkv,bhvd->bhkd", values, of_lost) - mean @ of_lost.astype(jnp.float32)
    return (of_kernel.astype(jnp.float32) + _as_before(shape, added[:, :, None])).astype(of_kernel.dtype)
