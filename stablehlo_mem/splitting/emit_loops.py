"""Builds the loops of a schedule: one `stablehlo.while` each, in place of its inner ops.

Called by `split_step`. What an op does with a chunk is its rule's business (`sharding_rules`): no op is named here.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.barriers import BARRIER, group_of, grouped_barriers, waiting_groups
from stablehlo_mem.ir.bindings import stablehlo
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.sharding_rules import OP_RULES, reduction_of, rule_book
from stablehlo_mem.sharding_rules.chunk_emitter import ChunkEmitter
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.sharding_rules.halo import Use, Window
from stablehlo_mem.sharding_rules.op_rule import Chunk
from stablehlo_mem.splitting.loop_schedule import LoopOutput, LoopSchedule, carried_together
from stablehlo_mem.splitting.online.deferred_terms import DeferredTerm
from stablehlo_mem.splitting.online.rescaling import apply_term, rescale, rescaling_factor, zero_for_minus_infinity
from stablehlo_mem.splitting.online.running_max import RunningStatistic
from stablehlo_mem.splitting.scan_carries import ScanCarries, chunk_at, scan_rule
from stablehlo_mem.splitting.window_emitter import WindowEmitter


def emit_loops(graph: Graph, schedule: LoopSchedule, chunk: int, *more: LoopSchedule) -> list[Any]:
    """Rewrites the block of a graph in place, `chunk` elements of the axis a step; the graph is stale then.

    Args:
        more: the loops of other places, which are apart from these and from each other.

    Returns:
        The loops, in program order.
    """
    values, erased, loops = list(graph.mlir_values), set[int](), list[Any]()
    # From the first place to the last: the loops of one stand before an op that those of the next may take away.
    for one in sorted((schedule, *more), key=lambda one: min(one.inner_ops)):
        loops += _LoopEmitter(graph, one, chunk, values, erased).run()
    return loops


def _is_used(op: Any) -> bool:
    return any(True for result in op.results for _ in result.uses)


class _LoopEmitter:
    """Replaces the inner ops of a schedule by its loops.

    Attributes:
        values: what stands for the values of the graph now, and `erased` the ops that are gone.
    """

    def __init__(self, graph: Graph, schedule: LoopSchedule, chunk: int, values: list[Any], erased: set[int]):
        self.graph, self.schedule, self.chunk = graph, schedule, chunk
        self.values, self.erased = values, erased
        self.cloned: set[int] = set()
        """Ops outside that steps have a copy of: they are erased if nobody else uses them."""
        self.moved: set[int] = set()
        self.checkpoints: dict[SplitOp, list[Any]] = {}
        self.outer_ops: dict[int, list[int]] = {}
        for op in sorted(schedule.placement):
            self.outer_ops.setdefault(schedule.placement[op], []).append(op)

    def run(self) -> list[Any]:
        """Builds the loops and returns them."""
        inner_ops, loops = sorted(self.schedule.inner_ops), list[Any]()
        anchor = self.graph.handles[inner_ops[-1] + 1]
        location = self.graph.handles[self.graph.values[self.schedule.axis.seed[0]].producer].location
        for loop in range(self.schedule.loop_count):
            self.move_outer_ops(loop, anchor)
            with builders.building(anchor, location):
                loops += self.emit_loop(loop, anchor)
        self.move_outer_ops(self.schedule.loop_count, anchor)
        for index in reversed(inner_ops):
            # Erasing an op with uses would crash the process much later.
            if _is_used(self.graph.handles[index]):
                raise ValueError(f"{self.graph.ops[index].name} is still used outside its loops")
            self.erase(index)
        for index in sorted(self.cloned, reverse=True):
            if not _is_used(self.graph.handles[index]):
                self.erase(index)
        return loops

    def erase(self, op: int) -> None:
        self.graph.handles[op].erase()
        self.erased.add(op)

    def move_outer_ops(self, before_loop: int, anchor: Any) -> None:
        for op in self.outer_ops.get(before_loop, ()):
            if op not in self.moved:
                self.graph.handles[op].move_before(anchor)

    def move_producers(self, value: int, loop: int, anchor: Any) -> None:
        """Moves the ops outside that a value is computed by, after a loop, before the anchor."""
        op = self.graph.values[value].producer
        if self.schedule.placement.get(op, -1) <= loop or op in self.moved:
            return
        for operand in self.graph.ops[op].inputs:
            self.move_producers(operand, loop, anchor)
        self.moved.add(op)
        self.graph.handles[op].move_before(anchor)

    def emit_loop(self, loop: int, anchor: Any) -> list[Any]:
        """Builds one loop, and returns it if it leaves anything."""
        outputs = carried_together([output for output in self.schedule.outputs if output.loop == loop])
        carries: list[_LoopCarry] = [_OutputCarry(self, split_op, group) for split_op, group in outputs]
        carries += [_ScanCarry(self, split_op) for split_op in self.schedule.carried_scans(loop)]
        carries += [_CheckpointCarry(self, split_op) for split_op in self.schedule.checkpointed_scans(loop)]
        if not carries:
            return []
        initial = [value for carry in carries for value in carry.initial()]
        steps = -(-self.schedule.axis.n // self.chunk)
        body = lambda step, values: _Body(self, loop, self.index(loop, step, steps)).run(carries, values)  # noqa: E731
        results = builders.while_loop(steps, initial, body)
        finals = _grouped(results, carries)
        for carry in carries:
            for term in carry.terms:
                self.move_producers(term.statistic, loop, anchor)
            carry.finish(finals[carry])
        return [results[0].owner.operation]

    def index(self, loop: int, step: Any, steps: int) -> Any:
        """The number of the chunk of a step."""
        return step if self.schedule.directions[loop] > 0 else stablehlo.subtract(builders.i32(steps - 1), step)

    def overwrites(self, loop: int) -> bool:
        """Whether steps come to elements that are final already: the ragged last chunk is the first of the loop."""
        return self.schedule.axis.n % self.chunk != 0 and self.schedule.directions[loop] < 0


class _LoopCarry(abc.ABC):
    """`count` values that a loop carries on behalf of a split op.

    Attributes:
        terms: deferred terms to apply to them after the loop.
    """

    terms: tuple[DeferredTerm, ...] = ()

    def __init__(self, emitter: _LoopEmitter, split_op: SplitOp):
        self.emitter, self.split_op = emitter, split_op
        self.op = emitter.graph.handles[split_op.op]
        self.operands = [emitter.values[v] for v in emitter.graph.ops[split_op.op].operands]
        self.count = len(self.op.results)

    @abc.abstractmethod
    def initial(self) -> list[Any]:
        """The values before the first step."""

    @abc.abstractmethod
    def next(self, body: _Body, carries: Sequence[Any]) -> list[Any]:
        """The values after a step."""

    @abc.abstractmethod
    def finish(self, finals: Sequence[Any]) -> None:
        """Hands out the values after the last step."""


class _OutputCarry(_LoopCarry):
    """What a split op leaves."""

    def __init__(self, emitter: _LoopEmitter, split_op: SplitOp, outputs: Sequence[LoopOutput]):
        super().__init__(emitter, split_op)
        self.outputs = outputs
        self.position = emitter.graph.values[outputs[0].value].result
        self.partial = split_op.partial if outputs[0].accumulated else ()
        self.mixed = 0 < len(self.partial) < len(self.op.results)
        self.count = len(self.partial) or 1
        self.terms = emitter.schedule.online.terms.get(outputs[0].value, ())

    def initial(self) -> list[Any]:
        if not self.partial:
            return [builders.zeros(self.emitter.values[self.outputs[0].value].type)]
        if self.mixed:
            # Only ops with blocks have partial results beside others: sums, from zero.
            return [builders.zeros(self.op.results[i].type) for i in self.partial]
        return reduction_of(self.op.name).initial(self.op, self.operands)

    def next(self, body: _Body, carries: Sequence[Any]) -> list[Any]:
        results, position = body.results[self.split_op, False], self.position
        if self.partial:
            # What a rule emits need not be its op's results (a scatter's updates): all of it, but for mixed results.
            partials = [results[i] for i in self.partial] if self.mixed else results
            carries = [body.rescaled(carry, self.terms) for carry in carries]
            return self.awaited(body, reduction_of(self.op.name).combine(self.op, carries, partials))
        dimension = self.split_op.result_dims[position]
        if dimension is None:
            return [results[position]]
        new = results[position]
        if self.emitter.overwrites(body.loop):
            new = body.counting(new, dimension, body.slice(carries[0], dimension))
        return [body.update(carries[0], new, dimension)]

    def awaited(self, body: _Body, carries: list[Any]) -> list[Any]:
        """What was accumulated, behind barriers of the groups in the loop that wait for the whole (`ir.barriers`)."""
        graph = self.emitter.graph
        for output in self.outputs:
            position = self.partial.index(graph.values[output.value].result)
            for group in waiting_groups(graph, output.value):
                if group in body.groups:
                    (carries[position],) = grouped_barriers([carries[position]], group)
        return carries

    def finish(self, finals: Sequence[Any]) -> None:
        """Users of the outputs use what the loop left."""
        values = self.emitter.graph.values
        for output in self.outputs:
            old = self.emitter.graph.mlir_values[output.value]
            final = finals[self.partial.index(values[output.value].result) if self.partial else 0]
            for term in self.terms:
                final = apply_term(final, term, self.emitter.values[term.statistic])
            new = builders.convert(final, old.type.element_type)
            old.replace_all_uses_with(new)
            self.emitter.values[output.value] = new


class _ScanCarry(_LoopCarry):
    """What a scan carries from one step to the next; nobody needs the last."""

    def initial(self) -> list[Any]:
        return self.scan.initial()

    def next(self, body: _Body, carries: Sequence[Any]) -> list[Any]:
        return self.scan.next(body.chunk, body.scan_sums[self.split_op])

    def finish(self, finals: Sequence[Any]) -> None: ...

    @property
    def scan(self) -> ScanCarries:
        return ScanCarries(self.split_op, self.op, self.operands, self.emitter.chunk)


class _CheckpointCarry(_ScanCarry):
    """The prefixes of all chunks, for loops that run the other way."""

    def initial(self) -> list[Any]:
        return self.scan.empty_checkpoints()

    def next(self, body: _Body, carries: Sequence[Any]) -> list[Any]:
        return self.scan.with_checkpoint(carries, body.prefixes[self.split_op], body.index)

    def finish(self, finals: Sequence[Any]) -> None:
        self.emitter.checkpoints[self.split_op] = list(finals)


class _Body(ChunkEmitter):
    """One step of a loop: its split ops on one chunk, each once in each version, in program order.

    Attributes:
        groups: of the barriers that it runs.
        results: of each version of a split op.
        with_max: whether operands are read in their versions with running maxima now.
        maxima: running maxima before this chunk and with it.
        statistics: row statistics that follow a running maximum, likewise.
        scans: the carries of scans before the step, `prefixes` what they are before the chunk, `scan_sums` in it.
    """

    def __init__(self, emitter: _LoopEmitter, loop: int, index: Any):
        self.schedule, self.emitter, self.loop, self.index = emitter.schedule, emitter, loop, index
        axis = self.schedule.axis
        counting = emitter.overwrites(loop) or any(s.reducing for s in self.schedule.split_ops[loop])
        chunk = chunk_at(index, axis.n, emitter.chunk, axis.parts, counting=counting)
        super().__init__(rule_book(emitter.graph).within(axis.parts), axis.n, chunk)
        self.results: dict[tuple[SplitOp, bool], list[Any]] = {}
        handles = (self.graph.handles[split_op.op] for split_op in self.schedule.split_ops[loop])
        self.groups = {group_of(handle) for handle in handles if handle.name == BARRIER}
        self.slices: dict[Use, Any] = {}
        self.views: dict[int, Any] = {}
        self.with_max = False
        self.maxima: dict[int, tuple[Any, Any]] = {}
        self.statistics: dict[int, tuple[Any, Any]] = {}
        self.factors: dict[int, Any] = {}
        self.scans: dict[SplitOp, tuple[ScanCarries, list[Any]]] = {}
        self.prefixes: dict[SplitOp, list[Any]] = {}
        self.scan_sums: dict[SplitOp, list[Any]] = {}

    def run(self, carries: Sequence[_LoopCarry], values: list[Any]) -> list[Any]:
        """The next values of the carries.

        A chunk is written back or accumulated at once: else all would be alive until the end of the step.
        """
        running = self.schedule.online.running.items()
        maxima = {statistic.reference_maximum for (loop, _), statistic in running if loop == self.loop}
        old = _grouped(values, carries)
        new: dict[_LoopCarry, list[Any]] = {}
        outputs = [carry for carry in carries if isinstance(carry, _OutputCarry)]
        of_maxima = {carry.split_op: carry for carry in outputs if carry.outputs[0].value in maxima}
        at_once: dict[SplitOp, list[_OutputCarry]] = {}
        for carry in outputs:
            if not carry.terms and carry.split_op not in of_maxima:
                at_once.setdefault(carry.split_op, []).append(carry)
        self.scans = {carry.split_op: (carry.scan, old[carry]) for carry in carries if type(carry) is _ScanCarry}
        for split_op, with_max in self.schedule.versions[self.loop]:
            with self.graph.handles[split_op.op].location:
                self.results[split_op, with_max] = self.emit_version(split_op, with_max)
                if split_op in of_maxima:
                    carry = of_maxima[split_op]
                    new[carry] = carry.next(self, old[carry])
                    self.maxima[carry.outputs[0].value] = old[carry][0], new[carry][0]
                new.update({c: c.next(self, old[c]) for c in at_once.get(split_op, ()) if not with_max})
        for carry in carries:
            if carry not in new:
                with carry.op.location:
                    new[carry] = carry.next(self, old[carry])
        return [value for carry in carries for value in new[carry]]

    def emit_version(self, split_op: SplitOp, with_max: bool) -> list[Any]:
        """The results of a split op; those of its operand where it brings in a term that is deferred."""
        op = self.graph.ops[split_op.op]
        positions, self.with_max = self.schedule.online.reads(op, self.loop, split_op, with_max)
        if split_op.cumulative:
            self.prefixes[split_op] = self.prefix(split_op)
            results, self.scan_sums[split_op] = scan_rule(op).emit(self.context(split_op, self.prefixes[split_op]))
            return results
        if len(positions) == len(op.inputs):
            return self.at(split_op.window).emit(split_op)
        return [self.input(split_op, position, op.inputs[position]) for position in positions]

    def prefix(self, split_op: SplitOp) -> list[Any]:
        """What a scan has come to before this chunk: from the step before, or a checkpoint of an earlier loop."""
        if split_op in self.scans:
            scan, carries = self.scans[split_op]
            return scan.prefix(self.chunk, carries)
        carry = _ScanCarry(self.emitter, split_op)
        return carry.scan.checkpoint(self.emitter.checkpoints[split_op], self.index)

    def rescaled(self, accumulator: Any, terms: Sequence[DeferredTerm]) -> Any:
        """What was accumulated with the maxima before this chunk, as if with those of now."""
        for term in terms:
            if term.running is not None and term.rescales:
                if term.statistic not in self.factors:
                    before, now = self.running_statistic(term.statistic, term.running)
                    self.factors[term.statistic] = rescaling_factor(before, now)
                accumulator = rescale(accumulator, term, self.factors[term.statistic])
        return accumulator

    def running_statistic(self, statistic: int, running: RunningStatistic) -> tuple[Any, Any]:
        """A row statistic of the maximum before this chunk, and of the maximum with it."""
        if statistic not in self.statistics:
            before, now = (self.statistic_of(m, statistic, running) for m in self.maxima[running.reference_maximum])
            self.statistics[statistic] = before, now
        return self.statistics[statistic]

    def statistic_of(self, maximum: Any, statistic: int, running: RunningStatistic) -> Any:
        """A row statistic computed from a maximum, never -∞."""
        values = {running.reference_maximum: maximum}
        for index in running.ops:
            op = self.graph.ops[index]
            operands = [values[v] if v in values else self.whole(v) for v in op.operands]
            values.update(zip(op.results, self.clone(op, operands), strict=True))
        return values[statistic] if running.finite else zero_for_minus_infinity(values[statistic])

    def clone(self, op: Op, operands: Sequence[Any]) -> list[Any]:
        """The results of an op outside, computed in the step."""
        self.emitter.cloned.add(op.index)
        return builders.clone_with(
            self.graph.handles[op.index], operands, [self.graph.values[v].shape for v in op.results]
        )

    def whole(self, value: int) -> Any:
        """A whole value; views are computed in the step: before the loop they would be copies."""
        running = self.schedule.online.running.get((self.loop, value))
        if running is not None:
            return self.running_statistic(value, running)[1]
        op = self.graph.producer(value)
        if op is None or op.index in self.schedule.inner_ops | self.emitter.erased or not self.is_view(op):
            return self.emitter.values[value]
        if value not in self.views:
            self.views[value] = self.clone(op, [self.whole(v) for v in op.operands])[0]
        return self.views[value]

    def is_view(self, op: Op) -> bool:
        """Whether an op's result is elements of its operand, as they lie or repeated."""
        rule = OP_RULES.get(op.name)
        return rule is not None and (rule.view or (rule.free and any(self.graph.values[v].shape for v in op.operands)))

    def chunk_of(self, value: int, dimension: int) -> Any:
        """What a split op of the loop computes, or a slice of the value."""
        return self.read(Use(value, dimension), self)

    def in_window(self, chunk: Chunk, window: Window) -> ChunkEmitter:
        """The same step on another part of the axis."""
        return WindowEmitter(self, chunk, window, self.read)

    def read(self, use: Use, part: ChunkEmitter) -> Any:
        """What a split op of the loop computes, or a slice of the value, in a part of the axis."""
        source = self.schedule.producer_in(self.loop, use)
        if source is not None:
            version = self.schedule.online.version(self.loop, source, self.with_max)
            return self.results[source, version][self.graph.values[use.value].result]
        if use not in self.slices:
            self.slices[use] = part.slice(self.emitter.values[use.value], use.dimension)
        return self.slices[use]


def _grouped(values: Sequence[Any], carries: Sequence[_LoopCarry]) -> dict[_LoopCarry, list[Any]]:
    """The values of each carry."""
    rest = iter(values)
    return {carry: [next(rest) for _ in range(carry.count)] for carry in carries}
