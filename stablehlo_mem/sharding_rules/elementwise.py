"""Rules of ops that work element by element, or only create or arrange elements. `registry` joins them."""

from __future__ import annotations

from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import dense_value, ir, stablehlo
from stablehlo_mem.sharding_rules.factor_rule import FactorRule, same_shape_rule
from stablehlo_mem.sharding_rules.op_rule import EmitContext, OpRule

_SHARDY_ELEMENTWISE = (
    "abs", "add", "and", "atan2", "bitcast_convert", "cbrt", "ceil", "clamp", "compare", "complex", "convert",
    "cosine", "count_leading_zeros", "divide", "exponential", "exponential_minus_one", "floor", "imag", "is_finite",
    "log", "log_plus_one", "logistic", "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "power",
    "real", "reduce_precision", "remainder", "round_nearest_afz", "round_nearest_even", "rsqrt", "select",
    "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sine", "sqrt", "subtract", "tan", "tanh",
    "xor",
)  # fmt: skip

_CHLO_ELEMENTWISE = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "bessel_i1e", "conj", "cosh", "digamma", "erf", "erf_inv",
    "erfc", "is_inf", "is_neg_inf", "is_pos_inf", "lgamma", "next_after", "polygamma", "sinh", "square", "tan", "zeta",
)  # fmt: skip


def _constant_rule(op: Any) -> FactorRule | None:
    """A splat can be made at any size; other constants are whole values, which are sliced."""
    value = dense_value(op)
    return same_shape_rule(op) if value is not None and value.is_splat else None


def _emit_constant(context: EmitContext) -> list[Any]:
    value = dense_value(context.op)
    assert value is not None
    chunk_type = builders.retype(context.op.results[0].type, context.result_shapes[0])
    return [stablehlo.constant(ir.DenseElementsAttr.get_splat(chunk_type, value.get_splat_value()))]


def _emit_iota(context: EmitContext) -> list[Any]:
    """Iota of the chunk, plus its start where the axis is the iota's dimension."""
    dimension = context.op.attributes["iota_dimension"].value
    whole = context.op.results[0].type
    if context.split_op.result_dims[0] != dimension:
        return builders.clone_with(context.op, (), context.result_shapes)
    # In i32 and converted once: adding the start in a narrow float would round twice.
    i32_type = builders.tensor(context.result_shapes[0], ir.IntegerType.get_signless(32))
    if context.chunk.parts > 1:
        index = _index_in_parts(context, whole.shape[dimension])
        return [builders.convert(builders.broadcast(index, i32_type, [dimension]), whole.element_type)]
    iota = stablehlo.iota(i32_type, context.op.attributes["iota_dimension"])
    start = stablehlo.multiply(context.chunk.start, builders.i32(whole.shape[dimension] // context.split_op.n))
    return [builders.convert(stablehlo.add(iota, builders.broadcast(start, i32_type)), whole.element_type)]


def _index_in_parts(context: EmitContext, extent: int) -> Any:
    """The indices along a dimension of `extent` elements that a chunk has, of several parts."""
    chunk, inner = context.chunk, extent // context.split_op.n
    shape = [chunk.parts, chunk.size // chunk.parts * inner]
    part, within = builders.index_along(shape, 0), builders.index_along(shape, 1)
    start = stablehlo.multiply(chunk.start, builders.i32(inner))
    part_size = builders.broadcast(builders.i32(extent // chunk.parts), part.type)
    first = stablehlo.add(stablehlo.multiply(part, part_size), builders.broadcast(start, part.type))
    return builders.reshaped(stablehlo.add(first, within), [chunk.size * inner])


OP_RULES = {
    **{f"stablehlo.{name}": OpRule() for name in _SHARDY_ELEMENTWISE},
    **{f"chlo.{name}": OpRule(rule=same_shape_rule) for name in _CHLO_ELEMENTWISE},
    "stablehlo.optimization_barrier": OpRule(rule=same_shape_rule),
    "sdy.sharding_constraint": OpRule(rule=same_shape_rule),
    "stablehlo.constant": OpRule(rule=_constant_rule, emit=_emit_constant, free=True),
    "stablehlo.iota": OpRule(rule=same_shape_rule, emit=_emit_iota, free=True),
    "stablehlo.broadcast_in_dim": OpRule(free=True),
    "stablehlo.reshape": OpRule(view=True),
    "stablehlo.transpose": OpRule(),
}
