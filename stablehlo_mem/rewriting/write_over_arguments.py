"""Lets loops that update an argument chunk by chunk write over it, where it is donated: no copy of it is made.

Before, with %m donated to the result:
    %r = while(%i, %new = %zeros) { %c = dynamic_slice %m, %i; ...; dynamic_update_slice %new, %updated, %i }
After:
    %r = while(%i, %new = %m) { %c = dynamic_slice %new, %i; ...; dynamic_update_slice %new, %updated, %i }
Or, for a compiler that would copy %new because several kernels of a step read the row which one of them writes:
    %w, %last = while(%i, %new = %m, %row = %m[0]) {
        %new1 = dynamic_update_slice %new, %row, max(%i - 1, 0)
        %c = dynamic_slice %new1, %i; ...                          a step hands %new1 and %updated on
    }
    %r = dynamic_update_slice %w, %last, n - 1

The planner calls it on a finished program: compilers keep the argument and the result side by side otherwise, and copy
one to the other in the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stablehlo_mem.analysis.overwritten_arguments import OverwrittenArgument, overwritten_arguments
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import DONATED, ir, signature_attributes, stablehlo
from stablehlo_mem.ir.graph import Graph, entry_graph, main_function
from stablehlo_mem.ir.loop_carries import drop_dead_carries, with_carries
from stablehlo_mem.ir.trip_count import counted


def write_over_arguments(module: ir.Module, *, delayed: bool = False) -> None:
    """Rewrites a module in place.

    Args:
        delayed: whether each step writes what the one before computed.
    """
    attributes = signature_attributes(main_function(module), "arg_attrs")
    if all(DONATED.isdisjoint(of_argument) for of_argument in attributes):
        return
    graph = entry_graph(module)
    of_loops: dict[int, list[OverwrittenArgument]] = {}
    for one in overwritten_arguments(graph):
        of_loops.setdefault(one.loop, []).append(one)
        _begin_with(graph, one)
    if delayed:
        for ones in of_loops.values():
            _delay(graph, ones)
    if of_loops:
        drop_dead_carries(module)


def _begin_with(graph: Graph, one: OverwrittenArgument) -> None:
    """Lets a loop write into the argument itself, of which each step reads what none has written yet."""
    body = graph.ops[one.loop].blocks[1]
    graph.handles[one.loop].operands[one.carry] = graph.mlir_values[one.argument]
    for op in one.slices:
        body.handles[op].operands[0] = body.mlir_values[body.arguments[one.carry]]


def _delay(graph: Graph, ones: Sequence[OverwrittenArgument]) -> None:
    """Lets each step of a loop write the chunks of the one before, and what comes after the loop those of the last."""
    loop, counter = graph.handles[ones[0].loop], counted(graph, graph.ops[ones[0].loop])
    assert counter is not None
    body, count = graph.ops[ones[0].loop].blocks[1], len(loop.results)
    with builders.building(loop, loop.location):
        firsts = [
            builders.sliced_along(loop.operands[one.carry], one.dimension, one.first, one.first + one.size)
            for one in ones
        ]
    new = with_carries(loop, [True] * count, firsts)
    block = new.regions[1].blocks[0]
    end = block.operations[len(block.operations) - 1].operation
    for number, one in enumerate(ones, count):
        update, array, step = end.operands[one.carry].owner, block.arguments[one.carry], block.arguments[counter.carry]
        with builders.building(block.operations[0], new.location):
            before = stablehlo.maximum(stablehlo.subtract(step, builders.ones(step.type)), builders.zeros(step.type))
            written = builders.update_along(array, block.arguments[number], one.dimension, _start(one, before))
        for op in one.slices:
            body.handles[op].operands[0] = written
        end.operands[one.carry], end.operands[number] = written, update.operands[1]
        update.erase()
        result = new.results[one.carry]
        with new.location, ir.InsertionPoint.after(new):
            last = builders.splat(step.type, one.first + one.stride * (counter.steps - 1))
            final = builders.update_along(result, new.results[number], one.dimension, last)
        result.replace_all_uses_except(final, final.owner.operation)


def _start(one: OverwrittenArgument, step: Any) -> Any:
    """The index of the first element that a step writes."""
    distance = step if abs(one.stride) == 1 else stablehlo.multiply(step, builders.splat(step.type, abs(one.stride)))
    return (stablehlo.add if one.stride > 0 else stablehlo.subtract)(builders.splat(step.type, one.first), distance)
