"""Whether loops make float sums in another grouping, and why they must not: `splitting.candidates` asks."""

from __future__ import annotations

from stablehlo_mem.ir.float_comparisons import why_rounded_alike
from stablehlo_mem.ir.graph import Graph, Path
from stablehlo_mem.pass_api.candidate import Numerics, Options, allows
from stablehlo_mem.sharding_rules import OP_RULES
from stablehlo_mem.splitting.loop_schedule import LoopSchedule


def why_not_regrouped(main: Graph, path: Path, schedule: LoopSchedule, options: Options) -> str:
    """Why loops must not regroup their sums, "" if they may or do not: see `ir.float_comparisons`."""
    if not regroups(schedule):
        return ""
    sums = {output.value for output in schedule.outputs if output.accumulated}
    scans = (split_op for split_op in schedule.first_loop if split_op.cumulative)
    sums.update(*(schedule.graph.ops[scan.op].results for scan in scans))
    return why_rounded_alike(main, path, sums, relaxed=allows(options, "relaxed"))


def numerics_of(schedule: LoopSchedule) -> Numerics:
    """The weakest `Options.numerics` that allows the loops."""
    return "reassociate" if regroups(schedule) else "exact"


def regroups(schedule: LoopSchedule) -> bool:
    """Whether the loops make float sums in another grouping."""
    graph = schedule.graph
    reductions = (output.split_op.op for output in schedule.outputs if output.accumulated)
    rules = [(OP_RULES[graph.ops[op].name].reduction, graph.handles[op]) for op in reductions]
    scans = sorted({split_op.op for split_op in schedule.first_loop if split_op.cumulative})
    rules += [(OP_RULES[graph.ops[op].name].cumulative, graph.handles[op]) for op in scans]
    return schedule.is_online or any(rule is not None and rule.regroups(op) for rule, op in rules)
