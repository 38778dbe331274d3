"""Polynomials of attention: what is equal however it is computed, and what is not."""

from __future__ import annotations

import dataclasses
import math

import pytest

from stablehlo_mem.attention.algebra import (
    ZERO,
    Columns,
    Dot,
    Exp,
    HalfPlane,
    Keep,
    Leaf,
    Mask,
    Region,
    Tensor,
    added,
    atom,
    constant,
    in_rows_with_keys,
    inverse,
    is_positive,
    multiplied,
    scaled,
)

COLUMNS = Columns(frozenset({1}), 16)
SCORES = atom(Dot(Tensor(0, (0, -2)), Tensor(1, (1, -2)), frozenset({(1, 1)})))
MAXIMUM = atom(Leaf(Tensor(2, (0,))))
GRADIENT = atom(Dot(Tensor(3, (0, -2)), Tensor(4, (1, -2)), frozenset({(1, 1)})))
TRIANGLE = Region(frozenset({HalfPlane(0, frozenset({(0, 1), (1, -1)}))}))


def divided(a, b):
    divisor = inverse(b)
    assert divisor is not None
    return multiplied(a, divisor)


def softmax(scores):
    exponentials = COLUMNS.exponential(scores)
    return divided(exponentials, COLUMNS.total(exponentials))


def test_a_maximum_cancels():
    assert softmax(added(SCORES, MAXIMUM, -1.0)) == softmax(SCORES)


def test_exp_of_scores_less_their_log_sum_exp_is_softmax():
    shifted = COLUMNS.exponential(added(SCORES, MAXIMUM, -1.0))
    logarithm = COLUMNS.logarithm(COLUMNS.total(shifted))
    assert logarithm is not None
    assert COLUMNS.exponential(added(added(SCORES, logarithm, -1.0), MAXIMUM, -1.0)) == softmax(SCORES)


def test_scales_and_masks_make_a_difference():
    assert softmax(scaled(SCORES, 0.5)) != softmax(SCORES)
    assert softmax(added(SCORES, atom(Mask(TRIANGLE)))) != softmax(SCORES)


def test_gradients_of_both_ways_to_divide_are_equal():
    """d(e / l) by the rule for quotients, times e, is P ∘ (dP - Total(P ∘ dP))."""
    p, exponentials = softmax(SCORES), COLUMNS.exponential(added(SCORES, MAXIMUM, -1.0))
    total = COLUMNS.total(exponentials)
    of_total = COLUMNS.total(divided(scaled(multiplied(GRADIENT, exponentials), -1.0), multiplied(total, total)))
    by_quotient = multiplied(added(divided(GRADIENT, total), of_total), exponentials)
    assert by_quotient == multiplied(p, added(GRADIENT, COLUMNS.total(multiplied(p, GRADIENT)), -1.0))


def test_the_gradient_of_a_maximum_is_zero():
    p = softmax(SCORES)
    of_scores = multiplied(p, added(GRADIENT, COLUMNS.total(multiplied(p, GRADIENT)), -1.0))
    assert COLUMNS.total(of_scores) == ZERO


def test_masked_scores_need_no_second_mask():
    """Where probabilities are zero, their gradient is; a mask after the exponential is one before it."""
    masked = COLUMNS.exponential(added(SCORES, atom(Mask(TRIANGLE, -1e30))))
    keep = atom(Keep(TRIANGLE, of_rows=False))
    assert in_rows_with_keys(multiplied(masked, keep)) == masked
    kept = multiplied(COLUMNS.exponential(SCORES), keep)
    assert in_rows_with_keys(kept) == COLUMNS.exponential(added(SCORES, atom(Mask(TRIANGLE))))
    assert COLUMNS.total(multiplied(masked, keep)) == COLUMNS.total(masked)


def test_a_mask_after_the_exponential_decides_for_rows_without_keys():
    """Zero, rather than equal probabilities. One of two masks decides for some of their keys: no words for that."""
    masked = COLUMNS.exponential(added(SCORES, atom(Mask(TRIANGLE, -1e30))))
    keep = atom(Keep(TRIANGLE, of_rows=False))
    assert multiplied(masked, keep) != masked
    other = dataclasses.replace(TRIANGLE, planes=frozenset({HalfPlane(5, frozenset({(1, -1)}))}))
    both = COLUMNS.exponential(added(added(SCORES, atom(Mask(TRIANGLE, -1e30))), atom(Mask(other, -1e30))))
    ((monomial, _),) = multiplied(both, keep)
    assert any(isinstance(one, Keep) for one, _ in monomial)


def test_sums_of_exponentials_are_positive():
    exponentials = COLUMNS.exponential(added(SCORES, MAXIMUM, -1.0))
    assert is_positive(COLUMNS.total(exponentials))
    assert not is_positive(scaled(exponentials, -1.0))
    assert not is_positive(SCORES)


def test_constants_along_a_row_are_summed_by_count():
    assert COLUMNS.total(MAXIMUM) == scaled(MAXIMUM, 16.0)


@pytest.mark.parametrize("number", [0.125, math.sqrt(1 / 3), -2.0])
def test_coefficients_cancel(number):
    assert added(scaled(SCORES, number), scaled(multiplied(SCORES, constant(number)), -1.0)) == ZERO


def test_only_matrices_differ_along_rows():
    (monomial,) = dict(multiplied(MAXIMUM, COLUMNS.exponential(SCORES)))
    matrix, row = COLUMNS.parted(monomial)
    assert {type(a) for a, _ in matrix} == {Exp}
    assert {type(a) for a, _ in row} == {Leaf}
