"""Buffers over time: when each is alive, which of them can live in an output's buffer, and the moment of the peak.

`peak_memory` fills a `Timeline` as it walks a program; passes and the planner read the `Peak`. A `Slot` is an
allocation, a `Live` the value in it at the peak, a `Scratch` what a kernel needs at the peak beside values.
`results.memory_history` makes of them what reports show.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate

from stablehlo_mem.ir.graph import OpPath, Path


@dataclasses.dataclass(frozen=True)
class Live:
    """A value with a buffer of its own: where it is defined and its bytes as the target lays it out."""

    path: Path
    value: int
    nbytes: int


@dataclasses.dataclass(frozen=True)
class Scratch:
    """The scratch of a kernel: the op the kernel is named by, and its bytes."""

    path: Path
    op: int
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
    scratch: tuple[Scratch, ...] = ()
    host_bytes: int = 0

    @property
    def ops_around(self) -> tuple[OpPath, ...]:
        """The op at the peak and those in whose blocks it is, the outermost first, each with the path of its block."""
        around = ((self.path[:depth], op) for depth, (op, _) in enumerate(self.path))
        return (*around, (self.path, self.op))

    def live_in(self, path: Path) -> dict[int, int]:
        """The live values of a block, and their bytes."""
        return {item.value: item.nbytes for item in self.live if item.path == path}

    def scratch_bytes(self, path: Path, ops: Collection[int]) -> int:
        """Bytes of scratch of some ops of a block, and of those in their blocks."""
        depth = len(path)
        own = (s.nbytes for s in self.scratch if s.path == path and s.op in ops)
        nested = (s for s in self.scratch if s.path[:depth] == path and len(s.path) > depth)
        return sum(own) + sum(s.nbytes for s in nested if s.path[depth][0] in ops)


@dataclasses.dataclass
class Slot:
    """A buffer that values take over from each other in place, or the scratch of a kernel.

    Attributes:
        nbytes: its size.
        holders: the values it holds, each as the tick from which it does, the block and the value; the op of scratch.
        last: the last tick at which it is alive.
        is_scratch: whether it is scratch.
        host_bytes: its size in the host's memory; then it has none on the device.
    """

    nbytes: int
    holders: list[tuple[int, Path, int]]
    last: int
    is_scratch: bool = False
    host_bytes: int = 0

    @property
    def first(self) -> int:
        """The tick from which it is alive."""
        return self.holders[0][0]

    def at(self, tick: int) -> tuple[Path, int]:
        """The block and the value it holds at a tick; the op of scratch."""
        _, path, index = max(h for h in self.holders if h[0] <= tick)
        return path, index


class Timeline:
    """What runs, in order, and the slots alive meanwhile. A tick is one kernel of one block."""

    def __init__(self) -> None:
        self.moments: list[OpPath] = []
        self.slots: list[Slot] = []

    @property
    def now(self) -> int:
        """The last tick so far."""
        return len(self.moments) - 1

    def add(
        self, nbytes: int, path: Path, index: int, since: int, *, is_scratch: bool = False, host_bytes: int = 0
    ) -> Slot:
        """A new slot, alive since a tick; it ends now unless its `last` is set later."""
        slot = Slot(nbytes, [(since, path, index)], self.now, is_scratch, host_bytes)
        self.slots.append(slot)
        return slot

    def temporaries(self, outputs: list[tuple[int, int]]) -> list[Slot]:
        """The slots that do not live in an output's buffer before the output is written.

        XLA assigns the largest first, each to the smallest buffer that is free meanwhile: `buffer_assignment.cc`.

        Args:
            outputs: of each its bytes and the tick from which it is in use.
        """
        rooms = sorted((nbytes, until) for nbytes, until in outputs if until > 0)
        largest = max((nbytes for nbytes, _ in rooms), default=0)
        # What lies in the host's memory takes no room on the device, an output's neither.
        remaining = [slot for slot in self.slots if slot.nbytes > largest or slot.host_bytes]
        fitting = [slot for slot in self.slots if slot.nbytes <= largest and not slot.host_bytes]
        fitting.sort(key=lambda slot: -slot.nbytes)
        occupied = _Occupancy(1 + max((slot.last for slot in fitting), default=0))
        for number, (_, until) in enumerate(rooms):
            occupied.add(until, occupied.ticks, 1 << number)
        first, large = len(rooms), 0
        for slot in fitting:
            while first and rooms[first - 1][0] >= slot.nbytes:
                first -= 1
                large |= 1 << first
            free = large & ~occupied.between(slot.first, slot.last + 1)
            if free:
                occupied.add(slot.first, slot.last + 1, free & -free)
            else:
                remaining.append(slot)
        return remaining

    def totals(self, slots: Sequence[Slot]) -> list[int]:
        """The bytes of slots at each tick."""
        return self._totals((slot, slot.nbytes) for slot in slots)

    def host_peak_bytes(self, slots: Sequence[Slot]) -> int:
        """The most bytes that slots have in the host's memory."""
        on_host = [(slot, slot.host_bytes) for slot in slots if slot.host_bytes]
        return max(self._totals(on_host)) if on_host else 0

    def _totals(self, sizes: Iterable[tuple[Slot, int]]) -> list[int]:
        change = [0] * (len(self.moments) + 1)
        for slot, nbytes in sizes:
            change[slot.first] += nbytes
            change[slot.last + 1] -= nbytes
        return list(accumulate(change))

    def peak(self, slots: list[Slot]) -> Peak:
        """The peak of the temporaries."""
        totals, on_host = self.totals(slots), self.host_peak_bytes(slots)
        tick = max(range(len(totals)), key=totals.__getitem__)
        if not totals[tick]:
            last = max((op for path, op in self.moments if not path), default=0)
            return Peak(0, (), last, (), host_bytes=on_host)
        live: list[Live] = []
        scratch: list[Scratch] = []
        for slot in slots:
            if slot.first <= tick <= slot.last and not slot.host_bytes:
                path, index = slot.at(tick)
                if slot.is_scratch:
                    scratch.append(Scratch(path, index, slot.nbytes))
                else:
                    live.append(Live(path, index, slot.nbytes))
        live.sort(key=lambda value: -value.nbytes)
        return Peak(totals[tick], *self.moments[tick], tuple(live), tuple(scratch), on_host)


class _Occupancy:
    """Which rooms are occupied at which ticks: a segment tree over ticks.

    Sets of rooms are bitmasks: programs have hundreds of outputs, and the lowest bit is the smallest room.

    Attributes:
        always: per node, the rooms occupied at every tick of it, as far as they were added to this node.
        sometimes: per node, the rooms occupied at some tick of it.
    """

    def __init__(self, ticks: int) -> None:
        self.ticks = ticks
        self.always = [0] * (2 * ticks)
        self.sometimes = [0] * (2 * ticks)

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
        """Occupies rooms from tick `first` to before `end`."""
        for node in self.nodes(first, end):
            self.always[node] |= rooms
            while node:
                self.sometimes[node] |= rooms
                node >>= 1

    def between(self, first: int, end: int) -> int:
        """The rooms that are occupied at any tick from `first` to before `end`."""
        rooms = 0
        for node in self.nodes(first, end):
            rooms |= self.sometimes[node]
            while node := node >> 1:
                rooms |= self.always[node]
        return rooms
