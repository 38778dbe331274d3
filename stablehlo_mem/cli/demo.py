"""`python -m stablehlo_mem demo`: attention before and after, measured here and as the TPU and CUDA compilers report.

`make demo` runs it too. It is also an example of the public API.
"""

from __future__ import annotations

import dataclasses
import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.export import Exported
from rich.console import Console
from rich.table import Table

import stablehlo_mem as shm
from stablehlo_mem.errors import TargetError
from stablehlo_mem.targets.fresh_process import FreshRun, FreshRunError, run_fresh
from stablehlo_mem.utils.units import format_bytes

HEADS, WIDTH = 8, 64
"""One layer of GPT-2 small has 12 such heads; 8 keep the demo short."""
TOKENS, LONG_TOKENS, REPORT_TOKENS = 8192, 32768, 16384
"""Chosen so that the original takes 4 GiB, which most machines have; 64 GiB, which few have; and 16 GiB."""
REPEATS = 3
OTHER_TARGETS = {"tpu:v5e": "tpu", "cuda:h200": "cuda"}
"""Targets whose compilers are asked for the peak, with the platforms to export for."""
_TOLERANCE = 1e-5
"""Largest relative difference of results: about 80 roundings of float32."""
_SLACK = 1.15
"""The resident size may grow by this many times the budget: pages are 4 KiB and the allocator keeps some."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One program run unmodified and optimised, each in a fresh process; `original` is the error if it ran out."""

    tokens: int
    budget_bytes: int
    original: FreshRun | FreshRunError | None
    optimised: FreshRun
    needed_bytes: int
    steps: tuple[str, ...]

    @property
    def difference(self) -> float | None:
        """The largest difference of the results, relative to their largest."""
        if not isinstance(self.original, FreshRun):
            return None
        old, new = (run.outputs[0].astype(np.float64) for run in (self.original, self.optimised))
        return float(np.abs(new - old).max() / np.abs(old).max())


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Multi-head softmax attention that materialises the score matrix of every head."""
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / np.sqrt(q.shape[-1])
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, axis=-1), v)


def export_attention(tokens: int, platform: str = "cpu") -> Exported:
    """Attention over so many tokens, exported."""
    spec = jax.ShapeDtypeStruct((HEADS, tokens, WIDTH), jnp.float32)
    return jax.export.export(jax.jit(attention), platforms=[platform])(spec, spec, spec)


def budget_bytes(tokens: int) -> int:
    """Sixteen times one of the three arguments and the result: twelve are left for temporaries."""
    return 16 * HEADS * tokens * WIDTH * 4


def run_demo(tokens: int = TOKENS, long_tokens: int = LONG_TOKENS, report_tokens: int = REPORT_TOKENS) -> int:
    """Runs the demo, prints its tables and returns the exit code: 1 if results differ or a budget is exceeded."""
    use_cpu_only()
    console = Console(highlight=False)
    console.print(f"[bold]Attention, {HEADS} heads of {WIDTH}, float32, as written; nothing in it was changed.[/bold]")
    with console.status(f"{tokens:,} tokens: the original, then the optimised, in fresh processes"):
        short = compare(tokens, with_original=True)
    print_run(console, short)
    with console.status(f"{long_tokens:,} tokens: the optimised alone"):
        long = compare(long_tokens, with_original=False)
    print_run(console, long)
    print_reports(console, report_tokens)
    return 0 if is_good(short) and is_good(long) else 1


def use_cpu_only() -> None:
    """Keeps JAX from starting accelerators or warning that there are none; their compilers work without them."""
    if not os.environ.get("JAX_PLATFORMS"):
        jax.config.update("jax_platforms", "cpu")


def compare(tokens: int, *, with_original: bool) -> Comparison:
    """Plans for the CPU and runs: time and peak resident size under XLA's default options."""
    exported = export_attention(tokens)
    budget = budget_bytes(tokens)
    plan = shm.plan(exported, budget, target="cpu")
    if not plan.fits or plan.exported is None:
        raise shm.PassError("demo", f"no plan for {tokens} tokens within {format_bytes(budget)}:\n{plan}")
    return Comparison(
        tokens=tokens,
        budget_bytes=budget,
        original=_run_original(exported) if with_original else None,
        optimised=_run(plan.exported, REPEATS if with_original else 1),
        needed_bytes=plan.before.peak_bytes,
        steps=plan.summaries,
    )


def print_run(console: Console, comparison: Comparison) -> None:
    """Prints memory, time and results of a comparison, and the steps of the plan."""
    original, optimised = comparison.original, comparison.optimised
    table = Table()
    table.add_column("")
    table.add_column("original", justify="right")
    table.add_column("optimised", justify="right", style="green")
    table.add_row("budget (arguments, outputs, temporaries)", "none", format_bytes(comparison.budget_bytes))
    table.add_row("memory that executing added, peak RSS", _memory(comparison), format_bytes(optimised.grown_bytes))
    table.add_row("seconds, median", _seconds(original), f"{optimised.median_seconds:.2f}")
    if comparison.difference is not None:
        table.add_row("largest relative difference of results", "", f"{comparison.difference:.1e}")
    console.print(f"\n{comparison.tokens:,} tokens on this CPU, each in a fresh process", table, sep="\n")
    for step in comparison.steps:
        console.print(step, style="dim", markup=False)


def print_reports(console: Console, tokens: int) -> None:
    """Prints the peaks that the TPU and CUDA compilers report, if they are installed."""
    table = Table()
    for name in ("target", "original", "optimised", "budget"):
        table.add_column(name, justify="left" if name == "target" else "right")
    skipped: list[str] = []
    for target, platform in OTHER_TARGETS.items():
        try:
            with console.status(f"{tokens:,} tokens: compiling for {target}"):
                plan = shm.plan(export_attention(tokens, platform), budget_bytes(tokens), target=target)
        except TargetError as error:
            skipped.append(f"{target} skipped: {error}")
            continue
        figures = (plan.before.peak_bytes, plan.after.peak_bytes, budget_bytes(tokens))
        table.add_row(target, *(format_bytes(figure) for figure in figures))
    console.print(f"\n{tokens:,} tokens, peaks as other compilers report them")
    if table.row_count:
        console.print(table)
    for line in skipped:
        console.print(line, style="yellow", markup=False)


def is_good(comparison: Comparison) -> bool:
    """Whether the results agree and the memory that executing added is within the budget less the arguments."""
    allowed = comparison.budget_bytes - comparison.optimised.argument_bytes
    agrees = comparison.difference is None or comparison.difference <= _TOLERANCE
    return agrees and comparison.optimised.grown_bytes <= _SLACK * allowed


def _run(exported: Exported, repeats: int) -> FreshRun:
    return run_fresh(exported.serialize(), repeats=repeats, keep_outputs=repeats > 1)


def _run_original(exported: Exported) -> FreshRun | FreshRunError:
    try:
        return _run(exported, REPEATS)
    except FreshRunError as error:
        if error.memory:
            return error
        raise


def _memory(comparison: Comparison) -> str:
    if isinstance(comparison.original, FreshRun):
        return format_bytes(comparison.original.grown_bytes)
    if comparison.original is None:
        return f"would need {format_bytes(comparison.needed_bytes)}"
    return "out of memory"


def _seconds(original: FreshRun | FreshRunError | None) -> str:
    return f"{original.median_seconds:.2f}" if isinstance(original, FreshRun) else "not run"
