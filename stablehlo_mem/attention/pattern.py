"""Finds the ops of a block that compute softmax(scale Q Kᵀ + bias) V, or its gradients dQ, dK and dV.

`attention_ops` compares what `trace` knows of each contraction with what the formula says:

    P = Exp(S) / Total(Exp(S)),    S = scale · Q Kᵀ + biases + masks
    O  = P V                       sum over the keys
    dV = Pᵀ dO                     sum over the queries
    dS = P ∘ (dP - Total(P ∘ dP)), dP = dO Vᵀ
    dQ = scale · dS K,  dK = scale · dSᵀ Q
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal

from stablehlo_mem.attention.algebra import (
    Dot,
    Exp,
    Labels,
    Leaf,
    Mask,
    Monomial,
    Predicate,
    Tensor,
    Terms,
    Total,
    in_rows_with_keys,
)
from stablehlo_mem.attention.origins import numbered
from stablehlo_mem.attention.scores import Contraction, Scores, Trace, reaches_exponential
from stablehlo_mem.attention.stacked import stacked_traces
from stablehlo_mem.attention.trace import trace
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.dead_ops import needed_only_by
from stablehlo_mem.ir.graph import NARROW_FLOATS, Graph, reachable
from stablehlo_mem.ir.matchers import converts_floats
from stablehlo_mem.ir.view_chains import places_in_result

Part = Literal["output", "query gradient", "key gradient", "value gradient"]

SAME = 1e-6
"""Relative difference of coefficients that are meant to be equal: scales are written in float32."""


@dataclasses.dataclass(frozen=True)
class Attention:
    """The operands of softmax(scale Q Kᵀ + biases, masks) V.

    Attributes:
        scores: the dimensions of Q Kᵀ.
        values: V.
        biases: added to the scores, each with its factor.
        masks: keys that are left out.
    """

    scores: Scores
    values: Tensor
    scale: float
    biases: tuple[tuple[Tensor, float], ...]
    masks: tuple[Mask, ...]

    def inputs(self, graph: Graph) -> tuple[Tensor, ...]:
        """Everything in a block that it is computed from."""
        predicates = [mask.where for mask in self.masks if isinstance(mask.where, Predicate)]
        numbers = [(numbered(graph).get(predicate.value), predicate.labels) for predicate in predicates]
        shown = [Tensor(number, labels) for number, labels in numbers if number is not None]
        return (self.scores.queries, self.scores.keys, self.values, *(bias for bias, _ in self.biases), *shown)


@dataclasses.dataclass(frozen=True)
class Gradient:
    """The gradient of an output, and how its dimensions belong to those of the values: pairs of own dimensions."""

    of_output: Tensor
    pairs: frozenset[tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class AttentionOp:
    """An op that computes a part of attention.

    Attributes:
        root: the op, or the conversion of its result to a narrower type that alone uses it.
        dot: the contraction.
        labels: where the dimensions of the root's result lie.
        factor: its result is that of the kernel times this.
        is_rounded: whether the program rounds the matrix to the type of the other operand before the contraction.
        group: the roots that are computed from the same scores, in program order.
        is_zeroed: whether the probabilities of queries without keys are zero. Otherwise they are equal.
    """

    root: int
    dot: int
    part: Part
    attention: Attention
    labels: Labels
    factor: float = 1.0
    is_rounded: bool = True
    gradient: Gradient | None = None
    group: tuple[int, ...] = ()
    is_zeroed: bool = False

    @property
    def passes_masks(self) -> bool:
        """Whether scores of queries without keys have gradients: what is added to scores lets them through."""
        return not self.is_zeroed and any(mask.is_added for mask in self.attention.masks)


@cached_analysis
def attention_ops(graph: Graph) -> dict[int, AttentionOp | Blocked]:
    """The ops of a block that compute parts of attention, and those that nearly do with what is missing."""
    found: dict[int, AttentionOp | Blocked] = {}
    for traced in stacked_traces(graph):
        found.update((root, item) for root, item in _parts(graph, traced) if isinstance(item, AttentionOp))
    for op in graph.ops:
        if op.name == "stablehlo.dot_general" and op.index not in found and reaches_exponential(graph, op.results[0]):
            for left_is_keys in (False, True):
                traced = trace(graph, op.index, left_is_keys=left_is_keys)
                for root, item in _parts(graph, traced) if traced is not None else ():
                    if root not in found or isinstance(found[root], Blocked):
                        found[root] = item
    return found


def _parts(graph: Graph, traced: Trace) -> Iterator[tuple[int, AttentionOp | Blocked]]:
    """The parts among what was traced."""
    parts: list[AttentionOp] = []
    blocked: list[tuple[int, Blocked]] = []
    for contraction in traced.contractions:
        part = _part(graph, traced, contraction)
        if isinstance(part, AttentionOp):
            parts.append(part)
        elif part is not None:
            blocked.append((contraction.op, part))
    parts += _divided_outputs(graph, traced)
    parts.sort(key=lambda part: part.root)
    reason = _reason_against(graph, traced, parts)
    group = tuple(part.root for part in parts)
    # The gradient of the scores is as wide as JAX makes it: what counts is whether the probabilities are rounded.
    rounded = [part.is_rounded for part in parts if part.part in ("output", "value gradient")]
    for part in parts:
        is_rounded = all(rounded) if rounded else part.is_rounded
        yield part.root, reason or dataclasses.replace(part, group=group, is_rounded=is_rounded)
    dots = {part.dot for part in parts}
    yield from ((op, why) for op, why in blocked if op not in dots)


def _reason_against(graph: Graph, traced: Trace, parts: list[AttentionOp]) -> Blocked | None:
    """Why parts that look right cannot be replaced."""
    if not parts:
        return None
    made = traced.matrices(graph)
    after = reachable(made, lambda op: (user for v in graph.ops[op].results for user in graph.users[v]))
    inputs = {tensor.value for part in parts for tensor in part.attention.inputs(graph)}
    if any(graph.values[v].producer in after for v in inputs):
        return Blocked("depends-on-scores", "a bias, a mask or the values depend on the scores themselves")
    inputs |= {part.gradient.of_output.value for part in parts if part.gradient is not None}
    first, *others = (part.root for part in parts)
    if not set(made) <= set(needed_only_by(graph, first, inputs, *others)):
        return Blocked("scores-needed", "the scores or probabilities are needed elsewhere too, so they must exist")
    return None


def _part(graph: Graph, traced: Trace, contraction: Contraction) -> AttentionOp | Blocked | None:
    """The part that a contraction is; why it is none where it contracts exponentials."""
    scores = traced.scores
    terms = in_rows_with_keys(contraction.terms)
    exponentials = {one for m, _ in terms for one, power in m if isinstance(one, Exp) and power == 1}
    over_keys = contraction.summed == scores.columns.labels
    if len(exponentials) != 1 or not (over_keys or contraction.summed == scores.rows):
        return None
    (exponential,) = exponentials
    probabilities = frozenset({(_probabilities(exponential), 1.0)})
    if terms == probabilities:
        part = _of_probabilities(graph, traced, contraction, exponential)
    else:
        factor, score_gradient = _score_gradient(terms, exponential)
        if score_gradient is None:
            return _near_miss(terms, exponential) if over_keys else None
        part = _of_score_gradient(graph, traced, contraction, exponential, score_gradient, factor)
    return part if not isinstance(part, AttentionOp) else dataclasses.replace(part, is_zeroed=_is_zeroed(contraction))


def _is_zeroed(contraction: Contraction) -> bool:
    """Whether the probabilities, or their gradient in that of the scores, are zero where masks leave keys out."""
    monomials = [m for m, _ in contraction.terms]
    direct = [m for m in monomials if len(monomials) == 1 or any(isinstance(one, Dot) for one, _ in m)]
    return any(isinstance(one, Exp) and one.is_zeroed for m in direct for one, _ in m)


def _probabilities(exponential: Exp) -> Monomial:
    one: Monomial = frozenset({(exponential, 1.0)})
    return frozenset({(exponential, 1.0), (Total(one), -1.0)})


def _near_miss(terms: Terms, exponential: Exp) -> Blocked | None:
    """What a contraction of exponentials with the values has that attention has not."""
    if len(terms) != 1:
        return None
    ((monomial, coefficient),) = terms
    sums = [one for one, _ in monomial if isinstance(one, Total) and one.other is None]
    if not sums:
        return Blocked("not-normalised", "the exponentials are not divided by their sum over the keys: another softmax")
    inner = [one for total in sums for one, _ in total.of if isinstance(one, Exp)]
    if (inner and inner[0] != exponential) or coefficient != 1:
        return Blocked("dropout", "the probabilities are masked or scaled after they were normalised, as by dropout")
    return None


def _score_gradient(terms: Terms, exponential: Exp) -> tuple[float, Dot | None]:
    """dP, if a polynomial is a factor times P ∘ (dP - Total(P ∘ dP)); and the factor."""
    dots = {one for m, _ in terms for one, power in m if isinstance(one, Dot) and power == 1}
    if len(dots) != 1 or len(terms) != 2:
        return 0.0, None
    (dot,) = dots
    total = Total(frozenset({(exponential, 1.0)}))
    weighted = Total(frozenset({(exponential, 1.0), (dot, 1.0)}))
    coefficients = dict(terms)
    own = coefficients.get(frozenset({(exponential, 1.0), (dot, 1.0), (total, -1.0)}), 0.0)
    of_sum = coefficients.get(frozenset({(exponential, 1.0), (total, -2.0), (weighted, 1.0)}), 0.0)
    if not own or abs(own + of_sum) > SAME * abs(own):
        return 0.0, None
    return own, dot


def _of_probabilities(
    graph: Graph, traced: Trace, contraction: Contraction, exponential: Exp
) -> AttentionOp | Blocked | None:
    """An output, or the gradient of values if one for the scores says what these are."""
    if contraction.summed == traced.scores.columns.labels:
        attention = _attention(traced.scores, exponential, contraction.other)
        return attention if isinstance(attention, Blocked) else _root(graph, contraction, "output", attention)
    dp = next((dp for dp in _gradients(traced, exponential) if dp.left == contraction.other), None)
    values = dp.right if dp is not None else None
    if dp is None or values is None:
        return None
    attention = _attention(traced.scores, exponential, values)
    gradient = Gradient(dp.left, dp.summed)
    if isinstance(attention, Blocked):
        return attention
    return _root(graph, contraction, "value gradient", attention, gradient=gradient)


def _gradients(traced: Trace, exponential: Exp) -> Iterator[Dot]:
    """The gradients of the probabilities that are used to make that of the scores."""
    for contraction in traced.contractions:
        dot = _score_gradient(in_rows_with_keys(contraction.terms), exponential)[1]
        if dot is not None:
            yield dot


def _of_score_gradient(
    graph: Graph, traced: Trace, contraction: Contraction, exponential: Exp, dp: Dot, factor: float
) -> AttentionOp | Blocked | None:
    """The gradient of queries or keys."""
    scores = traced.scores
    over_keys = contraction.summed == scores.columns.labels
    if contraction.other != (scores.keys if over_keys else scores.queries):
        return None
    attention = _attention(scores, exponential, dp.right)
    if isinstance(attention, Blocked):
        return attention
    part: Part = "query gradient" if over_keys else "key gradient"
    root = _root(graph, contraction, part, attention, gradient=Gradient(dp.left, dp.summed))
    return dataclasses.replace(root, factor=factor / attention.scale)


def _divided_outputs(graph: Graph, traced: Trace) -> Iterator[AttentionOp]:
    """The outputs that are divided by the sum of the exponentials after the contraction."""
    seen: set[Terms] = set()
    for value, known in sorted(traced.known.items()):
        op = graph.producer(value)
        if op is None or op.name not in ("stablehlo.divide", "stablehlo.multiply") or len(known.terms) != 1:
            continue
        ((monomial, coefficient),) = known.terms
        outputs = [one for one, power in monomial if isinstance(one, Total) and one.other and power == 1]
        if len(outputs) != 1 or len(outputs[0].of) != 1 or coefficient != 1 or known.terms in seen:
            continue
        ((exponential, power),) = outputs[0].of
        total = Total(outputs[0].of)
        other = outputs[0].other
        if power != 1 or monomial != frozenset({(outputs[0], 1.0), (total, -1.0)}) or other is None:
            continue
        if not isinstance(exponential, Exp):
            continue
        attention = _attention(traced.scores, exponential, other)
        if isinstance(attention, Attention):
            seen.add(known.terms)
            dot = next(c for c in traced.contractions if c.other == other)
            root, labels = _narrowed(graph, op.index, known.labels)
            rounded = _is_rounded(graph, dot.op)
            yield AttentionOp(root, dot.op, "output", attention, labels, is_rounded=rounded)


def _attention(scores: Scores, exponential: Exp, values: Tensor) -> Attention | Blocked:
    """Attention with an exponent, or what in the exponent it cannot have."""
    scale, biases, masks = 0.0, list[tuple[Tensor, float]](), list[Mask]()
    for monomial, coefficient in sorted(exponential.exponent, key=str):
        one, power = next(iter(monomial)) if len(monomial) == 1 else (None, 0)
        if one == scores.dot and power == 1:
            scale = coefficient
        elif isinstance(one, Leaf) and power == 1:
            biases.append((one.tensor, coefficient))
        elif isinstance(one, Dot) and one.result is not None and power == 1:
            biases.append((one.result, coefficient))
        elif isinstance(one, Mask) and power == 1 and coefficient > 0:
            masks.append(one)
        else:
            return Blocked(
                "other-scores", "the scores have a term that is no product of queries and keys, bias or mask"
            )
    if len({(mask.fill, mask.is_added) for mask in masks}) > 1 or sum(mask.is_added for mask in masks) > 1:
        return Blocked(
            "several-masks", "its masks differ: where several leave out all keys, the number of masks counts"
        )
    if any(bias.value < 0 for bias, _ in biases):
        return Blocked("other-block", "a bias is neither stacked by the loop that computes the scores nor from outside")
    frames = (scores.queries.frame, scores.keys.frame, values.frame)
    if not scale or frames[2] != frames[1] or len(scores.columns.labels) != 1:
        return Blocked("other-dimensions", "keys and values do not have the same dimensions")
    return Attention(scores, values, scale, tuple(biases), tuple(masks))


def _root(
    graph: Graph, contraction: Contraction, part: Part, attention: Attention, *, gradient: Gradient | None = None
) -> AttentionOp:
    """A part whose root is the contraction, or the one conversion of its result to a narrower type."""
    root, labels = _narrowed(graph, contraction.op, contraction.labels)
    rounded = _is_rounded(graph, contraction.op)
    return AttentionOp(root, contraction.op, part, attention, labels, is_rounded=rounded, gradient=gradient)


def _narrowed(graph: Graph, index: int, labels: Labels) -> tuple[int, Labels]:
    """The conversion of an op's result, maybe transposed, to a narrower type, and its labels; the op without one."""
    op = graph.ops[index]
    moved = labels
    while graph.values[op.results[0]].dtype not in NARROW_FLOATS and len(graph.users[op.results[0]]) == 1:
        op = graph.ops[graph.users[op.results[0]][0]]
        if not op.results or len(op.operands) != 1:
            break
        places = places_in_result(graph, op)
        if converts_floats(graph, op):
            is_narrow = graph.values[op.results[0]].dtype in NARROW_FLOATS
            return (op.index, moved) if is_narrow else (index, labels)
        if places is None:
            break
        before = dict(zip(places, moved, strict=True))
        moved = tuple(before.get(d) for d in range(len(graph.values[op.results[0]].shape)))
    return index, labels


def _is_rounded(graph: Graph, dot: int) -> bool:
    return all(graph.values[v].dtype in NARROW_FLOATS for v in graph.ops[dot].operands)
