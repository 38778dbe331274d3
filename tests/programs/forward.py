"""The forward programs the memory model is calibrated on: plain functions and the shapes of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

Program = tuple[Callable[..., Any], tuple[jax.ShapeDtypeStruct, ...]]


def spec(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def attention(q: Array, k: Array, v: Array) -> Array:
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / np.sqrt(q.shape[-1])
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, -1), v)


def rbf(x: Array, y: Array, v: Array) -> Array:
    return jnp.exp(-0.5 * ((x[:, None] - y[None]) ** 2).sum(-1)) @ v


def knn(points: Array, queries: Array) -> tuple[Array, Array]:
    squares = (queries**2).sum(-1)[:, None] + (points**2).sum(-1)[None]
    values, indices = jax.lax.top_k(2 * queries @ points.T - squares, 10)
    return values, indices


def head(hidden: Array, weights: Array, labels: Array) -> Array:
    log_probabilities = jax.nn.log_softmax(hidden @ weights, -1)
    return -jnp.take_along_axis(log_probabilities, labels[:, None], 1).mean()


def mlp(x: Array, w1: Array, w2: Array) -> Array:
    return jax.nn.gelu(x @ w1) @ w2


def kmeans(x: Array, centers: Array) -> Array:
    return jnp.argmin(((x[:, None] - centers[None]) ** 2).sum(-1), 1)


def _attention_loss(q: Array, k: Array, v: Array) -> Array:
    return jnp.tanh(attention(q, k, v)).sum()


def _rbf_loss(x: Array, y: Array, v: Array) -> Array:
    return jnp.sin(rbf(x, y, v)).sum()


def _mlp_loss(x: Array, w1: Array, w2: Array) -> Array:
    return (mlp(x, w1, w2) ** 2).sum()


_QKV = (spec(8, 16384, 64),) * 3
_CLOUD = (spec(50_000, 8), spec(50_000, 8), spec(50_000))
_HEAD = (spec(16384, 2048), spec(2048, 131072), spec(16384, dtype=jnp.int32))
_MLP = (spec(65536, 1024), spec(1024, 16384), spec(16384, 1024))

FORWARD: dict[str, Program] = {
    "attention": (attention, _QKV),
    "rbf": (rbf, _CLOUD),
    "knn": (knn, (spec(50_000, 32),) * 2),
    "head": (head, _HEAD),
    "mlp": (mlp, _MLP),
    "kmeans": (kmeans, (spec(1_000_000, 64), spec(1024, 64))),
    "rbf_prime": (rbf, (spec(1_000_003, 8), spec(1_000_003, 8), spec(1_000_003))),
}

GRADIENTS: dict[str, Program] = {
    "attention_grad": (jax.value_and_grad(_attention_loss, (0, 1, 2)), _QKV),
    "head_grad": (jax.value_and_grad(head, (0, 1)), _HEAD),
    "mlp_grad": (jax.grad(_mlp_loss, (0, 1, 2)), _MLP),
    "rbf_grad": (jax.grad(_rbf_loss, (0, 1, 2)), _CLOUD),
}


# The same programs as loops, by hand: rows at a time written back in place, or columns at a time accumulated.


def _rows(step: Callable[[Array], Any], *, count: int, size: int, out: Any) -> Any:
    def body(i: Array, carry: Any) -> Any:
        start = jnp.minimum(i * size, count - size)
        part = step(start)
        return jax.tree.map(lambda c, p: jax.lax.dynamic_update_slice_in_dim(c, p, start, 0), carry, part)

    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), out)
    return jax.lax.fori_loop(0, -(-count // size), body, zeros)


def _take(x: Array, start: Array, size: int, axis: int = 0) -> Array:
    return jax.lax.dynamic_slice_in_dim(x, start, size, axis)


def attention_by_queries(q: Array, k: Array, v: Array) -> Array:
    size = 512
    zeros = jnp.zeros_like(q)

    def body(i: Array, carry: Array) -> Array:
        part = attention(_take(q, i * size, size, 1), k, v)
        return jax.lax.dynamic_update_slice_in_dim(carry, part, i * size, 1)

    return jax.lax.fori_loop(0, q.shape[1] // size, body, zeros)


def attention_by_heads(q: Array, k: Array, v: Array) -> Array:
    return _rows(lambda i: attention(_take(q, i, 1), _take(k, i, 1), _take(v, i, 1)), count=q.shape[0], size=1, out=q)


def rbf_by_rows(x: Array, y: Array, v: Array, size: int = 1000) -> Array:
    return _rows(lambda i: rbf(_take(x, i, size), y, v), count=len(x), size=size, out=v)


def rbf_by_columns(x: Array, y: Array, v: Array) -> Array:
    size = 1000

    def body(i: Array, carry: Array) -> Array:
        return carry + rbf(x, _take(y, i * size, size), _take(v, i * size, size))

    return jax.lax.fori_loop(0, len(y) // size, body, jnp.zeros(len(x)))


def knn_by_rows(points: Array, queries: Array) -> tuple[Array, Array]:
    size = 500
    out = (spec(len(queries), 10), spec(len(queries), 10, dtype=jnp.int32))
    return _rows(lambda i: knn(points, _take(queries, i, size)), count=len(queries), size=size, out=out)


def head_by_rows(hidden: Array, weights: Array, labels: Array) -> Array:
    size = 256

    def body(i: Array, total: Array) -> Array:
        logits = jax.nn.log_softmax(_take(hidden, i * size, size) @ weights, -1)
        return total + jnp.take_along_axis(logits, _take(labels, i * size, size)[:, None], 1).sum()

    total = jax.lax.fori_loop(0, len(hidden) // size, body, jnp.zeros(()))
    return -total / len(hidden)


def mlp_by_rows(x: Array, w1: Array, w2: Array) -> Array:
    size = 1024
    return _rows(lambda i: mlp(_take(x, i, size), w1, w2), count=len(x), size=size, out=x)


def kmeans_by_rows(x: Array, centers: Array) -> Array:
    size = 5000
    out = spec(len(x), dtype=jnp.int32)
    return _rows(lambda i: kmeans(_take(x, i, size), centers), count=len(x), size=size, out=out)


def rbf_prime_by_rows(x: Array, y: Array, v: Array) -> Array:
    return rbf_by_rows(x, y, v, size=24)


SPLIT: dict[str, Program] = {
    "attention_by_queries": (attention_by_queries, _QKV),
    "attention_by_heads": (attention_by_heads, _QKV),
    "rbf_by_rows": (rbf_by_rows, _CLOUD),
    "rbf_by_columns": (rbf_by_columns, _CLOUD),
    "knn_by_rows": (knn_by_rows, FORWARD["knn"][1]),
    "head_by_rows": (head_by_rows, _HEAD),
    "mlp_by_rows": (mlp_by_rows, _MLP),
    "kmeans_by_rows": (kmeans_by_rows, FORWARD["kmeans"][1]),
    "rbf_prime_by_rows": (rbf_prime_by_rows, FORWARD["rbf_prime"][1]),
}
