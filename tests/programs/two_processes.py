"""One of two processes with four CPU devices each: `python -m tests.programs.two_processes INDEX PORT SCENARIO`.

Prints, as JSON, what came out of a program that lies on the devices of both.
"""

import json
import os
import sys
import time
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import stablehlo_mem as shm
from stablehlo_mem.jaxpr import processes
from stablehlo_mem.planner import budget_loop, shares

ROWS, WIDTH = 2048, 64
BUDGETS = {"too small": "132KiB", "less is free": "device"}


def kernel(x):
    return jax.nn.softmax(x @ x.T) @ x


def main(index: int, port: str, scenario: str) -> None:
    jax.distributed.initialize(f"localhost:{port}", 2, index)
    if scenario == "other figures" and index == 1:
        # As a process would whose chip is measured to be another: it plans for less.
        keep: Any = budget_loop.keep_budget
        budget_loop.keep_budget = lambda program, budget, *rest: keep(program, 2**20 * 2 // 3, *rest)
    if scenario == "first fails" and index == 0:
        budget_loop.keep_budget = lambda *_: 1 / 0
    if scenario == "less is free":
        free = 2**20 if index == 1 else 2**30
        shares.device_memory = lambda target: (free, free)
    values = np.random.default_rng(0).standard_normal((ROWS, WIDTH), np.float32) / 8
    rows = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x"))
    x = jax.make_array_from_callback(values.shape, rows, lambda at: values[at])
    if scenario == "planned before":
        shm.jit(kernel, "1MiB")(x)
        time.sleep(3 * (index == 0))  # process 1 is there first
    options = shm.Options(numerics="exact") if scenario == "planned before" else shm.Options()
    small = shm.jit(kernel, BUDGETS.get(scenario, "1MiB"), options=options)
    try:
        y = small(x)
    except (shm.BudgetError, shm.TargetError, ZeroDivisionError) as error:
        tell({"error": type(error).__name__, "message": str(error)})
        return
    f64 = values.astype(np.float64)
    scores = np.exp(f64 @ f64.T)
    right = scores / scores.sum(1, keepdims=True) @ f64
    worst = max(np.abs(np.asarray(part.data) - right[part.index]).max() for part in y.addressable_shards)
    tell(
        {
            "before": peak_of(jax.jit(kernel), x),
            "after": peak_of(small, x),
            "program": small.lower(x).as_text(),
            "error": float(worst),
        }
    )


def peak_of(jitted: Any, x: jax.Array) -> int:
    analysis = jitted.lower(x).compile().memory_analysis()
    return analysis.temp_size_in_bytes + analysis.argument_size_in_bytes + analysis.output_size_in_bytes


def tell(outcome: dict[str, Any]) -> None:
    """Marked, as the collectives' library prints too."""
    print(f"\nOUTCOME {json.dumps(outcome)}", flush=True)


if __name__ == "__main__":
    processes._WAIT_SECONDS = 60
    main(int(sys.argv[1]), *sys.argv[2:])
