"""Running modules on a device of this machine, in turns, and how long each takes."""

from __future__ import annotations

import dataclasses
import logging
import statistics
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stablehlo_mem._fresh_worker import random_array, wait
from stablehlo_mem.ingest import Program, as_exported, kept_donated
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.targets.compile import executable, flattened

_log = logging.getLogger(__name__)

_ROUNDS = 3
"""Executions of each beside a first one that counts for nothing."""


def times(program: Program, modules: Sequence[ir.Module], platform: str, device: Any) -> list[float | None]:
    """The median seconds of one execution of each module, on drawn arguments, in turns; None of one that fails.

    All have the program's signature and donation.
    """
    with jax.enable_x64(True):
        runs = [_Run.of(program, module, platform, device) for module in modules]
        for _ in range(_ROUNDS + 1):
            for run in runs:
                run.execute()
    return [statistics.median(run.seconds[1:]) if run.seconds else None for run in runs]


@dataclasses.dataclass
class _Run:
    """A compiled module and its arguments; without them once an execution failed."""

    compiled: Any
    arguments: list[jax.Array]
    donated: tuple[int, ...]
    seconds: list[float]

    @classmethod
    def of(cls, program: Program, module: ir.Module, platform: str, device: Any) -> _Run:
        exported = flattened(as_exported(program, module, platform))
        donated = kept_donated(program)
        compiled, passed = executable(exported, donated, platform, [device])
        rng = np.random.default_rng(0)
        drawn = [random_array(rng, exported.in_avals[i]) for i in passed]
        return cls(compiled, jax.device_put(drawn, device), tuple(passed.index(i) for i in donated), [])

    def execute(self) -> None:
        """One execution more; what is donated is copied first."""
        if self.compiled is None:
            return
        try:
            given = wait([jnp.copy(a) if i in self.donated else a for i, a in enumerate(self.arguments)])
            started = time.perf_counter()
            wait(self.compiled(*given))
            self.seconds.append(time.perf_counter() - started)
        except jax.errors.JaxRuntimeError as error:
            _log.warning("a plan that compiles does not run: %s", error)
            self.compiled, self.seconds = None, []
