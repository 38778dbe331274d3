"""Plans a program that several processes of `jax.distributed` run together, each of which must run the same one.

Every process plans, and compiles what the others compile, because XLA:GPU tunes the kernels of all processes together.
So all plan for the same bytes, without the plan cache and without a limit of seconds. Planning is deterministic, so
they make the same plan if the figures of their chips are the same. In the end the plan of process 0 counts.
`jaxpr.plan_at_lowering` calls `plan_everywhere`.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax

from stablehlo_mem.errors import StableHLOMemError, TargetError
from stablehlo_mem.frontend.program import Program
from stablehlo_mem.ir.bindings import fingerprint, process_store
from stablehlo_mem.pass_api.candidate import Options
from stablehlo_mem.planner import budget_loop, plan_cache, shares
from stablehlo_mem.results.plan import Plan
from stablehlo_mem.targets.target import Target
from stablehlo_mem.utils.units import Budget

_log = logging.getLogger(__name__)

_WAIT_SECONDS = 600
"""For another process, beyond what a process needed itself: machines may be busy, but none may wait for ever."""
_FAILED = b"failed: "
"""What process 0 writes in the place of a plan, with its error."""
_rounds: Counter[str] = Counter()
"""How often this process planned what. All processes plan the same programs in the same order, as they trace them."""


def plan_everywhere(
    program: Program, budget: Budget, targets: tuple[Target, ...], options: Options, held_bytes: int
) -> Plan:
    """The plan of a program, the same in all processes that run it; the arguments are those of `keep_budget`.

    A share of the devices' memory is one of what is free on all of them. `Options.cache` and `max_seconds` do not
    count.

    Raises:
        BudgetError: the plan of this process, and that of process 0, do not keep the budget.
        TargetError: a process does not answer, process 0 has no plan, or its plan does not apply to this program.
    """
    if not _spans_processes(program, targets):
        return budget_loop.keep_budget(program, budget, targets, options, held_bytes)
    options = dataclasses.replace(options, cache=False, max_seconds=None)
    what = f"stablehlo_mem/{fingerprint(program.module)}/{budget!r}/{options!r}/{[t.name for t in targets]}"
    _rounds[what] += 1
    exchange = _Exchange(f"{what}/{_rounds[what]}", process_store())
    bytes_or_word = exchange.smallest(shares.of_device(budget, targets, held_bytes))
    if jax.process_index() == 0:
        return exchange.announced(lambda: budget_loop.keep_budget(program, bytes_or_word, targets, options))
    own: Plan | None = None
    failure: StableHLOMemError | None = None
    try:
        own = budget_loop.keep_budget(program, bytes_or_word, targets, options)
    except StableHLOMemError as error:
        failure = error
    first = exchange.plan_of_first(failure)
    if own is not None and fingerprint(own.module) == first.fingerprint:
        return own
    _log.warning("this process follows the plan of process 0: %s", failure or "its own is another")
    followed = budget_loop.follow(program, bytes_or_word, targets, options, first)
    if followed is None:
        raise TargetError("the plan of process 0 does not apply: the processes run different programs")
    return followed


def _spans_processes(program: Program, targets: tuple[Target, ...]) -> bool:
    """Whether a program runs on devices of other processes too."""
    count = program.exported.nr_devices if program.exported is not None else 1
    if any(":" in target.name for target in targets):
        return False
    return count > min(len(jax.local_devices(backend=target.platform)) for target in targets)


@dataclasses.dataclass(frozen=True)
class _Exchange:
    """What the processes tell each other of one plan, in the store of keys and values that they share."""

    key: str
    store: Any

    def smallest(self, budget: Budget) -> Budget:
        """The smallest of the processes' budgets, if these are bytes."""
        if not isinstance(budget, int):
            return budget
        self.tell(f"budget of {jax.process_index()}", str(budget).encode())
        return min(int(self.told(f"budget of {index}")) for index in range(jax.process_count()))

    def announced(self, make: Callable[[], Plan]) -> Plan:
        """The plan of process 0, which the others are told, or that it has none."""
        try:
            plan = make()
        except BaseException as error:
            self.tell("plan", _FAILED + str(error).encode())
            raise
        self.tell("plan", plan_cache.serialised(plan))
        return plan

    def plan_of_first(self, failure: StableHLOMemError | None) -> plan_cache.CachedPlan:
        """The plan of process 0; where there is none the error of this process, if it failed too."""
        try:
            told = self.told("plan")
        except TargetError as error:
            raise failure or error from error
        if told.startswith(_FAILED):
            raise failure or TargetError(f"process 0 has no plan: {told.removeprefix(_FAILED).decode()}")
        return plan_cache.parsed(told)

    def tell(self, what: str, value: bytes) -> None:
        """Writes a value for the other processes."""
        self.store.key_value_set_bytes(f"{self.key}/{what}", value)

    def told(self, what: str) -> bytes:
        """What a process wrote.

        Raises:
            TargetError: it did not, in time.
        """
        try:
            return self.store.blocking_key_value_get_bytes(f"{self.key}/{what}", 1000 * _WAIT_SECONDS)
        except jax.errors.JaxRuntimeError as error:
            raise TargetError(f"no {what} of this program from the other processes: {error}") from error
