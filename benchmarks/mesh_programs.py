"""Programs in bfloat16 over eight devices, as users write them: with shardings, and with `jax.shard_map`.

`PROGRAMS[name]()` is a jitted function and its specs. For processes with eight devices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

BF16, F32 = jnp.bfloat16, jnp.float32


def _mesh() -> Mesh:
    return Mesh(np.array(jax.devices()[:8]), ("x",))


def _spec(shape: tuple[int, ...], dtype: Any, *places: str | None) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(_mesh(), PartitionSpec(*places)))


def train_step(loss: Callable[..., Any], parameters: Any, *batch: Any) -> tuple[Any, tuple[Any, ...]]:
    """A step of AdamW whose moments lie as the parameters do; all are donated."""
    optimizer = optax.adamw(1e-3)
    places = {leaf.shape: leaf.sharding for leaf in jax.tree.leaves(parameters)}
    whole = NamedSharding(_mesh(), PartitionSpec())

    def placed(leaf: Any) -> Any:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=places.get(leaf.shape, whole))

    state = jax.tree.map(placed, jax.eval_shape(optimizer.init, parameters))

    def step(parameters: Any, state: Any, *batch: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(parameters, *batch)
        updates, state = optimizer.update(gradient, state, parameters)
        return optax.apply_updates(parameters, updates), state, value

    out = (*(jax.tree.map(lambda leaf: leaf.sharding, tree) for tree in (parameters, state)), whole)
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=out), (parameters, state, *batch)


def attention(q: Any, k: Any, v: Any, *, causal: bool) -> Any:
    """Batch, tokens, heads, depth; the softmax in float32."""
    scores = jnp.einsum("bthd,bshd->bhts", q, k, preferred_element_type=F32) / np.sqrt(q.shape[-1])
    if causal:
        scores = jnp.where(jnp.tri(q.shape[1], dtype=bool), scores, -1e30)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores, -1).astype(q.dtype), v)


def _normalised(x: Any) -> Any:
    wide = x.astype(F32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def transformer(
    *,
    scanned: bool,
    causal: bool,
    layers: int,
    batch: int,
    tokens: int,
    width: int,
    heads: int,
    by_tokens: bool = False,
) -> Any:
    """Layers whose weights are shared out (FSDP), on activations of a batch that is, or of tokens that are."""
    shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}

    def layer(x: Any, p: Any) -> tuple[Any, None]:
        p = {name: w.astype(BF16) for name, w in p.items()}
        q, k, v = (a.reshape(*x.shape[:2], heads, -1) for a in jnp.split(_normalised(x) @ p["qkv"], 3, -1))
        x = x + attention(q, k, v, causal=causal).reshape(x.shape) @ p["out"]
        return x + jax.nn.gelu(_normalised(x) @ p["up"]) @ p["down"], None

    def loss(parameters: Any, x: Any, y: Any) -> Any:
        if scanned:
            x, _ = jax.lax.scan(layer, x, parameters)
        else:
            for p in parameters:
                x, _ = layer(x, p)
        return jnp.mean((x.astype(F32) - y) ** 2)

    if scanned:
        parameters: Any = {n: _spec((layers, *shape), F32, None, "x") for n, shape in shapes.items()}
    else:
        parameters = [{n: _spec(shape, F32, "x") for n, shape in shapes.items()} for _ in range(layers)]
    size = (batch, tokens, width)
    places = (None, "x") if by_tokens else ("x",)
    return train_step(loss, parameters, _spec(size, BF16, *places), _spec(size, F32, *places))


def ring_attention() -> tuple[Any, tuple[Any, ...]]:
    """The gradient of attention whose keys and values go round the devices, each of which has a part of the tokens."""
    sequence = PartitionSpec(None, "x")

    def local(q: Any, k: Any, v: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            k, v, out, most, total = carry
            scores = jnp.einsum("bthd,bshd->bhts", q, k, preferred_element_type=F32) / 8
            new = jnp.maximum(most, scores.max(-1))
            weights, scale = jnp.exp(scores - new[..., None]), jnp.exp(most - new)
            added = jnp.einsum("bhts,bshd->bhtd", weights.astype(BF16), v, preferred_element_type=F32)
            k, v = (jax.lax.ppermute(a, "x", [(i, (i + 1) % 8) for i in range(8)]) for a in (k, v))
            return (k, v, out * scale[..., None] + added, new, total * scale + weights.sum(-1)), None

        total = 0 * q[..., 0].swapaxes(1, 2).astype(F32)
        carry = k, v, 0 * q.swapaxes(1, 2).astype(F32), total - 1e30, total
        (_, _, out, _, total), _ = jax.lax.scan(step, carry, length=8)
        return (out / total[..., None]).astype(BF16)

    mapped = jax.shard_map(local, mesh=_mesh(), in_specs=(sequence,) * 3, out_specs=PartitionSpec(None, None, "x"))
    tokens = _spec((1, 32768, 8, 64), BF16, None, "x")
    gradient = jax.grad(lambda *given: (mapped(*given).astype(F32) ** 2).sum(), (0, 1, 2))
    return jax.jit(gradient), (tokens,) * 3


def gathering_layers() -> tuple[Any, tuple[Any, ...]]:
    """A step of layers in a `shard_map`, each of which gathers its weights."""
    parts = {"up": (6, 1024, 4096), "down": (6, 4096, 1024)}

    def local(p: Any, x: Any, y: Any) -> Any:
        def layer(x: Any, p: Any) -> tuple[Any, None]:
            up, down = (jax.lax.all_gather(p[n].astype(BF16), "x", axis=0, tiled=True) for n in ("up", "down"))
            return x + jax.nn.gelu(x @ up) @ down, None

        return jax.lax.psum(jnp.mean((jax.lax.scan(layer, x, p)[0].astype(F32) - y) ** 2), "x")

    rows = PartitionSpec("x")
    weights = dict.fromkeys(parts, PartitionSpec(None, "x"))
    loss = jax.shard_map(local, mesh=_mesh(), in_specs=(weights, rows, rows), out_specs=PartitionSpec())
    parameters = {n: _spec(shape, F32, None, "x") for n, shape in parts.items()}
    size = (131072, 1024)
    return train_step(loss, parameters, _spec(size, BF16, "x"), _spec(size, F32, "x"))


PROGRAMS: dict[str, Callable[[], Any]] = {
    "scanned layers, FSDP": lambda: transformer(
        scanned=True, causal=True, layers=8, batch=16, tokens=4096, width=1024, heads=16
    ),
    "unrolled layers, FSDP": lambda: transformer(
        scanned=False, causal=False, layers=4, batch=64, tokens=1024, width=768, heads=12
    ),
    "scanned layers, sequence and weights shared out": lambda: transformer(
        scanned=True, causal=True, layers=8, batch=2, tokens=8192, width=1024, heads=16, by_tokens=True
    ),
    "ring attention, shard_map": ring_attention,
    "layers that gather, shard_map": gathering_layers,
}
