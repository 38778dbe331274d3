"""What is checked before planning, and of what comes out."""

from __future__ import annotations

from typing import get_args

from stablehlo_mem.errors import BudgetError, InputError, PassError
from stablehlo_mem.ingest import Program
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import main_function
from stablehlo_mem.passes import PASSES
from stablehlo_mem.plan import Numerics, Options, Step
from stablehlo_mem.wording import format_bytes


def check_options(options: Options) -> None:
    """Looks at options before anything is done with them.

    Raises:
        InputError: they cannot be followed.
    """
    known = [one.name for one in PASSES]
    unknown = [name for name in options.passes or () if name not in known]
    if unknown:
        raise InputError(f"there is no pass named {', '.join(unknown)}: the passes are {', '.join(known)}")
    if options.numerics not in get_args(Numerics):
        raise InputError(f"numerics is one of {', '.join(get_args(Numerics))}, not {options.numerics!r}")
    if options.max_compiles < 1:
        raise InputError(f"max_compiles is at least 1, not {options.max_compiles}")
    if options.tune:
        raise InputError("tune=True is not supported yet: plans are not timed on the device")


def verify(program: Program, module: ir.Module, steps: tuple[Step, ...]) -> None:
    """Raises a PassError unless a module is valid and has the program's signature."""
    names = tuple(step.pass_name for step in steps)
    if not module.operation.verify():
        raise PassError("verify", "the optimised module is not valid", names)
    if str(main_function(module).type) != str(program.main.type):
        raise PassError("verify", "the signature of main changed", names)


def below_floor(program: Program, budget: int) -> BudgetError:
    """The error for a budget that not even arguments and outputs keep."""
    floor = program.floor_bytes
    return BudgetError(
        f"the budget of {format_bytes(budget)} is below the arguments and outputs alone "
        f"({format_bytes(floor)} with donation counted once); no plan can change that",
        budget_bytes=budget,
        needed_bytes=floor,
        reached_bytes=floor,
        best=None,
    )
