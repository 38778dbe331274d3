"""A walk from the root of a sum to the values it is computed from, each with the labels of its dimensions.

`matcher.py` and `difference_matcher.py` subclass it: what an op means to them is theirs, where labels go is here.
"""

from __future__ import annotations

from collections.abc import Sequence

from stablehlo_mem.einsum.contraction_order import Labels
from stablehlo_mem.einsum.terms import Spread
from stablehlo_mem.ir.graph import Graph, Op, dtype_bytes
from stablehlo_mem.ir.matchers import converts_floats
from stablehlo_mem.ir.op_attributes import dot_labels, integers
from stablehlo_mem.ir.view_chains import view_of


class LabelledWalk:
    """Numbers the labels, `sizes` are theirs. A dimension of one element has none."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.sizes: list[int] = []

    def fresh(self, shape: Sequence[int]) -> Labels:
        """New labels for the dimensions of a shape."""
        first = len(self.sizes)
        self.sizes += [size for size in shape if size != 1]
        numbers = iter(range(first, len(self.sizes)))
        return tuple(None if size == 1 else next(numbers) for size in shape)

    def through_views(self, spread: Spread) -> Spread:
        """The value that a value shows: broadcast, transposed or reshaped."""
        view = view_of(self.graph, spread.value)
        return Spread(view.source, tuple(None if d is None else spread.labels[d] for d in view.dims))

    def operands(self, op: Op, labels: Labels) -> list[Spread]:
        """The operands of a dot_general, a reduce or an elementwise op, given the labels of its result."""
        if op.name == "stablehlo.dot_general":
            *sides, sizes, rank = dot_labels(self.graph, op)
            everything = (*labels, *self.fresh(sizes[rank:]))
            pairs = zip(op.operands, sides, strict=True)
            return [Spread(v, tuple(everything[label] for label in side)) for v, side in pairs]
        if op.name != "stablehlo.reduce":
            return [Spread(v, labels) for v in op.operands]
        shape, dims = self.graph.values[op.operands[0]].shape, integers(self.graph, op, "dimensions")
        summed = dict(zip(dims, self.fresh([shape[d] for d in dims]), strict=True))
        rest = iter(labels)
        return [Spread(op.operands[0], tuple(summed[d] if d in summed else next(rest) for d in range(len(shape))))]

    def widens(self, op: Op) -> bool:
        """Whether an op converts floats to a wider type."""
        if not converts_floats(self.graph, op):
            return False
        before, after = (self.graph.values[v].dtype for v in (op.operands[0], op.results[0]))
        return dtype_bytes(before) < dtype_bytes(after)
