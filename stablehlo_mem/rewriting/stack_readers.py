"""What reads a scan's stack whole and could read a row in each step; `fuse-into-scan` and `rematerialise` ask."""

from __future__ import annotations

from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.pass_api.candidate import Numerics, Options, allows
from stablehlo_mem.rewriting.scan_stacks import ScanLoop, find_readers, find_scan
from stablehlo_mem.splitting.along_scan import schedule_along
from stablehlo_mem.splitting.loop_schedule import LoopSchedule
from stablehlo_mem.splitting.loops_of_seed import axis_of_seed
from stablehlo_mem.splitting.regrouping import regroups

PASS_NAME = "fuse-into-scan"
"""Of the pass that runs readers in the loop that writes the stack."""
_BIG_SHARE = 8
"""Values of at least one part in so many of the stack are followed: its masks, which have a byte an element, too."""


def readers_along(graph: Graph, scan: ScanLoop, stack: int) -> LoopSchedule | Blocked:
    """The loop over rows of all that reads a stack of a scan whole, if it can run along with the scan."""
    results = graph.ops[scan.op].results
    value = results[stack]
    axis = axis_of_seed(graph, (value, 0), graph.values[value].nbytes // _BIG_SHARE)
    forward = find_scan(graph, graph.ops[scan.op])
    in_order = forward.rows.keys() if forward is not None else frozenset[int]()
    alike = [results[carry] for carry in scan.rows if (carry in in_order) == (stack in in_order)]
    direction = 1 if stack in in_order else -1
    schedule = schedule_along(graph, axis, scan.op, alike, direction) if axis.parts == 1 else None
    inner = schedule.inner_ops if schedule is not None else ()
    others = (graph.ops[user] for user in graph.users[value] if user not in inner)
    in_the_way = next((op for op in others if op.name != "stablehlo.while"), None)
    if schedule is None or in_the_way is not None:
        name = in_the_way.name if in_the_way is not None else "what reads it"
        return Blocked(
            "used-whole", f"{name} needs more than a row of it at a time, or what is known only after the last step"
        )
    return schedule


def is_taken_in(graph: Graph, scan: ScanLoop, stack: int, options: Options) -> bool:
    """Whether some options allow what reads a stack whole to run in the loop that writes it."""
    value = graph.ops[scan.op].results[stack]
    is_enabled = options.passes is None or PASS_NAME in options.passes
    if not is_enabled or value in graph.returned or not isinstance(find_readers(graph, value), Blocked):
        return False
    schedule = readers_along(graph, scan, stack)
    return not isinstance(schedule, Blocked) and allows(options, numerics_of(schedule))


def numerics_of(schedule: LoopSchedule) -> Numerics:
    """The weakest `Options.numerics` that allows a schedule."""
    return "reassociate" if regroups(schedule.graph, schedule) else "exact"
