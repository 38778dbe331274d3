"""Rules of ops that sum, or otherwise reduce, over a dimension, and what is known of reducers (an op's body).

`registry` joins the rules.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.graph import NARROW_FLOATS
from stablehlo_mem.sharding_rules.factor_rule import FactorRule, refines_shardy
from stablehlo_mem.sharding_rules.op_rule import EmitContext, OpRule, Reduction, clone_on_chunk


def is_float(mlir_type: Any) -> bool:
    """Whether a tensor type's elements are floats or complex."""
    return not isinstance(mlir_type.element_type, ir.IntegerType)


def is_narrow(mlir_type: Any) -> bool:
    """Whether sums of a tensor type's elements are accumulated in a wider one (f32)."""
    return str(mlir_type.element_type) in NARROW_FLOATS or str(mlir_type.element_type).startswith("f8")


def _wide(mlir_type: Any) -> Any:
    """The type in which partial sums of a type are accumulated."""
    return builders.tensor(mlir_type.shape, ir.F32Type.get()) if is_narrow(mlir_type) else mlir_type


# Sums: the partial results of a contraction add up.


def emit_contraction(context: EmitContext) -> list[Any]:
    """A contraction on a chunk; partial sums of narrow floats come out wide."""
    results = clone_on_chunk(context)
    if context.split_op.reducing and "algorithm" not in context.op.attributes:
        for result in results:
            result.set_type(_wide(result.type))
    return results


SUM = Reduction(
    initial=lambda op, operands: [builders.zeros(_wide(r.type)) for r in op.results],
    combine=lambda op, carries, partials: [
        stablehlo.add(c, builders.convert(p, c.type.element_type)) for c, p in zip(carries, partials, strict=True)
    ],
    identity=lambda op, position, operands: builders.zeros(builders.retype(op.operands[position].type, ())),
    regroups=lambda op: any(is_float(r.type) for r in op.results),
    init_operands=lambda op: (),
)


# stablehlo.reduce: the partial results are combined by the op's own body, applied to whole tensors.


def identity(op: Any, init: Any) -> Any:
    """The neutral scalar of a sum or product; of other reducers the op's own init, which can take its place.

    Max, min, and, or may fold their init in any number of times, and so may other reducers by the specification.
    """
    name = body_name(op)
    if name in ("stablehlo.add", "stablehlo.xor"):
        return builders.zeros(init.type)
    return builders.ones(init.type) if name == "stablehlo.multiply" else init


def _emit_reduce(context: EmitContext) -> list[Any]:
    """Partial results start from the neutral element: the op's own init is folded in once, by the carry."""
    operands = list(context.operands)
    if context.split_op.reducing:
        half = len(operands) // 2
        operands[half:] = [identity(context.op, v) for v in operands[half:]]
    return without_units(context.op, operands, context.result_shapes)


def without_units(op: Any, operands: Sequence[Any], shapes: Sequence[Sequence[int]]) -> list[Any]:
    """The op on other operands; a sum without dimensions of one element, which chunks of one have.

    With one, XLA:CPU computes a sum of products as a dot of one row: 15 ns an element, 30 times as long (measured).
    """
    reduced = list(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
    extents = list(operands[0].type.shape)
    dims = [d for d, extent in enumerate(extents) if extent != 1 or d in reduced]
    if body_name(op) != "stablehlo.add" or len(shapes) > 1 or len(dims) == len(extents):
        return builders.clone_with(op, operands, shapes)
    squeezed = builders.reshaped(operands[0], [extents[d] for d in dims])
    (result,) = builders.clone_with(op, [squeezed, operands[1]], [[extent for extent in shapes[0] if extent != 1]])
    result.owner.attributes["dimensions"] = ir.DenseI64ArrayAttr.get([dims.index(d) for d in reduced])
    return [builders.reshaped(result, shapes[0])]


def widened(op: Any, value: Any) -> Any:
    """A partial result in the type in which it is accumulated."""
    return builders.convert(value, _wide(value.type).element_type) if body_name(op) == "stablehlo.add" else value


def body_names(op: Any) -> set[str]:
    """The names of the ops of a reducer."""
    return {o.operation.name for o in op.regions[0].blocks[0].operations}


def body_name(op: Any) -> str:
    """The name of a reducer's only op, "" if it has more."""
    ops = list(op.regions[0].blocks[0].operations)
    return ops[0].operation.name if len(ops) == 2 else ""


def in_order(op: Any, rule: FactorRule) -> FactorRule:
    """A rule in which chunks are reduced from the first to the last, unless the op's reducer is commutative."""
    if body_name(op) in _COMMUTATIVE:
        return rule
    return dataclasses.replace(rule, directions=tuple((factor, 1) for factor in sorted(rule.reduction)))


def regroups_floats(op: Any) -> bool:
    """Whether a reducer rounds: max, min, and, or, selections by comparison and all on integers do not."""
    rounding = {"stablehlo.add", "stablehlo.multiply", "stablehlo.subtract", "stablehlo.divide"}
    return any(is_float(r.type) for r in op.results) and bool(body_names(op) & rounding)


def apply_elementwise(block: Any, arguments: Sequence[Any]) -> list[Any]:
    """The ops of a scalar block cloned for tensors of one shape."""
    shape = list(arguments[0].type.shape)
    values: dict[Any, Any] = dict(zip(block.arguments, arguments, strict=True))
    for inner in list(block.operations)[:-1]:
        op = inner.operation
        operands = [values.get(v, v) for v in op.operands]
        values.update(zip(op.results, _elementwise(op, operands, shape), strict=True))
    returned = block.operations[len(block.operations) - 1].operation.operands
    return [_shaped(values.get(v, v), shape) for v in returned]


def _elementwise(op: Any, operands: Sequence[Any], shape: list[int]) -> list[Any]:
    if op.name == "stablehlo.constant":
        return [_shaped(op.clone().operation.results[0], shape)]
    results = builders.clone_with(op, [_shaped(v, shape) for v in operands], [shape] * len(op.results))
    if op.name in _SAME_TYPE and results[0].type != results[0].owner.operands[0].type:
        results[0].set_type(results[0].owner.operands[0].type)
    return results


def _shaped(value: Any, shape: list[int]) -> Any:
    if list(value.type.shape) == shape:
        return value
    return builders.broadcast(value, builders.retype(value.type, shape))


_SAME_TYPE = frozenset({"stablehlo.add"})
"""Reducer ops whose result has the type of a widened operand."""

_COMMUTATIVE = frozenset(f"stablehlo.{name}" for name in ("add", "multiply", "maximum", "minimum", "and", "or", "xor"))

BODY_OPS = frozenset(
    {
        *("stablehlo.add", "stablehlo.multiply", "stablehlo.negate", "stablehlo.abs", "stablehlo.convert"),
        *("stablehlo.and", "stablehlo.or", "stablehlo.xor", "stablehlo.not", "stablehlo.constant"),
        *("stablehlo.maximum", "stablehlo.minimum", "stablehlo.compare", "stablehlo.select", "stablehlo.return"),
    }
)
"""The ops of a reducer that `apply_elementwise` can apply to whole tensors."""


@refines_shardy
def _reduce_rule(op: Any, rule: FactorRule) -> FactorRule:
    """Shardy's rule; reduction factors are blocked where the reducer has ops that are not in `BODY_OPS`."""
    unknown = body_names(op) - BODY_OPS
    if unknown:
        return rule.block(set(rule.reduction), f"its reducer uses {', '.join(sorted(unknown))}")
    return in_order(op, rule)


def is_sum(op: Any) -> bool:
    """Whether an op with a reducer adds up one tensor."""
    return len(op.results) == 1 and body_name(op) == "stablehlo.add"


_REDUCE = Reduction(
    initial=lambda op, operands: [
        widened(op, builders.broadcast(init, r.type))
        for init, r in zip(operands[len(operands) // 2 :], op.results, strict=True)
    ],
    combine=lambda op, carries, partials: apply_elementwise(
        op.regions[0].blocks[0], [*carries, *(widened(op, p) for p in partials)]
    ),
    identity=lambda op, position, operands: identity(op, operands[position + len(operands) // 2]),
    regroups=regroups_floats,
    init_operands=lambda op: (1,) if is_sum(op) else None,
)

OP_RULES = {
    "stablehlo.dot_general": OpRule(emit=emit_contraction, reduction=SUM),
    "stablehlo.reduce": OpRule(rule=_reduce_rule, emit=_emit_reduce, reduction=_REDUCE),
}
