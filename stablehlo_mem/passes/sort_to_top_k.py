"""sort-to-top-k: a sort of which only the first or the last few elements are used becomes a top-k.

Before, with %i an iota:
    %s:2 = stablehlo.sort %x, %i along dimension 1 : tensor<8x1000xf32>, tensor<8x1000xi32>
    %y = stablehlo.slice %s#1 [0:8, 0:20]
After, where key turns the order round, bit by bit:
    %v, %y = chlo.top_k(key(%x), k = 20)
The other operands of the sort, and its key where the elements are not to be had from %v, are gathered at %y.

The order is kept exactly. Keys are compared as the comparator compares them: what it does to each element is done to
the whole key before, so NaNs and the zeros come where they came. Ties keep their order: for the last elements the top-k
works on the reversed dimension. Keys are float32, the one type of which no compiler makes a sort again; at least
`_LEAST` elements are taken, for the kernel of XLA:GPU that finds fewer does not order NaNs.

Refuses comparators that are not one `compare` of the same key on both sides, sorts that are not stable, results that
are used whole or through a stride, more than a quarter of the elements, and types of key that float32 does not hold.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from stablehlo_mem.analysis.cost_model import Kernel
from stablehlo_mem.ir.bindings import chlo, ir, same_attributes, stablehlo
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.builders import (
    broadcast,
    clone_with,
    convert,
    gathered,
    retype,
    sliced,
    splat,
    tensor,
    transposed,
)
from stablehlo_mem.ir.dead_ops import needed_only_by
from stablehlo_mem.ir.graph import NARROW_FLOATS, Graph, Op
from stablehlo_mem.ir.op_attributes import integers
from stablehlo_mem.rewriting.rewriting_pass import Match, RewritingPass

_LEAST = 17
"""XLA:GPU has a kernel of its own for fewer elements; it compares with `>`, which puts NaNs anywhere."""
_SHARE = 4
"""At most one element in so many is used: partial sorts of more take as long as the sort."""
_NARROW_INTEGERS = frozenset({"i8", "ui8", "i16", "ui16"})


@dataclasses.dataclass(frozen=True)
class _Order:
    """What a comparator compares.

    Attributes:
        key: which operand of the sort.
        value: the left side of the comparison, in the comparator's graph.
        plain: the operand's elements are compared as they are.
        descending: the largest come first.
    """

    key: int
    value: int
    plain: bool
    descending: bool


@dataclasses.dataclass(frozen=True)
class _Part:
    """What a result of the sort is used for: the elements `low` to `high` of the order, turned round if `reversed`."""

    slice: int
    result: int
    low: int
    high: int
    reversed: bool


@dataclasses.dataclass(frozen=True)
class _TopK:
    order: _Order
    parts: tuple[_Part, ...]
    dimension: int
    k: int
    last: bool


class SortToTopK(RewritingPass):
    """The pass: finds sorts that are only sliced."""

    name = "sort-to-top-k"
    roots = frozenset({"stablehlo.sort"})

    def match(self, graph: Graph, root: int, *, prefer_memory: bool) -> Match | Blocked | None:
        """The match at a sort whose results are only used through slices."""
        found = _find(graph, graph.ops[root])
        if not isinstance(found, _TopK):
            return found
        sort = graph.ops[root]
        key = graph.values[sort.operands[found.order.key]]
        count = math.prod(key.shape)
        nbytes = 4 * count
        taken = sum(graph.values[graph.ops[p.slice].results[0]].nbytes for p in found.parts)
        reread = {v for i, v in enumerate(sort.operands) if _is_gathered(graph, found, sort, i)}
        kept = {key.index, *reread}
        # What makes the key is fused with what makes the operand, if nobody else needs the operand.
        alone = key.is_computed and key.index not in reread and len(graph.users[key.index]) == 1
        return Match(
            root=root,
            removed=needed_only_by(graph, root, kept, *_dead_users(graph, found)),
            new_bytes=nbytes,
            kernels=(
                Kernel(4 * count, nbytes + (0 if alone else key.nbytes)),
                Kernel(count * math.log2(4 * found.k), nbytes + 2 * taken),
            ),
            numerics="exact",
            what=f"take the {'last' if found.last else 'first'} {found.k} of sorted {key}",
            detail=found,
            replaced=tuple(graph.ops[p.slice].results[0] for p in found.parts),
        )

    def emit(self, graph: Graph, match: Match) -> Sequence[Any]:
        """The key, the top-k and for each slice what it takes."""
        return _Emission(graph, graph.ops[match.root], match.detail).run()


def _find(graph: Graph, sort: Op) -> _TopK | Blocked | None:
    dimension = ir.IntegerAttr(graph.handles[sort.index].attributes["dimension"]).value
    dimension %= max(1, len(graph.values[sort.operands[0]].shape))
    parts = _find_parts(graph, sort, dimension)
    if not parts:
        return None
    order = _find_order(sort.blocks[0], graph, sort)
    if isinstance(order, Blocked):
        return order
    n = graph.values[sort.operands[0]].shape[dimension]
    first, last = max(p.high for p in parts), n - min(p.low for p in parts)
    k = max(_LEAST, min(first, last))
    if k * _SHARE > n:
        return Blocked("too-many", f"{min(first, last)} of {n} sorted elements are used: a top-k is no cheaper")
    key = graph.values[sort.operands[order.key]].dtype
    if key not in {"f32"} | _NARROW_INTEGERS | NARROW_FLOATS or (key in NARROW_FLOATS and order.plain):
        return Blocked("no-top-k", f"the compilers find the top-k of {key} by sorting all of it")
    if not _is_stable(graph, sort) and not (order.plain and len(sort.operands) == 1):
        return Blocked("not-stable", "the sort may put equal elements in any order, a top-k puts them in one")
    return _TopK(order, parts, dimension, k, last < first)


def _is_stable(graph: Graph, sort: Op) -> bool:
    attributes = graph.handles[sort.index].attributes
    return "is_stable" in attributes and ir.BoolAttr(attributes["is_stable"]).value


def _find_parts(graph: Graph, sort: Op, dimension: int) -> tuple[_Part, ...]:
    """The slices through which all results are used, () if one is used in another way."""
    parts: list[_Part] = []
    for i, result in enumerate(sort.results):
        for user in graph.users[result]:
            found = _sliced(graph, i, graph.ops[user], dimension, turned=False)
            if not found:
                return ()
            parts += found
    return tuple(sorted(parts, key=lambda p: p.slice))


def _sliced(graph: Graph, result: int, user: Op, dimension: int, *, turned: bool) -> list[_Part]:
    """The slices that a user of a sort's result is or leads to, [] if it leads anywhere else."""
    if user.name == "stablehlo.reverse" and not turned and integers(graph, user, "dimensions") == (dimension,):
        found = [_sliced(graph, result, graph.ops[u], dimension, turned=True) for u in graph.users[user.results[0]]]
        return [part for parts in found for part in parts] if all(found) else []
    if user.name != "stablehlo.slice" or integers(graph, user, "strides")[dimension] != 1:
        return []
    low, high = (integers(graph, user, name)[dimension] for name in ("start_indices", "limit_indices"))
    if turned:
        n = graph.values[user.operands[0]].shape[dimension]
        low, high = n - high, n - low
    return [_Part(user.index, result, low, high, turned)]


def _dead_users(graph: Graph, found: _TopK) -> set[int]:
    """The slices, and the reversals between them and the sort."""
    slices = {p.slice for p in found.parts}
    return slices | {graph.values[graph.ops[p.slice].operands[0]].producer for p in found.parts if p.reversed}


def _find_order(block: Graph, graph: Graph, sort: Op) -> _Order | Blocked:
    """What a comparator compares, if it is one comparison of the same function of two elements of one operand."""
    unknown = Blocked("unknown-comparator", "its comparator is not one comparison of the same key on both sides")
    compare = block.producer(block.returned[0])
    if compare is None or compare.name != "stablehlo.compare":
        return unknown
    attributes = block.handles[compare.index].attributes
    direction = str(stablehlo.ComparisonDirectionAttr(attributes["comparison_direction"]).value)
    left, right = compare.operands
    leaves: set[int] = set()
    if direction not in ("LT", "GT") or not _is_mirrored(block, left, right, leaves) or len(leaves) != 1:
        return unknown
    leaf = leaves.pop()
    key = graph.values[sort.operands[leaf // 2]].dtype
    if block.values[left].dtype != key:
        return unknown
    if key.startswith(("f", "bf")) and "TOTALORDER" not in str(attributes["compare_type"]):
        return Blocked("no-total-order", "its comparator does not order NaNs")
    swapped = leaf % 2 == 1
    plain = left in block.arguments
    return _Order(leaf // 2, right if swapped else left, plain, (direction == "GT") != swapped)


def _is_mirrored(block: Graph, left: int, right: int, leaves: set[int]) -> bool:
    """Whether two values are the same function of paired arguments; adds the left one's arguments to `leaves`."""
    if left in block.arguments:
        position = block.arguments.index(left)
        leaves.add(position)
        return right == block.arguments[position ^ 1]
    one, other = block.producer(left), block.producer(right)
    if one is None or other is None:
        return left == right
    if one.name != other.name or one.blocks or len(one.operands) != len(other.operands):
        return False
    if not same_attributes(block.handles[one.index], block.handles[other.index]):
        return False
    return all(_is_mirrored(block, a, b, leaves) for a, b in zip(one.operands, other.operands, strict=True))


def _is_iota(graph: Graph, found: _TopK, value: int) -> bool:
    producer = graph.producer(value)
    if producer is None or producer.name != "stablehlo.iota":
        return False
    return ir.IntegerAttr(graph.handles[producer.index].attributes["iota_dimension"]).value == found.dimension


def _is_gathered(graph: Graph, found: _TopK, sort: Op, operand: int) -> bool:
    """Whether the elements of an operand that are used are gathered from it: not known from the top-k."""
    used = any(p.result == operand for p in found.parts)
    known = found.order.plain if operand == found.order.key else _is_iota(graph, found, sort.operands[operand])
    return used and not known


class _Emission:
    """The new form of one sort."""

    def __init__(self, graph: Graph, sort: Op, found: _TopK):
        self.graph, self.sort, self.found = graph, sort, found
        self.operands = [graph.mlir_values[v] for v in sort.operands]
        self.shape = list(self.operands[0].type.shape)
        last = len(self.shape) - 1
        self.to_last = [d for d in range(last + 1) if d != found.dimension] + [found.dimension]
        self.flips = found.last == found.order.descending

    def run(self) -> list[Any]:
        """A result for each slice."""
        taken, indices = chlo.TopKOp(self.key(), self.found.k).results
        if min(p.low if not self.found.last else self.shape[self.found.dimension] - p.high for p in self.found.parts):
            # Compilers take a top-k for a sort and a slice in between: with a slice behind it only the sort is left.
            taken, indices = (stablehlo.OptimizationBarrierOp([v]).results[0] for v in (taken, indices))
        taken, indices = (self.sideways(v, back=True) for v in (taken, indices))
        if self.found.last:
            largest = splat(indices.type, self.shape[self.found.dimension] - 1)
            taken = self.reversed(taken)
            indices = self.reversed(stablehlo.subtract(largest, indices))
        used = sorted({p.result for p in self.found.parts})
        results = {i: self.elements(i, taken, indices) for i in used}
        return [self.part(p, results[p.result]) for p in self.found.parts]

    def key(self) -> Any:
        """The float32 key, largest first, its sorted dimension last."""
        order, block = self.found.order, self.sort.blocks[0]
        value = _vectorised(self.graph, block, order.value, self.operands[order.key])
        value = convert(value, ir.F32Type.get())
        if self.found.last:
            value = self.reversed(value)
        return self.sideways(_turned(value) if self.flips else value)

    def elements(self, operand: int, taken: Any, indices: Any) -> Any:
        """The k elements of one result of the sort, in the sort's order."""
        element = self.operands[operand].type.element_type
        if _is_gathered(self.graph, self.found, self.sort, operand):
            return gathered(self.operands[operand], indices, self.found.dimension)
        if operand == self.found.order.key:
            return convert(_turned(taken) if self.flips else taken, element)
        return convert(indices, element)

    def part(self, part: _Part, elements: Any) -> Any:
        """What one slice takes of them."""
        op, dimension = self.graph.ops[part.slice], self.found.dimension
        starts, limits, strides = (
            list(integers(self.graph, op, name)) for name in ("start_indices", "limit_indices", "strides")
        )
        first = self.shape[dimension] - self.found.k if self.found.last else 0
        starts[dimension], limits[dimension] = part.low - first, part.high - first
        value = sliced(elements, starts, limits, strides)
        return self.reversed(value) if part.reversed else value

    def reversed(self, value: Any) -> Any:
        return stablehlo.reverse(value, ir.DenseI64ArrayAttr.get([self.found.dimension]))

    def sideways(self, value: Any, *, back: bool = False) -> Any:
        """The value with the sorted dimension last, or back in its place."""
        order = [self.to_last.index(d) for d in range(len(self.shape))] if back else self.to_last
        return transposed(value, order)


def _turned(value: Any) -> Any:
    """A float32 value with the order turned round, that of NaNs and zeros too: the signs, whatever a negation does."""
    bits = tensor(value.type.shape, ir.IntegerType.get_signless(32))
    turned = stablehlo.xor(stablehlo.bitcast_convert(bits, value), splat(bits, -(2**31)))
    return stablehlo.bitcast_convert(value.type, turned)


def _vectorised(graph: Graph, block: Graph, value: int, operand: Any) -> Any:
    """A value of the comparator that depends on one argument only, for a whole operand in the argument's place."""
    shape = list(operand.type.shape)
    memo: dict[int, Any] = {}

    def whole(v: int) -> Any:
        if v not in memo:
            memo[v] = _vectorised_op(graph, block, v, whole, operand)
        one = memo[v]
        return one if list(one.type.shape) == shape else broadcast(one, retype(one.type, shape))

    return whole(value)


def _vectorised_op(graph: Graph, block: Graph, value: int, whole: Any, operand: Any) -> Any:
    producer = block.producer(value)
    if producer is None:
        captured: Mapping[int, int] = dict(zip(block.captured, block.captured_from, strict=True))
        return graph.mlir_values[captured[value]] if value in captured else operand
    operands = [whole(v) for v in producer.operands]
    shapes = [operand.type.shape if operands else [] for _ in producer.results]
    return clone_with(block.handles[producer.index], operands, shapes)[block.values[value].result]
