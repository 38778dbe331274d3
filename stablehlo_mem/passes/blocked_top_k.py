"""blocked-top-k: the largest of many elements are looked for only in the blocks with the largest maxima.

Before:
    %v, %i = chlo.top_k(%x, k = 10) : tensor<8x1000000xf32>
After, with blocks of 320 elements:
    %m = the maximum of each block : tensor<8x3125xf32>
    %b = sort(indices of chlo.top_k(%m, k = 10))
    %c = gather(%x, blocks %b) : tensor<8x3200xf32>
    %v, %p = chlo.top_k(%c, k = 10)
    %i = the index in %x of the element at %p of %c

The result is exact, ties included. An element outside the chosen blocks has k elements before it, one in each of them,
larger or equal and at a smaller index; and the candidates keep their order. Maxima are compared as top-k compares
elements, in the total order of floats, by integers in that order: a maximum of floats would merge NaNs of both signs,
and both zeros. The elements after the last whole block join the candidates. (Two-stage top-k: Chern et al., "TPU-KNN",
2022.)

Refuses nothing. Leaves alone a top-k of few elements, for many of them, or of a value computed by very many elementwise
ops, which would be fused with the maxima.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

from stablehlo_mem.analysis.cost_model import Kernel
from stablehlo_mem.analysis.fusion_classes import ELEMENTWISE, classify
from stablehlo_mem.ir.bindings import chlo, ir, stablehlo
from stablehlo_mem.ir.builders import gathered, reduced, reshaped, retype, sliced_along, splat, tensor
from stablehlo_mem.ir.graph import Graph, dtype_bytes
from stablehlo_mem.pass_api.candidate import Candidate, Goal
from stablehlo_mem.rewriting.rewriting_pass import Match, RewritingPass

_LEAST = 4096
"""A top-k of fewer elements stays as it is: a guess, as several kernels cost more than one small one."""
_LANES = 16
"""Blocks have so many columns, reduced side by side: vector units of 512 bits find maxima of 16 floats so."""
_MAX_ROWS = 32
"""Elements of a column: the maxima of longer ones XLA:CPU finds in two steps, and writes their operands to memory."""
_MIN_GAIN = 4
"""The maxima and the candidates together are at most one part in so many of the elements: a guess."""
_MAX_OPS = 100
"""Elementwise ops that maxima are fused with: sums unrolled over more than 32 elements are slower so (seen on CPU)."""
_TYPES = frozenset({"f16", "bf16", "f32", "f64", *(f"{sign}i{2**e}" for sign in ("", "u") for e in (3, 4, 5, 6))})


@dataclasses.dataclass(frozen=True)
class _Blocking:
    """`count` blocks of `size` elements, of which `k` are chosen; `rest` elements come after them."""

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

    def cheapen(self, graph: Graph, goal: Goal) -> Iterator[Candidate]:
        """None where memory counts more: a top-k can be split along what it searches, one in blocks cannot."""
        if not goal.prefer_memory:
            yield from super().cheapen(graph, goal)

    def match(self, graph: Graph, root: int, *, prefer_memory: bool) -> Match | None:
        """The match at a top-k along a long dimension."""
        op = graph.ops[root]
        operand = graph.values[op.operands[0]]
        n, k = operand.shape[-1], graph.values[op.results[0]].shape[-1]
        if not k or not operand.nbytes or n < _LEAST or operand.dtype not in _TYPES:
            return None
        if _has_many_producers(graph, op.operands[0]):
            return None
        blocks = _blocking(n, k)
        if blocks.count < k or (blocks.count + blocks.candidates) * _MIN_GAIN > n:
            return None
        rows, item = math.prod(operand.shape[:-1]), dtype_bytes(operand.dtype)
        flops = sum(size * math.log2(size) for size in (blocks.count, blocks.candidates))
        return Match(
            root=root,
            removed=(root,),
            new_bytes=int(2 * rows * item * (blocks.count + blocks.candidates)),
            kernels=(
                Kernel(4 * rows * n, operand.nbytes + rows * blocks.count * item),
                Kernel(rows * flops, 2 * rows * item * (blocks.count + blocks.candidates)),
            ),
            numerics="exact",
            summary=f"find the largest {k} of {operand} block by block, {blocks.size} elements each",
            detail=blocks,
        )

    def emit(self, graph: Graph, match: Match) -> Sequence[Any]:
        """The largest elements and their indices."""
        x = graph.mlir_values[graph.ops[match.root].operands[0]]
        blocks: _Blocking = match.detail
        chosen = _ascending(chlo.TopKOp(_maxima(x, blocks), blocks.k).results[1])
        values, positions = chlo.TopKOp(_candidates(x, chosen, blocks), blocks.k).results
        return values, _indices(chosen, positions, blocks)


def _has_many_producers(graph: Graph, value: int) -> bool:
    """Whether so many elementwise ops compute a value that, fused with maxima, they are slower than by themselves."""
    producers: set[int] = set()
    pending = [graph.producer(value)]
    while pending and len(producers) <= _MAX_OPS:
        op = pending.pop()
        if op is not None and op.index not in producers and classify(graph, op) in ELEMENTWISE:
            producers.add(op.index)
            pending += [graph.producer(v) for v in op.operands]
    return len(producers) > _MAX_OPS


def _blocking(n: int, k: int) -> _Blocking:
    """Blocks for which there are about as many maxima as candidates, or near to it if that leaves no rest."""
    best = min(_MAX_ROWS, max(1, round(math.sqrt(n / k) / _LANES)))
    near = (r for r in range(-(-best // 2), min(2 * best, _MAX_ROWS) + 1) if n % (r * _LANES) == 0)
    size = _LANES * min(near, key=lambda rows: abs(math.log(rows / best)), default=best)
    return _Blocking(size, n // size, n % size, k)


def _maxima(x: Any, blocks: _Blocking) -> Any:
    """The largest element of each block, of x's type."""
    lead = list(x.type.shape[:-1])
    whole = sliced_along(x, len(lead), 0, blocks.count * blocks.size)
    is_float = not isinstance(x.type.element_type, ir.IntegerType)
    if is_float:
        bits = tensor(whole.type.shape, ir.IntegerType.get_signless(x.type.element_type.width))
        whole = _magnitude_flipped(stablehlo.bitcast_convert(bits, whole))
    keys = reshaped(whole, [*lead, blocks.count, blocks.size // _LANES, _LANES])
    element = keys.type.element_type
    least = 0 if element.is_unsigned else -(2 ** (element.width - 1))
    for _ in range(2):
        keys = reduced(keys, [len(lead) + 1], least, stablehlo.maximum)
    return stablehlo.bitcast_convert(retype(x.type, keys.type.shape), _magnitude_flipped(keys)) if is_float else keys


def _magnitude_flipped(bits: Any) -> Any:
    """The bits of floats as integers in the total order of these floats, and back: negative ones are reversed."""
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


def _candidates(x: Any, chosen: Any, blocks: _Blocking) -> Any:
    """The elements of the chosen blocks in x's order, and the rest."""
    lead = list(x.type.shape[:-1])
    starts = stablehlo.multiply(chosen, splat(chosen.type, blocks.size))
    elements = reshaped(gathered(x, starts, len(lead), blocks.size), [*lead, blocks.k * blocks.size])
    if not blocks.rest:
        return elements
    rest = sliced_along(x, len(lead), blocks.count * blocks.size, x.type.shape[-1])
    return stablehlo.concatenate([elements, rest], len(lead))


def _indices(chosen: Any, positions: Any, blocks: _Blocking) -> Any:
    """The indices in x of candidates, by their positions among these."""
    size, in_blocks = splat(positions.type, blocks.size), splat(positions.type, blocks.k * blocks.size)
    block = stablehlo.minimum(stablehlo.divide(positions, size), splat(positions.type, blocks.k - 1))
    start = stablehlo.multiply(gathered(chosen, block, len(chosen.type.shape) - 1), size)
    index = stablehlo.add(start, stablehlo.remainder(positions, size))
    if not blocks.rest:
        return index
    index_in_rest = stablehlo.add(positions, splat(positions.type, (blocks.count - blocks.k) * blocks.size))
    is_in_block = stablehlo.compare(positions, in_blocks, stablehlo.ComparisonDirectionAttr.get("LT"))
    return stablehlo.select(is_in_block, index, index_in_rest)
