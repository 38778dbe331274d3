"""Finds the order in which to contract the factors of a product, two at a time, by dynamic programming over their sets.

`reorder.py` and `emit_distances.py` call it. Labels and sets of factors are bit masks: millions of them are compared. A
label is summed over as soon as no factor outside a set has it and the result does not. Up to `_EXHAUSTIVE` factors the
order is the best of all without needless outer products; above, the best parenthesisation of the factors' chain.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

_EXHAUSTIVE = 9
"""Factors up to which all sets of them are looked at: 3**9 ways to divide one in two."""

Tree: TypeAlias = "int | tuple[Tree, Tree]"
"""A factor, or two trees whose results are contracted; the first is computed before the second."""


Labels = tuple[int | None, ...]
"""For each dimension of a value its label; None for a dimension of one element."""


def label_mask(labels: Iterable[int | None]) -> int:
    """The set of some labels."""
    return functools.reduce(lambda mask, label: mask if label is None else mask | 1 << label, labels, 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """A partial result and what it costs to compute it.

    Attributes:
        labels: of the result.
        flops: of all that leads to it.
        peak_bytes: of the intermediates alive at once on the way, the result among them.
        nbytes: of the result, 0 where the program has it in any case.
        matmuls: contractions on the way that are faster as a matmul than fused.
    """

    labels: int
    flops: int = 0
    peak_bytes: int = 0
    nbytes: int = 0
    matmuls: int = 0


@dataclasses.dataclass(frozen=True)
class Network:
    """The factors of a product, for choosing an order.

    Attributes:
        factors: with what it costs to compute them.
        kept: labels of the result.
        sizes: of each label.
        itemsize: bytes of an element of the intermediates.
    """

    factors: tuple[Piece, ...]
    kept: int
    sizes: tuple[int, ...]
    itemsize: int
    _elements: dict[int, int] = dataclasses.field(init=False, repr=False, compare=False, default_factory=dict[int, int])

    @property
    def everything(self) -> int:
        """The set of all factors."""
        return (1 << len(self.factors)) - 1

    def elements(self, labels: int) -> int:
        """The elements of a value with these labels."""
        if labels not in self._elements:
            self._elements[labels] = math.prod([self.sizes[i] for i in bits(labels)])
        return self._elements[labels]

    def result_labels(self, subset: int) -> int:
        """The labels of the contraction of a set of factors: those that the result or a factor outside has."""
        inside, outside = 0, self.kept
        for i, factor in enumerate(self.factors):
            if subset >> i & 1:
                inside |= factor.labels
            else:
                outside |= factor.labels
        return inside & outside

    def result_bytes(self, subset: int) -> int:
        """The bytes of that; those of the whole product are not counted: every order computes it."""
        return 0 if subset == self.everything else self.elements(self.result_labels(subset)) * self.itemsize

    def single(self, factor: int) -> Piece:
        """A factor, summed over the labels that only it has."""
        piece = self.factors[factor]
        labels = self.result_labels(1 << factor)
        if labels == piece.labels:
            return piece
        nbytes = self.result_bytes(1 << factor)
        flops = piece.flops + self.elements(piece.labels)
        return Piece(labels, flops, max(piece.peak_bytes, piece.nbytes + nbytes), nbytes)


def joined(elements: Callable[[int], int], a: Piece, b: Piece, labels: int, nbytes: int) -> tuple[Piece, bool]:
    """Two pieces contracted to the labels, in so many bytes, and whether to compute the first one first."""
    union = a.labels | b.labels
    flops = a.flops + b.flops + elements(union) * (1 if union == labels else 2)
    first, second = max(a.peak_bytes, a.nbytes + b.peak_bytes), max(b.peak_bytes, b.nbytes + a.peak_bytes)
    peak = max(min(first, second), a.nbytes + b.nbytes + nbytes)
    matmuls = a.matmuls + b.matmuls + Pair(a.labels, b.labels, labels).pays_as_matmul
    return Piece(labels, flops, peak, nbytes, matmuls), first <= second


@functools.lru_cache(maxsize=4096)  # layers have equal products, and a search has the same after each of its steps
def best_order(network: Network, *, prefer_memory: bool) -> tuple[Tree, Piece]:
    """The order with the fewest FLOPs, or with the least peak of intermediates and among those the fewest FLOPs.

    Of equal orders the one with the most matmuls: otherwise the next search would find one in what is fused.
    """
    count = len(network.factors)
    if count <= _EXHAUSTIVE:
        order, splits = range(count), functools.partial(_divisions, _neighbours(network))
    else:
        order, splits = _along_the_chain(_neighbours(network)), _intervals
    return _Search(network, tuple(order), splits, prefer_memory).run()


class Pair(NamedTuple):
    """Two partial results that are contracted: the labels of both and of what comes out."""

    left: int
    right: int
    result: int

    @property
    def is_matmul(self) -> bool:
        """Whether contracting them is a matmul: it sums, and they differ in more than what is summed."""
        return bool(self.left & self.right & ~self.result) and bool(self.left ^ self.right)

    @property
    def pays_as_matmul(self) -> bool:
        """Whether a matmul does better than a multiplication fused with its sum: not for matrices by vectors."""
        is_batched = bool(self.left & self.right & self.result)
        return self.is_matmul and (not is_batched or bool(self.left & ~self.right and self.right & ~self.left))


def pairs(network: Network, tree: Tree) -> list[Pair]:
    """The pairs that are contracted, in order of evaluation."""
    if isinstance(tree, int):
        return []
    left, right, result = (network.result_labels(factors_of(part)) for part in (*tree, tree))
    return [*pairs(network, tree[0]), *pairs(network, tree[1]), Pair(left, right, result)]


def cost(network: Network, tree: Tree) -> Piece:
    """What an order costs."""
    if isinstance(tree, int):
        return network.single(tree)
    a, b = (cost(network, part) for part in tree)
    subset = factors_of(tree)
    return joined(network.elements, a, b, network.result_labels(subset), network.result_bytes(subset))[0]


def factors_of(tree: Tree) -> int:
    """The set of a tree's factors."""
    return 1 << tree if isinstance(tree, int) else factors_of(tree[0]) | factors_of(tree[1])


class _Search:
    """Dynamic programming over sets of positions in `order`."""

    def __init__(
        self, network: Network, order: tuple[int, ...], splits: Callable[[int], Iterable[int]], prefer_memory: bool
    ):
        self.order, self.splits, self.prefer_memory = order, splits, prefer_memory
        self.network = dataclasses.replace(network, factors=tuple(network.factors[i] for i in order))
        self.pieces: dict[int, Piece] = {}
        self.halves: dict[int, tuple[int, int]] = {}

    def run(self) -> tuple[Tree, Piece]:
        everything = self.network.everything
        return self.tree(everything), self.piece(everything)

    def tree(self, subset: int) -> Tree:
        if subset & (subset - 1) == 0:
            return self.order[subset.bit_length() - 1]
        self.piece(subset)
        one, other = self.halves[subset]
        return self.tree(one), self.tree(other)

    def piece(self, subset: int) -> Piece:
        if subset not in self.pieces:
            single = subset & (subset - 1) == 0
            self.pieces[subset] = self.network.single(subset.bit_length() - 1) if single else self.best(subset)
        return self.pieces[subset]

    def best(self, subset: int) -> Piece:
        labels, nbytes = self.network.result_labels(subset), self.network.result_bytes(subset)
        least: tuple[int, int, int] | None = None
        best: Piece | None = None
        for half in self.splits(subset):
            a, b = self.piece(half), self.piece(subset ^ half)
            piece, forward = joined(self.network.elements, a, b, labels, nbytes)
            objective = self.objective(piece)
            if least is None or objective < least:
                least, best = objective, piece
                self.halves[subset] = (half, subset ^ half) if forward else (subset ^ half, half)
        assert best is not None
        return best

    def objective(self, piece: Piece) -> tuple[int, int, int]:
        """What is to be small, the first before the others."""
        if self.prefer_memory:
            return piece.peak_bytes, piece.flops, -piece.matmuls
        return piece.flops, -piece.matmuls, piece.peak_bytes


def _intervals(subset: int) -> Iterator[int]:
    """The ways to cut an interval in two: its lower parts."""
    low, high = (subset & -subset).bit_length() - 1, subset.bit_length()
    for middle in range(low + 1, high):
        yield (1 << middle) - (1 << low)


def _divisions(neighbours: Sequence[int], subset: int) -> Iterator[int]:
    """The ways to divide a set in two, both of which are connected if the network is."""
    lowest = subset & -subset
    may_be_apart = not _is_connected(neighbours, (1 << len(neighbours)) - 1)
    half = (subset - 1) & subset
    while half:
        parts = half, subset ^ half
        if half & lowest and (may_be_apart or all(_is_connected(neighbours, part) for part in parts)):
            yield half
        half = (half - 1) & subset


def _is_connected(neighbours: Sequence[int], subset: int) -> bool:
    return _connected(neighbours, subset) == subset


def _connected(neighbours: Sequence[int], subset: int) -> int:
    """The part of a set that is connected with its lowest factor."""
    reached = new = subset & -subset
    while new:
        near = 0
        for i in bits(new):
            near |= neighbours[i]
        new = near & subset & ~reached
        reached |= new
    return reached


def _neighbours(network: Network) -> list[int]:
    """For each factor those that share a label with it which not all factors have."""
    everywhere = functools.reduce(lambda a, b: a & b, (f.labels for f in network.factors))
    labels = [f.labels & ~everywhere for f in network.factors]
    near = [sum(1 << j for j, other in enumerate(labels) if one & other and i != j) for i, one in enumerate(labels)]
    # Where no two factors share such a label, any two may be contracted.
    return near if any(near) else [network.everything ^ (1 << i) for i in range(len(labels))]


def _along_the_chain(neighbours: Sequence[int]) -> list[int]:
    """The factors in the order of their chain, or in the order of the program if they form none."""
    count = len(neighbours)
    degrees = [n.bit_count() for n in neighbours]
    if max(degrees) > 2:
        return list(range(count))
    walk = [next((i for i, degree in enumerate(degrees) if degree == 1), 0)]
    while following := [j for j in bits(neighbours[walk[-1]]) if j not in walk]:
        walk.append(following[0])
    return walk if len(walk) == count else list(range(count))


def bits(mask: int) -> Iterator[int]:
    """The members of a set."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1
