"""A thread of its own for planning: what the caller has set for a while with JAX does not reach it."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import jax

T = TypeVar("T")


def run_apart(work: Callable[[], T]) -> T:
    """Does work in a thread of its own and waits for it: a trace that is going on here is none there.

    What looks for NaNs or leaks, forbids transfers or tracing, or logs each of them, is meant for the user's program.
    What a program means is the same there: 64-bit types, the precision of matmuls and the mesh.
    """
    outcome: list[Any] = []
    config: Any = jax.config
    x64, precision = config.jax_enable_x64, config.jax_default_matmul_precision
    mesh = jax.sharding.get_abstract_mesh()

    def run() -> None:
        try:
            with jax.enable_x64(x64), jax.default_matmul_precision(precision), jax.sharding.use_abstract_mesh(mesh):
                outcome.extend([work(), None])
        except BaseException as error:  # noqa: BLE001 (raised again where it belongs)
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
