"""split-into-loops: the computation of big values becomes loops over slices of one of their dimensions.

Before, with %k of n x n elements over the budget:
    %k = stablehlo.exponential %d : tensor<nxn>
    %y = stablehlo.dot_general %k, %v : tensor<n>
After, c rows of %k at a time:
    %y = stablehlo.while(%i = 0, %acc = zeros) { ... %kc : tensor<cxn> ... dynamic_update_slice %acc, %yc }

Refuses, with a reason, dimensions that an op on the way needs whole.
"""

from __future__ import annotations

from collections.abc import Iterator

from stablehlo_mem.analysis.peak_memory import Peak
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Refusal
from stablehlo_mem.pass_api.pass_protocol import Pass
from stablehlo_mem.splitting.candidates import proposals_around
from stablehlo_mem.splitting.split_step import PASS_NAME, Split, split


class SplitIntoLoops(Pass[Split]):
    """The pass: proposes a split along every dimension of the largest values at the peak."""

    name = PASS_NAME
    params_type = Split
    splits_small_values = True

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
        """Candidates at the peak, in the block of the peak and in those around it, and why others are none."""
        yield from proposals_around(graph, peak, goal)

    def apply(self, module: ir.Module, params: Split) -> None:
        """Splits as a step says, in place."""
        split(module, params)

    def describe(self, params: Split) -> str:
        """What a step's loops look like."""
        return params.how
