"""Training steps as an expert makes them fit: checkpoints, maps and scans over chunks, micro-batches, all by hand.

`versions(name, sizes)` names them with their settings; `program(name, sizes, settings)` is the same function, of the
same arguments, as `training_programs.program(name, sizes)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import programs
import training_programs
from training_programs import Program

COUNTS = (2, 4, 8, 16, 32, 64)
"""Into how many chunks rows are cut."""


def attention(heads: int, tokens: int, width: int, *, block: int | None, head_by_head: bool = False) -> Program:
    """Blocks of queries in a map, each computed again in the backward pass; for all heads at once, or one by one."""

    def in_blocks(q, k, v):
        if block is None:
            return jax.checkpoint(programs.attention)(q, k, v)
        blocks = jnp.moveaxis(q.reshape(len(q), -1, block, width), 1, 0)
        mixed = jax.lax.map(jax.checkpoint(lambda q: programs.attention(q, k, v)), blocks)
        return jnp.moveaxis(mixed, 0, 1).reshape(q.shape)

    def loss(q, k, v):
        if not head_by_head:
            return jnp.tanh(in_blocks(q, k, v)).sum()
        return jnp.tanh(jax.lax.map(lambda one: in_blocks(*(x[None] for x in one))[0], (q, k, v))).sum()

    return Program(jax.value_and_grad(loss, (0, 1, 2)), training_programs.attention(heads, tokens, width).specs)


def head(tokens: int, width: int, vocabulary: int, *, chunks: int | None, recompute: bool = True) -> Program:
    """Chunks of tokens."""
    specs = training_programs.head(tokens, width, vocabulary).specs
    if chunks is None:
        return Program(jax.value_and_grad(jax.checkpoint(programs.head), (0, 1)), specs)

    def function(h, w, y):
        value, dw, dh = accumulated(lambda w, h, y: programs.head(h, w, y) / chunks, w, (h, y), chunks, recompute)
        return value, (dh, dw)

    return Program(function, specs)


def mlp(tokens: int, width: int, hidden: int, *, chunks: int | None, recompute: bool = True) -> Program:
    """Chunks of tokens."""
    specs = training_programs.mlp(tokens, width, hidden).specs

    def loss(weights, x):
        return (programs.mlp(x, *weights) ** 2).sum()

    def function(x, w1, w2):
        if chunks is None:
            (dw1, dw2), dx = jax.grad(jax.checkpoint(loss), (0, 1))((w1, w2), x)
        else:
            _, (dw1, dw2), dx = accumulated(loss, (w1, w2), (x,), chunks, recompute)
        return dx, dw1, dw2

    return Program(function, specs)


def accumulated(loss: Callable[..., Any], weights: Any, rows: tuple[Any, ...], chunks: int, recompute: bool) -> Any:
    """The sum of a loss over chunks of rows, its gradients for the weights and for the first of the rows.

    Either each chunk is computed again in the backward pass, or forward and backward of one go before the next.
    """
    first, *rest = (x.reshape(chunks, -1, *x.shape[1:]) for x in rows)

    def again(weights, first):
        def step(total, chunk):
            return total + jax.checkpoint(loss)(weights, *chunk), None

        return jax.lax.scan(step, jnp.zeros(()), (first, *rest))[0]

    def at_once(totals, chunk):
        value, (of_weights, of_rows) = jax.value_and_grad(loss, (0, 1))(weights, *chunk)
        return jax.tree.map(jnp.add, totals, (value, of_weights)), of_rows

    if recompute:
        value, (of_weights, of_rows) = jax.value_and_grad(again, (0, 1))(weights, first)
    else:
        zeros = jax.tree.map(jnp.zeros_like, (jnp.zeros(()), weights))
        (value, of_weights), of_rows = jax.lax.scan(at_once, zeros, (first, *rest))
    return value, of_weights, of_rows.reshape(rows[0].shape)


def gpt2(
    batch: int,
    tokens: int,
    layers: int,
    width: int,
    heads: int,
    vocabulary: int,
    *,
    scanned: bool = False,
    checkpoint: str = "",
    head_chunks: int = 1,
    micro: int = 1,
) -> Program:
    """Layers or their attention computed again, the head's loss in chunks of tokens, gradients over micro-batches."""
    original = training_programs.gpt2(batch, tokens, layers, width, heads, vocabulary, scanned=scanned)
    attend = training_programs.self_attention
    if checkpoint == "attention":
        attend = jax.checkpoint(attend, static_argnums=(2, 3))

    def layer(p, x):
        return training_programs.block(p, x, heads, True, attend)

    if checkpoint == "layers":
        layer = jax.checkpoint(layer)

    def through_layers(layers, x):
        if scanned:
            return jax.lax.scan(lambda x, p: (layer(p, x), None), x, layers)[0]
        for p in layers:
            x = layer(p, x)
        return x

    def head_loss(table, x, labels):
        return optax.softmax_cross_entropy_with_integer_labels(x @ table.T, labels).mean()

    def loss(p, inputs, labels):
        x = p["tokens"][inputs] + p["positions"][: inputs.shape[1]]
        x = training_programs.layer_norm(p["norm"], through_layers(p["layers"], x))
        if head_chunks == 1:
            return head_loss(p["tokens"], x, labels)

        def step(total, chunk):
            return total + jax.checkpoint(head_loss)(p["tokens"], *chunk), None

        chunks = x.reshape(head_chunks, -1, width), labels.reshape(head_chunks, -1)
        return jax.lax.scan(step, jnp.zeros(()), chunks)[0] / head_chunks

    def gradients(p, *batch):
        if micro == 1:
            return jax.value_and_grad(loss)(p, *batch)

        def step(totals, part):
            return jax.tree.map(jnp.add, totals, jax.value_and_grad(loss)(p, *part)), None

        parts = [x.reshape(micro, -1, *x.shape[1:]) for x in batch]
        totals, _ = jax.lax.scan(step, jax.tree.map(jnp.zeros_like, (jnp.zeros(()), p)), parts)
        return jax.tree.map(lambda total: total / micro, totals)

    def train_step(p, state, *batch):
        value, gradient = gradients(p, *batch)
        updates, state = training_programs.OPTIMISER.update(gradient, state, p)
        return optax.apply_updates(p, updates), state, value

    return Program(train_step, original.specs, original.donated)


def gpt2_scanned(**given: Any) -> Program:
    return gpt2(**given, scanned=True)


BUILDERS: dict[str, Callable[..., Program]] = {
    "attention": attention,
    "head": head,
    "mlp": mlp,
    "gpt2": gpt2,
    "gpt2_scanned": gpt2_scanned,
}


def program(name: str, sizes: dict[str, int], settings: dict[str, Any]) -> Program:
    return BUILDERS[name](**sizes, **settings)


def versions(name: str, sizes: dict[str, int]) -> dict[str, dict[str, Any]]:
    """What is tried by hand: names and settings."""
    if name.startswith("gpt2"):
        return _of_gpt2(sizes["batch"])
    tokens = sizes["tokens"]
    counts = [count for count in COUNTS if tokens % count == 0]
    if name == "attention":
        by_queries = {f"map, {tokens // count} queries": {"block": tokens // count} for count in counts}
        by_heads = {
            f"map, one head, {tokens // count} queries": {"block": tokens // count, "head_by_head": True}
            for count in (1, *counts[1::2])
        }
        return {"checkpoint": {"block": None}} | by_queries | by_heads
    again = {f"scan, {count} chunks, checkpoint": {"chunks": count} for count in counts}
    at_once = {f"scan, {count} chunks, gradients in it": {"chunks": count, "recompute": False} for count in counts}
    return {"checkpoint": {"chunks": None}} | again | at_once


def _of_gpt2(batch: int) -> dict[str, dict[str, Any]]:
    layers: dict[str, Any] = {"checkpoint": "layers"}
    micros = [micro for micro in (2, 4, 8) if batch % micro == 0]
    return {
        "checkpoint of attention": {"checkpoint": "attention"},
        "checkpoint of layers": layers,
        "head in 8 chunks": {"head_chunks": 8},
        "checkpoint of attention, head in 8 chunks": {"checkpoint": "attention", "head_chunks": 8},
        "checkpoint of layers, head in 8 chunks": {**layers, "head_chunks": 8},
        **{f"{micro} micro-batches": {"micro": micro} for micro in micros},
        **{f"{micro} micro-batches, checkpoint of layers": {**layers, "micro": micro} for micro in micros},
    }
