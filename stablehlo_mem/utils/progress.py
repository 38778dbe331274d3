"""What planning is at, for whoever wants to show it: long plans take minutes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from contextvars import ContextVar

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("stablehlo_mem_progress", default=None)


def tell(what: str) -> None:
    """Tells who listens what comes next, in a few words."""
    listener = _listener.get()
    if listener is not None:
        listener(what)


@contextlib.contextmanager
def listening(listener: Callable[[str], None]) -> Generator[None]:
    """Has a function told what planning is at for the time of the block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
