"""An axis: the (value, dimension) pairs that move together, grown from one seed by the ops' factor rules.

Growth goes downstream through big values, whose users must take part or the value stays; upstream through big
values and free producers (broadcasts, iotas, splats); and through small values on a path that leaves the big ones
and comes back (softmax's row maximum), when that removes a barrier.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Iterator, Mapping

from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph, producers_of
from stablehlo_mem.sharding_rules import OP_RULES, RuleBook
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.sharding_rules.halo import Use, Window
from stablehlo_mem.splitting.window_cuts import cheapest_cut

_Key = tuple[int, int, Window | None]
"""Of a split_op: its op, its factor and its window."""

_MAX_CLOSURE = 256
"""Ops a path through small values may have before it is left alone as a barrier."""


@dataclasses.dataclass(frozen=True)
class Obstacle:
    """A big value that could not follow the axis: the op in the way and why."""

    value: int
    dimension: int
    op: int
    blocked: Blocked


@dataclasses.dataclass(frozen=True)
class Axis:
    """An axis of `n` elements through a graph.

    Attributes:
        seed: where it was grown from.
        big_bytes: values of at least this size were to be split.
        split ops: the ops that take part, by op index; an op split along two factors has two split ops.
        producers: for each use some split op makes of a value along the axis, the split op that computes the chunk,
            or None where the chunk is sliced from the whole value.
        obstacles: where big values could not follow.
    """

    seed: tuple[int, int]
    n: int
    big_bytes: int
    split_ops: tuple[SplitOp, ...]
    producers: Mapping[Use, SplitOp | None]
    obstacles: tuple[Obstacle, ...]

    @property
    def cuts(self) -> Iterator[Use]:
        """The windows that are sliced from whole values."""
        return (use for use, split_op in self.producers.items() if use.window is not None and split_op is None)


def grow_axis(graph: Graph, rules: RuleBook, seed: tuple[int, int], big_bytes: int) -> Axis:
    """Grows the axis of a seed as far as it goes. Analysis only; deterministic.

    Where an op splits the dimension more coarsely (a reshape that separates it), the axis is grown again with as
    many elements as both can do. Where windows are cut from a value it is stored whatever comes before and after, so
    the axis is grown again and ends there.
    """
    n, stored = graph.values[seed[0]].shape[seed[1]], frozenset[int]()
    while True:
        axis = _Growth(graph, rules, seed, n, big_bytes, stored).run()
        coarser = math.gcd(n, *(o.blocked.coarser_n for o in axis.obstacles if o.blocked.coarser_n))
        cut = stored | {u.value for u in axis.cuts if graph.values[u.value].nbytes >= big_bytes}
        if coarser in (1, n) and cut == stored:
            return axis
        n, stored = n if coarser == 1 else coarser, cut


class _Growth:
    def __init__(
        self, graph: Graph, rules: RuleBook, seed: tuple[int, int], n: int, big_bytes: int, stored: frozenset[int]
    ):
        self.graph, self.rules, self.seed, self.n, self.big_bytes = graph, rules, seed, n, big_bytes
        self.stored = stored
        self.split_ops: dict[_Key, SplitOp] = {}
        self.op_indices: set[int] = set()
        self.producers: dict[Use, SplitOp | None] = {}
        self.obstacles: dict[Obstacle, None] = {}
        self.queue: deque[SplitOp] = deque()
        self.failed: dict[Use, Use | None] = {}
        """Chunks that need a whole value, and the one on the way to it."""

    def run(self) -> Axis:
        self.demand(Use(*self.seed))
        self.downstream(*self.seed)
        self.drain()
        while self.close_paths():
            self.drain()
        # Stable: of one op and factor the split op on the chunk came first, or those in windows in the order found.
        split_ops = tuple(
            self.split_ops[k] for k in sorted(self.split_ops, key=lambda k: (k[0], k[1], k[2] is not None))
        )
        return Axis(self.seed, self.n, self.big_bytes, split_ops, self.producers, tuple(self.obstacles))

    def drain(self) -> None:
        while self.queue:
            split_op = self.queue.popleft()
            op = self.graph.ops[split_op.op]
            for use in filter(None, split_op.uses(op.inputs)):
                (self.demand if use.window is None else self.demand_window)(use)
            # What is free is made again wherever it is used: its users need not run together.
            results = (
                () if self.is_free(split_op) or split_op.window else zip(op.results, split_op.result_dims, strict=True)
            )
            for value, dimension in results:
                if dimension is not None and self.is_big(value) and value not in self.stored:
                    self.downstream(value, dimension)

    def is_big(self, value: int) -> bool:
        return self.graph.values[value].nbytes >= self.big_bytes

    def add(self, split_op: SplitOp) -> None:
        key = (split_op.op, split_op.factor, split_op.window)
        if key not in self.split_ops:
            self.split_ops[key] = split_op
            self.op_indices.add(split_op.op)
            self.queue.append(split_op)

    def downstream(self, value: int, dimension: int) -> None:
        """A big value's users take part, each along the first operand position that can."""
        for user in self.graph.users[value]:
            op = self.graph.ops[user]
            if user in self.op_indices or user == len(self.graph.ops) - 1:
                continue
            places = [p for p, v in enumerate(op.inputs) if v == value]
            tries = [self.rules.placed(user, "operands", p, dimension, self.n) for p in places]
            split_ops = [t for t in tries if isinstance(t, SplitOp)]
            if split_ops:
                self.add(split_ops[0])
            else:
                self.obstacle(value, dimension, user, next(t for t in tries if isinstance(t, Blocked)))

    def obstacle(self, value: int, dimension: int, op: int, blocked: Blocked) -> None:
        if self.is_big(value):
            self.obstacles[Obstacle(value, dimension, op, blocked)] = None

    def demand(self, use: Use) -> None:
        """Somebody needs a chunk of a value: its producer takes part if that is needed or free."""
        if use in self.producers:
            return
        split_op = self.producer_node(use) if use.value not in self.stored else None
        self.producers[use] = None
        if isinstance(split_op, Blocked):
            self.obstacle(use.value, use.dimension, self.graph.values[use.value].producer, split_op)
        elif split_op is not None and (self.is_big(use.value) or self.is_known(split_op) or self.is_free(split_op)):
            self.producers[use] = split_op
            self.add(split_op)

    def demand_window(self, use: Use) -> None:
        """Somebody needs a window of a value: what makes it of less than itself takes part there."""
        if use not in self.producers:
            self.producers[use] = None
            for window_use, split_op in cheapest_cut(self.graph, self.rules, use).items():
                self.producers[window_use] = split_op
                self.add(split_op)

    def producer_node(self, use: Use) -> SplitOp | Blocked | None:
        value = self.graph.values[use.value]
        if value.producer < 0:
            return None
        return self.rules.placed(value.producer, "results", value.result, use.dimension, self.n)

    def is_known(self, split_op: SplitOp) -> bool:
        return (split_op.op, split_op.factor, None) in self.split_ops

    def is_free(self, split_op: SplitOp) -> bool:
        return OP_RULES[self.graph.ops[split_op.op].name].free

    def close_paths(self) -> bool:
        """Pulls in small values that depend on the axis where all of the way back can be chunked too."""
        before = len(self.split_ops)
        tainted = self.tainted_ops()
        sliced = [u for u, split_op in self.producers.items() if split_op is None and u.window is None]
        for use in (u for u in sliced if u.value not in self.stored):
            closure: dict[Use, SplitOp] = {}
            if self.graph.values[use.value].producer in tainted and self.closes(use, tainted, closure):
                self.producers.update(closure)
                for split_op in closure.values():
                    self.add(split_op)
        return len(self.split_ops) > before

    def tainted_ops(self) -> set[int]:
        """The ops that take part and all that depend on them, up to the last that takes part."""
        tainted = set(self.op_indices)
        sources = producers_of(self.graph)
        for op in range(min(tainted, default=0), max(tainted, default=0)):
            if not tainted.isdisjoint(sources[op]):
                tainted.add(op)
        return tainted

    def closes(self, use: Use, tainted: set[int], closure: dict[Use, SplitOp]) -> bool:
        """Whether a chunk of a value can be computed without any whole value that depends on the axis."""
        needed_for: dict[Use, Use] = {}
        pending = [use]
        while pending:
            current = pending.pop()
            producer = self.graph.values[current.value].producer
            if current in closure or self.producers.get(current) or producer not in tainted:
                continue
            if len(closure) > _MAX_CLOSURE:
                return False
            split_op = self.producer_node(current) if current.value not in self.stored else None
            fails = self.still_fails(current)
            needed = self.needed(split_op, tainted) if isinstance(split_op, SplitOp) and not fails else None
            if not isinstance(split_op, SplitOp) or needed is None:
                self.failed.setdefault(current, None)
                while (asking := needed_for.get(current)) is not None:
                    self.failed[asking] = current
                    current = asking
                return False
            closure[current] = split_op
            needed_for.update(dict.fromkeys(needed, current))
            pending += needed
        return True

    def still_fails(self, use: Use) -> bool:
        """Whether nothing has been added since on the way to where a walk through a chunk failed."""
        at: Use | None = use
        while at is not None:
            split_op = self.producer_node(at) if at in self.failed else None
            if (
                at not in self.failed
                or self.producers.get(at)
                or (isinstance(split_op, SplitOp) and self.is_known(split_op))
            ):
                self.failed.pop(use, None)
                return False
            at = self.failed[at]
        return True

    def needed(self, split_op: SplitOp, tainted: set[int]) -> list[Use] | None:
        """The chunks that a split op needs and somebody must compute; None if it needs a whole value of them."""
        if self.is_known(split_op):
            return []
        inputs = self.graph.ops[split_op.op].inputs
        found: list[Use] = []
        for value, read in zip(inputs, split_op.uses(inputs), strict=True):
            if read is not None and read.window is None:
                found.append(read)
            elif self.graph.values[value].producer in tainted:
                return None
        return found
