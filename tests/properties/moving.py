"""The kinds of steps that move elements: reorder, select, sort, gather and scatter them."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.properties.drawing import SIZES, Drawing, broadcasts


def transpose(d: Drawing, v: int) -> Any:
    order = list(range(len(d.avals[v].shape)))
    order = [order.pop(d.draw(0, len(order) - 1)) for _ in range(len(order))]
    return "transpose", lambda x: jnp.transpose(x, order), (v,)


def reshape(d: Drawing, v: int) -> Any:
    shape = d.avals[v].shape
    if len(shape) > 1 and d.draw(0, 1):
        at = d.draw(0, len(shape) - 2)
        new = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
    else:
        at = d.dim(v, 2)
        if at is None or len(shape) > 3:
            return None
        factor = next((f for f in (4, 2, 3, 13, 1) if shape[at] % f == 0), 1)
        new = (*shape[:at], factor, shape[at] // factor, *shape[at + 1 :])
    return f"reshape{list(new)}", lambda x: x.reshape(new), (v,)


def concatenate(d: Drawing, v: int) -> Any:
    dim = d.dim(v, 0)
    other = d.other(lambda a: a.shape == d.avals[v].shape)
    if dim is None:
        return None
    return f"concatenate[{dim}]", d.mixed(lambda a, b: jnp.concatenate([a, b], dim)), (v, other)


def cut(d: Drawing, v: int) -> Any:
    dim = d.dim(v, 3)
    if dim is None:
        return None
    size = d.avals[v].shape[dim]
    start, stride = d.draw(0, size // 2), d.draw(1, 2)
    return f"slice[{dim}]", lambda x: lax.slice_in_dim(x, start, size, stride, dim), (v,)


def padded(d: Drawing, v: int) -> Any:
    dim = d.dim(v)
    if dim is None:
        return None
    low, high, inside = d.draw(-1, 2), d.draw(0, 2), d.draw(0, 1)
    config = [(low, high, inside) if i == dim else (0, 0, 0) for i in range(len(d.avals[v].shape))]
    return f"pad[{dim}]", lambda x: lax.pad(x, jnp.ones((), x.dtype), config), (v,)


def flip(d: Drawing, v: int) -> Any:
    dim = d.dim(v)
    return None if dim is None else (f"reverse[{dim}]", lambda x: jnp.flip(x, dim), (v,))


def roll(d: Drawing, v: int) -> Any:
    dim = d.dim(v, 2)
    return None if dim is None else (f"roll[{dim}]", lambda x: jnp.roll(x, 1, dim), (v,))


def _picks(size: int, count: int, mixed: int) -> np.ndarray:
    return ((np.arange(count) * (2 * mixed + 1) + mixed) % size).astype(np.int32)


def take(d: Drawing, v: int) -> Any:
    dim = d.dim(v)
    if dim is None:
        return None
    index = _picks(d.avals[v].shape[dim], d.pick(SIZES), d.draw(0, 9))
    return f"take[{dim}]", lambda x: jnp.take(x, index + jnp.zeros((), jnp.int32), axis=dim), (v,)


def take_by(d: Drawing, v: int) -> Any:
    """Rows chosen by computed indices."""
    indices = d.other(lambda a: a.dtype == np.int32 and 0 < len(a.shape) < 3)
    dim = d.dim(v)
    if dim is None or indices is None:
        return None
    size = d.avals[v].shape[dim]
    return f"take_by[{dim}]", lambda x, i: jnp.take(x, jnp.abs(i) % size, axis=dim), (v, indices)


def take_along(d: Drawing, v: int) -> Any:
    dim = d.dim(v)
    if dim is None:
        return None
    shape = list(d.avals[v].shape)
    shape[dim] = d.pick((1, 3, 8))
    index = _picks(d.avals[v].shape[dim], math.prod(shape), d.draw(0, 9)).reshape(shape)
    return f"take_along[{dim}]", lambda x: jnp.take_along_axis(x, index + jnp.zeros((), jnp.int32), dim), (v,)


def scatter(d: Drawing, v: int) -> Any:
    dim = d.dim(v)
    if dim is None or d.avals[v].dtype == bool:
        return None
    size, into = d.avals[v].shape[dim], d.pick(SIZES)
    index = _picks(into, size, d.draw(0, 9))
    method = d.pick(("add", "max"))

    def fun(x: Any) -> Any:
        rows = jnp.moveaxis(x, dim, 0)
        base = jnp.ones((into, *rows.shape[1:]), x.dtype)
        return getattr(base.at[index + jnp.zeros((), jnp.int32)], method)(rows)

    return f"scatter_{method}[{dim}]", d.tamed(fun, 1.0), (v,)


def sort(d: Drawing, v: int) -> Any:
    dim = d.dim(v)
    return None if dim is None else (f"sort[{dim}]", lambda x: jnp.sort(x, dim), (v,))


def sort_pairs(d: Drawing, v: int) -> Any:
    dim = d.dim(v)
    if dim is None:
        return None
    other = d.other(lambda a: a.shape == d.avals[v].shape)
    return f"sort_pairs[{dim}]", lambda a, b: lax.sort((a, b), dimension=dim, num_keys=1)[1], (v, other)


def top_k(d: Drawing, v: int) -> Any:
    shape = d.avals[v].shape
    if not shape or shape[-1] < 2 or d.avals[v].dtype == bool:
        return None
    k = min(shape[-1], d.draw(1, 5))
    which = d.draw(0, 1)
    return f"top_k[{k}, {which}]", lambda x: lax.top_k(x, k)[which], (v,)


def masked(d: Drawing, v: int) -> Any:
    mask = d.other(lambda a: a.dtype == bool and broadcasts(a.shape, d.avals[v].shape))
    if mask is None:
        return None
    return "where", lambda x, m: jnp.where(m, x, jnp.zeros((), x.dtype)), (v, mask)


def triangle(d: Drawing, v: int) -> Any:
    a = d.avals[v]
    return ("triangle", jnp.tril, (v,)) if len(a.shape) >= 2 and a.dtype != bool else None


def dynamic(d: Drawing, v: int) -> Any:
    dim = d.dim(v, 3)
    index = d.other(lambda a: a.dtype == np.int32 and 0 not in a.shape)
    if dim is None or index is None:
        return None
    update = d.draw(0, 1)

    def fun(x: Any, i: Any) -> Any:
        start = i.reshape(-1)[0]
        part = lax.dynamic_slice_in_dim(x, start, x.shape[dim] - 1, dim)
        return lax.dynamic_update_slice_in_dim(x, part, start + 1, dim) if update else part

    return f"dynamic[{dim}, {update}]", fun, (v, index)


def one_hot(d: Drawing, v: int) -> Any:
    a = d.avals[v]
    if not jnp.issubdtype(a.dtype, jnp.integer) or len(a.shape) > 2:
        return None
    return "one_hot", lambda x: jax.nn.one_hot(x, 8, dtype=jnp.float32), (v,)


def barrier(d: Drawing, v: int) -> Any:
    return "barrier", lambda x: lax.optimization_barrier((x, x))[0], (v,)


KINDS = (
    *(transpose, reshape, reshape, concatenate, cut, padded, flip, roll, take, take_by, take_along, scatter, sort),
    *(sort_pairs, top_k, masked, triangle, dynamic, one_hot, barrier),
)
