"""Dots as sums of products, for machines on which XLA:CPU sums a dot in an order that goes by its shape.

There a slice of a dot has other bits than the dot of the slices: Eigen has kernels for each number of rows (seen with
AVX2; with AVX-512 rows are summed alike). A reduction sums in order. `support.run` calls it for tests that compare
bits, which are to tell whether a rewriting keeps each element's arithmetic.
"""

from __future__ import annotations

import functools
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

    return any((product(x[:rows]) != product(x)[:rows]).any() for rows in (2, 3, 32))


def dots_as_sums(module: ir.Module) -> None:
    """Replaces every dot of f32 or f64 by a reduction of products, in place."""
    with module.context:
        for op in list(_dots(module.operation)):
            with builders.building(op, op.location):
                op.results[0].replace_all_uses_with(_as_sum(op))
            op.erase()


def _dots(op: Any) -> Iterator[Any]:
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                if inner.operation.name == "stablehlo.dot_general" and _is_of_floats(inner.operation):
                    yield inner.operation
                yield from _dots(inner.operation)


def _is_of_floats(op: Any) -> bool:
    """Not of narrow ones, whose roundings XLA may leave out where they are converted."""
    elements = [v.type.element_type for v in (*op.operands, *op.results)]
    return all(isinstance(e, ir.FloatType) and ir.FloatType(e).width >= 32 for e in elements)


def _as_sum(op: Any) -> Any:
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    sides = [
        (numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions),
        (numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions),
    ]
    result, free = op.results[0].type, [0, 0]
    shapes = [list(v.type.shape) for v in op.operands]
    for side, (batch, contracted) in enumerate(sides):
        free[side] = len(shapes[side]) - len(batch) - len(contracted)
    batch, contracted = map(len, sides[0])
    summed = [shapes[0][d] for d in sides[0][1]]
    whole = builders.retype(result, [*result.shape, *summed])
    first = (batch, batch + free[0])
    spread = []
    for side, (value, places) in enumerate(zip(op.operands, sides, strict=True)):
        others = [d for d in range(len(shapes[side])) if d not in (*places[0], *places[1])]
        value = builders.transposed(builders.convert(value, result.element_type), [*places[0], *others, *places[1]])
        dims = [*range(batch), *range(first[side], first[side] + free[side])]
        dims += range(len(result.shape), len(result.shape) + contracted)
        spread.append(builders.broadcast(value, whole, dims))
    products = stablehlo.multiply(*spread)
    return builders.reduced(products, range(len(result.shape), len(whole.shape)), 0, stablehlo.add)
