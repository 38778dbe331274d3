"""The trace that puts programs under a budget: `jax.jit`s that are called while it is current are planned.

JAX hands every operation that is called to the current trace. Outside of transformations that is the one that evaluates
it. In its place, this one evaluates everything as JAX does, but for `jit`, whose jaxpr it replaces by one that binds
the same jaxpr to the budgeted primitive. Functions, shardings, donation and all caches of JAX remain as they are.
`api.under_budget` makes it current.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import weakref
from collections.abc import Callable, Generator
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr
from jax.extend.core.primitives import jit_p

from stablehlo_mem.errors import InputError, explain_error
from stablehlo_mem.ir.bindings import core, jit_key_part, linear_util, pe
from stablehlo_mem.jaxpr.budgeted_primitive import budgeted_p
from stablehlo_mem.jaxpr.memory_spaces import memory_kind, with_results_in
from stablehlo_mem.jaxpr.plan_at_lowering import Settings, recording
from stablehlo_mem.results.budget_error import BudgetError
from stablehlo_mem.results.plan import Plan

Bind = Callable[[Any, Settings, list[bool], list[Any]], list[Any]]
"""Binds a jaxpr to the budgeted primitive: jaxpr, settings, which operands are donated, operands."""

_CALL_EXPORTED = "call_exported"
_CERTAIN_SHARE = 0.25
"""A program is not planned whose values, all of them together, take less of the limit. The rest is for what compilers
add: the scratch of sorts, convolutions and factorisations, which is some times their operands."""
_COMPUTED_BYTES = 4
"""What narrower elements may take while they are computed with: XLA:CPU takes most floats as float32."""
_PADDED = (32, 128)
"""The largest tile of a TPU, to multiples of which it pads the last two dimensions (of one-byte elements)."""

_settings: Any = jit_key_part("stablehlo_mem_budget", None)
"""The settings of the block that this thread is in: what JAX finds compiled outside is not run inside, nor the other
way round."""


@dataclasses.dataclass(frozen=True)
class _Program:
    """What is run in the place of a closed jaxpr.

    Attributes:
        jaxpr: the closed jaxpr that is planned; None for the one that was given.
        plans: those that were made for it.
    """

    jaxpr: Any = None
    plans: list[Plan] = dataclasses.field(default_factory=list[Plan])


_programs: weakref.WeakKeyDictionary[Any, dict[Any, _Program | None]] = weakref.WeakKeyDictionary()
"""For each closed jaxpr that is alive what is run in its place, by settings and donated arguments. No value may hold
its key."""


class BudgetTrace(core.EvalTrace):
    """Evaluates as JAX does, and plans each `jit`.

    Attributes:
        settings: of all programs.
        limit: returns the bytes of the budget: programs are planned if they might take more.
        bind: binds a jaxpr to the budgeted primitive.
        plans: those of the programs that were called, in that order.
    """

    def __init__(self, settings: Settings, limit: Callable[[], int], bind: Bind):
        super().__init__()
        # Its values are those of the evaluating trace: objects that remember where they were made (flax.nnx) are used
        # inside and outside. Programs are kept apart by `_settings`.
        self._weakref = core.eval_trace._weakref
        self.settings, self.limit, self.bind = settings, limit, bind
        self._plans: dict[int, list[Plan]] = {}

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Of programs that were called several times once."""
        return tuple(plan for plans in self._plans.values() for plan in plans)

    def process_primitive(self, primitive: Any, args: Any, params: dict[str, Any], /) -> Any:
        """Runs one operation."""
        if primitive is not jit_p:
            if not _has_program(primitive, params):
                return _evaluate(primitive, args, params)
            with core.set_current_trace(self):  # which JAX has set aside for the operation: the `jit` is to come here
                return _compiled(primitive, tuple(params.items()))(*args)
        program = self._program(params)
        if program is None:
            return _evaluate(primitive, args, params)
        self._plans[id(program.plans)] = program.plans
        with recording(program.plans), _naming(params["name"]):
            return _evaluate(primitive, args, {**params, "jaxpr": program.jaxpr or params["jaxpr"]})

    def process_custom_jvp_call(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function, whose `jit`s are planned."""
        with core.set_current_trace(self):
            return super().process_custom_jvp_call(*args, **kwargs)

    def process_custom_vjp_call(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function, whose `jit`s are planned."""
        with core.set_current_trace(self):
            return super().process_custom_vjp_call(*args, **kwargs)

    def _program(self, params: dict[str, Any]) -> _Program | None:
        """What is run in the place of a `jit`; None if it is not planned."""
        closed, donated = params["jaxpr"], params["donated_invars"]
        config: Any = jax.config
        if config.jax_disable_jit or config.jax_debug_nans or config.jax_debug_infs:
            # Each operation is a program, also where JAX calls a function again to find the one that makes a NaN.
            return None
        programs = _programs.setdefault(closed, {})
        kinds = tuple(map(memory_kind, params["out_shardings"]))
        key = self.settings, donated, kinds, self.limit()
        if key not in programs:
            settings = dataclasses.replace(self.settings, name=params["name"])
            if _bytes_of_all(closed.jaxpr) <= _CERTAIN_SHARE * self.limit():
                programs[key] = None
            elif any(equation.primitive is budgeted_p for equation in closed.jaxpr.eqns):
                programs[key] = _Program()  # it has a budget of its own
            else:
                programs[key] = _Program(_bound(closed, settings, donated, kinds, self.bind))
        return programs[key]


@contextlib.contextmanager
def current(trace: BudgetTrace) -> Generator[None]:
    """Makes it the current trace of this thread, in place of the evaluating one.

    Raises:
        InputError: another one is current when the block ends; none of them is then.
    """
    outer, outer_trace = _settings.swap_local(trace.settings), core.trace_ctx.trace
    core.trace_ctx.set_trace(trace)
    try:
        yield
    finally:
        is_innermost = core.trace_ctx.trace is trace
        _settings.set_local(outer if is_innermost else None)
        core.trace_ctx.set_trace(outer_trace if is_innermost else core.eval_trace)
    if not is_innermost:
        raise InputError(
            "a block ends before one that began in it, as where coroutines take turns: no budget is kept from here on"
        )


def is_evaluating() -> bool:
    """Whether operations that are called now are evaluated, and not traced."""
    return isinstance(core.trace_ctx.trace, core.EvalTrace)


@contextlib.contextmanager
def _naming(name: str) -> Generator[None]:
    """Adds to an error which of the block's programs it is about."""
    try:
        yield
    except BudgetError as error:
        explain_error(error, f"The program is jit({name}).")
        if error.best is None:
            explain_error(
                error,
                "Outside of jax.jit each function of jax.numpy is a program, which returns its result whole, and "
                "jax.grad makes two, of which the first returns all that is saved for the second: put what calls them "
                "(the gradient, the initialisation of a model) under jax.jit, or outside of the block.",
            )
        raise


def _has_program(primitive: Any, params: dict[str, Any]) -> bool:
    """Whether an operation has a program inside, as `scan`, `checkpoint` and the call of an Exported have."""
    if primitive.name != _CALL_EXPORTED and not any(True for _ in core.jaxprs_in_params(params)):
        return False
    try:
        hash(tuple(params.items()))
    except TypeError:  # there is nothing to compile it by
        return False
    return True


def _evaluate(primitive: Any, args: Any, params: dict[str, Any]) -> Any:
    """As outside of the block, from what is compiled there."""
    settings = _settings.swap_local(None)
    try:
        with core.set_current_trace(core.eval_trace):
            return core.eval_trace.process_primitive(primitive, args, params)
    finally:
        _settings.set_local(settings)


@functools.lru_cache(maxsize=256)
def _compiled(primitive: Any, params: tuple[tuple[str, Any], ...]) -> Any:
    def operation(*args: Any) -> Any:
        return primitive.bind(*args, **dict(params))

    operation.__name__ = primitive.name
    return jax.jit(operation)


def _bound(
    closed: Any, settings: Settings, donated: tuple[bool, ...], kinds: tuple[str | None, ...], bind: Bind
) -> Any:
    """The closed jaxpr that binds a closed jaxpr, its results in memories of some kinds, to the budgeted primitive."""
    # A copy: the closed jaxpr is a key of `_programs`, and from JAX 0.12 on the same object.
    jaxpr = with_results_in(pe.convert_constvars_jaxpr(closed.jaxpr).replace(), kinds)
    flags = [False] * len(closed.consts) + list(donated)

    def flat(*operands: Any) -> list[Any]:
        return bind(jaxpr, settings, flags, [*closed.consts, *operands])

    wrapped = linear_util.wrap_init(flat, debug_info=closed.jaxpr.debug_info)
    outer, _, constants = pe.trace_to_jaxpr_dynamic(wrapped, closed.in_avals)
    return ClosedJaxpr(outer, constants)


def _bytes_of_all(jaxpr: Any) -> float:
    """The bytes of all values of a jaxpr and of those inside of it: more than it needs, were nothing ever freed."""
    own = sum(_padded_bytes(v.aval) for v in (*jaxpr.constvars, *jaxpr.invars))
    for equation in jaxpr.eqns:
        own += sum(_padded_bytes(v.aval) for v in equation.outvars)
        own += math.inf if equation.primitive.name == _CALL_EXPORTED else 0  # its program is no jaxpr
        own += sum(map(_bytes_of_all, core.jaxprs_in_params(equation.params)))
    return own


def _padded_bytes(aval: Any) -> float:
    """Bytes of a value on the chip that pads most; infinite where its type does not say."""
    shape, dtype = getattr(aval, "shape", None), getattr(aval, "dtype", None)
    if shape is None or dtype is None:
        return 0 if aval is core.abstract_token else math.inf
    tiles = (*[1] * len(shape), *_PADDED)[-len(shape) :]
    padded = (-(-n // tile) * tile for n, tile in zip(shape, tiles, strict=False))
    return math.prod(padded) * max(dtype.itemsize, _COMPUTED_BYTES)


__all__ = ["BudgetTrace", "current", "is_evaluating"]
