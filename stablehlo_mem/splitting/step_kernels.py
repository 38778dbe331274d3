"""The kernels of a loop's step where chips start them one by one, and what chunks that stay on the chip spare.

`chunk_cost` asks for them.
"""

from __future__ import annotations

import dataclasses

from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.cost_model import fused_seconds
from stablehlo_mem.analysis.fusion import plan_buffers
from stablehlo_mem.analysis.op_cost import kernel_arithmetic_seconds
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.splitting.loop_schedule import LoopSchedule
from stablehlo_mem.targets.chips import Chip


@dataclasses.dataclass(frozen=True)
class StepKernel:
    """A kernel of the loops: its times are those of all steps together.

    Attributes:
        count: loops that it runs in.
        arithmetic_seconds: if memory were infinitely fast.
        other_seconds: of what it reads and writes beside chunks.
        chunks: the chunks it reads and writes, each with seconds through memory, and bytes for an element of the axis.
        charged_seconds: what the cost model charges it for: less where it shares what it reads with another kernel, or
            reads a part of it.
    """

    count: int
    arithmetic_seconds: float
    other_seconds: float
    chunks: tuple[tuple[float, float], ...]
    charged_seconds: float

    def spared_seconds(self, chunk: int, chip: Chip) -> float:
        """What all steps spare as chunks of so many elements of the axis stay on the chip."""
        limit, speedup = chip.on_chip_value_bytes, chip.on_chip_speedup
        through_memory = self.other_seconds + sum(seconds for seconds, _ in self.chunks)
        on_chip = self.other_seconds + sum(s / (speedup if chunk * nbytes <= limit else 1) for s, nbytes in self.chunks)
        spared = max(self.arithmetic_seconds, through_memory) - max(self.arithmetic_seconds, on_chip)
        return self.count * min(spared, self.charged_seconds)


def step_kernels(graph: Graph, schedule: LoopSchedule, chip: Chip) -> tuple[StepKernel, ...]:
    """The kernels that the split ops are; none where the chip does not count them."""
    if not chip.launch_seconds:
        return ()
    buffers, seconds = plan_buffers(graph, chip), fused_seconds(graph, chip)
    outputs = {output.value for output in schedule.outputs}
    chunked = {
        value
        for split_op in schedule.loops_of
        for value, dimension in zip(graph.ops[split_op.op].results, split_op.result_dims, strict=False)
        if dimension is not None and value not in outputs
    }
    runs = {split_op.op: len(loops) for split_op, loops in schedule.loops_of.items()}
    kernels = (op for op in sorted(runs) if op in buffers.kernels[op])
    return tuple(_step_kernel(graph, op, runs[op], seconds[op], chunked, schedule.axis.n, chip) for op in kernels)


def _step_kernel(
    graph: Graph, op: int, count: int, seconds: float, chunked: set[int], n: int, chip: Chip
) -> StepKernel:
    arithmetic, sizes = _kernel_work(graph, op, chip)
    others = sum([nbytes for v, nbytes in sizes.items() if v not in chunked])
    chunks = [nbytes for v, nbytes in sizes.items() if v in chunked]
    return StepKernel(
        count=count,
        arithmetic_seconds=arithmetic,
        other_seconds=others / chip.bytes_per_second,
        chunks=tuple([(nbytes / chip.bytes_per_second, nbytes / n) for nbytes in chunks]),
        charged_seconds=seconds,
    )


@cached_analysis
def _kernel_work(graph: Graph, kernel: int, chip: Chip) -> tuple[float, dict[int, int]]:
    """Seconds of a kernel's arithmetic, and the bytes of the buffers that it reads and writes, for all schedules."""
    buffers, model = plan_buffers(graph, chip), compiler_model(chip)
    inside = (graph.ops[one] for one in buffers.computed_in[kernel])
    values = [*buffers.reads[kernel], *(v for v in graph.ops[kernel].results if buffers.materialised[v])]
    return kernel_arithmetic_seconds(graph, inside, chip), {v: model.stored_bytes(graph, v) for v in values}
