"""Finds differences of spread values in the products that are summed, such as (x - y)² and w·(x - y).

`passes/pairwise_distance.py` calls it. All that has every label of the sum is taken apart, down to the smaller values
that are spread over them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from stablehlo_mem.analysis.fusion_classes import CLASSES, ELEMENTWISE
from stablehlo_mem.einsum.labelled_walk import LabelledWalk
from stablehlo_mem.einsum.terms import Difference, DifferenceProduct, DifferenceSum, Multiplier, Spread
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import RULE, same_attributes
from stablehlo_mem.ir.graph import FLOATS, Graph, Op
from stablehlo_mem.ir.matchers import splat_value
from stablehlo_mem.ir.op_attributes import dot_numbers
from stablehlo_mem.ir.view_chains import view_of

_MAX_DEPTH = 32
"""Ops above each other that are taken apart."""
_MAX_MULTIPLIERS = 16
_MAX_DIFFERENCES = 8
_MAX_TERMS = 4

_Terms = tuple[DifferenceProduct, ...]
"""Products that are added up."""


def sum_at(graph: Graph, root: int) -> DifferenceSum | None:
    """What a reduce (with any reducer) or a dot_general sums; None if there is no difference in it to take apart."""
    op = graph.ops[root]
    if len(op.results) != 1 or graph.values[op.results[0]].dtype not in FLOATS:
        return None
    if not any(_holds_difference(graph)[v] for v in op.operands):
        return None
    if op.name != "stablehlo.dot_general" and len(op.operands) != 2:
        return None
    matcher = _DifferenceMatcher(graph)
    out = matcher.fresh(graph.values[op.results[0]].shape)
    operands = matcher.operands(op, out)
    matcher.full = frozenset(range(len(matcher.sizes)))
    parts = [matcher.terms(operand) for operand in operands]
    terms = parts[0] if len(parts) == 1 else _times(*parts)
    return DifferenceSum(terms, tuple(matcher.sizes), out) if terms else None


@cached_analysis
def _holds_difference(graph: Graph) -> tuple[bool, ...]:
    """Per value, whether there may be a difference of two spread values in it: most programs have none."""
    holds = [False] * len(graph.values)
    for op in graph.ops:
        if op.name == "stablehlo.subtract" and all(_is_spread(graph, v) for v in op.operands):
            holds[op.results[0]] = True
        elif any(holds[v] for v in op.operands):
            for value in op.results:
                holds[value] = True
    return tuple(holds)


def _is_spread(graph: Graph, value: int) -> bool:
    """Whether a value repeats another, through conversions too."""
    while True:
        view = view_of(graph, value)
        shape = graph.values[value].shape
        if any(size > 1 and d not in view.dims for d, size in enumerate(shape)):
            return True
        op = graph.producer(view.source)
        if op is None or op.name != "stablehlo.convert":
            return False
        value = op.operands[0]


def _times(left: _Terms, right: _Terms) -> _Terms:
    """The products of two sums, none if they are too many."""
    terms = tuple(a * b for a in left for b in right)
    fits = all(len(t.multipliers) <= _MAX_MULTIPLIERS and len(t.differences) <= _MAX_DIFFERENCES for t in terms)
    return terms if fits and len(terms) <= _MAX_TERMS else ()


class _DifferenceMatcher(LabelledWalk):
    """Takes values apart into sums of products, as long as they have all labels or hold a difference."""

    def __init__(self, graph: Graph):
        super().__init__(graph)
        self.full = frozenset[int]()
        self.terms_of: dict[Spread, _Terms] = {}

    def source(self, spread: Spread) -> Spread:
        """The value that a value shows, through conversions that lose nothing too."""
        while True:
            spread = self.through_views(spread)
            op = self.graph.producer(spread.value)
            if op is None or not self.widens(op):
                return spread
            spread = Spread(op.operands[0], spread.labels)

    def terms(self, spread: Spread, depth: int = 0) -> _Terms:
        """The products that add up to a value."""
        spread = self.source(spread)
        if spread not in self.terms_of:
            terms = self._expanded(spread, depth)
            # A value without all labels is small: it need not be taken apart, except for a difference of all pairs.
            is_factor = spread.along != self.full and not any(p.differences for p in terms)
            self.terms_of[spread] = (self._factor(spread),) if is_factor or not terms else terms
        return self.terms_of[spread]

    def _factor(self, spread: Spread) -> DifferenceProduct:
        number = splat_value(self.graph, spread.value)
        if number is not None:
            return DifferenceProduct(float(number))
        return DifferenceProduct(multipliers=(Multiplier(spread.value, spread.labels),))

    def _expanded(self, spread: Spread, depth: int) -> _Terms:
        """The products that a value's producer adds up; none if the value is to be taken as it is."""
        op = self.graph.producer(spread.value)
        if op is None or len(spread.along) < min(3, len(self.full)) or depth == _MAX_DEPTH:
            return ()
        name = op.name.partition(".")[2]
        if name == "dot_general":
            if dot_numbers(self.graph, op).lhs_contracting_dimensions:
                return ()
        elif CLASSES.get(op.name) not in ELEMENTWISE or len(op.operands) > 2:
            return ()
        if name == "convert" and not {self.graph.values[v].dtype for v in (*op.operands, *op.results)} <= FLOATS:
            return ()
        operands = self.operands(op, spread.labels)
        if name in ("add", "subtract"):
            return self._sum(operands, depth, -1.0 if name == "subtract" else 1.0)
        return self._product(op, name, [self.terms(operand, depth + 1) for operand in operands])

    def _product(self, op: Op, name: str, parts: Sequence[_Terms]) -> _Terms:
        """The result of an elementwise op on sums of products, none if it is no such sum."""
        first = parts[0]
        if name in ("multiply", "dot_general"):
            return _times(*parts)
        if name == "negate":
            return tuple(p.scaled(-1) for p in first)
        if name == "convert":
            return first
        if name == "abs" and len(first) == 1:
            return (first[0].magnitude(),)
        if name == "divide":
            return self._quotient(first, parts[1])
        exponent = splat_value(self.graph, op.operands[1]) if name == "power" else None
        if name == "square" or exponent == 2.0:
            return _times(first, first)
        # No product: it is recorded only to say why the sum is left alone.
        difference = next((p for terms in parts for p in terms if p.differences), None)
        if difference is None or name in ("select", "compare"):
            return ()
        return (dataclasses.replace(difference, odd=name if exponent is None else f"power {exponent:g}"),)

    def _quotient(self, above: _Terms, below: _Terms) -> _Terms:
        if len(below) != 1 or below[0].differences or not below[0].coefficient:
            return ()
        inverse = tuple(dataclasses.replace(f, inverse=not f.inverse) for f in below[0].multipliers)
        return _times(above, (DifferenceProduct(1 / below[0].coefficient, inverse),))

    def _sum(self, operands: Sequence[Spread], depth: int, sign: float) -> _Terms:
        """A difference of two values with labels of their own, or a sum of products that all have differences."""
        left, right = map(self.source, operands)
        if left.along - right.along and right.along - left.along:
            if sign > 0:
                return ()
            return (DifferenceProduct(differences=(Difference(left, right, pairs=self._same_points(left, right)),)),)
        parts = [self.terms(side, depth + 1) for side in (left, right)]
        if not all(p.differences for terms in parts for p in terms):
            return ()
        merged: list[DifferenceProduct] = []
        for product in (*parts[0], *(p.scaled(sign) for p in parts[1])):
            same = next((i for i, p in enumerate(merged) if p.body == product.body), None)
            if same is None:
                merged.append(product)
            else:
                number = merged[same].coefficient + product.coefficient
                merged[same] = dataclasses.replace(product, coefficient=number)
        return tuple(merged) if len(merged) <= _MAX_TERMS else ()

    def _same_points(self, left: Spread, right: Spread) -> tuple[tuple[int, int], ...]:
        """The pairs of labels under which two values are the same, () if they are not."""
        pairs: dict[int, int] = {}
        same = self._is_same(left, right, pairs, 0) and frozenset((*pairs, *pairs.values())) == left.along ^ right.along
        return tuple(sorted(pairs.items())) if same else ()

    def _is_same(self, one: Spread, other: Spread, pairs: dict[int, int], depth: int) -> bool:
        """Whether two values are, or are computed elementwise from, the same, except for their labels."""
        if one.value == other.value:
            labels = zip(one.labels, other.labels, strict=True)
            return all(a == b or (None not in (a, b) and pairs.setdefault(a or 0, b or 0) == b) for a, b in labels)
        number = splat_value(self.graph, one.value)
        if number is not None:
            return number == splat_value(self.graph, other.value)
        first, second = (self.graph.producer(s.value) for s in (one, other))
        if first is None or second is None or depth == _MAX_DEPTH or first.name != second.name:
            return False
        handles = [self.graph.handles[op.index] for op in (first, second)]
        if CLASSES.get(first.name) not in ELEMENTWISE or not same_attributes(handles[0], handles[1], RULE):
            return False
        operands = zip(self.operands(first, one.labels), self.operands(second, other.labels), strict=True)
        return all(self._is_same(self.source(a), self.source(b), pairs, depth + 1) for a, b in operands)
