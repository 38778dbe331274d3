"""Which copies to the host's memory keep an axis from being split: not all compilers write all slices there."""

from __future__ import annotations

from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.host_link import copied_bytes, placements
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.splitting.axis import Axis
from stablehlo_mem.targets.chips import Chip

UNWRITTEN = "the compiler writes no slices along the last dimension to the host's memory"


def is_unwritten_on_host(graph: Graph, axis: Axis, chip: Chip) -> bool:
    """Whether a copy to the host's memory would be made in slices which the chip's compiler does not write there."""
    to_host = {graph.ops[op].results[0] for op in placements(graph) if copied_bytes(graph, op, to_host=True)}
    uses = (use for use in axis.producers if use.value in to_host)
    model = compiler_model(chip)
    return not all(model.updates_host_along(graph.values[use.value], use.dimension) for use in uses)
