"""Random programs under random budgets: nothing fails, results are right, budgets are kept.

More of them: `python tests/properties/fuzz.py 1000 0`.
"""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.properties.check import Seen, check
from tests.properties.generate import draw_program

EXAMPLES = 12


@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(st.data())
def test_random_programs(data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    check(draw_program(draw, steps=6), draw, 0, Seen())


@pytest.mark.parametrize("first", [0, 100, 200, 300])
def test_a_good_share_is_split(first):
    seen = Seen()
    for number in range(first, first + 8):
        rng = random.Random(number)
        check(draw_program(rng.randint), rng.randint, number, seen)
    assert seen.counts["programs"] == 8
    assert seen.counts["split"] >= 2
