"""stablehlo-mem: the same program, in the memory you have.

>>> import stablehlo_mem as shm
>>> step = shm.jit(train_step, budget="14GiB")
>>> smaller = shm.optimize(exported, "512MiB", target="tpu:v5e")
"""

from stablehlo_mem.utils.quiet import quiet

with quiet():  # the first import of JAX writes to the screen where there is a CUDA plugin and no GPU
    from stablehlo_mem.api.flattened import flattened
    from stablehlo_mem.api.functions import calibrate, curve, explain, export, optimize, plan, profile
    from stablehlo_mem.api.jit import jit
    from stablehlo_mem.api.rendering import register_rendering
    from stablehlo_mem.api.rescue import rescue
    from stablehlo_mem.api.under_budget import budget
    from stablehlo_mem.errors import InputError, PassError, StableHLOMemError, TargetError
    from stablehlo_mem.pass_api.candidate import Options
    from stablehlo_mem.results.budget_error import BudgetError
    from stablehlo_mem.results.check import Check, CheckedResult, CheckError
    from stablehlo_mem.results.explanation import Explanation
    from stablehlo_mem.results.memory_profile import MemoryProfile
    from stablehlo_mem.results.memory_time_curve import CurvePoint
    from stablehlo_mem.results.plan import Plan
    from stablehlo_mem.targets.target import Target
    from stablehlo_mem.utils.progress import progress

__all__ = [
    "BudgetError",
    "Check",
    "CheckError",
    "CheckedResult",
    "CurvePoint",
    "Explanation",
    "InputError",
    "MemoryProfile",
    "Options",
    "PassError",
    "Plan",
    "StableHLOMemError",
    "Target",
    "TargetError",
    "budget",
    "calibrate",
    "curve",
    "explain",
    "export",
    "flattened",
    "jit",
    "optimize",
    "plan",
    "profile",
    "progress",
    "rescue",
]

register_rendering()
