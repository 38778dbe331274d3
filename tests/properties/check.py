"""What must hold for any program under any budget."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import math
import random
import warnings
from collections.abc import Generator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.export import Exported, export

import stablehlo_mem as shm
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.pass_api.candidate import weakest
from tests.properties.drawing import Draw, RandomProgram
from tests.properties.generate import draw_program
from tests.support import OPTIMISED, is_float, memory_of

COMPILES = 4


@dataclasses.dataclass(frozen=True)
class Trial:
    """What a program is planned for.

    Attributes:
        budget: "min", None, or thousandths of the original's temporaries: below 0 less than arguments and outputs,
            1000 and more for one that fits as it is.
        numerics: as in `Options`.
        again: plan it twice.
    """

    budget: str | int | None
    numerics: Any
    again: bool


def draw_trial(draw: Draw) -> Trial:
    budget: str | int | None = draw(0, 700)
    which = draw(0, 11)
    if which in _OTHER_BUDGETS:
        budget = _OTHER_BUDGETS[which]
    return Trial(budget, "reassociate" if draw(0, 2) else "exact", not draw(0, 7))


def trial_of(seed: int) -> tuple[RandomProgram, Trial]:
    """The program of a seed and what it is planned for."""
    draw = random.Random(seed).randint
    trial = draw_trial(draw)
    return draw_program(draw), trial


_OTHER_BUDGETS: dict[int, str | int | None] = {0: "min", 1: "min", 2: "min", 3: None, 4: 1000, 5: -1}


@dataclasses.dataclass
class Seen:
    """What a run of checks came across."""

    counts: collections.Counter[str] = dataclasses.field(default_factory=lambda: collections.Counter[str]())


def check(program: RandomProgram, trial: Trial, seed: int, seen: Seen) -> None:
    """Plans a program and compares; an AssertionError or any exception is a finding."""
    with jax.enable_x64(True), warnings.catch_warnings(), no_failing_passes():
        warnings.simplefilter("ignore")
        original = export(jax.jit(program), platforms=["cpu"])(*program.arguments)
        arguments = program.data(seed)
        compiled = _compiled(original, arguments)
        options = shm.Options(numerics=trial.numerics, max_compiles=COMPILES, cache=False)
        budget = _budget(trial, original, compiled)
        seen.counts["programs"] += 1
        seen.counts["gradients"] += program.gradient
        seen.counts["whole numbers"] += program.whole
        if trial.budget == -1:
            _check_refusal(original, budget, options)
            seen.counts["below arguments and outputs"] += 1
            return
        plan = shm.plan(original, budget, target="cpu", options=options)
        _check_plan(plan, original, budget, options)
        if trial.again:
            again = shm.plan(original, budget, target="cpu", options=options)
            assert (again.bytecode, again.steps) == (plan.bytecode, plan.steps), "another plan the second time"
            seen.counts["planned twice"] += 1
        seen.counts["over budget"] += not plan.fits
        seen.counts["unchanged" if not plan.steps else "changed"] += 1
        for step in plan.steps:
            seen.counts[f"step {step.pass_name}"] += 1
        if plan.steps:
            _check_result(program, plan, arguments, compiled, seen)


def _compiled(exported: Exported, arguments: list[np.ndarray]) -> Any:
    return jax.jit(exported.call).lower(*arguments).compile(compiler_options=OPTIMISED)


def _budget(trial: Trial, original: Exported, compiled: Any) -> Any:
    if not isinstance(trial.budget, int):
        return trial.budget
    least = ingest(original).floor_bytes
    if trial.budget < 0:
        return least - 1
    return max(1, least + trial.budget * (sum(memory_of(compiled)) - least) // 1000)


def _check_refusal(original: Exported, budget: int, options: shm.Options) -> None:
    try:
        shm.plan(original, budget, target="cpu", options=options)
    except (shm.BudgetError, shm.InputError):
        return
    raise AssertionError(f"a plan for {budget} bytes, less than arguments and outputs")


def _check_plan(plan: shm.Plan, original: Exported, budget: Any, options: shm.Options) -> None:
    """What a plan says of itself."""
    if isinstance(budget, int):
        is_within = plan.after.peak_bytes <= budget
        assert plan.fits == (is_within and not plan.too_slow), f"{plan.after.peak_bytes} for {budget}: {plan.fits}"
        assert not plan.too_slow or plan.slowdown > (options.max_slowdown or math.inf), plan.slowdown
        assert plan.before.peak_bytes > budget or not plan.steps, "changed though it fits"
    else:
        assert plan.fits
    assert plan.after.peak_bytes <= plan.before.peak_bytes or budget is None, "more memory than before"
    assert plan.steps or plan.result is original, "another object though nothing was changed"
    numerics = [options.numerics, *(decision.numerics for decision in plan.decisions)]
    assert weakest(numerics) == options.numerics, "a step that the options do not allow"
    assert plan.compiles <= max(options.max_compiles, 1), "more compilations than allowed"


def _check_result(
    program: RandomProgram, plan: shm.Plan, arguments: list[np.ndarray], original: Any, seen: Seen
) -> None:
    """What the program that came out needs and gives."""
    compiled = _compiled(plan.result, arguments)
    needed = sum(memory_of(compiled)) - _unused_bytes(plan.result)
    assert needed <= plan.after.peak_bytes, f"{needed} bytes, the plan says {plan.after.peak_bytes}"
    old, new = ([np.asarray(leaf) for leaf in some(*arguments)] for some in (original, compiled))
    if same_results(new, old):
        seen.counts["equal"] += 1
        return
    assert not program.whole, f"whole numbers differ: {difference(new, old)}"
    seen.counts["rounded otherwise"] += 1
    exact = in_double(program, arguments)
    for got, want, true in zip(new, old, exact, strict=True):
        compare(got, want, true, program.continuous)


def _unused_bytes(exported: Exported) -> int:
    """Bytes of the arguments that the program takes and its module does not."""
    return sum(
        math.prod(aval.shape) * aval.dtype.itemsize
        for i, aval in enumerate(exported.in_avals)
        if i not in exported.module_kept_var_idx
    )


def same_results(new: list[np.ndarray], old: list[np.ndarray]) -> bool:
    """Whether all results are the same to the last bit, but for the signs of zeros."""
    return all(_same(*pair) for pair in zip(new, old, strict=True))


def _same(new: np.ndarray, old: np.ndarray) -> bool:
    assert (new.dtype, new.shape) == (old.dtype, old.shape)
    return np.array_equal(new, old, equal_nan=is_float(old))


def difference(new: list[np.ndarray], old: list[np.ndarray]) -> str:
    """How much of each result differs."""
    shares = ((a != b) & ~((a != a) & (b != b)) for a, b in zip(new, old, strict=True))
    return ", ".join(f"{float(np.mean(share)) if share.size else 0.0:.1%}" for share in shares)


@contextlib.contextmanager
def no_failing_passes() -> Generator[None]:
    """A pass that fails is left out, and a line at debug level tells of it: here it is a failure."""
    logger = logging.getLogger("stablehlo_mem.planner.greedy_search")
    handler, level = _Raising(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _Raising(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        failure = getattr(record, "failure", None)
        if failure is not None:
            raise failure


def in_double(program: RandomProgram, arguments: list[np.ndarray]) -> list[np.ndarray]:
    """The results of a program in double precision."""
    wide = [a.astype(np.float64) if is_float(a) else a for a in arguments]
    return [np.asarray(leaf) for leaf in jax.jit(program)(*wide)]


def compare(new: np.ndarray, old: np.ndarray, exact: np.ndarray, continuous: bool) -> None:
    """The yardstick with room for few elements: their errors are chance, not a bound."""
    if not new.size:
        return
    if not is_float(old):
        differ = float((new != old).mean())
        assert differ == 0 or not continuous, f"{differ:.1%} of the integers differ"
        return
    eps = float(jnp.finfo(old.dtype).eps)
    new, old, exact = (a.astype(np.float64) for a in (new, old, exact))
    finite = np.isfinite(old) & np.isfinite(exact)
    # The gradient of a maximum compares it with what it is one of. XLA may compute that twice and round otherwise: then
    # the original divides by zero where the reference does not, and what came of it need not.
    lost = ~np.isfinite(old) & (continuous | ~np.isfinite(exact))
    assert np.array_equal(new[lost], old[lost], equal_nan=True), "other infinities or NaNs"
    assert np.isfinite(new[finite]).all(), "infinities or NaNs where the original has none"
    if not finite.any() or not continuous:
        return
    own, error = np.abs(old - exact)[finite].max(), np.abs(new - exact)[finite].max()
    scale = np.abs(exact[finite]).max()
    assert error <= 4 * own + 32 * eps * scale + 1e-12, f"error {error:.3g}, the original's {own:.3g}, of {scale:.3g}"
