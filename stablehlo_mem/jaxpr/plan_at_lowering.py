"""The lowering rule of the budgeted primitive: plans a jaxpr and inlines the optimised program.

JAX calls `lower_planned` when it lowers; `jit(...).plan` calls `plan_jaxpr`.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import logging
import math
import warnings
import weakref
from collections.abc import Callable, Generator
from typing import Any

import jax

from stablehlo_mem.errors import InputError, TargetError
from stablehlo_mem.frontend.program import Program, ingest
from stablehlo_mem.ir.bindings import core, debugging, lowering, lowering_cause, pe
from stablehlo_mem.jaxpr.inline_exported import LoweredProgram, inline_lowered, lower_program
from stablehlo_mem.jaxpr.operand_shardings import Shardings, shardings_when_lowered
from stablehlo_mem.jaxpr.planning_thread import run_in_planning_thread
from stablehlo_mem.jaxpr.processes import plan_everywhere
from stablehlo_mem.jaxpr.recompute import primitives_in, without_inspections
from stablehlo_mem.pass_api.candidate import Options
from stablehlo_mem.planner import budget_loop, shares
from stablehlo_mem.planner.validation import check_options
from stablehlo_mem.results.budget_error import BudgetError
from stablehlo_mem.results.plan import Plan
from stablehlo_mem.targets.target import Target, TargetLike, named_targets, platforms_of
from stablehlo_mem.utils.units import Budget, format_bytes, parse_budget

_log = logging.getLogger("stablehlo_mem")


@dataclasses.dataclass(frozen=True)
class Settings:
    """The arguments of a call of `jit`.

    Attributes:
        budget: as in `optimize`, of each program.
        target: as in `optimize`; None for the platform that is lowered for.
        options: as in `optimize`.
        name: of the function, for error messages.
    """

    budget: Any
    target: TargetLike
    options: Options
    name: str

    def __post_init__(self) -> None:
        """Refuses what would fail only on the call, as a key of JAX's caches that cannot be hashed."""
        check_options(self.options)
        if isinstance(self.target, (list, set, dict)):
            raise TargetError(f"several targets are a tuple of names, not {self.target!r}")

    def __repr__(self) -> str:
        """What a printed jaxpr shows."""
        return f"{self.name}: {self.budget}"


@dataclasses.dataclass(frozen=True)
class PlannedProgram:
    """A plan, and the original program with its callbacks."""

    plan: Plan
    lowered: LoweredProgram


_plans: weakref.WeakKeyDictionary[Any, dict[Any, PlannedProgram]] = weakref.WeakKeyDictionary()
"""For each jaxpr that is alive its plans, by settings, donated operands and targets."""


_record: contextvars.ContextVar[list[Plan] | None] = contextvars.ContextVar("_record", default=None)


@contextlib.contextmanager
def recording(plans: list[Plan]) -> Generator[None]:
    """Adds to a list the plans of the programs that are lowered until the block ends."""
    token = _record.set(plans)
    try:
        yield
    finally:
        _record.reset(token)


def plan_jaxpr(
    jaxpr: Any,
    settings: Settings,
    donated: tuple[bool, ...],
    platforms: tuple[str, ...] | None,
    shardings: Shardings,
    *,
    everywhere: bool = False,
) -> PlannedProgram:
    """The plan of a jaxpr, cached, for the platforms that are lowered for or, if None, the default backend.

    Args:
        shardings: of its arguments; if there are any the budget is that of each device.
        everywhere: whether all processes that run the program plan it now, and must make the same plan.

    Raises:
        InputError, TargetError: as in `optimize`, or the jaxpr has an effect that prevents planning.
    """
    targets = _targets(settings, platforms)
    everywhere = everywhere and jax.process_count() > 1
    key = settings, donated, targets, shardings, everywhere
    cached = _plans.setdefault(jaxpr, {})
    if key not in cached:
        _require_no_named_axis(jaxpr, settings.name)
        make = plan_everywhere if everywhere else budget_loop.keep_budget
        cached[key] = run_in_planning_thread(lambda: _plan(jaxpr, settings, donated, targets, shardings, make))
    return cached[key]


def _plan(
    jaxpr: Any,
    settings: Settings,
    donated: tuple[bool, ...],
    targets: tuple[Target, ...],
    shardings: Shardings,
    make: Callable[[Program, Budget, tuple[Target, ...], Options, int], Plan],
) -> PlannedProgram:
    lowered = _lower(jaxpr, settings.name, donated, platforms_of(targets), shardings)
    program = ingest(lowered.exported, effects=True)
    # The arguments of a call are on the device already.
    plan = make(program, parse_budget(settings.budget), targets, settings.options, program.argument_bytes)
    for refusal in plan.refusals:
        if refusal.code == "placement-ignored":
            _log.warning("%s: nothing is gained by arguments in the host's memory: %s", settings.name, refusal.message)
    _warn_if_not_free(plan, targets, settings.name, program.argument_bytes)
    return PlannedProgram(plan, lowered)


def _warn_if_not_free(plan: Plan, targets: tuple[Target, ...], name: str, argument_bytes: int) -> None:
    """Says in the log that a plan needs more than the device has free, before XLA says it at length."""
    for target in targets:
        available = shares.of_device(parse_budget("device"), (target,), argument_bytes)
        if isinstance(available, int) and plan.after.peak_bytes > available:
            _log.warning(
                "%s takes %s within its budget, and %s has %s free for it: give the budget 'device', or free memory",
                name,
                format_bytes(plan.after.peak_bytes),
                target.name,
                format_bytes(available),
            )


def lower_planned(ctx: Any, *operands: Any, jaxpr: Any, settings: Settings, donated: tuple[bool, ...]) -> Any:
    """The lowering rule: lowers the jaxpr itself if its plan has no steps, else inlines the plan's program.

    Raises:
        BudgetError: the budget cannot be kept.
        InputError: it is a part of a `shard_map` or `pmap` over several devices.
    """
    _require_whole_program(ctx, settings.name)
    shardings = shardings_when_lowered(ctx, operands)
    platforms = tuple(ctx.module_context.platforms)
    try:
        planned = plan_jaxpr(jaxpr, settings, donated, platforms, shardings, everywhere=True)
        plan = budget_loop.require_fit(planned.plan)
    except BudgetError as error:
        raise error from lowering_cause(f"{settings.name} is compiled within a budget")
    record = _record.get()
    if record is not None:
        record.append(plan)
    if not plan.steps:
        return _lower_unchanged(ctx, operands, jaxpr)
    if debugging.inspect_sharding_p in primitives_in(jaxpr):
        raise InputError(
            f"{settings.name} looks at shardings (jax.debug.inspect_array_sharding) of values that the program within "
            "the budget need not have: look at arguments and results outside of it"
        )
    if any(v.aval is core.abstract_token for v in (*jaxpr.invars, *jaxpr.outvars)):
        raise InputError(
            f"{settings.name} takes or returns a token, which cannot be passed through a program that is rewritten: "
            "order effects by ordered callbacks, or give a budget that it keeps as it is"
        )
    assert plan.exported is not None  # the input was an Exported
    return inline_lowered(ctx, operands, dataclasses.replace(planned.lowered, exported=plan.exported))


def _lower(
    jaxpr: Any, name: str, donated: tuple[bool, ...], platforms: tuple[str, ...], shardings: Shardings
) -> LoweredProgram:
    try:
        with warnings.catch_warnings():
            # JAX says so of the function itself, which it lowers beside this.
            warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
            return lower_program(pe.close_jaxpr(without_inspections(jaxpr)), name, donated, platforms, shardings)
    except (NotImplementedError, ValueError) as error:
        names = {primitive.name for primitive in primitives_in(jaxpr)}
        callbacks = sorted(name for name in names if "callback" in name or name == debugging.debug_print_p.name)
        if not callbacks:
            raise
        raise InputError(
            f"{name} calls Python ({', '.join(callbacks)}), which JAX cannot lower for {', '.join(platforms)} here: "
            f"{error}"
        ) from error


def _lower_unchanged(ctx: Any, operands: Any, jaxpr: Any) -> Any:
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


def _require_whole_program(ctx: Any, name: str) -> None:
    """Refuses the program of one device inside a `shard_map` or `pmap`: its jaxpr has the types of their axes."""
    context = ctx.module_context.axis_context
    count = math.prod(context.mesh.shape[axis] for axis in getattr(context, "manual_axes", ()))
    if count > 1:
        raise InputError(
            f"{name} is called inside a shard_map or pmap of {count} devices, where it cannot be planned: put "
            "stablehlo_mem.jit around the shard_map or pmap, and the program of each device is split there"
        )


def _require_no_named_axis(jaxpr: Any, name: str) -> None:
    axes = sorted(str(e.name) for e in jaxpr.effects if isinstance(e, core.NamedAxisEffect))
    if axes:
        raise InputError(
            f"{name} uses the axis {', '.join(axes)} of a shard_map or pmap around it, without which it is no program "
            "to be planned: put stablehlo_mem.jit around the shard_map or pmap"
        )
