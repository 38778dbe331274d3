"""Differences of two spread values in the products that are summed: where (x - y)² and w·(x - y) are found.

The dimensions of what a sum runs over are its *labels*, numbered; a value *lies along* some of them. All that is as big
as the whole sum is taken apart, down to the smaller values that are spread over it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from stablehlo_mem.analysis.fusion_classes import CLASSES, ELEMENTWISE
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import RULE, ir, same_attributes
from stablehlo_mem.ir.graph import FLOATS, Graph, Op, dtype_bytes
from stablehlo_mem.ir.matchers import splat_value
from stablehlo_mem.ir.op_attributes import dot_labels
from stablehlo_mem.ir.view_chains import view_of

_MAX_DEPTH = 32
_MAX_FACTORS = 16
_MAX_TERMS = 4


@dataclasses.dataclass(frozen=True)
class Spread:
    """A value and the label that each of its dimensions lies along, None for one of one element."""

    value: int
    labels: tuple[int | None, ...]

    @property
    def along(self) -> frozenset[int]:
        """The labels it lies along."""
        return frozenset(label for label in self.labels if label is not None)


@dataclasses.dataclass(frozen=True)
class Factor:
    """A factor of a product, or its reciprocal."""

    spread: Spread
    inverse: bool = False
    absolute: bool = False


@dataclasses.dataclass(frozen=True)
class Difference:
    """`left - right`, each with labels that the other does not lie along.

    `pairs`: where both sides are the same points, the labels of the left and the right along which these lie; else ().
    """

    left: Spread
    right: Spread
    absolute: bool = False
    pairs: tuple[tuple[int, int], ...] = ()

    @property
    def shared(self) -> frozenset[int]:
        """The labels that both lie along."""
        return self.left.along & self.right.along

    @property
    def own(self) -> frozenset[int]:
        """The labels that one of them lies along."""
        return self.left.along ^ self.right.along

    @property
    def mirrored(self) -> Difference:
        """The same with the sign changed."""
        pairs = tuple(sorted((b, a) for a, b in self.pairs))
        return dataclasses.replace(self, left=self.right, right=self.left, pairs=pairs)


@dataclasses.dataclass(frozen=True)
class Product:
    """A number times factors times differences. `odd` names what is done to a difference that is no product."""

    coefficient: float = 1.0
    factors: tuple[Factor, ...] = ()
    differences: tuple[Difference, ...] = ()
    odd: str = ""

    def __mul__(self, other: Product) -> Product:
        return Product(
            self.coefficient * other.coefficient,
            self.factors + other.factors,
            self.differences + other.differences,
            self.odd or other.odd,
        )

    def scaled(self, number: float) -> Product:
        """The product times a number."""
        return dataclasses.replace(self, coefficient=self.coefficient * number)

    def magnitude(self) -> Product:
        """The absolute value of the product."""
        return Product(
            abs(self.coefficient),
            tuple(dataclasses.replace(f, absolute=True) for f in self.factors),
            tuple(dataclasses.replace(d, absolute=True) for d in self.differences),
            self.odd,
        )

    @property
    def body(self) -> tuple[object, ...]:
        """All but the number, in an order of its own: equal bodies add up."""
        return (sorted(self.factors, key=repr), sorted(self.differences, key=repr), self.odd)


Terms = tuple[Product, ...]
"""A sum of products."""


@dataclasses.dataclass(frozen=True)
class Sum:
    """A root seen as a sum over labels: `sizes` of all of them, `out` those it keeps, in the order of its result."""

    terms: Terms
    sizes: tuple[int, ...]
    out: tuple[int, ...]

    @property
    def over(self) -> frozenset[int]:
        """The labels summed over, those of one element left out."""
        return frozenset(label for label, size in enumerate(self.sizes) if size > 1) - set(self.out)

    @property
    def full(self) -> frozenset[int]:
        """All labels, those of one element left out."""
        return frozenset(label for label, size in enumerate(self.sizes) if size > 1)


def sum_at(graph: Graph, root: int) -> Sum | None:
    """What a reduce or a dot_general sums, whatever the reducer; None if there is no difference in it to take apart."""
    op = graph.ops[root]
    if len(op.results) != 1 or graph.values[op.results[0]].dtype not in FLOATS:
        return None
    if not any(_holds_difference(graph)[v] for v in op.operands):
        return None
    if op.name == "stablehlo.dot_general":
        left, right, sizes, rank = dot_labels(graph, op)
        collector = _Collector(graph, sizes)
        terms = collector.times(collector.terms(op.operands[0], left), collector.terms(op.operands[1], right))
        return Sum(terms, sizes, tuple(range(rank))) if terms else None
    if len(op.operands) != 2:
        return None
    sizes = graph.values[op.operands[0]].shape
    over = set(ir.DenseI64ArrayAttr(graph.handles[root].attributes["dimensions"]))
    terms = _Collector(graph, sizes).terms(op.operands[0], tuple(range(len(sizes))))
    return Sum(terms, sizes, tuple(d for d in range(len(sizes)) if d not in over))


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


class _Collector:
    """Takes values apart into sums of products, as long as they are as big as the sum or hold a difference."""

    def __init__(self, graph: Graph, sizes: Sequence[int]):
        self.graph = graph
        self.sizes = sizes
        self.full = frozenset(label for label, size in enumerate(sizes) if size > 1)
        self.memo: dict[Spread, Terms] = {}

    def spread(self, value: int, labels: Sequence[int | None]) -> Spread:
        """What a value shows, through conversions that lose nothing too."""
        while True:
            view = view_of(self.graph, value)
            labels = [None if d is None else labels[d] for d in view.dims]
            labels = [None if label is None or self.sizes[label] == 1 else label for label in labels]
            op = self.graph.producer(view.source)
            if op is None or not self._converts(op, wider=True):
                return Spread(view.source, tuple(labels))
            value = op.operands[0]

    def terms(self, value: int, labels: Sequence[int | None], depth: int = 0) -> Terms:
        """The products that add up to a value."""
        spread = self.spread(value, labels)
        if spread not in self.memo:
            terms = self._apart(spread, depth)
            # What does not lie along all labels is as good whole, unless it would be a difference of all pairs.
            whole = spread.along != self.full and not any(p.differences for p in terms)
            self.memo[spread] = (self._atom(spread),) if whole or not terms else terms
        return self.memo[spread]

    def times(self, left: Terms, right: Terms) -> Terms:
        """The products of two sums, none if they are too many."""
        terms = tuple(a * b for a in left for b in right)
        fits = len(terms) <= _MAX_TERMS and all(len(t.factors) <= _MAX_FACTORS for t in terms)
        return terms if fits and all(len(t.differences) <= 8 for t in terms) else ()

    def _atom(self, spread: Spread) -> Product:
        number = splat_value(self.graph, spread.value)
        return Product(factors=(Factor(spread),)) if number is None else Product(float(number))

    def _apart(self, spread: Spread, depth: int) -> Terms:
        """The products a spread value is made of; none if it is to be taken as it is."""
        op = self.graph.producer(spread.value)
        if op is None or len(spread.along) < min(3, len(self.full)) or depth == _MAX_DEPTH:
            return ()
        name = op.name.partition(".")[2]
        if name in ("add", "subtract"):
            return self._sum(op, spread.labels, depth, -1.0 if name == "subtract" else 1.0)
        if name == "dot_general":
            return self._outer(op, spread.labels, depth)
        if name == "convert" and not self._converts(op):
            return ()
        if CLASSES.get(op.name) not in ELEMENTWISE or len(op.operands) > 2:
            return ()
        parts = [self.terms(v, spread.labels, depth + 1) for v in op.operands]
        return self._elementwise(op, name, parts)

    def _elementwise(self, op: Op, name: str, parts: Sequence[Terms]) -> Terms:
        first = parts[0]
        if name == "multiply":
            return self.times(*parts)
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
            return self.times(first, first)
        # Not a product: kept only to say why the sum is left alone.
        found = next((p for terms in parts for p in terms if p.differences), None)
        if found is None or name in ("select", "compare"):
            return ()
        return (dataclasses.replace(found, odd=name if exponent is None else f"power {exponent:g}"),)

    def _quotient(self, above: Terms, below: Terms) -> Terms:
        if len(below) != 1 or below[0].differences or not below[0].coefficient:
            return ()
        inverse = tuple(dataclasses.replace(f, inverse=not f.inverse) for f in below[0].factors)
        return self.times(above, (Product(1 / below[0].coefficient, inverse),))

    def _sum(self, op: Op, labels: Sequence[int | None], depth: int, sign: float) -> Terms:
        """A difference of two values that lie along labels of their own, or a sum of products with differences."""
        left, right = (self.spread(v, labels) for v in op.operands)
        if left.along - right.along and right.along - left.along:
            pairs = self._same_points(left, right)
            return (Product(differences=(Difference(left, right, pairs=pairs),)),) if sign < 0 else ()
        parts = [self.terms(v, labels, depth + 1) for v in op.operands]
        if not all(p.differences for terms in parts for p in terms):
            return ()
        merged: list[Product] = []
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
        same = self._alike(left, right, pairs, 0) and frozenset((*pairs, *pairs.values())) == left.along ^ right.along
        return tuple(sorted(pairs.items())) if same else ()

    def _alike(self, one: Spread, other: Spread, pairs: dict[int, int], depth: int) -> bool:
        """Whether two values are, or are computed elementwise from, the same, but for their labels."""
        if one.value == other.value:
            labels = zip(one.labels, other.labels, strict=True)
            return all(a == b or (None not in (a, b) and pairs.setdefault(a or 0, b or 0) == b) for a, b in labels)
        number = splat_value(self.graph, one.value)
        if number is not None:
            return number == splat_value(self.graph, other.value)
        ops = [self.graph.producer(s.value) for s in (one, other)]
        if ops[0] is None or ops[1] is None or depth == _MAX_DEPTH or ops[0].name != ops[1].name:
            return False
        handles = [self.graph.handles[op.index] for op in ops if op is not None]
        if CLASSES.get(ops[0].name) not in ELEMENTWISE or not same_attributes(handles[0], handles[1], RULE):
            return False
        operands = zip(ops[0].operands, ops[1].operands, strict=True)
        spreads = ((self.spread(a, one.labels), self.spread(b, other.labels)) for a, b in operands)
        return all(self._alike(a, b, pairs, depth + 1) for a, b in spreads)

    def _outer(self, op: Op, labels: Sequence[int | None], depth: int) -> Terms:
        """A dot_general that contracts nothing multiplies."""
        *sides, _, rank = dot_labels(self.graph, op)
        if rank != max(max(side, default=-1) for side in sides) + 1:
            return ()
        parts = [
            self.terms(v, [labels[label] for label in side], depth + 1)
            for v, side in zip(op.operands, sides, strict=True)
        ]
        return self.times(*parts)

    def _converts(self, op: Op, *, wider: bool = False) -> bool:
        """Whether an op converts between floats, to a wider one if asked."""
        if op.name != "stablehlo.convert":
            return False
        before, after = (self.graph.values[v[0]].dtype for v in (op.operands, op.results))
        return {before, after} <= FLOATS and (not wider or dtype_bytes(after) > dtype_bytes(before))
