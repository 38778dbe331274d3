"""contractions: multiplications of broadcasts that are summed become matmuls.

Before, with %xy of m x n x k elements:
    %xy = stablehlo.multiply %x_broadcast, %y_broadcast : tensor<mxnxk>
    %z = stablehlo.reduce(%xy) applies stablehlo.add across dimensions = [2] : tensor<mxn>
After:
    %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [1] : tensor<mxn>

A sum of products of equal shapes stays: compilers fuse it. A matmul with a one-hot matrix becomes a lookup of rows
(`one_hot_lookup`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stablehlo_mem.einsum.contraction_order import pairs
from stablehlo_mem.einsum.matcher import collect
from stablehlo_mem.einsum.reorder import emit, kernels, new_bytes, ordered, removed
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.rewriting.one_hot_lookup import Lookup, emit_lookup, match_lookup
from stablehlo_mem.rewriting.rewriting_pass import Match, RewritingPass


class Contractions(RewritingPass):
    """The pass."""

    name = "contractions"
    roots = frozenset({"stablehlo.reduce", "stablehlo.dot_general"})

    def match(self, graph: Graph, root: int, *, prefer_memory: bool) -> Match | Blocked | None:
        """The matmuls that a sum of products is, or the lookup that a matmul is."""
        if graph.ops[root].name == "stablehlo.dot_general":
            return match_lookup(graph, root)
        product = collect(graph, root)
        if product is None or len(product.factors) < 2:
            return None
        if any(graph.ops[op].name == "stablehlo.dot_general" for op in product.ops):
            return None
        best = ordered(product, prefer_memory=prefer_memory)
        (term,) = best.terms
        if not any(pair.pays_as_matmul for pair in pairs(term.network, term.tree)):
            return None
        factors = " and ".join(str(graph.values[factor.value]) for factor in product.factors)
        return Match(
            root=root,
            removed=removed(graph, best),
            new_bytes=new_bytes(graph, best),
            kernels=kernels(graph, best),
            numerics="relaxed" if product.masked else "reassociate",
            summary=f"compute the sum of products of {factors} with a matmul",
            detail=best,
        )

    def emit(self, graph: Graph, match: Match) -> Sequence[Any]:
        """The contractions of the product's factors, or the lookup."""
        return [emit_lookup(graph, match) if isinstance(match.detail, Lookup) else emit(graph, match.detail)]
