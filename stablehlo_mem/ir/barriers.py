"""Barriers of several operands, as barriers of one operand each that know which others they belong to.

Before:
    %a, %b = stablehlo.optimization_barrier %x, %y
After `split_barriers`:
    %a = stablehlo.optimization_barrier {barrier_group = 0 : i64} %x
    %b = stablehlo.optimization_barrier {barrier_group = 0 : i64} %y

An axis passes through a barrier of one operand. One of several says more: what uses %a waits for %y too. So does
`jax.checkpoint` have a layer computed again only when the gradient of the layer after it is there. In a finished
program `rewriting.join_barriers` puts the groups together again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, stablehlo, walk_operations
from stablehlo_mem.ir.graph import Graph, reachable

BARRIER = "stablehlo.optimization_barrier"
GROUP = "barrier_group"
"""The attribute that says to which group a barrier belongs."""
_PASSING = (BARRIER, "stablehlo.transpose", "stablehlo.convert", "stablehlo.reshape")
"""Ops whose result is their operand in another form."""


def split_barriers(module: ir.Module) -> None:
    """Makes one barrier an operand of every barrier, in place."""
    barriers = [op for op in walk_operations(module.operation) if op.name == BARRIER and len(op.operands) > 1]
    for group, op in enumerate(barriers, next_group(module)):
        with builders.building(op, op.location):
            new = grouped_barriers(op.operands, group)
        for old, replacement in zip(op.results, new, strict=True):
            old.replace_all_uses_with(replacement)
        op.erase()


def grouped_barriers(values: Sequence[Any], group: int) -> list[Any]:
    """Values behind barriers of a group, built at the insertion point."""
    number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), group)
    barriers = [stablehlo.OptimizationBarrierOp([v]) for v in values]
    for barrier in barriers:
        barrier.operation.attributes[GROUP] = number
    return [barrier.results[0] for barrier in barriers]


def set_apart(value: Any) -> Any:
    """A value behind more barriers than any other reader of it, built at the insertion point.

    What is computed from it is no other copy: compilers merge ops with equal operands, barriers too.
    """
    return behind_barriers(value, 1 + _barriers_behind(value))


def behind_barriers(value: Any, count: int) -> Any:
    """A value behind so many barriers in a row, built at the insertion point."""
    for _ in range(count):
        value = stablehlo.optimization_barrier([value])
    return value


def _barriers_behind(value: Any) -> int:
    """Through how many barriers in a row a value goes at most."""
    users = (use.owner.operation for use in value.uses)
    behind = [user.results[0] for user in users if user.name == BARRIER and len(user.operands) == 1]
    return max((1 + _barriers_behind(result) for result in behind), default=0)


def waiting_groups(graph: Graph, value: int) -> list[int]:
    """The groups of the barriers that a value goes through, converted or laid out otherwise in between."""
    groups: list[int] = []
    for reached in reachable([value], lambda v: _passed_on(graph, v)):
        barriers = (user for user in graph.users[reached] if graph.ops[user].name == BARRIER)
        found = (group_of(graph.handles[barrier]) for barrier in barriers)
        groups += [group for group in found if group is not None]
    return list(dict.fromkeys(groups))


def _passed_on(graph: Graph, value: int) -> list[int]:
    users = (graph.ops[user] for user in graph.users[value])
    return [op.results[0] for op in users if op.name in _PASSING]


def next_group(module: ir.Module) -> int:
    """A number that no group of a module has."""
    groups = (group_of(op) for op in walk_operations(module.operation))
    return 1 + max((group for group in groups if group is not None), default=-1)


def group_of(op: Any) -> int | None:
    """The group of an op, None if it has none."""
    return ir.IntegerAttr(op.attributes[GROUP]).value if GROUP in op.attributes else None
