"""Which splits a block could have at a peak, in all their sizes, and why it could not have others."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.peak_memory import Path, Peak
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.float_comparisons import COMPARED, decides
from stablehlo_mem.ir.graph import Graph, dtype_bytes, nested_graph, op_id
from stablehlo_mem.ir.trip_count import block_runs
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Numerics, Refusal, Size, Step, allows
from stablehlo_mem.sharding_rules import OP_RULES, rule_book
from stablehlo_mem.splitting.axis import Axis, Obstacle, grow_axis
from stablehlo_mem.splitting.axis_names import origin_of
from stablehlo_mem.splitting.chunk_cost import loop_cost
from stablehlo_mem.splitting.loop_schedule import LoopSchedule
from stablehlo_mem.splitting.loop_scheduling import schedule_loops
from stablehlo_mem.splitting.saved_values import worth_saving
from stablehlo_mem.splitting.split_step import PASS_NAME, Split, split_copy

_SEEDS = 6
"""Values at the peak, largest first, from which axes are grown."""
_MAX_INDEX = 2**31 - 1
_NEEDED_WHOLE = "it is needed whole after it is computed, as a result or by an op outside"
_FAR = 16
"""How much smaller the values are that a far-reaching split takes along."""
_MOST_KEPT = 3
"""Ops of whose results more are kept, one after the other ..."""
_FEW_LOOPS = 8
"""... by so many loops at most: of more, each of which runs again what was before, those few spare next to nothing."""
_KEPT = 2000
"""Of blocks of at most so many ops all that was grown in them is kept: small programs are searched again and again."""
_Seed = tuple[int, int]
_SMALLEST = 1024
"""Bytes below which no value is worth a loop."""


def proposals_around(main: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
    """The splits of the block of a peak and of those around it, and why others are none."""
    for depth in range(len(peak.path), -1, -1):
        yield from proposals(main, peak.path[:depth], peak, goal)


def proposals(main: Graph, path: Path, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
    """The splits of a block that lower the peak, each in the size that suits the goal, and why others are none."""
    # Searches ask again with other shares of the goal: only the size that is taken depends on it.
    anyhow = dataclasses.replace(goal, chunk_share=0.0)
    if _is_small(nested_graph(main, path)):
        found = _found(main, path, peak, anyhow)
    else:
        found = _Proposals(main, path, peak, anyhow).run()
    for item in found:
        if isinstance(item, Refusal):
            yield item
        else:
            fitting = (one.fitting(peak.temp_bytes, goal) for one in item)
            yield min(fitting, key=lambda candidate: candidate.added_seconds)


def _is_small(graph: Graph) -> bool:
    """Whether a block is so small that what was found in it is kept."""
    return len(graph.ops) <= _KEPT


@dataclasses.dataclass(frozen=True)
class _Sized:
    """A candidate in any of its sizes; `spared_bytes` at the peak are those a chunk's size decides on."""

    candidate: Candidate
    spared_bytes: int

    def fitting(self, temp_bytes: int, goal: Goal) -> Candidate:
        """In the fastest size that reaches the goal or takes its share of it: of none the smallest."""
        # Where the others alone are over the goal they are made smaller by later steps, or the goal is out of reach.
        wanted = min(temp_bytes - goal.temp_bytes, self.spared_bytes - goal.chunk_share * goal.temp_bytes)
        sizes = self.candidate.sizes
        size = next((s for s in sizes if s.saved_bytes >= wanted), None)
        return self.candidate.resized(size or max(sizes, key=lambda s: s.saved_bytes))


_Proposal = tuple[_Sized, ...] | Refusal
"""Loops of an axis, of which the fastest is the candidate, or why there are none."""


@cached_analysis
def _found(main: Graph, path: Path, peak: Peak, goal: Goal) -> tuple[_Proposal, ...]:
    """All that a small block proposes, kept for later searches."""
    return tuple(_Proposals(main, path, peak, goal).run())


@dataclasses.dataclass
class _Grown:
    """What was grown in a block from values of some size: axes by seed, their loops by what runs, those that stream."""

    axes: dict[_Seed, Axis] = dataclasses.field(default_factory=dict[_Seed, Axis])
    regions: dict[Any, list[LoopSchedule]] = dataclasses.field(default_factory=dict[Any, "list[LoopSchedule]"])
    streaming: dict[_Seed, LoopSchedule | None] = dataclasses.field(default_factory=dict[_Seed, "LoopSchedule | None"])


@cached_analysis
def _grown(graph: Graph, big_bytes: int) -> _Grown:
    """What was grown in a small block in earlier searches from it."""
    del graph, big_bytes
    return _Grown()


@cached_analysis
def _value_sizes(graph: Graph) -> list[int]:
    """The bytes of the values of a block, in order."""
    return sorted({value.nbytes for value in graph.values})


def _next_size(graph: Graph, least: int) -> int:
    """The bytes of the smallest value that has at least so many: what is as large, for whichever goal, grows alike."""
    sizes = _value_sizes(graph)
    index = bisect.bisect_left(sizes, least)
    return sizes[index] if index < len(sizes) else least


class _Proposals:
    """The splits of one block."""

    def __init__(self, main: Graph, path: Path, peak: Peak, goal: Goal):
        self.main, self.graph = main, nested_graph(main, path)
        self.path, self.peak, self.goal = path, peak, goal
        self.rules = rule_book(self.graph)
        self.live = {live.value: live.nbytes for live in peak.live if live.path == path}
        big_bytes = min(goal.temp_bytes // 8, max(self.live.values(), default=0) // 4)
        self.big_bytes = _next_size(self.graph, max(_SMALLEST, big_bytes // (_FAR if goal.include_small_values else 1)))
        self.seen: set[Any] = set()
        self.reached: set[_Seed] = set()
        self.grown = _grown(self.graph, self.big_bytes) if _is_small(self.graph) else _Grown()
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
            dimensions = [d for d, size in sizes if size > 1 and (value, d) not in self.reached]
            for dimension in dimensions:
                for item in self.along(value, dimension):
                    if not isinstance(item, Refusal):
                        split.add(origin)
                    yield item
            if self.goal.include_small_values:
                # What reaches far is alike from whichever value it is grown.
                axes = (self.axis((value, d)) for d in dimensions)
                uses = (use for axis in axes for use, split_op in axis.producers.items() if split_op is not None)
                self.reached.update((use.value, use.dimension) for use in uses)

    def origin(self, value: int) -> Any:
        """Alike for values that one line makes alike, in several layers say: a split of one is as one of another."""
        data = self.graph.values[value]
        handle = self.graph.handles[data.producer]
        return handle.name, str(handle.location), data.result, data.shape, data.dtype

    def along(self, value: int, dimension: int) -> Iterator[_Proposal]:
        axis = self.axis((value, dimension))
        for obstacle in axis.obstacles:
            yield self.refusal(obstacle)
        schedule = self.formed(axis)
        if schedule is None or self.too_long(axis):
            yield from () if axis.obstacles else (self.about_seed(axis, "needed-whole", _NEEDED_WHOLE),)
            return
        key = (schedule.inner_ops, axis.n, axis.split_ops)
        if key not in self.seen:
            self.seen.add(key)
            yield from self.candidates(axis, schedule)

    def axis(self, seed: _Seed) -> Axis:
        if seed not in self.grown.axes:
            self.grown.axes[seed] = grow_axis(self.graph, self.rules, seed, self.big_bytes)
        return self.grown.axes[seed]

    def streaming(self, axis: Axis, waiting: LoopSchedule) -> LoopSchedule | None:
        """The loops of an axis where some stream, None if none do; `waiting` are those where none does."""
        if not any(loop and split_op.partial for split_op, loop in waiting.first_loop.items()):
            return None
        if axis.seed not in self.grown.streaming:
            schedule = schedule_loops(self.graph, axis, streaming=True)
            self.grown.streaming[axis.seed] = schedule if schedule and schedule.is_online else None
        return self.grown.streaming[axis.seed]

    def formed(self, axis: Axis) -> LoopSchedule | None:
        """The loops of an axis: those of an equal one that was grown from elsewhere, if there is one."""
        alike = self.grown.regions.setdefault((axis.n, axis.split_ops), [])
        for schedule in alike:
            if schedule.axis.producers == axis.producers:
                return schedule if schedule.only_in_chunks(axis.seed[0]) else None
        schedule = schedule_loops(self.graph, axis)
        alike += [schedule] if schedule else []
        return schedule

    def too_long(self, axis: Axis) -> bool:
        """Loops count and index in i32."""
        return any(self.graph.values[use.value].shape[use.dimension] > _MAX_INDEX for use in axis.producers)

    def spared_bytes(self, schedule: LoopSchedule) -> int:
        """Bytes at the peak that the loops need for a chunk only, the scratch of an op and its blocks' values too."""
        left = {item.value for item in schedule.outputs}
        owned = (v for v in self.live if self.graph.values[v].producer in schedule.inner_ops)
        spared = sum(self.live[v] for v in owned if v not in left)
        depth = len(self.path)
        inside = (live for live in self.peak.live if live.path[:depth] == self.path and len(live.path) > depth)
        spared += sum(live.nbytes for live in inside if live.path[depth][0] in schedule.inner_ops)
        spared += self.peak.scratch_bytes(self.path, schedule.inner_ops)
        return spared

    def streamed_bytes(self, schedule: LoopSchedule) -> int:
        """What of them never goes through memory, but is in the compiler's report: `CompilerModel.streamed_into`."""
        model = compiler_model(self.goal.chip)
        into = {v: model.streamed_into(self.graph, v) for v in self.live if schedule.only_in_chunks(v)}
        streamed = {v: reduction for v, reduction in into.items() if reduction is not None}
        scratch = self.peak.scratch_bytes(self.path, schedule.inner_ops.intersection(streamed.values()))
        return sum(self.live[v] for v in streamed) + scratch

    def candidates(self, axis: Axis, schedule: LoopSchedule) -> Iterator[_Proposal]:
        """One loop a phase, or fewer that stream."""
        forms = [schedule]
        if schedule.loop_count > 1 and allows(self.goal.options, "reassociate"):
            streaming = self.streaming(axis, schedule)
            forms += [streaming] if streaming else []
        settled = [form for form in forms if not unsettles(self.main, self.path, form)]
        if not settled:
            yield self.about_seed(axis, "compared", COMPARED)
        forms = settled
        found = tuple(c for c in (self.candidate(axis, form) for form in forms) if c is not None)
        if found:
            yield found

    def keeping(self, schedule: LoopSchedule) -> Mapping[tuple[int, ...], LoopSchedule]:
        """The loops of an axis by what they keep for later ones: nothing, then ever more of what is worth it."""
        kept: tuple[int, ...] = ()
        forms: dict[tuple[int, ...], LoopSchedule] = {kept: schedule}
        for _ in range(_MOST_KEPT if schedule.loop_count <= _FEW_LOOPS else 0):
            more = worth_saving(self.graph, forms[kept], self.goal.chip, self.goal.temp_bytes)
            if not more:
                break
            kept = (*kept, *more)
            forms[kept] = schedule.with_saved(kept)
        return forms

    def sizes(self, schedule: LoopSchedule, kept: tuple[int, ...]) -> tuple[Size, ...]:
        """Loops in all their chunks, which do not depend on the goal."""
        spared, left, chip = self.spared_bytes(schedule), self.left_bytes(schedule), self.goal.chip
        written = spared - self.streamed_bytes(schedule)

        def find() -> tuple[Size, ...]:
            n, saved = schedule.axis.n, saved_bytes(schedule)
            return tuple(
                Size(
                    {"chunk": chunk, "kept": kept},
                    int(spared * (1 - chunk / n)) - left - saved * -(-n // chunk),
                    self.runs * seconds,
                    self.runs * moved,
                )
                for chunk, seconds, moved in loop_cost(self.graph, schedule, chip, written).chunks()
            )

        key = _number(self.graph, schedule), spared, written, left, chip, self.runs
        return self.graph.cache.get("sizes of loops", key, find)

    def candidate(self, axis: Axis, schedule: LoopSchedule) -> _Sized | None:
        spared = self.spared_bytes(schedule)
        if not spared:
            return None
        forms = self.keeping(schedule)
        sizes = [size for kept, form in forms.items() for size in self.sizes(form, kept)]
        sizes = tuple(sorted(sizes, key=lambda size: size.added_seconds))
        size = sizes[0]
        numerics: Numerics = "reassociate" if regroups(self.graph, schedule) else "exact"
        params = Split(
            path=self.path,
            value=axis.seed[0],
            dimension=axis.seed[1],
            big_bytes=axis.big_bytes,
            **size.params,
            elements=axis.n,
            loops=schedule.loop_count,
            streaming=schedule.is_online,
        )
        candidate = Candidate(
            step=Step(PASS_NAME, "", dataclasses.asdict(params)),
            saved_bytes=size.saved_bytes,
            added_seconds=size.added_seconds,
            moved_seconds=size.moved_seconds,
            numerics=numerics,
            summary=self.summary(axis),
            refusal_if_useless=self.about_seed(axis, "no-gain", "splitting it there does not lower the peak"),
            sizes=sizes,
            apply_to_copy=functools.partial(split_copy, self.main, forms),
            dedup_key=(self.path, _number(self.graph, schedule)),
        )
        return _Sized(candidate, spared - self.left_bytes(schedule))

    def left_bytes(self, schedule: LoopSchedule) -> int:
        """Bytes the loops add beside the chunks: what leaves them, unless it is an output anyway."""
        outputs = set(self.graph.returned)
        values = {item.value for item in schedule.outputs if item.value not in outputs and item.value not in self.live}
        return sum(self.graph.values[v].nbytes for v in values)

    def summary(self, axis: Axis) -> str:
        value, dimension = axis.seed
        return f"split {self.describe(value)} along dimension {dimension}{origin_of(self.graph, value, dimension)}"

    def describe(self, value: int) -> str:
        data = self.graph.values[value]
        return f"{self.graph.title(data.producer) if data.is_computed else 'argument'} {data}"

    def source(self, value: int) -> str:
        data = self.graph.values[value]
        return self.graph.source(data.producer) if data.is_computed else ""

    def refusal(self, obstacle: Obstacle) -> Refusal:
        op = self.graph.ops[obstacle.op]
        return Refusal(
            op=op_id(self.main, self.path, obstacle.op),
            value=self.describe(obstacle.value),
            nbytes=self.graph.values[obstacle.value].nbytes,
            dimension=obstacle.dimension,
            code=obstacle.blocked.code,
            message=f"{op.name} stands in the way: {obstacle.blocked.message}",
            location=self.graph.source(obstacle.op),
        )

    def about_seed(self, axis: Axis, code: str, message: str) -> Refusal:
        value, dimension = axis.seed
        return Refusal(
            op=op_id(self.main, self.path, self.graph.values[value].producer),
            value=self.describe(value),
            nbytes=self.graph.values[value].nbytes,
            dimension=dimension,
            code=code,
            message=message,
            location=self.source(value),
        )


def _number(graph: Graph, schedule: LoopSchedule) -> int:
    """Alike for regions that are, wherever their axes were grown from: those of large values reach as far as of all."""
    known = graph.cache.get("loops", (), list[LoopSchedule])
    anywhere = dataclasses.replace(
        schedule, axis=dataclasses.replace(schedule.axis, seed=(0, 0), big_bytes=0, obstacles=())
    )
    if anywhere not in known:
        known.append(anywhere)
    return known.index(anywhere)


def saved_bytes(schedule: LoopSchedule) -> int:
    """Bytes of what cumulative ops come to before one chunk, where a loop that runs the other way needs it."""
    graph = schedule.graph
    if not any(split_op.cumulative for split_op in schedule.loops_of):
        return 0
    split_ops = {split_op for loop in range(schedule.loop_count) for split_op in schedule.checkpointed_scans(loop)}
    values = (graph.values[v] for split_op in split_ops for v in graph.ops[split_op.op].results)
    # In 4 bytes at least: sums of narrow floats are made in f32.
    elements = (math.prod(v.shape) // schedule.axis.n * max(4, dtype_bytes(v.dtype)) for v in values)
    return int(sum(elements))


def unsettles(main: Graph, path: Path, schedule: LoopSchedule) -> bool:
    """Whether loops sum otherwise what is compared with floats that are computed elsewhere: see `comparisons`."""
    if not regroups(schedule.graph, schedule):
        return False
    sums = {item.value for item in schedule.outputs if item.accumulated}
    sums |= {
        v for split_op in schedule.first_loop if split_op.cumulative for v in schedule.graph.ops[split_op.op].results
    }
    return decides(main, path, sums)


def regroups(graph: Graph, schedule: LoopSchedule) -> bool:
    """Whether the loops make float sums in another grouping."""
    reducing = (item.split_op.op for item in schedule.outputs if item.accumulated)
    rows = ((OP_RULES[graph.ops[op].name].reduction, graph.handles[op]) for op in reducing)
    cumulative = {split_op.op for split_op in schedule.first_loop if split_op.cumulative}
    goes_on = ((OP_RULES[graph.ops[op].name].cumulative, graph.handles[op]) for op in sorted(cumulative))
    rows = (*rows, *goes_on)
    return schedule.is_online or any(row is not None and row.regroups(op) for row, op in rows)
