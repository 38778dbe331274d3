"""Finds the donated arguments that a loop may write over, chunk by chunk, instead of filling an array of its own.

The update of parameters in a loop is one: each step reads a row of them and writes it anew, and nobody reads it later.
`write_over_arguments` rewrites such loops in finished programs, and the static profile counts no array for them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.donation import donated_arguments
from stablehlo_mem.ir.graph import Graph, Op, producers_of, reachable
from stablehlo_mem.ir.loop_carries import is_only_read, readers_in, unchanged, update_in_place
from stablehlo_mem.ir.trip_count import Affine, affine, counted, induction_variables, trip_count

_Chunk = tuple[tuple[Affine | None, ...], tuple[int, ...]]
"""The starts of a slice, each as it follows from the step (`affine`), and its shape."""


@dataclasses.dataclass(frozen=True)
class OverwrittenArgument:
    """An argument of main that a loop may write over.

    Attributes:
        argument: the value.
        loop, carry: the loop, and its carry that becomes the result.
        slices: the ops of the loop's body that read the argument.
        dimension, size: what each step writes: so many elements of a dimension, all of the others.
        first, stride: the index of the first of them in the first step, and how it changes.
    """

    argument: int
    loop: int
    carry: int
    slices: tuple[int, ...]
    dimension: int
    size: int
    first: int
    stride: int


@cached_analysis
def overwritten_arguments(main: Graph) -> tuple[OverwrittenArgument, ...]:
    """The arguments that may be, one for each result that a loop writes chunk by chunk."""
    found: list[OverwrittenArgument] = []
    for position, argument in donated_arguments(main).items():
        value = main.returned[position]
        loop = main.producer(value)
        if loop is None or counted(main, loop) is None or main.returned.count(value) > 1:
            continue
        carry = main.values[value].result
        chunk = _written(main, loop, carry)
        slices = _reads_of(main, loop, argument) if chunk is not None else {}
        if chunk is not None and slices and all(chunk == read for read in slices.values()):
            ((dimension, (stride, first)),) = ((d, start) for d, start in enumerate(chunk[0]) if start and start[0])
            size = chunk[1][dimension]
            found.append(
                OverwrittenArgument(argument, loop.index, carry, tuple(slices), dimension, size, first, stride)
            )
    return tuple(found)


def chunk_bytes(main: Graph, loop: Op) -> int:
    """Bytes of what a step of a loop writes over arguments."""
    of_loop = (one for one in overwritten_arguments(main) if one.loop == loop.index)
    arguments = ((main.values[one.argument], one) for one in of_loop)
    return sum(value.nbytes // value.shape[one.dimension] * one.size for value, one in arguments)


@cached_analysis
def results_beside_arguments(main: Graph) -> frozenset[int]:
    """The results, by position, that a loop fills while the argument donated to them is read: they are copied later."""
    over = {(one.loop, one.carry) for one in overwritten_arguments(main)}
    beside: set[int] = set()
    for position, argument in donated_arguments(main).items():
        value = main.values[main.returned[position]]
        loop = main.producer(value.index)
        if loop is None or loop.name != "stablehlo.while" or (loop.index, value.result) in over:
            continue
        is_read = any(user >= loop.index for user in main.users[argument])
        if is_read and loop.operands[value.result] != argument:
            beside.add(position)
    return frozenset(beside)


def _written(main: Graph, loop: Op, carry: int) -> _Chunk | None:
    """What each step writes to a carry, if all steps together write each element once."""
    condition, body = loop.blocks
    update = update_in_place(body, carry)
    if update is None or condition.users[condition.arguments[carry]]:
        return None
    steps = trip_count(main, loop)
    starts, shape = chunk = _chunk(main, loop, update.operands[2:], update.operands[1])
    whole = body.values[update.operands[0]].shape
    cut = [d for d, size in enumerate(shape) if size < whole[d]]
    if len(cut) != 1 or shape[cut[0]] * steps != whole[cut[0]]:
        return None
    size, last = shape[cut[0]], whole[cut[0]] - shape[cut[0]]
    in_order = starts[cut[0]] in ((size, 0), (-size, last))
    from_zero = all(start == (0, 0) for d, start in enumerate(starts) if d != cut[0])
    return chunk if in_order and from_zero else None


def _chunk(main: Graph, loop: Op, starts: Sequence[int], value: int) -> _Chunk:
    """The chunk of an array that a value of a loop's body is, which begins at some indices."""
    body, variables, steps = loop.blocks[1], induction_variables(main, loop), trip_count(main, loop)
    return tuple([affine(body, start, variables, steps) for start in starts]), body.values[value].shape


def _reads_of(main: Graph, loop: Op, argument: int) -> dict[int, _Chunk | None]:
    """The ops by which a loop reads an argument, each with what it reads; empty if somebody else reads it later.

    Others may read it that the loop depends on: they are done before it begins, such as the passes through a network
    before the update of its parameters.
    """
    body = loop.blocks[1]
    carried = (i for i, operand in enumerate(loop.operands) if operand == argument)
    if not _needed_by(main, loop.index) >= {*main.users[argument]}:
        return {}
    if not all(is_only_read(main, loop, carry) for carry in carried):
        return {}
    names = [inner for inner, outer in unchanged(loop, 1).items() if outer == argument]
    readers = sorted({user for name in names for user in readers_in(body, name)})
    return {user: _read(main, loop, body.ops[user], names) for user in readers}


@cached_analysis
def _needed_by(main: Graph, op: int) -> frozenset[int]:
    """An op and all that it depends on."""
    return frozenset(reachable([op], lambda one: producers_of(main)[one]))


def _read(main: Graph, loop: Op, op: Op, names: Sequence[int]) -> _Chunk | None:
    """What an op reads of a value that has some names, if it reads a slice."""
    if op.name != "stablehlo.dynamic_slice" or op.operands[0] not in names:
        return None
    return _chunk(main, loop, op.operands[1:], op.results[0])
