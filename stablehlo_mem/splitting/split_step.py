"""A split as data, and how it is done: an axis is grown and formed into loops, which take the place of its ops."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from stablehlo_mem.analysis.peak_memory import Path
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import Graph, entry_graph, nested_graph
from stablehlo_mem.ir.graph_copy import graph_of_copy
from stablehlo_mem.pass_api.candidate import SizeParams, StepParams
from stablehlo_mem.sharding_rules import rule_book
from stablehlo_mem.splitting.axis import grow_axis
from stablehlo_mem.splitting.emit_loops import emit_loops
from stablehlo_mem.splitting.loop_schedule import LoopSchedule
from stablehlo_mem.splitting.loop_scheduling import schedule_loops

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
        return f"{loops} of {-(-self.elements // self.chunk)} steps, {self.chunk} of {self.elements} at a time{kept}"


def split(module: ir.Module, decision: Split) -> None:
    """Rewrites a module in place.

    Raises:
        ValueError: the decision was not made for this module.
    """
    graph = nested_graph(entry_graph(module), decision.path)
    axis = grow_axis(graph, rule_book(graph), (decision.value, decision.dimension), decision.big_bytes)
    schedule = schedule_loops(graph, axis, streaming=decision.streaming)
    if schedule is None:
        raise ValueError(f"nothing to split: {decision}")
    with module.context:
        emit_loops(graph, schedule.with_saved(decision.kept), decision.chunk)


def split_copy(main: Graph, forms: Mapping[tuple[int, ...], LoopSchedule], copy: ir.Module, decision: Split) -> None:
    """Splits a copy of the module of a graph as a step says, whose region in it is known by what it keeps."""
    graph = nested_graph(graph_of_copy(main, copy), decision.path)
    with copy.context:
        emit_loops(graph, forms[decision.kept], decision.chunk)
