"""Programs nobody looked at while the memory model was written: measured, never mended for."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from tests.programs.forward import Program, spec


def grouped_query_attention(q: Array, k: Array, v: Array) -> Array:
    """Causal attention of four query heads a key head."""
    grouped = q.reshape(k.shape[0], -1, *q.shape[1:])
    scores = jnp.einsum("hgqd,hkd->hgqk", grouped, k) * q.shape[-1] ** -0.5
    causal = jnp.arange(q.shape[1])[:, None] >= jnp.arange(k.shape[1])[None]
    weights = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), -1)
    return jnp.einsum("hgqk,hkd->hgqd", weights, v).reshape(q.shape)


def _quantisation_loss(x: Array, codes: Array) -> Array:
    distances = (x**2).sum(-1)[:, None] - 2 * x @ codes.T + (codes**2).sum(-1)[None]
    soft = jax.nn.softmax(-distances, -1)
    return ((x - soft @ codes) ** 2).mean()


def cubic_kernel_scores(x: Array, support: Array, weights: Array) -> Array:
    return jax.nn.softmax(((x @ support.T) / 8.0 + 1.0) ** 3 @ weights, -1)


UNSEEN: dict[str, Program] = {
    "grouped_query_attention": (grouped_query_attention, (spec(16, 8192, 128), spec(4, 8192, 128), spec(4, 8192, 128))),
    "quantisation_grad": (jax.value_and_grad(_quantisation_loss, (0, 1)), (spec(262_144, 64), spec(8192, 64))),
    "cubic_kernel_scores": (cubic_kernel_scores, (spec(200_000, 64), spec(20_000, 64), spec(20_000, 100))),
}
