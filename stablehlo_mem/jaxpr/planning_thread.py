"""The thread that plans during lowering: JAX's thread-local settings for the user's program do not apply to it.

`jaxpr.plan_at_lowering` runs each search in it.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import jax

T = TypeVar("T")


def run_in_planning_thread(work: Callable[[], T]) -> T:
    """Runs work in a thread of its own and waits for it: the trace in progress in this thread is not active there.

    Settings that check or forbid what the user's program does (NaNs, leaks, transfers, tracing) are left behind; those
    that decide what a program means (64-bit types, matmul precision, mesh) are passed on.
    """
    outcome: list[Any] = []
    config: Any = jax.config
    x64, precision = config.jax_enable_x64, config.jax_default_matmul_precision
    mesh = jax.sharding.get_abstract_mesh()

    def run() -> None:
        try:
            with jax.enable_x64(x64), jax.default_matmul_precision(precision), jax.sharding.use_abstract_mesh(mesh):
                outcome.extend([work(), None])
        except BaseException as error:  # noqa: BLE001 (raised again in the caller's thread)
            outcome.extend([None, error])

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name="stablehlo-mem planning")
    try:
        thread.start()
        thread.join()
    except RuntimeError:  # the interpreter is shutting down
        run()
    result, error = outcome
    if error is not None:
        raise error
    return result
