"""Random programs under random budgets: nothing fails, results are right, budgets are kept.

Two minutes of them on an idle core; more of them: `make fuzz N=1000`.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.properties.check import Seen, check, draw_trial
from tests.properties.generate import draw_program
from tests.properties.seeds import trial_of

EXAMPLES = 60
SHARE = 15


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

    trial = draw_trial(draw)
    check(draw_program(draw), trial, 0, Seen())


@pytest.mark.parametrize("first", [0, 100, 200, 300])
def test_a_good_share_is_changed(first):
    """Programs of seeds, so that these are the same whatever hypothesis draws."""
    seen = Seen()
    for seed in range(first, first + SHARE):
        check(*trial_of(seed), seed, seen)
    assert seen.counts["programs"] == SHARE
    assert seen.counts["changed"] >= SHARE // 4
