"""Pauses the garbage collector while graphs are built and searched: they are many objects, few of them garbage."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator

BETWEEN = 100_000
"""Objects made, less those freed, between collections in a search. Of one of 1,755 states, 27 s with Python's 700, they
took 5.6 s, with so many 2.5 s; the process had 948 MiB, then 963, and 1,009 with no collection at all."""


@contextlib.contextmanager
def kept() -> Generator[None]:
    """Pauses it in a block or a decorated function: for large modules it takes a third of the planning time.

    Between such blocks it runs, as a search drops modules and their graphs. Where it is off it stays off.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def rare() -> Generator[None]:
    """Lets it run less often in a block or a decorated function, of which only parts are within `kept`.

    A search keeps most of what it makes. Where it runs as rarely already it does so.
    """
    before = gc.get_threshold()
    if not 0 < before[0] < BETWEEN:
        yield
        return
    gc.set_threshold(BETWEEN, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
