"""What the planner asks of every pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from stablehlo_mem.analysis.peak_memory import Peak
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Refusal, Step


class Pass(Protocol):
    """A pass proposes without editing and applies without deciding."""

    name: str

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterable[Candidate | Refusal]:
        """Steps that would lower the peak, and why values at the peak are left alone."""
        ...

    def cheapen(self, graph: Graph, goal: Goal) -> Iterable[Candidate]:
        """Steps that save time wherever they are taken, whatever the peak."""
        ...

    def describe(self, step: Step) -> str:
        """How a step is done, in words."""
        ...

    def apply(self, module: ir.Module, step: Step) -> None:
        """Edits the module it is given as the step says."""
        ...
