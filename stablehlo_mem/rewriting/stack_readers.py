"""What reads a scan's stack whole and could read a row in each step; `fuse-into-scan` and `rematerialise` ask."""

from __future__ import annotations

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph, Path, nested_graph
from stablehlo_mem.pass_api.candidate import Options, allows
from stablehlo_mem.rewriting.scan_stacks import find_readers, find_scan
from stablehlo_mem.splitting.along_scan import schedule_along
from stablehlo_mem.splitting.loop_schedule import LoopSchedule
from stablehlo_mem.splitting.loops_of_seed import axis_of_seed
from stablehlo_mem.splitting.regrouping import numerics_of, why_not_regrouped

PASS_NAME = "fuse-into-scan"
"""Of the pass that runs readers in the loop that writes the stack."""
_BIG_SHARE = 8
"""Values of at least one part in so many of the stack are followed: its masks, which have a byte an element, too."""


def is_read_whole(graph: Graph, stack: int) -> bool:
    """Whether something other than loops that read its rows reads a stack, which stays in its block."""
    return stack not in graph.returned and isinstance(find_readers(graph, stack), Blocked)


@cached_analysis
def readers_along(graph: Graph, loop: int, carry: int) -> LoopSchedule | Blocked:
    """The loop over rows of all that reads a stack of a scan whole, if it can run along with the scan.

    Args:
        loop, carry: the scan, and which of its carries is the stack.
    """
    op = graph.ops[loop]
    value = op.results[carry]
    # Those that are written from the first row on, or the others if the stack is one of them.
    forward, scan = find_scan(graph, op), find_scan(graph, op, backwards=True)
    in_order = set(forward.rows) if forward is not None else set[int]()
    rows = set(scan.rows) if scan is not None else set[int]()
    alike, direction = (in_order, 1) if carry in in_order else (rows - in_order, -1)
    axis = axis_of_seed(graph, (value, 0), graph.values[value].nbytes // _BIG_SHARE)
    stacks = [op.results[other] for other in sorted(alike)]
    schedule = schedule_along(graph, axis, loop, stacks, direction) if axis.parts == 1 else None
    inner = schedule.inner_ops if schedule is not None else ()
    others = (graph.ops[user].name for user in graph.users[value] if user not in inner)
    in_the_way = next((name for name in others if name != "stablehlo.while"), "")
    if schedule is None or in_the_way:
        needs = "needs more than a row of it at a time, or what is known only after the last step"
        return Blocked("used-whole", f"{in_the_way or 'what reads it'} {needs}")
    return schedule


def is_taken_in(main: Graph, path: Path, loop: int, carry: int, options: Options) -> bool:
    """Whether some options allow what reads a stack whole to run in the loop that writes it."""
    graph = nested_graph(main, path)
    is_enabled = options.passes is None or PASS_NAME in options.passes
    if not is_enabled or not is_read_whole(graph, graph.ops[loop].results[carry]):
        return False
    schedule = readers_along(graph, loop, carry)
    if isinstance(schedule, Blocked) or not allows(options, numerics_of(schedule)):
        return False
    return not why_not_regrouped(main, path, schedule, options)
