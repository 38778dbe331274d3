"""The memory profile of a whole module, for people and for the budget: what `memory.lay_out` finds, with sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from stablehlo_mem.analysis.fusion_classes import buffer_bytes
from stablehlo_mem.analysis.peak_memory import MemoryProfile, Peak, lay_out
from stablehlo_mem.frontend.canonicalize import normalise
from stablehlo_mem.ir.bindings import clone_module, ir, is_splat_constant
from stablehlo_mem.ir.graph import Graph, entry_graph, nested_graph
from stablehlo_mem.results.memory_history import describe, draw_history
from stablehlo_mem.targets.chips import Chip


def profile_module(module: ir.Module, chip: Chip) -> MemoryProfile:
    """The static profile of a module's main function on a chip. The module is not changed."""
    clone = clone_module(module)
    normalise(clone)
    return profile_graph(entry_graph(clone), chip)


def profile_graph(graph: Graph, chip: Chip) -> MemoryProfile:
    """The static profile of the graph of a main function in normal form on a chip."""
    timeline, temporaries = lay_out(graph, chip)
    peak = timeline.peak(temporaries)
    main = graph.handles[-1].operation.parent
    sizes = [buffer_bytes(v, chip) for v in graph.values]
    arguments = sum(sizes[v] for v in graph.arguments)
    outputs = sum(sizes[v] for v in graph.returned)
    aliased, constants = _alias_bytes(graph, main, sizes), constant_bytes(graph)
    return MemoryProfile(
        argument_bytes=arguments,
        output_bytes=outputs,
        temp_bytes=peak.temp_bytes,
        alias_bytes=aliased,
        constant_bytes=constants,
        live=tuple(describe(graph, live) for live in peak.live),
        point=_point(graph, peak),
        history=draw_history(graph, timeline, temporaries, arguments + outputs + constants - aliased),
    )


def _alias_bytes(graph: Graph, main: Any, sizes: list[int]) -> int:
    """Bytes of the outputs written over donated arguments: those tied to one, then any that fit a donor."""
    if "arg_attrs" not in main.attributes:
        return 0
    aliased = 0
    donors: Counter[tuple[tuple[int, ...], str]] = Counter()
    free = dict(enumerate(graph.returned))
    for argument, entry in zip(graph.arguments, ir.ArrayAttr(main.attributes["arg_attrs"]), strict=True):
        value = graph.values[argument]
        attributes: Any = ir.DictAttr(entry)
        if "tf.aliasing_output" in attributes:
            aliased += sizes[free.pop(ir.IntegerAttr(attributes["tf.aliasing_output"]).value, argument)]
        elif "jax.buffer_donor" in attributes:
            donors[value.shape, value.dtype] += 1
    for output in free.values():
        value = graph.values[output]
        if donors[value.shape, value.dtype]:
            donors[value.shape, value.dtype] -= 1
            aliased += sizes[output]
    return aliased


def constant_bytes(graph: Graph) -> int:
    """Bytes of the constants embedded in the program: those that are not one value repeated."""
    return sum(
        block.values[op.results[0]].nbytes
        for block in _blocks(graph)
        for op in block.ops
        if op.name == "stablehlo.constant" and not is_splat_constant(block.handles[op.index])
    )


def _blocks(graph: Graph) -> Iterator[Graph]:
    yield graph
    for op in graph.ops:
        for block in op.blocks:
            yield from _blocks(block)


def _point(graph: Graph, peak: Peak) -> str:
    block = nested_graph(graph, peak.path)
    name = block.ops[peak.op].name.partition(".")[2]
    return f"{name} at {block.source(peak.op)}".removesuffix(" at ")
