"""Which splits a block could have at a peak, in all their sizes, and why it could not have others.

Called by the passes that split: `split_into_loops` and `reblock_scans`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.peak_memory import Peak, memory_of_ops
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import Graph, Path, nested_graph
from stablehlo_mem.ir.op_attributes import dot_labels
from stablehlo_mem.ir.trip_count import block_runs
from stablehlo_mem.pass_api.candidate import (
    CHUNK_SHARE,
    Candidate,
    Goal,
    Identity,
    Refusal,
    Size,
    Step,
    allows,
)
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.splitting.axis import Axis, Obstacle
from stablehlo_mem.splitting.host_slices import UNWRITTEN, is_unwritten_on_host
from stablehlo_mem.splitting.like_places import like_places
from stablehlo_mem.splitting.loop_schedule import LoopSchedule
from stablehlo_mem.splitting.loop_sizes import in_places, loop_sizes
from stablehlo_mem.splitting.loops_of_seed import Seed, axis_of_seed, first_loops, is_small, loops_along
from stablehlo_mem.splitting.regrouping import numerics_of, why_not_regrouped
from stablehlo_mem.splitting.saved_values import worth_saving
from stablehlo_mem.splitting.split_step import PASS_NAME, Split, split_copy

_SEEDS = 6
"""Values at the peak, largest first, from which axes are grown."""
_MAX_INDEX = 2**31 - 1
"""Loops count and index in i32."""
_NEEDED_WHOLE = "it is needed whole after it is computed, as a result or by an op outside"
_SMALLER = 16
"""How many times smaller the values are that a split of `Goal.include_small_values` takes along."""
_FEW_LOOPS = 4
"""Of axes with so many loops at most the first loops alone are candidates: chosen for planning time."""
_SMALLEST = 1024
"""Bytes below which no value is worth a loop."""


def proposals_around(main: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
    """The splits of the block of a peak and of those around it, and why others are not possible."""
    for path, _ in reversed(peak.ops_around):
        yield from proposals(main, path, peak, goal)


def proposals(main: Graph, path: Path, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
    """The splits of a block that lower the peak, each in the size that suits the goal, and why others do not."""
    if is_small(nested_graph(main, path)):
        items = _cached_proposals(main, path, peak, goal)
    else:
        items = _Proposals(main, path, peak, goal).run()
    for item in items:
        if isinstance(item, Refusal):
            yield item
        else:
            fitting = (sized.fitting(peak.temp_bytes, goal) for sized in item)
            yield min(fitting, key=lambda candidate: candidate.added_seconds)


@dataclasses.dataclass(frozen=True)
class _Sized:
    """A candidate in any of its sizes; `spared_bytes` at the peak are those a chunk's size decides on."""

    candidate: Candidate
    spared_bytes: int

    def fitting(self, temp_bytes: int, goal: Goal) -> Candidate:
        """The candidate in the fastest size that reaches the goal or takes its share of it: of none the smallest."""
        # Where the others alone are over the goal they are made smaller by later steps, or the goal is out of reach.
        wanted = min(temp_bytes - goal.temp_bytes, self.spared_bytes - CHUNK_SHARE * goal.temp_bytes)
        sizes = self.candidate.sizes
        size = next((s for s in sizes if s.saved_bytes >= wanted), None)
        return self.candidate.resized(size or max(sizes, key=lambda s: s.saved_bytes))


_Proposal = tuple[_Sized, ...] | Refusal
"""Alternative loops of one axis, of which the fastest is the candidate, or why there are none."""


@cached_analysis
def _cached_proposals(main: Graph, path: Path, peak: Peak, goal: Goal) -> tuple[_Proposal, ...]:
    return tuple(_Proposals(main, path, peak, goal).run())


@cached_analysis
def _next_size(graph: Graph, least: int) -> int:
    """The bytes of the smallest value of at least so many: goals between two sizes grow the same axes."""
    return min((value.nbytes for value in graph.values if value.nbytes >= least), default=least)


class _Proposals:
    """The splits of one block."""

    def __init__(self, main: Graph, path: Path, peak: Peak, goal: Goal):
        self.main, self.graph = main, nested_graph(main, path)
        self.path, self.peak, self.goal = path, peak, goal
        self.live = peak.live_in(path)
        big_bytes = min(goal.temp_bytes // 8, max(self.live.values(), default=0) // 4)
        smaller = _SMALLER if goal.include_small_values else 1
        self.big_bytes = _next_size(self.graph, max(_SMALLEST, big_bytes // smaller))
        self.schedules: dict[Axis, LoopSchedule] = {}
        self.proposed: set[tuple[frozenset[int], int, tuple[SplitOp, ...]]] = set()
        self.reached: set[Seed] = set()
        self.runs = block_runs(main, path)

    def run(self) -> Iterator[_Proposal]:
        split: set[Any] = set()
        for value in sorted(self.live, key=lambda v: (-self.live[v], v))[:_SEEDS]:
            if self.graph.values[value].nbytes < self.big_bytes or not self.graph.values[value].is_computed:
                continue
            origin = self.origin(value)
            if origin in split:
                continue
            sizes = enumerate(self.graph.values[value].shape)
            seeds = [(value, d) for d, size in sizes if size > 1 and (value, d) not in self.reached]
            axes = [axis_of_seed(self.graph, seed, self.big_bytes) for seed in seeds]
            for axis in axes:
                for item in self.along(axis):
                    if not isinstance(item, Refusal):
                        split.add(origin)
                    yield item
            if self.goal.include_small_values:
                # Axes that reach far are equal from whichever value they are grown.
                uses = (use for axis in axes for use, split_op in axis.producers.items() if split_op is not None)
                self.reached.update((use.value, use.dimension) for use in uses)

    def origin(self, value: int) -> Any:
        """Equal for values that one line computes, in several layers say: a split of one is like that of another."""
        data = self.graph.values[value]
        handle = self.graph.handles[data.producer]
        return handle.name, handle.location.attr, data.result, data.shape, data.dtype

    def along(self, axis: Axis) -> Iterator[_Proposal]:
        for obstacle in axis.obstacles:
            yield self.in_the_way(obstacle)
        schedule = self.schedule(axis)
        if schedule is None or self.too_long(axis):
            if not axis.obstacles:
                yield self.about_seed(axis, "needed-whole", _NEEDED_WHOLE)
            return
        if is_unwritten_on_host(self.graph, axis, self.goal.chip):
            yield self.about_seed(axis, "host-slices", UNWRITTEN)
            return
        key = (schedule.inner_ops, axis.n, axis.split_ops)
        if key not in self.proposed:
            self.proposed.add(key)
            yield from self.candidates(axis, schedule)

    def schedule(self, axis: Axis) -> LoopSchedule | None:
        """The loops of an axis: those of an equal one that was grown from elsewhere, if there is one."""
        schedule = self.schedules.get(axis)
        if schedule is not None:
            return schedule if schedule.only_in_chunks(axis.seed[0]) else None
        schedule = loops_along(self.graph, axis, axis.seed, self.big_bytes, False)
        if schedule is not None:
            self.schedules[axis] = schedule
        return schedule

    def online(self, axis: Axis, waiting: LoopSchedule) -> LoopSchedule | None:
        """The loops of an axis with online reductions, None if there are none; `waiting` are those without."""
        if not any(loop and split_op.partial for split_op, loop in waiting.first_loop.items()):
            return None
        schedule = loops_along(self.graph, axis, axis.seed, self.big_bytes, True)
        return schedule if schedule is not None and schedule.is_online else None

    def too_long(self, axis: Axis) -> bool:
        return any(self.graph.values[use.value].shape[use.dimension] > _MAX_INDEX for use in axis.producers)

    def spared_bytes(self, schedule: LoopSchedule) -> int:
        """Bytes at the peak of what exists in chunks only, of ops' scratch and of values in their blocks too."""
        spared = sum(nbytes for v, nbytes in self.live.items() if schedule.only_in_chunks(v))
        depth = len(self.path)
        inside = (live for live in self.peak.live if live.path[:depth] == self.path and len(live.path) > depth)
        spared += sum(live.nbytes for live in inside if live.path[depth][0] in schedule.inner_ops)
        return spared + self.peak.scratch_bytes(self.path, schedule.inner_ops)

    def streamed_bytes(self, schedule: LoopSchedule) -> int:
        """What of them never goes through memory, but is in the compiler's report: `CompilerModel.streamed_into`."""
        model = compiler_model(self.goal.chip)
        into = {v: model.streamed_into(self.graph, v) for v in self.live if schedule.only_in_chunks(v)}
        streamed = {v: reduction for v, reduction in into.items() if reduction is not None}
        scratch = self.peak.scratch_bytes(self.path, schedule.inner_ops.intersection(streamed.values()))
        return sum(self.live[v] for v in streamed) + scratch

    def candidates(self, axis: Axis, schedule: LoopSchedule) -> Iterator[_Proposal]:
        """Loops as the program is written, or fewer with online reductions."""
        variants = [schedule]
        if schedule.loop_count > 1 and allows(self.goal.options, "reassociate"):
            online = self.online(axis, schedule)
            variants += [online] if online else []
        reasons = [why_not_regrouped(self.main, self.path, variant, self.goal.options) for variant in variants]
        allowed = [variant for variant, reason in zip(variants, reasons, strict=True) if not reason]
        if not allowed:
            yield self.about_seed(axis, "compared", reasons[0])
        candidates = tuple(c for c in (self.candidate(axis, variant) for variant in allowed) if c is not None)
        if candidates:
            yield candidates
        if allowed:
            yield from self.with_fewer_loops(axis, min(allowed, key=lambda variant: variant.loop_count))

    def with_fewer_loops(self, axis: Axis, schedule: LoopSchedule) -> Iterator[_Proposal]:
        """The first loops of an axis alone: later ones would recompute, or add up more than they spare."""
        for count in range(1, schedule.loop_count if schedule.loop_count <= _FEW_LOOPS else 1):
            seed, streaming = axis.seed, schedule.is_online
            part = first_loops(self.graph, axis, seed, self.big_bytes, streaming, count)
            if part is None or part.is_online is not streaming or not part.only_in_chunks(seed[0]):
                continue
            if why_not_regrouped(self.main, self.path, part, self.goal.options):
                continue
            candidate = self.candidate(axis, part, count)
            if candidate is not None:
                yield (candidate,)

    def with_saved(self, schedule: LoopSchedule) -> Mapping[tuple[int, ...], LoopSchedule]:
        """Loops by what they save for later ones: nothing, or the sets that save the most time for their bytes."""
        sets = worth_saving(self.graph, schedule, self.goal.chip, self.goal.temp_bytes)
        return {(): schedule} | {saved: schedule.with_saved(saved) for saved in sets}

    def candidate(self, axis: Axis, schedule: LoopSchedule, first: int | None = None) -> _Sized | None:
        """The loops of an axis, or the first so many of them, as a candidate; None if they spare nothing."""
        spared = self.spared_bytes(schedule)
        if not spared:
            return None
        schedules = self.with_saved(schedule)
        sizes = [size for saved, variant in schedules.items() for size in self.sizes(variant, saved)]
        if not sizes:
            return None
        places = self.like_places(schedule, max(size.saved_bytes for size in sizes), first)
        everywhere = (in_places(size, 1 + len(places)) for size in sizes)
        sizes = tuple(sorted(everywhere, key=lambda size: size.added_seconds))
        size = sizes[0]
        params = Split(
            path=self.path,
            value=axis.seed[0],
            dimension=axis.seed[1],
            big_bytes=axis.big_bytes,
            **vars(size.params),
            elements=axis.n,
            loops=schedule.loop_count,
            streaming=schedule.is_online,
            first=first,
            places=tuple(place.axis.seed for place in places),
        )
        candidate = Candidate(
            step=Step(PASS_NAME, "", params),
            saved_bytes=size.saved_bytes,
            added_seconds=size.added_seconds,
            moved_seconds=size.moved_seconds,
            numerics=numerics_of(schedule),
            summary=self.summary(axis),
            identity=(*self.identity(axis), first),
            refusal_if_useless=self.about_seed(axis, "no-gain", "splitting it there does not lower the peak"),
            sizes=sizes,
            apply_to_copy=functools.partial(split_copy, self.main, schedule, places),
            dedup_key=(self.path, schedule, params.places),
            family=(self.path, axis.n, first),
        )
        return _Sized(candidate, spared - self.output_bytes(schedule))

    def like_places(self, schedule: LoopSchedule, saved_bytes: int, first: int | None) -> tuple[LoopSchedule, ...]:
        """The loops of other places where more would stay alive than the split is to leave."""
        limit = max(self.goal.temp_bytes, self.peak.temp_bytes - saved_bytes)
        memory = memory_of_ops(self.main, self.goal.chip, self.path)
        places = like_places(self.graph, schedule, memory, limit, first)
        options = self.goal.options
        return tuple([place for place in places if not why_not_regrouped(self.main, self.path, place, options)])

    def sizes(self, schedule: LoopSchedule, saved: tuple[int, ...]) -> tuple[Size, ...]:
        spared, left = self.spared_bytes(schedule), self.output_bytes(schedule)
        written = spared - self.streamed_bytes(schedule)
        return loop_sizes(self.graph, schedule, saved, spared, written, left, self.goal.chip, self.runs)

    def output_bytes(self, schedule: LoopSchedule) -> int:
        """Bytes the loops add beside the chunks: their outputs, unless those are results of the block anyway."""
        results = set(self.graph.returned)
        values = {o.value for o in schedule.outputs if o.value not in results and o.value not in self.live}
        return sum(self.graph.values[v].nbytes for v in values)

    def identity(self, axis: Axis) -> Identity:
        """Alike for the results of one op that are of one type."""
        value, dimension = axis.seed
        return PASS_NAME, self.path, self.graph.values[value].producer, str(self.graph.values[value]), dimension

    def summary(self, axis: Axis) -> str:
        value, dimension = axis.seed
        return f"split {self.describe(value)} along dimension {dimension}{_dot_dimension(self.graph, value, dimension)}"

    def describe(self, value: int) -> str:
        data = self.graph.values[value]
        return f"{self.graph.title(data.producer) if data.is_computed else 'argument'} {data}"

    def in_the_way(self, obstacle: Obstacle) -> Refusal:
        blocked = obstacle.blocked
        message = f"{self.graph.ops[obstacle.op].name} stands in the way: {blocked.message}"
        return self.refusal(obstacle.op, obstacle.value, obstacle.dimension, blocked.code, message)

    def about_seed(self, axis: Axis, code: str, message: str) -> Refusal:
        value, dimension = axis.seed
        return self.refusal(self.graph.values[value].producer, value, dimension, code, message)

    def refusal(self, op: int, value: int, dimension: int, code: str, message: str) -> Refusal:
        nbytes = self.graph.values[value].nbytes
        return Refusal.at(self.main, (self.path, op), self.describe(value), nbytes, code, message, dimension)


def _dot_dimension(graph: Graph, value: int, dimension: int) -> str:
    """Where a matmul's dimension comes from: " (dimension 0 of its left operand)"; "" for other ops."""
    producer = graph.producer(value)
    if producer is None or producer.name != "stablehlo.dot_general":
        return ""
    left, right, _, _ = dot_labels(graph, producer)
    if dimension in left and dimension in right:
        return " (a batch dimension)"
    side, labels = ("left", left) if dimension in left else ("right", right)
    return f" (dimension {labels.index(dimension)} of its {side} operand)"
