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
    model = compiler_model(chip)
    to_host = {op for op in placements(graph) if copied_bytes(graph, op, to_host=True)}
    results = ((graph.ops[s.op].results[0], s.result_dims[0]) for s in axis.split_ops if s.op in to_host)
    return not all(d is None or model.updates_host_along(graph.values[v], d) for v, d in results)
