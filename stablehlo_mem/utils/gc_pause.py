"""Planning without looking for garbage in between: graphs of thousands of ops are no garbage, and many objects."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator


@contextlib.contextmanager
def kept() -> Generator[None]:
    """No cycles are looked for in a block, or a function it decorates: in large modules that is a third of the time.

    Between such blocks they are, as a search drops modules and their graphs. Where the collector is off it stays off.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
