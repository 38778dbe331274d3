"""Which values a loop should save for later loops of the same axis, that would recompute them: used by `candidates`.

Loops that wait for one another recompute what they need of a chunk, or read what an earlier one saved whole. What costs
least is a minimum cut between what a later loop has to run and all that it would recompute: a saved value is cut where
it is read, at the price of its bytes, and a recomputed op where it is run, at the price of its time. So partitioners of
forward and backward programs choose what is kept for the latter (functorch's min-cut; Jain et al., "Checkmate", 2020).
With a price for a byte that grows from nothing, cuts save ever less.

What is computed from a saved value is compiled otherwise than in the loop that computed it first, and may round
otherwise. The gradient of a maximum compares values with the largest of them, and none would be equal. So nothing is
saved from which a value is recomputed that is compared with floats; it may be saved itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from stablehlo_mem.analysis.cost_model import op_seconds
from stablehlo_mem.ir.graph import FLOATS, Graph
from stablehlo_mem.ir.matchers import splat_value
from stablehlo_mem.sharding_rules import is_free
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.splitting.loop_schedule import LoopSchedule, operand_uses
from stablehlo_mem.targets.chips import Chip
from stablehlo_mem.utils.minimum_cut import NEVER, Network, minimum_cut

_Users = Mapping[SplitOp, list[tuple[int, SplitOp | None]]]
"""For each split op that later loops recompute: pairs (result, the split op that needs it there); None for a user that
has to run in the later loop, as no earlier one runs it or it leaves something there."""
_PASSES = 2
"""Over memory: a saved value is written once and read again."""
_HALVINGS = 2
"""Of the front: at most four sets are tried, chosen for planning time."""


def worth_saving(graph: Graph, schedule: LoopSchedule, chip: Chip, largest: int) -> list[tuple[int, ...]]:
    """Sets of values, of at most `largest` bytes each, that save the most time for their bytes; the fastest set first.

    They are the corners of the convex front of bytes and seconds. Online loops save nothing.
    """
    if schedule.loop_count == 1 or schedule.is_online:
        return []
    front = _Front(_recomputed(graph, schedule, chip, largest), chip, largest)
    return [cut.saved for cut in front.corners()]


@dataclasses.dataclass(frozen=True)
class _Recomputed:
    """A split op that a later loop runs though an earlier one could.

    Attributes:
        values: those of its results that later loops need, and their bytes.
        seconds: what running it again takes.
        is_savable: whether its results may be saved.
        sources: the positions of those of its operands' ops that are recomputed too if it is.
        is_needed: whether something needs it that no earlier loop could run.
    """

    values: tuple[int, ...]
    nbytes: int
    seconds: float
    is_savable: bool
    sources: tuple[int, ...]
    is_needed: bool


@dataclasses.dataclass(frozen=True)
class _Cut:
    """What is saved, its bytes, and what saving it and recomputing the others takes."""

    saved: tuple[int, ...]
    nbytes: int
    seconds: float


def _recomputed(graph: Graph, schedule: LoopSchedule, chip: Chip, largest: int) -> list[_Recomputed]:
    """What later loops recompute, the last op first."""
    users = _users_in_later_loops(graph, schedule)
    excluded = _feeding_comparisons(graph, schedule, users)
    position = {split_op: i for i, split_op in enumerate(users)}
    sources: dict[SplitOp, list[int]] = {split_op: [] for split_op in users}
    for source, uses in users.items():
        for user in (user for _, user in uses if user is not None):
            sources[user].append(position[source])
    found: list[_Recomputed] = []
    for split_op, uses in users.items():
        values = tuple(sorted({value for value, _ in uses}))
        nbytes = sum(graph.values[v].nbytes for v in values)
        savable = all(schedule.savable.get(v) == split_op for v in values) and nbytes <= largest
        savable = savable and split_op not in excluded and not is_free(graph.ops[split_op.op])
        seconds = op_seconds(graph, split_op.op, chip) * (len(schedule.loops_of[split_op]) - 1)
        is_needed = any(user is None for _, user in uses)
        found.append(_Recomputed(values, nbytes, seconds, savable, tuple(sources[split_op]), is_needed))
    return found


class _Front:
    """The front of bytes and seconds of some loops: what costs least at each price of a saved byte."""

    def __init__(self, recomputed: list[_Recomputed], chip: Chip, largest: int):
        self.recomputed, self.largest = recomputed, largest
        self.passes = _PASSES / chip.bytes_per_second

    def corners(self) -> Iterator[_Cut]:
        """Cuts of at most the largest bytes that save anything, the fastest first."""
        nothing, fastest = _Cut((), 0, sum(one.seconds for one in self.recomputed)), self.cut(0.0)
        if 0 < fastest.nbytes <= self.largest:
            yield fastest
        if fastest.nbytes:
            yield from self.between(fastest, nothing, _HALVINGS)

    def between(self, faster: _Cut, smaller: _Cut, halvings: int) -> Iterator[_Cut]:
        """The corners between two points of the front: the cut at the price that makes these equally good, and on."""
        cut = self.cut((smaller.seconds - faster.seconds) / (faster.nbytes - smaller.nbytes)) if halvings else faster
        if not smaller.nbytes < cut.nbytes < faster.nbytes:
            return
        if cut.nbytes > self.largest:
            yield from self.between(cut, smaller, halvings)
        else:
            yield from self.between(faster, cut, halvings - 1)
            yield cut
            yield from self.between(cut, smaller, halvings - 1)

    def cut(self, price: float) -> _Cut:
        """What costs least where a saved byte has a price, in seconds, beside the passes over memory.

        An op is two nodes: into the first one go those that need its results, between the two they are saved.
        """
        network = Network(2 * len(self.recomputed))
        for i, one in enumerate(self.recomputed):
            saving = one.nbytes * (self.passes + price) if one.is_savable else NEVER
            network.connect(2 * i, 2 * i + 1, saving)
            network.connect(2 * i + 1, network.sink, one.seconds)
            if one.is_needed:
                network.connect(network.source, 2 * i, NEVER)
            for source in one.sources:
                network.connect(2 * i + 1, 2 * source, NEVER)
        reached = minimum_cut(network)
        saved = [one for i, one in enumerate(self.recomputed) if 2 * i in reached and 2 * i + 1 not in reached]
        nbytes = sum(one.nbytes for one in saved)
        again = sum(one.seconds for i, one in enumerate(self.recomputed) if 2 * i + 1 in reached)
        return _Cut(tuple(v for one in saved for v in one.values), nbytes, again + self.passes * nbytes)


def _users_in_later_loops(graph: Graph, schedule: LoopSchedule) -> _Users:
    """The split ops that later loops run though earlier ones could, the last op first, with their users there."""
    earliest = schedule.earliest
    left = {output.split_op: output.loop for output in schedule.outputs}
    users: dict[SplitOp, list[tuple[int, SplitOp | None]]] = {}
    for split_op, loops in sorted(schedule.loops_of.items(), key=lambda item: -item[0].op):
        last = max(loops)
        for use in operand_uses(graph, split_op):
            source = schedule.producer_in(last, use)
            if source is not None and last > (first := earliest[source]):
                uses = users.setdefault(source, [])
                recomputed = split_op in users and earliest[split_op] == first
                if recomputed:
                    uses.append((use.value, split_op))
                if not recomputed or left.get(split_op, first) > first:
                    uses.append((use.value, None))
    return {split_op: users[split_op] for split_op in sorted(users, key=lambda split_op: -split_op.op)}


def _feeding_comparisons(graph: Graph, schedule: LoopSchedule, users: _Users) -> set[SplitOp]:
    """Split ops not to be saved: a float that is compared would be recomputed from them, and might round otherwise."""
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
