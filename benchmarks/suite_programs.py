"""The programs of `suite.py`: as a user writes them, and as an expert does by hand, in chunks of `lax.map`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import programs
from exla import knn

Spec = jax.ShapeDtypeStruct
Function = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """A program at a size that takes a second or so on two cores.

    Attributes:
        function: as a user writes it.
        shapes: of its arguments, float32.
        by_hand: the same in chunks of a batch size; None where nobody would.
        indices: of the arguments that are indices, how many there are to choose from.
    """

    function: Function
    shapes: tuple[tuple[int, ...], ...]
    by_hand: Callable[[int], Function] | None = None
    indices: dict[int, int] = dataclasses.field(default_factory=dict)

    def specs(self) -> list[Spec]:
        return [Spec(s, jnp.int32 if i in self.indices else jnp.float32) for i, s in enumerate(self.shapes)]

    def exported(self) -> jax.export.Exported:
        return jax.export.export(jax.jit(self.function), platforms=["cpu"])(*self.specs())

    def arguments(self) -> list[jax.Array]:
        rng = np.random.default_rng(0)
        return [
            jnp.asarray(rng.integers(0, self.indices[i], shape, np.int32))
            if i in self.indices
            else jnp.asarray(0.5 * rng.standard_normal(shape, np.float32))
            for i, shape in enumerate(self.shapes)
        ]


def over_rows(row: Function) -> Callable[[int], Function]:
    """By hand: one row of the first argument, mapped over all in batches."""
    return lambda batch: lambda x, *rest: jax.lax.map(lambda one: row(one, *rest), x, batch_size=batch)


def attention_by_hand(batch: int) -> Function:
    """Heads one after another, queries in batches."""

    def one_head(args):
        q, k, v = args
        return jax.lax.map(lambda row: jax.nn.softmax(k @ row / np.sqrt(row.size)) @ v, q, batch_size=batch)

    return lambda q, k, v: jax.lax.map(one_head, (q, k, v))


def attention_loss(attend: Function) -> Function:
    return jax.value_and_grad(lambda q, k, v: jnp.tanh(attend(q, k, v)).sum(), (0, 1, 2))


def attention_gradient_by_hand(batch: int) -> Function:
    """Heads one after another, queries in batches that are computed again in the backward pass."""

    def one_head(args):
        q, k, v = args
        rows = jax.checkpoint(lambda rows: jax.nn.softmax(rows @ k.T / np.sqrt(q.shape[-1])) @ v)
        return jax.lax.map(rows, q.reshape(-1, batch, q.shape[-1])).reshape(q.shape)

    return attention_loss(lambda q, k, v: jax.lax.map(one_head, (q, k, v)))


def kernel_loss(matvec: Function) -> Function:
    return jax.value_and_grad(lambda x, y, v: (matvec(x, y, v) ** 2).sum())


def kernel_gradient_by_hand(batch: int) -> Function:
    rows = jax.checkpoint(programs.rbf)
    return kernel_loss(
        lambda x, y, v: jax.lax.map(lambda some: rows(some, y, v), x.reshape(-1, batch, x.shape[-1])).reshape(-1)
    )


def queries_first(function: Function) -> Function:
    return lambda q, x: function(x, q)


def knn_l2_row(row, x):
    return jax.lax.top_k(2 * x @ row - (row**2).sum() - (x**2).sum(-1), knn.K)


def knn_l1_row(row, x):
    return jax.lax.top_k(-jnp.abs(row - x).sum(-1), knn.K)


def knn_cosine_by_hand(batch: int) -> Function:
    def function(q, x):
        x = knn.normalised(x)
        return jax.lax.map(lambda row: jax.lax.top_k(x @ knn.normalised(row), knn.K), q, batch_size=batch)

    return function


def head_row(args, w):
    row, label = args
    return jax.nn.log_softmax(row @ w)[label]


def head_by_hand(batch: int) -> Function:
    return lambda h, w, y: -jax.lax.map(lambda one: head_row(one, w), (h, y), batch_size=batch).mean()


def n_body(x, mass):
    """Accelerations under gravity, softened."""
    apart = x[None] - x[:, None]
    return (apart * (mass[None] / ((apart**2).sum(-1) + 1e-3) ** 1.5)[..., None]).sum(1)


def n_body_by_hand(batch: int) -> Function:
    def one(row, x, mass):
        apart = x - row
        return (apart * (mass / ((apart**2).sum(-1) + 1e-3) ** 1.5)[:, None]).sum(0)

    return lambda x, mass: jax.lax.map(lambda row: one(row, x, mass), x, batch_size=batch)


def kernel(x, y):
    return jnp.exp(-0.5 * ((x[:, None] - y[None]) ** 2).sum(-1))


def gp_prediction(new, x, y):
    """Mean and variance of a Gaussian process at new points."""
    factor = jnp.linalg.cholesky(kernel(x, x) + 0.1 * jnp.eye(len(x)))
    between = kernel(new, x)
    half = jax.scipy.linalg.solve_triangular(factor, between.T, lower=True)
    return between @ jax.scipy.linalg.cho_solve((factor, True), y), 1 - (half**2).sum(0)


def gp_prediction_by_hand(batch: int) -> Function:
    def function(new, x, y):
        factor = jnp.linalg.cholesky(kernel(x, x) + 0.1 * jnp.eye(len(x)))
        weights = jax.scipy.linalg.cho_solve((factor, True), y)

        def some(rows):
            between = kernel(rows, x)
            half = jax.scipy.linalg.solve_triangular(factor, between.T, lower=True)
            return between @ weights, 1 - (half**2).sum(0)

        return tuple(a.reshape(-1) for a in jax.lax.map(some, new.reshape(-1, batch, new.shape[-1])))

    return function


def gpt_block(x, qkv, out, up, down, heads: int = 8):
    """Attention and feed-forward, both after a norm and around a shortcut."""
    batch, length, _ = x.shape

    def norm(x):
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    q, k, v = jnp.moveaxis((norm(x) @ qkv).reshape(batch, length, 3, heads, -1), (2, 3), (0, 2))
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(q.shape[-1])
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
    mixed = jnp.einsum("bhqk,bhkd->bqhd", jax.nn.softmax(scores), v).reshape(x.shape)
    x = x + mixed @ out
    return x + jax.nn.gelu(norm(x) @ up) @ down


def one_of_batch(function: Function) -> Callable[[int], Function]:
    """By hand: one element of the batch, that keeps its dimension, in batches."""
    return lambda batch: lambda x, *rest: jax.lax.map(lambda one: function(one[None], *rest)[0], x, batch_size=batch)


def conv_net(images, *kernels):
    """Convolutions, each with a norm over the picture, and the mean of what they find."""
    x = images
    for k in kernels:
        x = jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        mean, variance = x.mean((1, 2), keepdims=True), x.var((1, 2), keepdims=True)
        x = jax.nn.relu((x - mean) * jax.lax.rsqrt(variance + 1e-5))
    return x.mean((1, 2))


def aggregation(nodes, senders, receivers, w1, w2):
    """Messages along edges, each through a small network, summed where they arrive."""
    pairs = jnp.concatenate([nodes[senders], nodes[receivers]], -1)
    return jax.ops.segment_sum(jax.nn.relu(pairs @ w1) @ w2, receivers, len(nodes))


def aggregation_by_hand(batch: int) -> Function:
    def function(nodes, senders, receivers, w1, w2):
        def step(i, total):
            some = [jax.lax.dynamic_slice_in_dim(a, i * batch, batch) for a in (senders, receivers)]
            return total.at[some[1]].add(aggregation_messages(nodes, *some, w1, w2))

        return jax.lax.fori_loop(0, len(senders) // batch, step, jnp.zeros((len(nodes), w2.shape[1])))

    return function


def aggregation_messages(nodes, senders, receivers, w1, w2):
    return jax.nn.relu(jnp.concatenate([nodes[senders], nodes[receivers]], -1) @ w1) @ w2


def rbf_row(row, y, v):
    return jnp.exp(-0.5 * ((row - y) ** 2).sum(-1)) @ v


def kmeans_row(row, c):
    return jnp.argmin(((row - c) ** 2).sum(-1))


_HEADS = ((8, 4096, 64),) * 3
CASES: dict[str, Case] = {
    "attention": Case(programs.attention, _HEADS, attention_by_hand),
    "attention gradient": Case(attention_loss(programs.attention), _HEADS, attention_gradient_by_hand),
    "kernel x vector": Case(programs.rbf, ((20_480, 10), (20_480, 10), (20_480,)), over_rows(rbf_row)),
    "kernel gradient": Case(kernel_loss(programs.rbf), ((16_384, 3), (16_384, 3), (16_384,)), kernel_gradient_by_hand),
    "knn L2": Case(queries_first(knn.l2), ((4_096, 32), (65_536, 32)), over_rows(knn_l2_row)),
    "knn L1": Case(queries_first(knn.l1), ((1_024, 16), (65_536, 16)), over_rows(knn_l1_row)),
    "knn cosine": Case(queries_first(knn.cosine), ((4_096, 32), (65_536, 32)), knn_cosine_by_hand),
    "head": Case(programs.head, ((4_096, 256), (256, 32_768), (4_096,)), head_by_hand, {2: 32_768}),
    "mlp": Case(
        programs.mlp, ((16_384, 256), (256, 8_192), (8_192, 256)), over_rows(lambda x, a, b: programs.mlp(x, a, b))
    ),
    "k-means": Case(programs.kmeans, ((131_072, 32), (1_024, 32)), over_rows(kmeans_row)),
    "n-body": Case(n_body, ((8_192, 3), (8_192,)), n_body_by_hand),
    "GP prediction": Case(gp_prediction, ((16_384, 3), (2_048, 3), (2_048,)), gp_prediction_by_hand),
    "GPT block": Case(
        gpt_block, ((8, 1_024, 512), (512, 1_536), (512, 512), (512, 2_048), (2_048, 512)), one_of_batch(gpt_block)
    ),
    "conv net": Case(
        conv_net, ((64, 64, 64, 3), (3, 3, 3, 32), (3, 3, 32, 64), (3, 3, 64, 64)), one_of_batch(conv_net)
    ),
    "GNN aggregation": Case(
        aggregation,
        ((20_000, 32), (524_288,), (524_288,), (64, 64), (64, 32)),
        aggregation_by_hand,
        {1: 20_000, 2: 20_000},
    ),
}
"""A dozen and some programs, each of other ops and shapes."""


@functools.cache
def arguments(name: str) -> list[jax.Array]:
    """Of one process all contenders have the same."""
    return CASES[name].arguments()
