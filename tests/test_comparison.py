"""The yardstick by itself: what is within it, what rounding alone decides, and what is wrong."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from stablehlo_mem.checking.comparison import compare, nudge_sensitivity, tolerance
from tests.support import normals, yardstick

OLD = normals(1000)
WIDE = OLD.astype(np.float64) * (1 + 1e-8)


@pytest.mark.parametrize("relative", [0.0, 1e-7, 1e-6, 3e-6, 1e-5, 1e-3])
def test_it_is_the_yardstick_of_the_tests(relative: float) -> None:
    new = (OLD * (1 + relative)).astype(np.float32)
    found = compare("result", new, OLD, WIDE)
    assert found.ok == (yardstick(new, OLD, WIDE) is None)
    assert found.new_from_f64 == pytest.approx(np.abs(new - WIDE).max())
    assert found.original_from_f64 == pytest.approx(np.abs(OLD - WIDE).max())


def test_the_last_of_many_elements_counts() -> None:
    new = np.ones(3 * 2**20 + 1, np.float32)
    old = new.copy()
    new[-1] = 2
    assert not compare("result", new, old, old.astype(np.float64)).ok
    assert not compare("result", new, old, None).ok


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float32, np.float64, np.complex64])
def test_without_float64_half_of_the_digits_count(dtype: object) -> None:
    old = np.ones(10, dtype)  # pyright: ignore[reportArgumentType, reportCallIssue]
    share = tolerance(dtype)
    assert compare("result", (old * (1 + share / 2)).astype(old.dtype), old, None).ok
    assert not compare("result", (old * (1 + 3 * share)).astype(old.dtype), old, None).ok


def test_narrow_results_may_be_rounded_once_more() -> None:
    old = np.ones(4, jnp.bfloat16)
    new = old.copy()
    new[1] = 1 + 2**-7
    assert compare("result", new, old, np.ones(4)).ok
    new[1] = 1 + 2**-6
    assert not compare("result", new, old, np.ones(4)).ok


def test_what_nudged_arguments_change_alike_is_allowed() -> None:
    new = (OLD * (1 + 1e-5)).astype(np.float32)
    assert not compare("result", new, OLD, WIDE, np.full(1000, 1e-7, np.float32)).ok
    sensitive = compare("result", new, OLD, WIDE, np.full(1000, 1e-5, np.float32))
    assert sensitive.ok
    assert sensitive.nudged
    assert sensitive.undecided == 0


def test_elements_that_flip_when_nudged_are_undecided_and_excuse_no_others() -> None:
    new, effect = OLD.copy(), np.zeros(1000, np.float32)
    new[3], effect[3] = new[3] + 1, 1
    found = compare("result", new, OLD, WIDE, effect)
    assert (found.ok, found.undecided) == (True, 1)
    new[4] += 0.01
    found = compare("result", new, OLD, WIDE, effect)
    assert (found.ok, found.undecided) == (False, 1)


def test_effects_of_nudging() -> None:
    old, nudged = (
        np.array([1, np.inf, np.nan, 1, 5], np.float32),
        np.array([1.5, np.inf, np.nan, np.nan, 5], np.float32),
    )
    assert nudge_sensitivity(nudged, old).tolist() == [0.5, 0, 0, np.inf, 0]
    assert nudge_sensitivity(np.array([1, 2]), np.array([1, 3])).tolist() == [0, 1]
    moved = compare("result", nudged, old, None, nudge_sensitivity(nudged, old))
    assert moved.undecided == 2
    assert moved.ok
    assert not compare("result", nudged, old, None, np.zeros(5, np.float32)).ok


def test_nothing_is_right() -> None:
    assert compare("result", OLD[:0], OLD[:0], WIDE[:0]).ok
    assert compare("result", np.zeros((), np.int32), np.zeros((), np.int32), None).ok
    assert not compare("result", OLD[:1], OLD[:2], None).ok
