"""What differs between compilers, as one interface that `xla_cpu`, `xla_gpu` and `xla_tpu` implement.

The analyses of memory and some passes ask the model of a chip, which `compilers.compiler_model` picks.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet

from stablehlo_mem.analysis.fusion_classes import SCAN_WINDOW, Class, data_source, is_split_scan
from stablehlo_mem.analysis.loop_invariants import invariant_ops
from stablehlo_mem.ir.graph import Graph, Op, Value

LONGEST_UNROLLED = 48
"""Elements to each result of the longest reduction that `unroll-reductions` makes elementwise ops of: YNNPACK sums one
result of more of them faster than a kernel reads all its rows (seen on CPU)."""
Kernels = AbstractSet[int]
"""Kernels of a block, each named by the op that writes its result."""


class CompilerModel(abc.ABC):
    """How a compiler turns a block into kernels and buffers. One instance serves all chips of a kind.

    Three decisions every compiler takes its own way are abstract. The rest has a default: what most compilers do, or
    that the compiler does nothing of the kind. All methods are pure, so what is made of
    their answers is cached with the graph.
    """

    reads_from_memory: frozenset[str] = frozenset({"stablehlo.sort"})
    """Ops that are not fused with the producers of their operands, though their class is."""
    fuses_producers: frozenset[str] = frozenset()
    """Ops that are kernels of their own, and still compute their operands on the fly."""
    always_materialised: frozenset[str] = frozenset()
    """Ops that are not fused into their users, though their class is."""
    recomputes_materialised: bool = True
    """Whether a cheap value that some kernel needs in memory is still recomputed in the others."""
    reduces_dots: bool = False
    """Whether a reduction that alone uses a dot's result is computed in the dot's kernel: no buffer exists."""
    widens_in_epilogue: bool = True
    """Whether the kernel of a dot computes a convert of its result to a wider type, and what follows; otherwise a
    convert is computed there only if its result is returned."""
    fuses_convolutions: bool = False
    """Whether convolutions fuse with what is before and after them as dots do; otherwise they are library calls."""
    fuses_sibling_reductions: bool = False
    """Whether a kernel and a reduction of the same operand become one, so that nothing is written over the operand."""
    fuses_into_sums: bool = False
    """Whether a sum takes in what computes its operand, where a matrix times a vector reads the matrix from memory."""
    places_on_chip: bool = False
    """Whether the compiler places values in memory on the chip for as long as they live; otherwise it is a cache."""
    runs_breadth_first: bool = False
    """Whether kernels run as soon as their operands exist; otherwise in program order, which saves memory."""
    keeps_barriers: bool = True
    """Whether kernels are put in order while barriers still tie them; otherwise copies behind them are merged."""
    starts_host_copies_early: bool = False
    """Whether copies from the host's memory are made when their block begins: see `host_lifetimes`. Of main's these are
    copies of whole arguments, memory permitting."""
    writes_over_operands: bool = True
    """Whether the result of an elementwise kernel may have the buffer of an operand that is read for the last time."""
    reuses_output_buffers: bool = True
    """Whether temporaries may live in an output's buffer until the output is written."""
    widens_slices: frozenset[str] = frozenset()
    """Element types whose slices and updates are computed in a wider one, of the whole array: `slice_as_integers`."""
    transposes_stacks: bool = False
    """Whether a loop lays out a stack as the rows written into it are, and copies the argument that it begins with."""
    needs_delayed_writes: bool = False
    """Whether an array is copied of which several kernels of a step read what one of them writes over, unless that is
    written in the next step: `write_over_arguments`."""
    ordered_dots: frozenset[str] = frozenset()
    """Element types of the operands of dots that can fail if their dimensions are in another order: `order_dots`."""
    hoists_operand_converts: bool = False
    """Whether dots multiply in a narrower type and the converts of their operands are moved out of loops."""

    # What is fused, what is materialised.

    @abc.abstractmethod
    def materialises(self, graph: Graph, value: int, kind: Class, kernels: Kernels, reused: bool, uses: float) -> bool:
        """Whether a fusible value is materialised rather than computed in each of the kernels that use it.

        Args:
            graph: the block.
            value: the result of an elementwise op, a move of elements or a reduction.
            kind: the class of the op.
            kernels: those that would compute it on the fly.
            reused: whether one of them would compute its elements more than once, for a broadcast.
            uses: how often one of them would compute each element, for windows, for shifted copies or for broadcasts
                as far as `counted_repeats` says.
        """

    def counted_repeats(self, graph: Graph, broadcast: Op) -> int:
        """As how many uses of each element the repetitions of a broadcast count: see `materialises`."""
        return 1

    @abc.abstractmethod
    def fuses_reduction(self, graph: Graph, op: Op, kernels: Kernels) -> bool:
        """Whether the kernels that use the result of a reduction, at most one as a rule, compute it on the fly."""

    def is_short_reduction(self, graph: Graph, op: Op) -> bool:
        """Whether a reduction is so short that it can be computed where its result is used, unrolled if need be."""
        return False

    def reduces_elementwise(self, graph: Graph, op: Op, kernels: Kernels) -> bool:
        """Whether a reduction is computed in the kernels that use its result, as an elementwise op is."""
        return False

    def room_in_fusion(self, graph: Graph, op: Op) -> float:
        """Ops that the kernel that takes in an op may compute besides; the rest of a longer chain it reads."""
        return math.inf

    def fuses_row_reduction(self, graph: Graph, op: Op, kernel: Op) -> bool:
        """Whether a kernel that alone uses the result of a reduction computes it and its operand once for each row.

        So are a softmax and a norm one kernel, which reads its operand once.
        """
        return False

    def reduces_while_written(self, graph: Graph, reduce: Op, value: int) -> bool:
        """Whether a reduction of a value that a kernel writes is a part of that kernel, and reads nothing."""
        return False

    def computes_once(self, graph: Graph, op: Op, kernels: Kernels) -> bool:
        """Whether the kernels that compute an op are one kernel of a library, if the op's result fits the chip."""
        return False

    @abc.abstractmethod
    def dot_operands_in_memory(self, graph: Graph, dot: Op) -> Collection[int]:
        """The operands that a dot reads from memory, or what they are transposed from; others are fused into it."""

    def fuses_epilogue(self, unary_chain: bool) -> bool:
        """Whether an elementwise op that alone uses a dot's result is fused into the dot.

        Args:
            unary_chain: whether only ops with one tensor operand, but for those of `reads_after_dot`, lie between the
                dot and the end of the kernel.
        """
        return False

    def merged_dots(self, graph: Graph) -> frozenset[int]:
        """The dots that become one with others, which have an operand in common: its result is written, and read."""
        return frozenset()

    def reads_after_dot(self, graph: Graph, value: int) -> bool:
        """Whether an op that is fused after a dot may read a value beside what the dot computes."""
        return False

    def fuses_into_dot(self, graph: Graph, dot: Op) -> bool:
        """Whether the kernel of another dot, which alone uses what is made of this one's result, computes it too."""
        return False

    def compiles_dot_as_sum(self, graph: Graph, dot: Op) -> bool:
        """Whether a dot becomes a multiplication and a reduction, which fuse as such."""
        return False

    def epilogue_scratch_bytes(self, graph: Graph, dot: Op, kernel: Op) -> int:
        """Bytes that a dot and the elementwise kernel it is fused into may need beside operands and result."""
        return 0

    def writes_over(self, graph: Graph, op: Op, kernel: Op) -> bool:
        """Whether the result of an elementwise kernel may have the buffer of a result of `op`."""
        return True

    def reduces_as_tree(self, graph: Graph, op: Op) -> bool:
        """Whether a reduction runs in windows, as a tree of kernels; the first reads its operand from memory."""
        return False

    def starts_library_fusion(self, graph: Graph, op: Op) -> bool:
        """Whether a reduction is handed to a library, together with those producers that the library knows."""
        return False

    def joins_library_fusion(self, graph: Graph, op: Op) -> bool:
        """Whether an op that a library's reduction needs is computed by the library, not read from memory."""
        return False

    def streamed_into(self, graph: Graph, value: int) -> int | None:
        """The reduction that alone needs a value and reduces it while it is made: no buffer exists at run time.

        The compiler's report has that buffer all the same.
        """
        return None

    def serial_seconds(self, graph: Graph, op: Op) -> float:
        """Seconds of an op whose elements one core goes through one after the other; 0 for all other ops."""
        return 0.0

    def reduces_side_by_side(self, graph: Graph, op: Op) -> bool:
        """Whether vector units compute the results of a reduction side by side: none takes `Chip.reduced_seconds`."""
        return False

    # Copies to the host.

    def updates_host_along(self, value: Value, dimension: int) -> bool:
        """Whether parts of a value in the host's memory that are slices along a dimension can be written over."""
        return True

    # What is done before loops.

    def hoisted_ops(self, body: Graph) -> frozenset[int]:
        """The ops of a loop's body that are computed once, before the loop, instead of in each iteration."""
        return invariant_ops(body)

    def hoisted_values(self, body: Graph) -> frozenset[int]:
        """The values of a loop's body that are computed before the loop and kept while it runs; scalars left out."""
        return frozenset()

    def copied_before_loop(self, graph: Graph, loop: Op) -> Mapping[int, int]:
        """The values of which a loop's dots read a copy that is made before the loop, and the bytes of each copy."""
        return {}

    # Bytes.

    def buffer_bytes(self, value: Value) -> int:
        """Bytes of a value's buffer, padding included."""
        return value.nbytes

    def stored_bytes(self, graph: Graph, value: int) -> int:
        """Bytes of a value's buffer in its block, where it may be stored in a narrower type than it has."""
        return self.buffer_bytes(graph.values[value])

    def copied_operands(self, graph: Graph, op: Op) -> Mapping[int, int]:
        """The operands that a kernel reads in a copy of another layout made for it, and the bytes of each copy."""
        return {}

    def rearranging_kernels(self, graph: Graph, op: Op) -> int:
        """Kernels that bring operands of an op into another order, or its result back, one after the other."""
        return 0

    def relayout_bytes(self, graph: Graph, op: Op) -> int:
        """Bytes that a kernel with an elementwise op or a move needs to lay out its operand or result anew."""
        return 0

    def window_scratch_bytes(self, graph: Graph, op: Op) -> int:
        """Bytes that a kernel with a reduce_window needs beside operands and result.

        A running sum is split into windows: it takes the running sums of their ends, and those within windows, which
        lie over what the operand is computed to.
        """
        if not is_split_scan(graph, op):
            return 0
        result = graph.values[op.results[0]].nbytes
        is_computed = graph.values[data_source(graph, op.operands[0])].is_computed
        return result // SCAN_WINDOW + (0 if is_computed else result)

    def reduction_scratch_bytes(self, graph: Graph, op: Op) -> int:
        """Bytes of the partial results of a reduction, or of a dot that is compiled as one."""
        return 0

    def dot_scratch_bytes(self, graph: Graph, dot: Op) -> int:
        """Bytes that a dot needs beside operands and result while it runs."""
        return 0

    def ragged_repeats(self, graph: Graph, op: Op) -> int:
        """How many times the arithmetic of a ragged dot is done: once for each group where the others are masked."""
        return 1

    def widens_operands(self, graph: Graph, op: Op) -> bool:
        """Whether the operands of a dot or convolution are converted to the wider type of its result first."""
        return False

    def early_dot_copies(self, graph: Graph, dot: Op) -> Collection[int]:
        """The operands of a dot that are copied into another order as soon as they exist."""
        return ()

    def kernel_scratch_bytes(self, graph: Graph, op: Op) -> int:
        """Bytes that an op which is a kernel of its own (a convolution, a sort, a call) needs beside its values."""
        if op.name == "stablehlo.composite":
            # An associative scan that a pass has put in a function: the combined pairs of all levels, up and down.
            return 2 * sum(graph.values[v].nbytes for v in op.operands)
        return 0
