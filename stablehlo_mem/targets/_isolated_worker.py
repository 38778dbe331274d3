"""Compiles what `isolated_compile` asks for, in a process of its own.

Started as `python -m stablehlo_mem.targets._isolated_worker`; nothing imports it.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

from jax.export import deserialize

from stablehlo_mem.errors import StableHLOMemError
from stablehlo_mem.targets.compile import measure_exported
from stablehlo_mem.targets.isolated_compile import Request
from stablehlo_mem.targets.target import named_targets


def serve() -> None:
    """Answers requests; what libraries print goes to standard error."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(_answer(request), replies)
        replies.flush()


def _answer(request: Request) -> Any:
    exported = deserialize(bytearray(request.exported))
    try:
        (target,) = named_targets(request.target)
        devices = target.devices(exported.nr_devices)
        return measure_exported(exported, request.donated, request.floor_bytes, target.platform, devices)
    except StableHLOMemError as error:
        return error


if __name__ == "__main__":
    serve()
