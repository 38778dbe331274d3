"""Random JAX programs: a recipe of steps over arrays, drawn by anything that can pick a number."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

SIZES = (24, 31, 37, 16, 13, 8, 3, 2, 1)
_MAX_ELEMENTS = 40_000
_FLOATS = ("float32", "float32", "float32", "bfloat16", "float64")
_INTS = ("int32", "int32", "uint8", "bool")


class Draw(Protocol):
    def __call__(self, low: int, high: int, /) -> int:
        """An integer between two, both included."""
        ...


@dataclasses.dataclass(frozen=True)
class Step:
    name: str
    fun: Callable[..., Any]
    inputs: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class RandomProgram:
    """Steps over a growing list of arrays, the arguments first.

    `continuous`: small changes of the arguments change the results by little: no float decides an index or a branch.
    """

    arguments: tuple[jax.ShapeDtypeStruct, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    continuous: bool

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        values = list(arguments)
        for step in self.steps:
            values.append(step.fun(*(values[i] for i in step.inputs)))
        return tuple(values[i] for i in self.outputs)

    def data(self, seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [_data(rng, spec) for spec in self.arguments]

    def __str__(self) -> str:
        given = len(self.arguments)
        lines = [f"%{i} = argument {a.dtype}{list(a.shape)}" for i, a in enumerate(self.arguments)]
        lines += [f"%{given + i} = {s.name} {', '.join(f'%{j}' for j in s.inputs)}" for i, s in enumerate(self.steps)]
        return "\n".join([*lines, f"return {', '.join(f'%{i}' for i in self.outputs)}"])


def _data(rng: np.random.Generator, spec: jax.ShapeDtypeStruct) -> np.ndarray:
    if spec.dtype == bool:
        return rng.integers(0, 2, spec.shape).astype(bool)
    if jnp.issubdtype(spec.dtype, jnp.integer):
        return rng.integers(0, 7, spec.shape).astype(spec.dtype)
    return rng.normal(size=spec.shape).astype(spec.dtype)


def draw_program(draw: Draw, steps: int = 10) -> RandomProgram:
    return _Drawing(draw).run(steps)


def _without_unused(program: RandomProgram) -> RandomProgram:
    """Only the steps and arguments that the outputs need."""
    given = len(program.arguments)
    needed = set(program.outputs)
    for i in reversed(range(len(program.steps))):
        if given + i in needed:
            needed.update(program.steps[i].inputs)
    new = {old: position for position, old in enumerate(sorted(needed))}
    steps = (s for i, s in enumerate(program.steps) if given + i in needed)
    return dataclasses.replace(
        program,
        arguments=tuple(a for i, a in enumerate(program.arguments) if i in needed),
        steps=tuple(dataclasses.replace(s, inputs=tuple(new[i] for i in s.inputs)) for s in steps),
        outputs=tuple(new[i] for i in program.outputs),
    )


class _Drawing:
    def __init__(self, draw: Draw):
        self.draw = draw
        self.avals: list[Any] = []
        self.steps: list[Step] = []
        self.continuous = True

    def run(self, count: int) -> RandomProgram:
        sizes = [self.pick(SIZES[:5]), self.pick(SIZES), self.pick(SIZES)]
        if not self.draw(0, 24):
            sizes[2] = 0
        wide = self.pick(_FLOATS)
        for _ in range(self.draw(1, 3)):
            shape = tuple(self.pick(sizes) for _ in range(self.draw(1, 3)))
            dtype = self.pick(_INTS) if not self.draw(0, 4) else wide
            self.avals.append(jax.ShapeDtypeStruct(shape, dtype))
        arguments = tuple(self.avals)
        self.widen()
        for _ in range(count):
            self.one(self.pick(_KINDS))
        outputs = self.reduce_to_outputs(len(arguments))
        return _without_unused(RandomProgram(arguments, tuple(self.steps), outputs, self.continuous))

    def widen(self) -> None:
        """Something much bigger than the arguments: all pairs of rows."""
        for kind in (_outer, _outer if self.draw(0, 1) else _matmul):
            self.one(kind)

    def reduce_to_outputs(self, given: int) -> tuple[int, ...]:
        """Small results: nothing big need be kept."""
        outputs: list[int] = []
        for _ in range(self.draw(1, 3)):
            value = self.recent()
            if math.prod(self.avals[value].shape) > 200 and self.draw(0, 5):
                before = len(self.steps)
                self.one(_reduce, value)
                value = given + len(self.steps) - 1 if len(self.steps) > before else value
            outputs.append(value)
        return tuple(outputs)

    def one(self, kind: Callable[..., Any], value: int | None = None) -> None:
        """A step of a kind, where it is possible and not too big."""
        made = kind(self, self.recent() if value is None else value)
        if made is None:
            return
        name, fun, inputs = made
        with jax.enable_x64(True):
            aval = jax.eval_shape(fun, *(self.avals[i] for i in inputs))
        if math.prod(aval.shape) <= _MAX_ELEMENTS and len(aval.shape) <= 4:
            self.steps.append(Step(name, fun, inputs))
            self.avals.append(aval)
            self.continuous &= kind not in _DISCONTINUOUS

    def pick(self, items: Sequence[Any]) -> Any:
        return items[self.draw(0, len(items) - 1)]

    def recent(self) -> int:
        """A value, the last ones more often."""
        back = min(self.draw(0, 3), self.draw(0, len(self.avals) - 1))
        return len(self.avals) - 1 - back

    def other(self, accept: Callable[[Any], bool]) -> int | None:
        found = [i for i, a in enumerate(self.avals) if accept(a)]
        return self.pick(found) if found else None

    def dim(self, value: int, least: int = 1) -> int | None:
        found = [d for d, n in enumerate(self.avals[value].shape) if n >= least]
        return self.pick(found) if found else None


def _is_float(aval: Any) -> bool:
    return jnp.issubdtype(aval.dtype, jnp.inexact)


def _unary(d: _Drawing, v: int) -> Any:
    if _is_float(d.avals[v]):
        fun = d.pick((jnp.tanh, jnp.sin, lambda x: jnp.exp(-jnp.abs(x)), jax.nn.relu, lambda x: x * 0.5, jnp.abs))
    elif d.avals[v].dtype == bool:
        fun = jnp.logical_not
    else:
        fun = d.pick((lambda x: x + 1, lambda x: x * 3, lambda x: x ^ 1, lambda x: x // 2, jnp.bitwise_count))
    return "unary", fun, (v,)


def _mixed(f: Callable[..., Any]) -> Callable[..., Any]:
    """Operands of different kinds meet as floats of the first's type."""

    def fun(a: Any, b: Any) -> Any:
        if a.dtype != b.dtype:
            dtype = a.dtype if jnp.issubdtype(a.dtype, jnp.inexact) else b.dtype
            a, b = a.astype(dtype), b.astype(dtype)
        return f(a, b)

    return fun


def _binary_fun(d: _Drawing) -> Callable[..., Any]:
    return _mixed(d.pick((jnp.add, jnp.multiply, jnp.maximum, jnp.minimum, _difference)))


def _difference(a: Any, b: Any) -> Any:
    return a ^ b if a.dtype == bool else a - b


def _binary(d: _Drawing, v: int) -> Any:
    shape = d.avals[v].shape
    other = d.other(lambda a: _broadcasts(a.shape, shape))
    return ("binary", _binary_fun(d), (v, other)) if other is not None else None


def _broadcasts(small: tuple[int, ...], big: tuple[int, ...]) -> bool:
    return len(small) <= len(big) and all(s in (1, b) for s, b in zip(small[::-1], big[::-1], strict=False))


def _outer(d: _Drawing, v: int) -> Any:
    other = d.other(lambda a: len(a.shape) == 1 or (len(a.shape) == 2 and a.shape[-1:] == d.avals[v].shape[-1:]))
    if other is None or not d.avals[v].shape:
        return None
    one = len(d.avals[other].shape) == 1
    combine = _binary_fun(d)
    if one:
        return "outer", lambda a, b: combine(a[..., None], b), (v, other)
    return "pairs", lambda a, b: combine(a[..., None, :], b), (v, other)


def _matmul(d: _Drawing, v: int) -> Any:
    a = d.avals[v]
    if len(a.shape) < 2 or not _is_float(a):
        return None
    other = d.other(lambda b: b.dtype == a.dtype and len(b.shape) == 2 and b.shape[0] == a.shape[-1])
    if other is None or not d.draw(0, 2):
        return "gram", lambda x: (x @ jnp.swapaxes(x, -1, -2)) * 0.1, (v,)
    return "matmul", lambda x, w: (x @ w) * 0.1, (v, other)


def _contract(d: _Drawing, v: int) -> Any:
    """A contraction over several dimensions with a batch."""
    a = d.avals[v]
    if len(a.shape) < 3 or not _is_float(a):
        return None
    batch, left = d.pick((((0,), (1,)), ((), (0, 2)), ((1,), (2, 0)), ((2,), (0,))))
    return "contract", lambda x: lax.dot_general(x, jnp.sin(x), ((left, left), (batch, batch))) * 0.1, (v,)


def _transpose(d: _Drawing, v: int) -> Any:
    order = list(range(len(d.avals[v].shape)))
    order = [order.pop(d.draw(0, len(order) - 1)) for _ in range(len(order))]
    return "transpose", lambda x: jnp.transpose(x, order), (v,)


def _reshape(d: _Drawing, v: int) -> Any:
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


def _axes(d: _Drawing, v: int) -> tuple[int, ...]:
    shape = d.avals[v].shape
    return (
        tuple(i for i in range(len(shape)) if shape[i] and d.draw(0, 1))
        or tuple(i for i, n in enumerate(shape) if n)[-1:]
    )


def _reduce(d: _Drawing, v: int) -> Any:
    axes = _axes(d, v)
    if not axes:
        return None
    dtype = d.avals[v].dtype
    if dtype == np.bool_:
        fun = d.pick((jnp.any, jnp.all))
    else:
        fun = (
            d.pick((jnp.sum, jnp.sum, jnp.max, jnp.min, jnp.mean))
            if _is_float(d.avals[v])
            else d.pick((functools.partial(jnp.sum, dtype=dtype), jnp.max, jnp.min))
        )
    return f"reduce{list(axes)}", lambda x: fun(x, axis=axes), (v,)


def _own_reduce(d: _Drawing, v: int) -> Any:
    """A reducer or an initial value that is not everyday."""
    a = d.avals[v]
    axes = _axes(d, v)
    if not axes or not _is_float(a):
        return None
    add = d.draw(0, 1)
    combine = lax.add if add else (lambda x, y: lax.max(x, y))
    start = 5.0 if add else 0.25
    return "own reduce", lambda x: lax.reduce(x, jnp.asarray(start, x.dtype), combine, axes), (v,)


def _arg_reduce(d: _Drawing, v: int) -> Any:
    dim = d.dim(v)
    if dim is None:
        return None
    fun = d.pick((jnp.argmax, jnp.argmin))
    return f"{fun.__name__}[{dim}]", lambda x: fun(x, axis=dim).astype(jnp.int32), (v,)


def _softmax(d: _Drawing, v: int) -> Any:
    dim = d.dim(v)
    if dim is None or not _is_float(d.avals[v]):
        return None
    fun = d.pick((jax.nn.softmax, jax.nn.log_softmax))
    return f"{fun.__name__}[{dim}]", lambda x: fun(x, axis=dim), (v,)


def _centre(d: _Drawing, v: int) -> Any:
    dim = d.dim(v)
    if dim is None or not _is_float(d.avals[v]):
        return None
    return f"centre[{dim}]", lambda x: x - x.mean(dim, keepdims=True), (v,)


def _concatenate(d: _Drawing, v: int) -> Any:
    dim = d.dim(v, 0)
    other = d.other(lambda a: a.shape == d.avals[v].shape)
    if dim is None:
        return None
    return f"concatenate[{dim}]", _mixed(lambda a, b: jnp.concatenate([a, b], dim)), (v, other)


def _slice(d: _Drawing, v: int) -> Any:
    dim = d.dim(v, 3)
    if dim is None:
        return None
    size = d.avals[v].shape[dim]
    start, stride = d.draw(0, size // 2), d.draw(1, 2)
    return f"slice[{dim}]", lambda x: lax.slice_in_dim(x, start, size, stride, dim), (v,)


def _pad(d: _Drawing, v: int) -> Any:
    dim = d.dim(v)
    if dim is None:
        return None
    low, high, inside = d.draw(-1, 2), d.draw(0, 2), d.draw(0, 1)
    config = [(low, high, inside) if i == dim else (0, 0, 0) for i in range(len(d.avals[v].shape))]
    return f"pad[{dim}]", lambda x: lax.pad(x, jnp.ones((), x.dtype), config), (v,)


def _reverse(d: _Drawing, v: int) -> Any:
    dim = d.dim(v)
    return None if dim is None else (f"reverse[{dim}]", lambda x: jnp.flip(x, dim), (v,))


def _roll(d: _Drawing, v: int) -> Any:
    dim = d.dim(v, 2)
    return None if dim is None else (f"roll[{dim}]", lambda x: jnp.roll(x, 1, dim), (v,))


def _picks(size: int, count: int, mixed: int) -> np.ndarray:
    return ((np.arange(count) * (2 * mixed + 1) + mixed) % size).astype(np.int32)


def _take(d: _Drawing, v: int) -> Any:
    dim = d.dim(v)
    if dim is None:
        return None
    index = _picks(d.avals[v].shape[dim], d.pick(SIZES), d.draw(0, 9))
    return f"take[{dim}]", lambda x: jnp.take(x, index + jnp.zeros((), jnp.int32), axis=dim), (v,)


def _take_by(d: _Drawing, v: int) -> Any:
    """Rows chosen by computed indices."""
    indices = d.other(lambda a: a.dtype == np.int32 and 0 < len(a.shape) < 3)
    dim = d.dim(v)
    if dim is None or indices is None:
        return None
    size = d.avals[v].shape[dim]
    return f"take_by[{dim}]", lambda x, i: jnp.take(x, jnp.abs(i) % size, axis=dim), (v, indices)


def _take_along(d: _Drawing, v: int) -> Any:
    dim = d.dim(v)
    if dim is None:
        return None
    shape = list(d.avals[v].shape)
    shape[dim] = d.pick((1, 3, 8))
    index = _picks(d.avals[v].shape[dim], math.prod(shape), d.draw(0, 9)).reshape(shape)
    return f"take_along[{dim}]", lambda x: jnp.take_along_axis(x, index + jnp.zeros((), jnp.int32), dim), (v,)


def _scatter(d: _Drawing, v: int) -> Any:
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

    return f"scatter_{method}[{dim}]", fun, (v,)


def _sort(d: _Drawing, v: int) -> Any:
    dim = d.dim(v)
    return None if dim is None else (f"sort[{dim}]", lambda x: jnp.sort(x, dim), (v,))


def _sort_pairs(d: _Drawing, v: int) -> Any:
    dim = d.dim(v)
    if dim is None:
        return None
    other = d.other(lambda a: a.shape == d.avals[v].shape)
    return f"sort_pairs[{dim}]", lambda a, b: lax.sort((a, b), dimension=dim, num_keys=1)[1], (v, other)


def _cumulate(d: _Drawing, v: int) -> Any:
    dim = d.dim(v)
    if dim is None or d.avals[v].dtype == bool:
        return None
    fun = d.pick((lambda x: jnp.cumsum(x, dim, dtype=x.dtype) * (x.dtype.type(1)), lambda x: lax.cummax(x, dim)))
    return f"cumulate[{dim}]", fun, (v,)


def _top_k(d: _Drawing, v: int) -> Any:
    shape = d.avals[v].shape
    if not shape or shape[-1] < 2 or d.avals[v].dtype == bool:
        return None
    k = min(shape[-1], d.draw(1, 5))
    which = d.draw(0, 1)
    return f"top_k[{k}, {which}]", lambda x: lax.top_k(x, k)[which], (v,)


def _convolve(d: _Drawing, v: int) -> Any:
    a = d.avals[v]
    if len(a.shape) != 3 or not _is_float(a) or 0 in a.shape:
        return None
    width, features = d.pick((1, 3)), d.pick((2, 8))

    def fun(x: Any) -> Any:
        kernel = jnp.cos(jnp.arange(width * x.shape[2] * features, dtype=x.dtype)).reshape(width, x.shape[2], features)
        return lax.conv_general_dilated(x, kernel, (1,), "SAME", dimension_numbers=("NHC", "HIO", "NHC")) * 0.1

    return "convolve", fun, (v,)


def _scan(d: _Drawing, v: int) -> Any:
    a = d.avals[v]
    if len(a.shape) < 2 or not a.shape[0] or not _is_float(a):
        return None

    def fun(x: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            carry = jnp.tanh(carry * 0.5 + row)
            return carry, (carry[..., None] * carry[..., None, :]).sum(-1)

        return lax.scan(step, jnp.zeros_like(x[0]), x)[1]

    return "scan", fun, (v,)


def _loop(d: _Drawing, v: int) -> Any:
    a = d.avals[v]
    if len(a.shape) != 2 or not _is_float(a):
        return None
    return "loop", lambda x: lax.fori_loop(0, 3, lambda i, y: jnp.tanh(y @ (x.T @ x) * 0.01 + i), x), (v,)


def _cond(d: _Drawing, v: int) -> Any:
    a = d.avals[v]
    flag = d.other(lambda b: not b.shape or 0 not in b.shape)
    if not a.shape or not _is_float(a) or flag is None:
        return None

    def fun(x: Any, y: Any) -> Any:
        heads = y.reshape(-1)[0] != 0
        return lax.cond(
            heads, lambda z: (jnp.exp(-z[..., None, :] * z[..., None]) * z[..., None]).sum(-1), jnp.sin, x * 0.1
        )

    return "cond", fun, (v, flag)


def _random(d: _Drawing, v: int) -> Any:
    a = d.avals[v]
    if not _is_float(a):
        return None
    return "random", lambda x: x + jax.random.uniform(jax.random.key(7), x.shape, jnp.float32).astype(x.dtype), (v,)


def _iota(d: _Drawing, v: int) -> Any:
    a = d.avals[v]
    dim = d.dim(v)
    if dim is None or a.dtype == bool:
        return None
    return f"iota[{dim}]", lambda x: x + lax.broadcasted_iota(jnp.int32, x.shape, dim).astype(x.dtype), (v,)


def _constant(d: _Drawing, v: int) -> Any:
    a = d.avals[v]
    if a.dtype == bool:
        return None
    data = (np.arange(math.prod(a.shape)) % 5).reshape(a.shape)
    return "constant", lambda x: x * jnp.asarray(data, x.dtype), (v,)


def _where(d: _Drawing, v: int) -> Any:
    mask = d.other(lambda a: a.dtype == bool and _broadcasts(a.shape, d.avals[v].shape))
    if mask is None:
        return None
    return "where", lambda x, m: jnp.where(m, x, jnp.zeros((), x.dtype)), (v, mask)


def _triangle(d: _Drawing, v: int) -> Any:
    a = d.avals[v]
    return ("triangle", jnp.tril, (v,)) if len(a.shape) >= 2 and a.dtype != bool else None


def _compare(d: _Drawing, v: int) -> Any:
    return "compare", lambda x: x > (jnp.zeros((), x.dtype)), (v,)


def _dynamic(d: _Drawing, v: int) -> Any:
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


def _one_hot(d: _Drawing, v: int) -> Any:
    a = d.avals[v]
    if not jnp.issubdtype(a.dtype, jnp.integer) or len(a.shape) > 2:
        return None
    return "one_hot", lambda x: jax.nn.one_hot(x, 8, dtype=jnp.float32), (v,)


def _barrier(d: _Drawing, v: int) -> Any:
    return "barrier", lambda x: lax.optimization_barrier((x, x))[0], (v,)


_KINDS: tuple[Any, ...] = (
    *(_unary, _unary, _unary, _binary, _binary, _binary, _outer, _matmul, _matmul, _contract, _transpose, _reshape),
    *(_reshape, _reduce, _reduce, _own_reduce, _arg_reduce, _softmax, _softmax, _centre, _concatenate, _slice, _pad),
    *(_reverse, _roll, _take, _take_by, _take_along, _scatter, _sort, _sort_pairs, _cumulate, _top_k, _convolve),
    *(_scan, _loop, _cond, _random, _iota, _constant, _where, _triangle, _compare, _dynamic, _one_hot, _barrier),
)
_DISCONTINUOUS = (_arg_reduce, _compare, _sort_pairs, _top_k, _cond)
