"""The part of a program that computes some values, as a function of its own: also of a module that is being built.

`jaxpr.operand_shardings` propagates shardings in it to values of a module that JAX has lowered up to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stablehlo_mem.ir.bindings import func, ir, walk_operations

_CALLED = ("callee", "decomposition")
"""Attributes that name a function."""


def program_slice(module: ir.Module, values: Sequence[Any]) -> ir.Module:
    """A module whose `main` returns the values; its arguments are those of the function that they need.

    What a loop's body computes from a carry is computed from the initial value. Other arguments of blocks become
    arguments, without attributes.
    """
    ops, arguments = _needed(values)
    with module.context, ir.Location.unknown():
        sliced = ir.Module.create()
        with ir.InsertionPoint(sliced.body):
            for op in module.body.operations:
                if op.operation.name == "sdy.mesh":
                    op.operation.clone()
            for function in _functions(module, ops):
                function.clone()
            main = func.FuncOp("main", ([v.type for v in arguments], [v.type for v in values]), visibility="public")
        main.arg_attrs = ir.ArrayAttr.get([_attributes(v) for v in arguments])
        block = main.add_entry_block()
        copies: dict[Any, Any] = dict(zip(arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            for op in ops:
                _copy(op, copies)
            func.ReturnOp([copies[_source(v)] for v in values])
    return sliced


def _needed(values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The ops that compute values, each after those that it needs, and the block arguments at which they begin."""
    ops: dict[Any, None] = {}
    arguments: dict[Any, None] = {}
    stack: list[tuple[Any, bool]] = [(_source(v), False) for v in reversed(values)]
    while stack:
        value, is_ready = stack.pop()
        if isinstance(value, ir.BlockArgument):
            arguments[value] = None
            continue
        op = value.owner.operation
        if op in ops:
            continue
        if is_ready:
            ops[op] = None
        else:
            stack.append((value, True))
            stack += [(_source(v), False) for v in _read(op)]
    return list(ops), list(arguments)


def _source(value: Any) -> Any:
    """A value; of a loop's carry, inside of the loop, the initial value."""
    while isinstance(value, ir.BlockArgument):
        owner = value.owner.owner.operation
        if owner.name != "stablehlo.while":
            break
        value = owner.operands[value.arg_number]
    return value


def _read(op: Any) -> Iterator[Any]:
    """The operands of an op and what its blocks read of those around it."""
    yield from op.operands
    inside = {op, *walk_operations(op)}
    for inner in inside - {op}:
        for value in inner.operands:
            owner = value.owner.owner.operation if isinstance(value, ir.BlockArgument) else value.owner.operation
            if owner not in inside:
                yield value


def _functions(module: ir.Module, ops: Sequence[Any]) -> list[Any]:
    """The functions that ops call, and those that these call."""
    symbols = ir.SymbolTable(module.operation)
    found: dict[str, Any] = {}
    pending = list(ops)
    while pending:
        op = pending.pop()
        for inner in (op, *walk_operations(op)):
            for name in (ir.FlatSymbolRefAttr(inner.attributes[a]).value for a in _CALLED if a in inner.attributes):
                if name not in found:
                    found[name] = symbols[name].operation
                    pending.append(found[name])
    return list(found.values())


def _attributes(argument: Any) -> ir.Attribute:
    function = argument.owner.owner.operation
    if function.name != "func.func" or "arg_attrs" not in function.attributes:
        return ir.DictAttr.get({})
    return ir.ArrayAttr(function.attributes["arg_attrs"])[argument.arg_number]


def _copy(op: Any, copies: dict[Any, Any]) -> None:
    """Clones an op at the insertion point, to read the copies of what it reads."""
    clone = op.clone()
    for inner in (clone, *walk_operations(clone)):
        for i, value in enumerate(inner.operands):
            copy = copies.get(_source(value))
            if copy is not None:
                inner.operands[i] = copy
    copies.update(zip(op.results, clone.results, strict=True))
