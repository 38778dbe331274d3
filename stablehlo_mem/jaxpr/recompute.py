"""A jaxpr in two: what is known, and the rest, which computes again what it needs of it. Effects happen once."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

from stablehlo_mem.ir.bindings import core, debugging, pe

_PRINTS = (debugging.debug_callback_p, debugging.debug_print_p)
"""What `jax.checkpoint` does again with what it computes again, to show more: not so here."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """Both parts of a jaxpr.

    Attributes:
        known: its results are those that are known, then the residuals.
        known_used: which of the known operands it takes.
        staged: takes the residuals, then operands; its results are those that are unknown.
        staged_used: which of all operands it takes.
        residuals: how many there are.
        out_unknown: which results are unknown.
    """

    known: Any
    known_used: tuple[bool, ...]
    staged: Any
    staged_used: tuple[bool, ...]
    residuals: int
    out_unknown: tuple[bool, ...]


def split(jaxpr: Any, unknown: tuple[bool, ...]) -> Parts:
    """The parts of a jaxpr, some of whose operands are unknown.

    Residuals are what must not be made again: what callbacks returned.
    """
    known, staged, out_unknown, instantiated, residuals = pe.partial_eval_jaxpr_custom(
        jaxpr, list(unknown), [True] * len(unknown), False, False, _is_kept
    )
    staged = _without_repeated_prints(jaxpr, known, staged)
    wanted = list(itertools.compress(out_unknown, instantiated))
    staged, used = pe.dce_jaxpr(staged, wanted)
    residuals_used, staged_used = used[:residuals], used[residuals:]
    results_known = len(out_unknown) - sum(out_unknown)
    known, known_used = pe.dce_jaxpr(known, [True] * results_known + list(residuals_used))
    return Parts(known, tuple(known_used), staged, tuple(staged_used), sum(residuals_used), tuple(out_unknown))


def _is_kept(primitive: Any, *_: Any, **__: Any) -> bool:
    """The policy. Results of ops with effects are kept in any case; a pure callback runs as often as without us too."""
    return primitive.name.endswith("callback") and primitive not in _PRINTS


def _without_repeated_prints(jaxpr: Any, known: Any, staged: Any) -> Any:
    """The staged part without the prints that the known one has: all of them, if it has those of the whole."""
    whole, there = _count(jaxpr, _PRINTS), _count(known, _PRINTS)
    if not there:
        return staged
    if whole == there:
        return _without(staged, _PRINTS, _is_print)
    same = {id(equation) for equation in known.eqns if equation.primitive in _PRINTS}
    return _with_equations(staged, [equation for equation in staged.eqns if id(equation) not in same])


def _count(jaxpr: Any, primitives: tuple[Any, ...]) -> int:
    inner = sum(_count(j, primitives) for equation in jaxpr.eqns for j in core.jaxprs_in_params(equation.params))
    return inner + sum(equation.primitive in primitives for equation in jaxpr.eqns)


def inspects(jaxpr: Any) -> bool:
    """Whether somebody looks at shardings."""
    return _count(jaxpr, (debugging.inspect_sharding_p,)) > 0


def without_inspections(jaxpr: Any) -> Any:
    """A jaxpr in which nobody looks at shardings, which is done while it is compiled."""
    return _without(jaxpr, (debugging.inspect_sharding_p,), lambda _: False)


def _without(jaxpr: Any, primitives: tuple[Any, ...], is_gone: Callable[[Any], bool]) -> Any:
    """A jaxpr without the equations of primitives, also inside others, and without the effects that are gone."""
    kept = [equation for equation in jaxpr.eqns if equation.primitive not in primitives]
    equations = [_emptied(equation, primitives, is_gone) for equation in kept]
    return jaxpr.replace(eqns=equations, effects={e for e in jaxpr.effects if not is_gone(e)})


def _emptied(equation: Any, primitives: tuple[Any, ...], is_gone: Callable[[Any], bool]) -> Any:
    if not any(_count(j, primitives) for j in core.jaxprs_in_params(equation.params)):
        return equation

    def emptied(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(emptied, value))
        if isinstance(value, core.Jaxpr):
            return _without(value, primitives, is_gone)
        is_closed = isinstance(value, core.ClosedJaxpr)
        return value.replace(jaxpr=_without(value.jaxpr, primitives, is_gone)) if is_closed else value

    params = {name: emptied(value) for name, value in equation.params.items()}
    return equation.replace(params=params, effects={e for e in equation.effects if not is_gone(e)})


def _with_equations(jaxpr: Any, equations: list[Any]) -> Any:
    left = any(_is_print(e) for equation in equations for e in equation.effects)
    return jaxpr.replace(eqns=equations, effects={e for e in jaxpr.effects if left or not _is_print(e)})


def _is_print(effect: Any) -> bool:
    return isinstance(effect, (debugging.DebugEffect, debugging.OrderedDebugEffect))
