"""Copies what is computed with to the device, and results of the host to it: a part of the normal form.

A program that gets arguments in the host's memory computes with them as with any other, and compilers copy them whole.
With the copies written down, analyses see them, and splits make copies of slices of them. Where the program copies a
whole argument itself, slices of the copy become copies of slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stablehlo_mem.ir.bindings import ir, walk_operations
from stablehlo_mem.ir.host_memory import (
    is_placement,
    memory_kinds,
    memory_of,
    names_host,
    names_host_memory,
    placed,
    stays_in_memory,
    values_in_host_memory,
)
from stablehlo_mem.ir.packed_rows import cuts_packed_rows

_SLICING = ("stablehlo.slice", "stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice")


def place_uses(function: Any) -> None:
    """Copies what arithmetic reads of arguments in the host's memory to the device, and results there to the host.

    Before: `%y = add %argument, %x`, with the argument and the result in the host's memory.
    After: `%a = annotate_device_placement(%argument) "device"`, `%y = add %a, %x`, and a copy of `%y` to "pinned_host".

    A loop that computes with the whole of an argument gets a copy made before it; one that takes slices copies these.
    """
    if not names_host_memory(function):
        return
    kinds, of_arguments = memory_kinds(function, "res_attrs"), memory_kinds(function, "arg_attrs")
    arguments = [v for v, kind in zip(function.arguments, of_arguments, strict=True) if kind == "pinned_host"]
    _drop_copies_to_the_same_memory(function)
    for argument in arguments:
        _take_whole_copies_away(argument)
    for argument in arguments:
        _copy_what_is_no_slice(argument)
    in_host_memory = values_in_host_memory(function, has_placements=True)
    end = list(function.entry_block.operations)[-1].operation
    uses = {(use.owner.operation, use.operand_number): value for value in in_host_memory for use in value.uses}
    uses = {
        (op, number): value for (op, number), value in uses.items() if op != end and not stays_in_memory(op, number)
    }
    users: dict[tuple[Any, Any], list[Any]] = {}
    for (op, _), value in uses.items():
        users.setdefault((op.block, value), []).append(op)
    copies = {(block, value): _copy_before_first(value, ops) for (block, value), ops in users.items()}
    for (op, number), value in uses.items():
        op.operands[number] = copies[op.block, value]
    for number, (value, kind) in enumerate(zip(end.operands, kinds, strict=True)):
        if (value in in_host_memory) != (kind == "pinned_host"):
            with end.location, ir.InsertionPoint(end):
                end.operands[number] = placed(value, kind)


def _drop_copies_to_the_same_memory(function: Any) -> None:
    """Drops the placements of what is there already, as JAX writes one for each result."""
    in_host_memory = values_in_host_memory(function, has_placements=True)
    copies = [op for op in walk_operations(function.operation) if is_placement(op)]
    useless = [op for op in copies if names_host(memory_of(op)) == (op.operands[0] in in_host_memory)]
    for op in useless:
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()


def _take_whole_copies_away(argument: Any) -> None:
    """Lets the users of copies of an argument read the argument; they get copies of what they read."""
    for copy in [use.owner.operation for use in argument.uses if is_placement(use.owner)]:
        if not names_host(memory_of(copy)):
            copy.results[0].replace_all_uses_with(argument)
            copy.erase()


def _copy_what_is_no_slice(argument: Any) -> None:
    """Gives the loops that compute with the whole of an argument a copy, and slices of rows that are not copied alone.

    Other users get one later.
    """
    for op, number in [(use.owner.operation, use.operand_number) for use in argument.uses]:
        if not _takes_slices(op, number) and stays_in_memory(op, number) and op.name != "stablehlo.return":
            op.operands[number] = _copy_before_first(argument, [op])


def _takes_slices(op: Any, number: int) -> bool:
    """Whether an op takes slices of an operand, or updates some, and hands on the rest; loops may."""
    if op.name != "stablehlo.while":
        return stays_in_memory(op, number) and not (op.name in _SLICING and cuts_packed_rows(op))
    blocks = [region.blocks[0] for region in op.regions]
    uses = [(use.owner.operation, use.operand_number) for block in blocks for use in block.arguments[number].uses]
    end = list(blocks[1].operations)[-1].operation
    hands_on = blocks[1].arguments[number] in _bases(end.operands[number])
    return hands_on and all(_takes_slices(user, n) for user, n in uses)


def _bases(value: Any) -> Iterator[Any]:
    """A value, what it is an update of, what that is one of, and so on, through loops."""
    while True:
        yield value
        owner = value.owner
        if isinstance(owner, ir.Block) or owner.name not in ("stablehlo.dynamic_update_slice", "stablehlo.while"):
            return
        value = owner.operands[value.result_number if owner.name == "stablehlo.while" else 0]


def _copy_before_first(value: Any, users: list[Any]) -> Any:
    """A copy of a value on the device, before the first of some ops of a block."""
    first = next(op for op in users if all(op == other or op.is_before_in_block(other) for other in users))
    with first.location, ir.InsertionPoint(first):
        return placed(value, "device")
