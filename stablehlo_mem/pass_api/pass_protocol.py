"""What the planner asks of every pass. Each file of `passes/` has one subclass of `Pass`; only the planner calls it."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Set
from typing import Any, Generic, TypeVar

from stablehlo_mem.analysis.peak_memory import Peak
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Refusal, StepParams

Params = TypeVar("Params", bound=StepParams)


class Pass(abc.ABC, Generic[Params]):
    """A pass proposes without editing and applies without deciding.

    Attributes:
        name: of the pass, in kebab case.
        params_type: the type of its steps' parameters.
        is_enabled_by_others: whether its steps that save time are looked for again after steps of other passes.
        splits_small_values: whether it has other candidates with `Goal.include_small_values`; only then it is asked.
        kinds: the compilers that understand what it writes, None for all: see `Chip.kind`.
    """

    name: str
    params_type: type[Params]
    is_enabled_by_others: bool = False
    splits_small_values: bool = False
    kinds: frozenset[str] | None = None

    def serves(self, kinds: Set[str]) -> bool:
        """Whether all compilers of some kinds understand what it writes."""
        return self.kinds is None or kinds <= self.kinds

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterable[Candidate | Refusal]:
        """Steps that would lower the peak, and why values at the peak are left alone."""
        return ()

    def cheapen(self, graph: Graph, goal: Goal) -> Iterable[Candidate]:
        """Steps that save time wherever they are taken, whatever the peak."""
        return ()

    def describe(self, params: Params) -> str:
        """How a step is done, in words."""
        return self.name

    @abc.abstractmethod
    def apply(self, module: ir.Module, params: Params) -> None:
        """Edits the module it is given as a step says."""


AnyPass = Pass[Any]
"""A pass as the planner knows it, whatever the type of its parameters."""
