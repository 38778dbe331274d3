"""Merges equal ops of one block, for passes that have rewritten a module.

MLIR's CSE also merges an op in the body of a loop with an equal one around it. It would undo `recompute-in-loops`,
which repeats ops in a body so that their results need not be alive as long as the loop runs.
"""

from __future__ import annotations

from typing import Any

from stablehlo_mem.ir.bindings import ir, run_passes, walk_operations

_BLOCK = "stablehlo_mem_block"
"""An attribute of the ops in bodies and branches while CSE runs: CSE compares the attributes of ops."""
_CONTROL = frozenset({"stablehlo.while", "stablehlo.case", "stablehlo.if"})


def block_cse(module: ir.Module) -> None:
    """Merges the ops of each body, branch and function that are equal, in place. Handles held across it are stale."""
    with module.context:
        ops = _ops_in_bodies(module)
        for number, op in ops:
            op.attributes[_BLOCK] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)
    run_passes(module, "cse")
    for _, op in _ops_in_bodies(module) if ops else ():
        del op.attributes[_BLOCK]


def _ops_in_bodies(module: ir.Module) -> list[tuple[int, Any]]:
    """The ops directly in bodies and branches, each with the number of its block; those in reducers are left out."""
    blocks = [
        block
        for op in walk_operations(module)
        if op.name in _CONTROL
        for region in op.regions
        for block in region.blocks
    ]
    return [(number, op.operation) for number, block in enumerate(blocks) for op in block.operations]
