"""The passes: one a file. `PASSES` is all that the planner knows of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from stablehlo_mem.analysis.peak_memory import Peak
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.passes.blocked_top_k import BlockedTopK
from stablehlo_mem.passes.contractions import Contractions
from stablehlo_mem.passes.fold_converts import FoldConverts
from stablehlo_mem.passes.fold_transposes import FoldTransposes
from stablehlo_mem.passes.matmul_chain import MatmulChain
from stablehlo_mem.passes.narrow import Narrow
from stablehlo_mem.passes.one_hot_scatter import OneHotScatter
from stablehlo_mem.passes.pairwise_distance import PairwiseDistance
from stablehlo_mem.passes.reblock_scans import ReblockScans
from stablehlo_mem.passes.recompute_in_loops import RecomputeInLoops
from stablehlo_mem.passes.rematerialise import Rematerialise
from stablehlo_mem.passes.sink_converts import SinkConverts
from stablehlo_mem.passes.sort_to_top_k import SortToTopK
from stablehlo_mem.passes.split_into_loops import SplitIntoLoops
from stablehlo_mem.passes.squeeze_sums import SqueezeSums
from stablehlo_mem.passes.swap_dot_operands import SwapDotOperands
from stablehlo_mem.passes.unroll_reductions import UnrollReductions
from stablehlo_mem.results.plan import Candidate, Goal, Refusal, Step


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


PASSES: tuple[Pass, ...] = (
    PairwiseDistance(),
    Contractions(),
    MatmulChain(),
    SortToTopK(),
    UnrollReductions(),
    BlockedTopK(),
    Narrow(),
    FoldConverts(),
    FoldTransposes(),
    SwapDotOperands(),
    SqueezeSums(),
    OneHotScatter(),
    SinkConverts(),
    Rematerialise(),
    RecomputeInLoops(),
    ReblockScans(),
    SplitIntoLoops(),
)
