"""Puts products in a better order: which one, what it costs, and building it.

The passes `contractions` and `matmul-chain` call it with what `matcher.py` found.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from stablehlo_mem.analysis.cost_model import Kernel
from stablehlo_mem.analysis.fusion_classes import FUSIBLE, classify
from stablehlo_mem.einsum.contraction_order import Network, Piece, Tree, best_order, cost, factors_of
from stablehlo_mem.einsum.emit_contraction import Contraction, Tensor, highest_precision, load, pair_kernels, sum_over
from stablehlo_mem.einsum.matcher import collect
from stablehlo_mem.einsum.terms import Factor, Product, Scaling
from stablehlo_mem.ir.bindings import stablehlo
from stablehlo_mem.ir.builders import broadcast, convert, index_along, reshaped, retype, splat, tensor, zeros
from stablehlo_mem.ir.dead_ops import needed_only_by
from stablehlo_mem.ir.graph import Graph, dtype_bytes
from stablehlo_mem.ir.matchers import splat_value

_MAX_TERMS = 8
"""Products that a root is the sum of."""
_MAX_CHANGES = 8
"""Additions distributed over and shared matmuls gone without, one after the other."""
_MAX_OPEN = 4
"""Factors of one product that are tried for that: each takes another search for the best order."""
_MAX_FACTORS = 16
"""Products of more factors stay as they are."""


@dataclasses.dataclass(frozen=True)
class OrderedProduct:
    """A product and the order to compute it in. Its `cost` does not count the bytes of the result."""

    product: Product
    network: Network
    tree: Tree
    cost: Piece


@dataclasses.dataclass(frozen=True)
class ProductSum:
    """The products that add up to what a root computes: mostly one.

    Attributes:
        flops, peak_bytes: what computing them costs; the peak without the result.
    """

    terms: tuple[OrderedProduct, ...]
    flops: int
    peak_bytes: int

    def objective(self, prefer_memory: bool) -> tuple[int, int]:
        """The objective to minimise."""
        return (self.peak_bytes, self.flops) if prefer_memory else (self.flops, self.peak_bytes)


def ordered(product: Product, *, prefer_memory: bool) -> ProductSum:
    """A product in its best order, its additions left as they are."""
    network = product.network
    tree, cost = best_order(network, prefer_memory=prefer_memory)
    return ProductSum((OrderedProduct(product, network, tree, cost),), cost.flops, cost.peak_bytes)


def improved(graph: Graph, best: ProductSum, *, prefer_memory: bool) -> ProductSum:
    """A cheaper sum that distributes over additions and does not use shared matmuls, or the same if there is none.

    A shared matmul is computed in any case: a sum without it must have fewer FLOPs all the same.
    """
    for _ in range(_MAX_CHANGES):
        found = [_changed(graph, best, i, f, prefer_memory) for i, term in enumerate(best.terms) for f in _open(term)]
        changes = [sums for sums in found if sums is not None and len(sums.terms) <= _MAX_TERMS]
        change = min(changes, key=lambda sums: sums.objective(prefer_memory), default=best)
        if change.objective(prefer_memory) >= best.objective(prefer_memory):
            break
        best = change
    return best


def _open(term: OrderedProduct) -> list[Factor]:
    """The additions and shared matmuls among the factors, as many as are tried."""
    factors = term.product.factors
    found = [f for f in factors if f.addition is not None or f.shared is not None]
    return found[:_MAX_OPEN] if len(factors) <= _MAX_FACTORS else []


def _changed(graph: Graph, sums: ProductSum, index: int, factor: Factor, prefer_memory: bool) -> ProductSum | None:
    """The sum with a factor of a product replaced: an addition by its two terms, a shared matmul by its factors."""
    product = sums.terms[index].product
    if factor.shared is not None:
        parts = [collect(graph, product.root, product.terms, product.shared | {factor.shared})]
    else:
        choices = [(*product.terms, (factor.addition or 0, side)) for side in (0, 1)]
        parts = [collect(graph, product.root, terms, product.shared) for terms in choices]
    new = [ordered(part, prefer_memory=prefer_memory).terms[0] for part in parts if part is not None]
    if len(new) < len(parts) or (factor.shared is not None and new[0].cost.flops >= sums.terms[index].cost.flops):
        return None
    return _total(graph, (*sums.terms[:index], *new, *sums.terms[index + 1 :]))


def _total(graph: Graph, terms: tuple[OrderedProduct, ...]) -> ProductSum:
    """A sum of products, computed one after the other."""
    value = graph.values[graph.ops[terms[0].product.root].results[0]]
    elements = value.nbytes // int(dtype_bytes(value.dtype))
    flops = sum(term.cost.flops for term in terms) + (len(terms) - 1) * elements
    return ProductSum(
        terms, flops, max(term.cost.peak_bytes + (value.nbytes if i else 0) for i, term in enumerate(terms))
    )


def kernels(graph: Graph, sums: ProductSum) -> tuple[Kernel, ...]:
    """The kernels that compute the products in their order."""
    return tuple(itertools.chain.from_iterable(_kernels(graph, term) for term in sums.terms))


def stored(graph: Graph, product: Product) -> dict[int, int]:
    """The bytes of the factors that were fused into a multiplication and will be stored for a matmul, by value."""
    stored_bytes: dict[int, int] = {}
    for factor in product.factors:
        op = graph.producer(factor.value)
        users = {graph.ops[user].name for user in graph.users[factor.value]}
        if op is not None and classify(graph, op) in FUSIBLE and "stablehlo.dot_general" not in users:
            stored_bytes[factor.value] = graph.values[factor.value].nbytes
    return stored_bytes


def new_bytes(graph: Graph, sums: ProductSum) -> int:
    """The peak of the intermediates that were not there before, the results aside."""
    value = graph.values[graph.ops[sums.terms[0].product.root].results[0]]
    peaks: list[int] = []
    for i, term in enumerate(sums.terms):
        factors = tuple(Piece(f.ready.labels) if f.addition is not None else f.ready for f in term.product.factors)
        peak = cost(dataclasses.replace(term.network, factors=factors), term.tree).peak_bytes
        peaks.append(peak + (value.nbytes if i else 0) + sum(stored(graph, term.product).values()))
    return max(peaks)


def removed(graph: Graph, sums: ProductSum) -> tuple[int, ...]:
    """The ops that are dead when the root is computed from the products."""
    products = [term.product for term in sums.terms]
    used = {f.value for product in products for f in product.factors}
    used |= {s.value for product in products for s in product.scalings if s.value is not None}
    return needed_only_by(graph, products[0].root, used)


def _kernels(graph: Graph, term: OrderedProduct) -> list[Kernel]:
    network, size = term.network, term.network.itemsize
    found = [Kernel(0, nbytes) for nbytes in stored(graph, term.product).values()]
    for i, factor in enumerate(term.product.factors):
        piece = network.single(i)
        # An addition is computed as it was.
        flops = piece.flops - (factor.ready.flops if factor.addition is not None else 0)
        if flops:
            found.append(Kernel(flops, graph.values[factor.value].nbytes + network.elements(piece.labels) * size))
    return [*found, *pair_kernels(network, term.tree)]


def emit(graph: Graph, sums: ProductSum) -> Any:
    """Builds the sum of the products at the insertion point."""
    total = _Emitter(graph, sums.terms[0]).run()
    for term in sums.terms[1:]:
        value = _Emitter(graph, term).run()
        total = (stablehlo.subtract if term.product.negative else stablehlo.add)(total, value)
    return total


class _Emitter(Contraction):
    def __init__(self, graph: Graph, term: OrderedProduct):
        self.graph, self.product, self.tree = graph, term.product, term.tree
        self.type: Any = graph.mlir_values[graph.ops[term.product.root].results[0]].type
        like = self.product.like
        # As all dots of the product have it; the highest where they differ or there was none.
        precision = (
            highest_precision() if like is None else graph.handles[like].attributes.get("precision_config", None)
        )
        super().__init__(term.network, self.product.out, self.type.element_type, precision)
        self.scalings = self._placed()

    def run(self) -> Any:
        """The product, in the shape of the root's result."""
        value, labels = self.build(self.tree)
        return self.laid_out(convert(value, self.element), labels, self.type)

    def factor(self, index: int) -> Tensor:
        """A factor without its dimensions of one element, its diagonal taken."""
        factor = load(self.graph, self.product.factors[index])
        while len(set(factor.labels)) < len(factor.labels):
            factor = _diagonal(*factor)
        return factor

    def finished(self, value: Any, subset: int) -> Any:
        for scaling in self.scalings.get(subset, ()):
            value = self.scaled(value, scaling)
        return value

    def _placed(self) -> Mapping[int, list[Scaling]]:
        """Where each scaling is cheapest: at the smallest partial result.

        Numbers of f16 leave its range soon: there it stays with the smallest factor of those it stood on.
        """
        nodes = list(_nodes(self.tree))
        placed: dict[int, list[Scaling]] = {}
        for scaling in self.product.scalings:
            fitting = [1 << i for i in scaling.factors] if self.product.element == "f16" else nodes
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
            number = convert(_number(self.graph, scaling.value), self.element)
        number = broadcast(number, value.type) if list(value.type.shape) else number
        return (stablehlo.multiply if scaling.kind == "multiply" else stablehlo.divide)(value, number)


def _nodes(tree: Tree) -> Iterable[int]:
    """The sets of factors of a tree's contractions, in order of evaluation."""
    if not isinstance(tree, int):
        yield from _nodes(tree[0])
        yield from _nodes(tree[1])
    yield factors_of(tree)


def _number(graph: Graph, value: int) -> Any:
    """The number that every element of a value is, as a scalar."""
    filled, number = graph.mlir_values[value], splat_value(graph, value)
    return reshaped(filled, ()) if number is None else splat(retype(filled.type, ()), number)


def _diagonal(value: Any, labels: tuple[int, ...]) -> Tensor:
    """A value with its first repeated label once less: it is summed, without what is off the diagonal."""
    label = next(i for i in labels if labels.count(i) > 1)
    dims = [d for d, i in enumerate(labels) if i == label][:2]
    row, column = (index_along(value.type.shape, d) for d in dims)
    mask = stablehlo.compare(row, column, stablehlo.ComparisonDirectionAttr.get("EQ"))
    value = sum_over(stablehlo.select(mask, value, zeros(value.type)), dims[1:])
    return Tensor(value, tuple(i for d, i in enumerate(labels) if d != dims[1]))
