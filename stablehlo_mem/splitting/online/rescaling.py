"""What streaming builds: accumulated values scaled down to a new maximum, and finished when their loop is done."""

from __future__ import annotations

import math
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.splitting.online.deferred_terms import DeferredTerm


def rescaling(before: Any, after: Any) -> Any:
    """By what sums of x · exp(-before) are multiplied to be sums of x · exp(-after), in f32 at least.

    A maximum only grows. Where what follows it does not (it was infinite and something finite stood for it) the factor
    is 1: what was summed up is zero then, or infinite.
    """
    element = max((before.type.element_type, ir.F32Type.get()), key=lambda t: t.width)
    difference = stablehlo.subtract(builders.convert(before, element), builders.convert(after, element))
    return stablehlo.exponential(stablehlo.minimum(difference, builders.zeros(difference.type)))


def rescaled(value: Any, term: DeferredTerm, factor: Any) -> Any:
    """An accumulated value multiplied with the factor of one of its terms."""
    return stablehlo.multiply(
        value, builders.laid_along(builders.convert(factor, value.type.element_type), term.dims, value.type)
    )


def finished(value: Any, term: DeferredTerm, whole: Any) -> Any:
    """An accumulated value after the last step, with a term done to it; one that ran is done but where it is -∞."""
    if term.scales_down:
        assert term.running is not None
        return value if term.running.finite else _without_lowest(value, term, whole)
    whole = builders.convert(whole, value.type.element_type)
    if term.exponential:
        signed = stablehlo.negate(whole) if term.op == "subtract" else whole
        return stablehlo.multiply(value, builders.laid_along(stablehlo.exponential(signed), term.dims, value.type))
    return getattr(stablehlo, term.op)(value, builders.laid_along(whole, term.dims, value.type))


def at_least_finite(value: Any) -> Any:
    """A value with 0 for -∞."""
    return stablehlo.select(_is_lowest(value), builders.zeros(value.type), value)


def _without_lowest(value: Any, term: DeferredTerm, whole: Any) -> Any:
    """Where the maximum is -∞, exp(-∞ - (-∞)) went into the sum: it is no number."""
    lowest = builders.laid_along(
        _is_lowest(whole), term.dims, builders.tensor(value.type.shape, ir.IntegerType.get_signless(1))
    )
    return stablehlo.select(lowest, builders.splat(value.type, math.nan), value)


def _is_lowest(value: Any) -> Any:
    lowest = builders.splat(value.type, -math.inf)
    return stablehlo.compare(value, lowest, stablehlo.ComparisonDirectionAttr.get("EQ"))
