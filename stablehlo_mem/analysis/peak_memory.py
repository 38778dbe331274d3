"""The static memory profile: live ranges of the values a target materialises. Compiles nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stablehlo_mem.analysis.fusion import plan_buffers
from stablehlo_mem.analysis.fusion_classes import ELEMENTWISE, Class, buffer_bytes, buffer_root, classify, donated_types
from stablehlo_mem.analysis.kernel_scratch import is_reduction, transposed_operands
from stablehlo_mem.analysis.live_ranges import Peak, Slot, Timeline
from stablehlo_mem.analysis.loop_invariants import copied_bytes, hoisted
from stablehlo_mem.analysis.schedule import order_kernels
from stablehlo_mem.ir.graph import Graph, Op, Path, cached_analysis
from stablehlo_mem.targets.chips import Chip

if TYPE_CHECKING:
    pass


def materialised(graph: Graph, chip: Chip) -> tuple[bool, ...]:
    """For each value of a block, whether it has a buffer of its own on a chip."""
    return plan_buffers(graph, chip).materialised


@cached_analysis
def find_peak(graph: Graph, chip: Chip) -> Peak:
    """The peak of a function's block on a chip. Calls are expected to be inlined; one that is left is opaque."""
    timeline, temporaries = lay_out(graph, chip)
    return timeline.peak(temporaries)


def lay_out(graph: Graph, chip: Chip) -> tuple[Timeline, list[Slot]]:
    """The buffers of a function's block over time, and those of them that are temporaries."""
    timeline = Timeline()
    walk = _Walk(graph, chip, timeline)
    walk.run()
    return timeline, timeline.temporaries(walk.outputs() if chip.kind != "tpu" else [])


class _Walk:
    """Puts the buffers of one block, and of the blocks in it, on a timeline.

    Attributes:
        path: of the block.
        carried: in a loop's body, the carries its returned values are written to.
        reductions: the reductions that read each value.
        hoisted: values of a loop's body that are made before it and stay.
        homed: values that live in the buffer of an output or of a carry, charged outside this block.
        began: the tick of the first kernel.
        slot: the slot of each value that has one.
        written: the tick at which each value was computed, or began to be.
        done: the tick at which what each op makes is there.
    """

    def __init__(
        self, graph: Graph, chip: Chip, timeline: Timeline, path: Path = (), carried: tuple[int, ...] = ()
    ) -> None:
        self.graph = graph
        self.chip = chip
        self.timeline = timeline
        self.path = path
        self.carried = carried
        self.buffers = plan_buffers(graph, chip)
        self.waves = order_kernels(graph, self.buffers, chip)
        self.rank = {op: i for i, op in enumerate(op for wave in self.waves for op in wave)}
        self.reductions = self._find_reductions()
        self.hoisted = hoisted(graph, chip)
        self.last = self._find_last()
        self.homed = self._find_homed()
        self.began = timeline.now + 1
        self.slot: dict[int, Slot] = {}
        self.written: dict[int, int] = {}
        self.done: dict[int, int] = {}
        self.ending = self._find_ending()

    def run(self) -> None:
        """Walks the block's kernels in the order they run."""
        for wave in self.waves:
            for index in wave:
                self._run_kernel(self.graph.ops[index])
            for index in wave:
                for value in self.ending[index]:
                    self._release(value)
        for value in self.hoisted:
            self._release(value)

    def outputs(self) -> list[tuple[int, int]]:
        """Bytes of each output, and the tick its buffer is in use from: 0 where an argument may be donated to it."""
        donated = donated_types(self.graph)
        found: list[tuple[int, int]] = []
        for output in self.graph.returned:
            value = self.graph.values[output]
            chain = self._in_place_chain(buffer_root(self.graph, output))
            until = min(self.written.get(v, self.timeline.now) for v in chain)
            if (value.shape, value.dtype) in donated or self._starts_early(chain[-1]):
                until = 0
            found.append((buffer_bytes(value, self.chip), until))
        return found

    def _run_kernel(self, op: Op) -> None:
        self.timeline.tick(self.path, op.index)
        for value in op.results:
            self.written[value] = self.timeline.now
            if self.buffers.materialised[value] and value not in self.homed:
                self._allocate(op, value)
        slots = [self.timeline.open(n, self.path, ~op.index, since) for n, since in self._scratch(op) if n]
        begun = self.timeline.now
        self._run_blocks(op)
        self.done[op.index] = self.timeline.now + (self.timeline.now > begun)
        for slot in slots:
            slot.last = self.timeline.now

    def _scratch(self, op: Op) -> Iterator[tuple[int, int]]:
        """Bytes of scratch of an op, each with the tick from which it is needed."""
        yield self.buffers.scratch[op.index], self.timeline.now
        if op.name == "stablehlo.while":
            yield from ((nbytes, self.timeline.now) for nbytes in copied_bytes(self.graph, self.chip, op))
        if classify(self.graph, op) is Class.DOT and self.chip.kind == "cpu":
            for value in transposed_operands(self.graph, op):
                # XLA:CPU goes breadth-first: an operand is copied as soon as it is there.
                since = self.done.get(self.graph.values[buffer_root(self.graph, value)].producer, self.began)
                yield self.graph.values[value].nbytes, since

    def _run_blocks(self, op: Op) -> None:
        if classify(self.graph, op) is not Class.CONTROL:
            return
        for i, block in enumerate(op.blocks):
            carried = block.arguments if op.name == "stablehlo.while" and i == 1 else ()
            _Walk(block, self.chip, self.timeline, (*self.path, (op.index, i)), carried).run()

    def _allocate(self, op: Op, value: int) -> None:
        kept = value in self.hoisted
        donor = None if kept else self._donor(op, value)
        if donor is None:
            nbytes = buffer_bytes(self.graph.values[value], self.chip)
            since = self.began if kept or self._starts_early(value) else None
            self.slot[value] = self.timeline.open(nbytes, self.path, value, since)
        else:
            self.slot[value] = self.slot.pop(donor)
            self.slot[value].holders.append((self.timeline.now, self.path, value))

    def _starts_early(self, value: int) -> bool:
        """Whether a loop's result has its buffer when the block begins: XLA:CPU goes breadth-first, and makes zeros."""
        producer = self.graph.producer(value)
        if self.chip.kind != "cpu" or producer is None or producer.name != "stablehlo.while":
            return False
        return self.buffers.generated[producer.operands[self.graph.values[value].result]]

    def _release(self, value: int) -> None:
        slot = self.slot.pop(value, None)
        if slot is not None:
            slot.last = self.timeline.now

    def _donor(self, op: Op, value: int) -> int | None:
        """A value whose buffer ends at `op` and can be written over with `value`."""
        return next((d for d in self._donors(op, value) if d in self.slot and self.last.get(d) == op.index), None)

    def _donors(self, op: Op, value: int) -> tuple[int, ...]:
        kind = classify(self.graph, op)
        if kind is Class.UPDATE or op.name == "stablehlo.while":
            return (buffer_root(self.graph, op.operands[self.graph.values[value].result]),)
        if kind not in ELEMENTWISE or self.chip.kind == "tpu":
            return ()
        read = [r for v in self.buffers.reads[op.index] for r in self.reductions.get(v, ())]
        if any(set(r.results) & set(self.buffers.reads[op.index]) for r in read):
            return ()  # a softmax: its kernel reads rows it has already begun to write
        nbytes = self.graph.values[value].nbytes
        aligned = (v for v in self.buffers.aligned[op.index] if self.graph.values[v].nbytes == nbytes)
        return tuple(v for v in aligned if not any(self._is_beside(op, r) for r in self.reductions.get(v, ())))

    def _is_beside(self, op: Op, reduction: Op) -> bool:
        """Whether nobody needs a reduction before `op`: XLA:GPU makes one kernel of the two if they read the same."""
        return all(user > op.index for v in reduction.results for user in self.graph.users[v])

    def _find_reductions(self) -> dict[int, list[Op]]:
        """The reductions that read each value, on CUDA."""
        found: dict[int, list[Op]] = {}
        for op in self.graph.ops if self.chip.kind == "cuda" else ():
            if is_reduction(self.graph, self.chip, op):
                for value in self.buffers.reads[op.index]:
                    found.setdefault(value, []).append(op)
        return found

    def _find_last(self) -> dict[int, int]:
        """For each value read from memory, the last op to read it; for others with a buffer, the op that makes it.

        None for what is there for all iterations of a loop.
        """
        last = {v: self.graph.values[v].producer for v, kept in enumerate(self.buffers.materialised) if kept}
        for op in self.rank:
            last.update(dict.fromkeys(self.buffers.reads[op], op))
        return {value: op for value, op in last.items() if value not in self.hoisted}

    def _find_ending(self) -> list[list[int]]:
        ending: list[list[int]] = [[] for _ in self.graph.ops]
        for value, op in self.last.items():
            ending[op].append(value)
        return ending

    def _find_homed(self) -> frozenset[int]:
        homed: set[int] = set()
        for i, value in enumerate(self.graph.returned):
            chain = self._in_place_chain(buffer_root(self.graph, value))
            if not self.carried or self._fits_carry(chain[-1], self.carried[i]):
                homed.update(chain)
        return frozenset(homed - self.hoisted)

    def _in_place_chain(self, value: int) -> list[int]:
        """A value, the value it was written over, and so on."""
        chain = [value]
        producer = self.graph.producer(value)
        while producer is not None and (
            classify(self.graph, producer) is Class.UPDATE or producer.name == "stablehlo.while"
        ):
            value = buffer_root(self.graph, producer.operands[self.graph.values[value].result])
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
        return (
            ends == producer.index
            and carry in self.buffers.aligned[ends]
            and classify(self.graph, producer) in ELEMENTWISE
        )
