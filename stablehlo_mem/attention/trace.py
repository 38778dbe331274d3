"""Follows a scores matrix through a block: what each value computed from it is, and which contractions read it.

`trace` starts at the dot_general that makes the scores and goes forward in program order. Values that meet a traced one
are looked into as far as `algebra` has words for it; an op without a rule here ends the trace.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from stablehlo_mem.attention.algebra import (
    Dot,
    Keep,
    Labels,
    Leaf,
    Mask,
    Monomial,
    Predicate,
    Region,
    Tensor,
    Terms,
    added,
    atom,
    constant,
    inverse,
    is_positive,
    multiplied,
    scaled,
)
from stablehlo_mem.attention.masks import added_mask, where
from stablehlo_mem.attention.origins import number_in
from stablehlo_mem.attention.scores import (
    Contraction,
    Known,
    Scores,
    Trace,
    in_frame,
    resolved,
    scores_at,
    source_dims,
    summed_pairs,
)
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import FLOATS, Graph, Op
from stablehlo_mem.ir.matchers import adds, converts_floats, direction, starts_at_zero
from stablehlo_mem.ir.op_attributes import dot_labels, integers
from stablehlo_mem.ir.view_chains import places_in_result, view_of

_MASKED_OUT = {"f16": -6e4, "bf16": -998244352.0}
"""Scores from which a key counts as left out: exp(fill - maximum) is 0 unless all other scores are as low. float16 ends
at -65504; bfloat16 rounds -1e9 upwards."""
_MASKED_OUT_OTHERS = -1e9
"""The same for wider element types; JAX's libraries fill with -1e9, -1e10, -1e30, the least number or -inf."""
_MAX_DEPTH = 12
"""Ops above each other that are looked into beside the trace: a bound on the time."""
_MAX_TERMS = 16
"""Terms of a polynomial: a bound on the time. The gradient of a softmax has two."""


@cached_analysis
def trace(graph: Graph, op: int, *, left_is_keys: bool) -> Trace | None:
    """The trace of the scores that an op makes."""
    scores = scores_at(graph, op, left_is_keys=left_is_keys)
    if scores is None:
        return None
    result = graph.ops[scores.op].results[0]
    return trace_from(graph, scores, {result: Known(scores.labels, atom(scores.dot))})


def trace_from(graph: Graph, scores: Scores, known: Mapping[int, Known]) -> Trace:
    """The trace of values that are known to be computed from scores."""
    return _Tracer(graph, scores, known).run()


class _Tracer:
    """One trace in the making."""

    def __init__(self, graph: Graph, scores: Scores, known: Mapping[int, Known]):
        self.graph, self.scores, self.columns = graph, scores, scores.columns
        self.known = dict(known)
        self.contractions: list[Contraction] = []

    def run(self) -> Trace:
        pending = {user for value in self.known for user in self.graph.users[value]}
        while pending:
            index = min(pending)
            pending.remove(index)
            op = self.graph.ops[index]
            known = self.follow(op) if op.results and op.results[0] not in self.known else None
            if known is not None and len(known.terms) <= _MAX_TERMS:
                self.known[op.results[0]] = known
                pending.update(self.graph.users[op.results[0]])
        return Trace(self.scores, self.known, tuple(self.contractions))

    def follow(self, op: Op) -> Known | None:
        """What the result of an op with a traced operand is, None if that is not known."""
        rule = _RULES.get(op.name)
        known = rule(self, op) if rule is not None else None
        if known is not None or len(op.results) != 1 or op.blocks:
            return known
        first = self.first_known(op)
        is_elementwise = self.graph.values[op.results[0]].shape == self.graph.values[op.operands[0]].shape
        if first is None or not is_elementwise or not self.columns.is_row(first.terms) or op.name in _MOVES:
            return None
        return self.leaf(op, first.labels)

    def leaf(self, op: Op, labels: Labels) -> Known | None:
        """The result of an op as an atom, if it is a row statistic."""
        if any(label in self.columns.labels for label in labels) or any(
            label is not None and label < 0 for label in labels
        ):
            return None
        return Known(labels, atom(Leaf(Tensor(op.results[0], labels))))

    def first_known(self, op: Op) -> Known | None:
        return next((self.known[v] for v in op.operands if v in self.known), None)

    def same(self, op: Op) -> Known | None:
        return self.known.get(op.operands[0])

    def convert(self, op: Op) -> Known | None:
        return self.same(op) if converts_floats(self.graph, op) else None

    def moved(self, op: Op) -> Known | None:
        """A transpose, or dimensions of one element added or dropped. Broadcasts are looked through where used."""
        known, places = self.known[op.operands[0]], places_in_result(self.graph, op)
        if places is None:
            return None
        shape = self.graph.values[op.results[0]].shape
        labels: list[int | None] = [None] * len(shape)
        for label, place in zip(known.labels, places, strict=True):
            if place is not None:
                labels[place] = label
        is_whole = all((label is None) == (size == 1) for label, size in zip(labels, shape, strict=True))
        return Known(tuple(labels), known.terms) if is_whole else None

    def binary(self, op: Op, combine: Callable[[Terms, Terms], Terms | None]) -> Known | None:
        first = self.first_known(op)
        if first is None:
            return None
        sides = [self.beside(v, first.labels, 0) for v in op.operands]
        if sides[0] is None or sides[1] is None:
            return None
        terms = combine(sides[0], sides[1])
        return None if terms is None else Known(first.labels, terms)

    def add(self, op: Op) -> Known | None:
        return self.binary(op, added)

    def subtract(self, op: Op) -> Known | None:
        return self.binary(op, lambda a, b: added(a, b, -1.0))

    def multiply(self, op: Op) -> Known | None:
        return self.binary(op, multiplied)

    def divide(self, op: Op) -> Known | None:
        return self.binary(op, _divided)

    def maximum(self, op: Op) -> Known | None:
        """Of the maximum of a row and -inf: a row statistic."""
        first = self.first_known(op)
        return self.leaf(op, first.labels) if first is not None else None

    def negate(self, op: Op) -> Known | None:
        known = self.known[op.operands[0]]
        return Known(known.labels, scaled(known.terms, -1.0))

    def absolute(self, op: Op) -> Known | None:
        """A sum of exponentials is positive: `logsumexp` takes its absolute value."""
        known = self.known[op.operands[0]]
        return known if is_positive(known.terms) else None

    def sign(self, op: Op) -> Known | None:
        known = self.known[op.operands[0]]
        return Known(known.labels, constant(1.0)) if is_positive(known.terms) else None

    def exponential(self, op: Op) -> Known | None:
        known = self.known[op.operands[0]]
        return Known(known.labels, self.columns.exponential(known.terms))

    def log(self, op: Op) -> Known | None:
        known = self.known[op.operands[0]]
        terms = self.columns.logarithm(known.terms)
        return Known(known.labels, terms) if terms is not None else self.leaf(op, known.labels)

    def reduce(self, op: Op) -> Known | None:
        if len(op.operands) != 2 or op.operands[0] not in self.known:
            return None
        known, dims = self.known[op.operands[0]], integers(self.graph, op, "dimensions")
        labels = tuple(label for d, label in enumerate(known.labels) if d not in dims)
        over = frozenset(label for d in dims if (label := known.labels[d]) is not None)
        is_sum = adds(op.blocks[0]) and starts_at_zero(self.graph, op)
        if not over:
            # Of one element: a sum from zero, or the maximum from -inf, is that element.
            return Known(labels, known.terms) if is_sum else self.leaf(op, labels)
        if over != self.columns.labels:
            return None
        return Known(labels, self.columns.total(known.terms)) if is_sum else self.leaf(op, labels)

    def select(self, op: Op) -> Known | None:
        mask, yes, no = op.operands
        if self.graph.values[mask].shape != self.graph.values[yes].shape:
            return None
        if mask in self.known:
            return self.decided(op)
        for value, other, keeps in ((yes, no, True), (no, yes, False)):
            fill = number_in(self.graph, other)
            if value in self.known and fill is not None:
                known = self.known[value]
                kept = self.where(mask, known.labels, keeps)
                if fill == 0:
                    return Known(known.labels, multiplied(known.terms, self.keep(kept)))
                if masks_out(fill, self.graph.values[value].dtype):
                    return Known(known.labels, added(known.terms, atom(Mask(kept, float(fill)))))
        return None

    def where(self, mask: int, labels: Labels, is_true: bool) -> Region | Predicate:
        tensor = resolved(self.graph, mask, labels)
        return where(self.graph, tensor.value, tensor.labels, is_true)

    def keep(self, kept: Region | Predicate) -> Terms:
        return atom(Keep(kept, of_rows=not kept.frame & self.columns.labels))

    def decided(self, op: Op) -> Known | None:
        """A select by a predicate that is known, such as whether a sum of exponentials is negative."""
        known = self.known[op.operands[0]]
        if known.terms not in (constant(1.0), constant(0.0)):
            return None
        terms = self.beside(op.operands[1 if known.terms == constant(1.0) else 2], known.labels, 0)
        return None if terms is None else Known(known.labels, terms)

    def compare(self, op: Op) -> Known | None:
        """A sum of exponentials compared with zero."""
        known, asks = self.known.get(op.operands[0]), direction(self.graph, op)
        if known is None or number_in(self.graph, op.operands[1]) != 0 or not is_positive(known.terms):
            return None
        return Known(known.labels, constant(1.0 if asks in ("GT", "GE", "NE") else 0.0))

    def dot(self, op: Op) -> Known | None:
        """Records a contraction; its result is known where rows are only summed over columns."""
        left, right, sizes, rank = dot_labels(self.graph, op)
        matrices = [i for i, v in enumerate(op.operands) if v in self.known]
        if len(matrices) != 1:
            return None
        (matrix,) = matrices
        known = self.known[op.operands[matrix]]
        mine, others = (left, right) if matrix == 0 else (right, left)
        place = dict(zip(mine, known.labels, strict=True))
        seen = [place.get(label, None if sizes[label] == 1 else -1) for label in others]
        if any(label is not None and label < 0 for label in known.labels):
            return None
        other = resolved(self.graph, op.operands[1 - matrix], tuple(seen))
        own = source_dims(self.graph, op.operands[1 - matrix], other)
        summed = frozenset(label for i, label in place.items() if i >= rank and label is not None)
        labels: list[int | None] = []
        for label in range(rank):
            if label in place:
                labels.append(place[label])
            else:
                source = own.get(others.index(label))
                labels.append(None if sizes[label] == 1 or source is None else -1 - source)
        if not summed and all(label is None or label >= 0 for label in labels):
            factor = self.beside(op.operands[1 - matrix], tuple(seen), 0)
            return None if factor is None else Known(tuple(labels), multiplied(known.terms, factor))
        self.contractions.append(Contraction(op.index, known.terms, other, summed, tuple(labels)))
        if summed != self.columns.labels or len(known.terms) != 1:
            return None
        return Known(tuple(labels), self.columns.total(known.terms, other))

    def beside(self, value: int, labels: Labels, depth: int) -> Terms | None:
        """What a value is whose dimensions lie along `labels`."""
        known = self.known.get(value)
        if known is not None:
            return known.terms if known.labels == labels else None
        number = number_in(self.graph, value)
        if number is not None:
            return constant(float(number))
        view = view_of(self.graph, value)
        if view.source != value and depth < _MAX_DEPTH:
            shown = tuple(None if d is None else labels[d] for d in view.dims)
            shape = self.graph.values[view.source].shape
            shown = tuple(None if size == 1 else label for size, label in zip(shape, shown, strict=True))
            return self.beside(view.source, shown, depth + 1)
        return self.inside(value, labels, depth)

    def inside(self, value: int, labels: Labels, depth: int) -> Terms | None:
        op = self.graph.producer(value)
        whole = Tensor(value, labels)
        if self.graph.values[value].dtype not in FLOATS:
            return None
        mask = added_mask(self.graph, value, labels)
        if mask is not None and masks_out(-abs(mask.fill), self.graph.values[value].dtype):
            # A positive number is subtracted from the scores.
            sign = 1.0 if mask.fill < 0 else -1.0
            return scaled(atom(dataclasses.replace(mask, fill=sign * mask.fill)), sign)
        if op is None or depth >= _MAX_DEPTH:
            return atom(Leaf(whole))
        if converts_floats(self.graph, op):
            return self.beside(op.operands[0], labels, depth + 1)
        if op.name == "stablehlo.dot_general" and self.scores.rows & whole.frame and self.columns.labels & whole.frame:
            return self.scaled_beside(op, labels, depth) or self.product(op, labels)
        if op.name == "stablehlo.select":
            return self.kept_beside(op, labels, depth) or atom(Leaf(whole))
        combine = _BESIDE.get(op.name)
        if combine is not None:
            sides = [self.beside(v, labels, depth + 1) for v in op.operands]
            if all(side is not None for side in sides):
                terms = combine(*sides)
                if (
                    terms is not None
                    and len(terms) <= _MAX_TERMS
                    and not any(map(_is_product_of_leaves, (m for m, _ in terms)))
                ):
                    return terms
        return atom(Leaf(whole))

    def kept_beside(self, op: Op, labels: Labels, depth: int) -> Terms | None:
        """A select beside the trace that keeps what depends on scores and is zero elsewhere; None for others."""
        mask, yes, no = op.operands
        if self.graph.values[mask].shape != self.graph.values[yes].shape:
            return None
        for value, other, keeps in ((yes, no, True), (no, yes, False)):
            terms = self.beside(value, labels, depth + 1) if number_in(self.graph, other) == 0 else None
            if terms is not None and not all(isinstance(one, (Leaf, Keep)) for m, _ in terms for one, _ in m):
                return multiplied(terms, self.keep(self.where(mask, labels, keeps)))
        return None

    def scaled_beside(self, op: Op, labels: Labels, depth: int) -> Terms | None:
        """A dot_general that sums over nothing and multiplies by one number; None for others."""
        left, right, _, rank = dot_labels(self.graph, op)
        for value, other, dims in ((*op.operands, left), (*op.operands[::-1], right)):
            factor = number_in(self.graph, other)
            if factor is not None and all(d < rank for d in (*left, *right)):
                terms = self.beside(value, tuple(labels[d] for d in dims), depth + 1)
                return None if terms is None else scaled(terms, factor)
        return None

    def product(self, op: Op, labels: Labels) -> Terms:
        """A dot_general beside the trace, such as the gradient of the probabilities."""
        *sides, _, rank = dot_labels(self.graph, op)
        tensors = [
            resolved(self.graph, v, in_frame(side, list(labels))) for v, side in zip(op.operands, sides, strict=True)
        ]
        pairs = summed_pairs(self.graph, op, tensors, (sides[0], sides[1]), rank)
        if pairs is None or any(not t.frame for t in tensors):
            return atom(Leaf(Tensor(op.results[0], labels)))
        if tensors[0].frame & self.columns.labels:
            tensors, pairs = tensors[::-1], [(b, a) for a, b in pairs]
        return atom(Dot(tensors[0], tensors[1], frozenset(pairs), Tensor(op.results[0], labels)))


def masks_out(fill: float, dtype: str) -> bool:
    """Whether a key whose score is filled with a number is left out."""
    return fill <= _MASKED_OUT.get(dtype, _MASKED_OUT_OTHERS)


def _is_product_of_leaves(monomial: Monomial) -> bool:
    """Whether a product has nothing to do with scores: it is one leaf then."""
    return len(monomial) > 1 and all(isinstance(one, Leaf) for one, _ in monomial)


def _divided(a: Terms, b: Terms) -> Terms | None:
    divisor = inverse(b)
    return None if divisor is None else multiplied(a, divisor)


_RULES: dict[str, Callable[[_Tracer, Op], Known | None]] = {
    "stablehlo.convert": _Tracer.convert,
    "stablehlo.optimization_barrier": _Tracer.same,
    "stablehlo.transpose": _Tracer.moved,
    "stablehlo.reshape": _Tracer.moved,
    "stablehlo.broadcast_in_dim": _Tracer.moved,
    "stablehlo.add": _Tracer.add,
    "stablehlo.subtract": _Tracer.subtract,
    "stablehlo.multiply": _Tracer.multiply,
    "stablehlo.divide": _Tracer.divide,
    "stablehlo.negate": _Tracer.negate,
    "stablehlo.maximum": _Tracer.maximum,
    "stablehlo.abs": _Tracer.absolute,
    "stablehlo.sign": _Tracer.sign,
    "stablehlo.exponential": _Tracer.exponential,
    "stablehlo.log": _Tracer.log,
    "stablehlo.reduce": _Tracer.reduce,
    "stablehlo.select": _Tracer.select,
    "stablehlo.compare": _Tracer.compare,
    "stablehlo.dot_general": _Tracer.dot,
}
_MOVES = frozenset({"stablehlo.transpose", "stablehlo.reshape", "stablehlo.broadcast_in_dim", "stablehlo.dot_general"})
_BESIDE: dict[str, Callable[..., Terms | None]] = {
    "stablehlo.add": added,
    "stablehlo.subtract": lambda a, b: added(a, b, -1.0),
    "stablehlo.multiply": multiplied,
    "stablehlo.divide": _divided,
    "stablehlo.negate": lambda a: scaled(a, -1.0),
    "stablehlo.optimization_barrier": lambda a: a,
}
