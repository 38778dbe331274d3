"""What computes values of straight-line code again after a place, from values that stay.

A *residual* is written before the place and read after it, as the backward pass reads what the forward pass computed.
The ops before the place are taken in *segments*: between two of them little is handed on, between two layers say only
the activations. What of a segment is dropped is computed again at once, before its first reader after the place, from
what the segment begins with and what stays: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
`recompute_residuals` calls it.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence

from stablehlo_mem.analysis.cost_model import fused_seconds
from stablehlo_mem.analysis.fusion import plan_buffers
from stablehlo_mem.analysis.fusion_classes import CLASSES, Class, buffer_root, classify, is_nested, multiplies
from stablehlo_mem.ir.barriers import group_of
from stablehlo_mem.ir.graph import Graph, Op, effects
from stablehlo_mem.targets.chips import Chip

_LARGE_SHARE = 64
"""Residuals smaller than the largest one over this stay: what they free is next to nothing (chosen)."""
_MAX_SEGMENTS = 512
"""Segments that are considered at most: more than the layers of any model we know, twice."""
_MORE_SEGMENTS = 1.25
"""Each division has this many times the segments of the one before, so that one has nearly as many as there are layers.
Its segments are at most a quarter larger than a layer and end where a layer ends, not halfway through the next one,
where as little may be handed on (chosen). Divisions whose bytes differ by no more are taken to need the same."""


@dataclasses.dataclass(frozen=True)
class Recomputed:
    """What of a segment is computed again.

    Attributes:
        before: the op of the block before which it is.
        ops: what is repeated, in program order.
        sources: the values of the block that the repetition reads behind a barrier.
        awaited: the values that it waits for.
        gathered: those that no device has whole, and that matmuls after the barrier read as others before it do.
    """

    before: int
    ops: tuple[int, ...]
    sources: tuple[int, ...]
    awaited: tuple[int, ...]
    gathered: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Recomputation:
    """A set of residuals that are dropped.

    Attributes:
        segments: what is computed again, in the order in which it is built.
        nbytes: of the residuals.
        kept_bytes: of what stays alive for it, and did not before.
        seconds: that it adds.
    """

    segments: tuple[Recomputed, ...]
    nbytes: int
    kept_bytes: int
    seconds: float


def is_rearranged(graph: Graph, op: Op) -> bool:
    """Whether an op is a view of its operand, or converts or transposes it."""
    return classify(graph, op) is Class.VIEW or op.name in ("stablehlo.convert", "stablehlo.transpose")


class Residuals:
    """The residuals around an op of a block.

    Attributes:
        droppable: the large ones that can be computed again, without those that segments begin with, and without those
            that are read at once: there is nothing to wait for.
        begins: the first op of each segment but the first.
        handed_on: the values that are alive where a segment begins.
    """

    def __init__(self, graph: Graph, place: int, chip: Chip):
        self.graph, self.place, self.chip = graph, place, chip
        self.buffers = plan_buffers(graph, chip)
        found = [v for v in range(len(graph.values)) if self.is_residual(v) and not self.buffers.generated[v]]
        least = max(1, max((graph.values[v].nbytes for v in found), default=0) // _LARGE_SHARE)
        returned = {buffer_root(graph, v) for v in graph.returned}
        large = [v for v in found if graph.values[v].nbytes >= least and v not in returned]
        # What is read at once is there in any case: segments are not divided by it.
        later = [v for v in large if self.awaited(self.place, self.first_read(v))]
        self.begins, self.handed_on = self.segmented(later)
        self.droppable = [v for v in later if v not in self.handed_on and self.ops_of([v], {v}) is not None]

    def is_residual(self, value: int) -> bool:
        """Whether a kernel before the place writes a value and one after it reads the value, or it is returned."""
        data = self.graph.values[value]
        if not data.is_computed or data.producer >= self.place or not self.buffers.materialised[value]:
            return False
        return self.last_read(value) > self.place

    def last_read(self, value: int) -> int:
        """The last kernel that reads a value, or the end of the block that returns it."""
        readers = self.buffers.readers.get(value, ())
        return max(readers, default=-1)

    def first_read(self, value: int) -> int:
        """The first kernel after the place that reads a value."""
        return min(reader for reader in self.buffers.readers[value] if reader > self.place)

    @functools.cached_property
    def crossing(self) -> list[tuple[int, int, int]]:
        """For each value that kernels up to the place write and read: where, and the last one that reads it."""
        found: list[tuple[int, int, int]] = []
        for value, readers in self.buffers.readers.items():
            producer = self.graph.values[value].producer
            if 0 <= producer < self.place and not self.buffers.generated[value]:
                last = max((r for r in readers if r <= self.place), default=producer)
                if last > producer:
                    found.append((value, producer, last))
        return found

    @functools.cached_property
    def handed_bytes(self) -> list[int]:
        """For each op up to the place the bytes that kernels before it hand on to it and those after it."""
        change = [0] * (self.place + 2)
        for value, producer, last in self.crossing:
            change[producer + 1] += self.graph.values[value].nbytes
            change[last + 1] -= self.graph.values[value].nbytes
        return list(itertools.accumulate(change))[: self.place + 1]

    def segmented(self, residuals: Sequence[int]) -> tuple[tuple[int, ...], frozenset[int]]:
        """Where segments begin and what is alive there: both and the largest segment take few bytes.

        Of divisions that need about as much it is the finest: what they hand on is not computed again.
        """
        values = self.graph.values
        residuals = sorted(residuals, key=lambda v: values[v].producer)
        producers = [values[v].producer for v in residuals]
        reached = [0, *itertools.accumulate(values[v].nbytes for v in residuals)]
        found: list[tuple[int, tuple[int, ...], frozenset[int]]] = [(reached[-1], (), frozenset())]
        for begins in self.divisions(producers, reached):
            handed = frozenset(v for v, *_ in self.handed_at(begins))
            ends = [bisect.bisect_left(producers, begin) for begin in (0, *begins, self.place)]
            largest = max(
                sum(values[v].nbytes for v in residuals[first:end] if v not in handed)
                for first, end in itertools.pairwise(ends)
            )
            found.append((largest + sum(values[v].nbytes for v in handed), begins, handed))
        most = _MORE_SEGMENTS * min(needed for needed, *_ in found)
        _, begins, handed = max((one for one in found if one[0] <= most), key=lambda one: (len(one[1]), -one[0]))
        return begins, handed

    def divisions(self, producers: Sequence[int], reached: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Where ever more segments begin, with and without one for what follows the last residual."""
        if not producers:
            return
        last = self.least_handed_on(range(producers[-1] + 1, self.place + 1))
        count = 2
        while limit := reached[-1] // count:
            begins = self.begins_for(producers, reached, limit)
            yield begins
            yield *begins, last
            if len(begins) >= min(_MAX_SEGMENTS, len(producers)):
                break
            count = math.ceil(_MORE_SEGMENTS * count)

    def least_handed_on(self, places: Sequence[int]) -> int:
        """Where the least is handed on: the last of such places, and as soon as that is there."""
        begin = min(reversed(places), key=self.handed_bytes.__getitem__)
        while begin > places[0] and self.handed_bytes[begin - 1] == self.handed_bytes[begin]:
            begin -= 1
        return begin

    def handed_at(self, begins: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """What is handed on where segments begin."""
        for value, producer, last in self.crossing:
            following = bisect.bisect_right(begins, producer)
            if following < len(begins) and begins[following] <= last:
                yield value, producer, last

    def begins_for(self, producers: Sequence[int], reached: Sequence[int], limit: int) -> tuple[int, ...]:
        """Where segments begin that have so many bytes of residuals at most, and hand on as little as can be."""
        begins: list[int] = []
        first = 0
        while first < len(producers) and len(begins) <= _MAX_SEGMENTS:
            end = bisect.bisect_right(reached, reached[first] + limit) - 1
            end = max(end, bisect.bisect_right(producers, producers[first]))
            if end >= len(producers):
                break
            # The segment ends before the residual `end` is written, as soon as what it hands on is there.
            begin = self.least_handed_on(range(producers[first] + 1, producers[end] + 1))
            begins.append(begin)
            first = bisect.bisect_left(producers, begin)
        return tuple(begins)

    def stays(self, value: int, dropped: Collection[int]) -> bool:
        """Whether a value can be read after the place: no residual that is dropped, and nothing that is gone by then.

        What is computed from constants alone is there wherever it is read.
        """
        if not self.graph.values[value].is_computed or self.buffers.generated[value]:
            return True
        return value not in dropped and (value in self.handed_on or self.is_residual(value))

    def ops_of(self, values: Iterable[int], dropped: Collection[int]) -> frozenset[int] | None:
        """The ops that compute values again from those that stay; None if some must not run twice."""
        pending, ops = [v for v in values if not self.stays(v, dropped)], set[int]()
        while pending:
            op = self.graph.ops[self.graph.values[pending.pop()].producer]
            if op.index in ops:
                continue
            if self.runs_once(op):
                return None
            ops.add(op.index)
            pending += [v for v in op.inputs if not self.stays(v, dropped)]
        return frozenset(ops)

    def runs_once(self, op: Op) -> bool:
        """Whether an op must not run twice: effects, loops, copies to the host, barriers of a group."""
        on_host = any(self.graph.values[v].host_bytes for v in op.results)
        is_ordering = group_of(self.graph.handles[op.index]) is not None
        return op.index in effects(self.graph) or on_host or is_ordering or CLASSES.get(op.name) is Class.CONTROL

    def added_seconds(self, ops: Collection[int]) -> float:
        """What it takes to run ops after the place, less those that need not run before it any more."""
        dead: set[int] = set()
        for op in sorted(ops, reverse=True):
            users = {user for v in self.graph.ops[op].results for user in self.graph.users[v]}
            if all(user in dead or self.is_late(user) for user in users):
                dead.add(op)
        seconds = fused_seconds(self.graph, self.chip)
        return sum(seconds[op] for op in ops if op not in dead)

    def is_late(self, op: int) -> bool:
        """Whether an op stands after the place, or only kernels there compute it."""
        kernels = self.buffers.kernels[op]
        return op > self.place or (bool(kernels) and min(kernels) > self.place)

    def recomputation_of(self, dropped: Collection[int]) -> Recomputation:
        """How dropped residuals are computed again where they are read after the place."""
        ops: dict[int, set[int]] = {}
        first: dict[int, int] = {}
        for value, user in self.needs(dropped).items():
            for segment, of_segment in self.divided(value, dropped).items():
                ops.setdefault(segment, set()).update(of_segment)
                first.setdefault(segment, user)
        every = set[int]().union(*ops.values())
        read = {s: {v for op in of_s for v in self.graph.ops[op].inputs} for s, of_s in ops.items()}
        for segment in sorted(ops, reverse=True):
            # What is handed on is computed again before what is computed of it.
            elsewhere = every - ops[segment]
            for value in read[segment]:
                producer = self.graph.values[value].producer
                if producer in elsewhere:
                    before = self.segment(producer)
                    first[before] = min(first[before], first[segment])
        sources = {
            s: tuple(sorted(v for v in read[s] if self.graph.values[v].producer not in every and self.is_held(v)))
            for s in ops
        }
        places = [self.place, *sorted(set(first.values())), len(self.graph.ops)]
        since = dict(itertools.pairwise(reversed(places)))
        until = dict(itertools.pairwise(places))
        segments = [
            Recomputed(
                before=first[s],
                ops=tuple(sorted(ops[s])),
                sources=sources[s],
                awaited=self.awaited(since[first[s]], first[s]),
                gathered=self.gathered(first[s], until[first[s]]),
            )
            for s in sorted(ops, key=lambda s: (first[s], s))
        ]
        values = self.graph.values
        kept = {v for of_s in sources.values() for v in of_s if v in self.handed_on and not self.is_residual(v)}
        return Recomputation(
            segments=tuple(segments),
            nbytes=sum(values[v].nbytes for v in dropped),
            kept_bytes=sum(values[v].nbytes for v in kept),
            seconds=self.added_seconds(every),
        )

    def divided(self, value: int, dropped: Collection[int]) -> dict[int, set[int]]:
        """The ops that compute a value again, by the segment in which they do.

        Those that write nothing are repeated in each segment that reads them: where all segments read one, it would
        have them all computed again for the first.
        """
        ops = self.ops_of([value], dropped) or frozenset()
        segments: dict[int, set[int]] = {}
        divided: dict[int, set[int]] = {}
        for op in sorted(ops, reverse=True):
            users = {user for v in self.graph.ops[op].results for user in self.graph.users[v]} & ops
            is_written = not users or any(self.is_written(v) for v in self.graph.ops[op].results)
            segments[op] = {self.segment(op)} if is_written else set[int]().union(*(segments[user] for user in users))
            for segment in segments[op]:
                divided.setdefault(segment, set()).add(op)
        return divided

    def is_written(self, value: int) -> bool:
        """Whether a kernel writes a value: it is no view of another one, and not computed where it is read."""
        return self.buffers.materialised[value] and buffer_root(self.graph, value) == value

    def gathered(self, since: int, until: int) -> tuple[int, ...]:
        """What no device has whole of that which matmuls between two ops read, as others before the place do.

        A partitioner gathers such a weight for its first matmul, and what it gathered would stay for all others.
        """
        matmuls = [op for op in self.graph.ops[since:until] if multiplies(self.graph, op)]
        read = {self.weight(v) for op in matmuls for v in op.operands}
        return tuple(sorted(v for v in read if self.graph.values[v].parts and v in self.multiplied_before))

    @functools.cached_property
    def multiplied_before(self) -> frozenset[int]:
        """The arguments and captures that matmuls before the place read."""
        matmuls = (op for op in self.graph.ops[: self.place] if multiplies(self.graph, op))
        read = {self.weight(v) for op in matmuls for v in op.operands}
        return frozenset(v for v in read if not self.graph.values[v].is_computed)

    def weight(self, operand: int) -> int:
        """What the operand of a matmul is as it is stored, before it is converted or laid out otherwise."""
        return self.graph.under(operand, lambda op: is_rearranged(self.graph, op))

    def segment(self, op: int) -> int:
        """The number of the segment that an op is in."""
        return bisect.bisect_right(self.begins, op)

    def is_held(self, value: int) -> bool:
        """Whether a value is put behind the barrier: what is generated is alike wherever it is."""
        return bool(self.graph.values[value].shape) and not self.buffers.generated[value]

    def needs(self, dropped: Collection[int]) -> dict[int, int]:
        """What is dropped and read after the place, or computed of it on the fly there: each with the first reader."""
        known: dict[int, bool] = {}

        def is_needed(value: int) -> bool:
            if value not in known:
                known[value] = value in dropped
                if not known[value] and not self.stays(value, dropped):
                    known[value] = any(map(is_needed, self.graph.ops[self.graph.values[value].producer].inputs))
            return known[value]

        first: dict[int, int] = {}
        for op in self.graph.ops[self.place + 1 :]:
            for value in op.inputs:
                if value not in first and 0 <= self.graph.values[value].producer < self.place and is_needed(value):
                    first[value] = op.index
        return first

    def awaited(self, since: int, before: int) -> tuple[int, ...]:
        """What sums after an op and before another write, and others use from there on; the last value of all.

        Gradients of weights and biases among them: compilers put them off, and what they read would stay.
        """
        found: dict[int, None] = {}
        for op in reversed(self.graph.ops[max(since, self.place + 1) : before]):
            sums = multiplies(self.graph, op) or CLASSES.get(op.name) is Class.REDUCE
            for value in op.results:
                is_last = not found and self.buffers.materialised[value] and bool(self.graph.values[value].shape)
                held = self.accumulated(value, before) if sums else value
                if (is_last or sums) and self.is_used_after(held, before, is_sum=held != value):
                    found[held] = None
        return tuple(found)

    def is_used_after(self, value: int, before: int, *, is_sum: bool) -> bool:
        """Whether ops from a place on use a value. That the block returns it counts for a sum, which a loop carries."""
        producer = self.graph.producer(value)
        is_carried = is_sum and producer is not None and producer.name == "stablehlo.add"
        end = len(self.graph.ops) - (0 if is_carried else 1)
        return any(before <= user < end for user in self.graph.users[value])

    def accumulated(self, value: int, before: int) -> int:
        """What a sum becomes before an op: laid out otherwise, or added to a sum that a loop returns."""
        users = self.graph.users[value]
        if len(users) != 1 or users[0] >= before:
            return value
        op = self.graph.ops[users[0]]
        if is_rearranged(self.graph, op):
            return self.accumulated(op.results[0], before)
        is_sum = is_nested(self.graph) and op.name == "stablehlo.add" and op.results[0] in self.graph.returned
        return op.results[0] if is_sum else value
