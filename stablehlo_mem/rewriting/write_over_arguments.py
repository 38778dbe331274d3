"""Lets loops that update an argument chunk by chunk write over it, where it is donated: no copy of it is made.

Before, with %m donated to the result:
    %r = while(%i, %new = %zeros) { %c = dynamic_slice %m, %i; ...; dynamic_update_slice %new, %updated, %i }
After:
    %r = while(%i, %new = %m) { %c = dynamic_slice %new, %i; ...; dynamic_update_slice %new, %updated, %i }

The planner calls it on a finished program some of whose arguments are in the host's memory: compilers make a copy of
the result otherwise, of which the device has no room, and copies from host to host.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from stablehlo_mem.ir.bindings import DONATED, ir, signature_attributes
from stablehlo_mem.ir.graph import Graph, Op, entry_graph, main_function, producers_of, reachable
from stablehlo_mem.ir.host_memory import MEMORY_KIND, attributes_say_host
from stablehlo_mem.ir.matchers import splat_value
from stablehlo_mem.ir.trip_count import find_counter

_Chunk = tuple[tuple[int, ...], tuple[int, ...]]
"""The starts and the shape of a slice."""


@dataclasses.dataclass(frozen=True)
class _Overwritten:
    """An argument of main that a loop may write over.

    Attributes:
        argument: the value.
        loop, carry: the loop, and its carry that becomes the result.
        slices: the ops of the loop's body that read the argument.
    """

    argument: int
    loop: int
    carry: int
    slices: tuple[int, ...]


def write_over_arguments(module: ir.Module) -> None:
    """Rewrites a module in place; one without arguments in the host's memory stays as it is."""
    attributes = signature_attributes(main_function(module), "arg_attrs")
    if not any(map(attributes_say_host, attributes)):
        return
    graph = entry_graph(module)
    taken: set[int] = set()
    for one in _overwritten(graph, attributes):
        if one.argument not in taken:
            taken.add(one.argument)
            body = graph.ops[one.loop].blocks[1]
            graph.handles[one.loop].operands[one.carry] = graph.mlir_values[one.argument]
            for op in one.slices:
                body.handles[op].operands[0] = body.mlir_values[body.arguments[one.carry]]


def _overwritten(graph: Graph, attributes: list[dict[str, Any]]) -> Iterator[_Overwritten]:
    """For each result that a loop writes chunk by chunk, the donated arguments it may write over."""
    for output, value in enumerate(graph.returned):
        loop = graph.producer(value)
        if loop is None or loop.name != "stablehlo.while" or graph.returned.count(value) > 1:
            continue
        carry = graph.values[value].result
        chunk = _chunk(graph, loop, carry)
        for argument, of_argument in zip(graph.arguments, attributes, strict=True):
            if chunk is not None and _may_be(graph, argument, of_argument, value, output):
                slices = _slices_at(graph, loop, argument, chunk)
                if slices:
                    yield _Overwritten(argument, loop.index, carry, slices)


def _may_be(graph: Graph, argument: int, attributes: dict[str, Any], value: int, output: int) -> bool:
    """Whether an argument is donated to a result, or to any of its type and memory."""
    if DONATED.isdisjoint(attributes):
        return False
    if "tf.aliasing_output" in attributes:
        return ir.IntegerAttr(attributes["tf.aliasing_output"]).value == output
    given, result = graph.values[argument], graph.values[value]
    same_memory = MEMORY_KIND not in attributes or bool(given.host_bytes) == bool(result.host_bytes)
    return same_memory and (given.shape, given.dtype) == (result.shape, result.dtype)


def _chunk(graph: Graph, loop: Op, carry: int) -> _Chunk | None:
    """Starts and shape of what each step writes to a carry, if all steps together write each element once."""
    condition, body = loop.blocks
    argument, counter = body.arguments[carry], find_counter(graph, loop)
    update = body.producer(body.returned[carry])
    if update is None or update.name != "stablehlo.dynamic_update_slice" or update.operands[0] != argument:
        return None
    is_alone = body.users[argument] == (update.index,) and update.operands.count(argument) == 1
    if not is_alone or counter is None or (counter.start, counter.stride) != (0, 1):
        return None
    shape, whole = (body.values[v].shape for v in (update.operands[1], argument))
    cut = [d for d, size in enumerate(shape) if size < whole[d]]
    starts = update.operands[2:]
    if condition.users[condition.arguments[carry]] or len(cut) != 1 or shape[cut[0]] * counter.steps != whole[cut[0]]:
        return None
    in_order = _is_multiple(body, starts[cut[0]], body.arguments[counter.carry], shape[cut[0]])
    others = (splat_value(body, v) == 0 for d, v in enumerate(starts) if d != cut[0])
    return (starts, shape) if in_order and all(others) else None


def _is_multiple(body: Graph, value: int, counter: int, factor: int) -> bool:
    """Whether a value is a counter times a number."""
    producer = body.producer(value)
    if producer is None or producer.name != "stablehlo.multiply":
        return factor == 1 and value == counter
    left, right = producer.operands
    return left == counter and splat_value(body, right) == factor


def _slices_at(graph: Graph, loop: Op, argument: int, chunk: _Chunk) -> tuple[int, ...]:
    """The ops by which a loop reads an argument, if each reads what the step writes and nobody else reads it later.

    Others may read it that the loop depends on: they are done before it begins, such as the passes through a network
    before the update of its parameters.
    """
    body = loop.blocks[1]
    before = reachable([loop.index], lambda op: producers_of(graph)[op])
    if argument in loop.operands or argument not in body.captured_from or not before.keys() >= {*graph.users[argument]}:
        return ()
    inner = body.captured[body.captured_from.index(argument)]
    readers = [body.ops[user] for user in body.users[inner]]
    return tuple(op.index for op in readers) if all(_reads_chunk(body, op, inner, chunk) for op in readers) else ()


def _reads_chunk(body: Graph, op: Op, value: int, chunk: _Chunk) -> bool:
    """Whether an op reads a chunk of a value."""
    starts, shape = chunk
    if op.name != "stablehlo.dynamic_slice" or op.operands[0] != value or body.values[op.results[0]].shape != shape:
        return False
    pairs = zip(op.operands[1:], starts, strict=True)
    return all(one == other or splat_value(body, one) == splat_value(body, other) is not None for one, other in pairs)
