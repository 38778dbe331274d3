"""Reports what planning is doing: the command line shows it, as long plans take minutes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from contextvars import ContextVar

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("stablehlo_mem_progress", default=None)


def tell(what: str) -> None:
    """Tells the listener, if there is one, what comes next."""
    listener = _listener.get()
    if listener is not None:
        listener(what)


@contextlib.contextmanager
def listening(listener: Callable[[str], None]) -> Generator[None]:
    """Calls a function with each step of planning in the block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
