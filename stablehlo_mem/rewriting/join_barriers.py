"""Puts barriers that belong together into one again: `ir.barriers` took them apart, or a pass made them so.

Before:
    %a = stablehlo.optimization_barrier {barrier_group = 0 : i64} %x
    %b = stablehlo.optimization_barrier {barrier_group = 0 : i64} %y
After:
    %a, %b = stablehlo.optimization_barrier %x, %y

What uses %a waits for %y again. The planner calls it on a finished program. A split may have left a part of a group
outside of its loop, or have made several loops of it: each block joins what it has. Where the ops of a group are
repeated in one block, a repetition comes after uses of the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.barriers import BARRIER, GROUP, group_of
from stablehlo_mem.ir.bindings import ir, stablehlo, walk_operations
from stablehlo_mem.ir.graph import Graph, entry_graph, nested_graph
from stablehlo_mem.rewriting.rewriting_pass import block_paths


def join_barriers(module: ir.Module) -> None:
    """Joins the groups of every block, in place."""
    if not any(GROUP in op.attributes for op in walk_operations(module.operation)):
        return
    main = entry_graph(module)
    for graph in [nested_graph(main, path) for path in block_paths(main)]:
        for barriers in list(_groups(graph)):
            _join([graph.handles[op] for op in barriers])


def _groups(graph: Graph) -> Iterator[Sequence[int]]:
    """The barriers of a block that become one: each stands before all uses of the others."""
    latest: dict[int, list[int]] = {}
    for op in graph.ops:
        group = group_of(graph.handles[op.index]) if op.name == BARRIER else None
        if group is None:
            continue
        together = latest.get(group, [])
        uses = (graph.users[graph.ops[barrier].results[0]] for barrier in together)
        if min((users[0] for users in uses if users), default=op.index) < op.index:
            yield together
            together = []
        latest[group] = [*together, op.index]
    yield from latest.values()


def _join(barriers: Sequence[Any]) -> None:
    """Puts one barrier in the place of the last of some."""
    with builders.building(barriers[-1], barriers[-1].location):
        joined = stablehlo.OptimizationBarrierOp([barrier.operands[0] for barrier in barriers])
    for barrier, result in zip(barriers, joined.results, strict=True):
        barrier.results[0].replace_all_uses_with(result)
        barrier.erase()
