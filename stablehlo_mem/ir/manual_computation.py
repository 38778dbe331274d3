"""Manual computations (`sdy.manual_computation`), which `jax.shard_map` becomes: what lies where, and built anew.

The normal form changes what one hands to another (`frontend.shard_map_residuals`), the rules of splitting pass through
them (`sharding_rules.shard_map`), and `rewriting.shard_map_pairs` moves ops from one to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stablehlo_mem.ir.bindings import ir, sdy, walk_operations

MANUAL_COMPUTATION = "sdy.manual_computation"
COLLECTIVES = frozenset(
    f"stablehlo.{name}"
    for name in (
        *("all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute", "reduce_scatter"),
    )
)
"""The ops by which devices exchange what they have in their blocks."""


def computations(module: ir.Module) -> list[Any]:
    """The manual computations of a module, those inside loops too."""
    return [op for op in walk_operations(module.operation) if op.name == MANUAL_COMPUTATION]


def body_of(op: Any) -> Any:
    """The block of a manual computation."""
    return op.regions[0].blocks[0]


def end_of(op: Any) -> Any:
    """The op that returns from a manual computation."""
    return list(body_of(op).operations)[-1].operation


def operand_shardings(op: Any) -> list[Any]:
    """How the operands of a manual computation lie."""
    return _read(op.attributes["in_shardings"])


def result_shardings(op: Any) -> list[Any]:
    """How its results lie."""
    return _read(op.attributes["out_shardings"])


def _read(attribute: ir.Attribute) -> list[Any]:
    return [sdy.TensorShardingAttr(sharding) for sharding in sdy.TensorShardingPerValueAttr(attribute).shardings]


def set_shardings(op: Any, *, operands: Sequence[Any] | None = None, results: Sequence[Any] | None = None) -> None:
    """Says anew how operands or results lie."""
    for name, shardings in (("in_shardings", operands), ("out_shardings", results)):
        if shardings is not None:
            op.attributes[name] = sdy.TensorShardingPerValueAttr.get(list(shardings))


def created(axes: ir.Attribute, operands: Sequence[tuple[Any, Any]], results: Sequence[tuple[Any, Any]]) -> Any:
    """A manual computation over mesh axes, its block to be added, at the insertion point.

    Args:
        axes: as the attribute `manual_axes` of another one says them.
        operands: values, each with how it lies.
        results: types, likewise.
    """
    types, values = [t for t, _ in results], [v for v, _ in operands]
    attributes = {"manual_axes": axes}
    for name, given in (("in_shardings", operands), ("out_shardings", results)):
        attributes[name] = sdy.TensorShardingPerValueAttr.get([sharding for _, sharding in given])
    return ir.Operation.create(MANUAL_COMPUTATION, types, values, attributes, regions=1)


def lying(mesh: Any, axes: Sequence[Sequence[Any]]) -> Any:
    """The sharding of a value each dimension of which is shared out over some mesh axes."""
    dimensions = [sdy.DimensionShardingAttr.get(list(of_one), is_closed=True) for of_one in axes]
    return sdy.TensorShardingAttr.get(mesh, dimensions)


def is_fully_manual(op: Any) -> bool:
    """Whether a manual computation is over all axes of its mesh: then nothing is left open about where values lie."""
    shardings = [*operand_shardings(op), *result_shardings(op)]
    dimensions = (sdy.DimensionShardingAttr(d) for sharding in shardings for d in sharding.dimension_shardings)
    return all(dimension.is_closed for dimension in dimensions)


def lies_alike(result: Any, reader: Any, operand: int) -> bool:
    """Whether a manual computation reads, on each device, what another one over the same axes returns there."""
    op = result.owner
    if op.name != MANUAL_COMPUTATION or reader.name != op.name:
        return False
    alike = reader.attributes["manual_axes"] == op.attributes["manual_axes"]
    return alike and operand_shardings(reader)[operand] == result_shardings(op)[ir.OpResult(result).result_number]
