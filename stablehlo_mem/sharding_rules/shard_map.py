"""Rules of `jax.shard_map` bodies: of the manual computation around them and of the collectives inside.

The blocks of a manual computation run on every device, on its part of each value. An axis passes along dimensions that
lie in as many parts as the axis has: a chunk is an equal share of every part, and each device runs the block on its
own share. Collectives are split along the dimensions that they exchange nothing along; each chunk exchanges its part.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import Op
from stablehlo_mem.ir.manual_computation import (
    COLLECTIVES,
    MANUAL_COMPUTATION,
    created,
    lying,
    operand_shardings,
    result_shardings,
)
from stablehlo_mem.sharding_rules.control_flow import SUMS_OF_BLOCKS, emit_block
from stablehlo_mem.sharding_rules.factor_rule import Dims, FactorRule, elementwise_rule, same_shape_rule
from stablehlo_mem.sharding_rules.op_rule import Chunk, EmitContext, OpRule, RegionEdge
from stablehlo_mem.sharding_rules.region_edges import Region, RegionSplit
from stablehlo_mem.sharding_rules.region_propagation import split_of

_MOVED = {
    "stablehlo.all_gather": ("all_gather_dim",),
    "stablehlo.reduce_scatter": ("scatter_dimension",),
    "stablehlo.all_to_all": ("split_dimension", "concat_dimension"),
}
"""The attributes that name the dimensions along which these collectives change what a device has."""


def _edges(op: Op) -> tuple[RegionEdge, ...]:
    """Operands and results of a manual computation, which captures nothing."""
    (block,) = op.blocks
    entering = [RegionEdge(i, None, ((0, argument),), ()) for i, argument in enumerate(block.arguments)]
    return (*entering, *(RegionEdge(None, i, (), ((0, value),)) for i, value in enumerate(block.returned)))


def _emit(context: EmitContext) -> list[Any]:
    """The manual computation with its block on the share that a device has of the chunk."""
    region = Region(context.rules, context.split_op.op)
    split, op, chunk = split_of(region, context.split_op), context.op, context.chunk.share(region.shares)
    # The block sees no values from outside: where the chunk begins is handed in, to every device.
    counts = {f.name: v for f in dataclasses.fields(chunk) if isinstance(v := getattr(chunk, f.name), ir.Value)}
    mesh = [*operand_shardings(op), *result_shardings(op)][0].mesh_or_ref
    shardings = [*operand_shardings(op), *[lying(mesh, [])] * len(counts)]
    results = [builders.retype(r.type, shape) for r, shape in zip(op.results, context.result_shapes, strict=True)]
    operands = zip([*context.operands, *counts.values()], shardings, strict=True)
    new = created(op.attributes["manual_axes"], list(operands), list(zip(results, result_shardings(op), strict=True)))
    arguments = [*_argument_types(region, split, chunk), *(value.type for value in counts.values())]
    target = new.regions[0].blocks.append(*arguments, arg_locs=[op.location] * len(arguments))
    handed_in = list(target.arguments)[len(context.operands) :]
    inside = dataclasses.replace(chunk, **dict(zip(counts, handed_in, strict=True)))
    with ir.InsertionPoint(target):
        emit_block(region, split, 0, context, target, inside)
    return list(new.results)


def _argument_types(region: Region, split: RegionSplit, chunk: Chunk) -> list[Any]:
    """The types of a block's arguments on one chunk."""
    block, types = region.blocks[0], list[Any]()
    for argument, form in zip(block.arguments, split.forms, strict=False):
        shape = list(block.values[argument].shape)
        if isinstance(form, int):
            shape[form] = shape[form] // split.n * chunk.size
        types.append(builders.retype(block.mlir_values[argument].type, shape))
    return types


def _collective_rule(op: Any) -> FactorRule | None:
    """Every dimension passes through but those along which a device has more or less afterwards.

    None where several values of different shapes are exchanged at once.
    """
    if any(len({tuple(v.type.shape) for v in values}) > 1 for values in (op.operands, op.results)):
        return None
    if op.name not in _MOVED:
        return same_shape_rule(op)
    moved = {op.attributes[name].value for name in _MOVED[op.name]}
    shape, count = list(op.results[0].type.shape), len(op.results)
    extents = [list(operand.type.shape) for operand in op.operands]
    rule = elementwise_rule((*shape, *(extents[0][d] for d in sorted(moved))), (len(shape),) * len(extents), count)
    # What is moved along has one factor in the operands and another one in the results.
    own = {d: len(shape) + i for i, d in enumerate(sorted(moved))}
    operands: Dims = tuple((own.get(d, d),) for d in range(len(shape)))
    results: Dims = tuple((d,) for d in range(len(shape)))
    rule = dataclasses.replace(rule, operands=(operands,) * len(extents), results=(results,) * count)
    return rule.block({*moved, *own.values()}, "devices exchange parts of it")


OP_RULES = {
    MANUAL_COMPUTATION: OpRule(emit=_emit, reduction=SUMS_OF_BLOCKS, edges=_edges),
    **{name: OpRule(rule=_collective_rule) for name in sorted(COLLECTIVES)},
}
