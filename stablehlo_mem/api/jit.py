"""`jit` with a budget: JAX's own function, whose program is planned when JAX lowers it."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.core import Tracer

from stablehlo_mem.errors import InputError
from stablehlo_mem.ir.bindings import check_callable, core, discharge, linear_util, pe, state
from stablehlo_mem.jaxpr.budgeted_primitive import bind, budgeted_p
from stablehlo_mem.jaxpr.plan_at_lowering import Settings, planned
from stablehlo_mem.pass_api.candidate import Options
from stablehlo_mem.results.plan import Plan
from stablehlo_mem.targets.target import TargetLike
from stablehlo_mem.utils.units import parse_budget


def jit(
    fun: Callable[..., Any] | None = None,
    *,
    budget: int | str | None,
    target: TargetLike = None,
    options: Options = Options(),
    **jit_kwargs: Any,
) -> Any:
    """`jax.jit`, with every execution within a budget of device memory.

    What comes back is JAX's own kind of function. Its derivatives and batches are planned under the same budget:
    `jvp` is one program of values and tangents; `grad` recomputes: the backward program takes the arguments and the
    cotangents, and is planned, as is the forward one; `vmap` plans the program of the batch. The best way to a train
    step is `shm.jit(train_step, budget=...)`, one plan for all of it.

    Args:
        fun: the function; without it, a decorator.
        budget: as in `optimize`, for one execution of each of these programs.
        target: as in `optimize`. To run, it must be of the backend that runs. None for whatever is lowered for.
        options: as in `optimize`.
        **jit_kwargs: for `jax.jit`: static and donated arguments, shardings, ...

    Returns:
        A function like `jax.jit`'s; `.plan(*args)` is the plan for such arguments or ShapeDtypeStructs.

    Raises:
        InputError: the budget cannot be read; on the call: something the program does cannot be planned.
        BudgetError: on the call, the budget cannot be kept.
        TargetError: on the call, as in `optimize`.
    """
    parse_budget(budget)
    if fun is None:
        return functools.partial(jit, budget=budget, target=target, options=options, **jit_kwargs)
    check_callable(fun)
    traceable = _traceable(fun, Settings(budget, target, options, _name(fun)), _donation(fun, jit_kwargs))
    jitted: Any = jax.jit(traceable, **jit_kwargs)
    own = {name: value for name, value in vars(jitted).items() if name not in _Traceable.__annotations__}
    jitted.__dict__ = {**getattr(fun, "__dict__", {}), **own, "__wrapped__": fun}
    jitted.plan = functools.partial(_plan, fun, traceable, jit_kwargs)
    return jitted


def _plan(_: Callable[..., Any], traceable: _Traceable, jit_kwargs: dict[str, Any], *args: Any, **kwargs: Any) -> Plan:
    """The plan for such arguments or ShapeDtypeStructs; `fits=False` where the budget is not kept.

    Raises:
        InputError, TargetError: as in `optimize`.
    """
    traced: Any = jax.jit(traceable, **jit_kwargs).trace(*args, **kwargs)
    jaxpr = traced.jaxpr.jaxpr
    needed, _ = pe.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))  # as JAX does before it lowers
    return planned(platforms=None, **next(_budgeted(needed)).params).plan


def _budgeted(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        if equation.primitive is budgeted_p:
            yield equation
        else:
            for inner in core.jaxprs_in_params(equation.params):
                yield from _budgeted(inner)


_shared: weakref.WeakKeyDictionary[Any, dict[Any, _Traceable]] = weakref.WeakKeyDictionary()
"""Of each function what JAX traces of it: known when `jit` is called again, as long as the function lives."""


def _traceable(fun: Callable[..., Any], settings: Settings, donated: frozenset[int | str]) -> _Traceable:
    try:
        known = _shared.setdefault(fun, {})
    except TypeError:  # no hash or no weak references: refused when it is called, as by JAX
        return _holding(fun, settings, donated)
    key = settings, donated
    if key not in known:
        known[key] = _Traceable(weakref.ref(fun), settings, donated)
    found = known[key]
    # Of callables that are equal the other one need not live as long.
    return found if found.fun() is fun else _holding(fun, settings, donated)


def _holding(fun: Callable[..., Any], settings: Settings, donated: frozenset[int | str]) -> _Traceable:
    return _Traceable(lambda: fun, settings, donated)


class _Traceable:
    """What `jax.jit` traces: the function's jaxpr, bound to the budget.

    There the leaves of dynamic arguments are tracers, and the static arguments are what they are.

    Attributes:
        fun: gives the function, which lives as long as somebody can call it.
    """

    fun: Callable[[], Any]
    settings: Settings
    donated: frozenset[int | str]

    def __init__(self, fun: Callable[[], Any], settings: Settings, donated: frozenset[int | str]):
        self.fun, self.settings, self.donated = fun, settings, donated
        for name in functools.WRAPPER_ASSIGNMENTS:
            if hasattr(_underlying(fun(), name), name):
                setattr(self, name, getattr(_underlying(fun(), name), name))

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The function, where JAX looks for its signature and its place."""
        return self.fun()

    def __repr__(self) -> str:
        return repr(self.fun())

    def __reduce__(self) -> Any:
        """Pickled and copied with the function, which it holds from then on: nobody else need."""
        return _holding, (self.fun(), self.settings, self.donated)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        fun = self.fun()
        _ = hash(weakref.ref(fun))  # JAX caches by it: raises what JAX would raise
        config: Any = jax.config
        trace = core.trace_ctx.trace
        if config.jax_disable_jit or not isinstance(trace, pe.DynamicJaxprTrace):
            return fun(*args, **kwargs)  # op by op, to find NaNs, say
        given = _dynamic((args, kwargs))
        leaves, tree = jax.tree.flatten(given)
        results: list[Any] = []
        debug_info = trace.frame.debug_info

        def flat(*operands: Any) -> Any:
            filled_args, filled_kwargs = jax.tree.unflatten(tree, operands)
            called_args = [_filled(*pair) for pair in zip(args, filled_args, strict=True)]
            called_kwargs = {name: _filled(kwargs[name], filled_kwargs[name]) for name in kwargs}
            result = fun(*called_args, **called_kwargs)
            outs, structure = jax.tree.flatten(result)
            results.extend([structure, debug_info.set_result_paths(result).result_paths])
            return outs

        wrapped = linear_util.wrap_init(flat, debug_info=debug_info)
        wrapped.debug_info = debug_info._replace(result_paths=lambda: results[1])
        jaxpr, _, constants = pe.trace_to_jaxpr_dynamic(wrapped, [leaf.aval for leaf in leaves])
        donated = [False] * len(constants) + _leaf_flags(*given, self.donated)
        outs = self.run(pe.convert_constvars_jaxpr(jaxpr), donated, [*constants, *leaves])
        return jax.tree.unflatten(results[0], outs)

    def run(self, jaxpr: Any, donated: list[bool], operands: list[Any]) -> list[Any]:
        """Binds a jaxpr: what it does to references, it does to their values, which are read before and written after.

        So JAX's own rules for reading and writing are those that differentiate.
        """
        given = [v.aval for v in jaxpr.invars]
        if core.internal_mutable_array_effect not in jaxpr.effects and not any(map(_is_reference, given)):
            return bind(jaxpr, self.settings, donated, *operands)
        if _is_passed_to_a_rule(jaxpr):
            raise InputError(
                f"{self.settings.name} passes a reference (jax.new_ref) to a jax.custom_vjp, whose backward rule may "
                "write to it: put stablehlo_mem.jit around the parts without it, or around the whole derivative"
            )
        closed = discharge.discharge_state(pe.close_jaxpr(jaxpr))
        pure = pe.convert_constvars_jaxpr(closed.jaxpr)
        values = [x[...] if _is_reference(aval) else x for x, aval in zip(operands, given, strict=True)]
        flags = [False] * len(closed.consts) + donated
        outs = bind(pure, self.settings, flags, *closed.consts, *values)
        references = [i for i, aval in enumerate(given) if _is_reference(aval)]
        after = range(len(jaxpr.outvars), len(outs))
        for i, k in zip(references, after, strict=True):
            if pure.outvars[k] is not pure.invars[len(closed.consts) + i]:
                operands[i][...] = outs[k]
        return outs[: len(jaxpr.outvars)]


def _is_passed_to_a_rule(jaxpr: Any) -> bool:
    """Whether a custom_vjp gets a reference: its backward rule would write to a value that nobody reads."""
    own = (e for e in jaxpr.eqns if e.primitive.name.startswith("custom_vjp_call"))
    if any(_is_reference(v.aval) for equation in own for v in equation.invars):
        return True
    return any(_is_passed_to_a_rule(j) for equation in jaxpr.eqns for j in core.jaxprs_in_params(equation.params))


class _Static:
    """Stands for an argument without tracers, which is passed on as it is."""


_STATIC = _Static()
jax.tree_util.register_pytree_node(_Static, lambda _: ((), None), lambda *_: _STATIC)


def _dynamic(arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, those that are static or empty left out."""

    def shown(argument: Any) -> Any:
        return argument if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(argument)) else _STATIC

    args, kwargs = arguments
    return tuple(map(shown, args)), {name: shown(argument) for name, argument in kwargs.items()}


def _filled(argument: Any, filled: Any) -> Any:
    return argument if filled is _STATIC else filled


def _is_reference(aval: Any) -> bool:
    return isinstance(aval, state.AbstractRef)


def _name(fun: Any) -> str:
    return getattr(_underlying(fun, "__name__"), "__name__", type(fun).__name__)


def _underlying(fun: Any, name: str) -> Any:
    """What has the name of a partial that has none."""
    while isinstance(fun, functools.partial) and not hasattr(fun, name):
        fun = fun.func
    return fun


def _donation(fun: Callable[..., Any], jit_kwargs: dict[str, Any]) -> frozenset[int | str]:
    """The indices of positional arguments and the names of arguments that are donated, as `jax.jit` has it."""
    donated: set[int | str] = {*_listed(jit_kwargs.get("donate_argnums")), *_listed(jit_kwargs.get("donate_argnames"))}
    if donated and None in (jit_kwargs.get("donate_argnums"), jit_kwargs.get("donate_argnames")):
        for i, name in enumerate(_positional_names(fun)):  # one is told by the other
            if i in donated or name in donated:
                donated |= {i, name}
    return frozenset(donated)


def _positional_names(fun: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):  # some callables have none
        return []
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


def _leaf_flags(args: tuple[Any, ...], kwargs: dict[str, Any], donated: frozenset[int | str]) -> list[bool]:
    indices = (i if i in donated else i - len(args) for i in range(len(args)))
    flags = [i in donated for i, arg in zip(indices, args, strict=True) for _ in jax.tree.leaves(arg)]
    return flags + [name in donated for name in sorted(kwargs) for _ in jax.tree.leaves(kwargs[name])]


def _listed(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, (int, str)) else tuple(value)
