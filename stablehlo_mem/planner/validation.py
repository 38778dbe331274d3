"""Checks options before planning and the optimised module after it. The other files of `planner/` call it."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Iterator
from typing import Any, TypeGuard, get_args

import jax
import jax.numpy as jnp

from stablehlo_mem.errors import InputError, PassError
from stablehlo_mem.frontend.program import Program
from stablehlo_mem.ir.bindings import ir, is_callback, source_line, walk_operations
from stablehlo_mem.ir.graph import Graph, main_function, nested_graph
from stablehlo_mem.pass_api.candidate import Numerics, Options, Refusal, Step
from stablehlo_mem.passes import PASSES
from stablehlo_mem.planner.search_state import SearchState
from stablehlo_mem.results.budget_error import BudgetError
from stablehlo_mem.targets.target import Target
from stablehlo_mem.utils.units import Budget, format_bytes


def check_options(options: Any) -> None:
    """Checks options.

    Raises:
        InputError: one of them is invalid.
    """
    _check_types(options)
    names = [p.name for p in PASSES]
    if not isinstance(options.passes, tuple | None):
        raise InputError(f'passes is a tuple of names such as ("{names[0]}",), or None for all, not {options.passes!r}')
    unknown = [str(name) for name in options.passes or () if name not in names]
    if unknown:
        raise InputError(f"there is no pass named {', '.join(unknown)}: the passes are {', '.join(names)}")
    if options.numerics not in get_args(Numerics):
        raise InputError(f"numerics is one of {', '.join(get_args(Numerics))}, not {options.numerics!r}")
    if options.max_compiles < 1:
        raise InputError(f"max_compiles is at least 1, not {options.max_compiles}")
    if options.max_slowdown is not None and not options.max_slowdown >= 1:
        raise InputError(f"max_slowdown is at least 1, or None for no limit, not {options.max_slowdown}")
    _ = options.host_bytes  # raises where it is no number of bytes
    if options.max_seconds is not None and not options.max_seconds > 0:
        raise InputError(f"max_seconds is more than 0, or None for no limit, not {options.max_seconds}")


def _check_types(options: Any) -> None:
    """Raises an InputError for an option whose type would fail later, or mean something else."""
    if not isinstance(options, Options):
        raise InputError(f"options are stablehlo_mem.Options(...), not {type(options).__name__} {options!r}")
    for name in ("tune", "verify", "cache"):
        if not isinstance(value := getattr(options, name), bool):
            raise InputError(f"{name} is True or False, not {value!r}")
    if isinstance(options.max_compiles, bool) or not isinstance(options.max_compiles, numbers.Integral):
        raise InputError(f"max_compiles is a whole number, not {options.max_compiles!r}")
    for name in ("max_slowdown", "max_seconds"):
        if not isinstance(value := getattr(options, name), numbers.Real | None):
            raise InputError(f"{name} is a number, or None for no limit, not {value!r}")


def for_platforms(options: Options, program: Program, targets: tuple[Target, ...]) -> Options:
    """Options without the passes whose results some target, or some platform of the program, would not understand."""
    kinds = {target.chip.kind for target in targets} | set(program.platforms)
    unfit = [p.name for p in PASSES if not p.serves(kinds)]
    names = [p.name for p in PASSES] if options.passes is None else options.passes
    if not any(name in unfit for name in names):
        return options
    return dataclasses.replace(options, passes=tuple(name for name in names if name not in unfit))


def check_tuning(program: Program, targets: tuple[Target, ...]) -> None:
    """Checks that plans for a program can be timed on this machine.

    Raises:
        InputError: they cannot.
    """
    if len(targets) != 1 or ":" in targets[0].name:
        names = ", ".join(target.name for target in targets)
        raise InputError(f"tune=True times plans on this machine's device: the target is cpu, cuda or tpu, not {names}")
    if program.exported is not None and program.exported.nr_devices > 1:
        raise InputError(f"tune=True times programs of one device, not of {program.exported.nr_devices}")
    callback = next((op for op in walk_operations(program.module.operation) if is_callback(op)), None)
    if callback is not None:
        where = source_line(callback.location) or "a callback"
        raise InputError(f"tune=True runs plans, which would call Python ({where}) for nothing")
    avals = program.exported.in_avals if program.exported is not None else ()
    keys = [str(aval.dtype) for aval in avals if jnp.issubdtype(aval.dtype, jax.dtypes.extended)]
    if keys:
        raise InputError(
            f"tune=True draws arguments, and does not know how to draw {keys[0]}: pass jax.random.key_data"
        )


def ignored_placements(targets: tuple[Target, ...], main: Graph) -> Iterator[Refusal]:
    """Why arguments in the host's memory count as on the device, for the first target where they do."""
    on_host = [v for v in main.arguments if main.values[v].host_bytes]
    ignoring = next((t for t in targets if not t.places_arguments), None)
    if on_host and ignoring is not None:
        largest = max(on_host, key=lambda v: main.values[v].host_bytes)
        nbytes, name = main.values[largest].host_bytes, f"argument {main.arguments.index(largest)}"
        message = f"the compiler of {ignoring.name} puts it on the device: without a device it ignores memory kinds"
        if ignoring.chip.kind == "cpu":
            message = (
                "the host's memory is the one that a CPU computes in: an argument placed there counts as any other"
            )
        yield Refusal.at(main, ((), 0), f"{name} {main.values[largest]}", nbytes, "placement-ignored", message)


def no_host_memory(options: Options, original: SearchState) -> Iterator[Refusal]:
    """Why nothing is kept in the host's memory although the options allow it, where a chip has no other memory."""
    if options.host_bytes and not original.chip.host_link_bytes_per_second:
        message = f"{original.chip.name} has no memory beside the one it computes in: nothing can be kept elsewhere"
        for live in original.peak.live[:1]:
            block = nested_graph(original.graph, live.path)
            place = (live.path, max(0, block.values[live.value].producer))
            value = str(block.values[live.value])
            yield Refusal.at(original.graph, place, value, live.nbytes, "no-host-memory", message)


def verify(program: Program, module: ir.Module, steps: tuple[Step, ...]) -> None:
    """Raises a PassError unless a module is valid and has the program's signature."""
    names = tuple(step.pass_name for step in steps)
    if not module.operation.verify():
        raise PassError("verify", "the optimised module is not valid", names)
    if str(main_function(module).type) != str(program.main.type):
        raise PassError("verify", "the signature of main changed", names)


def is_below(budget: Budget, program: Program) -> TypeGuard[int]:
    """Whether a budget is smaller than arguments and outputs."""
    return isinstance(budget, int) and budget < program.floor_bytes


def below_floor(program: Program, budget: int) -> BudgetError:
    """The error for a budget smaller than arguments and outputs."""
    floor = program.floor_bytes
    return BudgetError(
        f"the budget of {format_bytes(budget)} is below the arguments and outputs alone "
        f"({format_bytes(floor)} with donation counted once); no plan can change that",
        budget_bytes=budget,
        needed_bytes=floor,
        reached_bytes=floor,
        best=None,
    )
