"""The order in which the factors of a product are contracted, two at a time: dynamic programming over sets of factors.

Labels and sets of factors are bit masks. A label is summed over as soon as no factor outside a set carries it and the
result does not keep it. Up to `_EXHAUSTIVE` factors the order is the best of all without needless outer products;
above, the best parenthesisation of the factors along their chain.
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
    """A partial result and what it takes to have it.

    Attributes:
        labels: of the result.
        flops: of all that leads to it.
        peak_bytes: of the intermediates alive at once on the way, the result among them.
        nbytes: of the result, 0 where it is there anyway.
        matmuls: pairs on the way that do better as a matmul than fused.
    """

    labels: int
    flops: int = 0
    peak_bytes: int = 0
    nbytes: int = 0
    matmuls: int = 0


class Network:
    """The factors of a product, for choosing an order.

    Attributes:
        factors: each as it comes; one that has to be computed first costs that.
        kept: labels of the result.
        sizes: of each label.
        itemsize: bytes of an element of the intermediates.
    """

    def __init__(self, factors: Sequence[Piece], kept: int, sizes: Sequence[int], itemsize: int):
        self.factors, self.kept, self.sizes, self.itemsize = tuple(factors), kept, tuple(sizes), itemsize
        self.everything = (1 << len(self.factors)) - 1
        self._elements: dict[int, int] = {}

    def elements(self, labels: int) -> int:
        """The elements of a value with these labels."""
        if labels not in self._elements:
            self._elements[labels] = math.prod([self.sizes[i] for i in bits(labels)])
        return self._elements[labels]

    def result_labels(self, subset: int) -> int:
        """The labels of the contraction of a set of factors: those the result keeps or a factor outside carries."""
        inside, outside = 0, self.kept
        for i, factor in enumerate(self.factors):
            if subset >> i & 1:
                inside |= factor.labels
            else:
                outside |= factor.labels
        return inside & outside

    def result_bytes(self, subset: int) -> int:
        """The bytes of that; the whole product's are not counted: every order makes them."""
        return 0 if subset == self.everything else self.elements(self.result_labels(subset)) * self.itemsize

    def single(self, factor: int) -> Piece:
        """A factor, summed over the labels nobody else has."""
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


def best_order(network: Network, *, prefer_memory: bool) -> tuple[Tree, Piece]:
    """The order with the fewest FLOPs, or with the least peak of intermediates and among those the fewest FLOPs.

    Of equal ones that with the most matmuls: what is left to be fused would be found to be one the next time.
    """
    return _best_order(network.factors, network.kept, network.sizes, network.itemsize, prefer_memory)


@functools.lru_cache(maxsize=4096)
def _best_order(
    factors: tuple[Piece, ...], kept: int, sizes: tuple[int, ...], itemsize: int, prefer_memory: bool
) -> tuple[Tree, Piece]:
    """Kept: layers are alike, and a search meets the same products after each of its steps."""
    network = Network(factors, kept, sizes, itemsize)
    count = len(factors)
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
    return _cost(network, tree)[1]


def factors_of(tree: Tree) -> int:
    """The set of a tree's factors."""
    return 1 << tree if isinstance(tree, int) else factors_of(tree[0]) | factors_of(tree[1])


def _cost(network: Network, tree: Tree) -> tuple[int, Piece]:
    if isinstance(tree, int):
        return 1 << tree, network.single(tree)
    (one, a), (other, b) = (_cost(network, part) for part in tree)
    subset = one | other
    labels, nbytes = network.result_labels(subset), network.result_bytes(subset)
    return subset, joined(network.elements, a, b, labels, nbytes)[0]


class _Search:
    """Dynamic programming over sets of positions in `order`."""

    def __init__(
        self, network: Network, order: tuple[int, ...], splits: Callable[[int], Iterable[int]], prefer_memory: bool
    ):
        self.order, self.splits, self.prefer_memory = order, splits, prefer_memory
        factors = [network.factors[i] for i in order]
        self.network = Network(factors, network.kept, network.sizes, network.itemsize)
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
        found = self.pieces.get(subset)
        if found is None:
            single = subset & (subset - 1) == 0
            found = self.network.single(subset.bit_length() - 1) if single else self.best(subset)
            self.pieces[subset] = found
        return found

    def best(self, subset: int) -> Piece:
        labels, nbytes = self.network.result_labels(subset), self.network.result_bytes(subset)
        least: tuple[int, int, int] | None = None
        found: Piece | None = None
        for half in self.splits(subset):
            a, b = self.piece(half), self.piece(subset ^ half)
            piece, forward = joined(self.network.elements, a, b, labels, nbytes)
            objective = self.objective(piece)
            if least is None or objective < least:
                least, found = objective, piece
                self.halves[subset] = (half, subset ^ half) if forward else (subset ^ half, half)
        assert found is not None
        return found

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
    anyhow = not _is_connected(neighbours, (1 << len(neighbours)) - 1)
    half = (subset - 1) & subset
    while half:
        if half & lowest and (anyhow or (_is_connected(neighbours, half) and _is_connected(neighbours, subset ^ half))):
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
    """For each factor those that share a label with it which not all factors carry."""
    everywhere = functools.reduce(lambda a, b: a & b, (f.labels for f in network.factors))
    labels = [f.labels & ~everywhere for f in network.factors]
    near = [sum(1 << j for j, other in enumerate(labels) if one & other and i != j) for i, one in enumerate(labels)]
    # Where such labels tie nothing together, any two factors may meet.
    return near if any(near) else [network.everything ^ (1 << i) for i in range(len(labels))]


def _along_the_chain(neighbours: Sequence[int]) -> list[int]:
    """The factors in the order of their chain, or as they come if they form none."""
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
