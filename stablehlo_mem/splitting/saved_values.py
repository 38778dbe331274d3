"""Which values a loop should save for later loops of the same axis, that would recompute them: used by `candidates`.

Loops that wait for one another recompute what they need of a chunk. A value saved whole spares the later loops all that
only it needs: the ops it dominates in the graph from users to operands. Dominators of an acyclic graph take one pass:
Cooper, Harvey & Kennedy, "A Simple, Fast Dominance Algorithm", 2001.

What is computed from a saved value is compiled otherwise than in the loop that computed it first, and may round
otherwise. The gradient of a maximum compares values with the largest of them, and none would be equal. So nothing is
saved from which a value is recomputed that is compared with floats; it may be saved itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from stablehlo_mem.analysis.cost_model import op_seconds
from stablehlo_mem.ir.graph import FLOATS, Graph
from stablehlo_mem.ir.matchers import splat_value
from stablehlo_mem.sharding_rules import is_free
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.splitting.loop_schedule import LoopSchedule, operand_uses
from stablehlo_mem.targets.chips import Chip

_Users = Mapping[SplitOp, list[tuple[int, SplitOp | None]]]
"""For each split op that later loops recompute: which result who needs there, None for who does not run earlier."""
_PASSES = 2
"""Over memory: a saved value is written once and read again."""


def worth_saving(graph: Graph, schedule: LoopSchedule, chip: Chip, largest: int) -> tuple[int, ...]:
    """The results of one op, of at most `largest` bytes, that save the most time if they are saved; () if none do.

    Online loops save nothing.
    """
    if schedule.loop_count == 1 or schedule.is_online:
        return ()
    users = _users_in_later_loops(graph, schedule)
    dominators = _dominators(users)
    spared = {s: op_seconds(graph, s.op, chip) * (len(schedule.loops_of[s]) - 1) for s in users}
    for split_op in reversed(dominators):
        dominator = dominators[split_op]
        if dominator is not None:
            spared[dominator] += spared[split_op]
    excluded = _feeding_comparisons(graph, schedule, users)
    best: tuple[int, ...] = ()
    most = 0.0
    for split_op, uses in users.items():
        values = tuple(sorted({value for value, _ in uses}))
        nbytes = sum(graph.values[v].nbytes for v in values)
        seconds = spared[split_op] - _PASSES * nbytes / chip.bytes_per_second
        savable = all(schedule.savable.get(v) == split_op for v in values)
        savable = savable and split_op not in excluded and not is_free(graph.ops[split_op.op])
        if savable and seconds > most and nbytes <= largest:
            best, most = values, seconds
    return best


def _users_in_later_loops(graph: Graph, schedule: LoopSchedule) -> _Users:
    """The split ops that later loops recompute, the last op first, with their users there."""
    users: dict[SplitOp, list[tuple[int, SplitOp | None]]] = {}
    for split_op, loops in sorted(schedule.loops_of.items(), key=lambda item: -item[0].op):
        last = max(loops)
        for use in operand_uses(graph, split_op):
            source = schedule.producer_in(last, use)
            if source is not None and last > (first := min(schedule.loops_of[source])):
                recomputed = split_op in users and min(loops) == first
                users.setdefault(source, []).append((use.value, split_op if recomputed else None))
    return {split_op: users[split_op] for split_op in sorted(users, key=lambda split_op: -split_op.op)}


def _feeding_comparisons(graph: Graph, schedule: LoopSchedule, users: _Users) -> set[SplitOp]:
    """The split ops from whose results values would be recomputed that are compared with floats of the program."""
    compared = _compared(graph, schedule)
    feeding: set[SplitOp] = set()
    for split_op, uses in users.items():
        for user in (user for _, user in uses if user is not None):
            if user in (feeding if is_free(graph.ops[user.op]) else compared):
                feeding.add(split_op)
    return feeding


def _compared(graph: Graph, schedule: LoopSchedule) -> set[SplitOp]:
    """The split ops that floats are computed from that are compared with others, not with constants."""
    compared: set[SplitOp] = set()
    for split_op in sorted(schedule.loops_of, key=lambda split_op: -split_op.op):
        op = graph.ops[split_op.op]
        compares = op.name == "stablehlo.compare" and graph.values[op.operands[0]].dtype in FLOATS
        if split_op in compared or (compares and all(splat_value(graph, v) is None for v in op.operands)):
            sources = (schedule.producers.get(use) for use in operand_uses(graph, split_op))
            compared.update(source for source in sources if source is not None)
    return compared


def _dominators(users: _Users) -> dict[SplitOp, SplitOp | None]:
    """For each split op the nearest one without which no later loop would need it, None if there is none."""
    dominators: dict[SplitOp, SplitOp | None] = {}
    depth: dict[SplitOp | None, int] = {None: 0}
    for split_op, uses in users.items():
        common, *others = [user for _, user in uses]
        for other in others:
            while common is not other:
                if depth.get(common, 0) >= depth.get(other, 0) and common is not None:
                    common = dominators.get(common)
                else:
                    other = dominators.get(other) if other is not None else None
        dominators[split_op] = common
        depth[split_op] = depth[common] + 1
    return dominators
