"""Static goals: down along what the compiler was seen to need, and once between where the way led astray."""

import math

import pytest

from stablehlo_mem.planner.goals import Goals, interpolated

NONE = (0.0, 0.0)


def test_one_program_gives_a_ratio():
    assert interpolated((900, 1800), NONE, 1000) == pytest.approx(0.97 * 1000 * 900 / 1800)


def test_two_programs_give_a_line():
    # The compiler needs 400 more than the profile says, whatever the program.
    goal = interpolated((900, 1300), (2000, 2400), 1000)
    assert goal + 400 == pytest.approx(0.97 * 1000)


def test_a_line_is_not_followed_above_the_ratio():
    # The compiler needs 400 less: the line alone would give 1370.
    assert interpolated((1500, 1100), (2000, 1600), 1000) == pytest.approx(0.97 * 1000 * 1500 / 1100)


def test_a_program_that_was_larger_for_a_smaller_goal_is_no_line():
    assert interpolated((900, 1800), (2000, 1700), 1000) == pytest.approx(0.97 * 900 / 1.8)


def test_a_refusal_without_figures_lowers_the_goal_to_a_tenth():
    assert interpolated((900, math.inf), (2000, math.inf), 1000) == pytest.approx(90)


def test_goals_go_down_by_what_was_measured():
    goals = Goals(1000, 1000, (4000, 4000))
    goals.follow(900, 1800, better=True)
    assert goals.goal == pytest.approx(interpolated((900, 1800), (4000, 4000), 1000))
    goals.follow(300, 1200, better=True)
    assert goals.goal == pytest.approx(interpolated((300, 1200), (900, 1800), 1000))


def test_a_smaller_goal_that_fits_by_the_profile_only_is_smaller_still():
    goals = Goals(1000, 1000, NONE)
    goals.follow(900, 500, better=True)
    assert goals.goal == pytest.approx(900 * 0.97)


def test_after_a_worse_attempt_once_between_and_then_below():
    goals = Goals(1000, 1000, NONE)
    goals.follow(900, 1100, better=True)
    goals.follow(400, 2000, better=False)
    assert goals.goal == pytest.approx(600)
    goals.follow(500, 1500, better=False)
    below = 400 / 2 * 0.97
    assert goals.goal == pytest.approx(below)
    goals.follow(150, 3000, better=False)
    assert below < goals.goal < 900


def test_between_there_may_be_nothing_new():
    goals = Goals(1000, 1000, NONE)
    goals.follow(900, 1100, better=True)
    goals.follow(400, 2000, better=False)
    assert goals.drop_midpoint()
    assert goals.goal == pytest.approx(400 / 2 * 0.97)
    assert not goals.drop_midpoint()


def test_where_nothing_was_better_there_is_no_between():
    goals = Goals(1000, 1000, NONE)
    goals.follow(800, 4000, better=False)
    assert goals.goal == pytest.approx(800 / 4 * 0.97)


def test_another_beginning_begins_anew():
    goals = Goals(1000, 1000, NONE)
    goals.follow(900, 1800, better=True)
    goals.restart()
    assert goals.goal == 1000
    assert not goals.drop_midpoint()
