"""Plans of jaxprs, made when JAX lowers them, and the planned program put into the module that is being lowered."""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any

from stablehlo_mem.errors import InputError, TargetError
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.ir.bindings import core, debugging, lowering, pe
from stablehlo_mem.jaxpr.inline_exported import Lowered, call_lowered, lower_privately
from stablehlo_mem.jaxpr.planning_thread import run_apart
from stablehlo_mem.jaxpr.recompute import inspects, without_inspections
from stablehlo_mem.pass_api.candidate import Options
from stablehlo_mem.planner import budget_loop
from stablehlo_mem.results.plan import Plan
from stablehlo_mem.targets.target import Target, TargetLike, named_targets, platforms_of
from stablehlo_mem.utils.units import parse_budget


@dataclasses.dataclass(frozen=True)
class Settings:
    """What was asked for of `jit`.

    Attributes:
        budget: as in `optimize`, of each program.
        target: as in `optimize`; None for the platform that is lowered for.
        options: as in `optimize`.
        name: what the function is called.
    """

    budget: Any
    target: TargetLike
    options: Options
    name: str

    def __repr__(self) -> str:
        """What is shown of it in a jaxpr."""
        return f"{self.name}: {self.budget}"


@dataclasses.dataclass(frozen=True)
class Planned:
    """A plan, and the program it is of, with what that calls back to."""

    plan: Plan
    lowered: Lowered


_plans: weakref.WeakKeyDictionary[Any, dict[Any, Planned]] = weakref.WeakKeyDictionary()


def planned(jaxpr: Any, settings: Settings, donated: tuple[bool, ...], platforms: tuple[str, ...] | None) -> Planned:
    """The plan of a jaxpr for the platforms that are lowered for, or the default backend; made once.

    Raises:
        InputError, TargetError: as in `optimize`; the jaxpr does what cannot be planned.
    """
    targets = _targets(settings, platforms)
    key = settings, donated, targets
    known = _plans.setdefault(jaxpr, {})
    if key not in known:
        _check(jaxpr, settings.name)
        known[key] = run_apart(lambda: _plan(jaxpr, settings, donated, targets))
    return known[key]


def _plan(jaxpr: Any, settings: Settings, donated: tuple[bool, ...], targets: tuple[Target, ...]) -> Planned:
    lowered = _lowered(jaxpr, settings.name, donated, platforms_of(targets))
    program = ingest(lowered.exported, effects=True)
    plan = budget_loop.keep_budget(program, parse_budget(settings.budget), targets, settings.options)
    return Planned(plan, lowered)


def lower_planned(ctx: Any, operands: Any, *, jaxpr: Any, settings: Settings, donated: tuple[bool, ...]) -> Any:
    """The lowering rule: a program that fits as it is lowered as it is, one that does not is replaced by its plan's.

    Raises:
        BudgetError: the budget cannot be kept.
    """
    found = planned(jaxpr, settings, donated, tuple(ctx.module_context.platforms))
    plan = budget_loop.require_fit(found.plan)
    if not plan.steps:
        return _inline(ctx, operands, jaxpr)
    if inspects(jaxpr):
        raise InputError(
            f"{settings.name} looks at shardings (jax.debug.inspect_array_sharding) of values that the program within "
            "the budget need not have: look at arguments and results outside of it"
        )
    if _has_tokens(jaxpr):
        raise InputError(
            f"{settings.name} takes or returns a token, which cannot be passed through a program that is rewritten: "
            "order effects by ordered callbacks, or give a budget that it keeps as it is"
        )
    assert plan.exported is not None  # an Exported went in
    return call_lowered(ctx, operands, dataclasses.replace(found.lowered, exported=plan.exported))


def _lowered(jaxpr: Any, name: str, donated: tuple[bool, ...], platforms: tuple[str, ...]) -> Lowered:
    try:
        return lower_privately(pe.close_jaxpr(without_inspections(jaxpr)), name, donated, platforms)
    except (NotImplementedError, ValueError) as error:
        called = sorted(calls_back(jaxpr))
        if not called:
            raise
        raise InputError(
            f"{name} calls Python ({', '.join(called)}), which JAX cannot lower for {', '.join(platforms)} here: "
            f"{error}"
        ) from error


def calls_back(jaxpr: Any) -> set[str]:
    """The primitives in a jaxpr that call Python functions."""
    inner = (calls_back(j) for equation in jaxpr.eqns for j in core.jaxprs_in_params(equation.params))
    names = {equation.primitive.name for equation in jaxpr.eqns}
    return {name for name in names if "callback" in name or name == debugging.debug_print_p.name}.union(*inner)


def _inline(ctx: Any, operands: Any, jaxpr: Any) -> Any:
    outs, tokens = lowering.jaxpr_subcomp(
        ctx.module_context,
        jaxpr,
        ctx.name_stack,
        ctx.tokens_in,
        (),
        *operands,
        dim_var_values=ctx.dim_var_values,
        const_lowering=ctx.const_lowering,
        outer_traceback=ctx.traceback,
    )
    ctx.set_tokens_out(tokens)
    return outs


def _targets(settings: Settings, platforms: tuple[str, ...] | None) -> tuple[Target, ...]:
    if settings.target is None and platforms is not None:
        return named_targets(platforms)
    targets = named_targets(settings.target)
    missing = [p for p in platforms or () if p not in platforms_of(targets)]
    if missing:
        raise TargetError(
            f"{settings.name} was planned for target {settings.target!r}, which does not run here, "
            f"on {', '.join(missing)}: leave the target out, or lower for its platform"
        )
    return targets


def _check(jaxpr: Any, name: str) -> None:
    axes = sorted(str(e.name) for e in jaxpr.effects if isinstance(e, core.NamedAxisEffect))
    if axes:
        raise InputError(
            f"{name} uses the axis {', '.join(axes)} of a shard_map or pmap around it, without which it is no program "
            "to be planned: put stablehlo_mem.jit around the shard_map or pmap"
        )


def _has_tokens(jaxpr: Any) -> bool:
    return any(v.aval is core.abstract_token for v in (*jaxpr.invars, *jaxpr.outvars))
