"""The static peak: when the buffers of a program, of its loops and their bodies are alive. Compiles nothing.

The planner asks for the peak of each program it tries (`find_peak`), reports for all buffers over time (`lay_out`).
"""

from __future__ import annotations

from collections.abc import Iterator

from stablehlo_mem.analysis.compiler_model import CompilerModel
from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.distribution import gathered_bytes, partial_bytes
from stablehlo_mem.analysis.fusion import Buffers, plan_buffers
from stablehlo_mem.analysis.fusion_classes import ELEMENTWISE, Class, buffer_root, classify
from stablehlo_mem.analysis.host_lifetimes import last_of_host_copies, starts_with_block
from stablehlo_mem.analysis.host_link import placements
from stablehlo_mem.analysis.live_ranges import Peak, Slot, Timeline
from stablehlo_mem.analysis.overwritten_arguments import chunk_bytes, results_beside_arguments
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.donation import donated_arguments
from stablehlo_mem.ir.graph import Graph, Op, OpPath, Path, nested_graph
from stablehlo_mem.targets.chips import Chip

Waves = tuple[tuple[int, ...], ...]


@cached_analysis
def find_peak(graph: Graph, chip: Chip) -> Peak:
    """The peak of a function's block on a chip. Calls are expected to be inlined; one that is left is opaque."""
    return _peak_and_memory(graph, chip)[0]


@cached_analysis
def memory_of_ops(main: Graph, chip: Chip, path: Path) -> tuple[int, ...]:
    """For each op of a block the most bytes of temporaries alive while it runs; 0 for one without a kernel."""
    most = [0] * len(nested_graph(main, path).ops)
    for (block, op), nbytes in _peak_and_memory(main, chip)[1]:
        if block[: len(path)] == path:
            op = block[len(path)][0] if len(block) > len(path) else op
            most[op] = max(most[op], nbytes)
    return tuple(most)


@cached_analysis
def _peak_and_memory(graph: Graph, chip: Chip) -> tuple[Peak, tuple[tuple[OpPath, int], ...]]:
    """The peak, and the bytes of temporaries at each kernel in the order they run."""
    timeline, temporaries = lay_out(graph, chip)
    totals = timeline.totals(temporaries)
    return timeline.peak(temporaries), tuple(zip(timeline.moments, totals, strict=False))


def lay_out(graph: Graph, chip: Chip) -> tuple[Timeline, list[Slot]]:
    """The buffers of a function's block over time, and those of them that are temporaries."""
    timeline = Timeline()
    walk = _Walk(graph, chip, timeline)
    walk.run()
    return timeline, timeline.temporaries(walk.outputs() if compiler_model(chip).reuses_output_buffers else [])


def _order_kernels(graph: Graph, buffers: Buffers, model: CompilerModel) -> Waves:
    """The kernels of a block in waves, each named by the op that writes its result.

    What a kernel of a wave reads stays until the whole wave has run. A compiler that does not run breadth-first has one
    kernel a wave, in program order.
    """
    kernels = [op.index for op in graph.ops if not op.results or any(buffers.materialised[v] for v in op.results)]
    if not model.runs_breadth_first:
        return tuple((k,) for k in kernels)
    waves: list[list[int]] = []
    level: dict[int, int] = {}
    for kernel in kernels:
        producers = (graph.values[v].producer for v in buffers.reads[kernel])
        level[kernel] = 1 + max((level.get(p, -1) for p in producers), default=-1)
        while len(waves) <= level[kernel]:
            waves.append([])
        waves[level[kernel]].append(kernel)
    waves[-1 if len(waves) > 1 else 0].sort()
    return tuple(tuple(w) for w in waves)


@cached_analysis
def _gathering_ops(graph: Graph) -> dict[tuple[int, int], tuple[int, int]]:
    """For each value that ops of a block gather, and the bytes that are gathered, the first of them and the last."""
    ops: dict[tuple[int, int], tuple[int, int]] = {}
    for op in graph.ops:
        for gathered in gathered_bytes(graph, op).items():
            ops[gathered] = ops.get(gathered, (op.index,))[0], op.index
    return ops


class _Walk:
    """Puts the buffers of one block, and of the blocks in it, on a timeline.

    Attributes:
        path: of the block.
        carried: in a loop's body, the carries its returned values are written to.
        reductions: the reductions that read each value.
        hoisted: values of a loop's body that are computed before the loop and stay.
        gathering: for each value that is gathered, and the bytes of what is, the first op that does so and the last.
        in_outer_buffer: values that live in the buffer of an output or of a carry, charged outside this block.
        first_tick: the tick of the first kernel.
        slot: the slot of each value that has one.
        written: the tick at which each value was computed; of a loop's results, at which it starts.
        available: the tick at which the results of each op exist.
    """

    def __init__(
        self, graph: Graph, chip: Chip, timeline: Timeline, path: Path = (), carried: tuple[int, ...] = ()
    ) -> None:
        self.graph = graph
        self.chip = chip
        self.model = compiler_model(chip)
        self.timeline = timeline
        self.path = path
        self.carried = carried
        self.buffers = plan_buffers(graph, chip)
        self.waves = _order_kernels(graph, self.buffers, self.model)
        self.rank = {op: i for i, op in enumerate(op for wave in self.waves for op in wave)}
        self.reductions = self._find_reductions()
        self.hoisted = self.model.hoisted_values(graph)
        self.last = self._find_last()
        self.gathering = _gathering_ops(graph)
        self.in_outer_buffer = self._find_in_outer_buffer()
        self.first_tick = timeline.now + 1
        self.slot: dict[int, Slot] = {}
        self.written: dict[int, int] = {}
        self.available: dict[int, int] = {}
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
        donated = donated_arguments(self.graph)
        outputs: list[tuple[int, int]] = []
        for position, output in enumerate(self.graph.returned):
            value = self.graph.values[output]
            chain = self._in_place_chain(buffer_root(self.graph, output))
            until = min(self.written.get(v, self.timeline.now) for v in chain)
            if position in donated or self._starts_early(chain[-1]):
                until = 0
            outputs.append((self.model.buffer_bytes(value), until))
        return outputs

    def _run_kernel(self, op: Op) -> None:
        self.timeline.moments.append((self.path, op.index))
        for value in op.results:
            self.written[value] = self.timeline.now
            if self.buffers.materialised[value] and value not in self.in_outer_buffer:
                self._allocate(op, value)
        scratch = [(nbytes, since) for nbytes, since in self._scratch(op) if nbytes]
        slots = [self.timeline.add(n, self.path, op.index, since, is_scratch=True) for n, since in scratch]
        started = self.timeline.now
        for i, block in enumerate(op.blocks if classify(self.graph, op) is Class.CONTROL else ()):
            carried = block.arguments if op.name == "stablehlo.while" and i == 1 else ()
            _Walk(block, self.chip, self.timeline, (*self.path, (op.index, i)), carried).run()
        self.available[op.index] = self.timeline.now + (self.timeline.now > started)
        for slot in slots:
            slot.last = self.timeline.now

    def _scratch(self, op: Op) -> Iterator[tuple[int, int]]:
        """Bytes of scratch of an op, each with the tick from which it is needed."""
        yield self.buffers.scratch[op.index], self.timeline.now
        yield partial_bytes(self.graph, op), self.timeline.now
        for value, nbytes in gathered_bytes(self.graph, op).items():
            # Ops that gather one value share what they have gathered: it stays from the first to the last of them.
            first, last = self.gathering[value, nbytes]
            if op.index == last:
                yield nbytes, self.written.get(self.graph.ops[first].results[0], self.timeline.now)
        if op.name == "stablehlo.while":
            copies = self.model.copied_before_loop(self.graph, op)
            yield from ((nbytes, self.timeline.now) for nbytes in copies.values())
            if self.model.needs_delayed_writes and not self.path:
                yield chunk_bytes(self.graph, op), self.timeline.now
        if classify(self.graph, op) is Class.DOT:
            for value in self.model.early_dot_copies(self.graph, op):
                since = self.available.get(self.graph.values[buffer_root(self.graph, value)].producer, self.first_tick)
                yield self.graph.values[value].nbytes, since

    def _allocate(self, op: Op, value: int) -> None:
        is_hoisted = value in self.hoisted
        # A value whose buffer ends here and can be written over.
        on_host = self.graph.values[value].host_bytes
        donors = (d for d in self._donors(op, value) if d in self.slot and self.last.get(d) == op.index)
        donors = (d for d in donors if bool(self.graph.values[d].host_bytes) == bool(on_host))
        donor = None if is_hoisted else next(donors, None)
        if donor is None:
            nbytes = self.model.stored_bytes(self.graph, value)
            since = self.first_tick if is_hoisted or self._starts_early(value) else self.timeline.now
            self.slot[value] = self.timeline.add(nbytes, self.path, value, since, host_bytes=on_host)
        else:
            self.slot[value] = self.slot.pop(donor)
            self.slot[value].holders.append((self.timeline.now, self.path, value))

    def _starts_early(self, value: int) -> bool:
        """Whether a value has its buffer when the block begins.

        Loops' results do where kernels run breadth-first, as their zeros are made then, and copies from the host.
        """
        producer = self.graph.producer(value)
        if producer is None:
            return False
        if self.model.starts_host_copies_early and producer.index in placements(self.graph):
            is_whole = producer.operands[0] in self.graph.arguments
            return is_whole or (bool(self.path) and starts_with_block(self.graph, producer))
        if not self.model.runs_breadth_first or producer.name != "stablehlo.while":
            return False
        return self.buffers.generated[producer.operands[self.graph.values[value].result]]

    def _release(self, value: int) -> None:
        slot = self.slot.pop(value, None)
        if slot is not None:
            slot.last = self.timeline.now

    def _donors(self, op: Op, value: int) -> tuple[int, ...]:
        kind = classify(self.graph, op)
        if kind is Class.UPDATE or op.name == "stablehlo.while":
            return (buffer_root(self.graph, op.operands[self.graph.values[value].result]),)
        if kind not in ELEMENTWISE or not self.model.writes_over_operands:
            return ()
        read = [r for v in self.buffers.reads[op.index] for r in self.reductions.get(v, ())]
        if any(set(r.results) & set(self.buffers.reads[op.index]) for r in read):
            return ()  # a softmax: the kernel reads rows that it has begun to write
        nbytes = self.graph.values[value].nbytes
        aligned = (v for v in self.buffers.aligned[op.index] if self.graph.values[v].nbytes == nbytes)
        aligned = (v for v in aligned if self._is_written_over(v, op))
        return tuple(v for v in aligned if not any(self._is_beside(op, r) for r in self.reductions.get(v, ())))

    def _is_written_over(self, value: int, kernel: Op) -> bool:
        producer = self.graph.producer(value)
        return producer is None or self.model.writes_over(self.graph, producer, kernel)

    def _is_beside(self, op: Op, reduction: Op) -> bool:
        """Whether no op before `op` uses a reduction: it is fused with `op`, which reads the same operand."""
        return all(user > op.index for v in reduction.results for user in self.graph.users[v])

    def _find_reductions(self) -> dict[int, list[Op]]:
        """The reductions that read each value, if the compiler fuses them with other kernels that do."""
        reductions: dict[int, list[Op]] = {}
        for op in self.graph.ops if self.model.fuses_sibling_reductions else ():
            if self._is_reduction(op):
                for value in self.buffers.reads[op.index]:
                    reductions.setdefault(value, []).append(op)
        return reductions

    def _is_reduction(self, op: Op) -> bool:
        kind = classify(self.graph, op)
        return kind is Class.REDUCE or (kind is Class.DOT and self.model.compiles_dot_as_sum(self.graph, op))

    def _find_last(self) -> dict[int, int]:
        """For each value read from memory, the last op to read it; for others with a buffer, their producer.

        Hoisted values are left out: they stay for all iterations.
        """
        last = {
            v: self.graph.values[v].producer for v, has_buffer in enumerate(self.buffers.materialised) if has_buffer
        }
        for op in self.rank:
            last.update(dict.fromkeys(self.buffers.reads[op], op))
        if self.path and self.model.starts_host_copies_early:
            last.update(last_of_host_copies(self.graph, self.buffers, last))
        return {value: op for value, op in last.items() if value not in self.hoisted}

    def _find_ending(self) -> list[list[int]]:
        ending: list[list[int]] = [[] for _ in self.graph.ops]
        for value, op in self.last.items():
            ending[op].append(value)
        return ending

    def _find_in_outer_buffer(self) -> frozenset[int]:
        values: set[int] = set()
        beside = frozenset[int]() if self.path else results_beside_arguments(self.graph)
        for i, value in enumerate(self.graph.returned):
            if i in beside:
                continue
            chain = self._in_place_chain(buffer_root(self.graph, value))
            if not self.carried or self._fits_carry(chain[-1], self.carried[i]):
                values.update(chain)
        return frozenset(values - self.hoisted)

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
