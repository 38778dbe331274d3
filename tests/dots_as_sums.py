"""Dots as sums of products, for machines on which XLA:CPU sums a dot in an order that goes by its shape.

There a slice of a dot has other bits than the dot of the slices: Eigen has kernels for each number of rows (seen with
AVX2; with AVX-512 rows are summed alike). A reduction sums in order. `support.run` calls it for tests that compare
bits, which are to tell whether a rewriting keeps each element's arithmetic.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, stablehlo


@functools.cache
def dots_go_by_shape(options: tuple[tuple[str, Any], ...]) -> bool:
    """Whether some rows of a dot have other bits if they are multiplied alone, as a program is compiled."""
    x, w = (np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32) for _ in range(2))

    def product(x: Any) -> np.ndarray:
        return np.asarray(jax.jit(jnp.dot).lower(x, w).compile(compiler_options=dict(options))(x, w))

    whole = product(x)
    return any((product(x[:rows]) != whole[:rows]).any() for rows in (2, 3, 32))


def dots_as_sums(module: ir.Module) -> None:
    """Replaces every dot that sums in f32 or f64 by a reduction of products, in place."""
    with module.context:
        for op in list(_dots(module.operation)):
            with builders.building(op, op.location):
                op.results[0].replace_all_uses_with(_as_sum(op))
            op.erase()


def _dots(op: Any) -> Iterator[Any]:
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                if inner.operation.name == "stablehlo.dot_general" and _sums_wide_floats(inner.operation):
                    yield inner.operation
                yield from _dots(inner.operation)


def _sums_wide_floats(op: Any) -> bool:
    """Also of narrow operands, whose products are exact. XLA may leave out the roundings of a narrow sum."""
    element = op.results[0].type.element_type
    return isinstance(element, ir.FloatType) and ir.FloatType(element).width >= 32


def _as_sum(op: Any) -> Any:
    """Both operands laid along the dimensions of the result and those that are summed, multiplied and summed."""
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    sides = [
        (numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions),
        (numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions),
    ]
    result, free = op.results[0].type, len(sides[0][0])
    rank = len(result.shape)
    whole = builders.retype(result, [*result.shape, *(op.operands[0].type.shape[d] for d in sides[0][1])])
    factors: list[Any] = []
    for value, (batch, summed) in zip(op.operands, sides, strict=True):
        others = [d for d in range(len(value.type.shape)) if d not in (*batch, *summed)]
        along = [range(len(batch)), range(free, free + len(others)), range(rank, len(whole.shape))]
        places = dict(zip((*batch, *others, *summed), itertools.chain(*along), strict=True))
        free += len(others)
        value = builders.convert(value, result.element_type)
        factors.append(builders.laid_along(value, [places[d] for d in range(len(value.type.shape))], whole))
    return builders.reduced(stablehlo.multiply(*factors), range(rank, len(whole.shape)), 0, stablehlo.add)
