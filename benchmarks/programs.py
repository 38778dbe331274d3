"""The programs that are measured, as a user writes them, and the sizes they are measured at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

Spec = jax.ShapeDtypeStruct


def attention(q, k, v):
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / np.sqrt(q.shape[-1])
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, -1), v)


def rbf(x, y, v):
    return jnp.exp(-0.5 * ((x[:, None] - y[None]) ** 2).sum(-1)) @ v


def knn(x, q):
    distances = (q**2).sum(-1)[:, None] + (x**2).sum(-1)[None] - 2 * q @ x.T
    return jax.lax.top_k(-distances, 10)


def head(h, w, y):
    logits = jax.nn.log_softmax(h @ w, -1)
    return -jnp.take_along_axis(logits, y[:, None], 1).mean()


def mlp(x, w1, w2):
    return jax.nn.gelu(x @ w1) @ w2


def kmeans(x, c):
    return jnp.argmin(((x[:, None] - c[None]) ** 2).sum(-1), 1)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "attention": attention,
    "rbf": rbf,
    "knn": knn,
    "head": head,
    "mlp": mlp,
    "kmeans": kmeans,
    "rbf_prime": rbf,
}


def specs(name: str, *sizes: int) -> list[Spec]:
    """The arguments of a program at a size: e.g. `specs("attention", 8, 16384, 64)`."""

    def f32(*shape: int) -> Spec:
        return Spec(shape, jnp.float32)

    if name == "attention":
        return [f32(*sizes)] * 3
    if name in ("rbf", "rbf_prime"):
        n, d = sizes
        return [f32(n, d), f32(n, d), f32(n)]
    if name == "knn":
        points, queries, d = sizes
        return [f32(points, d), f32(queries, d)]
    if name == "head":
        tokens, width, vocabulary = sizes
        return [f32(tokens, width), f32(width, vocabulary), Spec((tokens,), jnp.int32)]
    if name == "mlp":
        tokens, width, hidden = sizes
        return [f32(tokens, width), f32(width, hidden), f32(hidden, width)]
    n, centres, d = sizes
    return [f32(n, d), f32(centres, d)]


ACCEPTANCE: dict[str, tuple[int, ...]] = {
    "attention": (8, 16384, 64),
    "rbf": (50_000, 8),
    "knn": (50_000, 50_000, 32),
    "head": (16384, 2048, 131072),
    "mlp": (65536, 1024, 16384),
    "kmeans": (1_000_000, 1024, 64),
    "rbf_prime": (1_000_003, 8),
}
"""Sizes at which the compilers' peaks are compared: nothing is executed."""

ON_CPU: dict[str, tuple[int, ...]] = {
    "attention": (8, 8192, 64),
    "knn": (20_000, 20_000, 32),
    "kmeans": (131_072, 1024, 64),
}
"""Sizes that run in a few seconds on two cores."""

ON_GPU: dict[str, tuple[int, ...]] = {
    "attention": (8, 32768, 64),
    "knn": (100_000, 50_000, 32),
    "kmeans": (2_000_000, 1024, 64),
    "rbf": (100_000, 8),
    "mlp": (131072, 1024, 16384),
    "head": (16384, 2048, 131072),
}
"""Sizes whose originals an H200 can hold, some only just."""


def export(name: str, sizes: Sequence[int], platform: str) -> jax.export.Exported:
    """A program at a size, exported for a platform."""
    return jax.export.export(jax.jit(FUNCTIONS[name]), platforms=[platform])(*specs(name, *sizes))


def describe(sizes: Sequence[int]) -> str:
    """Sizes as text: "8 x 8192 x 64"."""
    return " x ".join(str(size) for size in sizes)
