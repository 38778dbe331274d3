"""What copies to the host's memory ask of a split: not all compilers write all slices there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.host_link import copied_bytes, placements
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.ir.packed_rows import are_read, are_written
from stablehlo_mem.splitting.axis import Axis
from stablehlo_mem.targets.chips import Chip

UNWRITTEN = "the compiler writes no slices along the last dimension to the host's memory"


def is_unwritten_on_host(graph: Graph, axis: Axis, chip: Chip) -> bool:
    """Whether a copy to the host's memory would be made in slices which the chip's compiler does not write there."""
    model = compiler_model(chip)
    return not all(model.updates_host_along(graph.values[v], d) for v, d in _copied(graph, axis, to_host=True))


def suits_host(graph: Graph, axis: Axis) -> Callable[[int], bool]:
    """Tells of a number of elements of an axis whether a TPU can copy chunks of so many to the host's memory and back.

    What is written there is written over an argument if it can be, so chunks have to divide the axis: a ragged last one
    would read what is written over already. Rows that lie together are copied together (`ir.packed_rows`).
    """
    written = [(graph.values[v], d) for v, d in _copied(graph, axis, to_host=True)]
    read = [(graph.values[v], d) for v, d in _copied(graph, axis, to_host=False)]

    def suits(chunk: int) -> bool:
        return (
            (not written or axis.n % chunk == 0)
            and all(are_written(v.shape, v.dtype, d, chunk) for v, d in written)
            and all(are_read(v.shape, v.dtype, d, chunk) for v, d in read)
        )

    return suits


def _copied(graph: Graph, axis: Axis, *, to_host: bool) -> Iterator[tuple[int, int]]:
    """The values whose slices would be copied in a direction, each with the dimension along which it is split."""
    copies = {op for op in placements(graph) if copied_bytes(graph, op, to_host=to_host)}
    results = ((graph.ops[s.op].results[0], s.result_dims[0]) for s in axis.split_ops if s.op in copies)
    return ((value, dimension) for value, dimension in results if dimension is not None)
