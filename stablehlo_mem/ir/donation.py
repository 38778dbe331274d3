"""Which result of a program takes the buffer of which donated argument."""

from __future__ import annotations

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import DONATED, ir, signature_attributes
from stablehlo_mem.ir.graph import Graph


@cached_analysis
def donated_arguments(main: Graph) -> dict[int, int]:
    """For each result that has one the argument that is donated to it: by position the value.

    A donated argument without a result of its own is given to the first of its type and memory that has none, as XLA
    does.
    """
    attributes = signature_attributes(main.handles[-1].operation.parent, "arg_attrs")
    donated: dict[int, int] = {}
    donors: list[int] = []
    for argument, of_argument in zip(main.arguments, attributes, strict=True):
        if "tf.aliasing_output" in of_argument:
            donated[ir.IntegerAttr(of_argument["tf.aliasing_output"]).value] = argument
        elif not DONATED.isdisjoint(of_argument):
            donors.append(argument)
    free = [position for position in range(len(main.returned)) if position not in donated]
    for argument in donors:
        kind = _kind(main, argument)
        position = next((p for p in free if _kind(main, main.returned[p]) == kind), None)
        if position is not None:
            free.remove(position)
            donated[position] = argument
    return donated


def _kind(main: Graph, value: int) -> tuple[tuple[int, ...], str, bool]:
    one = main.values[value]
    return one.shape, one.dtype, bool(one.host_bytes)
