"""Adds carries to while loops and removes them, for the passes that change what a loop computes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import ir, run_passes, stablehlo
from stablehlo_mem.ir.graph import Graph, Op, entry_graph, reachable


def with_carries(loop: Any, keep: Sequence[bool], added: Sequence[Any]) -> Any:
    """Replaces a while by one with some of its carries and new ones, and returns that.

    Args:
        keep: for each carry, whether it stays. The results of the others are unused; the body and the condition use
            their initial values.
        added: initial values of the new carries, which come last. The body returns them unchanged.
    """
    operands = list(itertools.compress(loop.operands, keep))
    with builders.building(loop, loop.location):
        new = stablehlo.WhileOp([v.type for v in (*operands, *added)], [*operands, *added]).operation
    for region, target in zip(loop.regions, new.regions, strict=True):
        block = region.blocks[0]
        block.append_to(target)
        for value in added:
            block.add_argument(value.type, loop.location)
    body = new.regions[1].blocks[0]
    end = body.operations[len(body.operations) - 1].operation
    returned = itertools.compress(end.operands, keep)
    with builders.building(end, end.location):
        stablehlo.return_([*returned, *list(body.arguments)[len(keep) :]])
    end.erase()
    for i in (i for i in reversed(range(len(keep))) if not keep[i]):
        for region in new.regions:
            region.blocks[0].arguments[i].replace_all_uses_with(loop.operands[i])
            region.blocks[0].erase_argument(i)
    for old, result in zip(itertools.compress(loop.results, keep), new.results, strict=False):
        old.replace_all_uses_with(result)
    loop.erase()
    return new


def with_stacks(loop: Any, rows: Sequence[Any], counter: int, steps: int) -> Any:
    """Replaces a while by one that stores values of its body in every step, and returns that.

    Args:
        rows: values of the body; each gets a stack, with a row for every step. The stacks are the last results.
        counter: the position of the carry that counts the steps from 0.
        steps: how many there are.
    """
    if not rows:
        return loop
    count = len(loop.results)
    with builders.building(loop, loop.location):
        types = [builders.retype(row.type, [steps, *row.type.shape]) for row in rows]
        added = [builders.broadcast_zeros(t) for t in types]
    new = with_carries(loop, [True] * count, added)
    body = new.regions[1].blocks[0]
    end = body.operations[len(body.operations) - 1].operation
    for i, value in enumerate(rows, count):
        with builders.building(end, new.location):
            row = builders.reshaped(value, [1, *value.type.shape])
            end.operands[i] = builders.update_along(body.arguments[i], row, 0, body.arguments[counter])
    return new


def carried_names(place: Any) -> dict[Any, Any]:
    """For each outer value that the loops around an op hand on unchanged, the loop argument that holds it at the op."""
    parent = place.operation.parent
    if parent is None:
        return {}
    outer = carried_names(parent)
    if parent.name != "stablehlo.while":
        return outer
    body = parent.regions[1].blocks[0]
    returned = body.operations[len(body.operations) - 1].operation.operands
    carries = zip(parent.operands, place.operation.block.arguments, body.arguments, returned, strict=True)
    names = {operand: argument for operand, argument, own, value in carries if value == own}
    return {**names, **{value: names.get(name, name) for value, name in outer.items()}}


def drop_dead_carries(module: ir.Module) -> None:
    """Removes the carries of loops that nothing depends on, and dead code, in place."""
    run_passes(module, "canonicalize")
    while _drop_dead_carries(entry_graph(module)):
        run_passes(module, "canonicalize")  # the ops that computed them may be the only users of others


def _drop_dead_carries(graph: Graph) -> bool:
    """Removes them from all loops of a block, inner loops first, as a loop is built anew; False if none has any."""
    dropped = False
    for op in graph.ops:
        for block in op.blocks:
            dropped |= _drop_dead_carries(block)
        if op.name == "stablehlo.while":
            # Its results, the condition and ops with effects are what may depend on a carry.
            live = _live_carries(op, {i for i, v in enumerate(op.results) if graph.users[v]})
            if len(live) < len(op.results):
                with_carries(graph.handles[op.index], [i in live for i in range(len(op.results))], ())
                dropped = True
    return dropped


def _live_carries(op: Op, results: set[int]) -> set[int]:
    """The carries of a while on which some of its results, its condition or effects depend."""
    condition, body = op.blocks
    read = arguments_read(body)
    start = results | {i for i, v in enumerate(condition.arguments) if condition.users[v]}
    start = start.union(*(read[v] for o in body.ops[:-1] if not o.results for v in o.operands))
    return set(reachable(start, lambda carry: read[body.returned[carry]]))


@cached_analysis
def arguments_read(block: Graph) -> tuple[frozenset[int], ...]:
    """For each value of a block the positions of the block's arguments from which it is computed."""
    nothing = frozenset[int]()
    read = [nothing] * len(block.values)
    for position, argument in enumerate(block.arguments):
        read[argument] = frozenset({position})
    for op in block.ops:
        by_all = nothing.union(*(read[v] for v in (op.captures if op.name == "stablehlo.while" else op.inputs)))
        for position, result in enumerate(op.results):
            # A result of a loop is computed only from the carries that it depends on.
            live = _live_carries(op, {position}) if op.name == "stablehlo.while" else ()
            read[result] = by_all.union(*(read[op.operands[i]] for i in live))
    return tuple(read)


def unchanged(op: Op, number: int) -> dict[int, int]:
    """The values of one of an op's blocks that stay what they are outside, each with the value that it is there."""
    block = op.blocks[number]
    outer = dict(zip(block.captured, block.captured_from, strict=True))
    if op.name == "stablehlo.while":
        carries = zip(block.arguments, op.operands, invariant_carries(op), strict=True)
        outer |= {argument: operand for argument, operand, invariant in carries if invariant}
    return outer


def invariant_carries(op: Op) -> tuple[bool, ...]:
    """For each carry of a while, whether its body returns it unchanged."""
    body = op.blocks[1]
    return tuple(a == r for a, r in zip(body.arguments, body.returned, strict=True))


def is_only_read(graph: Graph, loop: Op, carry: int) -> bool:
    """Whether a while hands a carry on unchanged, and neither its condition nor anybody after it reads the carry."""
    condition, _ = loop.blocks
    unread = not graph.users[loop.results[carry]] and not condition.users[condition.arguments[carry]]
    return unread and invariant_carries(loop)[carry]


def update_in_place(body: Graph, carry: int) -> Op | None:
    """The dynamic_update_slice by which a loop's body writes into a carry that it does not read otherwise."""
    argument, update = body.arguments[carry], body.producer(body.returned[carry])
    if update is None or update.name != "stablehlo.dynamic_update_slice" or update.operands[0] != argument:
        return None
    is_alone = body.users[argument] == (update.index,) and update.operands.count(argument) == 1
    return update if is_alone else None


def readers_in(block: Graph, value: int) -> list[int]:
    """The ops of a block that read a value, without the end of a body that hands on an argument only as itself."""
    users, last = block.users[value], len(block.ops) - 1
    if last not in users or value not in block.arguments:
        return list(users)
    handed_on = [i for i, returned in enumerate(block.returned) if returned == value]
    is_itself = handed_on == [block.arguments.index(value)]
    return [user for user in users if not (is_itself and user == last)]
