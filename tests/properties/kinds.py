"""The kinds of steps that random programs are made of: each draws a name, a function and its operands, or None."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.properties import moving
from tests.properties.drawing import Drawing, broadcasts, is_float

_REAL_UNARY: tuple[Any, ...] = (
    *(jnp.tanh, jnp.sin, lambda x: jnp.exp(-jnp.abs(x)), jax.nn.relu, lambda x: x * 0.5, jnp.abs),
)
_WHOLE_UNARY: tuple[Any, ...] = (
    lambda x: jnp.abs(3 - x),
    lambda x: jnp.minimum(2 * x, 3),
    lambda x: jnp.floor(x * 0.5),
)
"""Exact, and never a negative zero, for whole numbers from 0 to 3."""


def _unary(d: Drawing, v: int) -> Any:
    if is_float(d.avals[v]):
        fun = d.pick(_WHOLE_UNARY if d.whole else _REAL_UNARY)
    elif d.avals[v].dtype == bool:
        fun = jnp.logical_not
    else:
        fun = d.pick((lambda x: x + 1, lambda x: x * 3, lambda x: x ^ 1, lambda x: x // 2, jnp.bitwise_count))
    return "unary", fun, (v,)


def _binary_fun(d: Drawing) -> Callable[..., Any]:
    fun = d.pick((jnp.add, jnp.multiply, jnp.maximum, jnp.minimum, _distance if d.whole else _difference))
    return d.mixed(d.tamed(fun, 1.0))


def _difference(a: Any, b: Any) -> Any:
    return a ^ b if a.dtype == bool else a - b


def _distance(a: Any, b: Any) -> Any:
    """Without a negative zero: regrouped sums may have others."""
    return a ^ b if a.dtype == bool else jnp.maximum(a, b) - jnp.minimum(a, b)


def _binary(d: Drawing, v: int) -> Any:
    shape = d.avals[v].shape
    other = d.other(lambda a: broadcasts(a.shape, shape))
    return ("binary", _binary_fun(d), (v, other)) if other is not None else None


def _outer(d: Drawing, v: int) -> Any:
    other = d.other(lambda a: len(a.shape) == 1 or (len(a.shape) == 2 and a.shape[-1:] == d.avals[v].shape[-1:]))
    if other is None or not d.avals[v].shape:
        return None
    one = len(d.avals[other].shape) == 1
    combine = _binary_fun(d)
    if one:
        return "outer", lambda a, b: combine(a[..., None], b), (v, other)
    return "pairs", lambda a, b: combine(a[..., None, :], b), (v, other)


def _matmul(d: Drawing, v: int) -> Any:
    a = d.avals[v]
    if len(a.shape) < 2 or not is_float(a):
        return None
    other = d.other(lambda b: b.dtype == a.dtype and len(b.shape) == 2 and b.shape[0] == a.shape[-1])
    if other is None or not d.draw(0, 2):
        return "gram", d.tamed(lambda x: x @ jnp.swapaxes(x, -1, -2)), (v,)
    return "matmul", d.tamed(jnp.matmul), (v, other)


def _contract(d: Drawing, v: int) -> Any:
    """A contraction over several dimensions with a batch."""
    a = d.avals[v]
    if len(a.shape) < 3 or not is_float(a):
        return None
    batch, left = d.pick((((0,), (1,)), ((), (0, 2)), ((1,), (2, 0)), ((2,), (0,))))
    change = _WHOLE_UNARY[0] if d.whole else jnp.sin
    return "contract", d.tamed(lambda x: lax.dot_general(x, change(x), ((left, left), (batch, batch)))), (v,)


def _axes(d: Drawing, v: int) -> tuple[int, ...]:
    shape = d.avals[v].shape
    return (
        tuple(i for i in range(len(shape)) if shape[i] and d.draw(0, 1))
        or tuple(i for i, n in enumerate(shape) if n)[-1:]
    )


def _reduce(d: Drawing, v: int) -> Any:
    axes = _axes(d, v)
    if not axes:
        return None
    dtype = d.avals[v].dtype
    if dtype == np.bool_:
        fun = d.pick((jnp.any, jnp.all))
    else:
        funs = (functools.partial(jnp.sum, dtype=dtype), jnp.sum, jnp.max, jnp.min, jnp.mean)
        fun = d.pick((funs[1], *funs[1:4], funs[3] if d.whole else funs[4]) if is_float(d.avals[v]) else funs[:4:2])
    return f"reduce{list(axes)}", d.tamed(lambda x: fun(x, axis=axes), 1.0), (v,)


def _project(d: Drawing, v: int) -> Any:
    """A matrix product that leaves little: what it multiplies is a whole array in memory."""
    dim = d.dim(v)
    if dim is None or not is_float(d.avals[v]):
        return None

    def fun(x: Any) -> Any:
        numbers = jnp.arange(x.shape[dim] * 3, dtype=x.dtype)
        return jnp.moveaxis(x, dim, -1) @ (numbers % 4 if d.whole else jnp.cos(numbers)).reshape(-1, 3)

    return f"project[{dim}]", d.tamed(fun), (v,)


def _own_reduce(d: Drawing, v: int) -> Any:
    """A reducer that is not everyday, its initial value one that may be taken several times, as XLA:CPU does."""
    a = d.avals[v]
    axes = _axes(d, v)
    if not axes or not is_float(a):
        return None
    add = d.draw(0, 1)
    combine = lax.add if add else (lambda x, y: lax.max(x, y))
    start = 0.0 if add else 2.0
    return "own reduce", d.tamed(lambda x: lax.reduce(x, jnp.asarray(start, x.dtype), combine, axes), 1.0), (v,)


def _arg_reduce(d: Drawing, v: int) -> Any:
    dim = d.dim(v)
    if dim is None:
        return None
    fun = d.pick((jnp.argmax, jnp.argmin))
    return f"{fun.__name__}[{dim}]", lambda x: fun(x, axis=dim).astype(jnp.int32), (v,)


def _softmax(d: Drawing, v: int) -> Any:
    dim = d.dim(v)
    if dim is None or d.whole or not is_float(d.avals[v]):
        return None
    fun = d.pick((jax.nn.softmax, jax.nn.log_softmax))
    return f"{fun.__name__}[{dim}]", lambda x: fun(x, axis=dim), (v,)


def _centre(d: Drawing, v: int) -> Any:
    dim = d.dim(v)
    if dim is None or d.whole or not is_float(d.avals[v]):
        return None
    return f"centre[{dim}]", lambda x: x - x.mean(dim, keepdims=True), (v,)


def _cumulate(d: Drawing, v: int) -> Any:
    dim = d.dim(v)
    if dim is None or d.avals[v].dtype == bool:
        return None
    back = bool(d.draw(0, 1))
    fun = d.pick((lax.cumsum, lax.cummax, lax.cummin))
    return f"{fun.__name__}[{dim}, {back}]", d.tamed(lambda x: fun(x, dim, reverse=back), 1.0), (v,)


def _convolve(d: Drawing, v: int) -> Any:
    a = d.avals[v]
    if len(a.shape) not in (3, 4) or not is_float(a) or 0 in a.shape:
        return None
    spatial = len(a.shape) - 2
    width, features, stride, padding = d.pick((1, 3)), d.pick((2, 8)), d.draw(1, 2), d.pick(("SAME", "VALID"))
    layout = ("NHWC", "HWIO", "NHWC") if spatial == 2 else ("NHC", "HIO", "NHC")
    if padding == "VALID" and min(a.shape[1:-1]) < width:
        return None

    def fun(x: Any) -> Any:
        shape = (*(width,) * spatial, x.shape[-1], features)
        numbers = jnp.arange(math.prod(shape), dtype=x.dtype)
        kernel = (numbers % 3 if d.whole else jnp.cos(numbers)).reshape(shape)
        return lax.conv_general_dilated(x, kernel, (stride,) * spatial, padding, dimension_numbers=layout)

    return f"convolve[{width}, {stride}, {padding}]", d.tamed(fun), (v,)


def _scan(d: Drawing, v: int) -> Any:
    a = d.avals[v]
    if len(a.shape) < 2 or not a.shape[0] or not is_float(a):
        return None
    squash = d.tamed(jnp.add) if d.whole else lambda carry, row: jnp.tanh(carry * 0.5 + row)

    def fun(x: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            carry = squash(carry, row)
            return carry, (carry[..., None] * carry[..., None, :]).sum(-1)

        return lax.scan(step, jnp.zeros_like(x[0]), x)[1]

    return "scan", d.tamed(fun, 1.0), (v,)


def _loop(d: Drawing, v: int) -> Any:
    """A loop that runs a number of times known or computed."""
    a = d.avals[v]
    count = d.other(lambda b: b.dtype == np.int32 and 0 not in b.shape)
    if len(a.shape) != 2 or not is_float(a):
        return None
    product = d.tamed(lambda y, x: y @ (x.T @ x))
    squash = product if d.whole else lambda y, x: jnp.tanh(0.1 * product(y, x))
    if count is None or not d.draw(0, 1):
        return "loop", lambda x: lax.fori_loop(0, 3, lambda i, y: squash(y, x), x), (v,)
    times = lambda n: jnp.abs(n.reshape(-1)[0]) % 4  # noqa: E731
    return "while", lambda x, n: lax.fori_loop(0, times(n), lambda i, y: squash(y, x), x), (v, count)


def _cond(d: Drawing, v: int) -> Any:
    a = d.avals[v]
    flag = d.other(lambda b: not b.shape or 0 not in b.shape)
    if not a.shape or not is_float(a) or flag is None:
        return None
    weigh = d.tamed(jnp.multiply) if d.whole else lambda y, z: jnp.exp(-y * z)
    other = _WHOLE_UNARY[0] if d.whole else jnp.sin

    def fun(x: Any, y: Any) -> Any:
        heads = y.reshape(-1)[0] != 0
        pairs = lambda z: (weigh(z[..., None, :], z[..., None]) * z[..., None]).sum(-1)  # noqa: E731
        return lax.cond(heads, pairs, other, x)

    return "cond", d.tamed(fun, 1.0), (v, flag)


def _random(d: Drawing, v: int) -> Any:
    a = d.avals[v]
    if not is_float(a):
        return None

    def fun(x: Any) -> Any:
        drawn = jax.random.uniform(jax.random.key(7), x.shape, jnp.float32)
        return x + (jnp.floor(drawn * 4) if d.whole else drawn).astype(x.dtype)

    return "random", d.tamed(fun, 1.0), (v,)


def _iota(d: Drawing, v: int) -> Any:
    a = d.avals[v]
    dim = d.dim(v)
    if dim is None or a.dtype == bool:
        return None
    add = d.tamed(lambda x: x + lax.broadcasted_iota(jnp.int32, x.shape, dim).astype(x.dtype), 1.0)
    return f"iota[{dim}]", add, (v,)


def _constant(d: Drawing, v: int) -> Any:
    a = d.avals[v]
    if a.dtype == bool:
        return None
    data = (np.arange(math.prod(a.shape)) % 5).reshape(a.shape)
    return "constant", d.tamed(lambda x: x * jnp.asarray(data, x.dtype), 1.0), (v,)


def _compare(d: Drawing, v: int) -> Any:
    return "compare", lambda x: x > (jnp.zeros((), x.dtype)), (v,)


_ARITHMETIC = (
    *(
        _unary,
        _unary,
        _unary,
        _binary,
        _binary,
        _binary,
        _outer,
        _matmul,
        _matmul,
        _contract,
        _project,
        _reduce,
        _reduce,
    ),
    *(_own_reduce, _arg_reduce, _softmax, _softmax, _centre, _cumulate, _convolve, _scan, _loop, _cond, _random),
    *(_iota, _constant, _compare),
)
KINDS: tuple[Any, ...] = (*_ARITHMETIC, *moving.KINDS)
DISCONTINUOUS = (_arg_reduce, _compare, moving.sort_pairs, moving.top_k, _cond)
"""Kinds whose results may jump where their operands change by a last bit."""
KINKED = (_unary, _binary, _outer, _reduce, _own_reduce, moving.scatter, moving.sort, _cumulate)
"""Kinds whose derivatives may."""
NOT_DIFFERENTIABLE = (_own_reduce, moving.scatter, _loop)
WIDENING = (_outer, _matmul)
REDUCING = (_project, _project, _reduce)
