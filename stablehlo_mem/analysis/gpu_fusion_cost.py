"""Whether XLA:GPU writes a value that kernels could compute, as these would take longer than to write and read it.

`priority_fusion.cc` fuses an op into all kernels that use its result, or into none, whichever its cost model estimates
to take less: `gpu_performance_model.cc`. A kernel takes about as long as its arithmetic or its memory traffic,
whichever takes longer. Each kernel computes the value again, reads again what it is computed from, some of it from a
cache, and does so for each window that an element is in. `xla_gpu` asks for it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

from stablehlo_mem.analysis.fusion_classes import ELEMENTWISE, FUSED, SLICES, Class, classify, window_size
from stablehlo_mem.ir.graph import Graph

L2_BYTES = 50 * 2**20
_CORES = 132
"""Of an H100, used for all chips, as its caches are; a kernel with fewer blocks does not use all."""
_L1_BYTES = _CORES * 2 * 2**10
"""The model counts 2 KiB of L1 for each core."""
_L2_SPEEDUP = 2.5
_L1_SPEEDUP = _L2_SPEEDUP * 8
"""Speeds of the caches over the memory's, as the model has them."""
_FLOPS_A_BYTE = _CORES * 128 * 2 * 1.98e9 / 4.8e12
"""Arithmetic in the time that a byte takes from memory: an H200's cores, lanes, fused multiply-adds and clock rate over
its bandwidth (`targets.gpu_configs`), used for all chips."""
LAUNCH_BYTES = 1e-6 * 4.8e12
"""Likewise for the launch of a kernel: `kKernelLaunchOverhead`."""
_NOT_HIDDEN = 0.05
"""What does not run beside the longer one, of arithmetic and memory traffic: `kMemoryComputeParallelism` is 0.95."""
_BLOCK_BYTES = 75e9 / 4.8e12
"""What a block of a column reduction reads while a byte comes from memory, cached or not: `AdjustBandwidth` limits a
kernel by its blocks. Fitted, as the next one is, to 112 programs compiled by jaxlib 0.10.2: 3 to 17 reads of an
element, 1,024 to 32,768 columns of 64 to 4,096 elements; 106 are as estimated."""
_BLOCK_COLUMNS = 64
_FLOPS = {
    "add": 7,
    "atan2": 431,
    "cbrt": 178,
    "cosine": 978,
    "divide": 19,
    "erf_inv": 480,
    "exponential": 79,
    "exponential_minus_one": 190,
    "log": 166,
    "log_plus_one": 229,
    "logistic": 108,
    "power": 510,
    "rsqrt": 75,
    "sine": 958,
    "sqrt": 75,
    "subtract": 7,
    "tanh": 467,
}
"""FLOPs of one element, in clock cycles of an H100: `hlo_op_profiles_data.h`, for float32. A logistic is compiled as an
exponential, an addition and a division, and an erf_inv as two polynomials, a logarithm and a square root."""
_FLOPS_OF_OTHERS = 3
"""The model's default."""
_MOST_OPS = 64
"""Ops that are followed back from a value: a guess, to bound the time."""


def is_written_once(graph: Graph, value: int, kernels: int, uses: float) -> bool:
    """Whether it takes less to write a value and to read it in so many kernels than to compute it in each.

    Args:
        graph: the block.
        value: the result of a fusible op.
        kernels: how many kernels use it.
        uses: how often each of them uses an element: in windows, in shifted copies, or repeated by a broadcast.
    """
    data = graph.values[value]
    reads, flops = _reads_and_flops(graph, value)
    read = _memory_bytes(reads)
    reduced = (uses - 1) * math.prod(data.shape) * _FLOPS["add"]
    written = data.nbytes + (uses - 1) * data.nbytes / (_L2_SPEEDUP if data.nbytes < L2_BYTES else 1.0)
    fused = kernels * _kernel_bytes(uses * read, uses * flops + reduced)
    return fused > _kernel_bytes(read + data.nbytes, flops) + kernels * _kernel_bytes(written, reduced) + LAUNCH_BYTES


def is_written_for_columns(graph: Graph, value: int, columns: int) -> bool:
    """Whether it takes less to write a value than to compute it in the kernel that sums its columns.

    That kernel has a block for each `_BLOCK_COLUMNS` columns. Where these are few they read more slowly than all of
    the chip can: a vector times a kernel matrix of 4,096 x 4,096 writes the matrix, one of 4,096 x 8,192 does not.

    Args:
        graph: the block.
        value: the result of a fusible op that the kernel reduces along another dimension than its last.
        columns: how many sums the kernel makes.
    """
    data = graph.values[value]
    reads, flops = _reads_and_flops(graph, value)
    read = _memory_bytes(reads)
    blocks = max(1, columns // _BLOCK_COLUMNS)
    requested = sum(nbytes for nbytes, _ in reads) / (blocks * _BLOCK_BYTES)
    fused = _kernel_bytes(max(read, requested), flops * max(1.0, _CORES / blocks))
    return fused > _kernel_bytes(read + data.nbytes, flops) + data.nbytes + LAUNCH_BYTES


def _kernel_bytes(read: float, flops: float) -> float:
    """The time of a kernel, in bytes that take as long from memory."""
    arithmetic = flops / _FLOPS_A_BYTE
    return max(read, arithmetic) + _NOT_HIDDEN * min(read, arithmetic)


def _memory_bytes(reads: Sequence[tuple[float, float]]) -> float:
    """What takes as long to read from memory as some reads take: see `_reads_and_flops`."""
    return sum(nbytes / _speedup(cached) for nbytes, cached in reads)


def _reads_and_flops(graph: Graph, value: int) -> tuple[list[tuple[float, float]], float]:
    """What a kernel reads to compute a value, and its FLOPs.

    Of each value that it reads the bytes of all reads, and those that a cache has to hold so that it reads them once.
    Of the FLOPs only those that the value alone needs, as its kernels need the others anyway: those of its maximum
    fanout-free cone, as logic synthesis calls it.
    """
    elements = math.prod(graph.values[value].shape)
    reads: dict[tuple[int, int], tuple[float, float]] = {}
    flops = 0.0
    cone: set[int] = set()
    # Users come before producers, so that all of a value's users in the cone are known when it is visited.
    pending, seen = [(-graph.values[value].producer, _Read(value, -1, 1, math.inf))], {(value, -1)}
    while pending and len(seen) <= _MOST_OPS:
        read = heapq.heappop(pending)[1]
        data, op = graph.values[read.value], graph.producer(read.value)
        kind = None if op is None else classify(graph, op)
        if not data.shape or kind is Class.GENERATE:
            continue
        # What a broadcast repeats is small: it is written first where it takes long to compute.
        if op is None or kind not in FUSED or read.broadcast >= 0:
            each = data.nbytes / max(1, math.prod(data.shape))
            reads[read.value, read.broadcast] = read.times * elements * each, min(data.nbytes, read.most)
            continue
        times, broadcast, most = read.times, read.broadcast, read.most
        owned = read.value == value or cone.issuperset(graph.users[read.value])
        if owned:
            cone.add(op.index)
        if op.name == "stablehlo.reduce_window":
            window = window_size(graph, op)
            flops += owned * times * elements * (window - 1) * _FLOPS["add"]
            times *= window
        elif op.name == "stablehlo.broadcast_in_dim":
            broadcast = op.index
        elif op.name in SLICES:
            most = min(most, data.nbytes)
        elif kind in ELEMENTWISE:
            flops += owned * times * elements * _FLOPS.get(op.name.partition(".")[2], _FLOPS_OF_OTHERS)
        for v in dict.fromkeys(op.operands):
            if (v, broadcast) not in seen:
                seen.add((v, broadcast))
                heapq.heappush(pending, (-graph.values[v].producer, _Read(v, broadcast, times, most)))
    return list(reads.values()), flops


class _Read(NamedTuple):
    """A value that a kernel reads or computes on the fly.

    Attributes:
        value: the value.
        broadcast: the broadcast by which it is read: two broadcasts of a value read other elements of it.
        times: how often each of its elements is used, for windows.
        most: the most of its bytes that are used, for slices.
    """

    value: int
    broadcast: int
    times: int
    most: float


def _speedup(nbytes: float) -> float:
    """How much faster a value is read again than from memory."""
    if nbytes < _L1_BYTES:
        return _L1_SPEEDUP
    return _L2_SPEEDUP if nbytes < L2_BYTES else 1.0
