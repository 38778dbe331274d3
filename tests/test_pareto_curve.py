"""Explained before it is bought: which budgets are reachable at what cost, and what could be done at the peak."""

from __future__ import annotations

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stablehlo_mem as shm
from stablehlo_mem.passes import PASSES
from stablehlo_mem.rewriting.attention_pass import AttentionPass
from stablehlo_mem.targets.measurement import Refused
from stablehlo_mem.targets.target import Target
from tests.support import exported, spec

MIB = 2**20
SPECS = (spec(2, 1024, 32),) * 3


def attention(q, k, v):
    return jax.nn.softmax(jnp.einsum("hqd,hkd->hqk", q, k), -1) @ v


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a compiler was asked")

    monkeypatch.setattr(Target, "measure", refuse)


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("target", ["cpu", "cuda:h200", "tpu:v5e"])
def test_less_memory_takes_more_time_and_no_compiler(target: str) -> None:
    loops = tuple(one.name for one in PASSES if not isinstance(one, AttentionPass))
    points = shm.curve(attention, *SPECS, target=target, options=shm.Options(passes=loops))
    assert len(points) >= 3
    for larger, smaller in itertools.pairwise(points):
        assert smaller.peak_bytes < larger.peak_bytes
        assert smaller.seconds > larger.seconds
    assert points[-1].peak_bytes < min(2 * MIB, points[0].peak_bytes / 2)
    assert points[-1].decisions
    assert all(point.slowdown > 0 for point in points)


@pytest.mark.usefixtures("no_compiler")
def test_a_kernel_of_the_chip_leaves_nothing_to_choose() -> None:
    """It takes the least memory and the least time; where another platform must run the program there is none."""
    specs = (spec(2, 1024, 128),) * 3  # heads of 128 fill the lanes: narrower ones are padded
    (point,) = shm.curve(attention, *specs, target="tpu:v5e")
    assert [decision.pass_name for decision in point.decisions] == ["pallas-attention"]
    both = jax.export.export(jax.jit(attention), platforms=["cpu", "tpu"])(*specs)
    options = shm.Options(passes=("pallas-attention", "split-into-loops"))
    points = shm.curve(both, target=("tpu:v5e", "cpu"), options=options)
    assert len(points) >= 3
    assert {decision.pass_name for point in points for decision in point.decisions} == {"split-into-loops"}


def test_what_the_curve_promises_can_be_bought() -> None:
    program = exported(attention, *SPECS)
    original = shm.profile(program, target="cpu").peak_bytes
    points = [point for point in shm.curve(program, target="cpu") if point.decisions]
    assert points
    for point in points[:3]:
        plan = shm.plan(program, int(1.1 * point.peak_bytes), target="cpu")
        assert original > 1.1 * point.peak_bytes
        assert plan.fits


def test_profiles_and_plans_know_their_curve() -> None:
    program = exported(attention, *SPECS)
    points = shm.curve(program, target="cpu")
    assert shm.profile(program, target="cpu").curve() == points
    plan = shm.plan(program, 4 * MIB, target="cpu")
    assert plan.steps
    assert plan.curve() == points
    with pytest.raises(shm.InputError, match="does not know its program"):
        plan.after.curve()


def test_a_module_that_is_changed_later_keeps_its_curve() -> None:
    module = jax.jit(attention).lower(*SPECS).compiler_ir("stablehlo")
    profile = shm.profile(module, target="cpu")
    points = profile.curve()
    module.body.operations[0].erase()
    assert profile.curve() == points


def test_options_are_kept() -> None:
    def regrouped(x, v):
        return jnp.exp(x[:, None] * x) @ v

    options = shm.Options(numerics="exact")
    points = shm.curve(regrouped, spec(2048), spec(2048), target="cpu", options=options)
    assert any(point.decisions for point in points)
    assert all(decision.numerics == "exact" for point in points for decision in point.decisions)
    with pytest.raises(shm.InputError, match="no pass named"):
        shm.curve(regrouped, spec(2048), spec(2048), target="cpu", options=shm.Options(passes=("magic",)))


def test_a_program_that_cannot_be_made_smaller_is_one_point() -> None:
    (point,) = shm.curve(lambda x: x * 2, spec(1024), target="cpu")
    assert isinstance(point, shm.CurvePoint)
    assert point.decisions == ()
    assert point.slowdown == 1


@pytest.mark.usefixtures("no_compiler")
def test_explain_offers_steps_with_their_worth() -> None:
    made = shm.explain(attention, *SPECS, target="cpu")
    assert made.target == "cpu"
    assert made.goal_bytes == made.profile.temp_bytes // 4
    assert made.offers
    assert {offer.step.pass_name for offer in made.offers} == {"split-into-loops"}
    assert all(offer.saved_bytes > 0 for offer in made.offers)
    summaries = {offer.summary for offer in made.offers}
    assert "split dot_general f32[2,1024,1024] along dimension 1 (dimension 1 of its left operand)" in summaries
    assert "split dot_general f32[2,1024,1024] along dimension 0 (a batch dimension)" in summaries
    assert "Steps offered at this peak" in str(made)
    assert "test_pareto_curve.py" in str(made)


@pytest.mark.usefixtures("no_compiler")
def test_explain_says_what_is_refused_and_why() -> None:
    def ordered(x):
        return jnp.sort(jnp.sort(jnp.exp(x[:, None] * x), 1), 0).sum(1)

    made = shm.explain(ordered, spec(512), target="cpu")
    reasons = {refusal.code for refusal in made.refusals}
    assert "needs-whole-dimension" in reasons
    assert "stablehlo.sort stands in the way: elements are ordered along it" in {r.message for r in made.refusals}
    assert "Not made smaller" in str(made)


def test_explain_aims_at_a_budget() -> None:
    fixed = 4 * 2 * 1024 * 32 * 4
    made = shm.explain(attention, *SPECS, target="cpu", budget=fixed + MIB)
    assert made.goal_bytes == MIB
    assert shm.explain(attention, *SPECS, target="cpu", budget="min").goal_bytes == 0


def test_explain_names_what_saves_time() -> None:
    def chain(a, b, v):
        return a @ b @ v

    made = shm.explain(chain, spec(1024, 256), spec(256, 1024), spec(1024), target="cpu")
    assert "matmul-chain" in {offer.step.pass_name for offer in made.quicker}


def test_explanations_are_data_and_pages(tmp_path) -> None:
    made = shm.explain(attention, *SPECS, target="cpu")
    assert isinstance(made, shm.Explanation)
    data = json.loads(made.to_json())
    assert data["profile"]["peak_bytes"] == made.profile.peak_bytes
    assert len(data["offers"]) == len(made.offers)
    assert "origin" not in data["profile"]
    made.to_html(tmp_path / "page.html")
    assert "Steps offered at this peak" in (tmp_path / "page.html").read_text()
    assert "Steps offered at this peak" in made._repr_html_()


def test_decisions_say_what_was_done_and_what_it_is_worth() -> None:
    plan = shm.plan(exported(attention, *SPECS), 4 * MIB, target="cpu")
    assert len(plan.decisions) == len(plan.steps) == len(plan.summaries) > 0
    assert plan.before.peak_bytes > 4 * MIB
    first = plan.decisions[0]
    assert first.pass_name == plan.steps[0].pass_name
    assert first.summary == plan.summaries[0]
    assert sum(decision.saved_bytes for decision in plan.decisions) > 4 * MIB
    assert "test_pareto_curve.py" in first.location
    assert plan.cost_before is not None
    assert plan.cost_after is not None
    added = sum(decision.added_seconds for decision in plan.decisions)
    assert plan.cost_after.seconds - plan.cost_before.seconds == pytest.approx(added)
    assert plan.cost_before.flops == pytest.approx(2 * 2 * 2 * 1024 * 1024 * 32, rel=0.3)


def test_each_target_has_its_figures() -> None:
    program = jax.export.export(jax.jit(attention), platforms=["cpu", "tpu"])(*SPECS)
    plan = shm.plan(program, 4 * MIB, target=("cpu", "tpu:v5e"))
    assert [figures.target for figures in plan.figures] == ["cpu", "tpu:v5e"]
    worst = max(figures.before.peak_bytes for figures in plan.figures if not isinstance(figures.before, Refused))
    assert plan.before.peak_bytes == worst
    assert "Measured by each target's compiler" in str(plan)
    data = json.loads(plan.to_json())
    assert len(data["figures"]) == 2


def test_a_plan_in_json_holds_its_histories() -> None:
    plan = shm.plan(exported(attention, *SPECS), 4 * MIB, target="cpu")
    data = json.loads(plan.to_json())
    assert max(data["before"]["history"]["temp_bytes"]) == plan.before.temp_bytes
    assert data["decisions"][0]["what"] == plan.decisions[0].what
    assert np.isfinite(data["cost_after"]["seconds"])
