"""What a schedule's loops cost in time, for each chunk (elements of the axis a step) they could have.

`candidates` asks for all chunks, the fastest first, and takes the first that saves the memory it wants.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeVarTuple

from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.cost_model import fused_seconds, op_seconds, overhead_seconds
from stablehlo_mem.analysis.distribution import repeated_bytes
from stablehlo_mem.analysis.fusion import plan_buffers
from stablehlo_mem.analysis.fusion_classes import CLASSES, ELEMENTWISE, SLICES, Class, multiplies
from stablehlo_mem.analysis.kernel_traffic import CACHE_SPEEDUP
from stablehlo_mem.analysis.op_cost import (
    Matmul,
    flop_seconds,
    imbalance_factor,
    matmul_of,
    received_seconds,
    vector_rate,
)
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.sharding_rules import OP_RULES
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.sharding_rules.halo import Use
from stablehlo_mem.splitting.loop_schedule import LoopSchedule, operand_uses
from stablehlo_mem.splitting.region_work import region_work
from stablehlo_mem.splitting.step_kernels import StepKernel, step_kernels
from stablehlo_mem.targets.chips import Chip

_Ts = TypeVarTuple("_Ts")

_MULTIPLES = (128, 8, 1)
"""Elements that chunks are multiples of, where they are long enough: TPU tiles are of 8 x 128, as its layouts say."""
_TILES = 8
"""Chunks of at least so many multiples are made of whole ones."""
_LINE_BYTES = 64
"""A cache line, in bytes, of x86 and Arm: of shorter runs the rest is read for nothing."""
_EVEN_STEPS = 16
"""Up to so many steps, every number of them is worth a chunk of its own."""
_FADES = 8
"""Intermediates of so many times the cache or more all go through memory (measured on CPU; linear in between)."""
_PASSES_OVER_MEMORY = 4
"""What an intermediate larger than the cache costs: written and read, and its pages faulted in (measured on CPU)."""


@dataclasses.dataclass(frozen=True)
class LoopCost:
    """The time of a schedule's loops as a function of the chunk.

    Attributes:
        n: elements of the axis.
        parts: of the axis, each of which a chunk has an equal share of.
        fixed_seconds: of what later loops recompute.
        step_seconds: of one step of every loop: its overhead, that of loops inside too, what runs whole inside,
            operands read whole, accumulators read and written.
        traffic_seconds: of the intermediates, written and read once, through main memory.
        element_bytes: of the intermediates, per element of the axis.
        chip: what fits its cache does not go through main memory; of what is larger ever more does.
        work_seconds: of all ops in the loops: a ragged last chunk repeats a part of it.
        masked: the repeated part is masked besides, as something is accumulated.
        matmuls: that a step does some rows or columns of: seconds of arithmetic without packing, and whether columns.
        dealt: kernels that a step does some outermost rows of: their seconds, and rows for an element of the axis.
        vectorised: kernels that a step does some innermost elements of: likewise.
        strided: values that are sliced or written back: seconds of a pass over them, and contiguous bytes for an
            element of the axis.
        kernels: of a step, where they are started one by one.
    """

    n: int
    parts: int
    fixed_seconds: float
    step_seconds: float
    traffic_seconds: float
    element_bytes: float
    chip: Chip
    work_seconds: float
    masked: bool
    matmuls: tuple[tuple[float, Matmul, bool], ...]
    dealt: tuple[tuple[float, float], ...]
    vectorised: tuple[tuple[float, float], ...]
    strided: tuple[tuple[float, int], ...]
    kernels: tuple[StepKernel, ...] = ()

    def loop_seconds(self, chunk: int) -> float:
        """Time added to the program by loops of this chunk, wherever their memory is."""
        steps = -(-self.n // chunk)
        repeated = (steps * chunk / self.n - 1) * self.work_seconds
        arithmetic = self.fixed_seconds + repeated + self.packing_seconds(chunk)
        spared = sum(kernel.spared_seconds(chunk, self.chip) for kernel in self.kernels)
        return arithmetic + self.dealing_seconds(chunk) + steps * self.step_seconds - spared

    def packing_seconds(self, chunk: int) -> float:
        """What matmuls of a part of the rows take more than those of all."""
        pairs = ((seconds, whole, _share(whole, chunk / self.n, columns)) for seconds, whole, columns in self.matmuls)
        factors = ((s, part.packing_factor(self.chip) - whole.packing_factor(self.chip)) for s, whole, part in pairs)
        return sum(seconds * more for seconds, more in factors)

    def dealing_seconds(self, chunk: int) -> float:
        """What is lost where a few rows do not divide among the cores."""
        return sum(seconds * (imbalance_factor(chunk * rows, self.chip) - 1) for seconds, rows in self.dealt)

    def lane_seconds(self, chunk: int) -> float:
        """What is lost where the innermost dimension has fewer elements than a vector register has lanes."""
        factors = ((seconds, max(1.0, self.chip.lanes / (chunk * elements))) for seconds, elements in self.vectorised)
        return sum(seconds * (factor - max(1.0, self.chip.lanes / self.n)) for seconds, factor in factors)

    def moved_seconds(self, chunk: int) -> float:
        """What `cost_model.graph_seconds` does not see of it: what caches spare, and what short rows add."""
        runs = ((seconds, chunk * contiguous) for seconds, contiguous in self.strided)
        strides = sum(seconds * (_LINE_BYTES / run - 1) for seconds, run in runs if run < _LINE_BYTES)
        # What fits the cache as it is, in a loop of another split say, has nothing to gain.
        spared = (self.cached_share(chunk) - self.cached_share(self.n)) * self.traffic_seconds
        return strides + self.lane_seconds(chunk) - spared

    def cached_share(self, chunk: int) -> float:
        """The share of the intermediates' traffic that stays in the cache."""
        cache = self.chip.cache_bytes
        over = chunk * self.element_bytes / cache - 1 if cache else _FADES
        return min(1.0, max(0.0, 1.0 - over / _FADES))

    def chunks(self) -> list[tuple[int, float, float]]:
        """All chunks to choose from, the fastest first, whatever memory there is.

        Each with the time its loops add to the program, negative where caches spare more, and `moved_seconds` of that.
        """
        sizes = chunk_sizes(self.n // self.parts, even=not self.masked)
        if self.parts > 1:
            sizes = tuple(size * self.parts for size in sizes if not self.n % (size * self.parts))
        moved = {c: self.moved_seconds(c) for c in sizes}
        timed = [(c, self.loop_seconds(c) + seconds, seconds) for c, seconds in moved.items()]
        return sorted(timed, key=lambda item: (item[1], -item[0]))


@functools.lru_cache(maxsize=1024)
def chunk_sizes(n: int, *, even: bool = False) -> tuple[int, ...]:
    """The chunks to choose from for an axis of `n` elements, each about 1/√2 of the one before, the last 1.

    Args:
        even: add those of a few steps that are as even as can be, also if they do not divide the axis.
    """
    half = (n + 1) // 2
    sizes = {1}
    limit = half
    while limit > 1:
        sizes.add(round_chunk(n, limit))
        limit = min(limit - 1, round(limit / math.sqrt(2)))
    if even:
        sizes |= {c for steps in range(2, _EVEN_STEPS + 1) if (c := _tiled(-(-n // steps))) <= half}
    return tuple(sorted(sizes, reverse=True))


def _tiled(size: int) -> int:
    """A size rounded up to tiles, where that adds little."""
    multiple = next(m for m in _MULTIPLES if size >= _TILES * m or m == 1)
    return -(-size // multiple) * multiple


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


def loop_cost(graph: Graph, schedule: LoopSchedule, chip: Chip, spared_bytes: int) -> LoopCost:
    """The cost of a schedule's loops; `spared_bytes` of intermediates no longer go through memory whole."""
    runs = {split_op: len(loops) for split_op, loops in schedule.loops_of.items()}
    seconds = fused_seconds(graph, chip)
    work = sum(count * seconds[split_op.op] for split_op, count in runs.items())
    moved = _whole_bytes(graph, schedule) + 3 * _accumulated_bytes(graph, schedule) + _rescaled_bytes(graph, schedule)
    bandwidth = chip.bytes_per_second * (CACHE_SPEEDUP if moved <= 2 * chip.cache_bytes else 1)
    inside = sum(count * overhead_seconds(graph, graph.ops[split_op.op], chip) for split_op, count in runs.items())
    repeated = sum(count * _repeated_seconds(graph, split_op, chip) for split_op, count in runs.items())
    exchanged = sum(count * _exchanged_again(graph, split_op, chip) for split_op, count in runs.items())
    kernels = step_kernels(graph, schedule, chip)
    launches = sum(kernel.count for kernel in kernels) + len(schedule.outputs)
    step = chip.step_seconds * schedule.loop_count + inside + repeated + exchanged + moved / bandwidth
    step += chip.launch_seconds * launches + _combining_flops(graph, schedule) / vector_rate(chip)
    # Of an op in overlapping windows a step repeats a share of the step before.
    windows = ((s, s.window, max(0, s.window.length - s.window.stride)) for s in runs if s.window is not None)
    step += sum(runs[s] * seconds[s.op] * overlap / window.n for s, window, overlap in windows)
    traffic = _PASSES_OVER_MEMORY * spared_bytes / chip.bytes_per_second
    return LoopCost(
        n=schedule.axis.n,
        parts=schedule.axis.parts,
        fixed_seconds=work - repeated - exchanged - sum(seconds[op] for op in schedule.inner_ops),
        step_seconds=step,
        traffic_seconds=traffic,
        element_bytes=spared_bytes / schedule.axis.n,
        chip=chip,
        work_seconds=work,
        masked=any(item.accumulated for item in schedule.outputs),
        matmuls=_added_up(_matmuls(graph, runs, chip)),
        dealt=_added_up(_dealt(graph, runs, seconds)),
        vectorised=_added_up(_vectorised(graph, runs, seconds)),
        strided=_added_up(_strided(graph, schedule, chip)),
        kernels=kernels,
    )


@cached_analysis
def _repeated_seconds(graph: Graph, split_op: SplitOp, chip: Chip) -> float:
    """Seconds of what runs whole in the blocks of a split op, is exchanged for it or launched: every chunk does."""
    hoisted = compiler_model(chip).hoisted_ops
    return region_work(
        graph,
        split_op,
        lambda block, op: op_seconds(block, op, chip) + _launch_seconds(block, op, chip),
        hoisted,
        lambda block, inner: _exchanged_again(block, inner, chip) + _launch_seconds(block, inner.op, chip),
    )[0]


def _launch_seconds(block: Graph, op: int, chip: Chip) -> float:
    """Seconds that it takes to start the kernel named by an op, 0 if it is fused into others or runs kernels itself."""
    is_kernel = plan_buffers(block, chip).names_kernel(block.ops[op])
    return chip.launch_seconds if is_kernel and CLASSES.get(block.ops[op].name) is not Class.CONTROL else 0.0


def _exchanged_again(graph: Graph, split_op: SplitOp, chip: Chip) -> float:
    """Seconds of what devices exchange for every chunk of a split op, such as a weight that is gathered."""
    return received_seconds(repeated_bytes(graph, split_op), chip)


def _added_up(parts: Iterable[tuple[float, *_Ts]]) -> tuple[tuple[float, *_Ts], ...]:
    """The seconds of parts that are equal in all else, added up: a chunk's time is asked for very often."""
    total: dict[tuple[*_Ts], float] = {}
    for part in parts:
        total[part[1:]] = total.get(part[1:], 0.0) + part[0]
    return tuple((seconds, *key) for key, seconds in total.items())


def _share(whole: Matmul, taken: float, columns: bool) -> Matmul:
    """A matmul of a share of the rows, or of the columns."""
    if columns:
        return dataclasses.replace(whole, columns=whole.columns * taken)
    return dataclasses.replace(whole, rows=whole.rows * taken)


def _matmuls(graph: Graph, runs: Mapping[SplitOp, int], chip: Chip) -> Iterator[tuple[float, Matmul, bool]]:
    """See `LoopCost.matmuls`."""
    for split_op, count in runs.items():
        op = graph.ops[split_op.op]
        along = [dimension is not None for dimension in split_op.operand_dims[:2]]
        if multiplies(graph, op) and along[0] != along[1]:
            yield count * flop_seconds(graph, op, chip), matmul_of(graph, op), along[1]


def _dealt(graph: Graph, runs: Mapping[SplitOp, int], seconds: Sequence[float]) -> Iterator[tuple[float, float]]:
    """See `LoopCost.dealt`."""
    for split_op, count in runs.items():
        op, dimension = graph.ops[split_op.op], split_op.result_dims[0]
        shape = graph.values[op.results[0]].shape
        if dimension is not None and CLASSES.get(op.name) is not Class.DOT and math.prod(shape[:dimension]) == 1:
            yield count * seconds[split_op.op], shape[dimension] / split_op.n


def _vectorised(graph: Graph, runs: Mapping[SplitOp, int], seconds: Sequence[float]) -> Iterator[tuple[float, float]]:
    """See `LoopCost.vectorised`."""
    for split_op, count in runs.items():
        op, kind = graph.ops[split_op.op], CLASSES.get(graph.ops[split_op.op].name)
        if kind is Class.REDUCE:
            value, dimension = op.operands[0], split_op.operand_dims[0]
        elif kind in ELEMENTWISE:
            value, dimension = op.results[0], split_op.result_dims[0]
        else:
            continue
        shape = graph.values[value].shape
        if dimension is not None and math.prod(shape[dimension + 1 :]) == 1:
            yield count * seconds[split_op.op], shape[dimension] / split_op.n


def _strided(graph: Graph, schedule: LoopSchedule, chip: Chip) -> Iterator[tuple[float, int]]:
    """See `LoopCost.strided`."""
    outputs = {output.value for output in schedule.outputs}
    passes = Counter(_loops_that_slice(graph, schedule))
    passes.update(use for use in schedule.axis.producers if use.value in outputs)
    for (value, dimension, _), count in passes.items():
        data = graph.values[value]
        contiguous = data.nbytes // max(1, math.prod(data.shape[: dimension + 1]))
        yield count * data.nbytes / chip.bytes_per_second, max(1, contiguous)


def _loops_that_slice(graph: Graph, schedule: LoopSchedule) -> dict[Use, int]:
    """The uses that are sliced from whole values, each with the number of loops that do."""
    slicing: dict[Use, AbstractSet[int]] = {}
    for split_op, loops in schedule.loops_of.items():
        for use in operand_uses(graph, split_op):
            first = schedule.sliced_from(use)
            sliced = {loop for loop in loops if loop >= first} if first else loops
            if sliced:
                slicing[use] = slicing[use] | sliced if use in slicing else sliced
    return {use: len(loops) for use, loops in slicing.items()}


def _whole_bytes(graph: Graph, schedule: LoopSchedule) -> int:
    """Bytes of operands that every step reads whole, each loop once."""
    whole: dict[int, AbstractSet[int]] = {}
    for split_op, loops in schedule.loops_of.items():
        op = graph.ops[split_op.op]
        for position, (value, dimension) in enumerate(zip(op.inputs, split_op.operand_dims, strict=True)):
            if dimension is None and not (position == 0 and _moves_a_part(op)):
                whole[value] = whole[value] | loops if value in whole else loops
    return sum(len(loops) * graph.values[value].nbytes for value, loops in whole.items())


def _accumulated_bytes(graph: Graph, schedule: LoopSchedule) -> int:
    sums = (o for o in schedule.outputs if o.accumulated and not _moves_a_part(graph.ops[o.split_op.op]))
    return sum(graph.values[output.value].nbytes for output in sums)


def _combining_flops(graph: Graph, schedule: LoopSchedule) -> float:
    """What a step of every loop takes to combine partial results, beside reading and writing accumulators."""
    ops = {output.split_op.op for output in schedule.outputs if output.accumulated}
    reductions = [(OP_RULES[graph.ops[op].name].reduction, graph.handles[op]) for op in sorted(ops)]
    return sum(reduction.flops(op) for reduction, op in reductions if reduction is not None)


def _moves_a_part(op: Op) -> bool:
    """Whether an op moves of its first operand only as much as it takes or writes."""
    return op.name in SLICES or CLASSES.get(op.name) is Class.UPDATE


def _rescaled_bytes(graph: Graph, schedule: LoopSchedule) -> int:
    """Bytes of accumulators that are rescaled as a maximum grows: read and written once more."""
    terms = schedule.online.terms.items()
    return sum(graph.values[v].nbytes for v, of_value in terms if any(term.rescales for term in of_value))
