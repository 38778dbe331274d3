"""stablehlo-mem: the same program, in the memory you have.

>>> import stablehlo_mem as shm
>>> step = shm.jit(train_step, budget="14GiB")
>>> smaller = shm.optimize(exported, "512MiB", target="tpu:v5e")
"""

from stablehlo_mem.analysis.peak_memory import MemoryProfile
from stablehlo_mem.api.functions import calibrate, curve, explain, export, optimize, plan, profile
from stablehlo_mem.api.jit import jit
from stablehlo_mem.checking.comparison import CheckedResult
from stablehlo_mem.checking.plan_check import Check
from stablehlo_mem.errors import BudgetError, CheckError, InputError, PassError, StableHLOMemError, TargetError
from stablehlo_mem.planner.explain import Explanation
from stablehlo_mem.planner.pareto_curve import CurvePoint
from stablehlo_mem.results.plan import Options, Plan
from stablehlo_mem.targets.target import Target

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
    "calibrate",
    "curve",
    "explain",
    "export",
    "jit",
    "optimize",
    "plan",
    "profile",
]
