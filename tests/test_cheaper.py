"""Going back once a program fits, what searches remember, and the limit of the price."""

import math
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import stablehlo_mem as shm
from stablehlo_mem.pass_api.candidate import Goal, Options
from stablehlo_mem.planner import evaluator
from stablehlo_mem.planner.cheaper import cheaper
from stablehlo_mem.planner.pareto_front import ParetoFront
from stablehlo_mem.targets.chips import CHIPS
from tests.support import exported, spec


def state(nbytes, seconds) -> Any:
    return SimpleNamespace(
        peak=SimpleNamespace(temp_bytes=nbytes), seconds=seconds, fingerprint=f"{nbytes} {seconds}", steps=(nbytes,)
    )


def test_a_front_forgets_what_is_dominated_and_improves_a_slow_end():
    front = ParetoFront()
    for nbytes, seconds in ((100, 9.0), (80, 5.0), (90, 6.0), (50, 7.0)):
        front.add(state(nbytes, seconds))
    assert [s.fingerprint for s in front.within(1000)] == ["80 5.0", "50 7.0"]
    assert front.improve(state(75, 9.0), 80).fingerprint == "80 5.0"
    assert front.improve(state(75, 5.1), 80).fingerprint == "80 5.0"
    assert front.improve(state(75, 5.0), 80).fingerprint == "75 5.0", "no faster"
    assert front.improve(state(75, 9.0), 60).fingerprint == "50 7.0", "a search that missed its goal"
    assert front.improve(state(75, 9.0), 40).fingerprint == "75 9.0"


class Searches:
    """Stands for `Evaluator`: the program at a static goal takes `work` / goal seconds and needs `factor` its bytes."""

    options = Options()

    def __init__(self, factor=1.0, compiles=16, max_seconds=math.inf, work=1000):
        self.factor, self.left, self.asked, self.evaluations = factor, compiles, [], []
        self.max_seconds, self.work = max_seconds, work

    def is_slow(self, found):
        return found.seconds > self.max_seconds

    @property
    def may_compile(self):
        return self.left > 0

    def search(self, form, goal):
        self.asked.append(goal.temp_bytes)
        return state(goal.temp_bytes, self.work / goal.temp_bytes), ()

    def measure(self, found, refusals):
        self.left -= 1
        self.evaluations.append(evaluation(found, self.factor))
        return self.evaluations[-1]


def evaluation(found, factor=1.0) -> Any:
    target = SimpleNamespace(chip=CHIPS["cpu"])
    return SimpleNamespace(state=found, peak_bytes=1000 + factor * found.peak.temp_bytes, target=target)


def run(searches, fitting, others, room):
    def fits(one):
        return one.peak_bytes <= 1000 + room

    searches.evaluations = [evaluation(one, searches.factor) for one in (*others, fitting)]
    return cheaper(searches, "quick", searches.evaluations[-1], fits, 1000, room).state


def test_what_fits_with_room_to_spare_becomes_cheaper():
    searches = Searches(factor=0.5)
    best = run(searches, state(100, 10.0), [state(1000, 1.0)], 200)
    assert best.seconds < 3
    assert 0.5 * best.peak.temp_bytes <= 200


def test_the_goal_lies_below_what_missed():
    searches = Searches(factor=2.0)
    best = run(searches, state(50, 20.0), [state(1000, 1.0), state(110, 9.0)], 200)
    assert 50 < best.peak.temp_bytes <= 100
    assert all(goal < 110 for goal in searches.asked)


def test_a_full_room_is_left_alone():
    searches = Searches()
    assert run(searches, state(195, 10.0), [state(1000, 1.0)], 200).seconds == 10.0
    assert not searches.asked


def test_where_nothing_fits_within_the_limit_of_the_price_a_program_within_it_is_compiled():
    searches = Searches(max_seconds=5)
    assert run(searches, state(195, 10.0), [state(1000, 1.0)], 200).seconds == 10.0
    assert any(not searches.is_slow(one.state) for one in searches.evaluations[2:])


def test_nothing_is_compiled_for_what_the_estimates_cannot_tell():
    searches = Searches(work=1850)
    assert run(searches, state(100, 10.0), [state(1000, 9.8)], 200).seconds == 10.0
    assert len(searches.asked) == 1
    assert searches.left == 16


def test_loops_may_be_faster_than_what_does_not_fit():
    searches = Searches(factor=0.5)
    assert run(searches, state(100, 10.0), [state(1000, 9.8)], 200).seconds < 5
    searches = Searches(factor=0.5)
    assert run(searches, state(100, 5.0), [state(1000, 9.8)], 200).seconds == 5.0, "it is faster already"
    assert not searches.asked


def test_the_limit_of_compilations_holds():
    searches = Searches(factor=0.5, compiles=0)
    assert run(searches, state(100, 10.0), [state(1000, 1.0)], 200).seconds == 10.0


def test_a_search_that_ends_beyond_the_limit_is_repeated_without_it(monkeypatch):
    """Steps within the limit may lead further beyond it than a step that is not: the faster end counts."""
    ends = {math.inf: state(90, 5.0), 2.0: state(80, 9.0)}
    monkeypatch.setattr(evaluator, "search", lambda root, goal, *_: (ends[goal.max_seconds], ()))
    one = evaluator.Evaluator.__new__(evaluator.Evaluator)
    monkeypatch.setattr(evaluator.Evaluator, "is_slow", lambda self, found: found.seconds > 2)
    goal = Goal(CHIPS["cpu"], Options(), 100, max_seconds=2.0)
    assert one.search_anew(state(1000, 1.0), goal, frozenset(), ParetoFront())[0] is ends[math.inf]
    ends[math.inf] = state(110, 3.0)
    assert one.search_anew(state(1000, 1.0), goal, frozenset(), ParetoFront())[0] is ends[2.0]


def layers(x, weights):
    def loss(weights):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0].sum()

    return jax.grad(loss)(weights)


def test_a_plan_beyond_the_limit_is_an_error_with_that_plan():
    original = exported(layers, spec(2048, 256), spec(8, 256, 256))
    budget = 16_000_000
    free = shm.plan(original, budget, target="cpu", options=Options(max_slowdown=None))
    assert free.fits
    assert free.slowdown > 1.01
    assert not free.too_slow
    options = Options(max_slowdown=1 + (free.slowdown - 1) / 2)
    with pytest.raises(shm.BudgetError, match="times the estimated time") as caught:
        shm.optimize(original, budget, target="cpu", options=options)
    plan = caught.value.best
    assert plan is not None
    assert not plan.fits
    assert plan.too_slow
    assert plan.after.peak_bytes <= budget
    assert budget < caught.value.reached_bytes <= plan.before.peak_bytes
    assert "TOO SLOW" in str(plan)


def test_a_limit_below_one_is_refused():
    with pytest.raises(shm.InputError, match="max_slowdown is at least 1"):
        shm.plan(exported(jnp.sin, spec(4)), "min", target="cpu", options=Options(max_slowdown=0.5))
