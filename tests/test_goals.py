"""Static goals: down by what the compiler was seen to need more, and once between where the way led astray."""

import pytest

from stablehlo_mem.planner.goals import SHRINK, Goals


def test_goals_go_down_by_what_was_measured():
    goals = Goals(1000, 1000)
    goals.follow(900, 1800, better=True)
    assert goals.goal == pytest.approx(900 / 1.8 * SHRINK)
    goals.follow(300, 1200, better=True)
    assert goals.goal == pytest.approx(300 / 1.2 * SHRINK)


def test_a_smaller_goal_that_fits_by_the_profile_only_is_smaller_still():
    goals = Goals(1000, 1000)
    goals.follow(900, 500, better=True)
    assert goals.goal == 900 * SHRINK


def test_after_a_worse_attempt_once_between_and_then_below():
    goals = Goals(1000, 1000)
    goals.follow(900, 1100, better=True)
    goals.follow(400, 2000, better=False)
    assert goals.goal == pytest.approx(600)
    goals.follow(500, 1500, better=False)
    below = 400 / 2 * SHRINK
    assert goals.goal == pytest.approx(below)
    goals.follow(150, 3000, better=False)
    assert below < goals.goal < 900


def test_between_there_may_be_nothing_new():
    goals = Goals(1000, 1000)
    goals.follow(900, 1100, better=True)
    goals.follow(400, 2000, better=False)
    assert goals.drop_midpoint()
    assert goals.goal == pytest.approx(400 / 2 * SHRINK)
    assert not goals.drop_midpoint()


def test_where_nothing_was_better_there_is_no_between():
    goals = Goals(1000, 1000)
    goals.follow(800, 4000, better=False)
    assert goals.goal == pytest.approx(800 / 4 * SHRINK)


def test_another_beginning_begins_anew():
    goals = Goals(1000, 1000)
    goals.follow(900, 1800, better=True)
    goals.restart()
    assert goals.goal == 1000
    assert not goals.drop_midpoint()
