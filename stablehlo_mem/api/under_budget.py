"""`stablehlo_mem.budget`: a block of code under which every `jax.jit` that is called is planned."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, cast

from stablehlo_mem.api.jit import bind_program, name_of
from stablehlo_mem.errors import InputError
from stablehlo_mem.jaxpr.budget_trace import BudgetTrace, current, is_evaluating
from stablehlo_mem.jaxpr.plan_at_lowering import Settings
from stablehlo_mem.pass_api.candidate import Options
from stablehlo_mem.planner.shares import of_device
from stablehlo_mem.results.plan import Plan
from stablehlo_mem.targets.target import TargetLike, named_targets
from stablehlo_mem.utils.units import Share, parse_budget


class UnderBudget:
    """What `with stablehlo_mem.budget(...) as block` gives."""

    def __init__(self, trace: BudgetTrace):
        self._trace = trace

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans of the programs that were called in the block, in that order."""
        return self._trace.plans


class _Block:
    """What `budget` returns: `with` enters it, as often as one likes, and as a decorator it surrounds each call."""

    def __init__(self, settings: Settings, limit: Callable[[], int]):
        self._settings, self._limit = settings, limit
        self._entered: list[AbstractContextManager[None]] = []

    def __enter__(self) -> UnderBudget:
        if not is_evaluating():
            raise InputError("a function that JAX traces is a part of a program: put the budget around the call of it")
        trace = BudgetTrace(self._settings, functools.cache(self._limit), bind_program)
        context = current(trace)
        context.__enter__()
        self._entered.append(context)
        return UnderBudget(trace)

    def __exit__(self, *error: Any) -> bool | None:
        return self._entered.pop().__exit__(*error)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise InputError(f"{name_of(function)} runs after its call has returned: put the block inside of it")

        @functools.wraps(function)
        def within(*args: Any, **kwargs: Any) -> Any:
            with _Block(self._settings, self._limit):
                return function(*args, **kwargs)

        return within


def budget(budget: int | str = "device", *, target: TargetLike = None, options: Options = Options()) -> Any:
    """A block of code, or as a decorator a function, in which each `jax.jit` that is called runs within a budget.

    It is for trainers that call `jax.jit` themselves: `with shm.budget("14GiB") as block: model.fit(x, y)`. Every
    outermost `jit` that this thread calls is planned as by `shm.jit`, with its own donation and shardings, and so are
    the programs of `grad` and `vmap` of such functions, and what has a program inside outside of `jit`: `lax.scan`,
    `while_loop`, `cond`, `jax.checkpoint`. What was compiled outside of the block is not run in it, nor the other way
    round. Programs so small that they fit however they are compiled are not planned. A function under `shm.jit` keeps
    its own budget. `block.plans` are the plans that were made.

    Not planned are single operations outside of `jit`, what is lowered and compiled ahead of time
    (`jit(f).lower(...)`), what other threads call, and what is called while JAX looks for NaNs. A derivative taken
    outside of `jit` is of two programs, and what JAX saves for the second is a result of the first: take it in the
    `jit`, as trainers do. `jax.set_mesh` refuses to be called in the block: put the block inside of it.

    Args:
        budget: of one execution of each program: bytes, "14GiB", "device" or "90% of device", the arguments included;
            what is free on the device is looked up once for each block.
        target: as in `jit`.
        options: as in `optimize`.

    Raises:
        InputError: the budget is invalid or says nothing of small programs ("25%", "min", None); the block is in a
            function that JAX traces, decorates a generator or coroutine, or ends before one that began in it.
        BudgetError, InputError, TargetError: on a call in the block, as in `jit`.
    """
    parsed = parse_budget(budget)
    if not (isinstance(parsed, int) or (isinstance(parsed, Share) and parsed.of == "device")):
        raise InputError(
            f"a budget of {budget!r} is of one program, and a block runs many: give bytes, such as '512MiB', or a "
            "share of the device, such as '90% of device'"
        )

    def limit() -> int:
        return cast(int, of_device(parsed, named_targets(target)))

    return _Block(Settings(budget if isinstance(budget, str) else parsed, target, options, "a program"), limit)


__all__ = ["UnderBudget", "budget"]
