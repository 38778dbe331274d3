"""The passes: one a file. `PASSES` is all that the planner knows of them."""

from __future__ import annotations

from stablehlo_mem.pass_api.pass_protocol import Pass
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
