"""Makes the graph of a copy of a module from the graph of the module, without reading all of it again.

Rewriting passes and splits, which edit copies, call it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import Graph, main_function


def graph_of_copy(graph: Graph, copy: ir.Module) -> Graph:
    """The graph of the function `main` of a copy of a graph's module: only its MLIR objects differ.

    Its cache is its own, and empty.
    """
    return _of_copy(graph, main_function(copy).regions[0].blocks[0], ())


def _of_copy(graph: Graph, block: ir.Block, captured: tuple[Any, ...]) -> Graph:
    handles = tuple([op.operation for op in block.operations])
    values: list[Any] = [None] * len(graph.values)
    for index, value in zip((*graph.arguments, *graph.captured), (*block.arguments, *captured), strict=True):
        values[index] = value
    ops = list(graph.ops)
    for op, handle in zip(graph.ops, handles, strict=True):
        if op.blocks:
            inner = [block for region in handle.regions for block in region.blocks]
            pairs = zip(op.blocks, inner, strict=True)
            copies = [_of_copy(g, b, tuple([values[v] for v in g.captured_from])) for g, b in pairs]
            ops[op.index] = dataclasses.replace(op, blocks=tuple(copies))
        for index, result in zip(op.results, handle.results, strict=True):
            values[index] = result
    return dataclasses.replace(graph, ops=tuple(ops), handles=handles, mlir_values=tuple(values))
