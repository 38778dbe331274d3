"""sort-to-top-k: a sort of which only the first or the last few elements are used becomes a top-k.

Before, with %i an iota:
    %s:2 = stablehlo.sort %x, %i along dimension 1 : tensor<8x1000xf32>, tensor<8x1000xi32>
    %y = stablehlo.slice %s#1 [0:8, 0:20]
After, where key reverses the order, bit by bit:
    %v, %y = chlo.top_k(key(%x), k = 20)
The other operands of the sort are gathered at %y, and so is its key if the comparator does not compare its elements as
they are.

The order stays exactly the same. The comparator's computation on each element is done to the whole key first, so NaNs
and zeros are ordered as before. Equal elements keep their order: for the last elements the top-k works on the reversed
dimension. Keys are converted to float32, the only type of which no compiler turns a top-k back into a sort. At least
`_LEAST` elements are taken, because the kernel of XLA:GPU for fewer does not order NaNs.

Refuses comparators that are not one `compare` of the same key on both sides, sorts that are not stable, results that
are used whole or through a stride, more than a quarter of the elements, and types of key that float32 does not hold.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

from stablehlo_mem.analysis.cost_model import Kernel
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import chlo, ir, same_attributes, stablehlo
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.dead_ops import needed_only_by
from stablehlo_mem.ir.graph import NARROW_FLOATS, Graph, Op
from stablehlo_mem.ir.matchers import direction, index_dim
from stablehlo_mem.ir.op_attributes import integers
from stablehlo_mem.rewriting.rewriting_pass import Match, RewritingPass

_LEAST = 17
"""XLA:GPU has a kernel of its own for fewer elements; it compares with `>`, which puts NaNs anywhere."""
_SHARE = 4
"""At most one element in so many is used: partial sorts of more take as long as the sort (seen on CPU)."""
_NARROW_INTEGERS = frozenset({"i8", "ui8", "i16", "ui16"})


@dataclasses.dataclass(frozen=True)
class _Comparison:
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
class _UsedSlice:
    """A slice of a result of the sort: elements `low` to `high` of the order, the last first if reversed."""

    op: int
    result: int
    low: int
    high: int
    is_reversed: bool


@dataclasses.dataclass(frozen=True)
class _TopK:
    """A sort of which only slices are used: they are among its first `k` elements, or its last."""

    comparison: _Comparison
    slices: tuple[_UsedSlice, ...]
    dimension: int
    k: int
    last: bool


class SortToTopK(RewritingPass):
    """The pass: finds sorts that are only sliced."""

    name = "sort-to-top-k"
    roots = frozenset({"stablehlo.sort"})

    def match(self, graph: Graph, root: int, *, prefer_memory: bool) -> Match | Blocked | None:
        """The match at a sort whose results are only used through slices."""
        sort = graph.ops[root]
        top_k = _top_k(graph, sort)
        if not isinstance(top_k, _TopK):
            return top_k
        key = graph.values[sort.operands[top_k.comparison.key]]
        count = math.prod(key.shape)
        nbytes = 4 * count
        taken = sum(graph.values[graph.ops[one.op].results[0]].nbytes for one in top_k.slices)
        gathered = {v for i, v in enumerate(sort.operands) if _is_gathered(graph, top_k, sort, i)}
        # The producers of the key are fused with those of the operand, if nobody else needs the operand.
        is_fused = key.is_computed and key.index not in gathered and len(graph.users[key.index]) == 1
        slices = {one.op for one in top_k.slices}
        reverses = {graph.values[graph.ops[one.op].operands[0]].producer for one in top_k.slices if one.is_reversed}
        return Match(
            root=root,
            removed=needed_only_by(graph, root, {key.index, *gathered}, *slices, *reverses),
            new_bytes=nbytes,
            kernels=(
                Kernel(4 * count, nbytes + (0 if is_fused else key.nbytes)),
                Kernel(count * math.log2(4 * top_k.k), nbytes + 2 * taken),
            ),
            numerics="exact",
            summary=f"find the {'last' if top_k.last else 'first'} {top_k.k} of {key} without sorting all of it",
            detail=top_k,
            replaced=tuple(graph.ops[one.op].results[0] for one in top_k.slices),
            even_if_slower=True,  # along the dimension in which it searches a top-k can be split, a sort cannot
        )

    def emit(self, graph: Graph, match: Match) -> Sequence[Any]:
        """The key, the top-k and for each slice what it takes."""
        return _TopKEmitter(graph, graph.ops[match.root], match.detail).run()


def _top_k(graph: Graph, sort: Op) -> _TopK | Blocked | None:
    """The top-k that a sort is, None if it is not only sliced."""
    dimension = ir.IntegerAttr(graph.handles[sort.index].attributes["dimension"]).value
    dimension %= max(1, len(graph.values[sort.operands[0]].shape))
    slices = _used_slices(graph, sort, dimension)
    if not slices:
        return None
    comparison = _comparison(sort.blocks[0], graph, sort)
    if isinstance(comparison, Blocked):
        return comparison
    n = graph.values[sort.operands[0]].shape[dimension]
    first, last = max(one.high for one in slices), n - min(one.low for one in slices)
    k = max(_LEAST, min(first, last))
    if k * _SHARE > n:
        return Blocked("too-many", f"{min(first, last)} of {n} sorted elements are used: a top-k is no cheaper")
    key = graph.values[sort.operands[comparison.key]].dtype
    if key not in {"f32"} | _NARROW_INTEGERS | NARROW_FLOATS or (key in NARROW_FLOATS and comparison.plain):
        return Blocked("no-top-k", f"the compilers find the top-k of {key} by sorting all of it")
    attributes = graph.handles[sort.index].attributes
    is_stable = "is_stable" in attributes and ir.BoolAttr(attributes["is_stable"]).value
    if not is_stable and not (comparison.plain and len(sort.operands) == 1):
        return Blocked("not-stable", "the sort may put equal elements in any order, a top-k puts them in one")
    return _TopK(comparison, slices, dimension, k, last < first)


def _used_slices(graph: Graph, sort: Op, dimension: int) -> tuple[_UsedSlice, ...]:
    """The slices through which all results are used, () if one is used in another way."""
    slices: list[_UsedSlice] = []
    for i, result in enumerate(sort.results):
        for user in graph.users[result]:
            leads_to = _leads_to(graph, i, graph.ops[user], dimension, is_reversed=False)
            if not leads_to:
                return ()
            slices += leads_to
    return tuple(sorted(slices, key=lambda one: one.op))


def _leads_to(graph: Graph, result: int, user: Op, dimension: int, *, is_reversed: bool) -> list[_UsedSlice]:
    """The slices that a user of a sort's result is or leads to, [] if it leads anywhere else."""
    if user.name == "stablehlo.reverse" and not is_reversed and integers(graph, user, "dimensions") == (dimension,):
        users = (graph.ops[u] for u in graph.users[user.results[0]])
        slices = [_leads_to(graph, result, u, dimension, is_reversed=True) for u in users]
        return [one for some in slices for one in some] if all(slices) else []
    if user.name != "stablehlo.slice" or integers(graph, user, "strides")[dimension] != 1:
        return []
    low, high = (integers(graph, user, name)[dimension] for name in ("start_indices", "limit_indices"))
    if is_reversed:
        n = graph.values[user.operands[0]].shape[dimension]
        low, high = n - high, n - low
    return [_UsedSlice(user.index, result, low, high, is_reversed)]


def _comparison(block: Graph, graph: Graph, sort: Op) -> _Comparison | Blocked:
    """What a comparator compares, if it is one comparison of the same function of two elements of one operand."""
    unknown = Blocked("unknown-comparator", "its comparator is not one comparison of the same key on both sides")
    compare = block.producer(block.returned[0])
    if compare is None or compare.name != "stablehlo.compare":
        return unknown
    left, right = compare.operands
    leaves: set[int] = set()
    relation = direction(block, compare)
    if relation not in ("LT", "GT") or not _is_mirrored(block, left, right, leaves) or len(leaves) != 1:
        return unknown
    leaf = leaves.pop()
    key = graph.values[sort.operands[leaf // 2]].dtype
    if block.values[left].dtype != key:
        return unknown
    compare_type = block.handles[compare.index].attributes["compare_type"] if key.startswith(("f", "bf")) else ""
    if compare_type and "TOTALORDER" not in str(compare_type):
        return Blocked("no-total-order", "its comparator does not order NaNs")
    swapped = leaf % 2 == 1
    return _Comparison(leaf // 2, right if swapped else left, left in block.arguments, (relation == "GT") != swapped)


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


def _is_gathered(graph: Graph, top_k: _TopK, sort: Op, operand: int) -> bool:
    """Whether the elements of an operand are used, and are neither values nor indices of the top-k."""
    if operand == top_k.comparison.key:
        known = top_k.comparison.plain
    else:
        known = index_dim(graph, sort.operands[operand]) == top_k.dimension
    return not known and any(one.result == operand for one in top_k.slices)


class _TopKEmitter:
    """Builds the top-k of one sort and what its slices take of it."""

    def __init__(self, graph: Graph, sort: Op, top_k: _TopK):
        self.graph, self.sort, self.top_k = graph, sort, top_k
        self.dimension, self.order = top_k.dimension, top_k.comparison
        self.operands = [graph.mlir_values[v] for v in sort.operands]
        self.shape = list(self.operands[0].type.shape)
        self.negates = top_k.last == self.order.descending

    def run(self) -> list[Any]:
        """A result for each slice."""
        n, slices = self.shape[self.dimension], self.top_k.slices
        values, indices = chlo.TopKOp(self.key(), self.top_k.k).results
        if min(n - one.high if self.top_k.last else one.low for one in slices):
            # Compilers take a top-k for a sort and a slice in between: with a slice behind it only the sort is left.
            values, indices = (stablehlo.OptimizationBarrierOp([v]).results[0] for v in (values, indices))
        axes = list(range(len(self.shape)))
        last_to_dimension = [*axes[: self.dimension], axes[-1], *axes[self.dimension : -1]]
        values, indices = (builders.transposed(v, last_to_dimension) for v in (values, indices))
        if self.top_k.last:
            values = builders.reversed_along(values, self.dimension)
            indices = stablehlo.subtract(builders.splat(indices.type, n - 1), indices)
            indices = builders.reversed_along(indices, self.dimension)
        results = {i: self.elements(i, values, indices) for i in sorted({one.result for one in slices})}
        return [self.sliced(one, results[one.result]) for one in slices]

    def key(self) -> Any:
        """The float32 key, largest first, its sorted dimension last."""
        value = _vectorised(self.graph, self.sort.blocks[0], self.order.value, self.operands[self.order.key])
        value = builders.convert(value, ir.F32Type.get())
        if self.top_k.last:
            value = builders.reversed_along(value, self.dimension)
        others = [d for d in range(len(self.shape)) if d != self.dimension]
        return builders.transposed(_negated(value) if self.negates else value, [*others, self.dimension])

    def elements(self, operand: int, values: Any, indices: Any) -> Any:
        """The k elements of one result of the sort, in the sort's order."""
        element = self.operands[operand].type.element_type
        if _is_gathered(self.graph, self.top_k, self.sort, operand):
            return builders.gathered(self.operands[operand], indices, self.dimension)
        if operand == self.order.key:
            return builders.convert(_negated(values) if self.negates else values, element)
        return builders.convert(indices, element)

    def sliced(self, one: _UsedSlice, elements: Any) -> Any:
        """What one slice takes of them."""
        names, op = ("start_indices", "limit_indices", "strides"), self.graph.ops[one.op]
        starts, limits, strides = (list(integers(self.graph, op, name)) for name in names)
        first = self.shape[self.dimension] - self.top_k.k if self.top_k.last else 0
        starts[self.dimension], limits[self.dimension] = one.low - first, one.high - first
        value = builders.sliced(elements, starts, limits, strides)
        return builders.reversed_along(value, self.dimension) if one.is_reversed else value


def _negated(value: Any) -> Any:
    """A float32 value with its sign bits flipped: that reverses the total order, NaNs and zeros included."""
    bits = builders.tensor(value.type.shape, ir.IntegerType.get_signless(32))
    flipped = stablehlo.xor(stablehlo.bitcast_convert(bits, value), builders.splat(bits, -(2**31)))
    return stablehlo.bitcast_convert(value.type, flipped)


def _vectorised(graph: Graph, block: Graph, value: int, operand: Any) -> Any:
    """A value of the comparator that depends on one argument only, for a whole operand in the argument's place."""
    shape = list(operand.type.shape)
    captured = dict(zip(block.captured, block.captured_from, strict=True))

    @functools.cache
    def whole(v: int) -> Any:
        producer = block.producer(v)
        if producer is None:
            one = graph.mlir_values[captured[v]] if v in captured else operand
        else:
            operands = [whole(o) for o in producer.operands]
            shapes = [shape if operands else [] for _ in producer.results]
            one = builders.clone_with(block.handles[producer.index], operands, shapes)[block.values[v].result]
        return one if list(one.type.shape) == shape else builders.broadcast(one, builders.retype(one.type, shape))

    return whole(value)
