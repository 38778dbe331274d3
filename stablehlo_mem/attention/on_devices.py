"""Attention that several devices share out: each runs the kernel on its examples and heads, as in a `shard_map`.

A partitioner divides no kernel. `rewriting.attention_pass` asks which parts there are, and builds the calls here. Where
devices share out the sequence, they exchange it for heads around the kernel, which sees all rows of a head: DeepSpeed
Ulysses (Jacobs et al., 2023).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from stablehlo_mem.attention.algebra import Tensor
from stablehlo_mem.attention.layout import KernelShape, Layout
from stablehlo_mem.attention.pattern import AttentionOp, attention_ops
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import ir, module_of, sdy
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.ir.manual_computation import MANUAL_COMPUTATION, created, lying
from stablehlo_mem.ir.shards import axis_refs, mesh_axes, propagated_shardings

_Divided = tuple[int | None, int | None]
_BIAS = 3
"""The position of a bias among a kernel's operands: after queries, keys and values."""
Build = Callable[[Sequence[Any]], list[Any]]
"""Builds a kernel's call from its operands, at the insertion point."""


@dataclasses.dataclass(frozen=True)
class Shares:
    """In how many parts a kernel's batch and heads lie.

    Attributes:
        sequence: those of the heads that queries, keys and values have along the sequence outside the kernel.
    """

    batch: int = 1
    heads: int = 1
    sequence: int = 1

    def of_one(self, shape: KernelShape) -> KernelShape:
        """What one device computes."""
        bias = (
            None
            if shape.bias is None
            else tuple(
                side // parts if side > 1 else 1
                for side, parts in zip(shape.bias, (self.batch, self.heads), strict=True)
            )
        )
        return dataclasses.replace(
            shape,
            batch=shape.batch // self.batch,
            heads=shape.heads // self.heads,
            kv_heads=shape.kv_heads // self.heads,
            bias=bias,
        )


def shares_of(graph: Graph, op: AttentionOp, layout: Layout) -> Shares | None:
    """How a kernel is shared out whose operands lie in parts; None if it cannot be."""
    scores = op.attention.scores
    tensors = [*op.attention.inputs(graph), *([op.gradient.of_output] if op.gradient is not None else [])]
    if all(max(graph.values[t.value].parts, default=1) == 1 for t in tensors):
        return Shares()
    if _is_in_shard_map(graph.handles[op.root]):
        return None
    parts = _parts(graph, _leading(graph, op, layout))
    sequence = max(parts.get(label, 1) for label in (layout.row, layout.column))
    parts |= {label: sequence for label in (layout.row, layout.column) if sequence > 1}
    outer = layout.batch[:1], layout.key_heads[:1] if layout.heads[:1] == layout.key_heads[:1] else ()
    batch, heads = (math.prod(parts.get(label, 1) for label in labels) for labels in outer)
    firsts = {label for labels in outer for label in labels}
    for tensor in tensors:
        for label, count in _parts(graph, tensor).items():
            if label not in {*firsts, layout.row, layout.column} or count != parts.get(label, 1):
                return None
    if any(scores.sizes[label] % parts.get(label, 1) for label in firsts) or layout.shape.kv_heads % (heads * sequence):
        return None
    return Shares(batch, heads * sequence, sequence)


def _leading(graph: Graph, op: AttentionOp, layout: Layout) -> Tensor:
    """The operand that says how all lie: the queries, but where devices share out the keys only."""
    scores = op.attention.scores
    by_keys = layout.column in _parts(graph, scores.keys) and layout.row not in _parts(graph, scores.queries)
    return scores.keys if by_keys else scores.queries


def _is_in_shard_map(op: Any) -> bool:
    """Whether an op is in a manual computation, where other axes of the mesh cannot be made manual too."""
    while op.name != "builtin.module":
        op = op.parent.operation
        if op.name == MANUAL_COMPUTATION:
            return True
    return False


def _parts(graph: Graph, tensor: Tensor) -> dict[int, int]:
    """The dimensions of the scores along which a tensor lies in parts."""
    counts = graph.values[tensor.value].parts or ()
    pairs = zip(tensor.labels, counts, strict=False)
    return {label: count for label, count in pairs if label is not None and count > 1}


class OnDevices:
    """Builds the calls of one attention, on several devices on the part of each."""

    def __init__(self, graph: Graph, op: AttentionOp, layout: Layout, shares: Shares):
        self.shape, self.shares = layout.shape, shares
        self.local = shares.of_one(layout.shape)
        if shares == Shares():
            return
        leading = _leading(graph, op, layout)
        sharding = sdy.TensorShardingAttr(_shardings(graph)[leading.value])
        axes = dict(zip(leading.labels, axis_refs(sharding), strict=True))
        self.mesh: Any = sharding.mesh_or_ref
        self.batch_axes = axes[layout.batch[0]] if shares.batch > 1 else []
        heads = layout.key_heads[:1] if shares.heads > shares.sequence else ()
        sequence = (layout.row, layout.column) if shares.sequence > 1 else ()
        self.head_axes = [axis for label in (*heads, *sequence) for axis in axes.get(label, [])]
        self.names = list(mesh_axes(module_of(graph.handles[0]))[self.mesh.value])

    def run(self, build: Build, operands: Sequence[Any]) -> list[Any]:
        """The results of a call for operands as they lie outside; it is built for `local`."""
        if self.shares == Shares():
            return build(operands)
        location = operands[0].location
        divided = [self.divided(i, len(value.type.shape)) for i, value in enumerate(operands)]
        types = [self.resized(v.type, dims, inwards=True) for v, dims in zip(operands, divided, strict=True)]
        holder = ir.Operation.create("builtin.module", regions=1)
        block = holder.regions[0].blocks.append(*types, arg_locs=[location] * len(types))
        with ir.InsertionPoint(block):
            results = build(list(block.arguments))
            ir.Operation.create("sdy.return", [], results)
        made = [self.divided(0, len(value.type.shape)) for value in results]
        axes = sdy.ManualAxesAttr.get([ir.StringAttr.get(name) for name in self.names])
        types = [self.resized(v.type, dims, inwards=False) for v, dims in zip(results, made, strict=True)]
        given = [(v, self.sharding(v, dims)) for v, dims in zip(operands, divided, strict=True)]
        shardings = [self.sharding(v, dims) for v, dims in zip(results, made, strict=True)]
        new = created(axes, given, list(zip(types, shardings, strict=True)))
        block.append_to(new.regions[0])
        holder.erase()
        return list(new.results)

    def divided(self, position: int, rank: int) -> _Divided:
        """The dimensions of a kernel's operand, or of a result of some rank, that are batch and heads.

        None where it has none, or is the same for all.
        """
        if position == _BIAS and self.shape.bias is not None:
            batch, heads = self.shape.bias
            return (0 if batch > 1 else None), (1 if heads > 1 else None)
        heads = 2 if rank == len(self.shape.query) and self.shape.rows_first else 1
        return 0, (heads if rank > len(("batch", "keys")) else None)

    def resized(self, of: Any, dims: _Divided, *, inwards: bool) -> Any:
        """The type of a part of a value, or of the whole of which it is a part."""
        sizes = list(of.shape)
        for dimension, parts in zip(dims, (self.shares.batch, self.shares.heads), strict=True):
            if dimension is not None:
                sizes[dimension] = sizes[dimension] // parts if inwards else sizes[dimension] * parts
        return builders.retype(of, sizes)

    def sharding(self, value: Any, divided: _Divided) -> Any:
        """How a value lies of which each device has a part."""
        batch, heads = divided
        axes = {batch: self.batch_axes, heads: self.head_axes}
        return lying(self.mesh, [axes.get(d, []) for d in range(len(value.type.shape))])


@cached_analysis
def _shardings(graph: Graph) -> dict[int, Any]:
    """Where the queries and keys of all attention in a block lie."""
    scores = [op.attention.scores for op in attention_ops(graph).values() if isinstance(op, AttentionOp)]
    tensors = list(dict.fromkeys(tensor.value for one in scores for tensor in (one.queries, one.keys)))
    values = [graph.mlir_values[value] for value in tensors]
    return dict(zip(tensors, propagated_shardings(graph.handles[0], values), strict=True))
