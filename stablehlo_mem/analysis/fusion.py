"""Which values of a block get a buffer, and which kernels read them.

Compilers fuse ops into kernels. A kernel is named by the op that writes its result; every other op in it is fused
away. The model is a table (`fusion_classes.CLASSES`) and one backward sweep (`plan_buffers`), in which each op tells
its operands whether its kernel computes them on the fly or reads them from memory; what differs between compilers it
asks of the `CompilerModel`. `peak_memory` and `cost_model` call it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stablehlo_mem.analysis.compiler_model import Kernels
from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.fusion_classes import (
    CLASSES,
    ELEMENTWISE,
    FUSED,
    FUSIBLE,
    SHIFTS,
    Class,
    classify,
    is_view,
    window_size,
)
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.barriers import BARRIER
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.ir.loop_carries import invariant_carries
from stablehlo_mem.ir.matchers import adds, below_sign
from stablehlo_mem.ir.op_attributes import dot_sizes
from stablehlo_mem.targets.chips import Chip

_MAX_COPIES = 8
"""Kernels that compute a cheap value on the fly; one that more would compute is materialised (seen on all three).

What is generated is not: scalars that 24 layers broadcast, and a causal mask, have no buffer (compiled for all three).
"""
_GENERATED_DEPTH = 48
"""Ops in a chain that generates a value (random numbers); what a longer one makes is materialised (seen on all)."""

_NONE: Kernels = frozenset()


@dataclasses.dataclass(frozen=True)
class Buffers:
    """What one block keeps in memory.

    Attributes:
        materialised: per value, whether a kernel writes it to a buffer; False for arguments and captures, which
            have buffers anyway.
        reads: per op, the values its kernel reads from memory; empty for ops fused away.
        aligned: per op, those of `reads` it reads only at the place it writes: the result may be written over them.
        scratch: per op, bytes its kernel needs beside operands and results.
        generated: per value, whether it is computed from constants, iotas and scalars alone.
        kernels: per op, the kernels that compute it, each named by the op that writes its result; none for ops that
            compute nothing.
    """

    materialised: tuple[bool, ...]
    reads: tuple[tuple[int, ...], ...]
    aligned: tuple[tuple[int, ...], ...]
    scratch: tuple[int, ...]
    generated: tuple[bool, ...]
    kernels: tuple[Kernels, ...]

    def names_kernel(self, op: Op) -> bool:
        """Whether a kernel is named by an op."""
        return op.index in self.kernels[op.index] and CLASSES.get(op.name) is not Class.RETURN

    @functools.cached_property
    def computed_in(self) -> dict[int, list[int]]:
        """For each kernel the ops that it computes, in program order: the inverse of `kernels`."""
        return _inverse(self.kernels)

    @functools.cached_property
    def readers(self) -> dict[int, list[int]]:
        """For each value that kernels read from memory these kernels, in program order: the inverse of `reads`."""
        return _inverse(self.reads)


def _inverse(of_ops: Sequence[Iterable[int]]) -> dict[int, list[int]]:
    inverse: dict[int, list[int]] = {}
    for op, items in enumerate(of_ops):
        for item in items:
            inverse.setdefault(item, []).append(op)
    return inverse


@cached_analysis
def plan_buffers(graph: Graph, chip: Chip) -> Buffers:
    """Decides for a block which values have buffers and which kernels read them. Linear in ops."""
    sweep = _Sweep(graph, chip)
    for op in reversed(graph.ops):
        sweep.visit(op)
    return sweep.result()


class _Sweep:
    """The backward sweep: users are visited before producers.

    Attributes:
        readers: per value, the kernels that read it from memory in any case.
        fusing: per value, the kernels that would compute it on the fly.
        moved: per value, the kernels that read it elsewhere than where they write.
        reused: per value, whether some kernel would compute its elements more than once (a broadcast follows).
        window: per value, how often some kernel reads each of its elements at most: in windows of a reduce_window, or
            for what it becomes. Shifts count apart.
        shifted: per value and kernel, how often it reads each element elsewhere than where it writes: shifted copies
            of a value, as stencils add them up, are computed one by one. On average, as a slice reads some only.
        chain: per value, whether only ops with one tensor operand, beside those that the compiler model allows, lie
            between it and the end of its one kernel.
        in_library: per value, whether a library's reduction uses it: it reads what other kernels compute.
        with_dot: kernels that compute a dot; there is room for one ...
        with_nested_dot: ... and in some compilers' kernels for another, of which the first one's operand is made.
        hoisted: values that kernels in a loop's body read from memory, as they are computed before the loop.
        generated: per value, whether it is computed from constants, iotas and scalars alone.
        long_generated: per value, whether it is generated by so many ops that it is computed once.
    """

    def __init__(self, graph: Graph, chip: Chip) -> None:
        count = len(graph.values)
        self.graph = graph
        self.model = compiler_model(chip)
        self.readers: list[Kernels] = [_NONE] * count
        self.fusing: list[Kernels] = [_NONE] * count
        self.moved: list[Kernels] = [_NONE] * count
        self.reused = [False] * count
        self.window = [0.0] * count
        self.shifted: list[dict[int, float]] = [{} for _ in range(count)]
        self.chain = [False] * count
        self.materialised = [False] * count
        self.scratch = [0] * len(graph.ops)
        self.kernels: list[Kernels] = [_NONE] * len(graph.ops)
        self.in_library = [False] * count
        self.with_dot: set[int] = set()
        self.with_nested_dot: set[int] = set()
        self.hoisted = self.model.hoisted_values(graph)
        self.generated, self.long_generated = _find_generated(graph)

    def visit(self, op: Op) -> None:
        kind = classify(self.graph, op)
        for value in self.hoisted.intersection(op.results):
            self._stop_fusing(value)
        for value in op.operands:
            if self.long_generated[value] and not (op.results and self.generated[op.results[0]]):
                _add(self.readers, value, (op.index,))
        if op.name == BARRIER:
            for value in op.results:
                self._stop_fusing(value)
        if is_view(self.graph, op):
            self._pass_through(zip(op.operands, op.results, strict=False))
        elif kind is Class.GENERATE:
            for value in op.results:
                self.materialised[value] = bool(self.readers[value]) and op.name != "stablehlo.constant"
        elif kind in FUSIBLE:
            self._visit_fusible(op, kind)
        elif kind is Class.REDUCE and self._reduces_elementwise(op):
            self._visit_fusible(op, Class.MOVE)
        elif kind is Class.REDUCE:
            self._visit_reduce(op)
        elif kind is Class.DOT and dot_sizes(self.graph, op)[3] == 1:
            self._visit_fusible(op, Class.CHEAP)  # an outer product: every compiler multiplies broadcasts
        elif kind is Class.DOT and self.model.compiles_dot_as_sum(self.graph, op):
            self._visit_summed_dot(op)
        elif kind is Class.DOT or (op.name == "stablehlo.convolution" and self.model.fuses_convolutions):
            self._visit_dot(op)
        else:
            self._visit_kernel(op, kind)

    def _stop_fusing(self, value: int) -> None:
        """All kernels that use a value read it from memory."""
        self.readers[value] = {*self.readers[value], *self.fusing[value]}
        self.fusing[value] = _NONE

    def _pass_through(self, pairs: Any) -> None:
        for operand, result in pairs:
            for kernels in (self.readers, self.fusing, self.moved):
                _add(kernels, operand, kernels[result])
            self.reused[operand] |= self.reused[result]
            self.window[operand] = max(self.window[operand], self.window[result])
            self._add_shifted(operand, self.shifted[result])
            self.in_library[operand] |= self.in_library[result]
            self.chain[operand] = self.chain[result] and len(self.graph.users[operand]) == 1

    def _visit_fusible(self, op: Op, kind: Class) -> None:
        value = op.results[0]
        if op.name == "stablehlo.divide" and self._is_broadcast(op.operands[1]):
            kind = Class.CHEAP  # the reciprocal is taken first, of the small operand
        # The operands that are read from memory or computed from such: no scalars, constants or iotas.
        tensors = [v for v in dict.fromkeys(op.operands) if not self.generated[v]]
        in_library = self.in_library[value] and self.model.joins_library_fusion(self.graph, op)
        if self.in_library[value] and not in_library:
            self._stop_fusing(value)
        materialised = self._is_materialised(value, kind) or op.name in self.model.always_materialised
        self.materialised[value] = materialised
        kernels = {op.index} if materialised else self.fusing[value]
        self._charge(kernels, self.model.relayout_bytes(self.graph, op))
        wide = [v for v in tensors if not self._is_broadcast(v)]
        if (
            self.readers[value]
            and kind is not Class.EXPENSIVE
            and len(wide) <= 1
            and self.model.recomputes_materialised
        ):
            # Some kernels read it from memory. To compute it takes no more reading, so the others do that.
            kernels = kernels | self.fusing[value]
            self.fusing[value] = _NONE
        self.kernels[op.index] = kernels
        from_memory = op.name in self.model.reads_from_memory and not in_library
        uses = 1.0 if materialised else self._uses(value)
        enlarges = op.name == "stablehlo.broadcast_in_dim" and (
            self.graph.values[value].nbytes > self.graph.values[op.operands[0]].nbytes
        )
        if enlarges:
            uses *= self.model.counted_repeats(self.graph, op)
        if op.name == "stablehlo.reduce_window":
            uses *= self._windows_of_element(op)
            self._charge(kernels, self.model.window_scratch_bytes(self.graph, op))
        after_dot = len(tensors) - sum(self.model.reads_after_dot(self.graph, v) for v in tensors)
        for operand in op.operands:
            _add(self.readers if from_memory else self.fusing, operand, kernels)
            _add(self.moved, operand, kernels if kind is Class.MOVE else self.moved[value] - {op.index})
            self.reused[operand] |= enlarges or (not materialised and self.reused[value])
            if op.name in SHIFTS:
                share = self._read_share(op, operand)
                self._add_shifted(operand, dict.fromkeys(kernels, uses * share))
            else:
                self.window[operand] = max(self.window[operand], uses)
            self.in_library[operand] |= not materialised and self.in_library[value]
            self.chain[operand] = (
                len(self.graph.users[operand]) == 1
                and after_dot == 1
                and kind in ELEMENTWISE
                and (self.model.widens_in_epilogue or not self._widens(op))
                and (materialised or self.chain[value])
            )

    def _uses(self, value: int) -> float:
        """How often some kernel computes each element of a value; rounded, as shares of slices add up."""
        return max(1.0, round(self.window[value] + max(self.shifted[value].values(), default=0.0), 2))

    def _add_shifted(self, value: int, uses: Mapping[int, float]) -> None:
        for kernel, count in uses.items():
            self.shifted[value][kernel] = self.shifted[value].get(kernel, 0.0) + count

    def _read_share(self, op: Op, operand: int) -> float:
        """The part of an operand's elements that an op uses."""
        result, elements = (math.prod(self.graph.values[v].shape) for v in (op.results[0], operand))
        return min(1.0, result / max(1, elements))

    def _windows_of_element(self, op: Op) -> int:
        """In how many windows of a reduce_window each element of its operand is."""
        result, operand = (math.prod(self.graph.values[v].shape) for v in (op.results[0], op.operands[0]))
        return max(1, window_size(self.graph, op) * result // max(1, operand))

    def _widens(self, op: Op) -> bool:
        """Whether an op converts to a wider type what is used in the block, not returned."""
        value = self.graph.values[op.results[0]]
        wider = op.name == "stablehlo.convert" and value.nbytes > self.graph.values[op.operands[0]].nbytes
        return wider and op.results[0] not in self.graph.returned

    def _charge(self, kernels: Kernels, nbytes: int) -> None:
        """More scratch for each of some kernels."""
        if nbytes:
            for kernel in kernels:
                self.scratch[kernel] += nbytes

    def _is_materialised(self, value: int, kind: Class) -> bool:
        """Whether the result of a fusible op is materialised."""
        kernels = self.fusing[value]
        if self.readers[value] or (len(kernels) > _MAX_COPIES and not self.generated[value]):
            return True
        return self.model.materialises(self.graph, value, kind, kernels, self.reused[value], self._uses(value))

    def _is_broadcast(self, value: int) -> bool:
        producer = self.graph.producer(value)
        return producer is not None and producer.name in ("stablehlo.broadcast_in_dim", "stablehlo.constant")

    def _visit_reduce(self, op: Op) -> None:
        tree = self.model.reduces_as_tree(self.graph, op)
        kernel = self._only_kernel(op.results)
        in_row = kernel is not None and self.model.fuses_row_reduction(self.graph, op, self.graph.ops[kernel])
        materialised = tree or not (in_row or self._is_fused_reduce(op))
        for value in op.results:
            self.materialised[value] = materialised
        kernels = {op.index} if materialised else self.fusing[op.results[0]]
        self.kernels[op.index] = kernels
        in_library = not tree and self.model.starts_library_fusion(self.graph, op)
        for operand in (below_sign(self.graph, v) for v in op.operands) if adds(op.blocks[0]) else op.operands:
            _add(self.readers if tree else self.fusing, operand, kernels)
            self.in_library[operand] |= in_library
            self.reused[operand] |= not materialised and not in_row and self.reused[op.results[0]]
            if in_row:
                _add(self.moved, operand, kernels)  # a whole row is read before any of it is written
        if not in_row:
            self.scratch[op.index] += self.model.reduction_scratch_bytes(self.graph, op)

    def _reduces_elementwise(self, op: Op) -> bool:
        value = op.results[0]
        return not self.readers[value] and self.model.reduces_elementwise(self.graph, op, self.fusing[value])

    def _only_kernel(self, values: Sequence[int]) -> int | None:
        """The kernel that alone uses some values and computes them on the fly, None if there is none."""
        kernels = {kernel for v in values for kernel in self.fusing[v]}
        return next(iter(kernels)) if len(kernels) == 1 and not any(self.readers[v] for v in values) else None

    def _is_fused_reduce(self, op: Op) -> bool:
        """Whether the one kernel that uses a reduction's result computes it too."""
        value = op.results[0]
        if len(op.results) > 1 or self._is_materialised(value, Class.EXPENSIVE):
            return False
        return self.model.fuses_reduction(self.graph, op, self.fusing[value])

    def _visit_dot(self, op: Op) -> None:
        value = op.results[0]
        materialised = not self._is_epilogue(op)
        self.materialised[value] = materialised
        kernels = {op.index} if materialised else self.fusing[value]
        self.with_dot |= kernels
        self.kernels[op.index] = kernels
        from_memory = self.model.dot_operands_in_memory(self.graph, op)
        for value in from_memory:
            _add(self.readers, value, kernels)
        for operand in op.operands:
            if operand not in from_memory:
                _add(self.fusing, operand, kernels)
                self.reused[operand] |= op.name == "stablehlo.convolution"
        self._charge(kernels, self.model.dot_scratch_bytes(self.graph, op))
        if not materialised:
            (kernel,) = kernels
            self._charge(kernels, self.model.epilogue_scratch_bytes(self.graph, op, self.graph.ops[kernel]))

    def _visit_summed_dot(self, op: Op) -> None:
        rows, columns, _, _ = dot_sizes(self.graph, op)
        self.materialised[op.results[0]] = True
        self.kernels[op.index] = {op.index}
        for operand, repeated in zip(op.operands, (columns > 1, rows > 1), strict=True):
            _add(self.fusing, operand, (op.index,))
            _add(self.moved, operand, (op.index,))
            self.reused[operand] |= repeated
        self.scratch[op.index] += self.model.reduction_scratch_bytes(self.graph, op)

    def _is_epilogue(self, op: Op) -> bool:
        """Whether the one kernel that uses a dot's result computes it too."""
        dot = op.results[0]
        if op.index in self.model.merged_dots(self.graph):
            return False
        if self.readers[dot] or len(self.fusing[dot]) != 1 or self.reused[dot]:
            return False
        root = self.graph.ops[next(iter(self.fusing[dot]))]
        if root.index in self.with_dot:
            is_nested = root.index not in self.with_nested_dot and self.model.fuses_into_dot(self.graph, op)
            self.with_nested_dot |= {root.index} if is_nested else set()
            return is_nested
        if classify(self.graph, root) is Class.REDUCE:
            return self.model.reduces_dots
        return classify(self.graph, root) in ELEMENTWISE and self.model.fuses_epilogue(self.chain[dot])

    def _visit_kernel(self, op: Op, kind: Class) -> None:
        self.kernels[op.index] = {op.index}
        invariant = invariant_carries(op) if op.name == "stablehlo.while" else ()
        for i, value in enumerate(op.results):
            self.materialised[value] = not (invariant and invariant[i])
        self._pass_through((o, r) for o, r, same in zip(op.operands, op.results, invariant, strict=False) if same)
        for i, operand in enumerate(op.operands):
            fused = kind is Class.UPDATE and i > 0 and op.name not in self.model.reads_from_memory
            fused |= op.name in self.model.fuses_producers
            _add(self.fusing if fused else self.readers, operand, (op.index,))
        for value in op.captures:
            # What is generated too, scalars aside: it is computed before the loop.
            if self.graph.values[value].shape or not self.generated[value]:
                _add(self.readers, value, (op.index,))
        self.scratch[op.index] += self.model.kernel_scratch_bytes(self.graph, op)

    def result(self) -> Buffers:
        reads: list[list[int]] = [[] for _ in self.graph.ops]
        aligned: list[list[int]] = [[] for _ in self.graph.ops]
        for value, (readers, fusing) in enumerate(zip(self.readers, self.fusing, strict=True)):
            if self.materialised[value] or not self.graph.values[value].is_computed:
                for op in readers | fusing if readers and fusing else readers or fusing:
                    reads[op].append(value)
                    if op not in self.moved[value]:
                        aligned[op].append(value)
        return Buffers(
            materialised=tuple(self.materialised),
            reads=tuple(map(tuple, reads)),
            aligned=tuple(map(tuple, aligned)),
            scratch=tuple(self.scratch),
            generated=tuple(self.generated),
            kernels=tuple(self.kernels),
        )


def _add(of: list[Kernels], value: int, kernels: Iterable[int]) -> None:
    """More kernels for a value. Most have few, and many none."""
    present = of[value]
    if isinstance(present, set):
        present.update(kernels)
    elif kernels:
        of[value] = set(kernels)


@cached_analysis
def _find_generated(graph: Graph) -> tuple[list[bool], list[bool]]:
    """Per value, whether it is a scalar or computed from scalars, constants and iotas by fusible ops; and by many."""
    generated = [not value.shape for value in graph.values]
    depth = [0] * len(graph.values)
    for op in graph.ops:
        kind = classify(graph, op)
        if kind is Class.GENERATE or (kind in FUSED and all(generated[v] for v in op.operands)):
            for value in op.results:
                generated[value] = True
                depth[value] = 1 + max([depth[v] for v in op.operands], default=0)
    return generated, [d > _GENERATED_DEPTH for d in depth]
