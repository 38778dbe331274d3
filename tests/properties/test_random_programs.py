"""Random programs under random budgets: nothing fails, results are right, budgets are kept.

A minute of them on an idle core; more of them: `make fuzz N=1000`.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.properties.check import Seen, check, draw_trial, trial_of
from tests.properties.generate import draw_program

EXAMPLES = 48
FOUND = {
    1911: "a pad that shifts",
    4226: "what is nothing less itself, multiplied out",
    4528: "a reshape with the rule of another, after a scan in blocks",
    5042: "one value that a branch returns twice, once by chunk",
}
"""What seeds found something once, and what it was."""


def test_random_programs():
    """Nothing is wrong, and a good share is changed."""
    seen = Seen()

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(st.data())
    def try_one(data):
        def draw(low, high):
            return data.draw(st.integers(low, high))

        trial = draw_trial(draw)
        check(draw_program(draw), trial, 0, seen)

    try_one()
    assert seen.counts["programs"] == EXAMPLES
    assert seen.counts["changed"] >= EXAMPLES // 5
    assert seen.counts["equal"] > 0


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once_is_right(seed):
    check(*trial_of(seed), seed, Seen())
