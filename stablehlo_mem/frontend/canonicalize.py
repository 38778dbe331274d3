"""Brings a module into the normal form that every analysis starts from; the planner and the checks call it first.

Calls are inlined, composites opened, dead code removed, starts of slices in bounds, factor rules attached.
"""

from __future__ import annotations

from typing import Any

from stablehlo_mem.frontend.clamp_starts import SLICING, clamp_starts
from stablehlo_mem.frontend.host_uses import place_uses
from stablehlo_mem.frontend.merge_extrema import merge_extrema
from stablehlo_mem.frontend.order_factors import order_factors
from stablehlo_mem.frontend.shard_map_residuals import hand_on_less, lay_residuals
from stablehlo_mem.ir.barriers import split_barriers
from stablehlo_mem.ir.bindings import (
    RULE,
    RULES_PASS,
    chlo,
    functions,
    inlined_func_call,
    ir,
    is_public,
    run_passes,
    walk_operations,
)
from stablehlo_mem.ir.graph import entry_graph, main_function
from stablehlo_mem.ir.shards import is_distributed, mark_shards, remove_marks
from stablehlo_mem.ir.structural_equality import is_same_block

_IDENTITIES = ("stablehlo.reshape", "stablehlo.convert", "stablehlo.slice", "stablehlo.pad")
"""Ops that change nothing where operand and result have the same type, pads by something aside."""


def canonicalize(module: ir.Module) -> None:
    """Brings a module into the normal form, in place.

    Before: `%1 = call @f(%0)`, `%2:2 = stablehlo.composite "chlo.top_k" %1`, barriers of several operands.
    After: f's body in place of the call, `%2:2 = chlo.top_k(%1)`, one barrier an operand, starts of slices that cannot
    be out of bounds, a maximum taken from the argmax beside it, a repeated factor second, a constant in the `shard_map`
    that reads it, a copy to the device of what arithmetic reads in the host's memory, `sdy.sharding_rule`s.
    """
    with module.context:
        open_functions(module)
        split_barriers(module)
        _merge_equal_branches(module)
        drop_identities(module)
    run_passes(module, "cse", "canonicalize", "symbol-dce")
    with module.context:
        merge_extrema(_collect(module, "stablehlo.reduce"))
        order_factors(_collect(module, "stablehlo.multiply"))
        hand_on_less(module)
    if _collect(module, *SLICING):
        clamp_starts(entry_graph(module))
        run_passes(module, "cse", "canonicalize")
    with module.context:
        place_uses(main_function(module))
    attach_rules(module)


def open_functions(module: ir.Module) -> None:
    """Inlines composites and calls, in place."""
    with module.context:
        _open_composites(module)
        _inline_calls(module)


def attach_rules(module: ir.Module) -> None:
    """Attaches Shardy's factor rules, and in a distributed program marks the part of each value that a device has.

    The custom rules that JAX puts on its custom calls stay. What a `shard_map` hands to another one lies as the rules
    say, also where a step has put the two into one block.
    """
    run_passes(module, RULES_PASS)
    mark_shards(module)
    if is_distributed(module) and lay_residuals(module):
        run_passes(module, RULES_PASS)
        mark_shards(module)


def remove_rules(module: ir.Module) -> None:
    """Removes the attached rules and marks: custom rules are part of the program and stay."""
    remove_marks(module)
    for op in walk_operations(module.operation):
        if RULE in op.attributes and "custom" not in str(op.attributes[RULE]):
            del op.attributes[RULE]


def _collect(root: Any, *names: str) -> list[Any]:
    return [op for op in walk_operations(root) if op.name in names]


def _open_composites(module: ir.Module) -> None:
    """A composite of a CHLO op becomes that op; any other becomes a call of its decomposition."""
    for op in _collect(module, "stablehlo.composite"):
        types = [r.type for r in op.results]
        name = ir.StringAttr(op.attributes["name"]).value
        with op.location, ir.InsertionPoint(op):
            if name.startswith("chlo.") and module.context.is_registered_operation(name):
                entries = op.attributes.get("composite_attributes", ())
                attributes = {entry.name: _as_in_chlo(entry.name, entry.attr) for entry in entries}
                new = ir.Operation.create(name, types, list(op.operands), attributes)
            else:
                callee = {"callee": op.attributes["decomposition"]}
                new = ir.Operation.create("func.call", types, list(op.operands), callee)
        _replace(op, list(new.results))


def _as_in_chlo(name: str, attribute: Any) -> Any:
    """An attribute of a composite as the CHLO op has it: composites spell out attributes of the dialect's own types."""
    if name == "ragged_dot_dimension_numbers":
        numbers: Any = chlo.RaggedDotDimensionNumbers
        dense: Any = map(ir.DenseIntElementsAttr, attribute)
        return numbers.get(*map(list, dense))
    if name == "precision_config":
        return ir.ArrayAttr.get([chlo.PrecisionAttr.get(ir.StringAttr(precision).value) for precision in attribute])
    return attribute


def _inline_calls(module: ir.Module) -> None:
    """Inlines calls until there are none: an inlined body may bring others in."""
    callees = {ir.StringAttr(f.attributes["sym_name"]).value: f.operation for f in functions(module)}
    while calls := [c for f in functions(module) if is_public(f) for c in _collect(f, "func.call")]:
        for call in calls:
            callee = callees[ir.FlatSymbolRefAttr(call.attributes["callee"]).value]
            # The location must come from the context: passed as an argument it crashes jaxlib 0.10.2.
            with call.location, ir.InsertionPoint(call):
                results = inlined_func_call(callee, list(call.operands))
            _replace(call, results)


def _merge_equal_branches(module: ir.Module) -> None:
    """Replaces a case by its first branch where all are equal, as lowerings for several platforms mostly are."""
    for op in _collect(module, "stablehlo.case"):
        blocks = [region.blocks[0] for region in op.regions]
        if all(is_same_block(blocks[0], block, {}) for block in blocks[1:]):
            *body, returned = [inner.operation for inner in blocks[0].operations]
            for inner in body:
                inner.move_before(op)
            _replace(op, list(returned.operands))


def drop_identities(module: ir.Module) -> None:
    """Removes converts to the operand's own type, reshapes of reshapes, whole slices and pads by nothing.

    JAX writes the first two often, the last two around gradients of max-pooling.
    """
    ops = _collect(module, *_IDENTITIES)
    for op in (op for op in ops if op.name == "stablehlo.reshape"):
        inner = op.operands[0].owner
        if not isinstance(inner, ir.Block) and inner.operation.name == "stablehlo.reshape":
            op.operands[0] = inner.operation.operands[0]
    for op in ops:
        if op.operands[0].type == op.results[0].type and not any(_padding(op)):
            _replace(op, [op.operands[0]])


def _padding(op: Any) -> list[int]:
    """What a pad adds before each dimension and between its elements; nothing for other ops."""
    names = ("edge_padding_low", "interior_padding") if op.name == "stablehlo.pad" else ()
    return [n for name in names for n in ir.DenseI64ArrayAttr(op.attributes[name])]


def _replace(op: Any, values: list[Any]) -> None:
    for old, new in zip(op.results, values, strict=True):
        old.replace_all_uses_with(new)
    op.erase()
