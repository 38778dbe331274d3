"""How many elements of an axis a step takes: as few as the budget wants, as many as the time wants."""

from __future__ import annotations

import dataclasses
import functools
import math

from stablehlo_mem.cost import op_seconds, overhead_seconds
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.regions import Region
from stablehlo_mem.rules import ROWS
from stablehlo_mem.targets.chips import Chip

_MULTIPLES = (128, 8, 1)
_CACHE_SPEEDUP = 4
"""How much faster operands are read again from the shared cache than from memory."""
_FADES = 8
"""Intermediates of so many times the cache and more all go through memory (seen on CPU, linear in between)."""
_PASSES_OVER_MEMORY = 4
"""What an intermediate that does not stay in cache costs: written and read, and its pages faulted in (seen on CPU)."""


@dataclasses.dataclass(frozen=True)
class LoopCost:
    """The time of a region's loops as a function of the chunk.

    Attributes:
        n: elements of the axis.
        fixed_seconds: recomputation: what later phases run again.
        step_seconds: of one step of every loop: overhead, that of loops inside too, operands read whole, accumulators
            read and written.
        traffic_seconds: of the intermediates, once written and once read, through main memory.
        element_bytes: of the intermediates, per element of the axis.
        cache_bytes: intermediates up to this size do not go through main memory, 0 where that makes no difference; of
            larger ones ever more do.
    """

    n: int
    fixed_seconds: float
    step_seconds: float
    traffic_seconds: float
    element_bytes: float
    cache_bytes: int

    def seconds(self, chunk: int) -> float:
        """Time added to the program by loops of this chunk; negative where caches make it faster."""
        steps = -(-self.n // chunk)
        return self.fixed_seconds + steps * self.step_seconds - self.cached_share(chunk) * self.traffic_seconds

    def cached_share(self, chunk: int) -> float:
        """The share of the intermediates' traffic that stays in the cache."""
        over = chunk * self.element_bytes / self.cache_bytes - 1 if self.cache_bytes else _FADES
        return min(1.0, max(0.0, 1.0 - over / _FADES))

    def best_chunk(self, largest: int) -> int:
        """The fastest chunk of at most `largest` elements.

        The choice is among chunks that do not depend on `largest`, so that more memory never means a slower one.
        """
        fitting = [c for c in chunk_sizes(self.n) if c <= largest]
        return min(fitting, key=lambda c: (self.seconds(c), -c), default=1)


@functools.lru_cache(maxsize=1024)
def chunk_sizes(n: int) -> tuple[int, ...]:
    """The chunks to choose from for an axis of `n` elements, each about 1/√2 of the one before, the last 1."""
    sizes: dict[int, None] = {}
    limit = (n + 1) // 2
    while limit > 1:
        sizes[round_chunk(n, limit)] = None
        limit = min(limit - 1, round(limit / math.sqrt(2)))
    return (*sizes, 1) if 1 not in sizes else tuple(sizes)


@functools.lru_cache(maxsize=4096)
def round_chunk(n: int, largest: int) -> int:
    """A chunk near `largest`, at most that, which divides `n` if one does not much smaller; tiles kept whole.

    Chunks that do not divide the axis repeat a part of it and cost a mask in accumulations.
    """
    largest = max(1, min(largest, n))
    for multiple in _MULTIPLES:
        candidates = range(largest // multiple * multiple, largest // 2, -multiple)
        divisor = next((c for c in candidates if c and n % c == 0), None)
        if divisor:
            return divisor
    multiple = next(m for m in _MULTIPLES if m <= largest)
    return largest // multiple * multiple


def loop_cost(graph: Graph, region: Region, chip: Chip, spared_bytes: int) -> LoopCost:
    """The cost of a region's loops; `spared_bytes` of intermediates are no longer kept whole."""
    runs = [node.op for phase in range(region.phases) for node in region.needed(graph, phase)]
    seconds = {op: op_seconds(graph, op, chip) for op in set(runs) | region.owned}
    recomputed = sum(seconds[op] for op in runs) - sum(seconds[op] for op in region.owned)
    moved = _whole_bytes(graph, region) + 3 * _accumulated_bytes(graph, region) + _rescaled_bytes(graph, region)
    bandwidth = chip.bytes_per_second * (_CACHE_SPEEDUP if moved <= 2 * chip.cache_bytes else 1)
    steps_inside = sum(overhead_seconds(graph, graph.ops[op], chip) for op in runs)
    step = chip.step_seconds * region.phases + steps_inside + moved / bandwidth
    traffic = _PASSES_OVER_MEMORY * spared_bytes / chip.bytes_per_second
    return LoopCost(region.axis.n, recomputed, step, traffic, spared_bytes / region.axis.n, chip.cache_bytes)


def _whole_bytes(graph: Graph, region: Region) -> int:
    """Bytes of operands that every step reads whole, each loop once."""
    total = 0
    for phase in range(region.phases):
        whole: set[int] = set()
        for node in region.needed(graph, phase):
            if not ROWS[graph.ops[node.op].name].free:
                pairs = zip(graph.ops[node.op].inputs, node.operand_dims, strict=True)
                whole.update(v for v, d in pairs if d is None)
        total += sum(graph.values[v].nbytes for v in whole)
    return total


def _accumulated_bytes(graph: Graph, region: Region) -> int:
    return sum(graph.values[item.value].nbytes for item in region.leaving if item.accumulated)


def _rescaled_bytes(graph: Graph, region: Region) -> int:
    """Bytes of accumulators that are scaled down as a maximum grows: one more time read and written in part."""
    return sum(graph.values[v].nbytes for v, terms in region.streams.terms.items() if any(t.scales_down for t in terms))
