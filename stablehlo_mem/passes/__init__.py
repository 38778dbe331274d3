"""The passes: one a file. `PASSES` is all that the planner knows of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.memory import Peak
from stablehlo_mem.passes.split_into_loops import SplitIntoLoops
from stablehlo_mem.plan import Candidate, Goal, Refusal, Step


class Pass(Protocol):
    """A pass proposes without editing and applies without deciding.

    A `Refusal` among the proposals says why a value at the peak was left alone. `describe` says in words how a step is done; `tighten` gives the same step
    with about `factor` of the memory, None if it has no smaller form.
    """

    name: str

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterable[Candidate | Refusal]: ...

    def describe(self, step: Step) -> str: ...

    def apply(self, module: ir.Module, step: Step) -> None: ...

    def tighten(self, step: Step, factor: float) -> Step | None: ...


PASSES: tuple[Pass, ...] = (SplitIntoLoops(),)
