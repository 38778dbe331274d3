"""Products put in a better order: what to compute, what it costs, and building it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stablehlo_mem.contraction_order import Network, Piece, Tree, best_order, cost, factors_of
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.build import broadcast, convert, retype, splat, tensor, zeros
from stablehlo_mem.ir.graph import Graph, dtype_bytes
from stablehlo_mem.op_classes import FUSIBLE, classify
from stablehlo_mem.products import Factor, Product, Scaling, collect
from stablehlo_mem.recognise import attribute
from stablehlo_mem.rewriting import Kernel, needed_only_by
from stablehlo_mem.views import View, squeezed

_MAX_TERMS = 8
_MAX_CHANGES = 8
_MAX_OPEN = 4
_MAX_FACTORS = 16
_NARROW = ("f16", "bf16")

Tensor = tuple[Any, list[int]]
"""An MLIR value and the label of each of its dimensions."""


@dataclasses.dataclass(frozen=True)
class Term:
    """A product and the order to compute it in. `cost` leaves the result's own bytes out."""

    product: Product
    network: Network
    tree: Tree
    cost: Piece


@dataclasses.dataclass(frozen=True)
class Sum:
    """The products whose sum is what a root computes: mostly one.

    Attributes:
        flops, peak_bytes: what computing them costs; the peak without the result.
    """

    terms: tuple[Term, ...]
    flops: int
    peak_bytes: int

    def objective(self, bytes_first: bool) -> tuple[int, int]:
        """What is to be small."""
        return (self.peak_bytes, self.flops) if bytes_first else (self.flops, self.peak_bytes)


def ordered(product: Product, *, bytes_first: bool) -> Sum:
    """A product in its best order, its additions left as they are."""
    network = product.network
    tree, cost = best_order(network, bytes_first=bytes_first)
    return Sum((Term(product, network, tree, cost),), cost.flops, cost.peak_bytes)


def improved(graph: Graph, whole: Sum, *, bytes_first: bool) -> Sum:
    """The same where it is cheaper with additions distributed over, and without results that others need as well.

    Such a result is free for the taking: going without it must take fewer FLOPs even so.
    """
    best = whole
    for _ in range(_MAX_CHANGES):
        found = [_changed(graph, best, i, f, bytes_first) for i, term in enumerate(best.terms) for f in _open(term)]
        changes = [sums for sums in found if sums is not None and len(sums.terms) <= _MAX_TERMS]
        change = min(changes, key=lambda sums: sums.objective(bytes_first), default=best)
        if change.objective(bytes_first) >= best.objective(bytes_first):
            break
        best = change
    return best


def _open(term: Term) -> list[Factor]:
    """The factors that one may do without; not all of many, each takes another search for the best order."""
    factors = term.product.factors
    found = [f for f in factors if f.addition is not None or f.shared is not None]
    return found[:_MAX_OPEN] if len(factors) <= _MAX_FACTORS else []


def _changed(graph: Graph, sums: Sum, index: int, factor: Factor, bytes_first: bool) -> Sum | None:
    """A term without one of its factors: the two terms of the addition that is, or the matmul's own factors."""
    product = sums.terms[index].product
    if factor.shared is not None:
        parts = [collect(graph, product.root, product.terms, product.shared | {factor.shared})]
    else:
        terms = [{**product.terms, factor.addition or 0: side} for side in (0, 1)]
        parts = [collect(graph, product.root, choice, product.shared) for choice in terms]
    new = [ordered(part, bytes_first=bytes_first).terms[0] for part in parts if part is not None]
    if len(new) < len(parts) or (factor.shared is not None and new[0].cost.flops >= sums.terms[index].cost.flops):
        return None
    return _total(graph, (*sums.terms[:index], *new, *sums.terms[index + 1 :]))


def _total(graph: Graph, terms: tuple[Term, ...]) -> Sum:
    """A sum of products, computed one after the other."""
    value = graph.values[graph.ops[terms[0].product.root].results[0]]
    elements = value.nbytes // int(dtype_bytes(value.dtype))
    flops = sum(term.cost.flops for term in terms) + (len(terms) - 1) * elements
    return Sum(terms, flops, max(term.cost.peak_bytes + (value.nbytes if i else 0) for i, term in enumerate(terms)))


def kernels(graph: Graph, sums: Sum) -> tuple[Kernel, ...]:
    """What the products cost when they are computed in their order."""
    return tuple(itertools.chain.from_iterable(_kernels(graph, term) for term in sums.terms))


def stored(graph: Graph, product: Product) -> dict[int, int]:
    """The factors that were fused into what they are multiplied in, and are stored for a matmul: their bytes."""
    found: dict[int, int] = {}
    for factor in product.factors:
        op = graph.producer(factor.value)
        users = {graph.ops[user].name for user in graph.users[factor.value]}
        if op is not None and classify(graph, op) in FUSIBLE and "stablehlo.dot_general" not in users:
            found[factor.value] = graph.values[factor.value].nbytes
    return found


def new_bytes(graph: Graph, sums: Sum) -> int:
    """The peak of the intermediates that were not there before, the results aside."""
    value = graph.values[graph.ops[sums.terms[0].product.root].results[0]]
    peaks: list[int] = []
    for i, term in enumerate(sums.terms):
        network, factors = term.network, term.product.factors
        there = [Piece(f.ready.labels) if f.addition is not None else f.ready for f in factors]
        peak = cost(Network(there, network.kept, network.sizes, network.itemsize), term.tree).peak_bytes
        peaks.append(peak + (value.nbytes if i else 0) + sum(stored(graph, term.product).values()))
    return max(peaks)


def removed(graph: Graph, sums: Sum) -> tuple[int, ...]:
    """The ops that go when the root is computed from the products."""
    kept: set[int] = set()
    for term in sums.terms:
        kept.update(f.value for f in term.product.factors)
        kept.update(s.value for s in term.product.scalings if s.value is not None)
    return needed_only_by(graph, sums.terms[0].product.root, kept)


def contractions(network: Network, tree: Tree) -> list[tuple[int, int, int]]:
    """For each pair that is contracted the labels of both sides and of the result, in order of evaluation."""
    if isinstance(tree, int):
        return []
    labels = [network.result_labels(factors_of(part)) for part in tree]
    own = (labels[0], labels[1], network.result_labels(factors_of(tree)))
    return [*contractions(network, tree[0]), *contractions(network, tree[1]), own]


def is_matmul(left: int, right: int, result: int) -> bool:
    """Whether contracting a pair is a matmul: it sums, and the sides differ in more than what is summed."""
    return bool(left & right & ~result) and bool(left ^ right)


def pays_as_matmul(left: int, right: int, result: int) -> bool:
    """Whether a matmul does better than a multiplication fused with its sum: not for a batch of matrices by vectors."""
    is_batched = bool(left & right & result)
    return is_matmul(left, right, result) and (not is_batched or bool(left & ~right and right & ~left))


def _kernels(graph: Graph, term: Term) -> list[Kernel]:
    network, size = term.network, term.network.itemsize
    found = [Kernel(0, nbytes) for nbytes in stored(graph, term.product).values()]
    for i, factor in enumerate(term.product.factors):
        piece = network.single(i)
        # An addition is computed as it was.
        flops = piece.flops - (factor.ready.flops if factor.addition is not None else 0)
        if flops:
            found.append(Kernel(flops, graph.values[factor.value].nbytes + network.elements(piece.labels) * size))
    for left, right, result in contractions(network, term.tree):
        nbytes = sum(network.elements(labels) for labels in (left, right, result)) * size
        flops = network.elements(left | right) * (1 if left | right == result else 2)
        found.append(Kernel(flops, nbytes, matmul=is_matmul(left, right, result)))
    return found


def emit(graph: Graph, sums: Sum) -> Any:
    """Builds the sum of the products at the insertion point."""
    total: Any = None
    for term in sums.terms:
        value = _Emitter(graph, term).run()
        if total is None:
            total = value
        else:
            total = (stablehlo.subtract if term.product.negative else stablehlo.add)(total, value)
    return total


class _Emitter:
    def __init__(self, graph: Graph, term: Term):
        self.graph, self.product, self.network, self.tree = graph, term.product, term.network, term.tree
        self.type: Any = graph.mlir_values[graph.ops[term.product.root].results[0]].type
        self.element: Any = self.type.element_type
        self.place = {label: i for i, label in enumerate(self.product.out) if label is not None}
        self.scalings = self._placed()

    def run(self) -> Any:
        """The product, in the shape of the root's result."""
        value, labels = self.build(self.tree)
        value = convert(value, self.element)
        order = sorted(range(len(labels)), key=lambda i: self.place[labels[i]])
        value = _transposed(value, order)
        dims = [self.place[labels[i]] for i in order]
        shape = list(self.type.shape)
        if dims == list(range(len(shape))):
            return value
        if list(value.type.shape) == [size for size in shape if size != 1]:
            return stablehlo.reshape(self.type, value)
        return broadcast(value, self.type, dims)

    def build(self, tree: Tree) -> Tensor:
        if isinstance(tree, int):
            value, labels = self.single(tree)
        else:
            # The first is computed first; which is the left one is another matter.
            one, other = (self.build(part) for part in tree)
            if self._swaps(tree, one[1], other[1]):
                one, other = other, one
            value, labels = self.pair(one, other, factors_of(tree))
        for scaling in self.scalings.get(factors_of(tree), ()):
            value = self.scaled(value, scaling)
        return value, labels

    def _swaps(self, tree: tuple[Tree, Tree], one: list[int], other: list[int]) -> bool:
        """Whether the second is better the left one: by its dimensions in the result, else by its factors."""
        subsets = [factors_of(part) for part in tree]
        places = [
            min((self.place[label] for label in labels if label in self.place and label not in others), default=-1)
            for labels, others in ((one, other), (other, one))
        ]
        if subsets[0] | subsets[1] == self.network.everything and min(places) >= 0:
            return places[1] < places[0]
        return subsets[1] & -subsets[1] < subsets[0] & -subsets[0]

    def single(self, index: int) -> Tensor:
        """A factor without its dimensions of one element, its diagonal taken, summed over what nobody else has."""
        factor = self.product.factors[index]
        dims = tuple(None if label is None else d for d, label in enumerate(factor.labels))
        value, kept = squeezed(self.graph, View(factor.value, dims))
        labels = [label for label in (factor.labels[d] for d in kept) if label is not None]
        while len(set(labels)) < len(labels):
            value, labels = _diagonal(value, labels)
        result = self.network.single(index).labels
        summed = [d for d, label in enumerate(labels) if not result >> label & 1]
        if summed:
            narrow = value.type.element_type != self.element
            value = _sum(convert(value, self.element) if narrow else value, summed)
        return value, [label for d, label in enumerate(labels) if d not in summed]

    def pair(self, left: Tensor, right: Tensor, subset: int) -> Tensor:
        result = self.network.result_labels(subset)
        shared = [label for label in left[1] if label in right[1]]
        contracted = [label for label in shared if not result >> label & 1]
        if not contracted or (len(shared) > len(contracted) and set(left[1]) == set(right[1])):
            return self.multiplied(left, right, contracted)
        return self.dot(left, right, [label for label in shared if label not in contracted], contracted)

    def multiplied(self, left: Tensor, right: Tensor, summed: Sequence[int]) -> Tensor:
        """Elementwise, and summed at once where there is anything to sum."""
        everywhere = [*left[1], *(label for label in right[1] if label not in left[1])]
        labels = sorted(everywhere, key=lambda label: self.place.get(label, len(self.place)))
        element = ir.F32Type.get() if summed and str(self.element) in _NARROW else self.element
        shape = [self.network.sizes[label] for label in labels]
        sides = [_spread(convert(v, element), at, labels, tensor(shape, element)) for v, at in (left, right)]
        value = stablehlo.multiply(*sides)
        if summed:
            value = convert(_sum(value, [labels.index(label) for label in summed]), self.element)
        return value, [label for label in labels if label not in summed]

    def dot(self, left: Tensor, right: Tensor, batch: list[int], contracted: list[int]) -> Tensor:
        both = {*batch, *contracted}
        free = [[label for label in labels if label not in both] for _, labels in (left, right)]
        labels = [*batch, *free[0], *free[1]]
        numbers = stablehlo.DotDimensionNumbers.get(
            lhs_batching_dimensions=[left[1].index(label) for label in batch],
            rhs_batching_dimensions=[right[1].index(label) for label in batch],
            lhs_contracting_dimensions=[left[1].index(label) for label in contracted],
            rhs_contracting_dimensions=[right[1].index(label) for label in contracted],
        )
        elements = {str(value.type.element_type) for value, _ in (left, right)}
        # Compilers know matmuls of one narrow type into f32, but not of any two into any other.
        is_known = len(elements) == 1 and elements <= set(_NARROW) and str(self.element) == "f32"
        values = [value if is_known else convert(value, self.element) for value, _ in (left, right)]
        result = tensor([self.network.sizes[label] for label in labels], self.element)
        return stablehlo.dot_general(result, values[0], values[1], numbers, precision_config=self._precision()), labels

    def _precision(self) -> Any:
        """As all dots of the product have it; the highest where they differ or there was none."""
        if self.product.like is None:
            highest = stablehlo.PrecisionAttr.get("HIGHEST")
            return ir.ArrayAttr.get([highest, highest])
        return attribute(self.graph, self.product.like, "precision_config")

    def _placed(self) -> Mapping[int, list[Scaling]]:
        """Where each scaling is cheapest: at the smallest partial result.

        Numbers of f16 leave its range soon: there it stays with the smallest factor of those it stood on.
        """
        nodes = list(_nodes(self.tree))
        placed: dict[int, list[Scaling]] = {}
        for scaling in self.product.scalings:
            fitting = nodes
            if self.product.element == "f16":
                fitting = [1 << i for i in scaling.factors]
            smallest = min(fitting, key=lambda s: self.network.elements(self.network.result_labels(s)))
            placed.setdefault(smallest, []).append(scaling)
        return placed

    def scaled(self, value: Any, scaling: Scaling) -> Any:
        if scaling.kind == "negate":
            return stablehlo.negate(value)
        value = convert(value, self.element)
        if scaling.value is None:
            number = splat(tensor((), self.element), scaling.count)
        else:
            number = convert(_number(self.graph.mlir_values[scaling.value]), self.element)
        number = broadcast(number, value.type) if list(value.type.shape) else number
        return (stablehlo.multiply if scaling.kind == "multiply" else stablehlo.divide)(value, number)


def _nodes(tree: Tree) -> Iterable[int]:
    """The sets of factors of a tree's nodes, in order of evaluation."""
    if not isinstance(tree, int):
        yield from _nodes(tree[0])
        yield from _nodes(tree[1])
    yield factors_of(tree)


def _number(value: Any) -> Any:
    """The number that every element of a value is, as a scalar."""
    shape = list(value.type.shape)
    if not shape:
        return value
    if any(size != 1 for size in shape):
        filled = ir.DenseElementsAttr(value.owner.attributes["value"]).get_splat_value()
        return stablehlo.constant(ir.DenseElementsAttr.get_splat(retype(value.type, ()), filled))
    return stablehlo.reshape(retype(value.type, ()), value)


def _transposed(value: Any, order: Sequence[int]) -> Any:
    if list(order) == list(range(len(order))):
        return value
    return stablehlo.transpose(value, ir.DenseI64ArrayAttr.get(list(order)))


def _spread(value: Any, at: Sequence[int], labels: Sequence[int], mlir_type: Any) -> Any:
    """A value over the dimensions of more labels, in another order."""
    order = sorted(range(len(at)), key=lambda i: labels.index(at[i]))
    value = _transposed(value, order)
    dims = [labels.index(at[i]) for i in order]
    return value if len(dims) == len(labels) else broadcast(value, mlir_type, dims)


def _sum(value: Any, dims: Sequence[int]) -> Any:
    """The sum over some dimensions; narrow floats are added up in f32."""
    element = value.type.element_type
    wide = ir.F32Type.get() if str(element) in _NARROW else element
    scalar = tensor((), wide)
    shape = [size for d, size in enumerate(value.type.shape) if d not in dims]
    reduce = stablehlo.ReduceOp([tensor(shape, wide)], [convert(value, wide)], [zeros(scalar)], sorted(dims))
    body = reduce.regions[0].blocks.append(scalar, scalar)
    with ir.InsertionPoint(body):
        stablehlo.return_([stablehlo.add(*body.arguments)])
    return convert(reduce.results[0], element)


def _diagonal(value: Any, labels: list[int]) -> Tensor:
    """A value whose first repeated label occurs once less: everything off the diagonal is left out of a sum."""
    label = next(i for i in labels if labels.count(i) > 1)
    one, other = (d for d, i in enumerate(labels) if i == label and d in _first_two(labels, label))
    index = tensor(value.type.shape, ir.IntegerType.get_signless(32))
    i64 = ir.IntegerType.get_signless(64)
    indices = [stablehlo.iota(index, ir.IntegerAttr.get(i64, d)) for d in (one, other)]
    mask = stablehlo.compare(indices[0], indices[1], stablehlo.ComparisonDirectionAttr.get("EQ"))
    value = _sum(stablehlo.select(mask, value, zeros(value.type)), [other])
    return value, [i for d, i in enumerate(labels) if d != other]


def _first_two(labels: Sequence[int], label: int) -> list[int]:
    return [d for d, i in enumerate(labels) if i == label][:2]
