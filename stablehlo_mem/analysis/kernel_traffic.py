"""What the kernels of a block read and write, and what of it stays on the chip or in the cache. `cost_model` asks."""

from __future__ import annotations

from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.fusion import Buffers, plan_buffers
from stablehlo_mem.analysis.fusion_classes import CLASSES, SLICES, Class, is_nested
from stablehlo_mem.analysis.op_cost import MOVES_NOTHING, buffer_bytes, op_bytes
from stablehlo_mem.analysis.used_bytes import used_bytes
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.targets.chips import Chip

_INVARIANT_SHARE = 0.125
"""Of the memory on the chip: what every step of a loop reads stays there if it has at most so much of it, where the
compiler places values (seen in compiled programs)."""

CACHE_SPEEDUP = 4
"""How much faster operands are read again from the shared cache than from memory (on CPU)."""


def traffic_seconds(graph: Graph, op: Op, buffers: Buffers, chip: Chip, but: int | None = None) -> float:
    """Seconds that a kernel reads and writes, but for one value. Small values stay on the chip between kernels."""
    written = [v for v in op.results if buffers.materialised[v]]
    moved = {v: _read_bytes(graph, v, chip) for v in buffers.reads[op.index] if v in op.operands or written}
    if CLASSES.get(op.name) is Class.UPDATE:
        moved.pop(op.operands[0], None)
        moved = {v: min(n, buffer_bytes(graph, (v,), chip)) for v, n in moved.items()}
        written_bytes = {op.results[0]: buffer_bytes(graph, op.operands[1:2], chip)}
    else:
        written_bytes = {v: buffer_bytes(graph, (v,), chip) for v in written}
    if but is not None:
        moved.pop(but, None)
    if op.name in SLICES and op.operands[0] in moved:
        moved[op.operands[0]] = min(moved[op.operands[0]], buffer_bytes(graph, op.results, chip))
    moved.update(dict.fromkeys(moved.keys() & reduced_while_written(graph, op, buffers, chip), 0))
    stays = _on_chip_values(graph, chip)
    on_chip = sum(n for v, n in (*moved.items(), *written_bytes.items()) if v in stays)
    total = sum(moved.values()) + sum(written_bytes.values())
    return (total - on_chip + on_chip / chip.on_chip_speedup) / chip.bytes_per_second


def copies_seconds(graph: Graph, op: Op, chip: Chip) -> float:
    """Seconds of the kernels that copy operands of an op, or its result, into another layout or order."""
    model = compiler_model(chip)
    copies = model.copied_operands(graph, op)
    read = buffer_bytes(graph, copies, chip)
    rearranging = model.rearranging_kernels(graph, op)
    written = [*copies.values(), *[2 * buffer_bytes(graph, op.results, chip)] * rearranging]
    on_chip = sum(n / (chip.on_chip_speedup if n <= chip.on_chip_value_bytes else 1) for n in written)
    return (read + on_chip) / chip.bytes_per_second + len(written) * chip.launch_seconds


def reduced_while_written(graph: Graph, op: Op, buffers: Buffers, chip: Chip) -> set[int]:
    """The values that a reduction takes from the kernels that write them, which compute it too."""
    if CLASSES.get(op.name) is not Class.REDUCE:
        return set()
    return {v for v in buffers.reads[op.index] if compiler_model(chip).reduces_while_written(graph, op, v)}


def fits_chip(graph: Graph, op: Op, chip: Chip) -> bool:
    """Whether the results of an op may stay on the chip."""
    return buffer_bytes(graph, op.results, chip) <= chip.on_chip_value_bytes


@cached_analysis
def _on_chip_values(graph: Graph, chip: Chip) -> frozenset[int]:
    """The values made in a block that stay on the chip: small ones, if they fit.

    They need room beside what their kernels read there; beside all that live there, if the compiler places them.
    """
    buffers, stays = plan_buffers(graph, chip), dict[int, int]()
    last = {v: op.index for op in graph.ops for v in buffers.reads[op.index]}
    places = compiler_model(chip).places_on_chip
    if places and is_nested(graph):
        captured = {v: buffer_bytes(graph, (v,), chip) for v in graph.captured}
        stays.update({v: n for v, n in captured.items() if n <= chip.on_chip_bytes * _INVARIANT_SHARE})
    for op in graph.ops:
        made = {v: buffer_bytes(graph, (v,), chip) for v in op.results if buffers.materialised[v]}
        live = (v for v in stays if last.get(v, -1) >= op.index) if places else buffers.reads[op.index]
        beside = sum(stays.get(v, 0) for v in live)
        fits = sum(made.values()) + beside <= chip.on_chip_bytes
        if fits and max(made.values(), default=0) <= chip.on_chip_value_bytes:
            stays.update(made)
    return frozenset(stays)


def kernel_bytes(graph: Graph, op: Op, buffers: Buffers, chip: Chip) -> int:
    """Bytes that the kernel named by an op reads and writes; of an op that is fused into others, none."""
    made = [v for v in op.results if buffers.materialised[v]]
    written = buffer_bytes(graph, made, chip)
    read = [v for v in buffers.reads[op.index] if v in op.operands or written]
    moved = written + sum(_read_bytes(graph, v, chip) for v in read)
    resident = [v for v in (*read, *made) if v in _resident(graph, chip)]
    moved -= int(buffer_bytes(graph, resident, chip) * (1 - 1 / CACHE_SPEEDUP))
    in_place = CLASSES.get(op.name, Class.OPAQUE) in (Class.UPDATE, *MOVES_NOTHING)
    return min(moved, op_bytes(graph, op, chip)) if in_place else moved


@cached_analysis
def _resident(graph: Graph, chip: Chip) -> frozenset[int]:
    """The values that the cache has in every iteration of a loop: all carries and invariants, if they fit it together.

    A carry counts as read and as returned. What is only sliced is not among them: each iteration takes another row.
    """
    if not is_nested(graph) or not chip.cache_bytes:
        return frozenset()
    held = {v for v in plan_buffers(graph, chip).readers if not graph.values[v].is_computed}
    held = {v for v in held if _read_bytes(graph, v, chip) == buffer_bytes(graph, (v,), chip)}
    made = {v for v in graph.returned if (op := graph.producer(v)) and CLASSES.get(op.name) is not Class.UPDATE}
    return frozenset(held | made) if buffer_bytes(graph, held | made, chip) <= chip.cache_bytes else frozenset()


@cached_analysis
def _read_bytes(graph: Graph, value: int, chip: Chip) -> int:
    """Bytes that a kernel reads of a value: of one that is only sliced, an equal share of the slices."""
    used = used_bytes(graph, chip)
    if value not in used.sliced:
        return buffer_bytes(graph, (value,), chip)
    return used.nbytes[value] // len(plan_buffers(graph, chip).readers[value])
