"""Buffers over time: when each is alive, which of them an output's buffer can serve, and the moment of the peak."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate

from stablehlo_mem.ir.graph import Path


@dataclasses.dataclass(frozen=True)
class Live:
    """A value with a buffer of its own: where it is defined and its bytes as the target lays it out.

    Or the scratch of a kernel: `value` is `~op` then, which is below zero.
    """

    path: Path
    value: int
    nbytes: int


@dataclasses.dataclass(frozen=True)
class Peak:
    """The point of highest memory: the op `op` of the block at `path`, and the temporaries live there, largest first.

    `live` leaves out arguments and outputs; `temp_bytes` is what the target's compiler would report as temporaries,
    which are `live` and the kernels' `scratch`.
    """

    temp_bytes: int
    path: Path
    op: int
    live: tuple[Live, ...]
    scratch: tuple[Live, ...] = ()

    def scratch_bytes(self, path: Path, ops: Collection[int]) -> int:
        """Bytes of scratch of some ops of a block, and of those in their blocks."""
        depth = len(path)
        own = (one.nbytes for one in self.scratch if one.path == path and ~one.value in ops)
        within = (one for one in self.scratch if one.path[:depth] == path and len(one.path) > depth)
        return sum(own) + sum(one.nbytes for one in within if one.path[depth][0] in ops)


@dataclasses.dataclass
class Slot:
    """A buffer that values take over from each other in place: who holds it from which tick on; `last` is its last."""

    nbytes: int
    holders: list[tuple[int, Path, int]]
    last: int

    @property
    def first(self) -> int:
        """The tick from which it is alive."""
        return self.holders[0][0]

    def at(self, tick: int) -> Live:
        """Who holds it at a tick it is alive."""
        _, path, value = max(h for h in self.holders if h[0] <= tick)
        return Live(path, value, self.nbytes)


class Timeline:
    """What runs, in order, and the slots alive meanwhile. A tick is one kernel of one block."""

    def __init__(self) -> None:
        self.moments: list[tuple[Path, int]] = []
        self.slots: list[Slot] = []

    @property
    def now(self) -> int:
        """The last tick so far."""
        return len(self.moments) - 1

    def tick(self, path: Path, op: int) -> None:
        """The next kernel: the one that writes the results of this op."""
        self.moments.append((path, op))

    def open(self, nbytes: int, path: Path, value: int, since: int | None = None) -> Slot:
        """A new slot, alive since now or an earlier tick; it ends now unless its `last` is set later."""
        slot = Slot(nbytes, [(self.now if since is None else since, path, value)], self.now)
        self.slots.append(slot)
        return slot

    def temporaries(self, outputs: list[tuple[int, int]]) -> list[Slot]:
        """The slots that do not fit the buffers of `outputs`: (bytes, the tick from which it is in use) each."""
        return _outside(self.slots, outputs)

    def totals(self, slots: Sequence[Slot]) -> list[int]:
        """The bytes of slots at each tick."""
        change = [0] * (len(self.moments) + 1)
        for slot in slots:
            change[slot.first] += slot.nbytes
            change[slot.last + 1] -= slot.nbytes
        return list(accumulate(change))

    def peak(self, slots: list[Slot]) -> Peak:
        """The peak of the temporaries."""
        totals = self.totals(slots)
        tick = max(range(len(totals)), key=totals.__getitem__)
        if not totals[tick]:
            return Peak(0, (), max((op for path, op in self.moments if not path), default=0), ())
        live = [slot.at(tick) for slot in slots if slot.first <= tick <= slot.last]
        named = sorted((one for one in live if one.value >= 0), key=lambda one: -one.nbytes)
        scratch = tuple(one for one in live if one.value < 0)
        return Peak(totals[tick], *self.moments[tick], tuple(named), scratch)


def _outside(slots: list[Slot], outputs: list[tuple[int, int]]) -> list[Slot]:
    """The slots that no output's buffer serves before the output is written.

    XLA assigns the largest first, each to the smallest buffer that is free while it is alive.
    """
    rooms = sorted((nbytes, until) for nbytes, until in outputs if until > 0)
    largest = max((nbytes for nbytes, _ in rooms), default=0)
    left = [slot for slot in slots if slot.nbytes > largest]
    fitting = sorted((s for s in slots if s.nbytes <= largest), key=lambda s: -s.nbytes)
    taken = _Taken(1 + max((slot.last for slot in fitting), default=0))
    for number, (_, until) in enumerate(rooms):
        taken.add(until, taken.ticks, 1 << number)
    first, large = len(rooms), 0
    for slot in fitting:
        while first and rooms[first - 1][0] >= slot.nbytes:
            first -= 1
            large |= 1 << first
        free = large & ~taken.between(slot.first, slot.last + 1)
        if free:
            taken.add(slot.first, slot.last + 1, free & -free)
        else:
            left.append(slot)
    return left


class _Taken:
    """Which rooms are taken at which ticks, a bit each: a segment tree, whose leaves are ticks."""

    def __init__(self, ticks: int) -> None:
        self.ticks = ticks
        self.all = [0] * (2 * ticks)
        """The rooms taken at every tick of a node ..."""
        self.some = [0] * (2 * ticks)
        """... and at some tick of it."""

    def nodes(self, first: int, end: int) -> Iterator[int]:
        """The nodes that make up the ticks from `first` to before `end`."""
        low, high = first + self.ticks, end + self.ticks
        while low < high:
            if low & 1:
                yield low
                low += 1
            if high & 1:
                high -= 1
                yield high
            low >>= 1
            high >>= 1

    def add(self, first: int, end: int, rooms: int) -> None:
        """Takes rooms for some ticks."""
        for node in self.nodes(first, end):
            self.all[node] |= rooms
            while node:
                self.some[node] |= rooms
                node >>= 1

    def between(self, first: int, end: int) -> int:
        """The rooms that are taken at any of some ticks."""
        rooms = 0
        for node in self.nodes(first, end):
            rooms |= self.some[node]
            while node := node >> 1:
                rooms |= self.all[node]
        return rooms
