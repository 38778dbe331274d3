"""Attention whose batch and heads several devices share out: each runs the kernel on its part, as in a `shard_map`.

A partitioner divides no kernel. `rewriting.attention_pass` asks which parts there are, and builds the calls here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from stablehlo_mem.attention.algebra import Tensor
from stablehlo_mem.attention.layout import KernelShape, Layout
from stablehlo_mem.attention.pattern import AttentionOp
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, module_of, sdy
from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.ir.manual_computation import MANUAL_COMPUTATION
from stablehlo_mem.ir.shards import axis_refs, mesh_axes, propagated_shardings

Build = Callable[[Sequence[Any]], list[Any]]
"""Builds a kernel's call from its operands, at the insertion point."""


@dataclasses.dataclass(frozen=True)
class Shares:
    """In how many parts batch and heads of an attention lie."""

    batch: int = 1
    heads: int = 1

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
    """In which parts the operands of an attention lie; None if they are not whole examples and heads."""
    scores = op.attention.scores
    tensors = [*op.attention.inputs, *([op.gradient.of_output] if op.gradient is not None else [])]
    if all(max(graph.values[t.value].parts, default=1) == 1 for t in tensors):
        return Shares()
    parts = _parts(graph, scores.queries)
    firsts = (
        [*layout.batch[:1], *layout.key_heads[:1]] if layout.heads[:1] == layout.key_heads[:1] else layout.batch[:1]
    )
    shares = Shares(*(parts.get(labels[0], 1) if labels else 1 for labels in (layout.batch, layout.key_heads)))
    for tensor in tensors:
        for label, count in _parts(graph, tensor).items():
            if label not in firsts or count != parts.get(label, 1):
                return None
    return shares


def _parts(graph: Graph, tensor: Tensor) -> dict[int | None, int]:
    """The dimensions of the scores along which a tensor lies in parts."""
    counts = graph.values[tensor.value].parts or ()
    return {label: count for label, count in zip(tensor.labels, counts, strict=False) if count > 1}


class OnDevices:
    """Builds the calls of one attention, on several devices on the part of each."""

    def __init__(self, graph: Graph, op: AttentionOp, layout: Layout, shares: Shares):
        self.shape, self.shares = layout.shape, shares
        self.local = shares.of_one(layout.shape)
        if shares == Shares():
            return
        queries = op.attention.scores.queries
        handle = graph.handles[op.root]
        sharding = sdy.TensorShardingAttr(*propagated_shardings(handle, [graph.mlir_values[queries.value]]))
        axes = dict(zip(queries.labels, axis_refs(sharding), strict=True))
        self.mesh = sharding.mesh_or_ref
        self.batch_axes = axes[layout.batch[0]] if shares.batch > 1 else []
        self.head_axes = axes[layout.heads[0]] if shares.heads > 1 else []
        self.names = list(mesh_axes(module_of(handle))[self.mesh.value])

    def run(self, build: Build, operands: Sequence[Any]) -> list[Any]:
        """The results of a call for operands as they lie outside; it is built for `local`."""
        if self.shares == Shares():
            return build(operands)
        types = [self.resized(value.type, self.shape, inwards=True) for value in operands]
        location = operands[0].location
        results: list[Any] = []
        holder = ir.Operation.create("builtin.module", regions=1)
        block = holder.regions[0].blocks.append(*types, arg_locs=[location] * len(types))
        with ir.InsertionPoint(block):
            results = build(list(block.arguments))
            ir.Operation.create("sdy.return", [], results)
        inside = [self.sharding(list(v.type.shape), self.local) for v in block.arguments]
        outside = [self.sharding(list(v.type.shape), self.local) for v in results]
        attributes = {
            "in_shardings": sdy.TensorShardingPerValueAttr.get(inside),
            "out_shardings": sdy.TensorShardingPerValueAttr.get(outside),
            "manual_axes": sdy.ManualAxesAttr.get([ir.StringAttr.get(name) for name in self.names]),
        }
        types = [self.resized(value.type, self.local, inwards=False) for value in results]
        new = ir.Operation.create(MANUAL_COMPUTATION, types, list(operands), attributes, regions=1)
        block.append_to(new.regions[0])
        holder.erase()
        return list(new.results)

    def resized(self, of: Any, shape: KernelShape, *, inwards: bool) -> Any:
        """The type of a part of a value, or of the whole of which it is a part."""
        sizes = list(of.shape)
        for dimension, parts in zip(_divided(sizes, shape), (self.shares.batch, self.shares.heads), strict=True):
            if dimension is not None:
                sizes[dimension] = sizes[dimension] // parts if inwards else sizes[dimension] * parts
        return builders.retype(of, sizes)

    def sharding(self, sizes: list[int], shape: KernelShape) -> Any:
        """How a value lies of which one device has such a part."""
        batch, heads = _divided(sizes, shape)
        axes = {batch: self.batch_axes, heads: self.head_axes}
        dimensions = [sdy.DimensionShardingAttr.get(axes.get(d, []), is_closed=True) for d in range(len(sizes))]
        return sdy.TensorShardingAttr.get(self.mesh, dimensions)


def _divided(sizes: list[int], shape: KernelShape) -> tuple[int | None, int | None]:
    """The dimensions of an operand or result of a kernel that are batch and heads; None where it is for all of them."""
    if shape.bias_shape == tuple(sizes):
        return (0 if sizes[0] > 1 else None), (1 if sizes[1] > 1 else None)
    heads = 2 if len(sizes) == 4 and shape.rows_first else 1
    return 0, (heads if len(sizes) > 2 else None)
