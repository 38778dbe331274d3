"""`stablehlo_mem.jit`: `jax.jit` of a function that binds its jaxpr to the budgeted primitive when it is traced.

JAX does the rest: it lowers the primitive, which plans the program, and caches what it compiled.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import jax
from jax.core import Tracer

from stablehlo_mem.api.host_calls import LeafFlags, placing, results_on_host
from stablehlo_mem.api.host_names import HostArguments, host_arguments
from stablehlo_mem.errors import InputError
from stablehlo_mem.ir.bindings import check_callable, core, discharge, linear_util, pe, state
from stablehlo_mem.jaxpr.budgeted_primitive import bind, bind_closed, budgeted_p
from stablehlo_mem.jaxpr.memory_spaces import in_memory, memory_kind
from stablehlo_mem.jaxpr.operand_shardings import platforms_of_devices, shardings_when_traced
from stablehlo_mem.jaxpr.plan_at_lowering import Settings, plan_jaxpr
from stablehlo_mem.pass_api.candidate import Options
from stablehlo_mem.results.plan import Plan
from stablehlo_mem.targets.target import TargetLike
from stablehlo_mem.utils.units import parse_budget


def jit(
    fun: Callable[..., Any] | None = None,
    budget: int | str | None = "device",
    *,
    target: TargetLike = None,
    options: Options = Options(),
    host: str | Sequence[str] = (),
    **jit_kwargs: Any,
) -> Any:
    """`jax.jit` with every execution within a budget of device memory.

    Derivatives and batches are planned under the same budget: `jvp` is one program of values and tangents; the backward
    program of `grad` takes the arguments and the cotangents, recomputes what it needs, and is planned like the forward
    one; `vmap` plans the program of the batch. For a train step use `shm.jit(train_step)`: one plan for all of it.

    Args:
        fun: the function; without it, a decorator.
        budget: as in `optimize`, for one execution of each of these programs. Of "device" the arguments are a part,
            as they are there when the function is called.
        target: as in `optimize`. To run, it must be a target of the backend in use. None for the platform lowered for.
        options: as in `optimize`.
        host: names of arguments that lie in the host's memory: a parameter, "opt_state", or a part of one as JAX
            writes it, "opt_state[0].mu" or "state['params']". Arrays that are elsewhere are moved there on the call
            ("pinned_host"); single numbers are not. The function computes with copies on the device, and its program
            makes them piece by piece under the budget. The first part of the results that has the structure, shapes and
            types of a whole argument is its new value, and lies where the argument does; `out_shardings` decide where
            they are given.
        **jit_kwargs: for `jax.jit`: static and donated arguments, shardings, ...

    Returns:
        A function like `jax.jit`'s; `.plan(*args)` is the plan for such arguments or ShapeDtypeStructs.

    Raises:
        InputError: the budget is invalid, or `host` names no parameter or a static one; on the call: the program has
            an effect that prevents planning, or `host` names no array.
        BudgetError: on the call, the budget cannot be kept.
        TargetError: on the call, as in `optimize`.
    """
    parsed = parse_budget(budget)
    if fun is None:
        return functools.partial(jit, budget=budget, target=target, options=options, host=host, **jit_kwargs)
    if isinstance(fun, str):
        raise InputError(f"the first argument of stablehlo_mem.jit is a function: name the budget, budget={fun!r}")
    check_callable(fun)
    signature = _signature(fun, host, jit_kwargs)
    # It is a key of JAX's caches, which an array of one number cannot be.
    hashable = budget if isinstance(budget, str) else parsed
    traceable = _traceable(fun, Settings(hashable, target, options, name_of(fun)), signature)
    make = functools.partial(_jitted, fun, traceable)
    if signature.host is None:
        return make(jit_kwargs)

    def make_with(out_shardings: Any) -> Any:
        return make(jit_kwargs if out_shardings is None else {"out_shardings": out_shardings, **jit_kwargs})

    static = _named(fun, jit_kwargs, "static")
    signature.host.refuse_static(static)
    return placing(fun, make_with, lambda args, kwargs: _flags(signature, static, args, kwargs))


def _jitted(fun: Callable[..., Any], traceable: _Traceable, jit_kwargs: dict[str, Any]) -> Any:
    """`jax.jit` of what is traced, with the attributes of the function and `plan`."""
    # Called while another function is traced it is a part of that: a function of its own would be lowered without its
    # arguments' shardings.
    keywords: dict[str, Any] = {"inline": True, **jit_kwargs}
    jitted: Any = jax.jit(traceable, **keywords)
    attributes = {name: value for name, value in vars(jitted).items() if name not in _Traceable.__annotations__}
    jitted.__dict__ = {**getattr(fun, "__dict__", {}), **attributes, "__wrapped__": fun}
    jitted.plan = functools.partial(_plan, fun, traceable, jit_kwargs)
    return jitted


def _flags(signature: _Signature, static: frozenset[int | str], args: tuple[Any, ...], kwargs: Any) -> LeafFlags:
    return LeafFlags(
        on_host=tuple(signature.named(args, kwargs)),
        donated=tuple(signature.flags(args, kwargs)),
        static=tuple(_leaf_flags(args, kwargs, static)),
    )


def _plan(_: Callable[..., Any], traceable: _Traceable, jit_kwargs: dict[str, Any], *args: Any, **kwargs: Any) -> Plan:
    """The plan for arguments or ShapeDtypeStructs; `fits=False` if the budget is not kept.

    The first argument keeps the function alive, to which `traceable` may hold a weak reference only.

    Raises:
        InputError, TargetError: as in `optimize`.
    """
    traced: Any = jax.jit(traceable, **jit_kwargs).trace(*args, **kwargs)
    jaxpr = traced.jaxpr.jaxpr
    used, _ = pe.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))  # as JAX does before it lowers
    equation = next(_budgeted_equations(used))
    shardings = shardings_when_traced(traced, equation)
    is_named = equation.params["settings"].target is not None
    platforms = None if is_named else platforms_of_devices(shardings)
    return plan_jaxpr(platforms=platforms, shardings=shardings, **equation.params).plan


def _budgeted_equations(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        if equation.primitive is budgeted_p:
            yield equation
        else:
            for inner in core.jaxprs_in_params(equation.params):
                yield from _budgeted_equations(inner)


@dataclasses.dataclass(frozen=True)
class _Signature:
    """What a call of `jit` says of the arguments and results.

    Attributes:
        donated: the indices and names of the arguments that are donated.
        host: those in the host's memory, None where none is named.
        kinds, tree: the memory kinds of `out_shardings`, "" where they name none, and their tree.
    """

    donated: frozenset[int | str]
    host: HostArguments | None
    kinds: tuple[str, ...]
    tree: Any

    def flags(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[bool]:
        """For each leaf of (args, kwargs) whether it is donated."""
        return _leaf_flags(tuple(args), kwargs, self.donated)

    def named(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[bool]:
        """For each leaf of (args, kwargs) whether `host` names it."""
        return [False] * len(jax.tree.leaves((args, kwargs))) if self.host is None else self.host.flags(args, kwargs)

    def placed(self, result: Any, arguments: Sequence[Any]) -> Any:
        """A result of the function, each array in the memory that it is to be in."""
        leaves, tree = jax.tree.flatten(result)
        on_host = [False] * len(leaves) if self.host is None else results_on_host(arguments, result)
        try:
            kinds = jax.tree.leaves(jax.tree.broadcast(jax.tree.unflatten(self.tree, self.kinds), result))
        except ValueError:  # JAX says what does not suit once it has seen the results
            return result
        kinds = [kind or ("pinned_host" if host else None) for kind, host in zip(kinds, on_host, strict=True)]
        return jax.tree.unflatten(tree, [in_memory(x, kind) for x, kind in zip(leaves, kinds, strict=True)])


def _signature(fun: Callable[..., Any], host: Any, jit_kwargs: dict[str, Any]) -> _Signature:
    shardings, tree = jax.tree.flatten(jit_kwargs.get("out_shardings"), is_leaf=lambda x: x is None)
    kinds = tuple(memory_kind(sharding) or "" for sharding in shardings)
    names = None if host is None else host_arguments(fun, name_of(fun), host)
    return _Signature(_named(fun, jit_kwargs, "donate"), names, kinds, tree)


_traceables: weakref.WeakKeyDictionary[Any, dict[Any, _Traceable]] = weakref.WeakKeyDictionary()
"""For each function that is alive what JAX traces: with the same object, a second `jit` finds JAX's caches filled."""


def _traceable(fun: Callable[..., Any], settings: Settings, signature: _Signature) -> _Traceable:
    try:
        of_function = _traceables.setdefault(fun, {})
    except TypeError:  # no hash or no weak references: JAX refuses it when it is called
        return _owning_traceable(fun, settings, signature)
    key = settings, signature
    if key not in of_function:
        of_function[key] = _Traceable(weakref.ref(fun), settings, signature)
    cached = of_function[key]
    # It may belong to another callable that compares equal and dies earlier.
    return cached if cached.fun() is fun else _owning_traceable(fun, settings, signature)


def _owning_traceable(fun: Callable[..., Any], settings: Settings, signature: _Signature) -> _Traceable:
    return _Traceable(lambda: fun, settings, signature)


class _Traceable:
    """The callable that `jax.jit` traces: it binds the function's jaxpr to the budgeted primitive.

    When it is called the leaves of dynamic arguments are tracers; static arguments are passed as they are.

    Attributes:
        fun: returns the function, which it may reference weakly.
    """

    fun: Callable[[], Any]
    settings: Settings
    signature: _Signature

    def __init__(self, fun: Callable[[], Any], settings: Settings, signature: _Signature):
        self.fun, self.settings, self.signature = fun, settings, signature
        for name in functools.WRAPPER_ASSIGNMENTS:
            if hasattr(_underlying(fun(), name), name):
                setattr(self, name, getattr(_underlying(fun(), name), name))

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The function: JAX reads its signature and source line here."""
        return self.fun()

    def __repr__(self) -> str:
        return repr(self.fun())

    def __reduce__(self) -> Any:
        """Pickled and copied with the function, which the copy owns."""
        return _owning_traceable, (self.fun(), self.settings, self.signature)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        fun = self.fun()
        _ = hash(weakref.ref(fun))  # JAX caches by it: raises what JAX would raise
        config: Any = jax.config
        trace = core.trace_ctx.trace
        if config.jax_disable_jit or not isinstance(trace, pe.DynamicJaxprTrace):
            return fun(*args, **kwargs)  # evaluated op by op, as when JAX looks for NaNs
        dynamic = _dynamic(args, kwargs)
        leaves, tree = jax.tree.flatten(dynamic)
        named = self.signature.named(*dynamic)
        out_tree: Any = None
        result_paths: Any = None
        debug_info = trace.frame.debug_info

        def flat(*operands: Any) -> Any:
            nonlocal out_tree, result_paths
            on_device = [in_memory(x, "device" if flag else None) for x, flag in zip(operands, named, strict=True)]
            dynamic_args, dynamic_kwargs = jax.tree.unflatten(tree, on_device)
            all_args = [_merged(*pair) for pair in zip(args, dynamic_args, strict=True)]
            all_kwargs = {name: _merged(kwargs[name], dynamic_kwargs[name]) for name in kwargs}
            arguments, named_arguments = jax.tree.unflatten(tree, operands)
            result = fun(*all_args, **all_kwargs)
            result = self.signature.placed(result, [*arguments, *named_arguments.values()])
            outs, out_tree = jax.tree.flatten(result)
            result_paths = debug_info.set_result_paths(result).result_paths
            return outs

        wrapped = linear_util.wrap_init(flat, debug_info=debug_info)
        wrapped.debug_info = debug_info._replace(result_paths=lambda: result_paths)
        jaxpr, _, constants = pe.trace_to_jaxpr_dynamic(wrapped, [leaf.aval for leaf in leaves])
        donated = [False] * len(constants) + self.signature.flags(*dynamic)
        outs = bind_program(pe.convert_constvars_jaxpr(jaxpr), self.settings, donated, [*constants, *leaves])
        return jax.tree.unflatten(out_tree, outs)


def bind_program(jaxpr: Any, settings: Settings, donated: list[bool], operands: list[Any]) -> list[Any]:
    """Binds a jaxpr. Of references it binds the values, read before and written after.

    JAX's own rules for these reads and writes then do their part of differentiation.
    """
    avals = [v.aval for v in jaxpr.invars]
    if core.internal_mutable_array_effect not in jaxpr.effects and not any(map(_is_reference, avals)):
        return bind(jaxpr, settings, donated, *operands)
    if _passes_reference_to_custom_vjp(jaxpr):
        raise InputError(
            f"{settings.name} passes a reference (jax.new_ref) to a jax.custom_vjp, whose backward rule may "
            "write to it: put stablehlo_mem.jit around the parts without it, or around the whole derivative"
        )
    closed = discharge.discharge_state(pe.close_jaxpr(jaxpr))
    values = [x[...] if _is_reference(aval) else x for x, aval in zip(operands, avals, strict=True)]
    outs = bind_closed(closed, settings, *values, donated=donated)
    references = [i for i, aval in enumerate(avals) if _is_reference(aval)]
    final_values = range(len(jaxpr.outvars), len(outs))
    for i, k in zip(references, final_values, strict=True):
        if closed.jaxpr.outvars[k] is not closed.jaxpr.invars[i]:
            operands[i][...] = outs[k]
    return outs[: len(jaxpr.outvars)]


def _passes_reference_to_custom_vjp(jaxpr: Any) -> bool:
    """Whether a custom_vjp takes a reference: its backward rule would write to a copy of the value."""
    inner = (j for equation in jaxpr.eqns for j in core.jaxprs_in_params(equation.params))
    calls = (e for e in jaxpr.eqns if e.primitive.name.startswith("custom_vjp_call"))
    takes_reference = any(_is_reference(v.aval) for equation in calls for v in equation.invars)
    return takes_reference or any(map(_passes_reference_to_custom_vjp, inner))


class _Static:
    """A leafless tree in the place of an argument without tracers, which is passed as it is."""


_STATIC = _Static()
jax.tree_util.register_pytree_node(_Static, lambda _: ((), None), lambda *_: _STATIC)


def _dynamic(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, with `_STATIC` in the place of those that are static or empty."""

    def dynamic(argument: Any) -> Any:
        return argument if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(argument)) else _STATIC

    return tuple(map(dynamic, args)), {name: dynamic(argument) for name, argument in kwargs.items()}


def _merged(argument: Any, dynamic: Any) -> Any:
    return argument if dynamic is _STATIC else dynamic


def _is_reference(aval: Any) -> bool:
    return isinstance(aval, state.AbstractRef)


def name_of(fun: Any) -> str:
    """The name of a function, for messages."""
    return getattr(_underlying(fun, "__name__"), "__name__", type(fun).__name__)


def _underlying(fun: Any, name: str) -> Any:
    """The function, or the one inside of partials if these lack an attribute."""
    while isinstance(fun, functools.partial) and not hasattr(fun, name):
        fun = fun.func
    return fun


def _named(fun: Callable[..., Any], jit_kwargs: dict[str, Any], which: Literal["donate", "static"]) -> frozenset[Any]:
    """The indices and names of the arguments that are donated or static; as in `jax.jit` each implies the other."""
    argnums, argnames = jit_kwargs.get(f"{which}_argnums"), jit_kwargs.get(f"{which}_argnames")
    named: set[int | str] = {*_as_tuple(argnums), *_as_tuple(argnames)}
    if named and None in (argnums, argnames):
        for i, name in enumerate(_positional_names(fun)):
            if i in named or name in named:
                named |= {i, name}
    return frozenset(named)


def _positional_names(fun: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):  # builtins may have no signature
        return []
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


def _leaf_flags(args: tuple[Any, ...], kwargs: dict[str, Any], named: frozenset[int | str]) -> list[bool]:
    indices = (i if i in named else i - len(args) for i in range(len(args)))
    flags = [i in named for i, arg in zip(indices, args, strict=True) for _ in jax.tree.leaves(arg)]
    return flags + [name in named for name in sorted(kwargs) for _ in jax.tree.leaves(kwargs[name])]


def _as_tuple(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, (int, str)) else tuple(value)
