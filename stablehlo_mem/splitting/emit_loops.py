"""The loops of a region, built: one `stablehlo.while` a phase, in place of the ops it owns.

The loop's shell knows no op: what an op does with a slice is its row in `rules/`.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import stablehlo
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.sharding_rules import OP_RULES
from stablehlo_mem.sharding_rules.chunk_emitter import ChunkEmitter
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.sharding_rules.halo import Use, Window
from stablehlo_mem.sharding_rules.op_rule import Chunk, Reduction
from stablehlo_mem.splitting.loop_schedule import Leaving, LoopSchedule
from stablehlo_mem.splitting.online.deferred_terms import DeferredTerm
from stablehlo_mem.splitting.online.rescaling import at_least_finite, finished, rescaled, rescaling
from stablehlo_mem.splitting.online.running_max import Running
from stablehlo_mem.splitting.scan_carries import Passing, chunk_at, cumulative_row


def emit_loops(graph: Graph, schedule: LoopSchedule, chunk: int) -> None:
    """Rewrites the block of a graph in place, `chunk` elements of the region's axis a step; the graph is stale then."""
    _Rewrite(graph, schedule, chunk).run()


def _is_used(op: Any) -> bool:
    return any(True for result in op.results for _ in result.uses)


def _reduction(op: Any) -> Reduction:
    reduction = OP_RULES[op.name].reduction
    assert reduction is not None
    return reduction


class _Rewrite:
    """Replaces the owned ops of a region by one loop a phase."""

    def __init__(self, graph: Graph, schedule: LoopSchedule, chunk: int):
        self.graph, self.schedule, self.chunk = graph, schedule, chunk
        self.values = list(graph.mlir_values)
        self.shown: set[int] = set()
        self.moved: set[int] = set()
        self.saved: dict[SplitOp, list[Any]] = {}
        self.outside: dict[int, list[int]] = {}
        for op in sorted(schedule.placement):
            self.outside.setdefault(schedule.placement[op], []).append(op)

    def run(self) -> None:
        owned = sorted(self.schedule.owned)
        anchor = self.graph.handles[owned[-1] + 1]
        location = self.graph.handles[self.graph.values[self.schedule.axis.seed[0]].producer].location
        for phase in range(self.schedule.phases):
            self.move_outside_ops(phase, anchor)
            with builders.building(anchor, location):
                self.emit_loop(phase, anchor)
        self.move_outside_ops(self.schedule.phases, anchor)
        for op in reversed(owned):
            self.erase(self.graph.handles[op])
        for op in (self.graph.handles[index] for index in sorted(self.shown, reverse=True)):
            if not _is_used(op):
                op.erase()

    def erase(self, op: Any) -> None:
        """Erasing an op with uses would crash the process much later."""
        if _is_used(op):
            raise ValueError(f"{op.name} is still used outside its loops")
        op.erase()

    def move_outside_ops(self, before_loop: int, anchor: Any) -> None:
        for op in self.outside.get(before_loop, ()):
            if op not in self.moved:
                self.graph.handles[op].move_before(anchor)

    def bring(self, value: int, phase: int, anchor: Any) -> None:
        """Moves the ops outside that a value is made of, after a loop, before the anchor."""
        op = self.graph.values[value].producer
        if self.schedule.placement.get(op, -1) <= phase or op in self.moved:
            return
        for operand in self.graph.ops[op].inputs:
            self.bring(operand, phase, anchor)
        self.moved.add(op)
        self.graph.handles[op].move_before(anchor)

    def emit_loop(self, phase: int, anchor: Any) -> None:
        leaving = [item for item in self.schedule.leaving if item.phase == phase]
        carries: list[_Carry | _Cumulative] = [_Carry(self, split_op, items) for split_op, items in _by_carry(leaving)]
        carries += [_Passed(self, split_op) for split_op in self.schedule.passed(phase)]
        carries += [_Saved(self, split_op) for split_op in self.schedule.saved(phase)]
        if not carries:
            return
        initial = [value for carry in carries for value in carry.initial()]
        steps = -(-self.schedule.axis.n // self.chunk)
        body = lambda step, values: _Body(self, phase, self.index(phase, step, steps)).run(carries, values)  # noqa: E731
        results = iter(builders.while_loop(steps, initial, body))
        for carry in carries:
            finals = [next(results) for _ in range(carry.count)]
            if isinstance(carry, _Carry):
                for term in carry.terms:
                    self.bring(term.whole, phase, anchor)
            carry.finish(finals)

    def index(self, phase: int, step: Any, steps: int) -> Any:
        """The number of the chunk of a step."""
        return step if self.schedule.directions[phase] > 0 else stablehlo.subtract(builders.i32(steps - 1), step)

    def rewrites(self, phase: int) -> bool:
        """Whether a loop comes to elements once more that have been written as they count: it begins with the last."""
        return self.schedule.axis.n % self.chunk != 0 and self.schedule.directions[phase] < 0

    def passing(self, split_op: SplitOp) -> Passing:
        operands = [self.values[v] for v in self.graph.ops[split_op.op].operands]
        return Passing(split_op, self.graph.handles[split_op.op], operands, self.chunk)


def _by_carry(leaving: Sequence[Leaving]) -> list[tuple[SplitOp, list[Leaving]]]:
    """The partial results of a split op are carried together; any other value is a carry of its own."""
    groups: dict[Any, tuple[SplitOp, list[Leaving]]] = {}
    for item in leaving:
        key = item.split_op if item.accumulated else item
        groups.setdefault(key, (item.split_op, []))[1].append(item)
    return list(groups.values())


class _Carry:
    """What one split op leaves behind, as loop carries."""

    def __init__(self, rewrite: _Rewrite, split_op: SplitOp, items: Sequence[Leaving]):
        self.rewrite, self.split_op, self.items = rewrite, split_op, items
        self.op = rewrite.graph.handles[split_op.op]
        self.position = rewrite.graph.values[items[0].value].result
        self.partial = split_op.partial if items[0].accumulated else ()
        self.mixed = 0 < len(self.partial) < len(self.op.results)
        self.count = len(self.partial) or 1
        self.terms = rewrite.schedule.streams.terms.get(items[0].value, ())

    def initial(self) -> list[Any]:
        if not self.partial:
            return [builders.zeros(self.rewrite.values[self.items[0].value].type)]
        if self.mixed:
            # Only ops with blocks have partial results beside others: sums, from zero.
            return [builders.zeros(self.op.results[i].type) for i in self.partial]
        operands = [self.rewrite.values[v] for v in self.rewrite.graph.ops[self.split_op.op].operands]
        return _reduction(self.op).initial(self.op, operands)

    def next(self, body: _Body, carries: Sequence[Any]) -> list[Any]:
        results, position = body.results[self.split_op, False], self.position
        if self.partial:
            # What a row emits need not be its op's results (a scatter's updates): all of it, but for mixed results.
            partials = [results[i] for i in self.partial] if self.mixed else results
            carries = [body.scaled_down(carry, self.terms) for carry in carries]
            return _reduction(self.op).combine(self.op, carries, partials)
        dimension = self.split_op.result_dims[position]
        if dimension is None:
            return [results[position]]
        start, size = body.bounds(carries[0].type.shape[dimension])
        new = results[position]
        if self.rewrite.rewrites(body.phase):
            new = body.counting(new, dimension, builders.slice_along(carries[0], dimension, start, size))
        return [builders.update_along(carries[0], new, dimension, start)]

    def finish(self, finals: Sequence[Any]) -> None:
        """Everybody who used the values uses what the loop left."""
        for item in self.items:
            old = self.rewrite.graph.mlir_values[item.value]
            final = finals[self.partial.index(self.rewrite.graph.values[item.value].result) if self.partial else 0]
            for term in self.terms:
                final = finished(final, term, self.rewrite.values[term.whole])
            new = builders.convert(final, old.type.element_type)
            old.replace_all_uses_with(new)
            self.rewrite.values[item.value] = new


class _Cumulative(abc.ABC):
    """Loop carries of a cumulative op."""

    def __init__(self, rewrite: _Rewrite, split_op: SplitOp):
        self.rewrite, self.split_op = rewrite, split_op
        self.op = rewrite.graph.handles[split_op.op]
        self.passing = rewrite.passing(split_op)
        self.count = len(self.op.results)

    @abc.abstractmethod
    def initial(self) -> list[Any]: ...

    @abc.abstractmethod
    def next(self, body: _Body, carries: Sequence[Any]) -> list[Any]: ...

    @abc.abstractmethod
    def finish(self, finals: Sequence[Any]) -> None: ...


class _Passed(_Cumulative):
    """What it passes from one step to the next."""

    def initial(self) -> list[Any]:
        return self.passing.begin()

    def next(self, body: _Body, carries: Sequence[Any]) -> list[Any]:
        return self.passing.after(body.chunk, body.sums[self.split_op])

    def finish(self, finals: Sequence[Any]) -> None:
        """What the last step passes on is nobody's."""


class _Saved(_Cumulative):
    """What it came to before each chunk, for loops that run the other way."""

    def initial(self) -> list[Any]:
        return self.passing.nothing_saved()

    def next(self, body: _Body, carries: Sequence[Any]) -> list[Any]:
        return self.passing.save(carries, body.before[self.split_op], body.index)

    def finish(self, finals: Sequence[Any]) -> None:
        self.rewrite.saved[self.split_op] = list(finals)


class _Body(ChunkEmitter):
    """One step of a loop: the region's split ops on one chunk, each once in each version, in program order."""

    def __init__(self, rewrite: _Rewrite, phase: int, index: Any):
        n = rewrite.schedule.axis.n
        counting = rewrite.rewrites(phase) or any(split_op.reducing for split_op in rewrite.schedule.needed(phase))
        super().__init__(OP_RULES, rewrite.graph, n, chunk_at(index, n, rewrite.chunk, counting=counting))
        self.rewrite, self.phase, self.index = rewrite, phase, index
        self.results: dict[tuple[SplitOp, bool], list[Any]] = {}
        self.slices: dict[Use, Any] = {}
        self.made: dict[int, Any] = {}
        self.running = False
        self.maxima: dict[int, tuple[Any, Any]] = {}
        self.followed: dict[int, tuple[Any, Any]] = {}
        self.factors: dict[int, Any] = {}
        self.passed: dict[SplitOp, list[Any]] = {}
        self.before: dict[SplitOp, list[Any]] = {}
        self.sums: dict[SplitOp, list[Any]] = {}

    def run(self, carries: Sequence[_Carry | _Cumulative], values: list[Any]) -> list[Any]:
        """The next values of the carries."""
        streams = self.rewrite.schedule.streams
        pivots = {running.pivot for (loop, _), running in streams.running.items() if loop == self.phase}
        old = dict(zip(carries, _parts(values, [carry.count for carry in carries]), strict=True))
        new: dict[_Carry | _Cumulative, list[Any]] = {}
        leaving = [carry for carry in carries if isinstance(carry, _Carry)]
        early = {carry.split_op: carry for carry in leaving if carry.items[0].value in pivots}
        self.passed = {carry.split_op: old[carry] for carry in carries if isinstance(carry, _Passed)}
        for split_op, running in self.rewrite.schedule.runs(self.phase):
            with self.graph.handles[split_op.op].location:
                self.results[split_op, running] = self.emit_version(split_op, running)
                if split_op in early:
                    carry = early[split_op]
                    new[carry] = carry.next(self, old[carry])
                    self.maxima[carry.items[0].value] = old[carry][0], new[carry][0]
        for carry in carries:
            if carry not in new:
                with carry.op.location:
                    new[carry] = carry.next(self, old[carry])
        return [value for carry in carries for value in new[carry]]

    def emit_version(self, split_op: SplitOp, running: bool) -> list[Any]:
        """The results of a split op, those of its operand where it brings in a term that is left out."""
        op = self.graph.ops[split_op.op]
        positions, self.running = self.rewrite.schedule.streams.reads(op, self.phase, split_op, running)
        if split_op.cumulative:
            self.before[split_op] = self.came_to(split_op)
            results, self.sums[split_op] = cumulative_row(op).emit(self.site(split_op, self.before[split_op]))
            return results
        if len(positions) == len(op.inputs):
            return self.at(split_op.window).emit(split_op)
        return [self.input(split_op, position, op.inputs[position]) for position in positions]

    def came_to(self, split_op: SplitOp) -> list[Any]:
        """What a cumulative op came to before this chunk: as the step before left it, or as an earlier loop did."""
        passing = self.rewrite.passing(split_op)
        if split_op in self.passed:
            return passing.before(self.chunk, self.passed[split_op])
        return passing.saved(self.rewrite.saved[split_op], self.index)

    def scaled_down(self, carry: Any, terms: Sequence[DeferredTerm]) -> Any:
        """What was accumulated with the maxima before, as if with those of now."""
        for term in terms:
            if term.running is not None and term.scales_down:
                if term.whole not in self.factors:
                    self.factors[term.whole] = rescaling(*self.follow(term.whole, term.running))
                carry = rescaled(carry, term, self.factors[term.whole])
        return carry

    def follow(self, whole: int, running: Running) -> tuple[Any, Any]:
        """A whole value as the maximum before this chunk makes it, and as the maximum so far does."""
        if whole not in self.followed:
            before, after = (self.followed_by(whole, running, m) for m in self.maxima[running.pivot])
            self.followed[whole] = before, after
        return self.followed[whole]

    def followed_by(self, whole: int, running: Running, maximum: Any) -> Any:
        """A whole value made of a maximum, never -∞: exp(-∞ - (-∞)) is no number."""
        values = {running.pivot: maximum}
        for index in running.chain:
            op = self.graph.ops[index]
            self.rewrite.shown.add(index)
            operands = [values[v] if v in values else self.whole(v) for v in op.operands]
            shapes = [self.graph.values[v].shape for v in op.results]
            results = builders.clone_with(self.graph.handles[index], operands, shapes)
            values.update(zip(op.results, results, strict=True))
        return values[whole] if running.finite else at_least_finite(values[whole])

    def whole(self, value: int) -> Any:
        """A whole value; what only shows another one is made in the step: before the loop it would be a copy."""
        running = self.rewrite.schedule.streams.running.get((self.phase, value))
        if running is not None:
            return self.follow(value, running)[1]
        op = self.graph.producer(value)
        if op is None or op.index in self.rewrite.schedule.owned or not self.shows(op):
            return self.rewrite.values[value]
        if value not in self.made:
            self.rewrite.shown.add(op.index)
            operands = [self.whole(v) for v in op.operands]
            shapes = [self.graph.values[v].shape for v in op.results]
            self.made[value] = builders.clone_with(self.graph.handles[op.index], operands, shapes)[0]
        return self.made[value]

    def shows(self, op: Op) -> bool:
        """Whether an op's result is elements of its operand, as they lie or repeated."""
        row = OP_RULES.get(op.name)
        return row is not None and (row.view or (row.free and any(self.graph.values[v].shape for v in op.operands)))

    def chunk_of(self, value: int, dimension: int) -> Any:
        """What a split op of the loop made, or a slice of the value."""
        return self.read(Use(value, dimension), self)

    def in_window(self, chunk: Chunk, window: Window) -> ChunkEmitter:
        """The same step on another part of the axis."""
        return _InWindow(self, chunk, window)

    def read(self, use: Use, part: ChunkEmitter) -> Any:
        """What a split op of the loop made, or a slice of the value, in a part of the axis."""
        source = self.rewrite.schedule.source(use, self.phase)
        if source is not None:
            version = self.rewrite.schedule.streams.version(self.phase, source, self.running)
            return self.results[source, version][self.graph.values[use.value].result]
        if use not in self.slices:
            self.slices[use] = part.slice(self.rewrite.values[use.value], use.dimension)
        return self.slices[use]


class _InWindow(ChunkEmitter):
    """A step of a loop in a window around its chunk."""

    def __init__(self, body: _Body, chunk: Chunk, window: Window):
        super().__init__(OP_RULES, body.graph, window.n, chunk)
        self.body, self.window = body, window

    def whole(self, value: int) -> Any:
        return self.body.whole(value)

    def chunk_of(self, value: int, dimension: int) -> Any:
        return self.body.read(Use(value, dimension, self.window), self)


def _parts(values: Sequence[Any], counts: Sequence[int]) -> list[list[Any]]:
    """Values in groups of so many each."""
    rest = iter(values)
    return [[next(rest) for _ in range(count)] for count in counts]
