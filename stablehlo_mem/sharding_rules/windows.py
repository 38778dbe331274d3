"""Rows of the ops that slide a window: convolutions, pooling, and cumulative sums, whose windows grow.

Along a dimension that a window slides over, a chunk of the result is made of a window of the operand: what is there
of it, and the padding around it. Along a cumulative one it goes on from the chunk before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import dense_value, ir, stablehlo
from stablehlo_mem.sharding_rules.factor_rule import Dims, Rule, elementwise_rule, shardy_rule
from stablehlo_mem.sharding_rules.halo import Sliding
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
class _Slide:
    """How a window slides along one dimension, in elements of the operand: `dilation` is that of the operand."""

    length: int
    stride: int
    low: int
    high: int
    dilation: int

    def is_still(self) -> bool:
        """Whether every element is a window of its own."""
        return self == _Slide(1, 1, 0, 0, 1)

    def direction(self, extent: int) -> int:
        """1 if the window of each element is all up to it, -1 if all from it on, else 0."""
        ends = {(extent - 1, 0): 1, (0, extent - 1): -1}
        return ends.get((self.low, self.high), 0) if (self.length, self.stride, self.dilation) == (extent, 1, 1) else 0

    def reason(self, extent: int) -> str | None:
        """Why a chunk of the result is not made of a window of the operand, None if it is."""
        if self.dilation != 1:
            return "its elements are spread apart"
        return "a window slides along it that covers most of it" if 2 * self.length > extent else None


def _slides(op: Any, names: tuple[str, str, str], sizes: Sequence[int]) -> list[_Slide]:
    """How windows of these sizes slide, by the attributes for strides, dilation of the operand and of the window."""
    ones = [1] * len(sizes)
    strides, spread, apart = (list(op.attributes[n]) if n in op.attributes else ones for n in names)
    padding = _padding(op, len(sizes))
    return [_Slide((size - 1) * apart[i] + 1, strides[i], *padding[i], spread[i]) for i, size in enumerate(sizes)]


def _padding(op: Any, count: int) -> list[tuple[int, int]]:
    if "padding" not in op.attributes:
        return [(0, 0)] * count
    values = ir.DenseIntElementsAttr(op.attributes["padding"])
    return [(values[2 * i], values[2 * i + 1]) for i in range(count)]


def _pad(op: Any, place: int, edges: tuple[int, int], count: int) -> None:
    """Gives an op other padding in one place of `count`."""
    padding = _padding(op, count)
    padding[place] = edges
    numbers = [ir.IntegerAttr.get(ir.IntegerType.get_signless(64), n) for pair in padding for n in pair]
    op.attributes["padding"] = ir.DenseElementsAttr.get(numbers, builders.tensor((count, 2), numbers[0].type))


def _slid(rule: Rule, operands: Sequence[int], dims: tuple[int, int], slide: _Slide, sizes: tuple[int, int]) -> Rule:
    """A rule in which windows slide over a dimension of some operands.

    Args:
        dims, sizes: the dimension and its size, in the operands and in the results.
    """
    source = len(rule.sizes)
    factor = source + 1
    reason = slide.reason(sizes[0])
    slidings = tuple(Sliding(factor, source, p, dims[0], slide.stride, slide.low, slide.length) for p in operands)
    replaced = tuple(_with(d, dims[0], source) if p in operands else d for p, d in enumerate(rule.operands))
    return dataclasses.replace(
        rule,
        sizes=(*rule.sizes, *sizes),
        operands=replaced,
        results=tuple(_with(d, dims[1], factor) for d in rule.results),
        blocked=rule.blocked + (((source, reason), (factor, reason)) if reason else ()),
        slidings=rule.slidings + (() if reason else slidings),
    )


def _joined(rule: Rule, operand: int, dims: tuple[int, int], size: int) -> Rule:
    """A rule in which a dimension of an operand passes through to the results."""
    factor = len(rule.sizes)
    operands = tuple(_with(d, dims[0], factor) if p == operand else d for p, d in enumerate(rule.operands))
    results = tuple(_with(d, dims[1], factor) for d in rule.results)
    return dataclasses.replace(rule, sizes=(*rule.sizes, size), operands=operands, results=results)


def _with(dims: Dims, dimension: int, factor: int) -> Dims:
    return tuple((factor,) if d == dimension else factors for d, factors in enumerate(dims))


def _window(site: EmitContext, position: int, padding: Any) -> Any:
    """All that a chunk reads of an operand in a window: what is there, and the scalar `padding` around it."""
    window = dict(site.split_op.windows)[position]
    there, part, dimension = site.read[position], site.operands[position], site.split_op.operand_dims[position]
    assert dimension is not None
    reach = window.reach(site.chunk.size)
    last = (site.split_op.n - site.chunk.size) * window.stride - window.before
    low, high = max(0, window.before), max(0, last + reach - window.n)
    if not low and not high and there.size == reach:
        return part
    around = builders.padded_along(part, dimension, low, high, padding)
    first = stablehlo.subtract(site.chunk.first_read(window), there.start)
    return builders.slice_along(around, dimension, stablehlo.add(first, builders.i32(low)), reach)


# Convolutions.


_OF_CONVOLUTION = ("window_strides", "lhs_dilation", "rhs_dilation")


def _convolution_rule(op: Any) -> Rule | None:
    """Shardy's rule, with windows that slide over the spatial dimensions."""
    rule = shardy_rule(op)
    if rule is None:
        return None
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    image, kernel, result = op.operands[0].type.shape, op.operands[1].type.shape, op.results[0].type.shape
    rule = _without_groups(op, rule)
    rule = rule.block({f for d in numbers.kernel_spatial_dimensions for f in rule.operands[1][d]}, _NEIGHBOURS)
    slides = _slides(op, _OF_CONVOLUTION, [kernel[d] for d in numbers.kernel_spatial_dimensions])
    spatial = zip(numbers.input_spatial_dimensions, numbers.output_spatial_dimensions, slides, strict=True)
    for before, after, slide in spatial:
        if slide.is_still():
            rule = _joined(rule, 0, (before, after), image[before])
        else:
            rule = _slid(rule, (0,), (before, after), slide, (image[before], result[after]))
    return rule


def _without_groups(op: Any, rule: Rule) -> Rule:
    """Grouped convolutions tie features to group counts in an attribute: every factor but the batch blocks."""
    counts: Callable[[str], int] = lambda name: op.attributes[name].value if name in op.attributes else 1  # noqa: E731
    if counts("feature_group_count") == counts("batch_group_count") == 1:
        return rule
    return rule.block(set(range(len(rule.sizes))), "it is grouped")


def _emit_convolution(site: EmitContext) -> list[Any]:
    """Along a spatial dimension the padding is in the window."""
    if not site.split_op.windows:
        return emit_contraction(site)
    zero = builders.zeros(builders.retype(site.operands[0].type, ()))
    operands = [_window(site, 0, zero), *site.operands[1:]]
    results = clone_on_chunk(dataclasses.replace(site, operands=operands))
    spatial = list(stablehlo.ConvDimensionNumbers(site.op.attributes["dimension_numbers"]).input_spatial_dimensions)
    _pad(results[0].owner, spatial.index(_dimension(site)), (0, 0), len(spatial))
    return results


def _dimension(site: EmitContext) -> int:
    """The dimension of its first operand along which an op is split."""
    dimension = site.split_op.operand_dims[0]
    assert dimension is not None
    return dimension


# Reductions of windows.


_OF_REDUCTION = ("window_strides", "base_dilations", "window_dilations")


def _reduce_window_rule(op: Any) -> Rule | None:
    """Pooling and cumulative sums: a dimension with windows of one element passes through."""
    shape = tuple(op.operands[0].type.shape)
    ranks = tuple(len(v.type.shape) for v in op.operands)
    rule = elementwise_rule(len(shape), shape, ranks, len(op.results))
    for d, slide in enumerate(_slides(op, _OF_REDUCTION, list(op.attributes["window_dimensions"]))):
        direction = slide.direction(shape[d]) if shape[d] > 1 and body_names(op) <= BODY_OPS else 0
        if any(_padding(op, len(shape))[d]) and not _pads_with_nothing(op):
            rule = rule.block({d}, "its windows are padded with a value that counts")
        elif direction:
            rule = dataclasses.replace(rule, directions=(*rule.directions, (d, direction)))
        elif not slide.is_still():
            sizes = shape[d], op.results[0].type.shape[d]
            rule = _slid(rule, range(len(op.results)), (d, d), slide, sizes)
    return rule


def _pads_with_nothing(op: Any) -> bool:
    """Whether padding makes no difference: the specification counts the initial value there, XLA:CPU leaves it out."""
    inits = [_number(v) for v in op.operands[len(op.results) :]]
    neutral = {"stablehlo.add": 0, "stablehlo.xor": 0, "stablehlo.multiply": 1}
    name = body_name(op)
    folds = name in ("stablehlo.maximum", "stablehlo.minimum", "stablehlo.and", "stablehlo.or")
    return folds or (name in neutral and all(init == neutral[name] for init in inits))


def _number(value: Any) -> float | None:
    """What a value is filled with, if it is one constant."""
    owner = value.owner
    if getattr(owner, "name", "") == "stablehlo.broadcast_in_dim":
        return _number(owner.operands[0])
    constant = dense_value(owner) if getattr(owner, "name", "") == "stablehlo.constant" else None
    number = constant.get_splat_value() if constant is not None and constant.is_splat else None
    return number.value if isinstance(number, ir.FloatAttr | ir.IntegerAttr) else None


def _emit_reduce_window(site: EmitContext) -> list[Any]:
    """Where a window slides over the chunk, the padding, the initial value, is in what it reads."""
    if not site.split_op.windows:
        return clone_on_chunk(site)
    count = len(site.op.results)
    operands = [_window(site, p, site.operands[count + p]) for p in range(count)]
    return _on_windows(site, [*operands, *site.operands[count:]])


def _on_windows(site: EmitContext, operands: Sequence[Any], size: int | None = None) -> list[Any]:
    """The op on other operands, without padding along the axis; `size`: cumulative, over so many elements."""
    results = clone_on_chunk(dataclasses.replace(site, operands=operands))
    attributes, dimension = results[0].owner.attributes, _dimension(site)
    lengths = list(attributes["window_dimensions"])
    if size is not None:
        lengths[dimension] = size
        attributes["window_dimensions"] = ir.DenseI64ArrayAttr.get(lengths)
    padding = size - 1 if size else 0
    edges = (0, padding) if site.split_op.direction < 0 else (padding, 0)
    _pad(results[0].owner, dimension, edges, len(lengths))
    return results


def _initial(op: Any, operands: Sequence[Any]) -> list[Any]:
    return [widened(op, v) for v in operands[len(op.results) :]]


def _go_on(site: EmitContext) -> tuple[list[Any], list[Any]]:
    """A cumulative op on a chunk: what it comes to alone, after what it came to before."""
    count, dimension = len(site.op.results), _dimension(site)
    inits = [identity(site.op, v.type) or v for v in site.operands[count:]]
    size = site.operands[0].type.shape[dimension]
    alone = [widened(site.op, v) for v in _on_windows(site, [*site.operands[:count], *inits], size)]
    spread = [builders.broadcast(b, a.type, range(len(a.type.shape))) for b, a in zip(site.before, alone, strict=True)]
    # In the order of the elements: reducers are associative, they need not commute.
    parts = (alone, spread) if site.split_op.direction < 0 else (spread, alone)
    sums = apply_elementwise(site.op.regions[0].blocks[0], [v for part in parts for v in part])
    return [builders.convert(v, r.type.element_type) for v, r in zip(sums, site.op.results, strict=True)], sums


OP_RULES: dict[str, OpRule] = {
    "stablehlo.convolution": OpRule(rule=_convolution_rule, emit=_emit_convolution, reduction=SUM),
    "stablehlo.reduce_window": OpRule(
        rule=_reduce_window_rule,
        emit=_emit_reduce_window,
        cumulative=Cumulative(_initial, _go_on, regroups_floats),
    ),
}
