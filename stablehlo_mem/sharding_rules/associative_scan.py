"""The rule of associative scans, which `reblock-scans` outlines into functions (see `associative_scan_matcher`).

A scan is cumulative. In a loop over chunks, the first element of a chunk is combined with the accumulated value of the
chunks before; then the chunk is scanned as the whole was.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import ir, module_of, stablehlo
from stablehlo_mem.ir.graph import Graph, build_graph, reachable
from stablehlo_mem.sharding_rules.associative_scan_matcher import AssociativeScan, find_scans
from stablehlo_mem.sharding_rules.chunk_emitter import ChunkEmitter
from stablehlo_mem.sharding_rules.factor_rule import Dims, FactorRule, SplitOp
from stablehlo_mem.sharding_rules.op_rule import BlockRules, Chunk, Cumulative, EmitContext, OpRule
from stablehlo_mem.sharding_rules.reductions import is_float

NAME = "stablehlo_mem.associative_scan"
_DIMENSION, _ELEMENTS, _DIRECTION = "dimension", "elements", "direction"
_POSITIONAL = frozenset({"stablehlo.iota", "stablehlo.constant", "stablehlo.rng_bit_generator"})
"""Ops whose results depend on the position of an element; a splat in a combination is a broadcast, not a constant."""


def combination(rules: BlockRules, scan: AssociativeScan) -> dict[int, SplitOp] | None:
    """The ops that combine two halves of the elements, split along the elements, by the values they compute.

    None if one of them depends on the number of elements, on their position, or on all of them: a chunk does not have
    them.
    """
    graph = rules.graph
    split_ops: dict[int, SplitOp] = {}
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
        if producer is None or producer.name in _POSITIONAL or producer.captures:
            return None
        split_op = rules.split(producer.index, "results", graph.values[value].result, dimension, n)
        if not isinstance(split_op, SplitOp) or not split_op.is_local or split_op.reducing:
            return None
        split_ops.update(dict.fromkeys(producer.results, split_op))
        operands = list(zip(producer.inputs, split_op.operand_dims, strict=True))
        if any(v in scan.elements or graph.values[v].producer in depending for v, d in operands if d is None):
            return None
        uses = {(v, d) for v, d in operands if d is not None}
        pending += uses - reached
        reached |= uses
    return split_ops


@cached_analysis
def dependents(graph: Graph, values: tuple[int, ...]) -> frozenset[int]:
    """The ops that depend on some values."""
    users = (user for value in values for user in graph.users[value])
    return frozenset(reachable(users, lambda op: [u for v in graph.ops[op].results for u in graph.users[v]]))


class _PairEmitter(ChunkEmitter):
    """Combines left and right elements as the first level of a scan combines its halves."""

    def __init__(self, builder: _ScanBuilder, left: Sequence[Any], right: Sequence[Any]):
        scan, rules = builder.scan, builder.rules
        n = rules.graph.values[scan.combined[0]].shape[scan.dimension]
        super().__init__(rules, n, Chunk(builders.i32(0), right[0].type.shape[scan.dimension]))
        sides = {"left": left, "right": right}
        self.split_ops, self.wholes = builder.split_ops, builder.wholes
        self.chunks = {leaf: sides[side][position] for leaf, (side, position) in scan.leaves.items()}

    def whole(self, value: int) -> Any:
        if value not in self.wholes:
            producer = self.graph.producer(value)
            assert producer is not None
            operands = [self.whole(v) for v in producer.operands]
            handle = self.graph.handles[producer.index]
            results = builders.clone_with(handle, operands, [r.type.shape for r in handle.results])
            self.wholes.update(zip(producer.results, results, strict=True))
        return self.wholes[value]

    def chunk_of(self, value: int, dimension: int) -> Any:
        del dimension
        if value not in self.chunks:
            split_op = self.split_ops[value]
            self.chunks.update(zip(self.graph.ops[split_op.op].results, self.emit(split_op), strict=True))
        return self.chunks[value]


class _ScanBuilder:
    """Builds a scan for any number of elements, at least one: see `associative_scan_matcher` for what JAX writes.

    Attributes:
        wholes: the values that every combination reads whole.
        elements: in the order of the scan.
    """

    def __init__(self, rules: BlockRules, operands: Sequence[Any]):
        self.rules = rules
        (self.scan,) = find_scans(rules.graph)
        split_ops = combination(rules, self.scan)
        assert split_ops is not None
        self.split_ops = split_ops
        self.wholes = dict(zip(rules.graph.arguments, operands, strict=True))
        self.elements = [self.scan.in_scan_order(self.wholes[v]) for v in self.scan.inputs]

    def combined(self, left: Sequence[Any], right: Sequence[Any], positions: Iterable[int]) -> dict[int, Any]:
        """Left and right elements combined pair by pair: those of some positions."""
        pairs = _PairEmitter(self, left, right)
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
            # Elements that have no result are never read on the left.
            before = [self.part(odd.get(p, reduced[p]), 0, (n - 1) // 2) for p in range(len(elements))]
            rest = self.combined(before, [self.part(e, 2, n, 2) for e in elements], odd)
            even = {p: self.joined(even[p], rest[p]) for p in odd}
        return {p: self.interleaved(even[p], odd[p], n) for p in odd}

    def size(self, value: Any) -> int:
        """The number of elements of a value."""
        return value.type.shape[self.scan.dimension]

    def part(self, value: Any, start: int, limit: int, stride: int = 1) -> Any:
        """A slice of the elements."""
        return builders.sliced_along(value, self.scan.dimension, start, limit, stride)

    def joined(self, first: Any, rest: Any) -> Any:
        return stablehlo.concatenate([first, rest], self.scan.dimension)

    def interleaved(self, even: Any, odd: Any, n: int) -> Any:
        """Elements of both in turn, `n` in all; negative zeros become positive, as in JAX's own."""
        even, odd = self.spread(even, 0, n), self.spread(odd, 1, n)
        return stablehlo.or_(even, odd) if str(even.type.element_type) == "i1" else stablehlo.add(even, odd)

    def spread(self, value: Any, low: int, n: int) -> Any:
        """The elements of a value with zeros between them, from position `low` on, `n` in all."""
        high = n - low - (2 * self.size(value) - 1)
        return builders.padded_along(
            value, self.scan.dimension, low, high, builders.zeros(builders.retype(value.type, ())), 1
        )


def _rule(op: Any) -> FactorRule | None:
    """Along its dimension a scan is cumulative. Along others the original program is split, not this op."""
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
    return FactorRule((op.results[0].type.shape[dimension],), operands, results, directions=((0, direction),))


def is_scan(op: Any) -> bool:
    """Whether an op is an outlined scan."""
    return op.name == "stablehlo.composite" and ir.StringAttr(op.attributes["name"]).value == NAME


def attributes_of(scan: AssociativeScan, function: str) -> dict[str, Any]:
    """The attributes of the composite that calls an outlined scan."""
    number = functools.partial(ir.IntegerAttr.get, ir.IntegerType.get_signless(64))
    numbers = {_DIMENSION: scan.dimension, _ELEMENTS: len(scan.elements), _DIRECTION: -1 if scan.reverse else 1}
    return {
        "name": ir.StringAttr.get(NAME),
        "decomposition": ir.FlatSymbolRefAttr.get(function),
        "composite_attributes": ir.DictAttr.get({name: number(value) for name, value in numbers.items()}),
    }


def _emit(context: EmitContext) -> tuple[list[Any], list[Any]]:
    """A scan on a chunk, after the accumulated value of the chunks before."""
    builder = _ScanBuilder(context.rules.of_block(_function(context.op), context.rules.parts), context.operands)
    scan, elements = builder.scan, builder.elements
    n = builder.size(elements[0])
    first = [builder.part(e, 0, 1) for e in elements]
    positions = list(scan.results)
    left = dict(zip(positions, context.carries, strict=True))
    combined = builder.combined([left.get(p, e) for p, e in enumerate(first)], first, positions)
    first_chunk = builders.i32(context.split_op.n - context.chunk.size if scan.reverse else 0)
    is_first = stablehlo.compare(context.chunk.start, first_chunk, stablehlo.ComparisonDirectionAttr.get("EQ"))
    for p, value in combined.items():
        start = stablehlo.select(is_first, first[p], value)
        elements[p] = start if n == 1 else builder.joined(start, builder.part(elements[p], 1, n))
    results = [scan.in_scan_order(v) for v in builder.scanned(elements).values()]
    return results, results


def _function(op: Any) -> Graph:
    """The block of an outlined scan's function."""
    name = ir.FlatSymbolRefAttr(op.attributes["decomposition"]).value
    functions = (f.operation for f in module_of(op).regions[0].blocks[0].operations if f.operation.name == "func.func")
    function = next(f for f in functions if ir.StringAttr(f.attributes["sym_name"]).value == name)
    return build_graph(function.regions[0].blocks[0])


OP_RULES = {
    "stablehlo.composite": OpRule(
        rule=_rule,
        cumulative=Cumulative(
            initial=lambda op, operands: [builders.zeros(builders.retype(r.type, ())) for r in op.results],
            emit=_emit,
            regroups=lambda op: any(is_float(r.type) for r in op.results),
        ),
    )
}
