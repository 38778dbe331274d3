"""compute-where-read: a large value that is cheaper to compute than to read is computed in every kernel that reads it.

Before, with %x and %y of n x 3 elements and %k of n x n:
    %k = stablehlo.exponential %d : tensor<nxnxf32>
    %r = stablehlo.dot_general %k, %v, contracting_dims = [1] x [0] : tensor<nxf32>
    %s = stablehlo.dot_general %k, %r, contracting_dims = [0] x [0] : tensor<nxf32>
After:
    %p = stablehlo.multiply %k, %v_broadcast
    %r = stablehlo.reduce(%p) applies stablehlo.add across dimensions = [1]
    %x1 = stablehlo.optimization_barrier %x
    %y1 = stablehlo.optimization_barrier %y
    %k1 = stablehlo.exponential %d1 : tensor<nxnxf32>       computed again, from %x1 and %y1
    %q = stablehlo.multiply %k1, %r_broadcast
    %s = stablehlo.reduce(%q) applies stablehlo.add across dimensions = [0]

XLA:GPU fuses what computes the operand of a sum into the sum, and then nothing of n x n elements is in memory. It does
not fuse so into a matrix times a vector, and where a value has several readers it writes the value, if it takes more
than a few operations. Barriers keep the copies apart: compilers merge equal ones, so each copy has one more than the
last. A sum of products is as precise as the matrix times the vector: narrow floats are summed in float32.

Refuses nothing. Leaves alone what a matmul reads, what is broadcast after, as each of its elements would be computed
many times, and what takes longer to compute than to read: all that only where the compiler's model says that sums are
fused so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.fusion import Buffers, plan_buffers
from stablehlo_mem.analysis.fusion_classes import CLASSES, ELEMENTWISE, FUSIBLE, Class, classify, enlarges, multiplies
from stablehlo_mem.analysis.kernel_traffic import traffic_seconds
from stablehlo_mem.analysis.op_cost import arithmetic_seconds, kernel_arithmetic_seconds, vector_seconds
from stablehlo_mem.analysis.peak_memory import Peak
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.barriers import set_apart
from stablehlo_mem.ir.bindings import ir, run_passes, stablehlo
from stablehlo_mem.ir.float_comparisons import why_rounded_alike
from stablehlo_mem.ir.graph import FLOATS, NARROW_FLOATS, Graph, Op, Path, entry_graph, nested_graph, readers_through
from stablehlo_mem.ir.op_attributes import dot_numbers, dot_sizes
from stablehlo_mem.ir.trip_count import block_runs
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Refusal, Step, StepParams, allows
from stablehlo_mem.pass_api.pass_protocol import Pass
from stablehlo_mem.rewriting.rewriting_pass import block_paths
from stablehlo_mem.targets.chips import Chip

_READ_SHARE = 0.25
"""Bytes read to compute a value, as a share of the value's: of more there is little to gain."""
_LEAST_BYTES = 2**20
"""Smaller values take about as long to read as a kernel takes to start."""
_WORTHWHILE_SHARE = 0.95
"""The kernels that read a value are to take at most this share of their time: estimates do not tell less apart."""
_MOST_OPS = 100
"""Ops that are repeated for a reader: a guess, to bound the size of a kernel."""
_PARTIAL_SUMS = 2
"""Kernels of a long sum: one for parts of it, one for all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WhereRead(StepParams):
    """A value of a block that is computed where it is read.

    Attributes:
        path: the block, from the entry function's.
        value: in the graph of the block.
        ops: those that compute it, in program order.
        sources: the values that they read.
        readers: the ops that use it, those of a kernel together; all but the first get a copy of their own.
        sums: the dots that become sums of products.
    """

    path: Path
    value: int
    ops: tuple[int, ...]
    sources: tuple[int, ...]
    readers: tuple[tuple[int, ...], ...]
    sums: tuple[int, ...]


class ComputeWhereRead(Pass[WhereRead]):
    """The pass."""

    name = "compute-where-read"
    params_type = WhereRead

    def cheapen(self, graph: Graph, goal: Goal) -> Iterator[Candidate]:
        """The values that take less time so, in every block."""
        if not compiler_model(goal.chip).fuses_into_sums:
            return
        for path in block_paths(graph):
            block = _Block(graph, path, goal.chip)
            for value in block.written():
                candidate = block.candidate(value, goal)
                if candidate is not None and candidate.added_seconds < 0:
                    yield candidate

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
        """The values at the peak, whatever time they take."""
        if not compiler_model(goal.chip).fuses_into_sums:
            return
        for path, _ in peak.ops_around:
            block, live = _Block(graph, path, goal.chip), peak.live_in(path)
            for value in (v for v in block.written() if v in live):
                candidate = block.candidate(value, goal)
                if candidate is not None:
                    yield candidate

    def describe(self, params: WhereRead) -> str:
        """In how many kernels."""
        return f"{self.name} in {len(params.readers)} kernels" if len(params.readers) > 1 else self.name

    def apply(self, module: ir.Module, params: WhereRead) -> None:
        """Repeats the ops for each reader but the first, and replaces the dots by sums."""
        graph = nested_graph(entry_graph(module), params.path)
        value = graph.mlir_values[params.value]
        with module.context:
            for users in params.readers[1:]:
                copy = _repeated(graph, params, graph.handles[min(users)])
                for user in users:
                    builders.rebind(graph.handles[user], {value: copy})
            for index in params.sums:
                handle = graph.handles[index]
                with builders.building(handle, handle.location):
                    total = _sum_of_products(graph, graph.ops[index])
                handle.results[0].replace_all_uses_with(total)
        run_passes(module, "canonicalize")


class _Block:
    """A block, its kernels, and what they cost on a chip."""

    def __init__(self, main: Graph, path: Path, chip: Chip):
        self.main, self.path, self.chip = main, path, chip
        self.graph = nested_graph(main, path)
        self.buffers: Buffers = plan_buffers(self.graph, chip)

    def written(self) -> Iterator[int]:
        """The large values that kernels without a reduction or dot write, and that stay in the block."""
        for op in self.graph.ops:
            value = op.results[0] if op.results else -1
            if value < 0 or not self.buffers.materialised[value] or self.graph.values[value].nbytes < _LEAST_BYTES:
                continue
            if op.index in self.buffers.kernels[op.index] and value not in self.graph.returned:
                yield value

    def candidate(self, value: int, goal: Goal) -> Candidate | None:
        """The step that computes a value where it is read, None if that is impossible."""
        params = self.params(value)
        if params is None:
            return None
        numerics = "reassociate" if params.sums else "exact"
        relaxed = allows(goal.options, "relaxed")
        compared = why_rounded_alike(self.main, self.path, self.results_of(params), relaxed=relaxed)
        if compared or not allows(goal.options, numerics):
            return None
        message = "to compute it where it is read does not lower the peak"
        refusal = Refusal.of_value(self.main, self.path, value, "no-gain", message)
        return Candidate(
            step=Step(ComputeWhereRead.name, "", params),
            saved_bytes=self.graph.values[value].nbytes,
            added_seconds=block_runs(self.main, self.path) * self.added_seconds(value, params),
            numerics=numerics,
            summary=f"compute {refusal.value} again at each place that reads it, instead of keeping it",
            identity=(ComputeWhereRead.name, self.path, value),
            refusal_if_useless=refusal,
        )

    def inside(self, kernel: int) -> list[Op]:
        """The ops that a kernel computes."""
        return [self.graph.ops[op] for op in self.buffers.computed_in.get(kernel, ())]

    def results_of(self, params: WhereRead) -> list[int]:
        return [self.graph.ops[dot].results[0] for dot in params.sums]

    def params(self, value: int) -> WhereRead | None:
        """How a value can be computed in the kernels that read it."""
        branching = self.branching(value)
        chain = self.chain(branching, value)
        if chain is None:
            return None
        ops, sources = chain
        sums: list[int] = []
        for kernel in self.buffers.readers.get(value, ()):
            inside = self.inside(kernel)
            # An outer product is a multiplication of broadcasts.
            dots = [op for op in inside if CLASSES.get(op.name) is Class.DOT and dot_sizes(self.graph, op)[3] > 1]
            if not all(self.is_vector_product(dot) for dot in dots) or not self.takes_in(kernel, inside, value):
                return None
            sums += [dot.index for dot in dots]
        readers = self.readers(branching, sums)
        if not readers or (not sums and len(readers) == 1):
            return None
        return WhereRead(
            path=self.path,
            value=branching,
            ops=ops,
            sources=sources,
            readers=readers,
            sums=tuple(dict.fromkeys(sums)),
        )

    def branching(self, value: int) -> int:
        """What is computed of a value before kernels differ: the same, or the end of a chain of its only users."""
        while len(self.graph.users[value]) == 1:
            user = self.graph.ops[self.graph.users[value][0]]
            if classify(self.graph, user) not in ELEMENTWISE or user.index in self.buffers.kernels[user.index]:
                break
            value = user.results[0]
        return value

    def chain(self, value: int, written: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The ops that compute a value on the fly, and what they read; None if some cannot be fused into kernels.

        Args:
            written: the value before it that is written now.
        """
        graph, materialised = self.graph, self.buffers.materialised
        sources: dict[int, None] = {}
        pending, ops = [graph.values[value].producer], set[int]()
        while pending:
            op = graph.ops[pending.pop()]
            if op.index in ops or classify(graph, op) is Class.GENERATE:
                continue
            if not self.is_elementwise(op) or len(ops) == _MOST_OPS:
                return None
            ops.add(op.index)
            for v in op.inputs:
                is_read = materialised[v] and v != written and not self.is_short_sum(v)
                if is_read or not graph.values[v].is_computed:
                    sources[v] = None
                else:
                    pending.append(graph.values[v].producer)
        read = sum(graph.values[v].nbytes for v in sources)
        is_small = read <= _READ_SHARE * graph.values[value].nbytes
        return (tuple(sorted(ops)), tuple(sources)) if is_small and sources else None

    def is_elementwise(self, op: Op) -> bool:
        """Whether an op fuses, as it is or when `unroll-reductions` has seen to it."""
        kind = classify(self.graph, op)
        if kind is Class.REDUCE:
            return compiler_model(self.chip).is_short_reduction(self.graph, op)
        return (kind in FUSIBLE or kind is Class.VIEW) and op.name != "stablehlo.reduce_window"

    def is_short_sum(self, value: int) -> bool:
        op = self.graph.producer(value)
        return op is not None and classify(self.graph, op) is Class.REDUCE and self.is_elementwise(op)

    def is_vector_product(self, dot: Op) -> bool:
        """Whether a dot multiplies by a vector, in floats, and says nothing of how."""
        rows, columns, _, _ = dot_sizes(self.graph, dot)
        values = [self.graph.values[v] for v in (*dot.operands, *dot.results)]
        is_plain = "algorithm" not in self.graph.handles[dot.index].attributes
        return min(rows, columns) == 1 and is_plain and all(v.dtype in FLOATS for v in values)

    def takes_in(self, kernel: int, inside: Sequence[Op], value: int) -> bool:
        """Whether a kernel reads each element of a value once, by ops that can be fused with what computes it."""
        graph, names = self.graph, {op.index for op in inside}
        passes = lambda op: op.index in names or classify(graph, op) is Class.VIEW  # noqa: E731
        following = readers_through(graph, [value], passes) & names
        spreads = (op for op in (graph.ops[u] for u in following) if op.name == "stablehlo.broadcast_in_dim")
        if any(enlarges(graph, op) for op in spreads):
            return False
        kind = classify(graph, graph.ops[kernel])
        return kind in FUSIBLE or (kind in (Class.REDUCE, Class.DOT) and len(graph.ops[kernel].results) == 1)

    def readers(self, value: int, sums: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """The ops that use a value, those of the same kernels together; () if a view hides them."""
        groups: list[tuple[set[int], set[int]]] = []
        for user in self.graph.users[value]:
            kernels = set(self.buffers.kernels[user])
            if not kernels:
                return ()
            users = {user}
            for group in [g for g in groups if g[1] & kernels]:
                groups.remove(group)
                users |= group[0]
                kernels |= group[1]
            groups.append((users, kernels))
        # Those that sum keep the original: what it shares with others hinders only kernels that write.
        summing = {kernel for dot in sums for kernel in self.buffers.kernels[dot]}
        groups.sort(key=lambda group: (not group[1] <= summing, min(group[0])))
        return tuple(tuple(sorted(users)) for users, _ in groups)

    def added_seconds(self, value: int, params: WhereRead) -> float:
        """What one run of the block takes more: infinitely more where that is nearly nothing less."""
        graph, chip = self.graph, self.chip
        again = sum(arithmetic_seconds(graph, graph.ops[op], chip) for op in params.ops)
        old = self.kernel_seconds(graph.values[value].producer)
        new = 0.0
        for op in (graph.ops[kernel] for kernel in self.buffers.readers.get(value, ())):
            inside = self.inside(op.index)
            old += self.kernel_seconds(op.index)
            others = [one for one in inside if one.index not in params.ops]
            dots = [one for one in others if multiplies(graph, one) and one.index not in params.sums]
            lanes = again + sum(self.summed_seconds(one, params) for one in others if one not in dots)
            arithmetic = max(lanes, kernel_arithmetic_seconds(graph, dots, chip))
            traffic = traffic_seconds(graph, op, self.buffers, chip, but=value)
            sums = sum(one.index in params.sums for one in inside)
            new += max(arithmetic, traffic) + chip.launch_seconds * (1 + sums * (_PARTIAL_SUMS - 1))
        return new - old if new < _WORTHWHILE_SHARE * old else max(0.0, new - old)

    def summed_seconds(self, op: Op, params: WhereRead) -> float:
        """Seconds of an op's arithmetic; of a dot that becomes a sum, of its products and their sum."""
        if op.index not in params.sums:
            return arithmetic_seconds(self.graph, op, self.chip)
        rows, columns, batch, depth = dot_sizes(self.graph, op)
        return vector_seconds(2.0 * rows * columns * batch * depth, 0, self.chip)

    def kernel_seconds(self, kernel: int) -> float:
        """Of a kernel by itself."""
        graph = self.graph
        arithmetic = kernel_arithmetic_seconds(graph, self.inside(kernel), self.chip)
        traffic = traffic_seconds(graph, graph.ops[kernel], self.buffers, self.chip)
        return max(arithmetic, traffic) + self.chip.launch_seconds


def _repeated(graph: Graph, params: WhereRead, first_user: Any) -> Any:
    """The value of a step, computed again before an op from what its ops read, behind a barrier."""
    with builders.building(first_user, graph.handles[params.ops[-1]].location):
        sources = [graph.mlir_values[v] for v in params.sources]
        values: dict[Any, Any] = {v: set_apart(v) for v in sources}
        builders.repeat_ops([graph.handles[op] for op in params.ops], values)
    return values[graph.mlir_values[params.value]]


def _sum_of_products(graph: Graph, dot: Op) -> Any:
    """A matrix times a vector, with batch dimensions perhaps, as a multiplication and a sum."""
    handle, numbers = graph.handles[dot.index], dot_numbers(graph, dot)
    _, columns, _, _ = dot_sizes(graph, dot)
    result = handle.results[0].type
    sides = [*zip(numbers.batching, numbers.contracting, strict=True)]
    matrix, vector = (0, 1) if columns == 1 else (1, 0)
    (batch, summed), (vector_batch, vector_summed) = sides[matrix], sides[vector]
    large, small = handle.operands[matrix], handle.operands[vector]
    element = _summed_type(graph, dot, result)
    # Batch and contracting dimensions of the vector come to lie as the matrix has them.
    to = dict(zip((*vector_batch, *vector_summed), (*batch, *summed), strict=True))
    order = [*sorted(to, key=lambda d: to[d]), *(d for d in range(len(small.type.shape)) if d not in to)]
    laid = builders.transposed(builders.convert(small, element), order)
    laid = builders.reshaped(laid, [small.type.shape[d] for d in order[: len(to)]])
    wide = builders.convert(large, element)
    product = stablehlo.multiply(wide, builders.broadcast(laid, wide.type, sorted(to.values())))
    total = builders.reduced(product, sorted(summed), 0, stablehlo.add)
    kept = [d for d in range(len(large.type.shape)) if d not in summed]
    total = builders.transposed(total, [kept.index(d) for d in (*batch, *(d for d in kept if d not in batch))])
    return builders.convert(builders.reshaped(total, result.shape), result.element_type)


def _summed_type(graph: Graph, dot: Op, result: Any) -> Any:
    """The type of the sum: float32 for narrower floats."""
    return ir.F32Type.get() if graph.values[dot.results[0]].dtype in NARROW_FLOATS else result.element_type
