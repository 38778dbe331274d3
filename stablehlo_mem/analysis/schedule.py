"""The order in which a target runs the kernels of a block."""

from __future__ import annotations

from stablehlo_mem.analysis.fusion import Buffers
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.targets.chips import Chip

Waves = tuple[tuple[int, ...], ...]


def order_kernels(graph: Graph, buffers: Buffers, chip: Chip) -> Waves:
    """The kernels of a block in waves, each named by the op that writes its result.

    What a kernel of a wave reads stays until the whole wave has run. CUDA's and the TPU's schedulers save memory:
    one kernel a wave, in program order. XLA:CPU goes breadth-first, so that kernels can run at the same time.
    """
    kernels = [op.index for op in graph.ops if _is_kernel(graph, buffers, op.index)]
    if chip.kind != "cpu":
        return tuple((k,) for k in kernels)
    waves: list[list[int]] = []
    level: dict[int, int] = {}
    for kernel in kernels:
        producers = (graph.values[v].producer for v in buffers.reads[kernel])
        level[kernel] = 1 + max((level.get(p, -1) for p in producers), default=-1)
        while len(waves) <= level[kernel]:
            waves.append([])
        waves[level[kernel]].append(kernel)
    waves[-1 if len(waves) > 1 else 0].sort()
    return tuple(tuple(w) for w in waves)


def _is_kernel(graph: Graph, buffers: Buffers, op: int) -> bool:
    results = graph.ops[op].results
    return not results or any(buffers.materialised[v] for v in results)
