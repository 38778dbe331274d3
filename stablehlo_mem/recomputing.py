"""A jaxpr in two: what is known, and the rest, which computes again what it needs of it. Effects happen once."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

from stablehlo_mem.ir.bindings import callback, core, debugging, pe

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
    return primitive is callback.pure_callback_p


def _without_repeated_prints(jaxpr: Any, known: Any, staged: Any) -> Any:
    """The staged part without the prints that the known one has: all of them, if it has those of the whole."""
    whole, there = _prints(jaxpr), _prints(known)
    if not there:
        return staged
    if whole == there:
        return _without_prints(staged)
    same = {id(equation) for equation in known.eqns if equation.primitive in _PRINTS}
    return _with_equations(staged, [equation for equation in staged.eqns if id(equation) not in same])


def _prints(jaxpr: Any) -> int:
    inner = sum(_prints(j) for equation in jaxpr.eqns for j in core.jaxprs_in_params(equation.params))
    return inner + sum(equation.primitive in _PRINTS for equation in jaxpr.eqns)


def _without_prints(jaxpr: Any) -> Any:
    kept = [equation for equation in jaxpr.eqns if equation.primitive not in _PRINTS]
    return _with_equations(jaxpr, [_silenced(e) if _is_print(e.effects) else e for e in kept])


def _silenced(equation: Any) -> Any:
    """An equation without the prints inside."""
    params = {name: _silenced_param(value) for name, value in equation.params.items()}
    return equation.replace(params=params, effects={e for e in equation.effects if not _is_print([e])})


def _silenced_param(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_silenced_param(v) for v in value)
    if isinstance(value, core.Jaxpr):
        return _without_prints(value)
    return value.replace(jaxpr=_without_prints(value.jaxpr)) if isinstance(value, core.ClosedJaxpr) else value


def _with_equations(jaxpr: Any, equations: list[Any]) -> Any:
    left = any(_is_print(equation.effects) for equation in equations)
    effects = {e for e in jaxpr.effects if left or not _is_print([e])}
    return jaxpr.replace(eqns=equations, effects=effects)


def _is_print(effects: Any) -> bool:
    return any(isinstance(e, (debugging.DebugEffect, debugging.OrderedDebugEffect)) for e in effects)
