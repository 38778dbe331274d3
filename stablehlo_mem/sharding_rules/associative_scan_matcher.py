"""Finds associative scans as JAX writes them: a tree that combines pairs, then pairs of those, and goes back down.

`reblock-scans` outlines what is found, and `associative_scan` builds it again for a chunk.

`jax.lax.associative_scan` of `n` elements combines each with its neighbour, scans those `n // 2` in the same way (they
are every second result), and computes the results between by combining once more:

    reduced = combine(elements[0:-1:2], elements[1::2])
    odd = scan(reduced)
    even = concatenate(elements[:1], combine(odd[:-1], elements[2::2]))
    return interleave(even, odd)

Blelloch, "Prefix Sums and Their Applications", 1990. All levels of the tree must combine in the
same way. Then any other grouping gives the same, as the user promised by calling the function associative.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from stablehlo_mem.ir.bindings import RULE, ir, is_zero, splat_text, stablehlo
from stablehlo_mem.ir.graph import Graph, Op, reachable
from stablehlo_mem.ir.op_attributes import integers
from stablehlo_mem.ir.structural_equality import is_same_block

LEAST = 8
"""Elements, at least: a smaller tree has too few levels to compare."""
_JOINS = frozenset({"stablehlo.add", "stablehlo.or"})

_Half = Literal["left", "right"]
_Leaf = tuple[_Half, int]
"""What a combination reads: the left or right half of elements, by their position in `AssociativeScan.elements`."""


class _IsLeaf(Protocol):
    """Whether a value is at some level what a leaf is at the first; `learns`: elements unknown so far are recorded."""

    def __call__(self, leaf: _Leaf, value: int, *, learns: bool) -> bool: ...


@dataclasses.dataclass(frozen=True, eq=False)
class AssociativeScan:
    """An associative scan along a dimension.

    Attributes:
        dimension: of all its elements and results.
        elements: the values scanned together, in the order of the scan.
        inputs: the elements in the order of the dimension: not reversed yet.
        reverse: `associative_scan(reverse=True)` reverses the elements, and the results once more.
        results: in the order of the scan, by position in `elements`.
        combined: for each of the elements the value that combines their pairs at the first level.
        leaves: the slices that these read.
    """

    dimension: int
    elements: tuple[int, ...]
    inputs: tuple[int, ...]
    reverse: bool
    results: Mapping[int, int]
    combined: tuple[int, ...]
    leaves: Mapping[int, _Leaf]

    def in_scan_order(self, value: Any) -> Any:
        """An MLIR value from the order of the dimension to that of the scan, or back."""
        return stablehlo.reverse(value, ir.DenseI64ArrayAttr.get([self.dimension])) if self.reverse else value


@dataclasses.dataclass(frozen=True)
class _Level:
    """One level of a tree: its elements and results are of `n`, those combined on the way down and odd of half.

    `down` is None where there are two elements: none lies between.
    """

    n: int
    elements: int
    down: int | None
    odd: int


@dataclasses.dataclass(frozen=True)
class _Chain:
    """The levels of a tree, the largest first, at whose end is one element."""

    value: int
    dimension: int
    levels: tuple[_Level, ...]

    def elements(self, level: int) -> int:
        """The elements at a level."""
        return self.levels[level].elements if level < len(self.levels) else self.levels[-1].odd


def find_scans(graph: Graph) -> list[AssociativeScan]:
    """The associative scans of a block, in program order."""
    chains = _find_chains(graph)
    trees = [tree for chain in chains if (tree := _Tree(graph, chain, chains)).is_scan()]
    scans: list[AssociativeScan] = []
    taken: set[int] = set()
    for tree in sorted(trees, key=lambda tree: -len(tree.positions)):
        roots = {chain.value for chain in tree.together.values()}
        if taken.isdisjoint(roots):
            taken |= roots
            scans.append(tree.scan())
    return sorted(scans, key=lambda scan: min(scan.results.values()))


def reversed_operand(graph: Graph, value: int, dimension: int) -> int | None:
    """The value that a value is the reverse of, along this dimension alone; None if it is no such reverse."""
    op = graph.producer(value)
    if op is None or op.name != "stablehlo.reverse" or integers(graph, op, "dimensions") != (dimension,):
        return None
    return op.operands[0]


def _find_chains(graph: Graph) -> list[_Chain]:
    chains: list[_Chain] = []
    inner: set[int] = set()
    for op in reversed(graph.ops):
        if op.name in _JOINS and op.results[0] not in inner:
            chain = _chain(graph, op.results[0])
            if chain is not None and chain.levels[0].n >= LEAST:
                inner.update(level.odd for level in chain.levels)
                chains.insert(0, chain)
    return chains


def _chain(graph: Graph, value: int) -> _Chain | None:
    levels: list[_Level] = []
    part, dimension = value, -1
    while not levels or levels[-1].n > 3:
        match = _level(graph, part)
        if match is None or (levels and (match[0] != dimension or match[1].n != levels[-1].n // 2)):
            return None
        dimension, level = match
        levels.append(level)
        part = level.odd
    return _Chain(value, dimension, tuple(levels)) if graph.values[part].shape[dimension] == 1 else None


def _level(graph: Graph, value: int) -> tuple[int, _Level] | None:
    """The dimension and level if a value interleaves two others: the sum of both with zeros between."""
    op = graph.producer(value)
    pads = [_spread(graph, v) for v in op.operands] if op is not None and op.name in _JOINS else []
    pads = sorted((pad for pad in pads if pad is not None), key=lambda pad: pad[1])
    if [at for _, at, _ in pads] != [0, 1] or pads[0][2] != pads[1][2]:
        return None
    (even, _, dimension), (odd, _, _) = pads
    first, down = _first_and_rest(graph, even, dimension)
    part, n = _part(graph, first, dimension), graph.values[value].shape[dimension]
    if part is None or part[1:] != (0, 1, 1) or graph.values[part[0]].shape[dimension] != n:
        return None
    return dimension, _Level(n, part[0], down, odd)


def _spread(graph: Graph, value: int) -> tuple[int, int, int] | None:
    """A padding with a zero between all elements: the operand, the position of its first, the dimension."""
    op = graph.producer(value)
    if op is None or op.name != "stablehlo.pad" or not is_zero(graph.mlir_values[op.operands[1]]):
        return None
    low, interior = (integers(graph, op, name) for name in ("edge_padding_low", "interior_padding"))
    dims = [d for d, between in enumerate(interior) if between]
    if len(dims) != 1 or interior[dims[0]] != 1 or any(n for d, n in enumerate(low) if d != dims[0]):
        return None
    return op.operands[0], low[dims[0]], dims[0]


def _first_and_rest(graph: Graph, even: int, dimension: int) -> tuple[int, int | None]:
    op = graph.producer(even)
    if op is None or op.name != "stablehlo.concatenate" or len(op.operands) != 2:
        return even, None
    if ir.IntegerAttr(graph.handles[op.index].attributes["dimension"]).value != dimension:
        return even, None
    first, rest = op.operands
    return first, rest if graph.values[rest].shape[dimension] else None


def _part(graph: Graph, value: int, dimension: int) -> tuple[int, int, int, int] | None:
    """A slice along one dimension alone: the operand, start, stride and number of elements."""
    op = graph.producer(value)
    if op is None or op.name != "stablehlo.slice":
        return None
    source, shape = op.operands[0], graph.values[value].shape
    whole = graph.values[source].shape
    if any(a != b for d, (a, b) in enumerate(zip(shape, whole, strict=True)) if d != dimension):
        return None
    start, stride = (integers(graph, op, name)[dimension] for name in ("start_indices", "strides"))
    return source, start, stride if shape[dimension] > 1 else 1, shape[dimension]


class _Tree:
    """How a chain combines elements, read from its first level and compared with all others.

    Attributes:
        positions: of elements, by value at the first level.
        elements: at each level, by position, as far as they are known.
        leaves: the slices that the combinations at the first level read.
        lefts: for each position, those of which its combination reads the left half.
        together: the chains of elements that are scanned together, by position.
    """

    def __init__(self, graph: Graph, chain: _Chain, chains: Sequence[_Chain]):
        self.graph, self.chain, self.chains = graph, chain, chains
        self.depth = len(chain.levels)
        self.positions: dict[int, int] = {}
        self.elements: list[dict[int, int]] = [{} for _ in range(self.depth + 1)]
        self.leaves: dict[int, _Leaf] = {}
        self.lefts: dict[int, set[int]] = {}
        self.together: dict[int, _Chain] = {}

    def is_scan(self) -> bool:
        """Whether all levels combine in the same way, and elements that others read are scanned with them."""
        self.position(self.chain.elements(0))
        for level in range(self.depth + 1):
            self.elements[level][0] = self.chain.elements(level)
        position = 0
        while position < len(self.positions):
            if position not in self.elements[1] or not self.up(position):
                return False
            position += 1
        others = {c.elements(0): c for c in self.chains if c.dimension == self.chain.dimension}
        same = {p: others[v] for v, p in self.positions.items() if v in others and len(others[v].levels) == self.depth}
        self.together = {**same, 0: self.chain}
        needed = set[int]().union(*(self.lefts[p] for p in self.together))
        return needed <= self.together.keys() and all(self.down(p) for p in self.together)

    def scan(self) -> AssociativeScan:
        sources = [reversed_operand(self.graph, v, self.chain.dimension) for v in self.positions]
        reverse = None not in sources
        return AssociativeScan(
            dimension=self.chain.dimension,
            elements=tuple(self.positions),
            inputs=tuple(v for v in sources if v is not None) if reverse else tuple(self.positions),
            reverse=reverse,
            results={p: chain.value for p, chain in sorted(self.together.items())},
            combined=tuple(self.elements[1][p] for p in self.positions.values()),
            leaves=self.leaves,
        )

    def position(self, value: int) -> int:
        """The position of elements of the first level."""
        position = self.positions.setdefault(value, len(self.positions))
        self.elements[0][position] = value
        return position

    def up(self, position: int) -> bool:
        """Whether pairs of some elements are combined in the same way at every level on the way up."""
        combined = self.elements[1][position]
        reads = self.read(combined)
        if reads is None:
            return False
        self.lefts[position] = {p for side, p in reads if side == "left"}
        for level in range(1, self.depth):
            again = self.elements[level + 1].get(position)
            if again is None:
                break
            if not self.is_combined_alike(combined, again, functools.partial(self.is_up, level)):
                return False
        return True

    def read(self, combined: int) -> set[_Leaf] | None:
        """The halves that a combination at the first level reads; None if it reads anything else of the elements."""
        n, leaves = self.chain.levels[0].n, set[_Leaf]()
        for value in self.reached(combined, lambda v: self.half(n, v) is not None):
            half = self.half(n, value)
            if half is not None:
                self.leaves[value] = half[0], self.position(half[1])
                leaves.add(self.leaves[value])
        return leaves or None

    def half(self, n: int, value: int) -> tuple[_Half, int] | None:
        """The half and the elements if a value is every second one of `n`, from the first or the second on."""
        part = _part(self.graph, value, self.chain.dimension)
        if part is None or self.graph.values[part[0]].shape[self.chain.dimension] != n:
            return None
        source, start, stride, count = part
        sides: dict[int, _Half] = {0: "left", 1: "right"}
        return (sides[start], source) if start in sides and stride == min(2, count) and count == n // 2 else None

    def is_up(self, level: int, leaf: _Leaf, value: int, *, learns: bool) -> bool:
        """Whether a value is at a level on the way up what a leaf is at the first."""
        side, position = leaf
        half = self.half(self.chain.levels[level].n, value)
        return half is not None and half[0] == side and self.is_known(level, position, half[1], learns=learns)

    def is_known(self, level: int, position: int, value: int, *, learns: bool) -> bool:
        """Whether elements of a level are those recorded for a position, if any are."""
        if learns:
            self.elements[level].setdefault(position, value)
        return self.elements[level].get(position, value) == value

    def down(self, position: int) -> bool:
        """Whether the elements between are combined in the same way at every level on the way down."""
        combined, chain = self.elements[1][position], self.together[position]
        for number, level in enumerate(chain.levels):
            if not self.is_known(number, position, level.elements, learns=True):
                return False
            between = functools.partial(self.is_between, number)
            if level.down is not None and not self.is_combined_alike(combined, level.down, between):
                return False
        return True

    def is_between(self, number: int, leaf: _Leaf, value: int, *, learns: bool) -> bool:
        """Whether a value is at a level on the way down what a leaf is at the first on the way up."""
        (side, position), n = leaf, self.chain.levels[number].n
        count = (n + 1) // 2 - 1
        part = _part(self.graph, value, self.chain.dimension)
        if side == "right":
            if part is None or part[1:] != (2, min(2, count), count):
                return False
            return self.is_known(number, position, part[0], learns=learns)
        odd = self.together[position].levels[number].odd
        return value == odd if n % 2 else part == (odd, 0, 1, count)

    def is_combined_alike(self, one: int, other: int, is_leaf: _IsLeaf) -> bool:
        """Whether a value is computed at another level as `one` is at the first.

        A combination of one pair may be written otherwise, as a matmul without a batch: only what it reads is compared.
        """
        if self.graph.values[other].shape[self.chain.dimension] == 1:
            return self.reads_alike(one, other, is_leaf)
        pending, seen = [(one, other)], set[tuple[int, int]]()
        while pending:
            pair = pending.pop()
            if pair[0] == pair[1] or pair in seen:
                continue
            seen.add(pair)
            if pair[0] in self.leaves:
                if not is_leaf(self.leaves[pair[0]], pair[1], learns=True):
                    return False
                continue
            ops = [self.graph.producer(v) for v in pair]
            if ops[0] is None or ops[1] is None or not self.same(ops[0], ops[1], pair):
                return False
            pending += zip(ops[0].inputs, ops[1].inputs, strict=True)
        return True

    def reads_alike(self, one: int, other: int, is_leaf: _IsLeaf) -> bool:
        """Whether a value reads at another level what `one` reads at the first."""
        leaves = sorted({self.leaves[v] for v in self.reached(one, self.leaves.__contains__) if v in self.leaves})
        stops = lambda v: any(is_leaf(leaf, v, learns=False) for leaf in leaves)  # noqa: E731
        reached = [v for v in self.reached(other, stops) if stops(v)]
        return all(any(is_leaf(leaf, v, learns=False) for v in reached) for leaf in leaves)

    def same(self, a: Op, b: Op, values: tuple[int, int]) -> bool:
        """Whether two ops differ by the number of elements alone."""
        results = [self.graph.values[v] for v in values]
        if a.name != b.name or len(a.inputs) != len(b.inputs) or results[0].result != results[1].result:
            return False
        if results[0].dtype != results[1].dtype or len(results[0].shape) != len(results[1].shape):
            return False
        one, other = (self.graph.handles[op.index] for op in (a, b))
        if a.name == "stablehlo.constant":
            return splat_text(one) is not None and splat_text(one) == splat_text(other)
        blocks = zip(one.regions, other.regions, strict=True)
        if not all(is_same_block(x.blocks[0], y.blocks[0], {}) for x, y in blocks):
            return False
        extents = (r.shape[self.chain.dimension] for r in results)
        return _same_but_for_sizes(one, other, *extents)

    def reached(self, value: int, stops: Callable[[int], bool]) -> Iterable[int]:
        """A value and all it depends on, back to the values for which `stops` holds."""

        def inputs(v: int) -> tuple[int, ...]:
            producer = None if stops(v) else self.graph.producer(v)
            return producer.inputs if producer is not None else ()

        return reachable([value], inputs)


def _same_but_for_sizes(one: Any, other: Any, n: int, other_n: int) -> bool:
    """Whether attributes are equal, or differ as the numbers of elements do."""
    names = [{name for name in op.attributes if name != RULE} for op in (one, other)]
    if names[0] != names[1]:
        return False
    for name in names[0]:
        a, b = one.attributes[name], other.attributes[name]
        if a == b:
            continue
        if not isinstance(a, ir.DenseI64ArrayAttr) or not isinstance(b, ir.DenseI64ArrayAttr) or len(a) != len(b):
            return False
        if any(x != y and x * other_n != y * n for x, y in zip(a, b, strict=True)):
            return False
    return True
