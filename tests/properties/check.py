"""What must hold for any program under any budget."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import warnings
from collections.abc import Generator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.export import export

import stablehlo_mem as shm
from tests.properties.generate import Draw, RandomProgram
from tests.support import HONEST, is_float, memory_of

COMPILES = 5


@dataclasses.dataclass
class Seen:
    """What a run of checks came across."""

    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)


def check(program: RandomProgram, draw: Draw, seed: int, seen: Seen) -> None:
    """Plans a program for a random budget and compares; an AssertionError or any other exception is a finding."""
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        original = export(jax.jit(program), platforms=["cpu"])(*program.arguments)
        profile = shm.profile(original, target="cpu")
        least = profile.argument_bytes + profile.output_bytes
        budget: Any = "min" if draw(0, 1) else max(1, least + draw(0, 1000) * (profile.peak_bytes - least) // 1000)
        numerics: Any = "reassociate" if draw(0, 3) else "exact"
        options = shm.Options(numerics=numerics, max_compiles=COMPILES)
        with no_failing_passes():
            plan = shm.plan(original, budget, target="cpu", options=options)
        seen.counts["programs"] += 1
        seen.counts["over budget"] += not plan.fits
        if not plan.steps:
            seen.counts["unchanged"] += 1
            return
        seen.counts["split"] += 1
        seen.counts["steps"] += len(plan.steps)
        arguments = program.data(seed)
        old, _ = execute(original, arguments)
        new, peak = execute(plan.result, arguments)
        if plan.fits and budget != "min":
            assert peak <= budget, f"{peak} bytes, the budget is {budget}"
        exact = execute_wide(program, arguments)
        for got, want, true in zip(new, old, exact, strict=True):
            compare(got, want, true, program.continuous, seen)


@contextlib.contextmanager
def no_failing_passes() -> Generator[None]:
    """A pass that fails is left out and logged: here it is a failure."""
    handler = _Raising()
    logger = logging.getLogger("stablehlo_mem")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Raising(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            raise AssertionError(record.getMessage()) from record.exc_info[1]


def execute(exported: Any, arguments: list[np.ndarray]) -> tuple[list[np.ndarray], int]:
    """The results, and the bytes that the compiler says are needed."""
    compiled = jax.jit(exported.call).lower(*arguments).compile(compiler_options=HONEST)
    return [np.asarray(leaf) for leaf in compiled(*arguments)], sum(memory_of(compiled))


def execute_wide(program: RandomProgram, arguments: list[np.ndarray]) -> list[np.ndarray]:
    wide = [a.astype(np.float64) if is_float(a) else a for a in arguments]
    return [np.asarray(leaf) for leaf in jax.jit(program)(*wide)]


def compare(new: np.ndarray, old: np.ndarray, exact: np.ndarray, continuous: bool, seen: Seen) -> None:
    """The yardstick with room for few elements: their errors are chance, not a bound."""
    assert (new.dtype, new.shape) == (old.dtype, old.shape)
    if not new.size:
        return
    if not is_float(old):
        differ = float((new != old).mean())
        seen.counts["integers differ"] += differ > 0
        assert differ == 0 or not continuous, f"{differ:.1%} of the integers differ"
        return
    eps = float(jnp.finfo(old.dtype).eps)
    new, old, exact = (a.astype(np.float64) for a in (new, old, exact))
    finite = np.isfinite(old) & np.isfinite(exact)
    assert np.array_equal(np.isfinite(new[~finite]), np.isfinite(old[~finite])), "other infinities"
    if not finite.any() or not continuous:
        return
    own, error = np.abs(old - exact)[finite].max(), np.abs(new - exact)[finite].max()
    scale = np.abs(exact[finite]).max()
    seen.counts["not bitwise"] += not np.array_equal(new, old, equal_nan=True)
    assert error <= 4 * own + 32 * eps * scale + 1e-12, f"error {error:.3g}, the original's {own:.3g}, of {scale:.3g}"


def report(seen: Seen) -> str:
    return ", ".join(f"{name}: {count}" for name, count in sorted(seen.counts.items()))
