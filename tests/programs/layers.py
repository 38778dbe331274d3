"""Training steps whose scans store what hosts have room for; plain JAX, nothing is split or checkpointed."""

import jax
import jax.numpy as jnp

LAYERS, WIDTH, BATCH, TOKENS, HEADS = 24, 1024, 8, 1024, 16


def _spec(*shape, dtype=jnp.bfloat16):
    return jax.ShapeDtypeStruct(shape, dtype)


def _norm(x):
    x = x.astype(jnp.float32)
    x = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    return x.astype(jnp.bfloat16)


def _transformer_layer(h, w):
    heads = (BATCH, TOKENS, HEADS, WIDTH // HEADS)
    q, k, v = (a.reshape(heads) for a in jnp.split(_norm(h) @ w["qkv"], 3, -1))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (WIDTH // HEADS) ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones((TOKENS, TOKENS), bool)), scores, -jnp.inf)
    probabilities = jax.nn.softmax(scores.astype(jnp.float32), -1).astype(jnp.bfloat16)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", probabilities, v).reshape(BATCH, TOKENS, WIDTH)
    h = h + mixed @ w["out"]
    return h + jax.nn.gelu(_norm(h) @ w["up"]) @ w["down"]


def transformer_step(w, x, y):
    """One step of gradient descent on 24 layers of width 1,024, 8 x 1,024 tokens, in bfloat16."""

    def loss(w):
        h, _ = jax.lax.scan(lambda h, w: (_transformer_layer(h, w), None), x, w)
        return ((h.astype(jnp.float32) - y) ** 2).mean()

    value, gradients = jax.value_and_grad(loss)(w)
    return jax.tree.map(lambda a, g: (a - 1e-3 * g).astype(a.dtype), w, gradients), value


TRANSFORMER = (
    {
        "qkv": _spec(LAYERS, WIDTH, 3 * WIDTH),
        "out": _spec(LAYERS, WIDTH, WIDTH),
        "up": _spec(LAYERS, WIDTH, 4 * WIDTH),
        "down": _spec(LAYERS, 4 * WIDTH, WIDTH),
    },
    _spec(BATCH, TOKENS, WIDTH),
    _spec(BATCH, TOKENS, WIDTH, dtype=jnp.float32),
)


def mlp_gradient(w, x):
    """The gradient of 32 residual blocks, whose inputs are 512 MiB and whose work in one block is not much."""

    def loss(w):
        h, _ = jax.lax.scan(lambda h, w: (h + jnp.tanh(h @ w["up"]) @ w["down"], None), x, w)
        return (h.astype(jnp.float32) ** 2).mean()

    return jax.grad(loss)(w)


MLP = {"up": _spec(32, 2048, 8192), "down": _spec(32, 8192, 2048)}, _spec(4096, 2048)
