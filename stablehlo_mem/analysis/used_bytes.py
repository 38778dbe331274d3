"""How much of a value kernels use: of what they compute on the fly and only slice, what the slices take.

`kernel_traffic` asks for what is read, `cost_model` for what is computed, `recompute_in_loops` for what a loop reads.
"""

from __future__ import annotations

from typing import NamedTuple

from stablehlo_mem.analysis.fusion import Buffers, plan_buffers
from stablehlo_mem.analysis.fusion_classes import FUSED, SLICES, classify
from stablehlo_mem.analysis.op_cost import buffer_bytes
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.ir.loop_carries import readers_in
from stablehlo_mem.targets.chips import Chip

_OTHER_ELEMENTS = frozenset({"stablehlo.reduce_window", "stablehlo.pad", "stablehlo.concatenate"})
"""Fused ops of which a part of the result needs another share of an operand."""


class UsedBytes(NamedTuple):
    """How much of the values of a block is used.

    Attributes:
        nbytes: per value, what all its users use together, at most all of it.
        sliced: the values of which no user uses all.
    """

    nbytes: tuple[int, ...]
    sliced: frozenset[int]


def computed_share(graph: Graph, op: Op, chip: Chip) -> float:
    """The share of an op's result that is computed: less than 1 if kernels compute it on the fly for slices of it."""
    return used_share(graph, op.results[0], chip) if _is_on_the_fly(graph, op, plan_buffers(graph, chip)) else 1.0


def used_share(graph: Graph, value: int, chip: Chip) -> float:
    """The share of a value that its users in a block use."""
    return used_bytes(graph, chip).nbytes[value] / max(1, buffer_bytes(graph, (value,), chip))


@cached_analysis
def used_bytes(graph: Graph, chip: Chip) -> UsedBytes:
    """How much of each value kernels use. Linear in ops."""
    buffers = plan_buffers(graph, chip)
    stored = [buffer_bytes(graph, (v,), chip) for v in range(len(graph.values))]
    used, sliced = [0] * len(stored), set[int]()

    def used_by(user: Op, value: int) -> int:
        is_on_the_fly = _is_on_the_fly(graph, user, buffers)
        if user.name in SLICES and value == user.operands[0]:
            return used[user.results[0]] if is_on_the_fly else stored[user.results[0]]
        if not is_on_the_fly or user.name in _OTHER_ELEMENTS:
            return stored[value]
        return stored[value] * used[user.results[0]] // max(1, stored[user.results[0]])

    # Users come before what they use. What a loop hands on unchanged, such as a stack, stays where it is.
    of_ops = [v for op in reversed(graph.ops) for v in op.results]
    for value in (*of_ops, *(v for v, data in enumerate(graph.values) if not data.is_computed)):
        users = (graph.ops[user] for user in readers_in(graph, value))
        uses = [used_by(user, value) for user in users]
        used[value] = min(stored[value], sum(uses))
        if max(uses, default=0) < stored[value]:
            sliced.add(value)
    return UsedBytes(tuple(used), frozenset(sliced))


def _is_on_the_fly(graph: Graph, op: Op, buffers: Buffers) -> bool:
    """Whether kernels that use an op's result compute what they need of it."""
    if len(op.results) != 1 or classify(graph, op) not in FUSED:
        return False
    return not buffers.materialised[op.results[0]] and op.results[0] not in graph.returned
