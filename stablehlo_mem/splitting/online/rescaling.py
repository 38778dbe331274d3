"""Emits what online reductions add to a loop: accumulators are rescaled to a new maximum, and deferred terms applied.

Used by `emit_loops`.
"""

from __future__ import annotations

import math
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.splitting.online.deferred_terms import DeferredTerm


def rescaling_factor(before: Any, after: Any) -> Any:
    """exp(before - after): makes of sums of x · exp(-before) sums of x · exp(-after). In f32 at least.

    A maximum only grows. Where the statistic does not (the maximum was infinite and a finite number replaced it) the
    factor is 1: the sum is zero then, or infinite.
    """
    element = max((before.type.element_type, ir.F32Type.get()), key=lambda t: t.width)
    difference = stablehlo.subtract(builders.convert(before, element), builders.convert(after, element))
    return stablehlo.exponential(stablehlo.minimum(difference, builders.zeros(difference.type)))


def rescale(accumulator: Any, term: DeferredTerm, factor: Any) -> Any:
    """An accumulator multiplied by the rescaling factor of one of its terms, row by row."""
    factor = builders.convert(factor, accumulator.type.element_type)
    return stablehlo.multiply(accumulator, builders.laid_along(factor, term.dims, accumulator.type))


def apply_term(accumulator: Any, term: DeferredTerm, statistic: Any) -> Any:
    """An accumulator after the last step with a deferred term applied; a running one is in it already."""
    if term.rescales:
        assert term.running is not None
        return accumulator if term.running.finite else _nan_in_masked_rows(accumulator, term, statistic)
    statistic = builders.convert(statistic, accumulator.type.element_type)
    if term.exponential:
        signed = stablehlo.negate(statistic) if term.op == "subtract" else statistic
        factor = builders.laid_along(stablehlo.exponential(signed), term.dims, accumulator.type)
        return stablehlo.multiply(accumulator, factor)
    return getattr(stablehlo, term.op)(accumulator, builders.laid_along(statistic, term.dims, accumulator.type))


def zero_for_minus_infinity(value: Any) -> Any:
    """A value with 0 in the place of -∞: exp(-∞ - (-∞)) is NaN."""
    return stablehlo.select(_is_minus_infinity(value), builders.zeros(value.type), value)


def _nan_in_masked_rows(accumulator: Any, term: DeferredTerm, maximum: Any) -> Any:
    """NaN where the maximum of a row is -∞, as the program has it: exp(-∞ - (-∞)) goes into its sum."""
    flags = builders.tensor(accumulator.type.shape, ir.IntegerType.get_signless(1))
    masked = builders.laid_along(_is_minus_infinity(maximum), term.dims, flags)
    return stablehlo.select(masked, builders.splat(accumulator.type, math.nan), accumulator)


def _is_minus_infinity(value: Any) -> Any:
    lowest = builders.splat(value.type, -math.inf)
    return stablehlo.compare(value, lowest, stablehlo.ComparisonDirectionAttr.get("EQ"))
