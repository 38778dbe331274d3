"""Estimated time: the roofline of FLOPs and bytes moved. Good for comparing plans, not for predicting a clock.

Passes estimate what a candidate adds, the planner how long a program takes. What differs between chips are figures of
`Chip`; what kernels read and write follows from `fusion`, and so from the compiler's model.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterator, Sequence

from stablehlo_mem.analysis.compiler_model import Kernels
from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.fusion import Buffers, plan_buffers
from stablehlo_mem.analysis.fusion_classes import CLASSES, Class, multiplies
from stablehlo_mem.analysis.host_link import placements, waiting_seconds
from stablehlo_mem.analysis.kernel_traffic import (
    copies_seconds,
    fits_chip,
    kernel_bytes,
    reduced_while_written,
    traffic_seconds,
)
from stablehlo_mem.analysis.op_cost import (
    Matmul,
    arithmetic_seconds,
    exchange_seconds,
    op_bytes,
    op_flops,
    received_seconds,
    vector_seconds,
)
from stablehlo_mem.analysis.used_bytes import computed_share
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.ir.matchers import adds, sums_products_in_units
from stablehlo_mem.ir.trip_count import likely_trips, trip_count
from stablehlo_mem.targets.chips import Chip


@cached_analysis
def op_seconds(graph: Graph, op_index: int, chip: Chip) -> float:
    """Seconds of one op by itself: the slower of arithmetic and memory; a loop's body times its trip count."""
    op = graph.ops[op_index]
    if op.blocks and CLASSES.get(op.name) is Class.CONTROL:
        return _control_seconds(graph, op, chip)
    seconds = max(arithmetic_seconds(graph, op, chip), op_bytes(graph, op, chip) / chip.bytes_per_second)
    return seconds + exchange_seconds(graph, op, chip)


def graph_seconds(graph: Graph, chip: Chip) -> float:
    """Seconds of a block with fusion: the arithmetic of all ops, the bytes of what kernels read and write."""
    return sum(fused_seconds(graph, chip))


def graph_flops(graph: Graph, chip: Chip) -> float:
    """Floating-point operations of a block. Ops of a loop's body count once for each iteration, hoisted ones once."""
    return sum(_total_flops(graph, op, chip) for op in graph.ops)


def _total_flops(graph: Graph, op: Op, chip: Chip) -> float:
    if CLASSES.get(op.name) is not Class.CONTROL or not op.blocks:
        return op_flops(graph, op)
    if op.name == "stablehlo.while":
        condition, body = op.blocks
        trips = trip_count(graph, op)
        each = [_total_flops(body, inner, chip) for inner in body.ops]
        tested = (trips + 1) * graph_flops(condition, chip) if _computes_arrays(condition) else 0.0
        return _in_loop(each, body, trips, chip) + tested
    return max(graph_flops(block, chip) for block in op.blocks)


def _in_loop(costs: Sequence[float], body: Graph, trips: int, chip: Chip) -> float:
    """What the ops of a loop's body cost in all iterations: those that the compiler hoists run once."""
    hoisted = compiler_model(chip).hoisted_ops(body)
    once = sum(cost for i, cost in enumerate(costs) if i in hoisted)
    return trips * (sum(costs) - once) + once


def _computes_arrays(condition: Graph) -> bool:
    """Whether the condition of a loop has work of its own, as in line searches: `step_seconds` holds the others."""
    return any(condition.values[v].shape for op in condition.ops for v in op.results)


@cached_analysis
def fused_seconds(graph: Graph, chip: Chip) -> tuple[float, ...]:
    """For each op of a block its share of `graph_seconds`."""
    seconds = _kernels_seconds(graph, chip) if chip.launch_seconds else _ops_seconds(graph, chip)
    if placements(graph) and chip.host_link_bytes_per_second:
        waiting = waiting_seconds(graph, seconds, chip)
        return tuple(own + waiting.get(op, 0.0) for op, own in enumerate(seconds))
    return seconds


def _ops_seconds(graph: Graph, chip: Chip) -> tuple[float, ...]:
    """The same without copies to the host, where ops take the time of their arithmetic or of their traffic."""
    buffers = plan_buffers(graph, chip)
    seconds: list[float] = []
    for op in graph.ops:
        if op.blocks and CLASSES.get(op.name) is Class.CONTROL:
            seconds.append(_control_seconds(graph, op, chip))
            continue
        arithmetic = arithmetic_seconds(graph, op, chip) * computed_share(graph, op, chip)
        arithmetic += _reduced_seconds(graph, op, chip)
        moving = kernel_bytes(graph, op, buffers, chip) / chip.bytes_per_second
        seconds.append(max(arithmetic, moving) + exchange_seconds(graph, op, chip))
    return tuple(seconds)


def _kernels_seconds(graph: Graph, chip: Chip) -> tuple[float, ...]:
    """The same without copies to the host, where kernels are started one by one.

    Each takes the longer of its arithmetic and its traffic.

    An op has its arithmetic in every kernel that computes it, unless the chip's other unit works longer there: matrix
    units and lanes work side by side. The op that a kernel is named by has the rest.
    """
    buffers = plan_buffers(graph, chip)
    seconds = [0.0] * len(graph.ops)
    of_ops = {op.index: _seconds_in_kernel(graph, op, buffers.kernels[op.index], chip) for op in graph.ops}
    joined = {op.index: kernel for op in graph.ops for kernel in _joined_kernels(graph, op, buffers, chip)}
    # Ops without arithmetic, such as constants, are in many kernels and take no time there.
    timed = {op.index: buffers.kernels[op.index] if of_ops[op.index] else () for op in graph.ops}
    kernels = {op: [joined.get(k, k) for k in of_op] for op, of_op in timed.items()}
    busy = {unit: collections.defaultdict[int, float](float) for unit in (False, True)}
    for op in graph.ops:
        for kernel in kernels[op.index]:
            busy[multiplies(graph, op)][kernel] += of_ops[op.index]
    for op in graph.ops:
        if op.blocks and CLASSES.get(op.name) is Class.CONTROL:
            seconds[op.index] = _control_seconds(graph, op, chip)
            continue
        unit = multiplies(graph, op)
        slower = sum(busy[unit][k] > busy[not unit][k] for k in kernels[op.index])
        seconds[op.index] = slower * of_ops[op.index]
        if buffers.names_kernel(op):
            arithmetic = max(busy[False][op.index], busy[True][op.index])
            more = max(0.0, traffic_seconds(graph, op, buffers, chip) - arithmetic)
            launch = 0.0 if op.index in joined else chip.launch_seconds
            seconds[op.index] += more + launch + copies_seconds(graph, op, chip) + exchange_seconds(graph, op, chip)
    return tuple(seconds)


def _joined_kernels(graph: Graph, op: Op, buffers: Buffers, chip: Chip) -> Iterator[int]:
    """The kernel that computes a reduction of what it writes, if there is one."""
    for value in sorted(reduced_while_written(graph, op, buffers, chip))[:1]:
        yield graph.values[value].producer


def _seconds_in_kernel(graph: Graph, op: Op, kernels: Kernels, chip: Chip) -> float:
    """Seconds of an op's arithmetic in each of the kernels that compute it."""
    if not kernels or (op.blocks and CLASSES.get(op.name) is Class.CONTROL):
        return 0.0
    is_shared = fits_chip(graph, op, chip) and compiler_model(chip).computes_once(graph, op, kernels)
    arithmetic = arithmetic_seconds(graph, op, chip)
    return arithmetic and arithmetic * computed_share(graph, op, chip) / (len(kernels) if is_shared else 1)


def _reduced_seconds(graph: Graph, op: Op, chip: Chip) -> float:
    """The overhead of a reduction: for each of its results, and for each element of some sums of products.

    A reduction other than a sum over dimensions of one element has no results of its own: compilers make a reshape of
    it. XLA:CPU may make a dot of a sum. Nor have results that vector units compute side by side an overhead.
    """
    if CLASSES.get(op.name) is not Class.REDUCE:
        return 0.0
    elements, results = (math.prod(graph.values[v].shape) for v in (op.operands[0], op.results[0]))
    slow = chip.unit_sum_seconds and sums_products_in_units(graph, op)
    is_reshape = results == elements and not adds(op.blocks[0])
    is_started = not is_reshape and not compiler_model(chip).reduces_side_by_side(graph, op)
    return chip.reduced_seconds * results * is_started + chip.unit_sum_seconds * elements * bool(slow)


def overhead_seconds(graph: Graph, op: Op, chip: Chip) -> float:
    """Seconds that starting the iterations of an op's loops takes, however little is done in each."""
    if CLASSES.get(op.name) is not Class.CONTROL:
        return 0.0
    inner = max(sum(overhead_seconds(block, o, chip) for o in block.ops) for block in op.blocks)
    return likely_trips(graph, op) * (chip.step_seconds + inner) if op.name == "stablehlo.while" else inner


def _control_seconds(graph: Graph, op: Op, chip: Chip) -> float:
    if op.name == "stablehlo.while":
        condition, body = op.blocks
        trips = likely_trips(graph, op)
        tested = (trips + 1) * graph_seconds(condition, chip) if _computes_arrays(condition) else 0.0
        return trips * chip.step_seconds + _in_loop(fused_seconds(body, chip), body, trips, chip) + tested
    return max(graph_seconds(block, chip) for block in op.blocks)


@dataclasses.dataclass(frozen=True)
class Kernel:
    """What a kernel that a rewrite adds costs.

    Attributes:
        flops: of all its ops.
        nbytes: read and written.
        matmul: the matmul that it is, if it is one.
        moves: an op of the program that moves the same bytes: then they are counted as the chip lays that op's values
            out, and `nbytes` is not used.
        received: from other devices, so that it can run.
    """

    flops: float
    nbytes: float
    matmul: Matmul | None = None
    moves: Op | None = None
    received: float = 0.0

    def seconds(self, chip: Chip) -> float:
        """Its time on a chip; one that moves nothing is a part of another."""
        launch = (chip.launch_seconds if self.nbytes else 0.0) + received_seconds(self.received, chip)
        if self.matmul is None:
            return launch + vector_seconds(self.flops, self.nbytes, chip)
        arithmetic = self.flops / chip.matmul_rate(self.matmul.itemsize) * self.matmul.packing_factor(chip)
        return launch + max(arithmetic, self.nbytes / chip.bytes_per_second)
