"""fuse-into-scan: what reads all rows of a scan's stack runs in the scan's loop, on one row a step.

Before:
    %h, %ys = while(%i, %h, %ys) { ...; %ys[%i] = %y }          a row of 256 x 256 a step
    %s = stablehlo.reduce(%ys * %ys)
    %d = stablehlo.multiply %ys, %c
After:
    %h, %s, %d = while(%i, %h, %s, %d) { ...; %s += reduce(%y * %y); %d[%i] = %y * %c }

This is loop fusion (Kennedy and McKinley, "Maximizing Loop Parallelism and Improving Data Locality via Loop Fusion and
Distribution", 1993). The ops are split along the steps, one at a time, and the loop that makes is put at the end of the
scan's body. The stack goes if nobody else reads it, and what was written of it is a stack of the scan itself, which
`rematerialise` may drop.

Refuses ops that need more of the scan than one row at a time, or what is computed from its last carries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from stablehlo_mem.analysis.peak_memory import Peak
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, walk_operations
from stablehlo_mem.ir.block_cse import block_cse
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph, Path, entry_graph, nested_graph
from stablehlo_mem.ir.loop_carries import drop_dead_carries, with_carries
from stablehlo_mem.ir.trip_count import block_runs
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Refusal, Step, StepParams
from stablehlo_mem.pass_api.pass_protocol import Pass
from stablehlo_mem.rewriting.scan_stacks import ScanLoop, find_scan
from stablehlo_mem.rewriting.stack_readers import PASS_NAME, is_read_whole, readers_along
from stablehlo_mem.splitting.chunk_cost import loop_cost
from stablehlo_mem.splitting.emit_loops import emit_loops
from stablehlo_mem.splitting.regrouping import numerics_of, why_not_regrouped


@dataclasses.dataclass(frozen=True, kw_only=True)
class FusedIntoScan(StepParams):
    """A stack whose readers run in the loop that writes it.

    Attributes:
        path: the block, from the entry function's.
        loop, stack: the scan in it, and the carry that is the stack.
        ops, steps: how many ops run in the loop, and its steps; for people.
    """

    path: Path
    loop: int
    stack: int
    ops: int = 0
    steps: int = 0


class FuseIntoScan(Pass[FusedIntoScan]):
    """The pass: finds stacks at the peak that are read whole, row by row."""

    name = PASS_NAME
    params_type = FusedIntoScan

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
        """A candidate for each stack at the peak that is read whole and not returned, or why there is none."""
        for path, _ in peak.ops_around:
            block, live = nested_graph(graph, path), peak.live_in(path)
            scans = (find_scan(block, op, backwards=True) for op in block.ops)
            for scan in (one for one in scans if one is not None):
                stacks = {carry: block.ops[scan.op].results[carry] for carry in scan.rows}
                for carry, value in stacks.items():
                    if value in live and is_read_whole(block, value):
                        yield _proposal(graph, path, scan, carry, goal)

    def describe(self, params: FusedIntoScan) -> str:
        """How many ops run in how many steps."""
        return f"{params.ops} ops in a loop of {params.steps} steps"

    def apply(self, module: ir.Module, params: FusedIntoScan) -> None:
        """Splits the readers of a stack by single rows and fuses the loop into the scan, in place."""
        graph = nested_graph(entry_graph(module), params.path)
        scan = find_scan(graph, graph.ops[params.loop], backwards=True)
        schedule = readers_along(graph, params.loop, params.stack)
        if scan is None or isinstance(schedule, Blocked):
            raise ValueError(f"{self.name}: {schedule}")
        with module.context:
            (rows,) = emit_loops(graph, schedule, 1)
            _fuse(graph.handles[scan.op], rows, scan)
            drop_dead_carries(module)
        block_cse(module)


def _proposal(main: Graph, path: Path, scan: ScanLoop, stack: int, goal: Goal) -> Candidate | Refusal:
    graph = nested_graph(main, path)
    value = graph.values[graph.ops[scan.op].results[stack]]

    def refusal(code: str, message: str) -> Refusal:
        return Refusal.at(main, (path, scan.op), f"stored {value}", value.nbytes, code, message)

    schedule = readers_along(graph, scan.op, stack)
    if isinstance(schedule, Blocked):
        return refusal(schedule.code, schedule.message)
    compared = why_not_regrouped(main, path, schedule, goal.options)
    if compared:
        return refusal("compared", compared)
    seconds = loop_cost(graph, schedule, goal.chip, value.nbytes).loop_seconds(1)
    params = FusedIntoScan(path=path, loop=scan.op, stack=stack, ops=len(schedule.inner_ops), steps=scan.steps)
    return Candidate(
        step=Step(FuseIntoScan.name, "", params),
        saved_bytes=value.nbytes,
        added_seconds=block_runs(main, path) * seconds,
        numerics=numerics_of(schedule),
        summary=f"compute what reads all of stored {value} in the loop that stores it, a row at a time",
        identity=(FuseIntoScan.name, path, scan.op, stack),
        refusal_if_useless=refusal("no-gain", "what reads it in the loop that stores it frees nothing"),
    )


def _fuse(first: Any, second: Any, scan: ScanLoop) -> None:
    """Runs the steps of a loop at the end of those of a scan before it, of which it reads rows only."""
    _move_before(first, second)
    count = len(first.results)
    fused = with_carries(first, [True] * count, list(second.operands)[1:])
    body, steps = fused.regions[1].blocks[0], second.regions[1].blocks[0]
    end = body.operations[len(body.operations) - 1].operation
    ops = [op.operation for op in steps.operations]
    with builders.building(end, second.location):
        counter, *carries = steps.arguments
        values = dict(zip(carries, list(body.arguments)[count:], strict=True))
        values[counter] = builders.convert(body.arguments[scan.counter], counter.type.element_type)
        rows = {fused.results[stack]: end.operands[stack].owner.operands[1] for stack in scan.rows}
        for op in ops[:-1]:
            if op.name == "stablehlo.dynamic_slice" and op.operands[0] in rows:
                values[op.results[0]] = rows[op.operands[0]]
            else:
                builders.repeat_ops([op], values)
    for i, following in enumerate(list(ops[-1].operands)[1:]):
        end.operands[count + i] = values.get(following, following)
        second.results[1 + i].replace_all_uses_with(fused.results[count + i])
    second.erase()


def _move_before(first: Any, second: Any) -> None:
    """Moves what the second of two loops reads, and is computed between them, before the first."""
    ops = [op.operation for op in first.block.operations]
    wanted = set(_read_by(second))
    moved: list[Any] = []
    for op in reversed(ops[ops.index(first) + 1 : ops.index(second)]):
        if any(result in wanted for result in op.results):
            wanted.update(_read_by(op))
            moved.append(op)
    for op in reversed(moved):
        op.move_before(first)


def _read_by(op: Any) -> Iterator[Any]:
    """What an op and those in its regions read."""
    yield from op.operands
    for inner in walk_operations(op):
        yield from inner.operands
