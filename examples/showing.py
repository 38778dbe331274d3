"""What every example ends with: memory before and after, and whether the results are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.export
import numpy as np

from stablehlo_mem.targets.fresh_process import FreshRun, run_fresh


def show(small: Any, plain: Callable[..., Any], *args: Any, rtol: float = 1e-4) -> None:
    """Prints the peaks the compiler reports and what executing adds to a fresh process, and compares all results.

    Args:
        small: the function under `stablehlo_mem.jit`.
        plain: the same function without it.
        *args: its arguments.
        rtol: allowed difference, relative to each result's largest value.

    Raises:
        AssertionError: the plan does nothing, does not fit, or the results differ.
    """
    plan = small.plan(*args)
    assert plan.steps, "the original fits: nothing was to do"
    assert plan.fits
    assert plan.before.peak_bytes > plan.budget_bytes
    before, after = _run(plain, args), _run(small, args)
    for name, run, peak in (("as written", before, plan.before), ("optimised", after, plan.after)):
        grown, reported = run.grown_bytes / 2**20, peak.peak_bytes / 2**20
        print(f"{name}: executing adds {grown:.0f} MiB to a fresh process; reported peak {reported:.0f} MiB")
    print(f"budget: {plan.budget_bytes / 2**20:.0f} MiB, arguments and outputs included")
    worst = max(_difference(old, new) for old, new in zip(before.outputs, after.outputs, strict=True))
    print(f"largest difference of a result: {worst:.1e} of its largest value")
    assert worst <= rtol
    for step, summary in zip(plan.steps, plan.summaries, strict=True):
        print(f"  {step.pass_name}: {summary}")


def _run(fun: Callable[..., Any], args: tuple[Any, ...]) -> FreshRun:
    leaves, tree = jax.tree.flatten(args)
    flat = jax.jit(lambda *leaves: jax.tree.leaves(fun(*jax.tree.unflatten(tree, leaves))))
    environment = {
        "JAX_ENABLE_X64": str(int(jax.config.read("jax_enable_x64"))),
        "MALLOC_ARENA_MAX": "1",  # glibc would keep what each thread has freed
    }
    program = jax.export.export(flat)(*leaves).serialize()
    arguments = [np.asarray(leaf) for leaf in leaves]
    return run_fresh(program, arguments=arguments, keep_outputs=True, environment=environment)


def _difference(old: np.ndarray, new: np.ndarray) -> float:
    old, new = old.astype(np.float64), new.astype(np.float64)
    return float(np.abs(new - old).max(initial=0) / max(np.abs(old).max(initial=0), 1e-30))
