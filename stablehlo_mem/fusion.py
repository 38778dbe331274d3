"""What each kind of target keeps in memory: which values of a block get a buffer, and who reads it.

XLA's compilers fuse ops into kernels. A kernel is named by the op that writes its result; every other op in it is
fused away. The model has one table (`CLASSES`) and one backward sweep (`plan_buffers`), in which each op tells its
operands whether it computes them on the fly or reads them from memory.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import Any

from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.graph import Graph, Op, Value, dtype_bytes
from stablehlo_mem.targets.chips import Chip


class Class(enum.Enum):
    """How an op meets fusion."""

    VIEW = enum.auto()  # its operand's buffer under another type
    GENERATE = enum.auto()  # no data to read: made again wherever it is used
    CHEAP = enum.auto()  # elementwise, made again in every kernel that uses it
    EXPENSIVE = enum.auto()  # elementwise, kept when several kernels use it
    MOVE = enum.auto()  # moves elements: fused like CHEAP, but never written over its operand
    REDUCE = enum.auto()
    DOT = enum.auto()
    UPDATE = enum.auto()  # writes each result over the operand in the same place
    CONTROL = enum.auto()  # has blocks of its own
    RETURN = enum.auto()
    OPAQUE = enum.auto()  # a kernel of its own: operands and results in memory


CLASSES: dict[str, Class] = {
    **dict.fromkeys(
        (
            "stablehlo.reshape",
            "stablehlo.optimization_barrier",
            "stablehlo.bitcast_convert",
            "stablehlo.get_tuple_element",
            "mhlo.bitcast",
            "sdy.sharding_constraint",
        ),
        Class.VIEW,
    ),
    **dict.fromkeys(
        (
            "stablehlo.constant",
            "stablehlo.iota",
            "stablehlo.create_token",
            "stablehlo.after_all",
            "stablehlo.partition_id",
            "stablehlo.replica_id",
            "chlo.constant",
        ),
        Class.GENERATE,
    ),
    **{
        f"stablehlo.{name}": Class.CHEAP
        for name in (
            "abs",
            "add",
            "and",
            "ceil",
            "clamp",
            "compare",
            "complex",
            "convert",
            "count_leading_zeros",
            "floor",
            "imag",
            "is_finite",
            "maximum",
            "minimum",
            "multiply",
            "negate",
            "not",
            "or",
            "popcnt",
            "real",
            "reduce_precision",
            "round_nearest_afz",
            "round_nearest_even",
            "select",
            "shift_left",
            "shift_right_arithmetic",
            "shift_right_logical",
            "sign",
            "subtract",
            "xor",
            "map",
        )
    },
    **{
        f"stablehlo.{name}": Class.EXPENSIVE
        for name in (
            "atan2",
            "cbrt",
            "cosine",
            "divide",
            "exponential",
            "exponential_minus_one",
            "log",
            "log_plus_one",
            "logistic",
            "power",
            "remainder",
            "rsqrt",
            "sine",
            "sqrt",
            "tan",
            "tanh",
        )
    },
    **{
        f"chlo.{name}": Class.EXPENSIVE
        for name in (
            "acos",
            "acosh",
            "asin",
            "asinh",
            "atan",
            "atanh",
            "bessel_i1e",
            "cosh",
            "digamma",
            "erf",
            "erf_inv",
            "erfc",
            "lgamma",
            "next_after",
            "polygamma",
            "sinh",
            "square",
            "tan",
            "zeta",
        )
    },
    **{
        f"stablehlo.{name}": Class.MOVE
        for name in (
            "broadcast_in_dim",
            "concatenate",
            "dynamic_slice",
            "gather",
            "pad",
            "reduce_window",
            "reverse",
            "slice",
            "transpose",
        )
    },
    "stablehlo.reduce": Class.REDUCE,
    "stablehlo.dot_general": Class.DOT,
    "stablehlo.dynamic_update_slice": Class.UPDATE,
    "stablehlo.scatter": Class.UPDATE,
    "stablehlo.sort": Class.UPDATE,
    **dict.fromkeys(("stablehlo.while", "stablehlo.case", "stablehlo.if"), Class.CONTROL),
    **dict.fromkeys(("func.return", "stablehlo.return", "sdy.return"), Class.RETURN),
}
"""Any op that is not named here is OPAQUE."""

ELEMENTWISE = frozenset({Class.CHEAP, Class.EXPENSIVE})
_FUSIBLE = ELEMENTWISE | {Class.MOVE}
_SLICES = frozenset({"stablehlo.slice", "stablehlo.dynamic_slice", "stablehlo.gather"})
_MAX_COPIES = 8
"""A value used by more kernels than this is kept even if cheap."""
_DRAWN_DEPTH = 48
"""A value made from nothing by a longer chain of ops (random numbers) is made once and kept."""
_CUSTOM_TOP_K = 16
"""XLA:GPU sorts for a longer top-k."""
_FROM_MEMORY: dict[str, frozenset[str]] = {
    "cpu": frozenset({"stablehlo.concatenate", "stablehlo.reduce_window", "stablehlo.scatter", "stablehlo.sort"}),
    "cuda": frozenset({"stablehlo.sort"}),
    "tpu": frozenset(
        {"stablehlo.concatenate", "stablehlo.gather", "stablehlo.reduce_window", "stablehlo.scatter", "stablehlo.sort"}
    ),
}
"""Ops that a kind of target does not fuse with what computes their operands, though others do."""
_KEPT_RESULTS = frozenset({"stablehlo.concatenate", "stablehlo.gather", "stablehlo.reduce_window"})
"""Moves that the TPU does not fuse into their users either."""
_CPU_WINDOW = 32
"""XLA:CPU reduces longer dimensions in windows of this many elements, as a tree, and reads them from memory."""
_CUDA_ROW = 4096
"""XLA:GPU reduces longer dimensions in two steps, with about the square root of their length partial results."""
_CUDA_NESTED = 16
"""XLA:GPU computes a reduction inside the next one if that is one step, this many times longer ..."""
_CUDA_CACHE = 50 * 2**20
"""... and what it reads fits the L2 cache."""
_CUDA_TILES = 4 * 132
"""XLA:GPU splits the contraction of a dot with fewer output tiles than four waves of blocks."""


@dataclasses.dataclass(frozen=True)
class Buffers:
    """What one block keeps in memory.

    Attributes:
        materialised: per value, whether it has a buffer; always False for arguments and captures.
        reads: per op, the values its kernel reads from memory; empty for ops fused away.
        aligned: per op, those of `reads` it reads only at the place it writes: the result may be written over them.
        scratch: per op, bytes its kernel needs beside operands and results.
    """

    materialised: tuple[bool, ...]
    reads: tuple[tuple[int, ...], ...]
    aligned: tuple[tuple[int, ...], ...]
    scratch: tuple[int, ...]


def classify(op: Op) -> Class:
    """The class of an op."""
    return CLASSES.get(op.name, Class.OPAQUE)


def buffer_bytes(value: Value, chip: Chip) -> int:
    """Bytes of a value's buffer on a chip: padded to tiles of the two minor dimensions, whichever order wastes less."""
    if chip.tile == (1, 1) or len(value.shape) < 2:
        return value.nbytes
    rows, columns = value.shape[-2:]
    if not rows or not columns:
        return 0
    packing = max(1, int(4 // max(dtype_bytes(value.dtype), 0.5)))
    high, wide = chip.tile[0] * packing, chip.tile[1]
    padded = min(_pad(rows, high) * _pad(columns, wide), _pad(columns, high) * _pad(rows, wide))
    return value.nbytes * padded // (rows * columns)


def invariant_carries(op: Op) -> tuple[bool, ...]:
    """For each carry of a while, whether its body hands it on unchanged."""
    body = op.blocks[1]
    return tuple(a == r for a, r in zip(body.arguments, body.returned, strict=True))


def plan_buffers(graph: Graph, chip: Chip) -> Buffers:
    """Decides for a block which values have buffers and which kernels read them. Linear in ops."""
    sweep = _Sweep(graph, chip)
    for op in reversed(graph.ops):
        sweep.visit(op)
    return sweep.result()


def _pad(size: int, tile: int) -> int:
    return -(-size // tile) * tile


class _Sweep:
    """The backward sweep: users are visited before producers.

    Attributes:
        hard: per value, the kernels that read it from memory whatever it is.
        soft: per value, the kernels that would compute it on the fly.
        moved: per value, the kernels that read it elsewhere than where they write.
        reused: per value, whether some kernel would compute its elements more than once (a broadcast follows).
        gemm: per value, whether a kernel takes it only as a chain of unary ops.
        chain: per value, whether only unary ops lie between it and the end of its one kernel.
        with_dot: kernels that compute a dot before their own op; there is room for one.
        generated: per value, whether it is made from constants, iotas and scalars alone.
        drawn: per value, whether it is generated by so many ops that it is made once.
    """

    def __init__(self, graph: Graph, chip: Chip) -> None:
        count = len(graph.values)
        self.graph = graph
        self.chip = chip
        self.hard: list[set[int]] = [set() for _ in range(count)]
        self.soft: list[set[int]] = [set() for _ in range(count)]
        self.moved: list[set[int]] = [set() for _ in range(count)]
        self.reused = [False] * count
        self.gemm = [False] * count
        self.chain = [False] * count
        self.materialised = [False] * count
        self.scratch = [0] * len(graph.ops)
        self.with_dot: set[int] = set()
        self.generated, self.drawn = _find_generated(graph)

    def visit(self, op: Op) -> None:
        kind = classify(op)
        for value in op.operands:
            if self.drawn[value] and not (op.results and self.generated[op.results[0]]):
                self.hard[value].add(op.index)
        if kind is Class.VIEW:
            self._pass_through(zip(op.operands, op.results, strict=False))
        elif kind is Class.GENERATE:
            for value in op.results:
                self.materialised[value] = bool(self.hard[value]) and op.name != "stablehlo.constant"
        elif kind in _FUSIBLE:
            self._visit_fusible(op, kind)
        elif kind is Class.REDUCE:
            self._visit_reduce(op)
        elif kind is Class.DOT and dot_sizes(self.graph, op)[3] == 1:
            self._visit_fusible(op, Class.CHEAP)  # an outer product: every compiler multiplies broadcasts
        elif kind is Class.DOT:
            self._visit_dot(op)
        else:
            self._visit_kernel(op, kind)

    def _pass_through(self, pairs: Any) -> None:
        for operand, result in pairs:
            self.hard[operand] |= self.hard[result]
            self.soft[operand] |= self.soft[result]
            self.moved[operand] |= self.moved[result]
            self.reused[operand] |= self.reused[result]
            self.gemm[operand] |= self.gemm[result]
            self.chain[operand] = self.chain[result] and len(self.graph.users[operand]) == 1

    def _visit_fusible(self, op: Op, kind: Class) -> None:
        value = op.results[0]
        if op.name == "stablehlo.divide" and self._is_broadcast(op.operands[1]):
            kind = Class.CHEAP  # the reciprocal is taken first, of the small operand
        tensors = self._tensors(op)
        kept = self._is_kept(value, kind, len(tensors)) or (op.name in _KEPT_RESULTS and self.chip.kind == "tpu")
        self.materialised[value] = kept
        kernels = {op.index} if kept else self.soft[value]
        self._charge_relayout(op, kernels)
        wide = [v for v in tensors if not self._is_broadcast(v)]
        if self.hard[value] and kind is not Class.EXPENSIVE and len(wide) <= 1 and self.chip.kind != "cuda":
            # Kept for some kernels; as it reads no more than its result the others compute it again.
            kernels = kernels | self.soft[value]
            self.soft[value] = set()
        in_memory = op.name in _FROM_MEMORY[self.chip.kind]
        if op.name == "stablehlo.reduce_window" and self.chip.kind != "tpu":
            for kernel in kernels:
                self.scratch[kernel] += self.graph.values[value].nbytes // 16  # the upper levels of a scan's tree
        for operand in op.operands:
            (self.hard if in_memory else self.soft)[operand].update(kernels)
            self.moved[operand] |= kernels if kind is Class.MOVE else self.moved[value] - {op.index}
            self.reused[operand] |= self._enlarges(op, operand) or (not kept and self.reused[value])
            self.gemm[operand] |= not kept and self.gemm[value]
            self.chain[operand] = (
                len(self.graph.users[operand]) == 1
                and len(tensors) == 1
                and kind in ELEMENTWISE
                and (kept or self.chain[value])
            )

    def _is_kept(self, value: int, kind: Class, tensors: int) -> bool:
        copies = len(self.soft[value])
        if self.hard[value] or copies > _MAX_COPIES:
            return True
        if self.gemm[value] and (tensors > 1 or copies > 1):
            return True
        return kind is Class.EXPENSIVE and self._is_worth_keeping(value)

    def _is_worth_keeping(self, value: int) -> bool:
        """Whether a target keeps an expensive value rather than computing it in each kernel that uses it.

        The TPU never does; XLA:GPU does not if all those kernels are reductions, which wait for memory anyway.
        """
        if self.chip.kind == "tpu":
            return False
        kernels = self.soft[value]
        only_reductions = all(classify(self.graph.ops[k]) is Class.REDUCE for k in kernels)
        return self.reused[value] or (len(kernels) > 1 and not (self.chip.kind == "cuda" and only_reductions))

    def _charge_relayout(self, op: Op, kernels: set[int]) -> None:
        """Charges kernels that broadcast a narrow argument on a TPU for its copy with full tiles."""
        source = self.graph.values[op.operands[0]]
        if self.chip.kind != "tpu" or len(source.shape) < 2 or not self._enlarges(op, source.index):
            return
        width, tile = source.shape[-1], self.chip.tile[1]
        if 0 < width < tile and self.graph.values[_origin(self.graph, source.index)].producer < 0:
            for kernel in kernels:
                self.scratch[kernel] += source.nbytes * tile // width

    def _tensors(self, op: Op) -> list[int]:
        """The distinct operands that hold data of their own: no scalars, constants, iotas or broadcast scalars."""
        return [v for v in dict.fromkeys(op.operands) if not self.generated[v]]

    def _is_broadcast(self, value: int) -> bool:
        producer = self.graph.producer(value)
        return producer is not None and producer.name in ("stablehlo.broadcast_in_dim", "stablehlo.constant")

    def _enlarges(self, op: Op, operand: int) -> bool:
        return op.name == "stablehlo.broadcast_in_dim" and (
            self.graph.values[op.results[0]].nbytes > self.graph.values[operand].nbytes
        )

    def _visit_reduce(self, op: Op) -> None:
        length = self._reduced_length(op)
        tree = self.chip.kind == "cpu" and len(op.results) == 1 and length > _CPU_WINDOW
        kept = tree or not self._is_fused_reduce(op, length)
        for value in op.results:
            self.materialised[value] = kept
        kernels = {op.index} if kept else self.soft[op.results[0]]
        for operand in map(self._below_sign, op.operands) if _is_sum(op) else op.operands:
            (self.hard if tree else self.soft)[operand].update(kernels)
            self.reused[operand] |= not kept and self.reused[op.results[0]]
        self.scratch[op.index] += self._reduce_scratch(op, tree)

    def _is_fused_reduce(self, op: Op, length: int) -> bool:
        """Whether the one kernel that uses a reduction's result computes it too."""
        value = op.results[0]
        if len(op.results) > 1 or self._is_kept(value, Class.EXPENSIVE, 2) or self.chip.kind == "tpu":
            return False
        if self.chip.kind == "cpu" or not self.soft[value]:
            return True
        user = self.graph.ops[next(iter(self.soft[value]))]
        if len(self.soft[value]) > 1 or classify(user) is not Class.REDUCE or len(user.results) == 1:
            return False  # an argmin takes in the sums it compares, a minimum does not
        if not _CUDA_NESTED * length <= self._reduced_length(user) <= _CUDA_ROW:
            return False
        return self._source_bytes(op.operands[0]) <= _CUDA_CACHE

    def _below_sign(self, value: int) -> int:
        """The value without the negations before it: every compiler moves them behind a sum."""
        producer = self.graph.producer(value)
        while producer is not None and producer.name == "stablehlo.negate":
            value = producer.operands[0]
            producer = self.graph.producer(value)
        return value

    def _source_bytes(self, value: int) -> int:
        """Bytes of the largest value read by the fused expression of `value`; a slice counts as what it takes."""
        largest, stack, seen = 0, [value], {value}
        while stack:
            v = stack.pop()
            producer = self.graph.producer(v)
            if producer is None or classify(producer) not in _FUSIBLE or producer.name in _SLICES:
                largest = max(largest, self.graph.values[v].nbytes)
                continue
            stack.extend(o for o in producer.operands if o not in seen)
            seen.update(producer.operands)
        return largest

    def _reduced_length(self, op: Op) -> int:
        shape = self.graph.values[op.operands[0]].shape
        return max((shape[d] for d in _integers(self.graph, op, "dimensions")), default=1)

    def _reduce_scratch(self, op: Op, tree: bool) -> int:
        """Bytes of the partial results of a reduction in several steps."""
        source = self.graph.values[op.operands[0]]
        reduced = _integers(self.graph, op, "dimensions")
        if tree:
            shape = [-(-n // _CPU_WINDOW) if d in reduced else n for d, n in enumerate(source.shape)]
            return int(math.prod(shape) * dtype_bytes(source.dtype))
        length = math.prod(source.shape[d] for d in reduced)
        if self.chip.kind == "cuda" and length > _CUDA_ROW:
            return sum(self.graph.values[v].nbytes for v in op.results) * math.isqrt(length)
        return 0

    def _visit_dot(self, op: Op) -> None:
        value = op.results[0]
        split = self._contraction_splits(op) if self.chip.kind == "cuda" else 1
        kept = not self._is_epilogue(value)
        self.materialised[value] = kept
        kernels = {op.index} if kept else self.soft[value]
        self.with_dot |= kernels
        for operand in op.operands:
            if self.chip.kind == "cpu" or split > 1:
                self.hard[operand] |= kernels
            else:
                self.soft[operand] |= kernels
                self.gemm[operand] |= self.chip.kind == "cuda"
        if split > 1:
            self.scratch[op.index] += self._split_scratch(op, split)
        if self.chip.kind == "cpu":
            self.scratch[op.index] += self._upcast_scratch(op) + self._transposed_bytes(op)

    def _is_epilogue(self, dot: int) -> bool:
        """Whether the one kernel that uses a dot's result computes it too."""
        if self.chip.kind == "cpu" or self.hard[dot] or len(self.soft[dot]) != 1 or self.reused[dot]:
            return False
        root = self.graph.ops[next(iter(self.soft[dot]))]
        if root.index in self.with_dot:
            return False
        return classify(root) in ELEMENTWISE and (self.chip.kind == "tpu" or self.chain[dot])

    def _contraction_splits(self, op: Op) -> int:
        rows, columns, batch, depth = dot_sizes(self.graph, op)
        tiles = -(-rows // 64) * -(-columns // 64) * batch
        splits = min(_CUDA_TILES // max(1, tiles), 256, depth // 1024)
        return 2 ** (splits.bit_length() - 1) if splits > 1 else 1

    def _upcast_scratch(self, op: Op) -> int:
        """Bytes of the float32 copies XLA:CPU makes of a dot's operands and result in a narrower float."""
        values = [self.graph.values[v] for v in (*dict.fromkeys(op.operands), *op.results)]
        return sum(2 * v.nbytes for v in values if v.dtype in ("bf16", "f16"))

    def _transposed_bytes(self, op: Op) -> int:
        """Bytes of XLA:CPU's copies of a dot's operands whose batch dimensions do not come first."""
        numbers: Any = _dot_numbers(self.graph, op)
        batches = (numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions)
        pairs = zip(op.operands, batches, strict=True)
        return sum(self.graph.values[v].nbytes for v, dims in pairs if list(dims) != list(range(len(dims))))

    def _split_scratch(self, op: Op, split: int) -> int:
        """Bytes of the partial results of a split contraction, and of its operands padded to whole parts."""
        depth = dot_sizes(self.graph, op)[3]
        partial = self.graph.values[op.results[0]].nbytes * split
        if depth % (split * 4) == 0:
            return partial
        return partial + sum(self.graph.values[v].nbytes for v in op.operands)

    def _visit_kernel(self, op: Op, kind: Class) -> None:
        invariant = invariant_carries(op) if op.name == "stablehlo.while" else ()
        for i, value in enumerate(op.results):
            self.materialised[value] = not (invariant and invariant[i])
        self._pass_through((o, r) for o, r, same in zip(op.operands, op.results, invariant, strict=False) if same)
        for i, operand in enumerate(op.operands):
            fused = kind is Class.UPDATE and i > 0 and op.name not in _FROM_MEMORY[self.chip.kind]
            (self.soft if fused else self.hard)[operand].add(op.index)
        for value in op.captures:
            if not self.generated[value]:
                self.hard[value].add(op.index)
        self.scratch[op.index] += self._kernel_scratch(op)

    def _kernel_scratch(self, op: Op) -> int:
        if op.name == "stablehlo.while" and self.chip.kind == "tpu":
            return _hoisted_bytes(op.blocks[1])
        if op.name == "stablehlo.convolution":
            return self._convolution_scratch(op)
        if op.name == "chlo.top_k" and self.chip.kind == "cuda" and self._top_k(op) > _CUSTOM_TOP_K:
            return math.prod(self.graph.values[op.operands[0]].shape) * 4
        if op.name == "stablehlo.fft" and self.chip.kind == "tpu":
            return 2 * sum(buffer_bytes(self.graph.values[v], self.chip) for v in op.operands + op.results)
        if op.name == "stablehlo.sort" and self.chip.kind != "cpu":
            return buffer_bytes(self.graph.values[op.operands[0]], self.chip)
        return 0

    def _top_k(self, op: Op) -> int:
        return ir.IntegerAttr(self.graph.handles[op.index].attributes["k"]).value

    def _convolution_scratch(self, op: Op) -> int:
        """Bytes of the copies with features last and padding applied. The TPU needs none."""
        left, result = self.graph.values[op.operands[0]], self.graph.values[op.results[0]]
        features_last = "f]x[" in str(self.graph.handles[op.index].attributes["dimension_numbers"]).replace(" ", "")
        if self.chip.kind == "cpu":
            return 0 if features_last else left.nbytes + result.nbytes
        copied = not features_last or self._is_padded_first(op)
        return left.nbytes if copied and self.chip.kind == "cuda" else 0

    def _is_padded_first(self, op: Op) -> bool:
        """Whether cuDNN cannot pad a convolution's input on the fly: uneven, negative or interior padding."""
        attributes = self.graph.handles[op.index].attributes
        if "padding" not in attributes:
            return False
        padding = ir.DenseIntElementsAttr(attributes["padding"])
        pairs = [padding[i] for i in range(len(padding))]
        return any(low != high or low < 0 for low, high in zip(pairs[::2], pairs[1::2], strict=True))

    def result(self) -> Buffers:
        reads: list[list[int]] = [[] for _ in self.graph.ops]
        aligned: list[list[int]] = [[] for _ in self.graph.ops]
        for value, (hard, soft) in enumerate(zip(self.hard, self.soft, strict=True)):
            if self.materialised[value] or self.graph.values[value].producer < 0:
                readers = hard | soft
                for op in readers:
                    reads[op].append(value)
                    if op not in self.moved[value]:
                        aligned[op].append(value)
        return Buffers(
            tuple(self.materialised), tuple(map(tuple, reads)), tuple(map(tuple, aligned)), tuple(self.scratch)
        )


def _is_sum(op: Op) -> bool:
    return len(op.results) == 1 and bool(op.blocks) and op.blocks[0].ops[0].name == "stablehlo.add"


def _find_generated(graph: Graph) -> tuple[list[bool], list[bool]]:
    """Per value, whether it is a scalar or made from constants, iotas and scalars by fusible ops, and by many."""
    generated = [not value.shape for value in graph.values]
    depth = [0] * len(graph.values)
    for op in graph.ops:
        kind = classify(op)
        if kind is Class.GENERATE or (kind in _FUSIBLE | {Class.VIEW} and all(generated[v] for v in op.operands)):
            for value in op.results:
                generated[value] = True
                depth[value] = 1 + max((depth[v] for v in op.operands), default=0)
    return generated, [d > _DRAWN_DEPTH for d in depth]


def _hoisted_bytes(body: Graph) -> int:
    """Bytes of the bfloat16 copies that a TPU makes, before a loop, of the loop's constants that its dots read."""
    constant = set(body.captured) | {a for a, r in zip(body.arguments, body.returned, strict=True) if a == r}
    copied: set[int] = set()
    for op in body.ops:
        if classify(op) is Class.DOT:
            copied.update(_origin(body, v) for v in op.operands)
    return sum(body.values[v].nbytes // 2 for v in copied & constant if body.values[v].dtype == "f32")


def _origin(graph: Graph, value: int) -> int:
    """The value that a chain of views and element moves starts from."""
    producer = graph.producer(value)
    while producer is not None and classify(producer) in (Class.VIEW, Class.MOVE):
        value = producer.operands[0]
        producer = graph.producer(value)
    return value


def _integers(graph: Graph, op: Op, attribute: str) -> tuple[int, ...]:
    return tuple(ir.DenseI64ArrayAttr(graph.handles[op.index].attributes[attribute]))


def owner(graph: Graph, value: int) -> int:
    """The value whose buffer a view shows."""
    producer = graph.producer(value)
    while producer is not None and classify(producer) is Class.VIEW:
        value = producer.operands[min(graph.values[value].result, len(producer.operands) - 1)]
        producer = graph.producer(value)
    return value


def _dot_numbers(graph: Graph, op: Op) -> Any:
    return stablehlo.DotDimensionNumbers(graph.handles[op.index].attributes["dot_dimension_numbers"])


def dot_sizes(graph: Graph, op: Op) -> tuple[int, int, int, int]:
    """(rows, columns, batch, contraction) of a dot_general, in elements."""
    numbers: Any = _dot_numbers(graph, op)
    left, right = (graph.values[v] for v in op.operands[:2])
    batch = math.prod(left.shape[d] for d in numbers.lhs_batching_dimensions)
    depth = math.prod(left.shape[d] for d in numbers.lhs_contracting_dimensions)
    rows = math.prod(left.shape) // max(1, batch * depth)
    columns = math.prod(right.shape) // max(1, batch * depth)
    return rows, columns, batch, depth
