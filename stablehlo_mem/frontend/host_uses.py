"""Copies what is computed with to the device, and results of the host to it: a part of the normal form.

A program that gets arguments in the host's memory computes with them as with any other, and compilers copy them whole.
With the copies written down, analyses see them, and splits make copies of slices of them.
"""

from __future__ import annotations

from typing import Any

from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.host_memory import memory_kinds, placed, stays_in_memory, values_in_host_memory


def place_uses(function: Any) -> None:
    """Copies what arithmetic reads of arguments in the host's memory to the device, and results there to the host.

    Before: `%y = add %argument, %x`, with the argument and the result in the host's memory.
    After: `%a = annotate_device_placement(%argument) "device"`, `%y = add %a, %x`, and a copy of `%y` to "pinned_host".
    """
    kinds = memory_kinds(function, "res_attrs")
    if "pinned_host" not in (*memory_kinds(function, "arg_attrs"), *kinds):
        return
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


def _copy_before_first(value: Any, users: list[Any]) -> Any:
    """A copy of a value on the device, before the first of some ops of a block."""
    first = next(op for op in users if all(op == other or op.is_before_in_block(other) for other in users))
    with first.location, ir.InsertionPoint(first):
        return placed(value, "device")
