"""Times modules on a device of this machine, in turns: `Options(tune=True)` chooses among plans by it."""

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

from stablehlo_mem.frontend.program import Program, as_exported, kept_donated
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.targets._fresh_worker import random_array, wait
from stablehlo_mem.targets.compile import executable, flattened

_log = logging.getLogger(__name__)

_ROUNDS = 3
"""Executions of each module that count; one more comes first and does not."""


def times(program: Program, modules: Sequence[ir.Module], platform: str, device: Any) -> list[float | None]:
    """The median seconds of an execution of each module on random arguments; None for a module that fails.

    All have the program's signature and donation.
    """
    exported = [flattened(as_exported(program, module, platform)) for module in modules]
    donated = kept_donated(program)
    with jax.enable_x64(True):
        compiled, passed = zip(*(executable(flat, donated, platform, [device]) for flat in exported), strict=True)
        rng = np.random.default_rng(0)
        # Drawn once for all modules: arguments may fill the memory.
        drawn = jax.device_put([random_array(rng, exported[0].in_avals[i]) for i in passed[0]], device)
        runs = [_Run(module, drawn, {passed[0].index(i) for i in donated}, []) for module in compiled]
        for _ in range(_ROUNDS + 1):
            for run in runs:
                run.execute()
    return [statistics.median(run.seconds[1:]) if run.seconds else None for run in runs]


@dataclasses.dataclass
class _Run:
    """A compiled module, None once an execution failed, and its arguments, some of which are donated."""

    compiled: Any
    arguments: Sequence[jax.Array]
    donated: set[int]
    seconds: list[float]

    def execute(self) -> None:
        """One more execution, with copies of donated arguments."""
        if self.compiled is None:
            return
        try:
            arguments = wait([jnp.copy(a) if i in self.donated else a for i, a in enumerate(self.arguments)])
            started = time.perf_counter()
            wait(self.compiled(*arguments))
            self.seconds.append(time.perf_counter() - started)
        except jax.errors.JaxRuntimeError as error:
            _log.warning("a plan that compiles does not run: %s", error)
            self.compiled, self.seconds = None, []
