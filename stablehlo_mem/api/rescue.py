"""`stablehlo_mem.rescue`: `jax.jit` until the memory runs out, `stablehlo_mem.jit` from then on."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import jax
from jax.core import Tracer

from stablehlo_mem.api.jit import jit, name_of
from stablehlo_mem.errors import explain_error
from stablehlo_mem.pass_api.candidate import Options
from stablehlo_mem.targets.free_memory import device_memory
from stablehlo_mem.targets.target import TargetLike, named_targets
from stablehlo_mem.utils.units import format_bytes, parse_budget

_log = logging.getLogger("stablehlo_mem")

_OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "INTERNAL: YNNPACK operation failed")
"""How XLA's errors begin where memory ran out; YNNPACK, in XLA:CPU, says no more where it can allocate none."""


def rescue(
    fun: Callable[..., Any] | None = None,
    budget: int | str | None = "device",
    *,
    target: TargetLike = None,
    options: Options = Options(),
    **jit_kwargs: Any,
) -> Any:
    """`jax.jit`, planned under a budget once the compiler or the device says that memory has run out.

    While the program fits nothing is planned. The first time it does not, it is planned, which the logger
    "stablehlo_mem" says as a warning, and the call is repeated; later calls use the plan, and programs of other shapes
    that fit are left as they are. Each call waits for its results, as memory may run out after a call has returned:
    where that costs too much, use `jit`. Inside another transformation it is `jax.jit`: put `rescue` outside.

    Args:
        fun: the function; without it, a decorator.
        budget: as in `jit`, of the plan.
        target: as in `jit`.
        options: as in `jit`.
        **jit_kwargs: for `jax.jit`.

    Returns:
        A function; `.plan(*args)` as of `jit`.

    Raises:
        InputError: the budget is invalid.
        BudgetError: on the call that ran out of memory, the budget cannot be kept.
        jax.errors.JaxRuntimeError: on the call, memory runs out within the budget too, or when arguments were donated
            to the call that failed; its notes say what the device holds and what to do.
    """
    parse_budget(budget)
    if fun is None:
        return functools.partial(rescue, budget=budget, target=target, options=options, **jit_kwargs)
    return _Rescued(fun, jax.jit(fun, **jit_kwargs), jit(fun, budget, target=target, options=options, **jit_kwargs))


class _Rescued:
    """What `rescue` returns.

    Attributes:
        name: of the function.
        plain, planned: the function under `jax.jit` and under `stablehlo_mem.jit`.
        is_needed: whether memory has run out.
    """

    def __init__(self, fun: Callable[..., Any], plain: Any, planned: Any):
        functools.update_wrapper(self, fun)
        self.name = name_of(fun)
        self.plain, self.planned = plain, planned
        self.is_needed = False
        self.plan = planned.plan

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bound to an instance where it is a method."""
        if instance is None:
            return self
        bound: Any = functools.partial(self, instance)
        bound.plan = functools.partial(self.plan, instance)
        return bound

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((args, kwargs))):
            return self.plain(*args, **kwargs)
        if not self.is_needed:
            try:
                return jax.block_until_ready(self.plain(*args, **kwargs))
            except jax.errors.JaxRuntimeError as error:
                if not _is_out_of_memory(error):
                    raise
                if any(getattr(leaf, "is_deleted", bool)() for leaf in jax.tree.leaves((args, kwargs))):
                    self.explain(error, "the arguments that were donated to it are gone: use stablehlo_mem.jit at once")
                    raise
                _log.warning("%s ran out of memory; it is planned and called again", self.name)
            self.is_needed = True
        try:
            return jax.block_until_ready(self.planned(*args, **kwargs))
        except jax.errors.JaxRuntimeError as error:
            if _is_out_of_memory(error):
                self.explain(error, 'give a smaller budget, as "80% of device", or delete arrays it does not need')
            raise

    def __repr__(self) -> str:
        return f"rescue({self.plain!r})"

    def explain(self, error: Exception, advice: str) -> None:
        """Adds three lines to an error: what ran out, what the device holds, what to do."""
        what = f"stablehlo_mem: {self.name} ran out of memory{' within its budget' * self.is_needed}"
        explain_error(error, f"{what}\n  {_memory_text()}\n  {advice}")


def _is_out_of_memory(error: Exception) -> bool:
    """Whether XLA says so, and not a callback of the user's whose words it quotes."""
    return str(error).startswith(_OUT_OF_MEMORY)


def _memory_text() -> str:
    (target,) = named_targets(None)
    total, free = device_memory(target)
    return f"of the {format_bytes(total)} of {target.name}, {format_bytes(free)} are free now"
