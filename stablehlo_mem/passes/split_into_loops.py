"""split-into-loops: the computation of big values becomes loops over slices of one of their dimensions.

Before, with %k of n x n elements over the budget:
    %k = stablehlo.exponential %d : tensor<nxn>
    %y = stablehlo.dot_general %k, %v : tensor<n>
After, c rows of %k at a time:
    %y = stablehlo.while(%i = 0, %acc = zeros) { ... %kc : tensor<cxn> ... dynamic_update_slice %acc, %yc }

Refuses, with a reason, dimensions that an op on the way needs whole.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stablehlo_mem.axes import Axis, Obstacle, grow_axis
from stablehlo_mem.axis_names import origin_of
from stablehlo_mem.chunks import loop_cost
from stablehlo_mem.cost import block_runs
from stablehlo_mem.forming import form_region
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import Graph, dtype_bytes, entry_graph, graph_of_copy, nested_graph, op_id, remembered
from stablehlo_mem.keeping import worth_keeping
from stablehlo_mem.loops import emit_loops
from stablehlo_mem.memory import Path, Peak
from stablehlo_mem.plan import Candidate, Goal, Numerics, Refusal, Size, Step, allows
from stablehlo_mem.regions import Region
from stablehlo_mem.rules import ROWS, rule_book

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split:
    """One split, as data.

    Attributes:
        path: the block, from the entry function's.
        value, dimension: the seed of the axis, in that block's graph.
        big_bytes: values of at least this size are split.
        chunk: elements of the axis in one step.
        elements: of the axis, for people.
        loops: number of them, for people.
        streaming: reductions run in the loop of those they depend on, where they can.
        kept: values that a loop keeps for later ones, which would compute them again.
    """

    path: Path
    value: int
    dimension: int
    big_bytes: int
    chunk: int
    elements: int = 0
    loops: int = 0
    streaming: bool = False
    kept: tuple[int, ...] = ()


class SplitIntoLoops:
    """The pass: proposes a split along every dimension of the largest values at the peak."""

    name = "split-into-loops"

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
        """Candidates at the peak, in the block of the peak and in those around it, and why others are none."""
        for depth in range(len(peak.path), -1, -1):
            path = peak.path[:depth]
            yield from _Proposals(graph, path, peak, goal).run()

    def cheapen(self, graph: Graph, goal: Goal) -> tuple[Candidate, ...]:
        """None: loops are for memory."""
        return ()

    def apply(self, module: ir.Module, step: Step) -> None:
        """Splits as a step says, in place."""
        split(module, decode(step))

    def describe(self, step: Step) -> str:
        """What a step's loops look like."""
        one = decode(step)
        loops = "1 loop" if one.loops == 1 else f"{one.loops} loops"
        loops += ", streaming," if one.streaming else ""
        kept = f", {len(one.kept)} kept between them" if one.kept else ""
        return f"{loops} of {-(-one.elements // one.chunk)} steps, {one.chunk} of {one.elements} at a time{kept}"


def split(module: ir.Module, decision: Split) -> None:
    """Rewrites a module in place.

    Raises:
        ValueError: the decision was not made for this module.
    """
    graph = nested_graph(entry_graph(module), decision.path)
    axis = grow_axis(graph, rule_book(graph), (decision.value, decision.dimension), decision.big_bytes)
    region = form_region(graph, axis, streaming=decision.streaming)
    if region is None:
        raise ValueError(f"nothing to split: {decision}")
    with module.context:
        emit_loops(graph, region.keeping(decision.kept), decision.chunk)


def _split_copy(main: Graph, forms: Mapping[tuple[int, ...], Region], copy: ir.Module, step: Step) -> None:
    """Splits a copy of the module of a graph as a step says, whose region in it is known by what it keeps."""
    decision = decode(step)
    graph = nested_graph(graph_of_copy(main, copy), decision.path)
    with copy.context:
        emit_loops(graph, forms[decision.kept], decision.chunk)


def decode(step: Step) -> Split:
    """The split of a step, also of one that came back from JSON."""
    params = dict(step.params)
    params["path"] = tuple((op, block) for op, block in params["path"])
    params["kept"] = tuple(params.get("kept", ()))
    return Split(**params)


@dataclasses.dataclass
class _Grown:
    """What was grown in a block from values of some size: axes by seed, their loops by what runs, those that stream."""

    axes: dict[_Seed, Axis] = dataclasses.field(default_factory=dict[_Seed, Axis])
    regions: dict[Any, list[Region]] = dataclasses.field(default_factory=dict[Any, "list[Region]"])
    streaming: dict[_Seed, Region | None] = dataclasses.field(default_factory=dict[_Seed, "Region | None"])


@remembered
def _grown(graph: Graph, big_bytes: int) -> _Grown:
    """What was grown in a small block in earlier searches from it."""
    del graph, big_bytes
    return _Grown()


class _Proposals:
    """The splits of one block."""

    def __init__(self, main: Graph, path: Path, peak: Peak, goal: Goal):
        self.main, self.graph = main, nested_graph(main, path)
        self.path, self.peak, self.goal = path, peak, goal
        self.rules = rule_book(self.graph)
        self.live = {live.value: live.nbytes for live in peak.live if live.path == path}
        big_bytes = min(goal.temp_bytes // 8, max(self.live.values(), default=0) // 4)
        self.big_bytes = max(_SMALLEST, big_bytes // (_FAR if goal.far else 1))
        self.seen: set[Any] = set()
        self.reached: set[_Seed] = set()
        small = len(self.graph.ops) <= _KEPT
        self.grown = _grown(self.graph, self.big_bytes) if small else _Grown()
        self.runs = block_runs(main, path)

    def run(self) -> Iterator[Candidate | Refusal]:
        for value in self.seeds():
            sizes = enumerate(self.graph.values[value].shape)
            dimensions = [d for d, size in sizes if size > 1 and (value, d) not in self.reached]
            for dimension in dimensions:
                yield from self.along(value, dimension)
            if self.goal.far:
                # What reaches far is alike from whichever value it is grown.
                axes = (self.axis((value, d)) for d in dimensions)
                uses = (use for axis in axes for use, node in axis.producers.items() if node is not None)
                self.reached.update((use.value, use.dimension) for use in uses)

    def seeds(self) -> Iterable[int]:
        """The values to grow axes from; of those that one line makes alike, in several layers say, the first."""
        found: dict[Any, int] = {}
        for value in sorted(self.live, key=lambda v: (-self.live[v], v))[:_SEEDS]:
            data = self.graph.values[value]
            if data.nbytes >= self.big_bytes and data.producer >= 0:
                handle = self.graph.handles[data.producer]
                found.setdefault((handle.name, str(handle.location), data.result, data.shape, data.dtype), value)
        return found.values()

    def along(self, value: int, dimension: int) -> Iterator[Candidate | Refusal]:
        axis = self.axis((value, dimension))
        for obstacle in axis.obstacles:
            yield self.refusal(obstacle)
        region = self.formed(axis)
        if region is None or self.too_long(axis):
            yield from () if axis.obstacles else (self.about_seed(axis, "needed-whole", _NEEDED_WHOLE),)
            return
        key = (region.owned, axis.n, axis.nodes)
        if key not in self.seen:
            self.seen.add(key)
            yield from self.candidates(axis, region)

    def axis(self, seed: _Seed) -> Axis:
        if seed not in self.grown.axes:
            self.grown.axes[seed] = grow_axis(self.graph, self.rules, seed, self.big_bytes)
        return self.grown.axes[seed]

    def streaming(self, axis: Axis, waiting: Region) -> Region | None:
        """The loops of an axis where some stream, None if none do; `waiting` are those where none does."""
        if not any(phase and node.partial for node, phase in waiting.phase_of.items()):
            return None
        if axis.seed not in self.grown.streaming:
            region = form_region(self.graph, axis, streaming=True)
            self.grown.streaming[axis.seed] = region if region and region.streams.terms else None
        return self.grown.streaming[axis.seed]

    def formed(self, axis: Axis) -> Region | None:
        """The loops of an axis: those of an equal one that was grown from elsewhere, if there is one."""
        alike = self.grown.regions.setdefault((axis.n, axis.nodes), [])
        for region in alike:
            if region.axis.producers == axis.producers:
                return region if region.spares(axis.seed[0]) else None
        region = form_region(self.graph, axis)
        alike += [region] if region else []
        return region

    def too_long(self, axis: Axis) -> bool:
        """Loops count and index in i32."""
        return any(self.graph.values[use.value].shape[use.dimension] > _MAX_INDEX for use in axis.producers)

    def spared_bytes(self, region: Region) -> int:
        """Bytes at the peak that the loops need for a chunk only, the scratch of an op and its blocks' values too."""
        left = {item.value for item in region.leaving}
        owned = (v for v in self.live if self.graph.values[v].producer in region.owned)
        spared = sum(self.live[v] for v in owned if v not in left)
        depth = len(self.path)
        inside = (live for live in self.peak.live if live.path[:depth] == self.path and len(live.path) > depth)
        spared += sum(live.nbytes for live in inside if live.path[depth][0] in region.owned)
        at_peak = self.peak.path[depth][0] if len(self.peak.path) > depth else self.peak.op
        if self.peak.path[:depth] == self.path and at_peak in region.owned:
            spared += self.peak.temp_bytes - sum(live.nbytes for live in self.peak.live)
        return spared

    def candidates(self, axis: Axis, region: Region) -> Iterator[Candidate]:
        """One loop a phase, or fewer that stream: the faster of those allowed."""
        forms = [region]
        if region.phases > 1 and allows(self.goal.options, "reassociate"):
            streaming = self.streaming(axis, region)
            forms += [streaming] if streaming else []
        found = [c for c in (self.candidate(axis, form) for form in forms) if c is not None]
        if found:
            yield min(found, key=lambda c: c.added_seconds)

    def keeping(self, region: Region) -> Mapping[tuple[int, ...], Region]:
        """The loops of an axis by what they keep for later ones: nothing, then ever more of what is worth it."""
        kept: tuple[int, ...] = ()
        forms: dict[tuple[int, ...], Region] = {kept: region}
        for _ in range(_MOST_KEPT if region.phases <= _FEW_LOOPS else 0):
            more = worth_keeping(self.graph, forms[kept], self.goal.chip, self.goal.temp_bytes)
            if not more:
                break
            kept = (*kept, *more)
            forms[kept] = region.keeping(kept)
        return forms

    def sizes(self, region: Region, kept: tuple[int, ...], spared: int) -> Iterator[Size]:
        """Loops in all their chunks."""
        cost = loop_cost(self.graph, region, self.goal.chip, spared)
        n, left, saved = region.axis.n, self.left_bytes(region), saved_bytes(region)
        for chunk, seconds, moved in cost.chunks():
            bytes_saved = int(spared * (1 - chunk / n)) - left - saved * -(-n // chunk)
            yield Size({"chunk": chunk, "kept": kept}, bytes_saved, self.runs * seconds, self.runs * moved)

    def candidate(self, axis: Axis, region: Region) -> Candidate | None:
        spared = self.spared_bytes(region)
        if not spared:
            return None
        forms = self.keeping(region)
        sizes = [size for kept, form in forms.items() for size in self.sizes(form, kept, self.spared_bytes(form))]
        sizes = tuple(sorted(sizes, key=lambda size: size.added_seconds))
        size = self.fitting(sizes, spared - self.left_bytes(region))
        numerics: Numerics = "reassociate" if regroups(self.graph, region) else "exact"
        params = Split(
            path=self.path,
            value=axis.seed[0],
            dimension=axis.seed[1],
            big_bytes=axis.big_bytes,
            **size.params,
            elements=axis.n,
            loops=region.phases,
            streaming=bool(region.streams.terms),
        )
        return Candidate(
            step=Step(SplitIntoLoops.name, "", dataclasses.asdict(params)),
            saved_bytes=size.saved_bytes,
            added_seconds=size.added_seconds,
            moved_seconds=size.moved_seconds,
            numerics=numerics,
            summary=self.summary(axis),
            otherwise=self.about_seed(axis, "no-gain", "splitting it there does not lower the peak"),
            sizes=sizes,
            edit=functools.partial(_split_copy, self.main, forms),
        )

    def left_bytes(self, region: Region) -> int:
        """Bytes the loops add beside the chunks: what leaves them, unless it is an output anyway."""
        outputs = set(self.graph.returned)
        values = {item.value for item in region.leaving if item.value not in outputs and item.value not in self.live}
        return sum(self.graph.values[v].nbytes for v in values)

    def fitting(self, sizes: tuple[Size, ...], spared: int) -> Size:
        """The fastest size that reaches the goal, or takes its share of it: of none the smallest."""
        # Where the others alone are over the goal they are made smaller by later steps, or the goal is out of reach.
        wanted = min(self.peak.temp_bytes - self.goal.temp_bytes, spared - self.goal.share * self.goal.temp_bytes)
        return next((s for s in sizes if s.saved_bytes >= wanted), max(sizes, key=lambda s: s.saved_bytes))

    def summary(self, axis: Axis) -> str:
        value, dimension = axis.seed
        return f"split {self.describe(value)} along dimension {dimension}{origin_of(self.graph, value, dimension)}"

    def describe(self, value: int) -> str:
        data = self.graph.values[value]
        return f"{self.graph.title(data.producer) if data.producer >= 0 else 'argument'} {data}"

    def source(self, value: int) -> str:
        producer = self.graph.values[value].producer
        return self.graph.source(producer) if producer >= 0 else ""

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


def saved_bytes(region: Region) -> int:
    """Bytes of what cumulative ops come to before one chunk, where a loop that runs the other way needs it."""
    graph = region.graph
    if not any(node.cumulative for node in region.loops_of):
        return 0
    nodes = {node for phase in range(region.phases) for node in region.saved(phase)}
    values = (graph.values[v] for node in nodes for v in graph.ops[node.op].results)
    # In 4 bytes at least: sums of narrow floats are made in f32.
    elements = (math.prod(v.shape) // region.axis.n * max(4, dtype_bytes(v.dtype)) for v in values)
    return int(sum(elements))


def regroups(graph: Graph, region: Region) -> bool:
    """Whether the loops make float sums in another grouping."""
    reducing = (item.node.op for item in region.leaving if item.accumulated)
    rows = ((ROWS[graph.ops[op].name].reduction, graph.handles[op]) for op in reducing)
    cumulative = {node.op for node in region.phase_of if node.cumulative}
    goes_on = ((ROWS[graph.ops[op].name].cumulative, graph.handles[op]) for op in sorted(cumulative))
    rows = (*rows, *goes_on)
    return bool(region.streams.terms) or any(row is not None and row.regroups(op) for row, op in rows)
