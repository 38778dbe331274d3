"""The row of associative scans, which `reblock-scans` puts in functions of their own: `scans` says what they are.

A scan is cumulative. In a loop over chunks its first element is what it came to before the chunk, combined with what
was the first; then the chunk is scanned as the whole was.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import ir, module_of, stablehlo
from stablehlo_mem.ir.graph import Graph, build_graph
from stablehlo_mem.sharding_rules.associative_scan_matcher import Scan, find_scans
from stablehlo_mem.sharding_rules.chunk_emitter import ChunkEmitter
from stablehlo_mem.sharding_rules.factor_rule import Dims, Rule, SplitOp
from stablehlo_mem.sharding_rules.op_rule import Chunk, Cumulative, EmitContext, OpRule
from stablehlo_mem.sharding_rules.reductions import is_float
from stablehlo_mem.sharding_rules.region_edges import Book, Table

NAME = "stablehlo_mem.associative_scan"
_DIMENSION, _ELEMENTS, _DIRECTION = "dimension", "elements", "direction"
_PLACED = frozenset({"stablehlo.iota", "stablehlo.constant", "stablehlo.rng_bit_generator"})
"""Ops whose results differ from place to place; of constants those that do not are spread by a broadcast."""


def combination(graph: Graph, scan: Scan, book: Book) -> dict[int, SplitOp] | None:
    """How the ops that combine two halves of the elements run on any number of pairs, by the values they make.

    None if one of them depends on how many there are, on which it works on, or on all elements: a chunk has not got
    those.
    """
    found: dict[int, SplitOp] = {}
    pending = [(v, scan.dimension) for v in scan.combined]
    n = graph.values[scan.combined[0]].shape[scan.dimension]
    reached, depending = set(pending), dependents(graph, scan.elements)
    while pending:
        value, dimension = pending.pop()
        if value in scan.leaves:
            if dimension != scan.dimension:
                return None
            continue
        producer = graph.producer(value)
        if producer is None or producer.name in _PLACED or producer.captures:
            return None
        split_op = book.placed(producer.index, "results", graph.values[value].result, dimension, n)
        if not isinstance(split_op, SplitOp) or not split_op.is_local or split_op.reducing:
            return None
        found.update(dict.fromkeys(producer.results, split_op))
        operands = list(zip(producer.inputs, split_op.operand_dims, strict=True))
        if any(v in scan.elements or graph.values[v].producer in depending for v, d in operands if d is None):
            return None
        uses = {(v, d) for v, d in operands if d is not None}
        pending += uses - reached
        reached |= uses
    return found


@cached_analysis
def dependents(graph: Graph, values: tuple[int, ...]) -> frozenset[int]:
    """The ops that depend on some values."""
    found: set[int] = set()
    pending = list(values)
    while pending:
        users = set(graph.users[pending.pop()]) - found
        found |= users
        pending += [v for user in users for v in graph.ops[user].results]
    return frozenset(found)


class _Pairs(ChunkEmitter):
    """Combines left and right elements as the first level of a scan does its halves.

    `others` are the values that every combination reads whole.
    """

    def __init__(self, tree: _Rebuilt, left: Sequence[Any], right: Sequence[Any]):
        scan = tree.scan
        n = tree.graph.values[scan.combined[0]].shape[scan.dimension]
        super().__init__(tree.rows, tree.graph, n, Chunk(builders.i32(0), right[0].type.shape[scan.dimension]))
        sides = {"left": left, "right": right}
        self.split_ops, self.others = tree.split_ops, tree.others
        self.present = {leaf: sides[side][position] for leaf, (side, position) in scan.leaves.items()}

    def whole(self, value: int) -> Any:
        """A value that all combinations share, built anew where the function makes it."""
        if value not in self.others:
            producer = self.graph.producer(value)
            assert producer is not None
            operands = [self.whole(v) for v in producer.operands]
            handle = self.graph.handles[producer.index]
            results = builders.clone_with(handle, operands, [r.type.shape for r in handle.results])
            self.others.update(zip(producer.results, results, strict=True))
        return self.others[value]

    def chunk_of(self, value: int, dimension: int) -> Any:
        """A value for these pairs."""
        del dimension
        if value not in self.present:
            split_op = self.split_ops[value]
            self.present.update(zip(self.graph.ops[split_op.op].results, self.emit(split_op), strict=True))
        return self.present[value]


class _Rebuilt:
    """A scan built for any number of elements, at least one: see `associative_scan_matcher` for what JAX writes."""

    def __init__(self, rows: Mapping[str, OpRule], graph: Graph, book: Book, operands: Sequence[Any]):
        (self.scan,) = find_scans(graph)
        split_ops = combination(graph, self.scan, book)
        assert split_ops is not None
        self.rows, self.graph, self.split_ops = rows, graph, split_ops
        self.others = dict(zip(graph.arguments, operands, strict=True))
        self.elements = [self.scan.turned(self.others[v]) for v in self.scan.given]

    def combined(self, left: Sequence[Any], right: Sequence[Any], positions: Iterable[int]) -> dict[int, Any]:
        """Pairs of left and right elements combined: the elements of some positions."""
        pairs = _Pairs(self, left, right)
        return {p: pairs.chunk_of(self.scan.combined[p], self.scan.dimension) for p in positions}

    def scanned(self, elements: Sequence[Any]) -> dict[int, Any]:
        """The results, by position, for elements of any number."""
        n = self.size(elements[0])
        if n == 1:
            return {p: elements[p] for p in self.scan.results}
        lefts, rights = ([self.part(e, first, n - 1 + first, 2) for e in elements] for first in (0, 1))
        reduced = self.combined(lefts, rights, range(len(elements)))
        odd = self.scanned([reduced[p] for p in range(len(elements))])
        even = {p: self.part(elements[p], 0, 1) for p in odd}
        if n > 2:
            # What is not scanned itself is never read on the left.
            before = [self.part(odd.get(p, reduced[p]), 0, (n - 1) // 2) for p in range(len(elements))]
            between = self.combined(before, [self.part(e, 2, n, 2) for e in elements], odd)
            even = {p: self.joined(even[p], between[p]) for p in odd}
        return {p: self.interleaved(even[p], odd[p], n) for p in odd}

    def size(self, value: Any) -> int:
        """How many elements a value has."""
        return value.type.shape[self.scan.dimension]

    def part(self, value: Any, start: int, limit: int, stride: int = 1) -> Any:
        """Some of the elements."""
        if (start, limit, stride) == (0, self.size(value), 1):
            return value
        shape, d = list(value.type.shape), self.scan.dimension
        starts, limits, strides = [0] * len(shape), shape, [1] * len(shape)
        starts[d], limits[d], strides[d] = start, limit, stride
        return builders.sliced(value, starts, limits, strides)

    def joined(self, first: Any, rest: Any) -> Any:
        """The elements of two values, one after the other."""
        return stablehlo.concatenate([first, rest], self.scan.dimension)

    def interleaved(self, even: Any, odd: Any, n: int) -> Any:
        """One of the first and one of the other, `n` in all; negative zeros become positive, as in JAX's own."""
        even, odd = self.between(even, 0, n), self.between(odd, 1, n)
        return stablehlo.or_(even, odd) if _is_predicate(even) else stablehlo.add(even, odd)

    def between(self, value: Any, low: int, n: int) -> Any:
        """The elements of a value with zeros between them, from place `low` on, in all `n`."""
        high = n - low - (2 * self.size(value) - 1)
        return builders.padded_along(
            value, self.scan.dimension, low, high, builders.zeros(builders.retype(value.type, ())), 1
        )


def _is_predicate(value: Any) -> bool:
    element = value.type.element_type
    return isinstance(element, ir.IntegerType) and element.width == 1


def _rule(op: Any) -> Rule | None:
    """Along its dimension a scan is cumulative. Along others the program is split as it was, without this op."""
    if not is_scan(op):
        return None
    attributes = ir.DictAttr(op.attributes["composite_attributes"])
    names = (_DIMENSION, _ELEMENTS, _DIRECTION)
    dimension, count, direction = (ir.IntegerAttr(attributes[name]).value for name in names)

    def dims(position: int, value: Any) -> Dims:
        rank = len(value.type.shape)
        return tuple((0,) if d == dimension and position < count else () for d in range(rank))

    operands = tuple(dims(p, v) for p, v in enumerate(op.operands))
    results = tuple(dims(0, v) for v in op.results)
    return Rule(
        (op.results[0].type.shape[dimension],), operands, results, frozenset(), (), directions=((0, direction),)
    )


def is_scan(op: Any) -> bool:
    """Whether an op is a scan in a function of its own."""
    return op.name == "stablehlo.composite" and ir.StringAttr(op.attributes["name"]).value == NAME


def attributes_of(scan: Scan, function: str) -> dict[str, Any]:
    """The attributes of a scan's op."""
    number = functools.partial(ir.IntegerAttr.get, ir.IntegerType.get_signless(64))
    numbers = {_DIMENSION: scan.dimension, _ELEMENTS: len(scan.elements), _DIRECTION: -1 if scan.back else 1}
    return {
        "name": ir.StringAttr.get(NAME),
        "decomposition": ir.FlatSymbolRefAttr.get(function),
        "composite_attributes": ir.DictAttr.get({name: number(value) for name, value in numbers.items()}),
    }


def _go_on(table: Mapping[str, OpRule], ask: Table, site: EmitContext) -> tuple[list[Any], list[Any]]:
    """A scan on a chunk, after what it came to before."""
    graph = _function(site.op)
    tree = _Rebuilt(table, graph, ask.book_of(graph), site.operands)
    n, elements = tree.size(tree.elements[0]), tree.elements
    first = [tree.part(e, 0, 1) for e in elements]
    positions = list(tree.scan.results)
    left = dict(zip(positions, site.before, strict=True))
    after = tree.combined([left.get(p, e) for p, e in enumerate(first)], first, positions)
    start = builders.i32(site.split_op.n - site.chunk.size if tree.scan.back else 0)
    begins = stablehlo.compare(site.chunk.start, start, stablehlo.ComparisonDirectionAttr.get("EQ"))
    for p, value in after.items():
        begun = stablehlo.select(begins, first[p], value)
        elements[p] = begun if n == 1 else tree.joined(begun, tree.part(elements[p], 1, n))
    results = [tree.scan.turned(v) for v in tree.scanned(elements).values()]
    return results, results


def _function(op: Any) -> Graph:
    """The block of a scan's function."""
    name = ir.FlatSymbolRefAttr(op.attributes["decomposition"]).value
    found = (f.operation for f in module_of(op).regions[0].blocks[0].operations if f.operation.name == "func.func")
    function = next(f for f in found if ir.StringAttr(f.attributes["sym_name"]).value == name)
    return build_graph(function.regions[0].blocks[0])


def rows(table: Mapping[str, OpRule], ask: Table) -> dict[str, OpRule]:
    """The row of scans, whose combinations ask for those of all other ops."""
    cumulative = Cumulative(
        initial=lambda op, operands: [builders.zeros(builders.retype(r.type, ())) for r in op.results],
        emit=functools.partial(_go_on, table, ask),
        regroups=lambda op: any(is_float(r.type) for r in op.results),
    )
    return {"stablehlo.composite": OpRule(rule=_rule, cumulative=cumulative)}
