"""The pair half of an Evoformer block as in AlphaFold: triangle multiplication, then attention around each residue.

The attention has a score for every three residues and every head.
"""

import jax
import jax.numpy as jnp
from showing import show

import stablehlo_mem as shm

RESIDUES, CHANNELS, HEADS = 144, 32, 4


def normalised(x):
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def triangle_multiplication(w, pair):
    z = normalised(pair)
    left = jax.nn.sigmoid(z @ w["left_gate"]) * (z @ w["left"])
    right = jax.nn.sigmoid(z @ w["right_gate"]) * (z @ w["right"])
    update = normalised(jnp.einsum("ikc,jkc->ijc", left, right)) @ w["out"]
    return pair + jax.nn.sigmoid(z @ w["gate"]) * update


def triangle_attention(w, pair):
    z = normalised(pair)
    q, k, v = (jnp.einsum("ijc,chd->hijd", z, w[name]) for name in ("q", "k", "v"))
    bias = jnp.einsum("jkc,ch->hjk", z, w["bias"])
    weights = jax.nn.softmax(jnp.einsum("hijd,hikd->hijk", q, k) / q.shape[-1] ** 0.5 + bias[:, None])
    mixed = jnp.einsum("hijk,hikd->ijhd", weights, v).reshape(pair.shape)
    return pair + jax.nn.sigmoid(z @ w["gate"]) * (mixed @ w["out"])


def transition(w, pair):
    return pair + jax.nn.relu(normalised(pair) @ w["wide"]) @ w["narrow"]


def block(weights, pair):
    for layer in (triangle_multiplication, triangle_attention, transition):
        pair = layer(weights[layer.__name__], pair)
    return pair


c, d = CHANNELS, CHANNELS // HEADS
shapes = {
    "triangle_multiplication": dict.fromkeys(("left", "left_gate", "right", "right_gate", "gate", "out"), (c, c)),
    "triangle_attention": {
        **dict.fromkeys(("q", "k", "v"), (c, HEADS, d)), "bias": (c, HEADS), "gate": (c, c), "out": (c, c)
    },
    "transition": {"wide": (c, 4 * c), "narrow": (4 * c, c)},
}  # fmt: skip
names = iter(jax.random.split(jax.random.key(0), 64))
weights = jax.tree.map(
    lambda s: jax.random.normal(next(names), s) / c**0.5, shapes, is_leaf=lambda s: isinstance(s, tuple)
)
pair = jax.random.normal(next(names), (RESIDUES, RESIDUES, CHANNELS))

small = shm.jit(block, budget="32MiB")
show(small, block, weights, pair)
