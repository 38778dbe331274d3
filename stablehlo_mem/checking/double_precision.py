"""Rewrites a module to double precision. `checking.plan_check` measures the rounding of both programs against it."""

from __future__ import annotations

import dataclasses
from typing import Any

from stablehlo_mem.ir.bindings import clone_module, ir, source_line, stablehlo, walk_operations
from stablehlo_mem.ir.graph import main_function

_SAME_FOR_ALL_TYPES = ("mhlo.", "chlo.", "Sharding", "SPMD", "TopK", "annotate_device_placement")
"""Prefixes of the custom calls that XLA accepts with any float type."""
_LAPACK = {"lapack_s": "lapack_d", "lapack_c": "lapack_z"}
"""Prefixes of LAPACK's custom calls in single precision, and in double."""
_QUANTISING = frozenset({"stablehlo.uniform_quantize", "stablehlo.uniform_dequantize"})
_BITCAST = "stablehlo.bitcast_convert"


@dataclasses.dataclass(frozen=True)
class NoDouble:
    """Why a program has no double-precision form, as the op and its source line; "" if it has no floats."""

    reason: str


def in_double(module: ir.Module) -> ir.Module | NoDouble:
    """The same program with all its arithmetic in double precision; `module` is not edited.

    `main` keeps the types of its arguments: they and the constants are converted, which is exact. Random bits are
    computed as before and the floats made of them converted. Float results become f64 or complex<f64>, others stay.

    Returns:
        A verified module in the same context, or why there is none.
    """
    copy = clone_module(module)
    main = main_function(copy)
    with copy.context, ir.Location.unknown(copy.context):
        ops = list(walk_operations(copy.operation))
        reason = next(filter(None, map(_obstacle, ops)), None)
        if reason is not None:
            return NoDouble(reason)
        types = [*main.type.inputs, *(result.type for op in ops for result in op.results)]
        if not any(map(_is_narrow, types)):
            return NoDouble("the program computes in float64 itself" if any(map(_is_float, types)) else "")
        for op in ops:
            _widen(op, main)
    try:
        copy.operation.verify()
    except ir.MLIRError as error:
        return NoDouble(f"the module in float64 is not valid: {error}")
    return copy


def _obstacle(op: Any) -> str | None:
    """Why an op cannot be computed in double precision, None if it can."""
    if not any(_is_narrow(value.type) for value in (*op.operands, *op.results)):
        return None
    name = op.name
    if name == _BITCAST and any(_is_narrow(value.type) for value in op.operands):
        return _at(op, f"{name} of {op.operands[0].type}")
    if name in _QUANTISING or name == "stablehlo.rng":
        return _at(op, name)
    if name == "stablehlo.custom_call":
        target = _call_target(op)
        if not target.startswith((*_SAME_FOR_ALL_TYPES, *_LAPACK)):
            return _at(op, f"custom_call {target}")
    return None


def _at(op: Any, what: str) -> str:
    line = source_line(op.location)
    return f"{what} at {line}" if line else what


def _widen(op: Any, main: Any) -> None:
    """Changes the results of one op and the arguments of its blocks to double precision."""
    if op.name == "stablehlo.reduce_precision":
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()
        return
    if op.name == "func.func":
        _widen_function(op, is_main=op == main.operation)
        return
    if op.name == "stablehlo.constant" or op.name == _BITCAST:
        for result in op.results:
            _convert_uses(result, lambda: ir.InsertionPoint.after(op), op.location)
        return
    if op.name == "stablehlo.custom_call" and any(_is_narrow(result.type) for result in op.results):
        target = _call_target(op)
        prefix = next((narrow for narrow in _LAPACK if target.startswith(narrow)), "")
        op.attributes["call_target_name"] = ir.StringAttr.get(_LAPACK.get(prefix, "") + target.removeprefix(prefix))
    if op.name == "stablehlo.dot_general" and "algorithm" in op.attributes:
        del op.attributes["algorithm"]
    for result in op.results:
        result.set_type(_wide(result.type))
    _widen_blocks(op)


def _widen_blocks(op: Any) -> None:
    for region in op.regions:
        for block in region.blocks:
            for argument in block.arguments:
                argument.set_type(_wide(argument.type))


def _widen_function(op: Any, *, is_main: bool) -> None:
    kind = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
    results = [_wide(t) for t in kind.results]
    if is_main:
        inputs = list(kind.inputs)
        block = op.regions[0].blocks[0]
        for argument in block.arguments:
            _convert_uses(argument, lambda: ir.InsertionPoint.at_block_begin(block), op.location)
    else:
        inputs = [_wide(t) for t in kind.inputs]
        _widen_blocks(op)
    op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))


def _convert_uses(value: Any, place: Any, location: Any) -> None:
    """Makes the users of a narrow value read it converted."""
    if not _is_narrow(value.type):
        return
    with place(), location:
        wide = stablehlo.ConvertOp(_wide(value.type), value)
    value.replace_all_uses_except(wide.result, wide.operation)


def _call_target(op: Any) -> str:
    return ir.StringAttr(op.attributes["call_target_name"]).value


def _is_narrow(mlir_type: Any) -> bool:
    return _wide(mlir_type) != mlir_type


def _is_float(mlir_type: Any) -> bool:
    element = getattr(mlir_type, "element_type", None)
    return isinstance(element, (ir.FloatType, ir.ComplexType))


def _wide(mlir_type: Any) -> Any:
    """A tensor's type with its float elements as f64; any other type unchanged."""
    if not isinstance(mlir_type, ir.RankedTensorType):
        return mlir_type
    element = mlir_type.element_type
    if isinstance(element, ir.ComplexType):
        wide: Any = ir.ComplexType.get(ir.F64Type.get())
    elif isinstance(element, ir.FloatType):
        wide = ir.F64Type.get()
    else:
        return mlir_type
    return ir.RankedTensorType.get(mlir_type.shape, wide, mlir_type.encoding)
