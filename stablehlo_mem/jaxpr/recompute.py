"""Partial evaluation that saves nothing but the results of callbacks, and the removal of prints and inspections.

`jaxpr.budgeted_primitive` splits a jaxpr here when it is differentiated: the staged part recomputes what it needs of
the known part, and effects happen once.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from jax.extend.core import ClosedJaxpr

from stablehlo_mem.ir.bindings import core, debugging, pe

_PRINTS = (debugging.debug_callback_p, debugging.debug_print_p)
"""Primitives that `jax.checkpoint` repeats when it recomputes; the budgeted primitive prints once."""


@dataclasses.dataclass(frozen=True)
class PartialEval:
    """The known and the staged part of a jaxpr.

    Attributes:
        known: returns the known results, then the residuals.
        known_used: which of the known operands it takes.
        staged: takes the residuals, then operands; returns the unknown results.
        staged_used: which of all operands it takes.
        num_residuals: their count.
        out_unknown: which results are unknown.
    """

    known: Any
    known_used: tuple[bool, ...]
    staged: Any
    staged_used: tuple[bool, ...]
    num_residuals: int
    out_unknown: tuple[bool, ...]


def partial_eval_recomputing(jaxpr: Any, unknown: tuple[bool, ...]) -> PartialEval:
    """Splits a jaxpr, some of whose operands are unknown; only the results of callbacks become residuals."""
    known, staged, out_unknown, instantiated, num_residuals = pe.partial_eval_jaxpr_custom(
        jaxpr, list(unknown), [True] * len(unknown), False, False, _is_saveable
    )
    staged = _without_repeated_prints(jaxpr, known, staged)
    staged, used = pe.dce_jaxpr(staged, list(itertools.compress(out_unknown, instantiated)))
    residuals_used, staged_used = used[:num_residuals], used[num_residuals:]
    num_known = len(out_unknown) - sum(out_unknown)
    known, known_used = pe.dce_jaxpr(known, [True] * num_known + list(residuals_used))
    return PartialEval(known, tuple(known_used), staged, tuple(staged_used), sum(residuals_used), tuple(out_unknown))


def _is_saveable(primitive: Any, *_: Any, **__: Any) -> bool:
    """The policy: a pure callback runs as often as without a budget. JAX saves results of ops with effects anyway."""
    return primitive.name.endswith("callback") and primitive not in _PRINTS


def _without_repeated_prints(jaxpr: Any, known: Any, staged: Any) -> Any:
    """The staged part without the prints that the known part has: without any, if that has all of the jaxpr."""
    in_jaxpr, in_known = _count(jaxpr, _PRINTS), _count(known, _PRINTS)
    if not in_known:
        return staged
    if in_jaxpr == in_known:
        return _without(staged, _PRINTS, _is_print)
    known_prints = {id(equation) for equation in known.eqns if equation.primitive in _PRINTS}
    equations = [equation for equation in staged.eqns if id(equation) not in known_prints]
    still_prints = any(_is_print(effect) for equation in equations for effect in equation.effects)
    effects = {effect for effect in staged.effects if still_prints or not _is_print(effect)}
    return staged.replace(eqns=equations, effects=effects)


def primitives_in(jaxpr: Any) -> Iterator[Any]:
    """The primitives of all equations of a jaxpr, nested ones too."""
    for equation in jaxpr.eqns:
        yield equation.primitive
        for inner in core.jaxprs_in_params(equation.params):
            yield from primitives_in(inner)


def _count(jaxpr: Any, primitives: tuple[Any, ...]) -> int:
    return sum(primitive in primitives for primitive in primitives_in(jaxpr))


def without_inspections(jaxpr: Any) -> Any:
    """A jaxpr without `jax.debug.inspect_array_sharding`, which would run when a candidate is compiled."""
    return _without(jaxpr, (debugging.inspect_sharding_p,), lambda _: False)


def _without(jaxpr: Any, primitives: tuple[Any, ...], is_removed: Callable[[Any], bool]) -> Any:
    """A jaxpr without the equations of some primitives, nested ones too, and without the effects `is_removed` is of."""
    equations = [equation for equation in jaxpr.eqns if equation.primitive not in primitives]
    equations = [_without_inside(equation, primitives, is_removed) for equation in equations]
    return jaxpr.replace(eqns=equations, effects={e for e in jaxpr.effects if not is_removed(e)})


def _without_inside(equation: Any, primitives: tuple[Any, ...], is_removed: Callable[[Any], bool]) -> Any:
    """An equation with the same done to the jaxprs in its parameters."""
    if not any(_count(j, primitives) for j in core.jaxprs_in_params(equation.params)):
        return equation

    def removed(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(removed, value))
        if isinstance(value, core.Jaxpr):
            return _without(value, primitives, is_removed)
        is_closed = isinstance(value, ClosedJaxpr)
        return value.replace(jaxpr=_without(value.jaxpr, primitives, is_removed)) if is_closed else value

    params = {name: removed(value) for name, value in equation.params.items()}
    return equation.replace(params=params, effects={e for e in equation.effects if not is_removed(e)})


def _is_print(effect: Any) -> bool:
    return isinstance(effect, (debugging.DebugEffect, debugging.OrderedDebugEffect))
