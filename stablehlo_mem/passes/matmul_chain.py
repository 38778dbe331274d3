"""matmul-chain: products of matrices, and sums of them, are computed in the cheapest order.

Before, with %ab of n x n elements:
    %ab = stablehlo.dot_general %a, %b : tensor<nxn>
    %y = stablehlo.dot_general %ab, %v : tensor<n>
After:
    %bv = stablehlo.dot_general %b, %v : tensor<k>
    %y = stablehlo.dot_general %a, %bv : tensor<n>

Batch dimensions, transposes, scalings, elementwise factors, sums, traces and additions in between take part.

Refuses intermediates that other ops need too: they would be computed twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stablehlo_mem.analysis.fusion_classes import CLASSES, Class
from stablehlo_mem.einsum.matcher import PARTS, collect
from stablehlo_mem.einsum.reorder import ProductSum, emit, improved, kernels, new_bytes, ordered, removed
from stablehlo_mem.einsum.terms import Product
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.rewriting.rewriting_pass import Match, RewritingPass


class MatmulChain(RewritingPass):
    """The pass."""

    name = "matmul-chain"
    roots = frozenset({"stablehlo.dot_general", "stablehlo.reduce"})

    def match(self, graph: Graph, root: int, *, prefer_memory: bool) -> Match | Blocked | None:
        """The better order of the product an op is the root of."""
        product = None if _is_part_of_larger(graph, root) else collect(graph, root)
        if product is None:
            return None
        better = _better(graph, product, prefer_memory)
        if better is None:
            return _refusal(graph, root, product) if prefer_memory else None
        count = max(len(term.product.factors) for term in better.terms)
        terms = f" in {len(better.terms)} sums" if len(better.terms) > 1 else ""
        return Match(
            root=root,
            removed=removed(graph, better),
            new_bytes=new_bytes(graph, better),
            kernels=kernels(graph, better),
            numerics="relaxed" if any(t.product.masked for t in better.terms) else "reassociate",
            summary=f"multiply {count} factors in a cheaper order{terms}",
            detail=better,
        )

    def emit(self, graph: Graph, match: Match) -> Sequence[Any]:
        """The product in its new order."""
        return [emit(graph, match.detail)]


def _better(graph: Graph, product: Product, prefer_memory: bool) -> ProductSum | None:
    """The best order of a product, if it is better than the one it is written in."""
    if not _may_gain(product):
        return None
    best = improved(graph, ordered(product, prefer_memory=prefer_memory), prefer_memory=prefer_memory)
    written = product.written
    better = best.peak_bytes < written.peak_bytes if prefer_memory else best.flops < written.flops
    return best if better else None


def _may_gain(product: Product) -> bool:
    """Whether there is a matmul in a product, and anything besides."""
    more = len(product.ops) > 1 or any(f.addition is not None or f.shared is not None for f in product.factors)
    return product.has_matmul and more


def _is_part_of_larger(graph: Graph, root: int) -> bool:
    """Whether the only user of an op's result is a matmul or a sum that has the op in its own product."""
    value = graph.ops[root].results[0]
    while len(graph.users[value]) == 1:
        user = graph.ops[graph.users[value][0]]
        if user.operands.count(value) != 1:
            return False
        if user.name in MatmulChain.roots:
            product = collect(graph, user.index)
            return product is not None and root in product.ops
        if user.name not in PARTS and CLASSES.get(user.name) not in (Class.VIEW, Class.MOVE):
            return False
        value = user.results[0]
    return False


def _refusal(graph: Graph, root: int, product: Product) -> Blocked | None:
    """Why the order stays, if another would be better but for a matmul whose result other ops need."""
    shared = frozenset(f.shared for f in product.factors if f.shared is not None)
    whole = collect(graph, root, shared=shared) if shared else None
    if whole is None or not _may_gain(whole):
        return None
    if ordered(whole, prefer_memory=True).peak_bytes >= whole.written.peak_bytes:
        return None
    return Blocked("shared-intermediate", "an intermediate of its product is needed elsewhere too, so its order stays")
