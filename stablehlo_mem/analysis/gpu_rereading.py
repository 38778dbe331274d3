"""Whether XLA:GPU writes a value that several kernels could compute, as these would read more than its bytes.

`priority_fusion.cc` fuses an op into all kernels that use its result, or into none, whichever its cost model estimates
to take less: `gpu_performance_model_base.cc`. Memory decides. Each kernel reads again what the value is computed from,
an element of it for each of the value's, some of it from a cache. `xla_gpu` asks for it.
"""

from __future__ import annotations

import math

from stablehlo_mem.analysis.fusion_classes import FUSIBLE, Class, classify
from stablehlo_mem.ir.graph import Graph

L2_BYTES = 50 * 2**20
_L1_BYTES = 132 * 2 * 2**10
"""Caches of an H100, used for all chips: the model counts 2 KiB of L1 for each of its cores."""
_L2_SPEEDUP = 2.5
_L1_SPEEDUP = _L2_SPEEDUP * 8
"""Speeds of the caches over the memory's, as the model has them."""
_MOST_OPS = 64
"""Ops that are followed back from a value: a guess, to bound the time."""
_FUSED = FUSIBLE | {Class.VIEW}


def is_written_once(graph: Graph, value: int, kernels: int) -> bool:
    """Whether it takes less to write a value, and to read it in so many kernels, than to compute it in each."""
    nbytes = graph.values[value].nbytes
    return (kernels - 1) * _bytes_again(graph, value) > (kernels + 1) * nbytes


def _bytes_again(graph: Graph, value: int) -> float:
    """What a kernel reads to compute a value, in bytes that take as long to read from memory."""
    elements = math.prod(graph.values[value].shape)
    reads: dict[tuple[int, int], float] = {}
    # Values and the broadcast by which they are read: two broadcasts of a value read other elements of it.
    pending, seen = [(value, -1)], {(value, -1)}
    while pending and len(seen) <= _MOST_OPS:
        read, broadcast = pending.pop()
        data, op = graph.values[read], graph.producer(read)
        kind = None if op is None else classify(graph, op)
        if not data.shape or kind is Class.GENERATE:
            continue
        if op is None or kind not in _FUSED:
            each = data.nbytes / max(1, math.prod(data.shape))
            reads[read, broadcast] = elements * each / _speedup(data.nbytes)
            continue
        place = op.index if op.name == "stablehlo.broadcast_in_dim" else broadcast
        operands = {(v, place) for v in op.operands} - seen
        seen |= operands
        pending += operands
    return sum(reads.values())


def _speedup(nbytes: int) -> float:
    """How much faster a value is read again than from memory."""
    if nbytes < _L1_BYTES:
        return _L1_SPEEDUP
    return _L2_SPEEDUP if nbytes < L2_BYTES else 1.0
