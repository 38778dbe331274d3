"""A split as data, and how it is done: an axis is grown and formed into loops, which take the place of its ops."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import Graph, Path, entry_graph, nested_graph
from stablehlo_mem.ir.graph_copy import graph_of_copy
from stablehlo_mem.pass_api.candidate import SizeParams, StepParams
from stablehlo_mem.splitting.emit_loops import emit_loops
from stablehlo_mem.splitting.like_places import kept_there
from stablehlo_mem.splitting.loop_schedule import LoopSchedule
from stablehlo_mem.splitting.loops_of_seed import loops_of_seed

PASS_NAME = "split-into-loops"
"""Of the pass whose steps are splits."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopSize(SizeParams):
    """What the sizes of one split differ in: see `Split`."""

    chunk: int
    kept: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split(StepParams):
    """One split, as data.

    Attributes:
        path: the block, from the entry function's.
        value, dimension: the seed of the axis, in that block's graph.
        big_bytes: values of at least this size are split.
        chunk: elements of the axis in one step.
        elements: of the axis, for people.
        loops: number of them, for people.
        streaming: reductions run in the loop of those they depend on, where they can.
        first: how many of the axis's loops are built, None for all: what only later ones would run stays outside.
        kept: values that a loop keeps for later ones, which would compute them again.
        places: the seeds of axes elsewhere in the block that are split in the same way: see `like_places`.
    """

    path: Path
    value: int
    dimension: int
    big_bytes: int
    chunk: int
    elements: int = 0
    loops: int = 0
    streaming: bool = False
    first: int | None = None
    kept: tuple[int, ...] = ()
    places: tuple[tuple[int, int], ...] = ()

    @property
    def size(self) -> LoopSize:
        """What a split in another size differs in."""
        return LoopSize(chunk=self.chunk, kept=self.kept)

    @property
    def how(self) -> str:
        """What its loops look like, for people."""
        loops = "1 loop" if self.loops == 1 else f"{self.loops} loops"
        loops += ", streaming," if self.streaming else ""
        count = "1 value is" if len(self.kept) == 1 else f"{len(self.kept)} values are"
        kept = f"; {count} kept from one loop to the next" if self.kept else ""
        steps = f"{loops} of {-(-self.elements // self.chunk)} steps, {self.chunk} of {self.elements} at a time"
        others = f"; the same in {len(self.places)} other place{'s' * (len(self.places) > 1)}" if self.places else ""
        return f"{steps}{kept}{others}"


def split(module: ir.Module, decision: Split) -> None:
    """Rewrites a module in place.

    Raises:
        ValueError: the decision was not made for this module.
    """
    graph = nested_graph(entry_graph(module), decision.path)
    seeds = [(decision.value, decision.dimension), *decision.places]
    least, streaming, first = decision.big_bytes, decision.streaming, decision.first
    found = [loops_of_seed(graph, seed, least, streaming=streaming, first=first) for seed in seeds]
    loops = [schedule for schedule in found if schedule is not None]
    if len(loops) < len(seeds):
        raise ValueError(f"nothing to split: {decision}")
    with module.context:
        _emit(graph, loops[0], loops[1:], decision)


def split_copy(
    main: Graph, schedule: LoopSchedule, places: Sequence[LoopSchedule], copy: ir.Module, decision: Split
) -> None:
    """Splits a copy of the module of a graph as a step says, whose loops are known but for what they keep."""
    graph = nested_graph(graph_of_copy(main, copy), decision.path)
    with copy.context:
        _emit(graph, schedule, places, decision)


def _emit(graph: Graph, schedule: LoopSchedule, places: Sequence[LoopSchedule], decision: Split) -> None:
    """Builds the loops of a decision's axis, and of those that are like it."""
    more = [place.with_saved(kept_there(schedule, place, decision.kept)) for place in places]
    emit_loops(graph, schedule.with_saved(decision.kept), decision.chunk, *more)
