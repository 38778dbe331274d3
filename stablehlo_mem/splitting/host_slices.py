"""What copies to the host's memory ask of a split: not all compilers write all slices there."""

from __future__ import annotations

from collections.abc import Iterator

from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.host_link import copied_bytes, placements
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.splitting.axis import Axis
from stablehlo_mem.targets.chips import Chip

UNWRITTEN = "the compiler writes no slices along the last dimension to the host's memory"


def is_unwritten_on_host(graph: Graph, axis: Axis, chip: Chip) -> bool:
    """Whether a copy to the host's memory would be made in slices which the chip's compiler does not write there."""
    model = compiler_model(chip)
    return not all(model.updates_host_along(graph.values[v], d) for v, d in _written(graph, axis))


def writes_over_host(graph: Graph, axis: Axis) -> bool:
    """Whether a split along an axis writes slices to the host's memory, over an argument if it can.

    Then chunks have to divide the axis: a ragged last one would read what is written over already.
    """
    return next(_written(graph, axis), None) is not None


def _written(graph: Graph, axis: Axis) -> Iterator[tuple[int, int]]:
    """The values whose slices would be copied to the host's memory, each with the dimension along which it is split."""
    to_host = {op for op in placements(graph) if copied_bytes(graph, op, to_host=True)}
    results = ((graph.ops[s.op].results[0], s.result_dims[0]) for s in axis.split_ops if s.op in to_host)
    return ((value, dimension) for value, dimension in results if dimension is not None)
