"""Which forms a search for a budget begins from, and in which order."""

from types import SimpleNamespace

import jax.numpy as jnp

import stablehlo_mem as shm
from stablehlo_mem.frontend.canonicalize import canonicalize
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.pass_api.candidate import Goal, Options
from stablehlo_mem.planner.budget_search import BudgetSearch
from stablehlo_mem.planner.evaluator import Evaluator
from stablehlo_mem.targets.target import named_targets
from tests.support import exported, spec


def assigned(x, c):
    """k-means: a sum over the features that loops compute faster before it is unrolled than after."""
    return jnp.argmin(((x[:, None] - c[None]) ** 2).sum(-1), -1)


SPECS = spec(131_072, 32), spec(1_024, 32)


def search_of(program, share):
    """A search for a share of the static temporaries, nothing compiled."""
    (target,) = named_targets(("cpu",))
    evaluator = Evaluator(ingest(program), (target,), Options(), any_peak=False, max_slowdown=2)
    canonicalize(evaluator.canonical)
    state = evaluator.original_state(target.chip)
    fixed = evaluator.program.floor_bytes
    measured = SimpleNamespace(state=state, peak_bytes=fixed + state.peak.temp_bytes, target=target, measured=None)
    return BudgetSearch(evaluator, measured, fixed + int(share * state.peak.temp_bytes))


def seconds_from(search, form):
    goal = Goal(search.original.target.chip, Options(), int(search.first_goal))
    state, _ = search.evaluator.search(form, goal)
    return state.seconds if state.peak.temp_bytes <= goal.temp_bytes else float("inf")


def test_the_form_of_the_fastest_plan_comes_first():
    search = search_of(exported(assigned, *SPECS), 0.1)
    forms = list(search.forms())
    assert {"quick", "written"} <= set(forms)
    seconds = [seconds_from(search, form) for form in forms]
    assert seconds == sorted(seconds)
    assert seconds[0] < seconds_from(search, "quick") < float("inf"), "the quick form is not the best"


def test_a_budget_is_kept_from_the_best_form():
    program = exported(assigned, *SPECS)
    search = search_of(program, 0.1)
    budget = search.fixed_bytes + int(search.room)
    plan = shm.plan(program, budget, target="cpu", options=shm.Options(cache=False))
    assert plan.before.peak_bytes > budget >= plan.after.peak_bytes
    assert plan.cost_after is not None
    assert plan.cost_after.seconds <= min(seconds_from(search, form) for form in search.forms())


def test_a_goal_between_an_earlier_one_and_its_result_is_not_searched_again(monkeypatch):
    searching = search_of(exported(assigned, *SPECS), 0.1)
    evaluator, chip = searching.evaluator, searching.original.target.chip
    goal = Goal(chip, Options(), int(searching.first_goal))
    found, _ = evaluator.search("quick", goal)
    assert found.peak.temp_bytes < goal.temp_bytes
    below = Goal(chip, Options(), found.peak.temp_bytes - 1)
    monkeypatch.setattr(evaluator, "search_anew", None)
    between = Goal(chip, Options(), (found.peak.temp_bytes + goal.temp_bytes) // 2)
    assert evaluator.search("quick", between)[0] is found
    monkeypatch.undo()
    lower, _ = evaluator.search("quick", below)
    assert lower.peak.temp_bytes < found.peak.temp_bytes
