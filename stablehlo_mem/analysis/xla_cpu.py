"""XLA:CPU: how it fuses, hoists, schedules and copies. `compilers` picks this model for chips of kind "cpu".

XLA:CPU hands reductions to YNNPACK, with the producers that YNNPACK knows. Such a fusion grows from a reduction up, to
ops that nobody else needs: `ynn_support.cc` and `library_rewriter.cc` of XLA.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from stablehlo_mem.analysis.compiler_model import CompilerModel, Kernels
from stablehlo_mem.analysis.fusion_classes import (
    CLASSES,
    Class,
    features_last,
    reduced_length,
    selection_index_bytes,
    transposed_operands,
)
from stablehlo_mem.analysis.loop_invariants import invariant_ops
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import FLOATS, NARROW_FLOATS, Graph, Op, dtype_bytes
from stablehlo_mem.ir.op_attributes import integers, is_grouped, window_elements

_WINDOW = 32
"""Elements of a longer reduced dimension that are reduced at a time, where YNNPACK does not reduce them: the
`TreeReductionRewriter` of `cpu_compiler.cc`."""
_UNHOISTED = frozenset(
    f"stablehlo.{name}" for name in ("broadcast_in_dim", "constant", "iota", "reverse", "slice", "transpose")
)
"""These, and views, are hoisted only together with others that need them: `while_loop_invariant_code_motion.cc`."""
_MOST_OPS = 100
"""Ops of a YNNPACK fusion, its operands included: the rest of a longer chain is written to memory (seen on CPU)."""
_STREAMED_LENGTH = 256
"""Elements of a dimension that is reduced while it is computed: longer ones run faster in loops that stay in the cache
(measured on CPU)."""
_COMPARISON_SECONDS = 1.2e-8
"""A comparison of a sort, which one core makes one after the other (measured; so are the next three figures, on a
server with two cores: they need not be exact, but vectorised arithmetic is a hundred times faster)."""
_PASSED_OVER_SECONDS = 1.3e-9
"""An element that a top-k compares with the least of the k largest so far, on one core."""
_SELECTION_SECONDS = 1e-8
"""An element of a window of a `select_and_scatter`, the gradient of max-pooling."""
_GROUPED_SECONDS = 3e-9
"""An element of the result of a grouped convolution, for each element of its window."""
_NARROWEST = ("E3M4", "E4M3", "E4M3B11FNUZ", "E4M3FN", "E4M3FNUZ", "E5M2", "E5M2FNUZ")
"""The floats of eight bits, as MLIR names them."""
_REDUCERS = frozenset({"stablehlo.add", "stablehlo.maximum", "stablehlo.minimum"})
_UNARY = (
    "abs ceil convert exponential exponential_minus_one floor log log_plus_one logistic negate round_nearest_even rsqrt"
    " sign sqrt tanh"
)
_BINARY = "add divide maximum minimum multiply power subtract"
_MOVES = "broadcast_in_dim concatenate pad reshape transpose"
_FUSED = frozenset({"chlo.erf", *(f"stablehlo.{name}" for name in f"{_UNARY} {_BINARY} {_MOVES}".split())})


class XlaCpu(CompilerModel):
    """XLA:CPU."""

    reads_from_memory = frozenset(
        {"stablehlo.concatenate", "stablehlo.reduce_window", "stablehlo.scatter", "stablehlo.sort"}
    )
    runs_breadth_first = True
    """So that kernels can run at the same time: `BFScheduler` in `hlo_memory_scheduler.h`."""
    needs_delayed_writes = True
    widens_slices = frozenset({"bf16", *(f"f8{form}" for form in _NARROWEST)})
    """All floats that LLVM has no instructions for: `FloatNormalization` in `cpu_compiler.cc`."""
    ordered_dots = frozenset({"bf16"})
    """The only narrow floats that YNNPACK multiplies and XLA:CPU has no kernel of its own for (docs/xla_bugs.md)."""
    keeps_barriers = False
    """`jax.checkpoint` around unrolled layers saves nothing there (seen in compiled programs)."""

    def materialises(self, graph: Graph, value: int, kind: Class, kernels: Kernels, reused: bool, uses: float) -> bool:
        """An expensive one, unless it is computed once."""
        return kind is Class.EXPENSIVE and (reused or len(kernels) > 1)

    def fuses_reduction(self, graph: Graph, op: Op, kernels: Kernels) -> bool:
        """An argmin, which is a kernel of XLA's own, does not take in what YNNPACK reduces."""
        return all(len(graph.ops[k].results) == 1 for k in kernels) or not reduces(graph, op)

    def dot_operands_in_memory(self, graph: Graph, dot: Op) -> Collection[int]:
        """All: a dot is a call of a library."""
        return dot.operands

    def reduces_as_tree(self, graph: Graph, op: Op) -> bool:
        """One with a single result and a long dimension."""
        return len(op.results) == 1 and reduced_length(graph, op) > _WINDOW

    def starts_library_fusion(self, graph: Graph, op: Op) -> bool:
        """YNNPACK's."""
        return reduces(graph, op)

    def joins_library_fusion(self, graph: Graph, op: Op) -> bool:
        """If YNNPACK knows the op and the fusion has all its users."""
        if not _is_fused(graph, op):
            return False
        return len(graph.users[op.results[0]]) == 1 or bool(_fused_after(graph, op))

    def room_in_fusion(self, graph: Graph, op: Op) -> float:
        """What is left of a YNNPACK fusion."""
        after = _fused_after(graph, op)
        return _MOST_OPS - after if after else math.inf

    def streamed_into(self, graph: Graph, value: int) -> int | None:
        """YNNPACK reduces short dimensions so; what the reduction needs as scratch it does not need then either."""
        return _streamed_into(graph, value)

    def serial_seconds(self, graph: Graph, op: Op) -> float:
        """Sorts, top-k, gradients of max-pooling, grouped convolutions: loops over elements, as LLVM compiles them."""
        if op.name == "stablehlo.sort":
            shape = graph.values[op.operands[0]].shape
            length = shape[ir.IntegerAttr(graph.handles[op.index].attributes["dimension"]).value] if shape else 1
            return _COMPARISON_SECONDS * math.prod(shape) * math.log2(max(2, length))
        if op.name == "chlo.top_k":
            return _top_k_seconds(graph.values[op.operands[0]].shape, graph.values[op.results[0]].shape[-1])
        if op.name == "stablehlo.select_and_scatter":
            source = graph.values[op.operands[1]].shape
            return _SELECTION_SECONDS * math.prod(source) * math.prod(integers(graph, op, "window_dimensions"))
        if op.name == "stablehlo.convolution" and is_grouped(graph, op):
            return _GROUPED_SECONDS * math.prod(graph.values[op.results[0]].shape) * window_elements(graph, op)
        return 0.0

    def reduces_side_by_side(self, graph: Graph, op: Op) -> bool:
        """If LLVM compiles it, not YNNPACK, and the last dimension is left: `i32[n,8,16]` takes its traffic's time."""
        last = len(graph.values[op.operands[0]].shape) - 1
        return not reduces(graph, op) and last not in integers(graph, op, "dimensions")

    def hoisted_values(self, body: Graph) -> frozenset[int]:
        """What no iteration changes, whatever its size: `while_loop_invariant_code_motion.cc`."""
        return _hoisted_values(body)

    def reduction_scratch_bytes(self, graph: Graph, op: Op) -> int:
        """One element for each window of the tree's first level."""
        if not self.reduces_as_tree(graph, op):
            return 0
        source, reduced = graph.values[op.operands[0]], integers(graph, op, "dimensions")
        shape = [-(-n // _WINDOW) if d in reduced else n for d, n in enumerate(source.shape)]
        return int(math.prod(shape) * dtype_bytes(source.dtype))

    def dot_scratch_bytes(self, graph: Graph, dot: Op) -> int:
        """The float32 copies of operands and result in a narrower float (seen in its reports)."""
        values = [graph.values[v] for v in (*dict.fromkeys(dot.operands), *dot.results)]
        return sum(2 * v.nbytes for v in values if v.dtype in NARROW_FLOATS)

    def early_dot_copies(self, graph: Graph, dot: Op) -> Collection[int]:
        """Operands whose batch dimensions do not come first: the copy is a kernel, run breadth-first like others."""
        return transposed_operands(graph, dot)

    def kernel_scratch_bytes(self, graph: Graph, op: Op) -> int:
        """What a convolution copies to have features last, and the indices of a selection."""
        if op.name == "stablehlo.select_and_scatter":
            # The indices of all elements are written to memory too, and the elements selected.
            indices = sum(selection_index_bytes(graph, v) for v in op.operands[:2])
            return indices + graph.values[op.operands[1]].nbytes
        if op.name != "stablehlo.convolution":
            return super().kernel_scratch_bytes(graph, op)
        if features_last(graph, op):
            return 0
        return graph.values[op.operands[0]].nbytes + graph.values[op.results[0]].nbytes


def _top_k_seconds(shape: tuple[int, ...], k: int) -> float:
    """Seconds of `std::partial_sort`: all elements pass a heap of k, which k (1 + ln(n / k)) of random ones enter."""
    rows, n = math.prod(shape[:-1]), shape[-1]
    entering = k * (1 + math.log(max(1, n) / max(1, k)))
    return rows * (n * _PASSED_OVER_SECONDS + entering * math.log2(max(2, k)) * _COMPARISON_SECONDS)


@cached_analysis
def _hoisted_values(body: Graph) -> frozenset[int]:
    names = {op: body.ops[op].name for op in invariant_ops(body)}
    hoisted = {op for op, name in names.items() if name not in _UNHOISTED and CLASSES.get(name) is not Class.VIEW}
    values = (v for op in sorted(hoisted) for v in body.ops[op].results)
    return frozenset(v for v in values if body.values[v].shape and not hoisted.issuperset(body.users[v]))


def reduces(graph: Graph, op: Op) -> bool:
    """Whether YNNPACK can do a reduction: sums and extrema of floats."""
    reducers = {inner.name for block in op.blocks for inner in block.ops[:-1]}
    return op.name == "stablehlo.reduce" and reducers <= _REDUCERS and _is_float(graph, op)


def _fused_after(graph: Graph, op: Op) -> int:
    """The number of ops after an op in the fusion that takes it in, its last reduction included; 0 if none does."""
    following = _following(graph, op)
    ends = (i for i in reversed(following) if graph.ops[i].name == "stablehlo.reduce")
    return next((count for end in ends if (count := _ops_after(graph, op.index, end, following))), 0)


@cached_analysis
def _streamed_into(graph: Graph, value: int) -> int | None:
    op = graph.producer(value)
    while op is not None and op.name in _FUSED and _is_float(graph, op):
        users = {u for v in op.results for u in graph.users[v]}
        op = graph.ops[users.pop()] if len(users) == 1 else None
        if op is not None and reduces(graph, op):
            shape = graph.values[op.operands[0]].shape
            reduced = math.prod(shape[d] for d in integers(graph, op, "dimensions"))
            return op.index if reduced <= _STREAMED_LENGTH else None
    return None


def _is_float(graph: Graph, op: Op) -> bool:
    return all(graph.values[v].dtype in FLOATS for v in op.results)


def _is_fused(graph: Graph, op: Op) -> bool:
    """Whether YNNPACK knows an op."""
    return (op.name in _FUSED and _is_float(graph, op)) or reduces(graph, op)


@cached_analysis
def _following(graph: Graph, op: Op) -> tuple[int, ...]:
    """The users of an op's results, their users and so on, as far as YNNPACK knows them; in program order."""
    following: set[int] = set()
    pending = [op]
    while pending and len(following) <= _MOST_OPS:
        users = {u for v in pending.pop().results for u in graph.users[v]} - following
        fused = {u for u in users if _is_fused(graph, graph.ops[u])}
        following |= fused
        pending += [graph.ops[u] for u in fused]
    return tuple(sorted(following))


def _ops_after(graph: Graph, op: int, end: int, following: tuple[int, ...]) -> int:
    """The number of ops after an op in the fusion that ends in a reduction, 0 if the fusion does not take the op in."""
    inside = {end}
    for i in (op, *following)[::-1]:
        users = {u for v in graph.ops[i].results for u in graph.users[v]}
        if users and users <= inside:
            inside.add(i)
    return len(inside) - 1 if op in inside else 0
