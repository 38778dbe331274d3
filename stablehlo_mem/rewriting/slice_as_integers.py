"""Slices, gathers and updates narrow floats as integers in loops, for compilers that would widen the whole array.

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
from stablehlo_mem.ir.bindings import ir, is_constant, stablehlo, walk_operations

_ARRAYS = {"stablehlo.dynamic_slice": 1, "stablehlo.gather": 1, "stablehlo.dynamic_update_slice": 2}
"""The leading operands that are arrays; indices follow them."""


def slice_as_integers(module: ir.Module, dtypes: AbstractSet[str]) -> None:
    """Rewrites slices, gathers and updates of these element types in all loops of a program in normal form, in place.

    Args:
        dtypes: as MLIR names them, such as "bf16".
    """
    if not dtypes:
        return
    for op in list(walk_operations(module.operation)):
        if op.name in _ARRAYS and str(op.operands[0].type.element_type) in dtypes and _is_in_loop(op):
            _rewrite(op)


def _is_in_loop(op: Any) -> bool:
    parent = op.parent
    while parent is not None and parent.name != "stablehlo.while":
        parent = parent.parent
    return parent is not None


def _rewrite(op: Any) -> None:
    result, count = op.results[0], _ARRAYS[op.name]
    with builders.building(op, op.location):
        operands = list(op.operands)
        varying = next((n for n in range(count, len(operands)) if not is_constant(operands[n])), None)
        if count == 1 and varying is not None and _comes_from_outside(operands[0], op):
            barrier = stablehlo.OptimizationBarrierOp([operands[0], operands[varying]])
            operands[0], operands[varying] = barrier.results
        operands[:count] = map(_as_integers, operands[:count])
        attributes = {name: op.attributes[name] for name in op.attributes}
        moved = ir.Operation.create(op.name, [_integers(result.type)], operands, attributes).result
        result.replace_all_uses_with(stablehlo.bitcast_convert(result.type, moved))
    op.erase()


def _as_integers(value: Any) -> Any:
    return stablehlo.bitcast_convert(_integers(value.type), value)


def _integers(mlir_type: Any) -> Any:
    """The type of integers as wide as the floats of a type."""
    return builders.tensor(mlir_type.shape, ir.IntegerType.get_signless(mlir_type.element_type.width))


def _comes_from_outside(value: Any, op: Any) -> bool:
    """Whether a value may be the same in every step: no op of the block computes it."""
    return isinstance(value.owner, ir.Block) or value.owner.operation.block != op.operation.block
