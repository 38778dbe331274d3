"""The base class of passes that put a chip's own attention kernel in the place of attention and its gradients.

`attention/` says what is attention; a subclass knows one library's kernels. Each output and each gradient is a match of
its own. They build equal calls, of which CSE leaves one: a block that has output and gradients runs the forward kernel
once. A gradient in another block than its output, such as that of a scanned layer, runs it again.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from stablehlo_mem.analysis.cost_model import Kernel
from stablehlo_mem.analysis.fusion_classes import is_nested
from stablehlo_mem.analysis.op_cost import Matmul
from stablehlo_mem.attention import empty_rows
from stablehlo_mem.attention.layout import KernelShape, Layout, MaskKinds, layout_of
from stablehlo_mem.attention.on_devices import OnDevices, Shares, shares_of
from stablehlo_mem.attention.pattern import SAME, AttentionOp, attention_ops
from stablehlo_mem.attention.placement import Placement, own_dims
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.builders import splat
from stablehlo_mem.ir.dead_ops import needed_only_by
from stablehlo_mem.ir.graph import NARROW_FLOATS, Graph, dtype_bytes
from stablehlo_mem.ir.loop_carries import drop_dead_carries
from stablehlo_mem.ir.op_attributes import ATTENTION_MATMULS
from stablehlo_mem.pass_api.candidate import Numerics
from stablehlo_mem.rewriting.rewriting_pass import Match, RewritingPass


class AttentionPass(RewritingPass):
    """Replaces attention and its gradients by the kernels of a library."""

    roots = frozenset({"stablehlo.dot_general", "stablehlo.convert", "stablehlo.divide", "stablehlo.multiply"})
    is_enabled_by_others = True
    """A gradient is recognised once what it needs of the forward pass is computed again beside it."""
    rows_first: bool | None = None
    """The only order of dimensions that the kernels take, None for both: see `KernelShape`."""

    trains_in_loops: bool = False
    """Whether outputs in loops are computed as for training: what a gradient recomputes of them is the same call."""
    mask_kinds = MaskKinds()
    """The masks that the kernels take other than by a bias."""

    @abc.abstractmethod
    def unsupported(self, shape: KernelShape, *, training: bool) -> str:
        """Why the library has no kernel for a shape, "" if it has one."""

    @abc.abstractmethod
    def forward(self, shape: KernelShape, operands: Sequence[Any], *, training: bool) -> list[Any]:
        """Builds the call that makes the output and, for training, what the backward call needs beside it."""

    @abc.abstractmethod
    def backward(self, shape: KernelShape, operands: Sequence[Any], forward: Sequence[Any], gradient: Any) -> list[Any]:
        """Builds the call that makes the gradients of queries, keys and values."""

    @abc.abstractmethod
    def scratch_bytes(self, shape: KernelShape, *, training: bool) -> int:
        """Bytes that the kernels need beside operands and results."""

    def match(self, graph: Graph, root: int, *, prefer_memory: bool) -> Match | Blocked | None:
        """The match at an op that computes a part of attention."""
        op = attention_ops(graph).get(root)
        if op is None or isinstance(op, Blocked):
            return op
        layout = self.layout(graph, op)
        training = op.gradient is not None
        shares = shares_of(graph, op, layout)
        if shares is None:
            return Blocked("distributed", "devices share out its depth, or a sequence of fewer heads than parts")
        shape = shares.of_one(layout.shape)
        reason = _mixed(graph, op) or self.unsupported(shape, training=training)
        if reason:
            return Blocked("no-kernel", reason)
        inputs = [tensor.value for tensor in op.attention.inputs(graph)]
        inputs += [op.gradient.of_output.value] if op.gradient is not None else []
        scores = op.attention.scores
        return Match(
            root=root,
            removed=needed_only_by(graph, root, inputs),
            new_bytes=_bias_bytes(shape) + self.scratch_bytes(shape, training=training),
            kernels=_kernels(graph, op, shape, shares),
            numerics=_numerics(graph, op, shape.dtype),
            summary=f"compute the {op.part} of attention {graph.values[graph.ops[root].results[0]]} by {self.library}",
            detail=shares,
            shared_inputs=(scores.queries.value, scores.keys.value),
        )

    def layout(self, graph: Graph, op: AttentionOp) -> Layout:
        """Where the dimensions go in the kernel."""
        return layout_of(graph, op.attention, self.mask_kinds, rows_first=self.rows_first)

    library: str
    """The library, for people."""

    def clean(self, module: ir.Module) -> None:
        """Removes what is dead, the masks that scanned layers handed on too."""
        super().clean(module)
        drop_dead_carries(module)

    def before_edits(self, graph: Graph) -> None:
        """Analyses a block while those that it reads from are whole: masks are values of this copy of the program."""
        attention_ops(graph)

    def emit(self, graph: Graph, match: Match) -> Sequence[Any]:
        """Builds the calls and the program's value from their results."""
        op = attention_ops(graph)[match.root]
        assert isinstance(op, AttentionOp)
        layout = self.layout(graph, op)
        placement = Placement(graph, op.attention, layout)
        has_gradient = any(part.gradient is not None for part in _parts(graph, op))
        operands, kept = placement.operands(), placement.rows_with_keys()
        training = has_gradient or (self.trains_in_loops and is_nested(graph))
        devices = OnDevices(graph, op, layout, match.detail)
        shape, count = devices.local, len(operands)
        forward = devices.run(lambda given: self.forward(shape, given, training=training), operands)
        like = graph.mlir_values[graph.ops[match.root].results[0]].type
        queries, values = op.attention.scores.queries, op.attention.values
        depth, rows, columns = own_dims(queries), (layout.row, layout.heads), (layout.column, layout.key_heads)
        if op.gradient is None:
            output = forward[0] if kept is None else _output(op, layout.shape, forward[0], operands[2], kept)
            return [placement.result(output, op.labels, like, own_dims(values), *rows)]
        gradient = placement.output_gradient(op.gradient)
        of_kernel = gradient if kept is None else empty_rows.masked(layout.shape, gradient, kept)
        gradients = devices.run(
            lambda given: self.backward(shape, given[:count], given[count:-1], given[-1]),
            [*operands, *forward, of_kernel],
        )
        if kept is not None:
            gradients = _gradients(op, layout.shape, gradients, operands, gradient, kept)
        of_query, of_key, of_value = gradients
        if op.part == "query gradient":
            key_depth = [dict(op.attention.scores.dot.summed)[d] for d in depth]
            result = placement.result(of_query, op.labels, like, key_depth, *rows)
        elif op.part == "key gradient":
            result = placement.result(of_key, op.labels, like, depth, *columns)
        else:
            pairs = {value: own for own, value in op.gradient.pairs}
            result = placement.result(of_value, op.labels, like, [pairs[d] for d in own_dims(values)], *columns)
        return [result if abs(op.factor - 1) < SAME else stablehlo.multiply(result, splat(result.type, op.factor))]


def _output(op: AttentionOp, shape: KernelShape, of_kernel: Any, values: Any, kept: Any) -> Any:
    """The output of a kernel, that of queries without keys as the program has it."""
    if op.is_zeroed:
        return empty_rows.masked(shape, of_kernel, kept)
    return empty_rows.output(shape, of_kernel, values, kept)


def _gradients(
    op: AttentionOp, shape: KernelShape, of_kernel: list[Any], operands: list[Any], gradient: Any, kept: Any
) -> list[Any]:
    """The gradients of a kernel with what queries without keys add in the program."""
    query, key, value = operands[:3]
    of_query, of_key, of_value = of_kernel
    if op.passes_masks:
        of_query = empty_rows.query_gradient(shape, of_query, gradient, key, value, kept)
        of_key = empty_rows.key_gradient(shape, of_key, gradient, query, value, kept)
    if not op.is_zeroed:
        of_value = empty_rows.value_gradient(shape, of_value, gradient, kept)
    return [of_query, of_key, of_value]


def _mixed(graph: Graph, op: AttentionOp) -> str:
    """Why no kernel's type holds queries, keys and values."""
    scores = op.attention.scores
    dtypes = {graph.values[t.value].dtype for t in (scores.queries, scores.keys, op.attention.values)}
    if len([dtype for dtype in dtypes if dtype != "f32"]) <= 1:
        return ""
    return f"queries, keys and values are of the types {', '.join(sorted(dtypes))}"


def _bias_bytes(shape: KernelShape) -> int:
    if shape.bias is None:
        return 0
    return int(shape.bias[0] * shape.bias[1] * shape.queries * shape.keys * dtype_bytes(shape.dtype))


def _parts(graph: Graph, op: AttentionOp) -> list[AttentionOp]:
    """The output and the gradients of the attention that an op is a part of."""
    ops = attention_ops(graph)
    return [part for root in op.group if isinstance(part := ops[root], AttentionOp)]


def _kernels(graph: Graph, op: AttentionOp, shape: KernelShape, shares: Shares) -> tuple[Kernel, ...]:
    """What a part adds: the first gradient pays the backward call, and the forward one if no output does."""
    parts = _parts(graph, op)
    gradients = [part.root for part in parts if part.gradient is not None]
    kernels: list[Kernel] = []
    has_output = any(part.gradient is None for part in parts)
    if op.gradient is None or (not has_output and op.root == gradients[0]):
        kernels.append(_kernel(shape, ATTENTION_MATMULS["forward"], shares, operands=1, results=1))
    if op.gradient is not None and op.root == gradients[0]:
        kernels.append(_kernel(shape, ATTENTION_MATMULS["backward"], shares, operands=2, results=1))
    return tuple(kernels)


def _kernel(shape: KernelShape, matmuls: int, shares: Shares, *, operands: int, results: int) -> Kernel:
    itemsize = dtype_bytes(shape.dtype)
    rows = shape.row_count * (shape.depth + shape.value_depth)
    columns = shape.batch * shape.kv_heads * shape.keys * (shape.depth + shape.value_depth)
    operand_bytes = (operands * rows + results * columns) * itemsize
    nbytes = operand_bytes + _bias_bytes(shape)
    flops = 2.0 * matmuls * shape.pairs * max(shape.depth, shape.value_depth)
    received = operand_bytes if shares.sequence > 1 else 0
    return Kernel(flops, nbytes, matmul=Matmul(shape.queries, shape.keys, itemsize), received=received)


def _numerics(graph: Graph, op: AttentionOp, dtype: str) -> Numerics:
    """The kernels keep scores in float32 and round probabilities to the type of the operands, as programs do.

    A program that keeps more than that is replaced only under "relaxed": where it multiplies float32 probabilities,
    returns a wider result than the kernel or has a float32 bias.
    """
    if dtype not in NARROW_FLOATS:
        return "reassociate"
    wide = [
        graph.values[graph.ops[op.root].results[0]].dtype,
        *(graph.values[b.value].dtype for b, _ in op.attention.biases),
    ]
    wide += [graph.values[op.gradient.of_output.value].dtype] if op.gradient is not None else []
    return "reassociate" if op.is_rounded and set(wide) <= {dtype} else "relaxed"
