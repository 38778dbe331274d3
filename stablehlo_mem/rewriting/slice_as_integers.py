"""Slices and updates narrow floats as integers in loops, for compilers that would widen the whole array.

Before, in the body of a loop over %i:
    %row = stablehlo.dynamic_slice %x, %i, ... : tensor<1x512xbf16>
    %o1 = stablehlo.dynamic_update_slice %o0, %new, %i, ... : tensor<256x512xbf16>
After:
    %x1, %i1 = stablehlo.optimization_barrier %x, %i
    %x2 = stablehlo.bitcast_convert %x1 : tensor<256x512xi16>
    %row1 = stablehlo.dynamic_slice %x2, %i1, ...
    %row = stablehlo.bitcast_convert %row1
    %o1 likewise

XLA:CPU has no instructions for such floats. Its `FloatNormalization` converts the operands of every op to f32 and back,
those of slices too: it keeps a copy of %x in f32 before the loop and converts all of %o0 in each step. Integers are
moved as they are, and a bitcast in the same kernel costs nothing. The barrier makes the bitcast of %x wait for %i, so
that it is not moved out of the loop, where it would be a copy. The planner calls it on a finished program.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, stablehlo, walk_operations

_SLICE, _UPDATE = "stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice"


def slice_as_integers(module: ir.Module, dtypes: AbstractSet[str]) -> None:
    """Rewrites the slices and updates of these element types in all loops, in place."""
    if not dtypes:
        return
    for op in list(walk_operations(module.operation)):
        if op.name in (_SLICE, _UPDATE) and str(op.operands[0].type.element_type) in dtypes and _is_in_loop(op):
            (_slice if op.name == _SLICE else _update)(op)


def _is_in_loop(op: Any) -> bool:
    parent = op.parent
    while parent is not None and parent.name != "stablehlo.while":
        parent = parent.parent
    return parent is not None


def _slice(op: Any) -> None:
    with builders.building(op, op.location):
        whole, starts = op.operands[0], list(op.operands)[1:]
        varying = [n for n, start in enumerate(starts) if not _is_constant(start)]
        if varying and _comes_from_outside(whole, op):
            whole, starts[varying[0]] = stablehlo.OptimizationBarrierOp([whole, starts[varying[0]]]).results
        part = stablehlo.dynamic_slice(_as_integers(whole), starts, op.attributes["slice_sizes"])
        _replace(op, part)


def _update(op: Any) -> None:
    with builders.building(op, op.location):
        whole, update, *starts = op.operands
        _replace(op, stablehlo.dynamic_update_slice(_as_integers(whole), _as_integers(update), starts))


def _replace(op: Any, integers: Any) -> None:
    op.results[0].replace_all_uses_with(stablehlo.bitcast_convert(op.results[0].type, integers))
    op.erase()


def _as_integers(value: Any) -> Any:
    width = value.type.element_type.width
    return stablehlo.bitcast_convert(builders.tensor(value.type.shape, ir.IntegerType.get_signless(width)), value)


def _is_constant(value: Any) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.name == "stablehlo.constant"


def _comes_from_outside(value: Any, op: Any) -> bool:
    """Whether a value may be the same in every step: no op of the block computes it."""
    return isinstance(value.owner, ir.Block) or value.owner.operation.block != op.operation.block
