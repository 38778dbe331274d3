"""The sizes that a split's loops could have: what each saves and costs. Called by `candidates`."""

from __future__ import annotations

import dataclasses
import math

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import Graph, dtype_bytes
from stablehlo_mem.pass_api.candidate import Size
from stablehlo_mem.splitting.chunk_cost import loop_cost
from stablehlo_mem.splitting.host_slices import suits_host
from stablehlo_mem.splitting.loop_schedule import LoopSchedule
from stablehlo_mem.splitting.split_step import LoopSize
from stablehlo_mem.targets.chips import Chip


@cached_analysis
def loop_sizes(
    graph: Graph,
    schedule: LoopSchedule,
    saved: tuple[int, ...],
    spared: int,
    written: int,
    left: int,
    chip: Chip,
    runs: float,
) -> tuple[Size, ...]:
    """Loops in all their chunks, which do not depend on the goal.

    Args:
        saved: values saved for later loops.
        spared: bytes that exist in chunks only; `written` of them go through memory.
        left: bytes that the loops leave.
        runs: how often the block runs.
    """
    n, checkpoints = schedule.axis.n, checkpoint_bytes(schedule)
    suits = suits_host(graph, schedule.axis)
    return tuple(
        Size(
            LoopSize(chunk=chunk, kept=saved),
            int(spared * (1 - chunk / n)) - left - checkpoints * -(-n // chunk),
            runs * seconds,
            runs * moved,
        )
        for chunk, seconds, moved in loop_cost(graph, schedule, chip, written).chunks()
        if suits(chunk)
    )


def in_places(size: Size, count: int) -> Size:
    """A size of loops that are built in so many places, of which one is at the peak."""
    added, moved = count * size.added_seconds, count * size.moved_seconds
    return dataclasses.replace(size, added_seconds=added, moved_seconds=moved)


def checkpoint_bytes(schedule: LoopSchedule) -> int:
    """Bytes of what loops save of scans before each chunk, for loops that run the other way."""
    graph = schedule.graph
    if not any(split_op.cumulative for split_op in schedule.loops_of):
        return 0
    split_ops = {scan for loop in range(schedule.loop_count) for scan in schedule.checkpointed_scans(loop)}
    values = (graph.values[v] for split_op in split_ops for v in graph.ops[split_op.op].results)
    # In 4 bytes at least: sums of narrow floats are accumulated in f32.
    elements = (math.prod(v.shape) // schedule.axis.n * max(4, dtype_bytes(v.dtype)) for v in values)
    return int(sum(elements))
