"""The passes: one a file. `PASSES` is all that the planner knows of them."""

from __future__ import annotations

from typing import Any

from stablehlo_mem.pass_api.candidate import Step
from stablehlo_mem.pass_api.pass_protocol import AnyPass
from stablehlo_mem.passes.blocked_top_k import BlockedTopK
from stablehlo_mem.passes.compute_where_read import ComputeWhereRead
from stablehlo_mem.passes.contractions import Contractions
from stablehlo_mem.passes.cudnn_attention import CudnnAttention
from stablehlo_mem.passes.fission_scans import FissionScans
from stablehlo_mem.passes.fold_converts import FoldConverts
from stablehlo_mem.passes.fold_transposes import FoldTransposes
from stablehlo_mem.passes.fuse_into_scan import FuseIntoScan
from stablehlo_mem.passes.keep_dots_apart import KeepDotsApart
from stablehlo_mem.passes.lookup_from_host import LookupFromHost
from stablehlo_mem.passes.matmul_chain import MatmulChain
from stablehlo_mem.passes.narrow import Narrow
from stablehlo_mem.passes.offload_residuals import OffloadResiduals
from stablehlo_mem.passes.offload_to_host import OffloadToHost
from stablehlo_mem.passes.one_hot_scatter import OneHotScatter
from stablehlo_mem.passes.pairwise_distance import PairwiseDistance
from stablehlo_mem.passes.pallas_attention import PallasAttention
from stablehlo_mem.passes.reblock_scans import ReblockScans
from stablehlo_mem.passes.recompute_in_loops import RecomputeInLoops
from stablehlo_mem.passes.recompute_residuals import RecomputeResiduals
from stablehlo_mem.passes.rematerialise import Rematerialise
from stablehlo_mem.passes.sink_converts import SinkConverts
from stablehlo_mem.passes.sort_to_top_k import SortToTopK
from stablehlo_mem.passes.split_into_loops import SplitIntoLoops
from stablehlo_mem.passes.squeeze_sums import SqueezeSums
from stablehlo_mem.passes.stream_arguments import StreamArguments
from stablehlo_mem.passes.swap_dot_operands import SwapDotOperands
from stablehlo_mem.passes.unroll_reductions import UnrollReductions
from stablehlo_mem.utils.plain_data import restored

PASSES: tuple[AnyPass, ...] = (
    CudnnAttention(),
    PallasAttention(),
    PairwiseDistance(),
    Contractions(),
    MatmulChain(),
    SortToTopK(),
    ComputeWhereRead(),
    UnrollReductions(),
    BlockedTopK(),
    Narrow(),
    FoldConverts(),
    FoldTransposes(),
    SwapDotOperands(),
    SqueezeSums(),
    OneHotScatter(),
    SinkConverts(),
    KeepDotsApart(),
    Rematerialise(),
    FuseIntoScan(),
    FissionScans(),
    RecomputeResiduals(),
    OffloadToHost(),
    OffloadResiduals(),
    RecomputeInLoops(),
    ReblockScans(),
    LookupFromHost(),
    StreamArguments(),
    SplitIntoLoops(),
)


def pass_named(name: str) -> AnyPass:
    """The pass of a name.

    Raises:
        ValueError: there is none.
    """
    for candidate in PASSES:
        if candidate.name == name:
            return candidate
    raise ValueError(f"there is no pass {name!r}")


def step_from_plain(data: Any) -> Step:
    """The step that `plain_data` made this of."""
    params = restored(pass_named(data["pass_name"]).params_type, data["params"])
    return Step(data["pass_name"], data["input_fingerprint"], params)
