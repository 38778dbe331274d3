"""Says what planning is doing, as long plans take minutes: on a terminal after two seconds, and in the log.

Whatever takes long calls `tell`; `shown` surrounds it where a user waits: `planner.budget_loop` and the command line.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Generator
from contextvars import ContextVar

from stablehlo_mem.errors import InputError

_DELAY_SECONDS = 2.0
"""Who waits for longer wonders why."""
_log = logging.getLogger("stablehlo_mem")
_listener: ContextVar[Callable[[str], None] | None] = ContextVar("stablehlo_mem_progress", default=None)


_on_screen = threading.Lock()
"""Held by whoever shows: of several threads that plan at a time one."""


class _Setting:
    is_on = True


def progress(on: bool) -> None:
    """Whether planning that takes more than two seconds says on a terminal what it is doing; at first it does.

    It goes to standard error, and to nothing that is not a terminal. The logger "stablehlo_mem" says the same at level
    INFO, always.

    Raises:
        InputError: `on` is no bool.
    """
    if on not in (True, False):  # a word would be true
        raise InputError(f"progress is True or False, not {on!r}")
    _Setting.is_on = on


def tell(what: str) -> None:
    """Says what comes next."""
    _log.info(what)
    listener = _listener.get()
    if listener is not None:
        listener(what)


@contextlib.contextmanager
def shown(first: str, delay_seconds: float = _DELAY_SECONDS) -> Generator[None]:
    """Shows what is told in the block, and for how long it has run, once it has run for so long.

    Args:
        first: what is done until something is told.
    """
    is_wanted = _Setting.is_on and _listener.get() is None and sys.stderr.isatty()
    if not (is_wanted and _on_screen.acquire(blocking=False)):
        yield
        return
    try:
        with _displayed(first, delay_seconds):
            yield
    finally:
        _on_screen.release()


@contextlib.contextmanager
def _displayed(first: str, delay_seconds: float) -> Generator[None]:
    from rich.console import Console  # takes a while to import, and only terminals need it
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    console = Console(stderr=True)
    # What the user prints meanwhile goes where it goes without us.
    display = Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
    task = display.add_task(first)
    timer = threading.Timer(delay_seconds, display.start)
    timer.daemon = True
    token = _listener.set(lambda what: display.update(task, description=what))
    timer.start()
    try:
        yield
    finally:
        _listener.reset(token)
        timer.cancel()
        timer.join()
        display.stop()
