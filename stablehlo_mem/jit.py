"""`jit` with a budget: one plan per signature, made when JAX lowers; derivatives and batches get plans of their own."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.export import Exported
from jax.extend import core
from jax.interpreters import batching, mlir
from jax.interpreters import partial_eval as pe

from stablehlo_mem import budget as budget_loop
from stablehlo_mem.api import TargetLike, export_function, platforms_of
from stablehlo_mem.bytesize import parse_budget
from stablehlo_mem.errors import InputError, TargetError
from stablehlo_mem.ingest import ingest
from stablehlo_mem.plan import Options, Plan
from stablehlo_mem.targets.target import named_targets


@dataclasses.dataclass(frozen=True)
class _Settings:
    budget: Any
    target: TargetLike
    options: Options
    name: str


def jit(
    fun: Callable[..., Any] | None = None,
    *,
    budget: int | str | None,
    target: TargetLike = None,
    options: Options = Options(),
    **jit_kwargs: Any,
) -> Any:
    """`jax.jit`, with every execution within a budget of device memory.

    `grad` of it recomputes: the backward program takes the arguments and the cotangents, and is planned under the
    same budget, as is the forward one. `vmap` of it plans the batched program. The best way to a train step is
    `shm.jit(train_step, budget=...)`, one plan for all of it.

    Args:
        fun: the function; without it, a decorator.
        budget: as in `optimize`, for one execution of the forward, backward or batched program each.
        target: as in `optimize`. To run, it must be of the backend that runs.
        options: as in `optimize`.
        **jit_kwargs: for `jax.jit`: static and donated arguments, shardings, ...

    Returns:
        A function like `jax.jit`'s; `.plan(*args)` is the plan for such arguments.

    Raises:
        InputError: the budget cannot be read; on the call: side effects, callbacks, forward-mode differentiation.
        BudgetError: on the call, the budget cannot be kept.
        TargetError: on the call, as in `optimize`.
    """
    parse_budget(budget)
    if fun is None:
        return functools.partial(jit, budget=budget, target=target, options=options, **jit_kwargs)
    settings = _Settings(budget, target, options, getattr(fun, "__name__", type(fun).__name__))
    return BudgetedFunction(fun, settings, jit_kwargs)


class BudgetedFunction:
    """A function under `stablehlo_mem.jit`."""

    def __init__(self, fun: Callable[..., Any], settings: _Settings, jit_kwargs: dict[str, Any]):
        functools.update_wrapper(self, fun)
        self._settings = settings
        self._jitted: Any = jax.jit(_traceable(fun, settings, _donation(fun, jit_kwargs)), **jit_kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls it: traced, planned and compiled on the first call of each signature."""
        try:
            return self._jitted(*args, **kwargs)
        except (TypeError, ValueError) as error:
            translated = _translate(error, self._settings)
            if translated is None:
                raise
            raise translated from error

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Binds as a method, as functions do."""
        return self if instance is None else types.MethodType(self, instance)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """`jax.jit(fun).lower`: the optimised program, to be compiled ahead of time."""
        return self._jitted.lower(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """`jax.jit(fun).trace`."""
        return self._jitted.trace(*args, **kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """`jax.jit(fun).eval_shape`: shapes and dtypes of the results; plans nothing."""
        return self._jitted.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """`jax.jit(fun).clear_cache`: forgets executables and plans."""
        self._jitted.clear_cache()

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """The plan for such arguments or ShapeDtypeStructs; `fits=False` where the budget is not kept.

        Raises:
            InputError, TargetError: as in `optimize`.
        """
        return next(_calls(self._jitted.trace(*args, **kwargs).jaxpr.jaxpr)).plan


@dataclasses.dataclass(frozen=True, eq=False)
class _Call:
    """A jaxpr to be run within the budget, on its constants and arguments in one flat row of operands.

    Equal to itself only: JAX's caches then hold one plan for each. It holds no constants: they may be tracers.
    `fixed` are the operands that are constants and no tracers, `donated` those whose buffers may be taken over.
    """

    jaxpr: core.Jaxpr
    settings: _Settings
    fixed: frozenset[int]
    donated: tuple[int, ...] = ()

    @property
    def differentiable(self) -> list[int]:
        """The operands that have a cotangent: not integers, keys, or constants that are no tracers."""
        avals = enumerate(self.operand_avals)
        return [i for i, aval in avals if i not in self.fixed and jnp.issubdtype(aval.dtype, jnp.inexact)]

    @property
    def operand_avals(self) -> list[Any]:
        return [v.aval for v in (*self.jaxpr.constvars, *self.jaxpr.invars)]

    @property
    def result_avals(self) -> list[Any]:
        return [v.aval for v in self.jaxpr.outvars]

    def evaluate(self, *operands: Any) -> list[Any]:
        """The function as it was written: to be exported, differentiated or batched."""
        constants = len(self.jaxpr.constvars)
        closed = core.ClosedJaxpr(self.jaxpr, operands[:constants])
        return core.jaxpr_as_fun(closed)(*operands[constants:])

    def __call__(self, *operands: Any) -> list[Any]:
        """Binds the primitive, with its own derivative."""

        @jax.custom_vjp
        def run(*primals: Any) -> list[Any]:
            return _budgeted_p.bind(*primals, call=self)

        def forward(*primals: Any) -> Any:
            return run(*primals), primals

        run.defvjp(forward, self.pull_back)
        return run(*operands)

    def pull_back(self, primals: tuple[Any, ...], cotangents: list[Any]) -> tuple[Any, ...]:
        """Cotangents of the operands, None for those that have none."""
        outputs = tuple(i for i, c in enumerate(cotangents) if c.dtype != jax.dtypes.float0)
        if not outputs or not self.differentiable:
            return (None,) * len(primals)
        found = _backward(self, outputs)(*primals, *(cotangents[i] for i in outputs))
        by_input = dict(zip(self.differentiable, found, strict=True))
        return tuple(by_input.get(i) for i in range(len(primals)))

    @functools.cached_property
    def plan(self) -> Plan:
        """The plan for this jaxpr."""
        targets = named_targets(self.settings.target)
        exported = export_function(
            _jitted(self.evaluate, self.settings.name, self.donated),
            tuple(_specs(self.operand_avals)),
            {},
            platforms=platforms_of(targets),
        )
        return budget_loop.keep_budget(
            ingest(exported), parse_budget(self.settings.budget), targets, self.settings.options
        )

    @functools.cached_property
    def exported(self) -> Exported:
        """The program that keeps the budget."""
        exported = budget_loop.require_fit(self.plan).exported
        assert exported is not None  # an Exported went in
        return exported


_budgeted_p = core.Primitive("budgeted")
_budgeted_p.multiple_results = True


@_budgeted_p.def_abstract_eval
def _abstract_eval(*_: Any, call: _Call) -> list[Any]:
    return call.result_avals


@_budgeted_p.def_impl
def _impl(*operands: Any, call: _Call) -> list[Any]:
    return jax.jit(lambda *args: _budgeted_p.bind(*args, call=call))(*operands)


def _batch(operands: Any, axes: Any, *, call: _Call) -> Any:
    outs = _batched(call, tuple(axes), next(o.shape[a] for o, a in zip(operands, axes, strict=True) if a is not None))(
        *operands
    )
    return outs, [0] * len(outs)


def _run_exported(*operands: Any, call: _Call) -> Any:
    return call.exported.call(*operands)


batching.primitive_batchers[_budgeted_p] = _batch
mlir.register_lowering(_budgeted_p, mlir.lower_fun(_run_exported, multiple_results=True))


@functools.lru_cache(maxsize=256)
def _batched(call: _Call, axes: tuple[int | None, ...], size: int) -> Callable[..., list[Any]]:
    specs = [
        s if axis is None else jax.ShapeDtypeStruct((*s.shape[:axis], size, *s.shape[axis:]), s.dtype)
        for s, axis in zip(_specs(call.operand_avals), axes, strict=True)
    ]
    batched = jax.vmap(call.evaluate, in_axes=axes, axis_size=size)
    return _traced(batched, specs, call.settings)


@functools.lru_cache(maxsize=256)
def _backward(call: _Call, outputs: tuple[int, ...]) -> Callable[..., list[Any]]:
    avals = call.operand_avals
    inexact = call.differentiable

    def backward(*operands: Any) -> Any:
        primals, cotangents = list(operands[: len(avals)]), operands[len(avals) :]

        def differentiable(*values: Any) -> list[Any]:
            for i, value in zip(inexact, values, strict=True):
                primals[i] = value
            results = call.evaluate(*primals)
            return [results[i] for i in outputs]

        _, pull_back = jax.vjp(differentiable, *(primals[i] for i in inexact))
        return pull_back(list(cotangents))

    specs = _specs([*avals, *(call.result_avals[i] for i in outputs)])
    return _traced(backward, specs, call.settings)


def _traced(fun: Callable[..., Any], specs: list[Any], settings: _Settings) -> Callable[..., list[Any]]:
    closed = jax.make_jaxpr(fun)(*specs)
    jaxpr, used = _without_unused(closed.jaxpr)
    call = _Call(jaxpr, settings, frozenset(range(len(closed.consts))))
    return lambda *operands: call(*closed.consts, *itertools.compress(operands, used))


def _without_unused(jaxpr: core.Jaxpr) -> tuple[core.Jaxpr, list[bool]]:
    """A jaxpr that takes only what it needs, and which that is: what is bound is an argument of the executable."""
    return pe.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))


def _traceable(
    fun: Callable[..., Any], settings: _Settings, is_donated: Callable[[int | str], bool]
) -> Callable[..., Any]:
    """What `jax.jit` traces: there the dynamic leaves are tracers and the static arguments are what they are."""

    @functools.wraps(fun)
    def traceable(*args: Any, **kwargs: Any) -> Any:
        if jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
            return fun(*args, **kwargs)
        leaves, tree = jax.tree.flatten((args, kwargs))
        dynamic = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tracer)]

        def flat(*arrays: Any) -> Any:
            filled = list(leaves)
            for i, array in zip(dynamic, arrays, strict=True):
                filled[i] = array
            called_args, called_kwargs = jax.tree.unflatten(tree, filled)
            return fun(*called_args, **called_kwargs)

        operands = [leaves[i] for i in dynamic]
        closed, shapes = jax.make_jaxpr(flat, return_shape=True)(*operands)
        _refuse_effects(closed, settings.name)
        flags = _leaf_flags(args, kwargs, is_donated)
        jaxpr, used = _without_unused(closed.jaxpr)
        needed = list(itertools.compress(dynamic, used))
        donated = tuple(len(closed.consts) + k for k, i in enumerate(needed) if flags[i])
        fixed = frozenset(i for i, constant in enumerate(closed.consts) if not isinstance(constant, Tracer))
        outs = _Call(jaxpr, settings, fixed, donated)(*closed.consts, *(leaves[i] for i in needed))
        return jax.tree.unflatten(jax.tree.structure(shapes), outs)

    return traceable


def _translate(error: Exception, settings: _Settings) -> Exception | None:
    """JAX's own words for what we do not support, in ours; None for any other error."""
    if "custom_vjp function" in str(error):
        return InputError(
            f"{settings.name}: forward-mode differentiation (jvp, jacfwd, hessian) of a function under "
            "stablehlo_mem.jit is not supported: use reverse mode, or put jit around the derivative"
        )
    if "was exported for platforms" in str(error):
        return TargetError(
            f"{settings.name} was planned for target {settings.target!r}, which does not run here: {error}"
        )
    return None


def _refuse_effects(closed: core.ClosedJaxpr, name: str) -> None:
    if closed.effects:
        raise InputError(
            f"{name} has side effects ({', '.join(str(e) for e in closed.effects)}), which must not be repeated or "
            "reordered: take debug prints and callbacks out of the function"
        )


def _donation(fun: Callable[..., Any], jit_kwargs: dict[str, Any]) -> Callable[[int | str], bool]:
    """Whether the positional argument of an index or the keyword argument of a name is donated, as `jax.jit` has it."""
    donated: set[int | str] = {*_listed(jit_kwargs.get("donate_argnums")), *_listed(jit_kwargs.get("donate_argnames"))}
    if not donated:
        return lambda _: False
    if None in (jit_kwargs.get("donate_argnums"), jit_kwargs.get("donate_argnames")):  # one is told by the other
        names = [p.name for p in inspect.signature(fun).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        for i, name in enumerate(names):
            if i in donated or name in donated:
                donated |= {i, name}
    return donated.__contains__


def _leaf_flags(args: tuple[Any, ...], kwargs: dict[str, Any], is_donated: Callable[[int | str], bool]) -> list[bool]:
    flags = [is_donated(i) for i, arg in enumerate(args) for _ in jax.tree.leaves(arg)]
    return flags + [is_donated(name) for name in sorted(kwargs) for _ in jax.tree.leaves(kwargs[name])]


def _listed(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, (int, str)) else tuple(value)


def _specs(avals: list[Any]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in avals]


def _jitted(fun: Callable[..., Any], name: str, donated: tuple[int, ...]) -> Any:
    def named(*operands: Any) -> Any:
        return fun(*operands)

    named.__name__ = named.__qualname__ = name
    return jax.jit(named, donate_argnums=donated)


def _calls(jaxpr: Any) -> Iterator[_Call]:
    for equation in jaxpr.eqns:
        if equation.primitive is _budgeted_p:
            yield equation.params["call"]
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _calls(inner)
