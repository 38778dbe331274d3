"""Rows of gather and scatter: split along what they copy whole, and along what they address by index.

Along the indexed dimension a gather takes from each chunk what lies in it. Along its updates a scatter writes chunk
after chunk into the same carry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stablehlo_mem.ir import build
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.rules.reductions import body_name, regroups_floats
from stablehlo_mem.rules.row import Reduction, Row, Site, clone_on_chunk
from stablehlo_mem.rules.rule import Rule, shardy_rule


def _scatter_rule(op: Any) -> Rule | None:
    """Dimensions that inputs and updates share pass through; along the others of the updates they accumulate."""
    rule = shardy_rule(op)
    if rule is None:
        return None
    inputs = len(op.results)
    factors = [{f for dims in operand for f in dims} for operand in rule.operands]
    shared = set.intersection(*factors[:inputs], *factors[inputs + 1 :])
    updated = rule.reduction & factors[inputs]
    return rule.block(set(range(len(rule.sizes))) - shared - updated, "updates are placed by index along it")


def _emit_scatter(site: Site) -> list[Any]:
    """Along the updates: the indices and updates of the chunk, which `_scatter_on` writes into the carries."""
    return list(site.operands[len(site.op.results) :]) if site.node.reducing else clone_on_chunk(site)


def _scatter_on(op: Any, carries: Sequence[Any], partials: Sequence[Any]) -> list[Any]:
    return build.clone_with(op, [*carries, *partials], [list(r.type.shape) for r in op.results])


def _outside(op: Any, position: int, operands: Sequence[Any]) -> Any:
    """An index that is out of bounds, whose update is dropped; the update itself may be anything."""
    scalar = build.tensor((), op.operands[position].type.element_type)
    if position != len(op.results):
        return build.zeros(scalar)
    lowest = -(2 ** (scalar.element_type.width - 1))
    return stablehlo.constant(ir.DenseElementsAttr.get_splat(scalar, ir.IntegerAttr.get(scalar.element_type, lowest)))


SCATTER = Reduction(
    initial=lambda op, operands: list(operands[: len(op.results)]),
    combine=_scatter_on,
    identity=_outside,
    regroups=regroups_floats,
    addends=lambda op: (0,) if len(op.results) == 1 and body_name(op) == "stablehlo.add" else None,
)


def _gather_rule(op: Any) -> Rule | None:
    """Shardy's rule; along an indexed dimension single elements, by indices one can shift, are taken chunk by chunk."""
    rule = shardy_rule(op)
    if rule is None:
        return None
    element = op.operands[1].type.element_type
    shiftable = isinstance(element, ir.IntegerType) and element.width >= 32 and not element.is_unsigned
    sizes = list(op.attributes["slice_sizes"])
    single = {f for d, factors in enumerate(rule.operands[0]) if sizes[d] == 1 for f in factors}
    return rule.block(set(rule.reduction) - (single if shiftable else set()), "elements are picked by index along it")


def _emit_gather(site: Site) -> list[Any]:
    if site.node.reducing:
        return _take_from_chunk(site)
    results = clone_on_chunk(site)
    dimension = site.node.operand_dims[0]
    sizes = list(site.op.attributes["slice_sizes"])
    if dimension is not None and sizes[dimension] != 1:
        sizes[dimension] = site.operands[0].type.shape[dimension]
        results[0].owner.attributes["slice_sizes"] = ir.DenseI64ArrayAttr.get(sizes)
    return results


def _take_from_chunk(site: Site) -> list[Any]:
    """Which results lie in this chunk, and the chunk gathered by shifted indices."""
    numbers = stablehlo.GatherDimensionNumbers(site.op.attributes["dimension_numbers"])
    dimension = site.node.operand_dims[0]
    assert dimension is not None
    indices = site.operands[1]
    component = list(numbers.start_index_map).index(dimension)
    extent = site.op.operands[0].type.shape[dimension]
    shifted = _shifted(site, indices, extent)
    present = _component(_in_chunk(site, shifted, dimension), numbers.index_vector_dim, component)
    moved = _replace_component(indices, shifted, numbers.index_vector_dim, component)
    (taken,) = build.clone_with(site.op, [site.operands[0], moved], site.result_shapes)
    batch = [d for d in range(len(taken.type.shape)) if d not in numbers.offset_dims]
    mask = build.broadcast(present, build.tensor(taken.type.shape, present.type.element_type), batch)
    return [mask, taken]


def _shifted(site: Site, indices: Any, extent: int) -> Any:
    """All components clamped as the whole gather clamps this one, relative to the chunk's start."""
    element = indices.type.element_type
    bounds = [build.splat(build.tensor((), element), value) for value in (0, extent - 1)]
    clamped = stablehlo.clamp(bounds[0], indices, bounds[1])
    start = stablehlo.multiply(site.chunk.start, build.i32(extent // site.node.n))
    return stablehlo.subtract(clamped, build.broadcast(build.convert(start, element), indices.type))


def _in_chunk(site: Site, shifted: Any, dimension: int) -> Any:
    size = build.convert(build.i32(site.operands[0].type.shape[dimension]), shifted.type.element_type)
    below = stablehlo.compare(shifted, build.broadcast(size, shifted.type), stablehlo.ComparisonDirectionAttr.get("LT"))
    least = stablehlo.compare(shifted, build.zeros(shifted.type), stablehlo.ComparisonDirectionAttr.get("GE"))
    return stablehlo.and_(below, least)


def _component(tensor: Any, vector_dimension: int, component: int) -> Any:
    """One component of every index vector; without a vector dimension the index itself."""
    shape = list(tensor.type.shape)
    if vector_dimension == len(shape):
        return tensor
    starts, limits = [0] * len(shape), list(shape)
    starts[vector_dimension], limits[vector_dimension] = component, component + 1
    one = stablehlo.slice(tensor, *(ir.DenseI64ArrayAttr.get(a) for a in (starts, limits, [1] * len(shape))))
    del shape[vector_dimension]
    return stablehlo.reshape(build.retype(tensor.type, shape), one)


def _replace_component(indices: Any, shifted: Any, vector_dimension: int, component: int) -> Any:
    shape = indices.type.shape
    if vector_dimension == len(shape) or shape[vector_dimension] == 1:
        return shifted
    i32_type = build.tensor(shape, ir.IntegerType.get_signless(32))
    number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), vector_dimension)
    chosen = stablehlo.compare(
        stablehlo.iota(i32_type, number),
        build.broadcast(build.i32(component), i32_type),
        stablehlo.ComparisonDirectionAttr.get("EQ"),
    )
    return stablehlo.select(chosen, shifted, indices)


GATHER = Reduction(
    initial=lambda op, operands: [build.zeros(op.results[0].type)],
    combine=lambda op, carries, partials: [stablehlo.select(partials[0], partials[1], carries[0])],
    # What an earlier chunk has taken is taken again: the same element.
    identity=lambda op, position, operands: None,
    regroups=lambda op: False,
)

ROWS: dict[str, Row] = {
    "stablehlo.gather": Row(rule=_gather_rule, emit=_emit_gather, reduction=GATHER),
    "stablehlo.scatter": Row(rule=_scatter_rule, emit=_emit_scatter, reduction=SCATTER),
}
