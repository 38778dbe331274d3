"""Plans a program that several processes of `jax.distributed` run together, each of which must run the same one.

Planning is deterministic, so processes make the same plan where the figures of their chips are the same. Each of them
plans, and compiles what the others compile, because XLA:GPU tunes the kernels of all processes together. Then they
compare: the plan of process 0 counts. `jaxpr.plan_at_lowering` calls `plan_everywhere`.
"""

from __future__ import annotations

import logging
from typing import Any

import jax

from stablehlo_mem.errors import StableHLOMemError, TargetError
from stablehlo_mem.frontend.program import Program
from stablehlo_mem.ir.bindings import fingerprint, process_store
from stablehlo_mem.pass_api.candidate import Options
from stablehlo_mem.planner import budget_loop, plan_cache
from stablehlo_mem.results.plan import Plan
from stablehlo_mem.targets.target import Target
from stablehlo_mem.utils.units import Budget

_log = logging.getLogger(__name__)

_WAIT_SECONDS = 600
"""For process 0 to plan, beyond what a process needed itself: machines may be busy, but none may wait for ever."""
_FAILED = b"failed: "
"""What process 0 writes in the place of a plan, with its error."""


def plan_everywhere(
    program: Program, budget: Budget, targets: tuple[Target, ...], options: Options, held_bytes: int
) -> Plan:
    """The plan of a program, the same in all processes that run it; the arguments are those of `keep_budget`.

    Raises:
        BudgetError: the plan of this process, and that of process 0, do not keep the budget.
        TargetError: process 0 has no plan, or its plan does not apply to the program of this one.
    """
    if not _spans_processes(program, targets):
        return budget_loop.keep_budget(program, budget, targets, options, held_bytes)
    key, store = f"stablehlo_mem/{fingerprint(program.module)}/{budget}", process_store()
    if jax.process_index() == 0:
        return _announced(lambda: budget_loop.keep_budget(program, budget, targets, options, held_bytes), key, store)
    own: Plan | None = None
    failure: StableHLOMemError | None = None
    try:
        own = budget_loop.keep_budget(program, budget, targets, options, held_bytes)
    except StableHLOMemError as error:
        failure = error
    first = _plan_of_first(key, store, failure)
    if own is not None and fingerprint(own.module) == first.fingerprint:
        return own
    _log.warning("this process would have made another plan than process 0, which it follows: %s", failure or "")
    followed = budget_loop.follow(program, budget, targets, options, first)
    if followed is None:
        raise TargetError("the plan of process 0 does not apply: the processes run different programs")
    return followed


def _spans_processes(program: Program, targets: tuple[Target, ...]) -> bool:
    """Whether a program runs on devices of other processes too."""
    count = program.exported.nr_devices if program.exported is not None else 1
    if jax.process_count() == 1 or any(":" in target.name for target in targets):
        return False
    return count > min(len(jax.local_devices(backend=target.platform)) for target in targets)


def _announced(plan: Any, key: str, store: Any) -> Plan:
    """The plan of process 0, which the others are told, or that it has none."""
    try:
        made = plan()
    except BaseException as error:
        store.key_value_set_bytes(key, _FAILED + str(error).encode(), allow_overwrite=True)
        raise
    store.key_value_set_bytes(key, plan_cache.serialised(made), allow_overwrite=True)
    return made


def _plan_of_first(key: str, store: Any, failure: StableHLOMemError | None) -> plan_cache.CachedPlan:
    try:
        told = store.blocking_key_value_get_bytes(key, 1000 * _WAIT_SECONDS)
    except jax.errors.JaxRuntimeError as error:
        raise failure or TargetError(f"process 0 made no plan of this program in {_WAIT_SECONDS} s") from error
    if told.startswith(_FAILED):
        raise failure or TargetError(f"process 0 has no plan: {told.removeprefix(_FAILED).decode()}")
    return plan_cache.parsed(told)
