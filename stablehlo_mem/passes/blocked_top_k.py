"""blocked-top-k: the largest of many elements are looked for in the blocks of the largest maxima.

Before:
    %v, %i = chlo.top_k(%x, k = 10) : tensor<8x1000000xf32>
After, with blocks of 320 elements:
    %m = the maximum of each block : tensor<8x3125xf32>
    %b = sort(indices of chlo.top_k(%m, k = 10))
    %c = gather(%x, blocks %b) : tensor<8x3200xf32>
    %v, %p = chlo.top_k(%c, k = 10)
    %i = the index in %x of the element at %p of %c

Exact, ties included: an element outside the chosen blocks has k elements before it, one in each of them, larger or
equal and at a smaller index; and the candidates keep their order. Maxima are compared as top-k compares elements, in
the total order of floats, by the integers that have that order: a maximum of floats makes NaNs of one sign and knows
one zero. What is left after whole blocks joins the candidates. (Two-stage top-k: Chern et al., "TPU-KNN", 2022.)

Refuses nothing: where elements are few, or asked for are many, or made by very many elementwise ops that would be fused
with the maxima, there is no match.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from stablehlo_mem.analysis.cost_model import Kernel
from stablehlo_mem.analysis.fusion_classes import ELEMENTWISE, classify
from stablehlo_mem.ir.bindings import chlo, ir, stablehlo
from stablehlo_mem.ir.builders import gathered, reduced, retype, sliced, splat, tensor
from stablehlo_mem.ir.graph import Graph, dtype_bytes
from stablehlo_mem.rewriting.rewriting_pass import Match, RewritingPass

_LEAST = 4096
"""Elements of which the largest are found as they are."""
_LANES = 16
"""Blocks are so many columns, reduced side by side: that is how vector units find maxima."""
_MOST_ROWS = 32
"""Elements of a column: the maxima of longer ones XLA:CPU finds in two steps, and writes out what they are of."""
_GAIN = 4
"""The maxima and the candidates together are at most one part in so many of the elements."""
_LONGEST = 100
"""Elementwise ops that maxima are fused with: sums unrolled over more than 32 elements are slower so (seen on CPU)."""
_TYPES = frozenset({"f16", "bf16", "f32", "f64", *(f"{sign}i{2**e}" for sign in ("", "u") for e in (3, 4, 5, 6))})


@dataclasses.dataclass(frozen=True)
class _Blocks:
    """`count` blocks of `size` elements, of which `k` are looked into; `rest` elements come after them."""

    size: int
    count: int
    rest: int
    k: int

    @property
    def candidates(self) -> int:
        return self.k * self.size + self.rest


class BlockedTopK(RewritingPass):
    """The pass: finds the largest few of many elements."""

    name = "blocked-top-k"
    roots = frozenset({"chlo.top_k"})

    def match(self, graph: Graph, root: int, *, prefer_memory: bool) -> Match | None:
        """The match at a top-k along a long dimension."""
        op = graph.ops[root]
        operand = graph.values[op.operands[0]]
        n, k = operand.shape[-1], graph.values[op.results[0]].shape[-1]
        if not k or not operand.nbytes or n < _LEAST or operand.dtype not in _TYPES:
            return None
        blocks = _blocks(n, k)
        if _is_long(graph, op.operands[0]):
            return None
        if blocks.count < k or (blocks.count + blocks.candidates) * _GAIN > n:
            return None
        rows, item = math.prod(operand.shape[:-1]), dtype_bytes(operand.dtype)
        found = sum(size * math.log2(size) for size in (blocks.count, blocks.candidates))
        return Match(
            root=root,
            removed=(root,),
            new_bytes=int(2 * rows * item * (blocks.count + blocks.candidates)),
            kernels=(
                Kernel(4 * rows * n, operand.nbytes + rows * blocks.count * item),
                Kernel(rows * found, 2 * rows * item * (blocks.count + blocks.candidates)),
            ),
            numerics="exact",
            what=f"look for the largest {k} of {operand} in blocks of {blocks.size}",
            detail=blocks,
        )

    def emit(self, graph: Graph, match: Match) -> Sequence[Any]:
        """The largest elements and their indices."""
        x = graph.mlir_values[graph.ops[match.root].operands[0]]
        blocks: _Blocks = match.detail
        chosen = _ascending(chlo.TopKOp(_maxima(x, blocks), blocks.k).results[1])
        values, places = chlo.TopKOp(_candidates(x, chosen, blocks), blocks.k).results
        return values, _indices(chosen, places, blocks)


def _is_long(graph: Graph, value: int) -> bool:
    """Whether so many elementwise ops make a value that, fused with maxima, they are slower than by themselves."""
    found: set[int] = set()
    pending = [graph.producer(value)]
    while pending and len(found) <= _LONGEST:
        op = pending.pop()
        if op is not None and op.index not in found and classify(graph, op) in ELEMENTWISE:
            found.add(op.index)
            pending += [graph.producer(v) for v in op.operands]
    return len(found) > _LONGEST


def _blocks(n: int, k: int) -> _Blocks:
    """Blocks for which there are about as many maxima as candidates, or near to it if that leaves no rest."""
    best = min(_MOST_ROWS, max(1, round(math.sqrt(n / k) / _LANES)))
    near = (r for r in range(-(-best // 2), min(2 * best, _MOST_ROWS) + 1) if n % (r * _LANES) == 0)
    size = _LANES * min(near, key=lambda rows: abs(math.log(rows / best)), default=best)
    return _Blocks(size, n // size, n % size, k)


def _maxima(x: Any, blocks: _Blocks) -> Any:
    """The largest element of each block, of x's type."""
    lead = list(x.type.shape[:-1])
    whole = sliced(x, [0] * (len(lead) + 1), [*lead, blocks.count * blocks.size], [1] * (len(lead) + 1))
    keys = _ordered(whole)
    columns = [*lead, blocks.count, blocks.size // _LANES, _LANES]
    keys = stablehlo.reshape(retype(keys.type, columns), keys)
    for _ in range(2):
        keys = _maximum(keys, len(lead) + 1)
    return _unordered(keys, x.type.element_type)


def _maximum(x: Any, dimension: int) -> Any:
    """The largest integers along a dimension."""
    element = x.type.element_type
    least = 0 if element.is_unsigned else -(2 ** (element.width - 1))
    return reduced(x, [dimension], least, stablehlo.maximum)


def _ordered(x: Any) -> Any:
    """Integers in the total order of floats; integers are in order."""
    if isinstance(x.type.element_type, ir.IntegerType):
        return x
    bits = tensor(x.type.shape, ir.IntegerType.get_signless(x.type.element_type.width))
    return _turned(stablehlo.bitcast_convert(bits, x))


def _unordered(keys: Any, element: Any) -> Any:
    """The floats of ordered integers."""
    if isinstance(element, ir.IntegerType):
        return keys
    return stablehlo.bitcast_convert(tensor(keys.type.shape, element), _turned(keys))


def _turned(bits: Any) -> Any:
    """Negative numbers the other way round: from the bits of floats to their order, and back."""
    width = bits.type.element_type.width
    negative = stablehlo.shift_right_arithmetic(bits, splat(bits.type, width - 1))
    return stablehlo.xor(bits, stablehlo.and_(negative, splat(bits.type, 2 ** (width - 1) - 1)))


def _ascending(x: Any) -> Any:
    """Integers sorted along the last dimension."""
    last = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), len(x.type.shape) - 1)
    sort = stablehlo.SortOp([x.type], [x], dimension=last, is_stable=ir.BoolAttr.get(False))
    scalar = tensor((), x.type.element_type)
    block = sort.regions[0].blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        one, other = block.arguments
        less = stablehlo.compare(one, other, stablehlo.ComparisonDirectionAttr.get("LT"))
        stablehlo.return_([less])
    return sort.results[0]


def _candidates(x: Any, chosen: Any, blocks: _Blocks) -> Any:
    """The elements of the chosen blocks in x's order, and the rest."""
    lead = list(x.type.shape[:-1])
    starts = stablehlo.multiply(chosen, splat(chosen.type, blocks.size))
    found = gathered(x, starts, len(lead), blocks.size)
    found = stablehlo.reshape(retype(x.type, [*lead, blocks.k * blocks.size]), found)
    if not blocks.rest:
        return found
    rest = sliced(x, [*[0] * len(lead), blocks.count * blocks.size], x.type.shape, [1] * (len(lead) + 1))
    return stablehlo.concatenate([found, rest], len(lead))


def _indices(chosen: Any, places: Any, blocks: _Blocks) -> Any:
    """The index in x of the candidates at places."""
    size, looked_into = splat(places.type, blocks.size), splat(places.type, blocks.k * blocks.size)
    block = stablehlo.minimum(stablehlo.divide(places, size), splat(places.type, blocks.k - 1))
    start = stablehlo.multiply(gathered(chosen, block, len(chosen.type.shape) - 1), size)
    inside = stablehlo.add(start, stablehlo.remainder(places, size))
    if not blocks.rest:
        return inside
    after = stablehlo.add(places, splat(places.type, (blocks.count - blocks.k) * blocks.size))
    is_inside = stablehlo.compare(places, looked_into, stablehlo.ComparisonDirectionAttr.get("LT"))
    return stablehlo.select(is_inside, inside, after)
