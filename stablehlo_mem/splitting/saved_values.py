"""What a loop of an axis keeps for later ones, so that these need not compute it again.

A loop that waits for an earlier one computes again what both need of a chunk. A value that is kept whole spares the
later loop all that only it is made of: the ops it dominates, seen from what the loop is for. Dominators of a graph
without cycles take one pass: Cooper, Harvey & Kennedy, "A Simple, Fast Dominance Algorithm", 2001.

What is made again of a kept value is compiled otherwise than in the loop that made it first, and may be rounded
otherwise. The gradient of a maximum compares values with the largest of them, which none would be any more: nothing is
kept of which such values are made again. They themselves are, or all that they are made of is made again as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stablehlo_mem.analysis.cost_model import op_seconds
from stablehlo_mem.ir.graph import FLOATS, Graph
from stablehlo_mem.ir.matchers import splat_value
from stablehlo_mem.sharding_rules import is_free
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.splitting.loop_schedule import LoopSchedule, operand_uses
from stablehlo_mem.targets.chips import Chip

_Asked = Mapping[SplitOp, list[tuple[int, SplitOp | None]]]
"""Nodes that later loops run again, and who asks there for which of their results."""
_MOVES = 2
"""A value that is kept is written once and read again."""


def worth_keeping(graph: Graph, schedule: LoopSchedule, chip: Chip, largest: int) -> tuple[int, ...]:
    """The results of one op, of at most `largest` bytes, that save the most time if they are kept; () if none do.

    Loops that stream keep nothing.
    """
    if schedule.phases == 1 or schedule.streams.terms:
        return ()
    asked = _asked(graph, schedule)
    over = _dominators(asked)
    spared = {split_op: op_seconds(graph, split_op.op, chip) * (_runs(schedule, split_op) - 1) for split_op in asked}
    for split_op in reversed(over):
        above = over[split_op]
        if above is not None:
            spared[above] += spared[split_op]
    risky = _risky(graph, schedule, asked)
    best: tuple[int, ...] = ()
    most = 0.0
    for split_op, uses in asked.items():
        values = tuple(sorted({value for value, _ in uses}))
        nbytes = sum(graph.values[v].nbytes for v in values)
        seconds = spared[split_op] - _MOVES * nbytes / chip.bytes_per_second
        makes = all(schedule.may_keep.get(v) == split_op for v in values)
        may_be = makes and split_op not in risky and not is_free(graph.ops[split_op.op])
        if may_be and seconds > most and nbytes <= largest:
            best, most = values, seconds
    return best


def _runs(schedule: LoopSchedule, split_op: SplitOp) -> int:
    return schedule.loops_of[split_op].bit_count()


def _first(loops: int) -> int:
    """The lowest bit: the first of some loops."""
    return loops & -loops


def _asked(graph: Graph, schedule: LoopSchedule) -> _Asked:
    """The split ops that later loops run again, the last op first, and who asks for which of their results there.

    None stands for split ops that first run in such a later loop: no value kept earlier spares them.
    """
    found: dict[SplitOp, list[tuple[int, SplitOp | None]]] = {}
    ran = [split_op for split_op, loops in schedule.loops_of.items() if loops]
    for split_op in sorted(ran, key=lambda split_op: -split_op.op):
        for value, source in _sources(graph, schedule, split_op):
            if schedule.loops_of[split_op] & ~(2 * _first(schedule.loops_of[source]) - 1):
                again = split_op in found and _first(schedule.loops_of[split_op]) == _first(schedule.loops_of[source])
                found.setdefault(source, []).append((value, split_op if again else None))
    order = sorted(found, key=lambda split_op: -split_op.op)
    return {split_op: found[split_op] for split_op in order}


def _risky(graph: Graph, schedule: LoopSchedule, asked: _Asked) -> set[SplitOp]:
    """The split ops of whose results others that are compared with floats of the program's would be made again."""
    compared = _compared(graph, schedule)
    risky: set[SplitOp] = set()
    for split_op, uses in asked.items():
        for asker in (asker for _, asker in uses if asker is not None):
            if asker in (risky if is_free(graph.ops[asker.op]) else compared):
                risky.add(split_op)
    return risky


def _compared(graph: Graph, schedule: LoopSchedule) -> set[SplitOp]:
    """The split ops whose results floats are made of that are compared with others, not with constants."""
    found: set[SplitOp] = set()
    for split_op in sorted(schedule.loops_of, key=lambda split_op: -split_op.op):
        op = graph.ops[split_op.op]
        compares = op.name == "stablehlo.compare" and graph.values[op.operands[0]].dtype in FLOATS
        if split_op in found or (compares and all(splat_value(graph, v) is None for v in op.operands)):
            sources = (schedule.producers.get(use) for use in operand_uses(graph, split_op))
            found.update(source for source in sources if source is not None)
    return found


def _sources(graph: Graph, schedule: LoopSchedule, split_op: SplitOp) -> Iterator[tuple[int, SplitOp]]:
    """The values of a split op's operands that a loop after the one that computes them first computes again."""
    for use in operand_uses(graph, split_op):
        last = schedule.loops_of[split_op].bit_length() - 1
        source = schedule.source(use, last)
        if source is not None:
            yield use.value, source


def _dominators(asked: _Asked) -> dict[SplitOp, SplitOp | None]:
    """For each split op the nearest one without which no later loop would ask for it, None if there is none."""
    found: dict[SplitOp, SplitOp | None] = {}
    depth: dict[SplitOp | None, int] = {None: 0}
    for split_op, uses in asked.items():
        askers = [asker for _, asker in uses]
        one = askers[0]
        for other in askers[1:]:
            while one is not other:
                if depth.get(one, 0) >= depth.get(other, 0) and one is not None:
                    one = found.get(one)
                else:
                    other = found.get(other) if other is not None else None
        found[split_op] = one
        depth[split_op] = depth[one] + 1
    return found
