"""The public functions but `jit`: they read a program, hand it to the planner and return what comes back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax import export as jax_export
from jax.export import Exported

from stablehlo_mem.errors import InputError, TargetError
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.frontend.symbolic_shapes import at_sizes
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.pass_api.candidate import Options
from stablehlo_mem.planner import budget_loop
from stablehlo_mem.planner.explain import explain_program
from stablehlo_mem.planner.pareto_curve import curve_of_program
from stablehlo_mem.results.explanation import Explanation
from stablehlo_mem.results.memory_profile import MemoryProfile, Origin, profile_module
from stablehlo_mem.results.memory_time_curve import CurvePoint
from stablehlo_mem.results.plan import Plan
from stablehlo_mem.targets import calibration
from stablehlo_mem.targets.chips import Chip
from stablehlo_mem.targets.target import TargetLike, named_targets, platforms_of, resolve_targets
from stablehlo_mem.utils.backends import start_backends
from stablehlo_mem.utils.units import parse_budget


def optimize(module: Any, budget: int | str | None, *, target: TargetLike = None, options: Options = Options()) -> Any:
    """Rewrites a program to fit a memory budget.

    Args:
        module: a `jax.export.Exported`, an `ir.Module`, MLIR text, or bytes (bytecode, portable artifact, serialised
            Exported). It is not changed.
        budget: device memory of one execution, in bytes, "512MiB", "1.5GB"; "25%" for arguments and outputs and so
            much of the temporaries; "device" or "90% of device" for what is free on the target's device now, or has
            one of a named chip; "min" for the smallest; None for no limit.
        target: where it must fit: None for the default backend, "cpu", "cuda", "tpu", a chip such as "tpu:v5e", or a
            tuple of them, all of which it must fit.
        options: which rewrites are allowed, and how much effort planning may take.

    Returns:
        The optimised program, of the same kind and with the same signature, donation and shardings; the very object
        that was given if it already fits.

    Raises:
        BudgetError: the budget cannot be kept; it carries the best plan and the refusals at its peak.
        InputError: the module, budget or an option is invalid.
        TargetError: the target is unknown, the module is not for it, or its compiler is not installed.
    """
    return budget_loop.require_fit(plan(module, budget, target=target, options=options)).result


def plan(
    module: Any,
    budget: int | str | None,
    *,
    target: TargetLike = None,
    options: Options = Options(),
    dims: Mapping[str, int] | None = None,
) -> Plan:
    """What `optimize` would do, with the result; `fits=False` if the budget is not kept.

    Args:
        module: as in `optimize`.
        budget: as in `optimize`.
        target: as in `optimize`.
        options: as in `optimize`.
        dims: the size of each symbolic dimension of an Exported, serialised or not, by name: the plan's result has
            these shapes.

    Raises:
        BudgetError: the budget is below arguments + outputs − aliased, which no rewrite changes.
        InputError: as in `optimize`.
        TargetError: as in `optimize`.
    """
    limit = parse_budget(budget)
    program = ingest(module if dims is None else at_sizes(module, dims))
    return budget_loop.keep_budget(program, limit, resolve_targets(target, program), options)


def export(
    jit_fun: Any,
    *,
    budget: int | str | None,
    target: TargetLike = None,
    options: Options = Options(),
    **export_kwargs: Any,
) -> Callable[..., Exported]:
    """`jax.export.export` with `optimize` applied: `export(jax.jit(f), budget="1GiB")(*specs)` is an Exported.

    Args:
        jit_fun: a function under `jax.jit`.
        budget: as in `optimize`.
        target: as in `optimize`; it also decides the platforms to export for, unless `platforms` does.
        options: as in `optimize`.
        **export_kwargs: for `jax.export.export`.

    Raises:
        BudgetError: as in `optimize`, when the returned function is called.
        InputError: `jit_fun` is not under `jax.jit`; as in `optimize`, when the returned function is called.
        TargetError: as in `optimize`.
    """
    if not hasattr(jit_fun, "trace"):
        name = getattr(jit_fun, "__name__", type(jit_fun).__name__)
        raise InputError(f"{name} is not under jax.jit: export(jax.jit({name}), ...)")
    export_kwargs.setdefault("platforms", platforms_of(named_targets(target)))

    def exporting(*args: Any, **kwargs: Any) -> Exported:
        exported = export_function(jit_fun, args, kwargs, **export_kwargs)
        return optimize(exported, budget, target=target, options=options)

    return exporting


def profile(fun_or_module: Any, *args: Any, target: TargetLike = None) -> MemoryProfile:
    """Where the memory of one execution goes: the peak, the values live there, and the compiler's own figures.

    Args:
        fun_or_module: anything `optimize` takes, or a function, under `jax.jit` or not.
        *args: arguments or ShapeDtypeStructs for a function; none for a module.
        target: as in `optimize`; of several the first is profiled.

    Raises:
        InputError: as in `optimize`.
        TargetError: as in `optimize`.
    """
    program = ingest(_as_module(fun_or_module, args, target))
    first = resolve_targets(target, program)[0]
    static = profile_module(program.module, first.chip)
    measured = first.measure(program, program.module)
    return dataclasses.replace(static, measured=measured, origin=Origin(program.lasting, first))


def explain(
    fun_or_module: Any,
    *args: Any,
    budget: int | str | None = None,
    target: TargetLike = None,
    options: Options = Options(),
) -> Explanation:
    """What needs the memory and what would lower it: steps with their estimated effect, and refusals with reasons.

    Nothing is compiled: it is a quick look before `plan`, which compiles.

    Args:
        fun_or_module: as in `profile`.
        *args: as in `profile`.
        budget: as in `optimize`; None for a quarter of the temporaries.
        target: as in `optimize`; of several the first is used.
        options: as in `optimize`.

    Raises:
        InputError, TargetError: as in `optimize`.
    """
    limit = parse_budget(budget)
    program = ingest(_as_module(fun_or_module, args, target))
    return explain_program(program, resolve_targets(target, program)[0], limit, options)


def curve(
    fun_or_module: Any, *args: Any, target: TargetLike = None, options: Options = Options()
) -> tuple[CurvePoint, ...]:
    """Which budgets a program can be brought to, at what estimated time. Static: nothing is compiled.

    Args:
        fun_or_module: as in `profile`.
        *args: as in `profile`.
        target: as in `optimize`; of several the first is used.
        options: as in `optimize`.

    Returns:
        Points from the highest peak to the lowest, each slower than the one before. The first is the program itself,
        or what it becomes by the steps that save time.

    Raises:
        InputError, TargetError: as in `optimize`.
    """
    program = ingest(_as_module(fun_or_module, args, target))
    return curve_of_program(program, resolve_targets(target, program)[0], options)


def calibrate(target: str | None = None) -> Chip:
    """Measures the speed of a device of this machine, for some seconds, and stores it for the time estimates of plans.

    The file is `stablehlo_mem/chips.json` among the user's settings ($XDG_CONFIG_HOME, ~/.config), or
    $STABLEHLO_MEM_CALIBRATION ("" for none). Deleting it restores the built-in figures.

    Args:
        target: "cpu", "cuda" or "tpu"; None for the default backend.

    Returns:
        The chip with the measured figures.

    Raises:
        TargetError: the target is unknown or names a chip, or this machine has no such device.
        InputError: the file cannot be written.
    """
    (resolved,) = named_targets(target)
    if ":" in resolved.name:
        raise TargetError(f"{target} is no device of this machine: calibrate takes cpu, cuda or tpu where there is one")
    chip, device = resolved.chip, resolved.devices()[0]
    figures = calibration.measured(chip, device)
    try:
        calibration.keep(figures, chip, device.device_kind)
    except OSError as error:
        raise InputError(f"the figures cannot be kept in {calibration.calibration_path()}: {error}") from error
    return dataclasses.replace(chip, **figures)


def export_function(fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any], **export_kwargs: Any) -> Exported:
    """`jax.export.export` of a function.

    Raises:
        InputError: it has side effects that cannot be exported.
    """
    start_backends()
    try:
        return jax_export.export(fun, **export_kwargs)(*args, **kwargs)
    except NotImplementedError as error:
        name = getattr(fun, "__name__", "the function")
        raise InputError(
            f"{name} cannot be exported ({error}): take callbacks and debug prints out of the function, "
            "or run it under stablehlo_mem.jit"
        ) from error


def _as_module(fun_or_module: Any, args: tuple[Any, ...], target: TargetLike) -> Any:
    if isinstance(fun_or_module, (Exported, ir.Module)) or not callable(fun_or_module):
        if args:
            raise InputError(f"a module takes no arguments to be profiled; {len(args)} given")
        return fun_or_module
    jitted = fun_or_module if hasattr(fun_or_module, "trace") else jax.jit(fun_or_module)
    return export_function(jitted, args, {}, platforms=platforms_of(named_targets(target)))


__all__ = ["TargetLike", "calibrate", "curve", "explain", "export", "optimize", "plan", "profile"]
