"""Other programs: `DEVELOPMENT` were looked at while the memory model was written, `HELD_OUT` never were."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax

from tests.programs.forward import Program, spec


def _layer_norm(x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def norm_mlp(x: Array, w1: Array, w2: Array) -> Array:
    return x + jax.nn.gelu(_layer_norm(x) @ w1) @ w2


def gpt_block(x: Array, qkv: Array, out: Array, w1: Array, w2: Array) -> Array:
    batch, tokens, width = x.shape
    q, k, v = jnp.split((_layer_norm(x) @ qkv).reshape(batch, tokens, 3, width // 64, 64), 3, 2)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q[:, :, 0], k[:, :, 0]) / 8.0
    mask = jnp.tril(jnp.ones((tokens, tokens), bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), -1)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, v[:, :, 0]).reshape(x.shape)
    x = x + mixed @ out
    return x + jax.nn.gelu(_layer_norm(x) @ w1) @ w2


def conv_net(images: Array, k1: Array, k2: Array, weights: Array) -> Array:
    dims = ("NHWC", "HWIO", "NHWC")
    x = jax.nn.relu(lax.conv_general_dilated(images, k1, (1, 1), "SAME", dimension_numbers=dims))
    x = jax.nn.relu(lax.conv_general_dilated(x, k2, (2, 2), "SAME", dimension_numbers=dims))
    return jax.nn.log_softmax(x.mean((1, 2)) @ weights)


def pairwise_l1(x: Array, y: Array) -> Array:
    return jnp.abs(x[:, None] - y[None]).sum(-1).min(1)


def gp_predict(x: Array, y: Array, new: Array) -> Array:
    def kernel(a: Array, b: Array) -> Array:
        return jnp.exp(-((a[:, None] - b[None]) ** 2).sum(-1))

    factor = jnp.linalg.cholesky(kernel(x, x) + 1e-3 * jnp.eye(len(x)))
    return kernel(new, x) @ jax.scipy.linalg.cho_solve((factor, True), y)


def rnn(inputs: Array, w: Array, u: Array) -> Array:
    def step(state: Array, x: Array) -> tuple[Array, Array]:
        state = jnp.tanh(state @ w + x @ u)
        return state, state

    return lax.scan(step, jnp.zeros((inputs.shape[1], w.shape[0])), inputs)[1].mean(0)


def embed_classify(tokens: Array, table: Array, weights: Array) -> Array:
    return jax.nn.softmax(table[tokens].mean(1) @ weights, -1).max(-1)


def linear_attention(q: Array, k: Array, v: Array) -> Array:
    features = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1
    state = jnp.einsum("bnhd,bnhe->bhde", features[1], v)
    norm = jnp.einsum("bnhd,bhd->bnh", features[0], features[1].sum(1))
    return jnp.einsum("bnhd,bhde->bnhe", features[0], state) / norm[..., None]


def heat(grid: Array) -> Array:
    def step(_: Array | int, u: Array) -> Array:
        around = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)
        return u + 0.1 * (around - 4 * u)

    return lax.fori_loop(0, 100, step, grid)


def mixture_log_likelihood(x: Array, means: Array, log_scales: Array, weights: Array) -> Array:
    scaled = (x[:, None] - means[None]) * jnp.exp(-log_scales)[None]
    log_density = -0.5 * (scaled**2).sum(-1) - log_scales.sum(-1)[None] + jax.nn.log_softmax(weights)[None]
    return jax.nn.logsumexp(log_density, 1).mean()


DEVELOPMENT: dict[str, Program] = {
    "norm_mlp": (norm_mlp, (spec(32768, 1024), spec(1024, 4096), spec(4096, 1024))),
    "gpt_block": (
        gpt_block,
        (spec(8, 2048, 1024), spec(1024, 3072), spec(1024, 1024), spec(1024, 4096), spec(4096, 1024)),
    ),
    "conv_net": (conv_net, (spec(256, 64, 64, 3), spec(3, 3, 3, 64), spec(3, 3, 64, 128), spec(128, 1000))),
    "pairwise_l1": (pairwise_l1, (spec(20_000, 16), spec(30_000, 16))),
    "gp_predict": (gp_predict, (spec(2048, 4), spec(2048), spec(100_000, 4))),
    "rnn": (rnn, (spec(512, 256, 256), spec(1024, 1024), spec(256, 1024))),
    "embed_classify": (
        embed_classify,
        (spec(8192, 64, dtype=jnp.int32), spec(50_000, 256), spec(256, 50_000)),
    ),
    "linear_attention": (linear_attention, (spec(4, 16384, 16, 64),) * 3),
    "heat": (heat, (spec(8192, 8192),)),
    "mixture": (mixture_log_likelihood, (spec(200_000, 16), spec(1024, 16), spec(1024, 16), spec(1024))),
}


def sinkhorn(x: Array, y: Array) -> Array:
    """Entropic optimal transport, ten iterations in the log domain."""
    cost = ((x[:, None] - y[None]) ** 2).sum(-1)

    def step(_: Array | int, potentials: tuple[Array, Array]) -> tuple[Array, Array]:
        _, g = potentials
        f = -jax.nn.logsumexp(g[None] - cost, 1)
        return f, -jax.nn.logsumexp(f[:, None] - cost, 0)

    f, g = lax.fori_loop(0, 10, step, (jnp.zeros(len(x)), jnp.zeros(len(y))))
    return (jnp.exp(f[:, None] + g[None] - cost) * cost).sum()


def swiglu(x: Array, gate: Array, up: Array, down: Array) -> Array:
    scaled = x * lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    return x + (jax.nn.silu(scaled @ gate) * (scaled @ up)) @ down


def contrastive(a: Array, b: Array) -> Array:
    a, b = (t / jnp.linalg.norm(t, axis=-1, keepdims=True) for t in (a, b))
    logits = a @ b.T / 0.07
    diagonal = jnp.diagonal(logits)
    return (jax.nn.logsumexp(logits, 1) + jax.nn.logsumexp(logits, 0) - 2 * diagonal).mean()


def message_passing(nodes: Array, edges: Array, w1: Array, w2: Array) -> Array:
    pairs = jnp.concatenate([nodes[edges[0]], nodes[edges[1]]], -1)
    messages = jax.nn.relu(pairs @ w1) @ w2
    return nodes + jnp.zeros_like(nodes).at[edges[1]].add(messages)


def cosine_ranks(items: Array, queries: Array) -> tuple[Array, Array]:
    scores = (queries @ items.T) * lax.rsqrt((items**2).sum(-1))[None]
    return lax.top_k(scores, 100)


def bf16_mlp(x: Array, w1: Array, w2: Array) -> Array:
    return jax.nn.relu(x @ w1) @ w2


def local_attention(q: Array, k: Array, v: Array) -> Array:
    """Attention within windows of 512 tokens and the window before."""

    def windows(t: Array) -> Array:
        return t.reshape(t.shape[0], -1, 512, t.shape[-1])

    def with_previous(t: Array) -> Array:
        w = windows(t)
        return jnp.concatenate([jnp.pad(w, ((0, 0), (1, 0), (0, 0), (0, 0)))[:, :-1], w], 2)

    scores = jnp.einsum("hwqd,hwkd->hwqk", windows(q), with_previous(k)) / 8.0
    return jnp.einsum("hwqk,hwkd->hwqd", jax.nn.softmax(scores, -1), with_previous(v)).reshape(q.shape)


DEVELOPMENT["swiglu"] = (swiglu, (spec(16384, 2048), spec(2048, 8192), spec(2048, 8192), spec(8192, 2048)))
DEVELOPMENT["local_attention"] = (local_attention, (spec(16, 65536, 64),) * 3)

HELD_OUT: dict[str, Program] = {
    "sinkhorn": (sinkhorn, (spec(20_000, 3), spec(20_000, 3))),
    "contrastive": (contrastive, (spec(32768, 512),) * 2),
    "message_passing": (
        message_passing,
        (spec(100_000, 64), spec(2, 2_000_000, dtype=jnp.int32), spec(128, 128), spec(128, 64)),
    ),
    "cosine_ranks": (cosine_ranks, (spec(100_000, 64), spec(4096, 64))),
    "bf16_mlp": (
        bf16_mlp,
        tuple(spec(*shape, dtype=jnp.bfloat16) for shape in ((32768, 1024), (1024, 8192), (8192, 1024))),
    ),
}
