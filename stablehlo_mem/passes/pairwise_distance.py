"""pairwise-distance: sums of squared differences of all pairs, and their gradients, become norms and one matmul.

    sum_k (x[i,k] - y[j,k])²           →  |x'|²[i] + |y'|²[j] - 2 (x' y'ᵀ)[i,j],    never below 0
    sum_j w[i,j] (x[i,k] - y[j,k])     →  x'[i,k] sum_j w[i,j] - (w y')[i,k]
    sum_ij w[i,j] (x[i,k] - y[j,k])²   →  likewise, three sums

where x' = x - m and y' = y - m. The shift m is the mean of some of x, so that the error depends on how far the points
lie apart, not on how far they are from the origin. Nothing of the size of all pairs times all coordinates remains.

    %4 = stablehlo.subtract %x, %y : tensor<40x50x3xf32>         %21 = stablehlo.dot_general %12, %14 ...
    %5 = stablehlo.multiply %4, %4 : tensor<40x50x3xf32>    →    %24 = stablehlo.subtract %norms, %twice_21
    %6 = stablehlo.reduce(%5 init: %zero) ... [2]                %25 = stablehlo.maximum %24, %zeros

Distances of near pairs are inexact, because large terms cancel: hence `numerics="relaxed"`. Where a distance reaches a
root, a logarithm or a denominator, it is bounded below by its rounding error instead of 0, so that finite gradients
stay finite.

Refuses, with a reason: other powers of a difference (L1 among them), other reducers, sums that do not start at zero,
and weights of unknown sign.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from stablehlo_mem.analysis.cost_model import Kernel
from stablehlo_mem.einsum.contraction_order import bits, pairs
from stablehlo_mem.einsum.difference_matcher import sum_at
from stablehlo_mem.einsum.emit_contraction import pair_kernels
from stablehlo_mem.einsum.emit_distances import DistanceEmitter, DistanceForm, DistanceTerm
from stablehlo_mem.einsum.terms import Difference, DifferenceProduct, DifferenceSum, Multiplier
from stablehlo_mem.ir.bindings import stablehlo
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.builders import convert
from stablehlo_mem.ir.dead_ops import needed_only_by
from stablehlo_mem.ir.graph import FLOATS, Graph, dtype_bytes
from stablehlo_mem.ir.matchers import adds, splat_value, starts_at_zero
from stablehlo_mem.rewriting.rewriting_pass import Match, RewritingPass

_MAX_WALK = 500
"""Ops looked at to see whether a distance reaches one that is singular at 0; more count as such: to bound the time."""

_SINGULAR = frozenset({"sqrt", "rsqrt", "cbrt", "log", "while", "case", "if"})
"""Ops that are singular at 0, or that may hold one that is."""

_FOLLOWED = (
    *("add", "subtract", "multiply", "divide", "negate", "abs", "maximum", "minimum", "clamp", "select", "square"),
    *("convert", "reduce_precision", "power", "optimization_barrier", "broadcast_in_dim", "reshape", "transpose"),
    *("slice", "concatenate", "pad"),
)
"""Ops through which a value is followed: their results can be 0 where it is."""


class PairwiseDistance(RewritingPass):
    """Distances of all pairs, and the sums of their gradients, by matmuls."""

    name = "pairwise-distance"
    roots = frozenset({"stablehlo.reduce", "stablehlo.dot_general"})

    def match(self, graph: Graph, root: int, *, prefer_memory: bool) -> Match | Blocked | None:
        """The match at a sum over differences; why not, if it sums them in another way."""
        op, differences = graph.ops[root], sum_at(graph, root)
        if differences is None or not all(p.differences for p in differences.terms):
            return None
        if op.name == "stablehlo.reduce" and not adds(op.blocks[0]):
            return Blocked("not-a-sum", "differences are reduced, but not by adding them up")
        if op.name == "stablehlo.reduce" and not starts_at_zero(graph, op):
            return Blocked("not-from-zero", "the sum over differences does not start at the constant zero")
        terms: list[DistanceTerm] = []
        for product in differences.terms:
            term = _term(product, differences)
            if not isinstance(term, DistanceTerm):
                return term
            terms.append(term)
        return _match(graph, root, differences, tuple(terms))

    def emit(self, graph: Graph, match: Match) -> Sequence[Any]:
        """Builds the sum of all terms."""
        form: DistanceForm = match.detail
        total = functools.reduce(stablehlo.add, map(DistanceEmitter(graph, form).term, form.terms))
        return [convert(total, graph.mlir_values[graph.ops[match.root].results[0]].type.element_type)]


def _term(product: DifferenceProduct, of: DifferenceSum) -> DistanceTerm | Blocked | None:
    """A product with differences as a term, or why it is none."""
    first, *more = product.differences
    if product.odd or len(more) > 1 or (first.absolute and not more):
        what = product.odd or ("abs" if not more else f"power {len(more) + 1}")
        return Blocked("not-quadratic", f"only squares of differences are norms and a matmul, and this is {what}")
    coefficient = product.coefficient
    if more:
        if more[0].absolute != first.absolute:
            return Blocked("not-quadratic", "only squares of differences are norms and a matmul, and this is signed")
        if more[0] == first.mirrored and not first.absolute:
            coefficient = -coefficient
        elif more[0] not in (first, first.mirrored):
            return None
    scales, weights = _paired(product.multipliers, first) if more else ((), product.multipliers)
    if any(f.absolute or f.along == of.full for f in weights):
        return None
    positive = all(count % 2 == 0 for count in Counter(weights).values())
    if of.over & first.own or (more and positive):
        return DistanceTerm(coefficient, first, len(product.differences), scales, weights, positive)
    message = "its weights may be negative: multiply the difference by their roots, before the square"
    return Blocked("weighted", message) if more else None


def _paired(
    factors: Sequence[Multiplier], difference: Difference
) -> tuple[tuple[Multiplier, ...], tuple[Multiplier, ...]]:
    """The factors that occur squared, each once, if they scale both sides; and what is left."""
    counts = Counter(dataclasses.replace(f, absolute=False) for f in factors)
    scales: list[Multiplier] = []
    weights: list[Multiplier] = []
    for factor, count in counts.items():
        if count % 2 and any(f.absolute and dataclasses.replace(f, absolute=False) == factor for f in factors):
            weights.append(dataclasses.replace(factor, absolute=True))
            continue
        if factor.along & difference.own:
            weights += [factor] * count
        else:
            scales += [factor] * (count // 2)
            weights += [factor] * (count % 2)
    return tuple(scales), tuple(weights)


def _match(graph: Graph, root: int, of: DifferenceSum, terms: tuple[DistanceTerm, ...]) -> Match | None:
    """The match of terms, None if an intermediate would be as large as all the differences."""
    spreads = (s for t in terms for s in (t.difference.left, t.difference.right, *t.scales, *t.weights))
    values = [s.value for s in spreads]
    dtypes = {graph.values[v].dtype for v in (*values, *graph.ops[root].results)}
    if not dtypes <= FLOATS or any(size == 0 for size in of.sizes):
        return None
    element = "f64" if "f64" in dtypes else "f32"
    lone = len(terms) == 1 and terms[0].is_square
    form = DistanceForm(of, terms, element, lone and _reaches_singular(graph, graph.ops[root].results[0]))
    orders = [form.order(term.inputs(sides)) for term in terms for _, sides in term.monomials]
    sides = [term.side_labels(s) for term in terms for s in (term.difference.left, term.difference.right)]
    made = [pair for network, tree in orders for pair in pairs(network, tree)]
    whole = form.nbytes(of.full)
    if any(form.nbytes(bits(pair.result)) >= whole for pair in made):
        return None
    dots = sum(form.nbytes(bits(pair.result)) for pair in made if pair.is_matmul)
    # The result is written over the matmul's: its bytes are no intermediate's.
    shared = form.nbytes(of.out) if lone else 0
    squared = "squared distances" if lone else "sums over differences"
    return Match(
        root=root,
        removed=needed_only_by(graph, root, values),
        new_bytes=int(sum(map(form.nbytes, dict.fromkeys(sides))) + max(0, dots - shared)),
        kernels=tuple(_kernels(form)),
        numerics="relaxed",
        summary=f"compute {squared} {element}[{','.join(map(str, form.shape(of.out)))}] with a matmul",
        detail=form,
        shared_inputs=tuple(values),
    )


def _kernels(form: DistanceForm) -> Iterator[Kernel]:
    """What the terms cost: shifting the sides, contracting them, and adding the results up."""
    width = dtype_bytes(form.element)
    for term in form.terms:
        for side in {term.side_labels(s) for s in (term.difference.left, term.difference.right)}:
            yield Kernel(3 * form.nbytes(side) / width, 2 * form.nbytes(side))
        for _, sides in term.monomials:
            network, tree = form.order(term.inputs(sides))
            for factor, piece in ((factor, network.single(i)) for i, factor in enumerate(network.factors)):
                if piece.flops:
                    yield Kernel(piece.flops, form.nbytes(bits(factor.labels)) + form.nbytes(bits(piece.labels)))
            yield from pair_kernels(network, tree)
        out = form.nbytes(form.sum.out)
        yield Kernel(4 * out / width, out)


def _reaches_singular(graph: Graph, value: int) -> bool:
    """Whether a value reaches, through elementwise ops, one whose value or derivative is infinite at 0."""
    seen = {value}
    stack = [value]
    while stack:
        value = stack.pop()
        for user in graph.users[value]:
            op = graph.ops[user]
            name = op.name.partition(".")[2]
            if name in _SINGULAR or len(seen) > _MAX_WALK or op.name == "stablehlo.return":
                return True
            if name == "divide" and op.operands[1] == value:
                return True
            exponent = splat_value(graph, op.operands[1]) if name == "power" else 1
            if exponent is None or exponent < 1 or exponent != int(exponent):
                return True
            new = [v for v in op.results if v not in seen] if name in _FOLLOWED else []
            seen.update(new)
            stack += new
    return False
