"""A Llama-like training step as its users write it, and with the remat policies they would tune by hand.

RMSNorm, rotary positions, grouped-query attention, SwiGLU, layers in a scan, bfloat16 compute on float32 parameters,
AdamW on donated state: the shapes of MaxText's model of 1.1 billion parameters.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
import training_programs
from training_programs import Program, as_specs, f32, i32

Attention = Literal["plain", "flash"]
Policy = Literal["none", "dots", "nothing", "every 2nd", "every 4th"]
"""What a layer's backward pass finds saved: all, the dots without batch dimensions, the layer's input; or every k-th
layer's input only."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The model and its batch."""

    batch: int
    tokens: int
    layers: int = 16
    width: int = 2048
    hidden: int = 8192
    heads: int = 16
    kv_heads: int = 8
    vocabulary: int = 32_000


def rms_norm(x, scale):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt((wide**2).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype) * scale


def rotate(x):
    """Rotary positions of [batch, tokens, heads, width]."""
    tokens, width = x.shape[1], x.shape[-1]
    angles = jnp.arange(tokens)[:, None] * 10_000.0 ** (-jnp.arange(0, width, 2) / width)
    sin, cos = (f(angles)[:, None, :].astype(x.dtype) for f in (jnp.sin, jnp.cos))
    first, second = jnp.split(x, 2, -1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def plain_attention(q, k, v):
    """Causal softmax attention, softmax in float32; `q` has a group of heads for each head of `k` and `v`."""
    batch, tokens, heads, width = q.shape
    q = q.reshape(batch, tokens, k.shape[2], -1, width)
    scores = jnp.einsum("bqhgd,bkhd->bhgqk", q, k).astype(jnp.float32) * width**-0.5
    causal = jnp.arange(tokens)[:, None] >= jnp.arange(tokens)[None, :]
    probabilities = jax.nn.softmax(jnp.where(causal, scores, -1e30)).astype(v.dtype)
    return jnp.einsum("bhgqk,bkhd->bqhgd", probabilities, v).reshape(batch, tokens, heads, width)


def flash_attention(q, k, v):
    """JAX's own Pallas kernel for TPU."""
    from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention as kernel

    groups = q.shape[2] // k.shape[2]
    k, v = (jnp.repeat(x, groups, axis=2) for x in (k, v))
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    return kernel(q, k, v, causal=True, sm_scale=q.shape[-1] ** -0.5).swapaxes(1, 2)


ATTENTIONS: dict[Attention, Callable[..., Any]] = {"plain": plain_attention, "flash": flash_attention}


def layer(p, x, attend):
    p = jax.tree.map(lambda w: w.astype(jnp.bfloat16), p)
    h = rms_norm(x, p["norm1"])
    q, k, v = (jnp.einsum("btd,dhe->bthe", h, p[name]) for name in ("query", "key", "value"))
    x = x + jnp.einsum("bthe,hed->btd", attend(rotate(q), rotate(k), v), p["out"])
    h = rms_norm(x, p["norm2"])
    return x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]


def through_layers(layers, x, attend, policy: Policy):
    """The layers in a scan, under a policy."""

    def step(x, p):
        return layer(p, x, attend), None

    if policy.startswith("every"):
        every = int(policy.split()[1][0])
        grouped = jax.tree.map(lambda w: w.reshape(-1, every, *w.shape[1:]), layers)
        group = jax.checkpoint(lambda x, p: jax.lax.scan(jax.checkpoint(step), x, p))
        return jax.lax.scan(group, x, grouped)[0]
    dots = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    wrappers: dict[str, Callable[..., Any]] = {
        "none": lambda f: f,
        "dots": functools.partial(jax.checkpoint, policy=dots),
        "nothing": jax.checkpoint,
    }
    return jax.lax.scan(wrappers[policy](step), x, layers)[0]


def specs(s: Sizes) -> Any:
    width = s.width // s.heads
    shapes = {
        "norm1": (s.width,),
        "norm2": (s.width,),
        "query": (s.width, s.heads, width),
        "key": (s.width, s.kv_heads, width),
        "value": (s.width, s.kv_heads, width),
        "out": (s.heads, width, s.width),
        "gate": (s.width, s.hidden),
        "up": (s.width, s.hidden),
        "down": (s.hidden, s.width),
    }
    return {
        "tokens": f32(s.vocabulary, s.width),
        "head": f32(s.width, s.vocabulary),
        "norm": f32(s.width),
        "layers": jax.tree.map(lambda leaf: f32(s.layers, *leaf.shape), as_specs(shapes)),
    }


def loss_of(attention: Attention, policy: Policy) -> Callable[..., Any]:
    """The mean cross-entropy of the next tokens."""

    def loss(p, inputs, labels):
        x = p["tokens"].astype(jnp.bfloat16)[inputs]
        x = rms_norm(through_layers(p["layers"], x, ATTENTIONS[attention], policy), p["norm"].astype(jnp.bfloat16))
        logits = (x @ p["head"].astype(jnp.bfloat16)).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    return loss


def llama(sizes: Sizes, attention: Attention = "plain", policy: Policy = "none") -> Program:
    """One training step."""
    tokens = i32(sizes.batch, sizes.tokens)
    return training_programs.train_step(loss_of(attention, policy), specs(sizes), tokens, tokens)


def fine_tuning(sizes: Sizes, optimiser: optax.GradientTransformation) -> Program:
    """One step of full fine-tuning: bfloat16 parameters, the optimiser's state and arithmetic in float32."""
    loss = loss_of("plain", "none")

    def in_float32(tree):
        return jax.tree.map(lambda x: x.astype(jnp.float32), tree)

    def step(params, opt_state, inputs, labels):
        value, gradients = jax.value_and_grad(loss)(params, inputs, labels)
        updates, opt_state = optimiser.update(in_float32(gradients), opt_state, in_float32(params))
        return optax.apply_updates(params, updates), opt_state, value

    wide, tokens = specs(sizes), i32(sizes.batch, sizes.tokens)
    narrow = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.bfloat16), wide)
    return Program(step, (narrow, jax.eval_shape(optimiser.init, wide), tokens, tokens), (0, 1))
