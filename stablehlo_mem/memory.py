"""The static memory profile: live ranges of the values a target materialises. Compiles nothing."""

from __future__ import annotations

import dataclasses

from stablehlo_mem.fusion import plan_buffers
from stablehlo_mem.ir.graph import Graph, Op, Path
from stablehlo_mem.op_classes import ELEMENTWISE, Class, buffer_bytes, classify, owner
from stablehlo_mem.schedule import order_kernels
from stablehlo_mem.targets.chips import Chip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """What a target's compiler reports for one executable, in bytes."""

    argument_bytes: int
    output_bytes: int
    temp_bytes: int
    alias_bytes: int
    constant_bytes: int

    @property
    def peak_bytes(self) -> int:
        """Arguments + outputs + temporaries + embedded constants − aliased."""
        return self.argument_bytes + self.output_bytes + self.temp_bytes + self.constant_bytes - self.alias_bytes


@dataclasses.dataclass(frozen=True)
class Refused:
    """The compiler did not compile: its message, and the bytes it says the program needs (None: another error)."""

    message: str
    needed_bytes: int | None


@dataclasses.dataclass(frozen=True)
class Live:
    """A value with a buffer of its own: where it is defined and its bytes as the target lays it out."""

    path: Path
    value: int
    nbytes: int


@dataclasses.dataclass(frozen=True)
class Peak:
    """The point of highest memory: the op `op` of the block at `path`, and the temporaries live there, largest first.

    `live` leaves out arguments and outputs; `temp_bytes` is what the target's compiler would report as temporaries.
    """

    temp_bytes: int
    path: Path
    op: int
    live: tuple[Live, ...]


@dataclasses.dataclass(frozen=True)
class LiveValue:
    """A value live at the peak, for people: e.g. ("dot_general", "f32", (8, 16384, 16384), bytes, "attn.py:12 (…)")."""

    op_name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    source: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryProfile:
    """The memory of one execution, in bytes: static estimates, and the compiler's own figures where it was asked.

    Attributes:
        live: the values live at the peak, largest first.
        point: the op at the peak and the user's source line.
        measured: the compiler's figures, `Refused`, or None if it was not asked.
    """

    argument_bytes: int
    output_bytes: int
    temp_bytes: int
    alias_bytes: int
    constant_bytes: int
    live: tuple[LiveValue, ...]
    point: str
    measured: Measured | Refused | None = None

    @property
    def peak_bytes(self) -> int:
        """The compiler's figure where there is one, else arguments + outputs + temporaries + constants − aliased."""
        if isinstance(self.measured, Measured):
            return self.measured.peak_bytes
        if isinstance(self.measured, Refused) and self.measured.needed_bytes is not None:
            return self.measured.needed_bytes
        return self.argument_bytes + self.output_bytes + self.temp_bytes + self.constant_bytes - self.alias_bytes


def materialised(graph: Graph, chip: Chip) -> tuple[bool, ...]:
    """For each value of a block, whether it has a buffer of its own on a chip."""
    return plan_buffers(graph, chip).materialised


def find_peak(graph: Graph, chip: Chip) -> Peak:
    """The peak of a function's block on a chip. Calls are expected to be inlined; one that is left is opaque."""
    return _Walk(graph, chip, carried=()).run()


class _Walk:
    """Live ranges over one block in program order.

    A slot is a buffer that values take over from each other in place; it is named by the first of them.

    Attributes:
        carried: in a loop's body, the carries its returned values are written to.
        homed: values that live in the buffer of an output or of a carry, charged outside this block.
        slot: the slot of each value that has one.
        size: bytes of the slots alive.
    """

    def __init__(self, graph: Graph, chip: Chip, carried: tuple[int, ...]) -> None:
        self.graph = graph
        self.chip = chip
        self.carried = carried
        self.buffers = plan_buffers(graph, chip)
        self.waves = order_kernels(graph, self.buffers, chip)
        self.rank = {op: i for i, op in enumerate(op for wave in self.waves for op in wave)}
        self.last = self._find_last()
        self.homed = self._find_homed()
        self.slot: dict[int, int] = {}
        self.size: dict[int, int] = {}
        self.total = 0
        self.ending = self._find_ending()

    def run(self) -> Peak:
        highest = 0
        at_best: _Moment | None = None
        for wave in self.waves:
            for index in wave:
                op = self.graph.ops[index]
                for value in op.results:
                    if self.buffers.materialised[value] and value not in self.homed:
                        self._allocate(op, value)
                here = self.total + self.buffers.scratch[index]
                inner = self._nested_peak(op)
                if here + (inner.temp_bytes if inner else 0) > highest:
                    highest = here + (inner.temp_bytes if inner else 0)
                    at_best = _Moment(op, here, inner, self.slot.copy(), self.size.copy())
            for index in wave:
                for value in self.ending[index]:
                    self._release(value)
        return self._peak(at_best) if at_best else Peak(0, (), max(0, len(self.graph.ops) - 1), ())

    def _allocate(self, op: Op, value: int) -> None:
        donor = self._donor(op, value)
        if donor is None:
            nbytes = buffer_bytes(self.graph.values[value], self.chip)
            self.slot[value] = value
            self.size[value] = nbytes
            self.total += nbytes
        else:
            self.slot[value] = self.slot.pop(donor)

    def _release(self, value: int) -> None:
        slot = self.slot.pop(value, None)
        if slot is not None:
            self.total -= self.size.pop(slot)

    def _donor(self, op: Op, value: int) -> int | None:
        """A value whose buffer ends at `op` and can be written over with `value`."""
        return next((d for d in self._donors(op, value) if d in self.slot and self.last[d] == op.index), None)

    def _donors(self, op: Op, value: int) -> tuple[int, ...]:
        kind = classify(op)
        if kind is Class.UPDATE or op.name == "stablehlo.while":
            return (owner(self.graph, op.operands[self.graph.values[value].result]),)
        if kind not in ELEMENTWISE or self.chip.kind == "tpu" or self._is_normalisation(op):
            return ()
        nbytes = self.graph.values[value].nbytes
        return tuple(v for v in self.buffers.aligned[op.index] if self.graph.values[v].nbytes == nbytes)

    def _is_normalisation(self, op: Op) -> bool:
        """Whether XLA:GPU computes `op` and the reductions of the same operand it needs as one (softmax) kernel.

        Such a kernel reads rows it has already begun to write, so it does not work in place.
        """
        if self.chip.kind != "cuda":
            return False
        reads = self.buffers.reads
        producers = (self.graph.producer(v) for v in reads[op.index])
        reductions = [p for p in producers if p is not None and classify(p) is Class.REDUCE]
        return any(set(reads[r.index]) & set(reads[op.index]) for r in reductions)

    def _find_last(self) -> dict[int, int]:
        """For each value read from memory, the last op to read it; for others with a buffer, the op that makes it."""
        last = {v: self.graph.values[v].producer for v, kept in enumerate(self.buffers.materialised) if kept}
        for op in self.rank:
            last.update(dict.fromkeys(self.buffers.reads[op], op))
        return last

    def _find_ending(self) -> list[list[int]]:
        ending: list[list[int]] = [[] for _ in self.graph.ops]
        for value, op in self.last.items():
            ending[op].append(value)
        return ending

    def _find_homed(self) -> frozenset[int]:
        homed: set[int] = set()
        for i, value in enumerate(self.graph.returned):
            chain = self._in_place_chain(owner(self.graph, value))
            if not self.carried or self._fits_carry(chain[-1], self.carried[i]):
                homed.update(chain)
        return frozenset(homed)

    def _in_place_chain(self, value: int) -> list[int]:
        """A value, the value it was written over, and so on."""
        chain = [value]
        producer = self.graph.producer(value)
        while producer is not None and (classify(producer) is Class.UPDATE or producer.name == "stablehlo.while"):
            value = owner(self.graph, producer.operands[self.graph.values[value].result])
            if self.last.get(value) != producer.index:
                break
            chain.append(value)
            producer = self.graph.producer(value)
        return chain

    def _fits_carry(self, value: int, carry: int) -> bool:
        """Whether a value can be computed straight into the buffer of a carry of the loop."""
        producer = self.graph.producer(value)
        if producer is None:
            return value == carry
        ends = self.last.get(carry)
        if ends is None or self.rank[ends] < self.rank[producer.index]:
            return True
        return ends == producer.index and carry in self.buffers.aligned[ends] and classify(producer) in ELEMENTWISE

    def _nested_peak(self, op: Op) -> Peak | None:
        """The highest peak of the blocks in an op, its path starting at that op."""
        if classify(op) is not Class.CONTROL:
            return None
        peaks: list[Peak] = []
        for i, block in enumerate(op.blocks):
            carried = block.arguments if op.name == "stablehlo.while" and i == 1 else ()
            peak = _Walk(block, self.chip, carried).run()
            step = ((op.index, i),)
            live = tuple(dataclasses.replace(v, path=step + v.path) for v in peak.live)
            peaks.append(Peak(peak.temp_bytes, step + peak.path, peak.op, live))
        return max(peaks, key=lambda p: p.temp_bytes)

    def _peak(self, moment: _Moment) -> Peak:
        op, inner = moment.op, moment.inner
        live = [Live((), value, moment.size[slot]) for value, slot in moment.slot.items()]
        live += inner.live if inner else ()
        live.sort(key=lambda v: -v.nbytes)
        if inner is None or not inner.temp_bytes:
            return Peak(moment.here, (), op.index, tuple(live))
        return Peak(moment.here + inner.temp_bytes, inner.path, inner.op, tuple(live))


@dataclasses.dataclass(frozen=True)
class _Moment:
    """What was alive while one op ran: bytes of this block, the nested peak, and the slots with their sizes."""

    op: Op
    here: int
    inner: Peak | None
    slot: dict[int, int]
    size: dict[int, int]
