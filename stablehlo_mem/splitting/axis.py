"""An axis: the (value, dimension) pairs that are split together, grown from one seed by the ops' factor rules.

Growth goes downstream through big values: their users take part, or the value is needed whole. It goes upstream through
big values and free producers (broadcasts, iotas, splats), and through small values on a path that leaves the axis and
comes back (softmax's row maximum), if that removes a barrier. `candidates` grows axes at the peak, `split_step` grows
the one that is taken again.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections import deque
from collections.abc import Iterator, Mapping

from stablehlo_mem.analysis.fusion_classes import CLASSES, Class
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph, Op, producers_of
from stablehlo_mem.sharding_rules import OP_RULES, RuleBook, is_free
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.sharding_rules.halo import Use, Window
from stablehlo_mem.splitting.region_work import repeats_most

_MAX_CLOSURE = 256
"""Ops that a path through small values may have: without a limit one took in most ops of a network of 32 layers."""


@dataclasses.dataclass(frozen=True)
class Obstacle:
    """A big value that could not follow the axis: the op in the way and why."""

    value: int
    dimension: int
    op: int
    blocked: Blocked


@dataclasses.dataclass(frozen=True)
class Axis:
    """An axis of `n` elements through a graph. Axes are equal if they split alike, wherever they were grown from.

    Attributes:
        parts: what lies in parts on several devices is split within each, see `sharding_rules.op_rule.Chunk`.
        seed: the value and dimension it was grown from.
        big_bytes: values of at least this size were to be split.
        split_ops: the ops that take part, by op index; an op split along two factors is there twice.
        producers: the split op that computes the chunk of each use; None where it is sliced from the whole value.
        obstacles: where big values could not follow.
    """

    seed: tuple[int, int] = dataclasses.field(compare=False)
    n: int
    parts: int
    big_bytes: int = dataclasses.field(compare=False)
    split_ops: tuple[SplitOp, ...]
    producers: Mapping[Use, SplitOp | None]
    obstacles: tuple[Obstacle, ...] = dataclasses.field(compare=False)

    def __hash__(self) -> int:
        return hash((self.n, self.parts, len(self.producers), self.split_ops[:1]))

    @property
    def sliced_windows(self) -> Iterator[Use]:
        """The windows that are sliced from whole values."""
        return (use for use, split_op in self.producers.items() if use.window is not None and split_op is None)


def grow_axis(graph: Graph, rules: RuleBook, seed: tuple[int, int], big_bytes: int) -> Axis:
    """Grows the axis of a seed as far as it goes.

    If paths through small values close along fewer elements (a reshape separates these), that is the axis, as long as
    one element leaves no large value large.
    """
    n = graph.values[seed[0]].shape[seed[1]]
    axis, closing_n = _grow_along(graph, rules, seed, n, big_bytes)
    if closing_n in (1, axis.n):
        return axis
    coarser, _ = _grow_along(graph, rules, seed, closing_n, big_bytes)
    results = {v for split_op in coarser.split_ops for v in graph.ops[split_op.op].results}
    is_fine = max((graph.values[v].nbytes for v in results), default=0) <= coarser.n * big_bytes
    return coarser if is_fine and len(coarser.split_ops) > len(axis.split_ops) else axis


def _grow_along(graph: Graph, rules: RuleBook, seed: tuple[int, int], n: int, big_bytes: int) -> tuple[Axis, int]:
    """The axis of a seed of `n` elements at most, and along how many of them all paths may close that are open.

    Where an op splits the dimension more coarsely, the axis is grown again with as many elements as both can do. A
    value that windows are sliced from is whole, so the axis is grown again to end there. So it is where a loop makes
    the value and its chunks would repeat most of the loop's arithmetic. Where the axis meets a dimension that lies in
    parts on several devices, it is grown again within these.
    """
    stored, parts = frozenset[int](), 1
    while True:
        growth = _Growth(graph, rules.within(parts), seed, n, big_bytes, stored)
        axis = growth.run()
        in_parts = [o.blocked.parts for o in axis.obstacles if o.blocked.parts]
        if in_parts and n % in_parts[0] == 0 and n > in_parts[0]:
            parts = in_parts[0]
            continue
        coarser = math.gcd(n, *(o.blocked.coarser_n for o in axis.obstacles if o.blocked.coarser_n))
        whole = {u.value for u in axis.sliced_windows if graph.values[u.value].nbytes >= big_bytes}
        whole.update(v for s in axis.split_ops if repeats_most(graph, s) for v in graph.ops[s.op].results)
        if coarser in (1, n) and whole <= stored:
            return axis, math.gcd(n, *growth.open_paths)
        n, stored = n if coarser == 1 else coarser, stored | whole


class _Growth:
    def __init__(
        self, graph: Graph, rules: RuleBook, seed: tuple[int, int], n: int, big_bytes: int, stored: frozenset[int]
    ):
        self.graph, self.rules, self.seed, self.n, self.big_bytes = graph, rules, seed, n, big_bytes
        self.stored = stored
        self.split_ops: dict[tuple[int, int, Window | None], SplitOp] = {}
        """By op, factor and window."""
        self.op_indices: set[int] = set()
        self.producers: dict[Use, SplitOp | None] = {}
        self.obstacles: dict[Obstacle, None] = {}
        self.worklist: deque[SplitOp] = deque()
        self.failed: dict[Use, Use | None] = {}
        """Chunks that need a whole value, each with the next one on the way to it."""
        self.open_paths: set[int] = set()
        """Of paths through small values that may close along an axis of fewer elements, how many these are."""

    def run(self) -> Axis:
        self.demand(Use(*self.seed))
        self.downstream(*self.seed)
        self.drain()
        while self.close_paths():
            self.drain()
        # Stable: of one op and factor the split op on the chunk is first, then those in windows in the order found.
        keys = sorted(self.split_ops, key=lambda k: (k[0], k[1], k[2] is not None))
        split_ops = tuple(self.split_ops[key] for key in keys)
        obstacles = tuple(self.obstacles)
        return Axis(self.seed, self.n, self.rules.parts, self.big_bytes, split_ops, self.producers, obstacles)

    def drain(self) -> None:
        while self.worklist:
            split_op = self.worklist.popleft()
            op = self.graph.ops[split_op.op]
            for use in filter(None, split_op.uses(op.inputs)):
                (self.demand if use.window is None else self.demand_window)(use)
            if split_op.window or (self.is_free(split_op) and not self.only_adds_dimensions(op)):
                continue  # it is recomputed wherever it is used: its users need not be split
            for value, dimension in zip(op.results, split_op.result_dims, strict=True):
                if dimension is not None and self.is_big(value) and value not in self.stored:
                    self.downstream(value, dimension)

    def is_big(self, value: int) -> bool:
        return self.graph.values[value].nbytes >= self.big_bytes

    def add(self, split_op: SplitOp) -> None:
        key = (split_op.op, split_op.factor, split_op.window)
        if key not in self.split_ops:
            self.split_ops[key] = split_op
            self.op_indices.add(split_op.op)
            self.worklist.append(split_op)

    def downstream(self, value: int, dimension: int) -> None:
        """A big value's users take part, each along the first operand position that can."""
        for user in self.graph.users[value]:
            op = self.graph.ops[user]
            if user in self.op_indices or user == len(self.graph.ops) - 1:
                continue
            positions = [p for p, v in enumerate(op.inputs) if v == value]
            splits = [self.rules.split(user, "operands", p, dimension, self.n) for p in positions]
            split_op = next((s for s in splits if isinstance(s, SplitOp)), splits[0])
            if isinstance(split_op, SplitOp):
                self.add(split_op)
            else:
                self.obstacle(value, dimension, user, split_op)

    def obstacle(self, value: int, dimension: int, op: int, blocked: Blocked) -> None:
        if self.is_big(value):
            self.obstacles[Obstacle(value, dimension, op, blocked)] = None

    def demand(self, use: Use) -> None:
        """A chunk of a value is needed: its producer takes part if the value is big or it is free, or does already."""
        if use in self.producers:
            return
        split_op = self.split_producer(use)
        self.producers[use] = None
        if isinstance(split_op, Blocked):
            self.obstacle(use.value, use.dimension, self.graph.values[use.value].producer, split_op)
        elif split_op is not None and (self.is_big(use.value) or self.takes_part(split_op) or self.is_free(split_op)):
            self.producers[use] = split_op
            self.add(split_op)

    def demand_window(self, use: Use) -> None:
        """A window of a value is needed: it is computed from windows of what takes fewest bytes whole."""
        if use not in self.producers:
            self.producers[use] = None
            for window_use, split_op in cheapest_cut(self.graph, self.rules, use).items():
                self.producers[window_use] = split_op
                self.add(split_op)

    def split_producer(self, use: Use) -> SplitOp | Blocked | None:
        """The producer of a value split, None if the axis ends at the value."""
        value = self.graph.values[use.value]
        if not value.is_computed or use.value in self.stored:
            return None
        return self.rules.split(value.producer, "results", value.result, use.dimension, self.n)

    def takes_part(self, split_op: SplitOp) -> bool:
        return (split_op.op, split_op.factor, None) in self.split_ops

    def is_free(self, split_op: SplitOp) -> bool:
        return is_free(self.graph.ops[split_op.op])

    def only_adds_dimensions(self, op: Op) -> bool:
        """Whether a broadcast repeats nothing: where its result is needed whole, so is its operand."""
        sizes = [self.graph.values[v].nbytes for v in (*op.inputs, *op.results)]
        return len(sizes) == 2 and sizes[0] == sizes[1]

    def close_paths(self) -> bool:
        """Adds small values that depend on the axis where all of the way back to it can be split; whether any were."""
        before = len(self.split_ops)
        dependent = self.dependent_ops()
        sliced = [u for u, split_op in self.producers.items() if split_op is None and u.window is None]
        for use in (u for u in sliced if u.value not in self.stored):
            closure: dict[Use, SplitOp] = {}
            if self.graph.values[use.value].producer in dependent and self.closes(use, dependent, closure):
                self.producers.update(closure)
                for split_op in closure.values():
                    self.add(split_op)
        return len(self.split_ops) > before

    def dependent_ops(self) -> set[int]:
        """The ops that take part and all that depend on them, up to the last that takes part."""
        dependent = set(self.op_indices)
        sources = producers_of(self.graph)
        for op in range(min(dependent, default=0), max(dependent, default=0)):
            if not dependent.isdisjoint(sources[op]):
                dependent.add(op)
        return dependent

    def closes(self, use: Use, dependent: set[int], closure: dict[Use, SplitOp]) -> bool:
        """Whether a chunk of a value can be computed without any whole value that depends on the axis."""
        needed_for: dict[Use, Use] = {}
        worklist = [use]
        while worklist:
            current = worklist.pop()
            producer = self.graph.values[current.value].producer
            if current in closure or self.producers.get(current) or producer not in dependent:
                continue
            if len(closure) > _MAX_CLOSURE:
                return False
            split_op, fails = self.split_producer(current), self.still_fails(current)
            needed = self.needed(split_op, dependent) if isinstance(split_op, SplitOp) and not fails else None
            if isinstance(split_op, Blocked) and split_op.coarser_n:
                self.open_paths.add(split_op.coarser_n)
            if not isinstance(split_op, SplitOp) or needed is None:
                self.failed.setdefault(current, None)
                while (user := needed_for.get(current)) is not None:
                    self.failed[user] = current
                    current = user
                return False
            closure[current] = split_op
            needed_for.update(dict.fromkeys(needed, current))
            worklist += needed
        return True

    def still_fails(self, use: Use) -> bool:
        """Whether `closes` failed at a chunk, and nothing has been added since on the way to where it failed."""
        at: Use | None = use
        while at is not None:
            split_op = self.split_producer(at) if at in self.failed else None
            split = self.producers.get(at) or (isinstance(split_op, SplitOp) and self.takes_part(split_op))
            if at not in self.failed or split:
                self.failed.pop(use, None)
                return False
            at = self.failed[at]
        return True

    def needed(self, split_op: SplitOp, dependent: set[int]) -> list[Use] | None:
        """The chunks that a split op needs; None if it needs a whole value that depends on the axis."""
        if self.takes_part(split_op):
            return []
        inputs = self.graph.ops[split_op.op].inputs
        needed: list[Use] = []
        for value, use in zip(inputs, split_op.uses(inputs), strict=True):
            if use is not None and use.window is None:
                needed.append(use)
            elif self.graph.values[value].producer in dependent:
                return None
        return needed


def cheapest_cut(graph: Graph, rules: RuleBook, root: Use) -> dict[Use, SplitOp]:
    """The split ops that compute a window of a value from windows of values of the fewest bytes, by what they compute.

    Goes back op by op, last ones first, so that the frontier is at any time enough to compute the window. Of cuts of
    equal bytes the one furthest back is taken: what is nearer need not be there whole then.
    """
    computed: dict[Use, SplitOp] = {}
    frontier, heap = {root}, [(_heap_key(graph, root), root)]
    fewest, cut = _whole_bytes(graph, frontier), 0
    while heap:
        _, use = heapq.heappop(heap)
        split_op = _windowed_producer(graph, rules, use)
        if split_op is None:
            continue
        computed[use] = split_op
        frontier.discard(use)
        for read in filter(None, split_op.uses(graph.ops[split_op.op].inputs)):
            if read not in frontier and read not in computed:
                frontier.add(read)
                heapq.heappush(heap, (_heap_key(graph, read), read))
        nbytes = _whole_bytes(graph, frontier)
        if nbytes <= fewest:
            fewest, cut = nbytes, len(computed)
    return dict(itertools.islice(computed.items(), cut))


def _heap_key(graph: Graph, use: Use) -> int:
    """Free ops first, then from the last op to the first."""
    op = graph.producer(use.value)
    return -len(graph.ops) if op is not None and is_free(op) else -graph.values[use.value].producer


def _whole_bytes(graph: Graph, uses: set[Use]) -> int:
    return sum(graph.values[v].nbytes for v in {use.value for use in uses})


def _windowed_producer(graph: Graph, rules: RuleBook, use: Use) -> SplitOp | None:
    """The producer of a value in a window, if it reads nothing but that window and is cheap: no matmul, none slides."""
    value = graph.values[use.value]
    if not value.is_computed or use.window is None:
        return None
    name = graph.ops[value.producer].name
    rule = OP_RULES.get(name)
    if rule is None or rule.edges is not None:
        return None
    if rule.reduction is not None and CLASSES.get(name) is not Class.REDUCE:
        return None
    split_op = rules.split(value.producer, "results", value.result, use.dimension, use.window.n)
    return split_op.at(use.window) if isinstance(split_op, SplitOp) and split_op.is_local else None
