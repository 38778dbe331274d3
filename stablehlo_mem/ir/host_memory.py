"""Says in which memory a value is: how a program writes it, and which values follow from that.

A custom call `annotate_device_placement` copies its operand to the host's memory or back; `mhlo.memory_kind` says it of
arguments. What views, slices, updates and loops hand on of a value in the host's memory is there too. The graph counts
the bytes of these values apart; `passes.offload_to_host` writes the calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

from stablehlo_mem.ir.bindings import ir, signature_attributes, walk_operations

Memory = Literal["pinned_host", "device"]
"""The memories, by JAX's names."""
MEMORY_KIND = "mhlo.memory_kind"
"""The attribute of an argument or a result that names its memory."""
_TARGET = "annotate_device_placement"
_PLACEMENT = "_xla_buffer_placement"
_FRONTEND = "mhlo.frontend_attributes"
_VIEWS = frozenset({"stablehlo.reshape", "stablehlo.bitcast_convert", "stablehlo.optimization_barrier"})
_SLICES = frozenset({"stablehlo.slice", "stablehlo.dynamic_slice"})
_UPDATE = "stablehlo.dynamic_update_slice"
_WHILE = "stablehlo.while"
_CONSTANTS = frozenset({"stablehlo.constant", "stablehlo.broadcast_in_dim"})


def placed(value: Any, memory: Memory) -> Any:
    """A copy of a value in a memory, as JAX writes it, at the current insertion point."""
    attributes: dict[str, Any] = {
        "call_target_name": ir.StringAttr.get(_TARGET),
        "has_side_effect": ir.BoolAttr.get(True),
        "backend_config": ir.StringAttr.get(""),
        _FRONTEND: ir.DictAttr.get({_PLACEMENT: ir.StringAttr.get(memory)}),
    }
    return ir.Operation.create("stablehlo.custom_call", [value.type], [value], attributes).result


def is_placement(op: Any) -> bool:
    """Whether an op copies its operand from one memory to another."""
    return op.name == "stablehlo.custom_call" and ir.StringAttr(op.attributes["call_target_name"]).value == _TARGET


def memory_of(op: Any) -> str:
    """The memory that an op copies its operand to."""
    return ir.StringAttr(ir.DictAttr(op.attributes[_FRONTEND])[_PLACEMENT]).value


def attributes_say_host(attributes: dict[str, Any]) -> bool:
    """Whether the attributes of an argument or a result say that it is in the host's memory."""
    return MEMORY_KIND in attributes and names_host(ir.StringAttr(attributes[MEMORY_KIND]).value)


def names_host(kind: str) -> bool:
    """Whether a memory kind of JAX's is one of the host: "pinned_host", "unpinned_host"."""
    return kind.endswith("host")


def memory_kinds(function: Any, of: Literal["arg_attrs", "res_attrs"]) -> list[Memory]:
    """In which memory each argument or each result of a function is."""
    return [
        "pinned_host" if attributes_say_host(attributes) else "device"
        for attributes in signature_attributes(function, of)
    ]


def names_host_memory(function: Any) -> bool:
    """Whether an argument or a result of a function is said to be in the host's memory."""
    return "pinned_host" in (*memory_kinds(function, "arg_attrs"), *memory_kinds(function, "res_attrs"))


def values_in_host_memory(function: Any, *, has_placements: bool) -> set[Any]:
    """The values of a function that are in the host's memory.

    Args:
        has_placements: whether the function has any op that is a placement.
    """
    signature = zip(function.arguments, signature_attributes(function, "arg_attrs"), strict=True)
    pending = [argument for argument, attributes in signature if attributes_say_host(attributes)]
    if has_placements:
        placements = filter(is_placement, walk_operations(function.operation))
        pending += [op.results[0] for op in placements if names_host(memory_of(op))]
    found = set(pending)
    while pending:
        value = pending.pop()
        new = [v for v in (*_handed_on(value), *_taken_over(value)) if v not in found]
        found.update(new)
        pending += new
    return found | set(_initial_values(found))


def stays_in_memory(op: Any, number: int) -> bool:
    """Whether an op hands on, slices or copies an operand in the host's memory instead of computing with it."""
    hands_on = op.name in (_WHILE, "stablehlo.return") or _is_view(op) or is_placement(op)
    return hands_on or (op.name in _SLICES and number == 0) or (op.name == _UPDATE and number < 2)


def _handed_on(value: Any) -> Iterator[Any]:
    """The values that users of a value make in the same memory."""
    for use in value.uses:
        op, number = use.owner, use.operand_number
        if _is_view(op):
            yield op.results[number]
        elif (op.name in _SLICES and number == 0) or (op.name == _UPDATE and number < 2):
            yield op.results[0]
        elif op.name == _WHILE:
            yield from _carry(op, number)
        elif op.name == "stablehlo.return":
            around = op.parent
            if around.name == _WHILE:
                yield from _carry(around, number)
            elif around.name in ("stablehlo.case", "stablehlo.if"):
                yield around.results[number]


def _taken_over(value: Any) -> Iterator[Any]:
    """The other values that share the buffer of a value in the host's memory.

    They are the values of its loop's carry, or the operand if it is a loop's carry that is updated or viewed.
    """
    owner = value.owner
    if isinstance(owner, ir.Block):
        if owner.owner.name == _WHILE:
            yield from _carry(owner.owner, value.arg_number)
    elif owner.name == _WHILE:
        yield from _carry(owner, value.result_number)
    elif owner.name == _UPDATE and _is_carried(owner.operands[0]):
        yield owner.operands[0]
    elif _is_view(owner) and _is_carried(owner.operands[value.result_number]):
        yield owner.operands[value.result_number]


def _carry(loop: Any, number: int) -> Iterator[Any]:
    """The values of a loop's carry: the result, the blocks' arguments, and an initial value that a loop made."""
    yield loop.results[number]
    for region in loop.regions:
        yield region.blocks[0].arguments[number]
    if _is_carried(loop.operands[number]):
        yield loop.operands[number]


def _is_carried(value: Any) -> bool:
    """Whether a value is a carry of a loop, or what updates and views make of one."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return owner.owner.name == _WHILE
    return owner.name in (_UPDATE, _WHILE) or _is_view(owner)


def _is_view(op: Any) -> bool:
    """Whether an op gives its operands other types and moves nothing: a broadcast that adds dimensions of one too."""
    if op.name == "stablehlo.broadcast_in_dim":
        operand, result = op.operands[0].type.shape, op.results[0].type.shape
        return len(operand) > 0 and math.prod(operand) == math.prod(result)
    return op.name in _VIEWS


def _initial_values(found: set[Any]) -> Iterator[Any]:
    """The constants that only carries in the host's memory begin with."""
    for value in found:
        owner = value.owner
        if not isinstance(owner, ir.Block) and owner.name == _WHILE:
            initial = owner.operands[value.result_number]
            is_constant = not isinstance(initial.owner, ir.Block) and initial.owner.name in _CONSTANTS
            users = [(use.owner, use.operand_number) for use in initial.uses]
            if is_constant and all(user.name == _WHILE and user.results[n] in found for user, n in users):
                yield initial
