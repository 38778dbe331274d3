"""Rules of ops that slide a window: convolutions, pooling, and cumulative sums. `registry` joins them.

Along a dimension that a window slides over, a chunk of the result is computed from a window of the operand, which the
op's padding surrounds at the ends. Along a cumulative dimension it continues from the chunk before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.matchers import splat_number
from stablehlo_mem.ir.op_attributes import window_padding
from stablehlo_mem.sharding_rules.factor_rule import Dims, FactorRule, elementwise_rule, refines_shardy
from stablehlo_mem.sharding_rules.halo import Window
from stablehlo_mem.sharding_rules.op_rule import Cumulative, EmitContext, OpRule, clone_on_chunk
from stablehlo_mem.sharding_rules.reductions import (
    BODY_OPS,
    SUM,
    apply_elementwise,
    body_name,
    body_names,
    emit_contraction,
    identity,
    regroups_floats,
    widened,
)

_NEIGHBOURS = "neighbouring positions are needed"


@dataclasses.dataclass(frozen=True)
class Sliding:
    """How an op slides along one dimension: its window, the padding after the dimension, the operand's dilation."""

    window: Window
    high: int
    dilation: int

    def is_identity(self) -> bool:
        """Whether every element is a window of its own."""
        return self == Sliding(Window(self.window.n, 1, 0, 1), 0, 1)

    def direction(self) -> int:
        """1 if each result depends on all elements up to its own, -1 if on all from its own on, else 0."""
        n = self.window.n
        cumulative = {1: Sliding(Window(n, 1, n - 1, n), 0, 1), -1: Sliding(Window(n, 1, 0, n), n - 1, 1)}
        return next((direction for direction, sliding in cumulative.items() if self == sliding), 0)

    def reason(self) -> str | None:
        """Why a chunk of the result cannot be computed from a window of the operand, None if it can."""
        if self.dilation != 1:
            return "its elements are spread apart"
        covers_most = 2 * self.window.length > self.window.n
        return "a window slides along it that covers most of it" if covers_most else None

    def apply(self, rule: FactorRule, operands: Sequence[int], dims: tuple[int, int], size: int) -> FactorRule:
        """A rule in which the op slides over a dimension of some operands, or passes it through.

        Args:
            dims: the dimension in the operands, and that of the results.
            size: of the latter.
        """
        source = len(rule.sizes)
        if self.is_identity():
            factor, sizes, reason, windows = source, (size,), None, ()
        else:
            factor, sizes, reason = source + 1, (self.window.n, size), self.reason()
            windows = () if reason else ((factor, source, self.window),)
        return dataclasses.replace(
            rule,
            sizes=rule.sizes + sizes,
            operands=tuple(_with(d, dims[0], source) if p in operands else d for p, d in enumerate(rule.operands)),
            results=tuple(_with(d, dims[1], factor) for d in rule.results),
            blocked=rule.blocked + (((source, reason), (factor, reason)) if reason else ()),
            windows=rule.windows + windows,
        )

    def over_taps(self, spread: int, results: int) -> Sliding:
        """How the results slide over the kernel's elements instead, which are `spread` apart on the operand.

        In the gradient of a convolution with respect to its kernel the result is short, and the kernel has the size of
        the image: an element of it is multiplied with a window of the operand, one element for each result.
        """
        window = Window(self.window.n, spread, self.window.before, (results - 1) * self.window.stride + 1)
        return Sliding(window, self.high, self.dilation)

    def reduce(self, rule: FactorRule, image: tuple[int, int], kernel: tuple[int, int]) -> FactorRule:
        """A rule in which a dimension of the kernel is summed over, a chunk with its window of the operand at a time.

        Args:
            image: the dimension of the operand and its factor.
            kernel: the dimension of the kernel and its size. Shardy's factor may be the operand's, of another size.
        """
        (of_image, source), (of_kernel, size) = image, kernel
        factor, reason = len(rule.sizes), self.reason() and _NEIGHBOURS
        first, second = rule.operands
        if self.is_identity() and not reason:
            first = _with(first, of_image, factor)
        blocked = ((factor, reason),) if reason else ()
        rule = dataclasses.replace(
            rule,
            sizes=(*rule.sizes, size),
            operands=(first, _with(second, of_kernel, factor)),
            reduction=rule.reduction | {factor},
            blocked=rule.blocked + blocked,
        )
        if reason or self.is_identity():
            return rule
        return dataclasses.replace(
            rule,
            blocked=tuple((f, why) for f, why in rule.blocked if f != source),
            windows=(*rule.windows, (factor, source, self.window)),
        )


def _with(dims: Dims, dimension: int, factor: int) -> Dims:
    return tuple((factor,) if d == dimension else factors for d, factors in enumerate(dims))


def _slidings(op: Any, names: tuple[str, str, str], extents: Sequence[int], sizes: Sequence[int]) -> list[Sliding]:
    """How windows of these sizes slide over dimensions of these extents.

    Args:
        names: the attributes for the strides, the dilation of the operand and that of the window.
    """
    count = len(sizes)
    strides, dilations, spreads = (_integers(op, name, count) for name in names)
    lengths = [(size - 1) * spread + 1 for size, spread in zip(sizes, spreads, strict=True)]
    return [
        Sliding(Window(extents[i], strides[i], low, lengths[i]), high, dilations[i])
        for i, (low, high) in enumerate(_padding(op, count))
    ]


def _integers(op: Any, name: str, count: int) -> list[int]:
    """An array attribute of an op, ones where it has none."""
    return list(op.attributes[name]) if name in op.attributes else [1] * count


def _padding(op: Any, count: int) -> list[tuple[int, int]]:
    return window_padding(op) or [(0, 0)] * count


def _set_padding(op: Any, position: int, edges: tuple[int, int], count: int) -> None:
    """Gives an op other padding at one of its `count` windowed dimensions."""
    padding = _padding(op, count)
    padding[position] = edges
    numbers = [ir.IntegerAttr.get(ir.IntegerType.get_signless(64), n) for pair in padding for n in pair]
    op.attributes["padding"] = ir.DenseElementsAttr.get(numbers, builders.tensor((count, 2), numbers[0].type))


def _padded_window(context: EmitContext, position: int, padding: Any) -> Any:
    """All that a chunk reads of an operand in a window: its elements, and the scalar `padding` around them."""
    window = dict(context.split_op.windows)[position]
    part, dimension, chunk = context.operands[position], context.dimension, context.window_chunks[position]
    reach = window.reach(context.chunk.size)
    last = (context.split_op.n - context.chunk.size) * window.stride - window.before
    low, high = max(0, window.before), max(0, last + reach - window.n)
    if not low and not high and chunk.size == reach:
        return part
    padded = builders.padded_along(part, dimension, low, high, padding)
    first = stablehlo.subtract(context.chunk.first_read(window), chunk.start)
    return builders.slice_along(padded, dimension, stablehlo.add(first, builders.i32(low)), reach)


# Convolutions.


_OF_CONVOLUTION = ("window_strides", "lhs_dilation", "rhs_dilation")


@refines_shardy
def _convolution_rule(op: Any, rule: FactorRule) -> FactorRule:
    """Shardy's rule, with windows that slide over the spatial dimensions."""
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    image, kernel, result = op.operands[0].type.shape, op.operands[1].type.shape, op.results[0].type.shape
    rule = _only_along_groups(op, rule)
    extents = [image[d] for d in numbers.input_spatial_dimensions]
    lengths = [kernel[d] for d in numbers.kernel_spatial_dimensions]
    slidings = _slidings(op, _OF_CONVOLUTION, extents, lengths)
    spreads = _integers(op, "rhs_dilation", len(extents))
    dims = zip(
        numbers.input_spatial_dimensions,
        numbers.output_spatial_dimensions,
        numbers.kernel_spatial_dimensions,
        slidings,
        spreads,
        strict=True,
    )
    for of_image, of_result, of_kernel, sliding, spread in dims:
        source = len(rule.sizes)
        rule = sliding.apply(rule, (0,), (of_image, of_result), result[of_result])
        taps = sliding.over_taps(spread, result[of_result])
        rule = taps.reduce(rule, (of_image, source), (of_kernel, kernel[of_kernel]))
    return rule


def _only_along_groups(op: Any, rule: FactorRule) -> FactorRule:
    """A grouped convolution is split along its groups, and along a batch that has no part in them.

    Attributes tie its other features to the number of groups.
    """
    count = _group_count(op)
    if count == 1:
        return rule
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    batch, features = (rule.results[0][d] for d in (numbers.output_batch_dimension, numbers.output_feature_dimension))
    groups = {f for f in features[:1] if rule.sizes[f] == count}
    return rule.block(set(range(len(rule.sizes))) - groups - set(batch), "it is grouped")


_GROUPS = ("feature_group_count", "batch_group_count")


def _group_count(op: Any) -> int:
    return max((op.attributes[n].value for n in _GROUPS if n in op.attributes), default=1)


def _emit_convolution(context: EmitContext) -> list[Any]:
    """Along a spatial dimension the padding is part of the window; of groups there are as many as the chunk has."""
    if not context.split_op.windows:
        return [_features_last(_of_fewer_groups(context, emit_contraction(context))[0])]
    zero = builders.zeros(builders.retype(context.operands[0].type, ()))
    operands = [_padded_window(context, 0, zero), *context.operands[1:]]
    results = emit_contraction(dataclasses.replace(context, operands=operands))
    spatial = list(stablehlo.ConvDimensionNumbers(context.op.attributes["dimension_numbers"]).input_spatial_dimensions)
    _set_padding(results[0].owner, spatial.index(context.dimension), (0, 0), len(spatial))
    return [_features_last(results[0])]


def _features_last(result: Any) -> Any:
    """A convolution's result, with its operands transposed to have features last: XLA:CPU does that outside loops only.

    In a loop it computes any other form element by element, 30 times as slow (measured).
    """
    op, rank = result.owner, len(result.type.shape)
    n = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    image = [n.input_batch_dimension, *n.input_spatial_dimensions, n.input_feature_dimension]
    kernel = [*n.kernel_spatial_dimensions, n.kernel_input_feature_dimension, n.kernel_output_feature_dimension]
    made = [n.output_batch_dimension, *n.output_spatial_dimensions, n.output_feature_dimension]
    if all(dims == list(range(rank)) for dims in (image, kernel, made)):
        return result
    operands = [stablehlo.transpose(v, dims) for v, dims in zip(op.operands, (image, kernel), strict=True)]
    (new,) = builders.clone_with(op, operands, [[result.type.shape[d] for d in made]])
    new.set_type(builders.retype(result.type, new.type.shape))
    spatial, last = list(range(1, rank - 1)), rank - 1
    numbers = stablehlo.ConvDimensionNumbers.get(
        0, last, spatial, rank - 2, last, list(range(rank - 2)), 0, last, spatial
    )
    new.owner.attributes["dimension_numbers"] = numbers
    op.erase()
    return stablehlo.transpose(new, [made.index(d) for d in range(rank)])


def _of_fewer_groups(context: EmitContext, results: list[Any]) -> list[Any]:
    """A convolution whose kernels are a chunk of the groups', with their number."""
    dimension = context.split_op.operand_dims[1]
    if dimension is not None and _group_count(context.op) > 1:
        attributes, whole = results[0].owner.attributes, context.op.operands[1].type.shape[dimension]
        for name in _GROUPS:
            if attributes[name].value > 1:
                count = attributes[name].value * context.operands[1].type.shape[dimension] // whole
                attributes[name] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), count)
    return results


# Reductions of windows.


_OF_REDUCTION = ("window_strides", "base_dilations", "window_dilations")


def _reduce_window_rule(op: Any) -> FactorRule | None:
    """Pooling and cumulative sums: dimensions with windows of one element pass through."""
    shape = tuple(op.operands[0].type.shape)
    ranks = tuple(len(v.type.shape) for v in op.operands)
    rule = elementwise_rule(shape, ranks, len(op.results))
    for d, sliding in enumerate(_slidings(op, _OF_REDUCTION, shape, list(op.attributes["window_dimensions"]))):
        direction = sliding.direction() if shape[d] > 1 and body_names(op) <= BODY_OPS else 0
        if any(_padding(op, len(shape))[d]) and not _pads_with_identity(op):
            rule = rule.block({d}, "its windows are padded with a value that counts")
        elif direction:
            rule = dataclasses.replace(rule, directions=(*rule.directions, (d, direction)))
        elif not sliding.is_identity():
            rule = sliding.apply(rule, range(len(op.results)), (d, d), op.results[0].type.shape[d])
    return rule


def _pads_with_identity(op: Any) -> bool:
    """Whether padding has no effect: by the specification it is the initial value, and XLA:CPU leaves it out."""
    inits = [splat_number(v) for v in op.operands[len(op.results) :]]
    neutral = {"stablehlo.add": 0, "stablehlo.xor": 0, "stablehlo.multiply": 1}
    name = body_name(op)
    is_idempotent = name in ("stablehlo.maximum", "stablehlo.minimum", "stablehlo.and", "stablehlo.or")
    return is_idempotent or (name in neutral and all(init == neutral[name] for init in inits))


def _emit_reduce_window(context: EmitContext) -> list[Any]:
    """Along a dimension that a window slides over, the padding (the initial value) is part of the window."""
    if not context.split_op.windows:
        return clone_on_chunk(context)
    count = len(context.op.results)
    operands = [_padded_window(context, p, context.operands[count + p]) for p in range(count)]
    return _without_padding(context, [*operands, *context.operands[count:]])


def _without_padding(context: EmitContext, operands: Sequence[Any], size: int | None = None) -> list[Any]:
    """The op on other operands, not padded along the axis, or, if it is cumulative, as a chunk of `size` needs it."""
    results = clone_on_chunk(dataclasses.replace(context, operands=operands))
    attributes, dimension = results[0].owner.attributes, context.dimension
    lengths = list(attributes["window_dimensions"])
    if size is not None:
        lengths[dimension] = size
        attributes["window_dimensions"] = ir.DenseI64ArrayAttr.get(lengths)
    padding = size - 1 if size else 0
    edges = (0, padding) if context.split_op.direction < 0 else (padding, 0)
    _set_padding(results[0].owner, dimension, edges, len(lengths))
    return results


def _select_and_scatter_rule(op: Any) -> FactorRule:
    """The gradient of pooling: dimensions with windows of one element pass through, others are needed whole."""
    shape, source = (tuple(op.operands[p].type.shape) for p in (0, 1))
    slidings = _slidings(op, _OF_REDUCTION, shape, list(op.attributes["window_dimensions"]))
    rank, whole = len(shape), {d for d, sliding in enumerate(slidings) if not sliding.is_identity()}
    # The dimensions of the source have factors of their own where windows slide.
    of_source = tuple((rank + d if d in whole else d,) for d in range(rank))
    dims = tuple((d,) for d in range(rank))
    rule = FactorRule(shape + source, (dims, of_source, ()), (dims,))
    return rule.block(whole | {rank + d for d in whole}, "windows slide along it")


def _emit_cumulative(context: EmitContext) -> tuple[list[Any], list[Any]]:
    """A cumulative op on a chunk: its results on the chunk alone, each combined with the carry."""
    count, dimension = len(context.op.results), context.dimension
    inits = [identity(context.op, v) for v in context.operands[count:]]
    size = context.operands[0].type.shape[dimension]
    alone = [widened(context.op, v) for v in _without_padding(context, [*context.operands[:count], *inits], size)]
    before = [
        builders.broadcast(c, a.type, range(len(a.type.shape))) for c, a in zip(context.carries, alone, strict=True)
    ]
    # In the order of the elements: reducers are associative, but need not be commutative.
    parts = (alone, before) if context.split_op.direction < 0 else (before, alone)
    sums = apply_elementwise(context.op.regions[0].blocks[0], [v for part in parts for v in part])
    return [builders.convert(v, r.type.element_type) for v, r in zip(sums, context.op.results, strict=True)], sums


OP_RULES = {
    "stablehlo.convolution": OpRule(rule=_convolution_rule, emit=_emit_convolution, reduction=SUM),
    "stablehlo.reduce_window": OpRule(
        rule=_reduce_window_rule,
        emit=_emit_reduce_window,
        cumulative=Cumulative(
            initial=lambda op, operands: [widened(op, init) for init in operands[len(op.results) :]],
            emit=_emit_cumulative,
            regroups=regroups_floats,
        ),
    ),
    "stablehlo.select_and_scatter": OpRule(rule=_select_and_scatter_rule),
}
