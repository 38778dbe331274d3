"""Kinds of steps and data that are rare and easy to get wrong: single updates, indices out of bounds, nested loops.

Beside the everyday ones they are what forced programs are made of (`forced.py`).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.properties.drawing import Drawing, RandomProgram, is_float

INDICES = 6
"""Elements of the argument that holds indices."""
_EXTREMES = (-(2**31), -(2**31) + 1, 2**31 - 1, 2**31 - 2, -1, 0)
_METHODS = ("set", "add", "multiply", "min", "max")
_MODES = ("drop", "clip", "fill")


def _index(d: Drawing) -> Any:
    """One index, or several, that a program computes from its argument of indices: in bounds or not."""
    given = d.other(lambda a: a.dtype == np.int32 and 0 not in a.shape)
    if given is None:
        return None
    at, shift = d.draw(0, INDICES - 1), d.pick((0, 0, 1, -1, 5))
    return given, lambda i: jnp.take(i.reshape(-1), at, mode="clip") + shift


def _single_update(d: Drawing, v: int) -> Any:
    """One row, or one element, is set, added to, multiplied, ..."""
    a, found = d.avals[v], _index(d)
    if found is None or not a.shape or 0 in a.shape or a.dtype == bool:
        return None
    given, index = found
    method, mode, element = d.pick(_METHODS), d.pick(_MODES), d.draw(0, 1)

    def fun(x: Any, i: Any) -> Any:
        place = (index(i), *([index(i) % 3] * (x.ndim - 1) if element else []))
        return getattr(x.at[place], method)(jnp.asarray(3, x.dtype), mode=mode)

    return f"update[{method}, {mode}, {element}]", d.tamed(fun, 1.0), (v, given)


def _row(d: Drawing, v: int) -> Any:
    """One row is gathered."""
    a, found = d.avals[v], _index(d)
    dim = d.dim(v)
    if found is None or dim is None or 0 in a.shape:
        return None
    given, index = found
    mode, keeps = d.pick(("clip", "fill")), d.draw(0, 1)

    def fun(x: Any, i: Any) -> Any:
        one = index(i)[None] if keeps else index(i)
        return jnp.moveaxis(x, dim, 0).at[one].get(mode=mode, fill_value=0)

    return f"row[{dim}, {mode}, {keeps}]", fun, (v, given)


def _window(d: Drawing, v: int) -> Any:
    """A slice, or an update, whose start is clamped by nobody but itself; under vmap a gather or a scatter."""
    a, found = d.avals[v], _index(d)
    dim = d.dim(v, 2)
    if found is None or dim is None or 0 in a.shape:
        return None
    given, index = found
    size, update, batched = d.draw(1, a.shape[dim] - 1), d.draw(0, 1), d.draw(0, 2) == 0 and len(a.shape) > 1
    zero = jnp.int32(0)

    def one(x: Any, i: Any, axis: int) -> Any:
        starts = [i if k == axis else zero for k in range(x.ndim)]
        sizes = tuple(size if k == axis else n for k, n in enumerate(x.shape))
        part = lax.dynamic_slice_p.bind(x, *starts, slice_sizes=sizes)
        return lax.dynamic_update_slice_p.bind(x, part, *starts[::-1]) if update else part

    def fun(x: Any, i: Any) -> Any:
        if not batched:
            return one(x, index(i), dim)
        batch = next(k for k in range(x.ndim) if k != dim)
        starts = index(i) + jnp.arange(x.shape[batch], dtype=jnp.int32)
        axis = dim - (batch < dim)
        return jax.vmap(lambda y, s: one(y, s, axis), in_axes=(batch, 0))(x, starts)

    return f"window[{dim}, {size}, {update}, {batched}]", fun, (v, given)


def _scatter(d: Drawing, v: int) -> Any:
    """Rows go where indices say, several to one place, some nowhere."""
    a = d.avals[v]
    given = d.other(lambda b: b.dtype == np.int32 and 0 not in b.shape)
    if given is None or not a.shape or 0 in a.shape or a.dtype == bool:
        return None
    method, mode, into = d.pick(_METHODS[1:]), d.pick(_MODES[:2]), d.pick((1, 2, 7, 16))

    def fun(x: Any, i: Any) -> Any:
        places = jnp.resize(i.reshape(-1), x.shape[:1]) + jnp.arange(x.shape[0], dtype=jnp.int32) // 2
        base = jnp.ones((into, *x.shape[1:]), x.dtype)
        return getattr(base.at[places], method)(x, mode=mode)

    return f"scatter[{method}, {mode}, {into}]", d.tamed(fun, 1.0), (v, given)


def _put(d: Drawing, v: int) -> Any:
    """Elements are set at places that all differ."""
    a = d.avals[v]
    dim = d.dim(v)
    if dim is None or a.dtype == bool:
        return None
    size = a.shape[dim]
    step, count = d.pick((1, 2, 3)), d.draw(1, size)
    places = np.unique((np.arange(count) * step) - d.draw(0, 2)).astype(np.int32)

    def fun(x: Any) -> Any:
        rows = jnp.moveaxis(x, dim, 0)
        index = jnp.asarray(places) + jnp.zeros((), jnp.int32)
        return rows.at[index].set(jnp.asarray(2, x.dtype), mode="drop", unique_indices=True)

    return f"put[{dim}, {len(places)}]", fun, (v,)


def _unit(d: Drawing, v: int) -> Any:
    """Dimensions of one element: made, summed over, kept."""
    a = d.avals[v]
    if len(a.shape) > 3:
        return None
    at = d.draw(0, len(a.shape))
    return f"unit[{at}]", lambda x: jnp.expand_dims(x, at), (v,)


def _kept(d: Drawing, v: int) -> Any:
    a, dim = d.avals[v], d.dim(v)
    if dim is None or a.dtype == bool:
        return None
    fun = d.pick((jnp.max, jnp.min))
    return f"kept[{dim}]", d.tamed(lambda x: x + fun(x, axis=dim, keepdims=True), 1.0), (v,)


def _nested(d: Drawing, v: int) -> Any:
    """A loop in a loop, with a branch in it, that stores rows."""
    a = d.avals[v]
    if len(a.shape) < 2 or not all(a.shape) or not is_float(a):
        return None
    squash = d.tamed(jnp.add) if d.whole else lambda y, z: jnp.tanh(y * 0.5 + z)
    outer, inner, branch = d.draw(1, 4), d.draw(1, 3), d.draw(0, 1)

    def fun(x: Any) -> Any:
        def step(y: Any, i: Any) -> Any:
            z = lax.fori_loop(0, inner, lambda j, s: squash(s, x), y)
            if branch:
                z = lax.cond(i % 2 == 0, lambda s: squash(s, s), lambda s: s, z)
            return z, jnp.max(z, axis=-1)

        last, rows = lax.scan(step, x, jnp.arange(outer))
        return last + rows.max(0)[..., None]

    return f"nested[{outer}, {inner}, {branch}]", d.tamed(fun, 1.0), (v,)


def _rows_of(d: Drawing, v: int) -> Any:
    """A loop that reads and writes rows of what it carries, by its counter and by a computed index."""
    a, found = d.avals[v], _index(d)
    if found is None or len(a.shape) < 2 or not all(a.shape) or not is_float(a):
        return None
    given, index = found
    change = d.tamed(lambda y, z: y + z)

    def fun(x: Any, i: Any) -> Any:
        def step(k: Any, y: Any) -> Any:
            row = lax.dynamic_index_in_dim(y, index(i), keepdims=True)
            return lax.dynamic_update_index_in_dim(y, change(row, x[k][None]), k, 0)

        return lax.fori_loop(0, x.shape[0], step, x)

    return "rows of", d.tamed(fun, 1.0), (v, given)


def _switch(d: Drawing, v: int) -> Any:
    """One of three branches, all of which read more than they are given."""
    a, found = d.avals[v], _index(d)
    if found is None or not a.shape or 0 in a.shape or not is_float(a):
        return None
    given, index = found
    sums = d.tamed(lambda y: (y[..., None] * y[..., None, :]).sum(-1))

    def fun(x: Any, i: Any) -> Any:
        captured = x * 2
        branches = [lambda y: y, lambda y: sums(y), lambda y: y + captured.max(0)]
        return lax.switch(index(i), branches, x)

    return "switch", d.tamed(fun, 1.0), (v, given)


def _layers(d: Drawing, v: int) -> Any:
    """The gradient of layers that are scanned: what they store for it are stacks."""
    a = d.avals[v]
    if len(a.shape) != 2 or not all(a.shape) or not is_float(a):
        return None
    squash = d.tamed(lambda y, w: y * w + y) if d.whole else lambda y, w: jnp.tanh(y * w + 0.1)
    layers = d.pick((2, 3, 4, 6))

    def loss(x: Any) -> Any:
        weights = jnp.ones((layers, x.shape[-1]), x.dtype)
        last, outs = lax.scan(lambda y, w: (squash(y, w), y[..., 0] if d.whole else y.max(-1)), x, weights)
        return (last.sum(dtype=x.dtype) + outs.sum(dtype=x.dtype)).astype(jnp.float32)

    return f"layers[{layers}]", d.tamed(jax.grad(loss), 1.0), (v,)


def _associative(d: Drawing, v: int) -> Any:
    a, dim = d.avals[v], d.dim(v, 2)
    if dim is None or not is_float(a):
        return None
    combine, reverse = d.pick((jnp.maximum, jnp.add)), bool(d.draw(0, 1))
    scan = d.tamed(lambda x: lax.associative_scan(combine, x, reverse=reverse, axis=dim))
    return f"associative[{dim}]", scan, (v,)


def _distances(d: Drawing, v: int) -> Any:
    a = d.avals[v]
    if len(a.shape) != 2 or not is_float(a):
        return None
    other = d.other(lambda b: b.dtype == a.dtype and len(b.shape) == 2 and b.shape[-1] == a.shape[-1])
    norm = d.pick((jnp.square, jnp.abs))
    return "distances", d.tamed(lambda x, y: norm(x[:, None] - y[None]).sum(-1)), (v, other)


def _first_of_sorted(d: Drawing, v: int) -> Any:
    a = d.avals[v]
    if not a.shape or a.shape[-1] < 2 or a.dtype == bool:
        return None
    count, indices, last = d.draw(1, min(4, a.shape[-1])), d.draw(0, 1), d.draw(0, 1)
    cut = slice(-count, None) if last else slice(count)
    fun = jnp.argsort if indices else jnp.sort
    return f"first of sorted[{count}, {indices}, {last}]", lambda x: fun(x, axis=-1)[..., cut], (v,)


KINDS: tuple[Any, ...] = (
    *(_single_update, _single_update, _row, _row, _window, _window, _scatter, _put, _unit, _kept),
    *(_nested, _rows_of, _switch, _layers, _layers, _associative, _distances, _first_of_sorted),
)
JUMPING = (_switch, _single_update, _row, _window, _scatter, _kept, _layers, _distances, _first_of_sorted)
"""Kinds whose results may jump, or whose derivatives may."""
NOT_DIFFERENTIABLE = (_single_update, _scatter)


def data(program: RandomProgram, seed: int, strange: tuple[float, ...] = ()) -> list[np.ndarray]:
    """Arguments with ties, extreme and out-of-range indices; some floats are `strange` ones."""
    rng = np.random.default_rng([seed, 1])
    return [_awkward(rng, a, strange) for a in program.data(seed)]


def _awkward(rng: np.random.Generator, a: np.ndarray, strange: tuple[float, ...]) -> np.ndarray:
    if a.dtype == np.int32:
        few = rng.integers(-3, 40, a.shape).astype(np.int32)
        extreme = rng.choice(np.array(_EXTREMES, np.int32), a.shape)
        return np.where(rng.random(a.shape) < 0.2, extreme, np.where(rng.random(a.shape) < 0.5, few, a))
    if not is_float(a):
        return a
    tied = np.where(rng.random(a.shape) < 0.3, np.round(a.astype(np.float64) * 2) / 2, a).astype(a.dtype)
    if not strange:
        return tied
    return np.where(rng.random(a.shape) < 0.03, rng.choice(strange, a.shape).astype(a.dtype), tied)
