"""Builds contractions: matmuls, multiplications and sums in the order that was found for a product.

`reorder.py` and `emit_distances.py` call it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from stablehlo_mem.analysis.cost_model import Kernel
from stablehlo_mem.analysis.op_cost import Matmul
from stablehlo_mem.einsum.contraction_order import Labels, Network, Tree, factors_of, pairs
from stablehlo_mem.einsum.terms import Spread
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.builders import broadcast, convert, laid_along, reduced, reshaped, tensor, transposed
from stablehlo_mem.ir.graph import NARROW_FLOATS, Graph
from stablehlo_mem.ir.view_chains import View, squeezed


class Tensor(NamedTuple):
    """A built value and the label of each of its dimensions."""

    value: Any
    labels: tuple[int, ...]


def load(graph: Graph, spread: Spread) -> Tensor:
    """A value of the program without its dimensions of one element."""
    value, labels = squeezed(graph, View(spread.value, spread.labels))
    return Tensor(value, tuple(labels))


def pair_kernels(network: Network, tree: Tree) -> Iterator[Kernel]:
    """What the pairs that are contracted cost."""
    for pair in pairs(network, tree):
        nbytes = sum(network.elements(labels) for labels in pair) * network.itemsize
        union = pair.left | pair.right
        flops = network.elements(union) * (1 if union == pair.result else 2)
        # How operands will lie is not known yet.
        rows, columns = network.elements(pair.left & ~pair.right), network.elements(pair.right & ~pair.left)
        matmul = Matmul(rows, columns, network.itemsize)
        yield Kernel(flops, nbytes, matmul=matmul if pair.is_matmul else None)


class Contraction:
    """Builds a contraction at the insertion point.

    Args:
        out: the labels of the result's dimensions.
        element: the element type of the result.
        precision: of the matmuls.
        factors: where they are built already; a subclass may build them when they are needed.
    """

    def __init__(self, network: Network, out: Labels, element: Any, precision: Any, factors: Sequence[Tensor] = ()):
        self.network, self.element, self.precision, self.factors = network, element, precision, factors
        self.place = {label: i for i, label in enumerate(out) if label is not None}

    def factor(self, index: int) -> Tensor:
        """A factor, its labels all different."""
        return self.factors[index]

    def finished(self, value: Any, subset: int) -> Any:
        """The product of a set of factors, scaled where that is to be done at once."""
        del subset
        return value

    def build(self, tree: Tree) -> Tensor:
        """The product in an order."""
        if isinstance(tree, int):
            product = self._single(tree)
        else:
            # The first is computed first; which of them is the left operand is another question.
            one, other = (self.build(part) for part in tree)
            if self._swaps(tree, one.labels, other.labels):
                one, other = other, one
            product = self._pair(one, other, factors_of(tree))
        return Tensor(self.finished(product.value, factors_of(tree)), product.labels)

    def laid_out(self, value: Any, labels: Sequence[int], mlir_type: Any) -> Any:
        """A product in the shape of the result."""
        order = sorted(range(len(labels)), key=lambda i: self.place[labels[i]])
        value = transposed(value, order)
        dims = [self.place[labels[i]] for i in order]
        shape = list(mlir_type.shape)
        if dims == list(range(len(shape))):
            return value
        if list(value.type.shape) == [size for size in shape if size != 1]:
            return reshaped(value, shape)
        return broadcast(value, mlir_type, dims)

    def _swaps(self, tree: tuple[Tree, Tree], one: Sequence[int], other: Sequence[int]) -> bool:
        """Whether the second is to be the left operand: by its dimensions in the result, else by its factors."""
        subsets = [factors_of(part) for part in tree]
        places = [
            min((self.place[label] for label in labels if label in self.place and label not in others), default=-1)
            for labels, others in ((one, other), (other, one))
        ]
        if subsets[0] | subsets[1] == self.network.everything and min(places) >= 0:
            return places[1] < places[0]
        return subsets[1] & -subsets[1] < subsets[0] & -subsets[0]

    def _single(self, index: int) -> Tensor:
        """A factor, summed over the labels that no other factor has."""
        value, labels = self.factor(index)
        result = self.network.single(index).labels
        summed = [d for d, label in enumerate(labels) if not result >> label & 1]
        value = sum_over(convert(value, self.element), summed) if summed else value
        return Tensor(value, tuple(label for d, label in enumerate(labels) if d not in summed))

    def _pair(self, left: Tensor, right: Tensor, subset: int) -> Tensor:
        result = self.network.result_labels(subset)
        shared = [label for label in left.labels if label in right.labels]
        contracted = [label for label in shared if not result >> label & 1]
        if not contracted or (len(shared) > len(contracted) and set(left.labels) == set(right.labels)):
            return self._multiplied(left, right, contracted)
        return self._dot(left, right, [label for label in shared if label not in contracted], contracted)

    def _multiplied(self, left: Tensor, right: Tensor, summed: Sequence[int]) -> Tensor:
        """Elementwise, and summed at once where there is anything to sum."""
        everywhere = [*left.labels, *(label for label in right.labels if label not in left.labels)]
        labels = everywhere if summed else sorted(everywhere, key=lambda label: self.place.get(label, len(self.place)))
        element = ir.F32Type.get() if summed and str(self.element) in NARROW_FLOATS else self.element
        shape = [self.network.sizes[label] for label in labels]
        sides = [
            laid_along(convert(v, element), [labels.index(label) for label in at], tensor(shape, element))
            for v, at in (left, right)
        ]
        value = stablehlo.multiply(*sides)
        if summed:
            value = convert(sum_over(value, [labels.index(label) for label in summed]), self.element)
        return Tensor(value, tuple(label for label in labels if label not in summed))

    def _dot(self, left: Tensor, right: Tensor, batch: list[int], contracted: list[int]) -> Tensor:
        both = {*batch, *contracted}
        free = [[label for label in labels if label not in both] for _, labels in (left, right)]
        labels = [*batch, *free[0], *free[1]]
        numbers = stablehlo.DotDimensionNumbers.get(
            lhs_batching_dimensions=[left.labels.index(label) for label in batch],
            rhs_batching_dimensions=[right.labels.index(label) for label in batch],
            lhs_contracting_dimensions=[left.labels.index(label) for label in contracted],
            rhs_contracting_dimensions=[right.labels.index(label) for label in contracted],
        )
        elements = {str(value.type.element_type) for value, _ in (left, right)}
        # Compilers know matmuls of one narrow type into f32, but not of any two into any other.
        is_known = len(elements) == 1 and elements <= NARROW_FLOATS and str(self.element) == "f32"
        values = [value if is_known else convert(value, self.element) for value, _ in (left, right)]
        result = tensor([self.network.sizes[label] for label in labels], self.element)
        value = stablehlo.dot_general(result, values[0], values[1], numbers, precision_config=self.precision)
        return Tensor(value, tuple(labels))


def highest_precision() -> Any:
    """The precision of the matmuls where nobody asked for one."""
    return ir.ArrayAttr.get([stablehlo.PrecisionAttr.get("HIGHEST")] * 2)


def sum_over(value: Any, dims: Sequence[int]) -> Any:
    """The sum over some dimensions; narrow floats are added up in f32."""
    element = value.type.element_type
    wide = ir.F32Type.get() if str(element) in NARROW_FLOATS else element
    return convert(reduced(convert(value, wide), dims, 0, stablehlo.add), element)
