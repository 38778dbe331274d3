"""Random JAX programs: a recipe of steps over arrays, drawn by anything that can pick a number."""

from __future__ import annotations

import dataclasses
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
_WHOLE_FLOATS = ("float32", "float32", "float64")
_INTS = ("int32", "int32", "uint8", "bool")
_WHOLE_NUMBERS = 4.0
"""Whole numbers are kept below: no sum of products of two of them is rounded in float32."""


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
    `whole`: floats hold small whole numbers, so that nothing is rounded and every order gives the same bits.
    `gradient`: the results are the derivatives of the sum of the floats among the outputs.
    """

    arguments: tuple[jax.ShapeDtypeStruct, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    continuous: bool
    whole: bool = False
    gradient: bool = False

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        if not self.gradient:
            return self.forward(*arguments)
        floats = [i for i, a in enumerate(arguments) if is_float(a)]

        def loss(*values: Any) -> Any:
            given = dict(zip(floats, values, strict=True))
            results = self.forward(*(given.get(i, a) for i, a in enumerate(arguments)))
            return sum(r.sum(dtype=r.dtype).astype(values[0].dtype) for r in results if is_float(r))

        return jax.grad(loss, tuple(range(len(floats))))(*(arguments[i] for i in floats))

    def forward(self, *arguments: Any) -> tuple[Any, ...]:
        values = list(arguments)
        for step in self.steps:
            values.append(step.fun(*(values[i] for i in step.inputs)))
        return tuple(values[i] for i in self.outputs)

    def data(self, seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [_data(rng, spec, self.whole) for spec in self.arguments]

    def __str__(self) -> str:
        given = len(self.arguments)
        lines = [f"%{i} = argument {a.dtype}{list(a.shape)}" for i, a in enumerate(self.arguments)]
        lines += [f"%{given + i} = {s.name} {', '.join(f'%{j}' for j in s.inputs)}" for i, s in enumerate(self.steps)]
        last = f"{'gradient of' if self.gradient else 'return'} {', '.join(f'%{i}' for i in self.outputs)}"
        return "\n".join([*lines, last + " (whole numbers)" * self.whole])


def _data(rng: np.random.Generator, spec: jax.ShapeDtypeStruct, whole: bool) -> np.ndarray:
    if spec.dtype == bool:
        return rng.integers(0, 2, spec.shape).astype(bool)
    if jnp.issubdtype(spec.dtype, jnp.integer):
        return rng.integers(0, 7, spec.shape).astype(spec.dtype)
    return (rng.integers(0, _WHOLE_NUMBERS, spec.shape) if whole else rng.normal(size=spec.shape)).astype(spec.dtype)


def without_unused(program: RandomProgram) -> RandomProgram:
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


class Drawing:
    """A program while it is drawn: the arrays there are and the steps that made them.

    `extreme`: integers may be the largest there are, and become small ones where they become floats: sums of floats so
    large cancel, and what is left is rounding.
    """

    def __init__(self, draw: Draw, whole: bool, extreme: bool = False):
        self.draw, self.whole = draw, whole
        self.small_integers = whole or extreme
        self.avals: list[Any] = []
        self.steps: list[Step] = []
        self.kinds: set[Callable[..., Any]] = set()

    def arguments(self) -> tuple[Any, ...]:
        sizes = [self.pick(SIZES[:5]), self.pick(SIZES), self.pick(SIZES)]
        if not self.draw(0, 15):
            sizes[2] = 0
        wide = self.pick(_WHOLE_FLOATS if self.whole else _FLOATS)
        for _ in range(self.draw(1, 3)):
            shape = tuple(self.pick(sizes) for _ in range(self.draw(1, 3)))
            dtype = self.pick(_INTS) if not self.draw(0, 4) else wide
            self.avals.append(jax.ShapeDtypeStruct(shape, dtype))
        return tuple(self.avals)

    def one(self, kind: Callable[..., Any], value: int | None = None) -> bool:
        """Adds a step of a kind, where it is possible and not too big."""
        made = kind(self, self.recent() if value is None else value)
        if made is None:
            return False
        name, fun, inputs = made
        with jax.enable_x64(True):
            aval = jax.eval_shape(fun, *(self.avals[i] for i in inputs))
        if math.prod(aval.shape) > _MAX_ELEMENTS or len(aval.shape) > 4:
            return False
        self.steps.append(Step(name, fun, inputs))
        self.avals.append(aval)
        self.kinds.add(kind)
        return True

    def tamed(self, fun: Callable[..., Any], scale: float = 0.1) -> Callable[..., Any]:
        """A function whose floats grow no further: scaled, whole numbers taken modulo a small one."""

        def tame(*operands: Any) -> Any:
            result = fun(*operands)
            if not is_float(result):
                return result
            if self.whole:
                return lax.rem(result, jnp.full_like(result, _WHOLE_NUMBERS))
            return result if scale == 1 else result * scale

        return tame

    def mixed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """A function of two operands: those of different kinds meet as floats of the first's type."""

        def meet(a: Any, b: Any) -> Any:
            if a.dtype != b.dtype:
                dtype = a.dtype if is_float(a) else b.dtype
                a, b = (self._converted(x, dtype) for x in (a, b))
            return fun(a, b)

        return meet

    def _converted(self, x: Any, dtype: Any) -> Any:
        small = self.small_integers and jnp.issubdtype(dtype, jnp.inexact) and jnp.issubdtype(x.dtype, jnp.integer)
        return (jnp.abs(x) % int(_WHOLE_NUMBERS) if small else x).astype(dtype)

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


def is_float(array: Any) -> bool:
    return jnp.issubdtype(array.dtype, jnp.inexact)


def broadcasts(small: tuple[int, ...], big: tuple[int, ...]) -> bool:
    return len(small) <= len(big) and all(s in (1, b) for s, b in zip(small[::-1], big[::-1], strict=False))
