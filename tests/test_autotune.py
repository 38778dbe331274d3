"""tune=True: plans are timed on the device, the fastest is taken; never one that does not fit."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stablehlo_mem as shm
from stablehlo_mem.planner import autotune
from tests.support import exported, in_f64, normals, spec, yardstick

TUNED = shm.Options(tune=True, cache=False)
SPECS = spec(256, 32), spec(32, 2048), spec(256, dtype=np.int32)


def head(x, w, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(x @ w), y[:, None], 1).mean()


GRADIENT = jax.value_and_grad(head, (0, 1))


def budget_of(program, share):
    before = shm.profile(program, target="cpu")
    assert before.measured is not None
    fixed = sum(a.size * a.dtype.itemsize for a in (*program.in_avals, *program.out_avals))
    return fixed + int(share * (before.peak_bytes - fixed))


@functools.cache
def gradient():
    """The program, a budget for a fifth of its temporaries, and the plan for it that is not timed."""
    program = exported(GRADIENT, *SPECS)
    budget = budget_of(program, 0.2)
    return program, budget, shm.plan(program, budget, target="cpu", options=shm.Options(cache=False))


@pytest.fixture
def by_estimate(monkeypatch):
    """What was timed: the plan that is thought to be the slowest is the fastest here."""
    timed = []

    def times(program, modules, platform, device):
        timed.append(len(modules))
        return [1.0 - 0.1 * i for i in range(len(modules))]

    monkeypatch.setattr(autotune, "times", times)
    return timed


def test_takes_the_fastest_that_fits(by_estimate):
    program, budget, plain = gradient()
    plan = shm.plan(program, budget, target="cpu", options=TUNED)
    assert plan.before.peak_bytes > budget >= plan.after.peak_bytes
    assert plan.fits
    assert plan.steps != plain.steps
    assert by_estimate == [len(plan.timings)]
    assert len(plan.timings) > 2
    assert [t.is_taken for t in plan.timings] == [True] + [False] * (len(plan.timings) - 1)
    assert [t.measured for t in plan.timings] == sorted(t.measured for t in plan.timings)
    assert plan.timings[-1].what == "; ".join(d.how for d in plain.decisions)
    assert f"taken: {plan.timings[0].what}"[:60] in str(plan)


def test_keeps_the_one_it_would_take_where_nothing_is_clearly_faster(monkeypatch):
    monkeypatch.setattr(autotune, "times", lambda p, modules, *_: [1.0, *[0.98] * (len(modules) - 1)])
    program, budget, plain = gradient()
    plan = shm.plan(program, budget, target="cpu", options=TUNED)
    assert plan.steps == plain.steps
    assert [t.is_taken for t in plan.timings].count(True) == 1


def test_runs_on_the_device():
    """The median of real executions; the result is that of the original."""
    program, budget, _ = gradient()
    plan = shm.plan(program, budget, target="cpu", options=TUNED)
    assert plan.fits
    assert all(t.measured > 0 for t in plan.timings)
    args = normals(256, 32), normals(32, 2048, seed=1), np.arange(256, dtype=np.int32)
    new, old = ([np.asarray(r) for r in jax.tree.leaves(f(*args))] for f in (plan.result.call, jax.jit(GRADIENT)))
    three = zip(new, old, in_f64(GRADIENT, *args), strict=True)
    assert [wrong for one in three if (wrong := yardstick(*one))] == []


def test_donated_arguments_and_unused_ones():
    def step(w, unused, x):
        return w - jax.grad(lambda w: jnp.tanh(x @ w).sum())(w), unused.sum()

    specs = spec(64, 64), spec(8), spec(512, 64)
    program = jax.export.export(jax.jit(step, donate_argnums=0))(*specs)
    plan = shm.plan(program, "200KiB", target="cpu", options=TUNED)
    assert plan.before.peak_bytes > 200 * 1024
    assert plan.timings


def test_without_a_budget_the_program_as_it_is_is_timed_too(monkeypatch):
    monkeypatch.setattr(autotune, "times", lambda p, modules, *_: [1.0] * (len(modules) - 1) + [0.5])
    program = exported(lambda a, b, v: a @ b @ v, spec(512, 512), spec(512, 512), spec(512))
    plan = shm.plan(program, None, target="cpu", options=TUNED)
    assert plan.timings[0].what == "as it is"
    assert plan.result is program
    assert not plan.steps


def test_a_plan_that_does_not_run_is_not_taken(monkeypatch):
    monkeypatch.setattr(autotune, "times", lambda p, modules, *_: [None, 2.0, *[None] * (len(modules) - 2)])
    program, budget, _ = gradient()
    plan = shm.plan(program, budget, target="cpu", options=TUNED)
    assert [(t.measured, t.is_taken) for t in plan.timings] == [(2.0, True)]


def test_never_more_compiles_than_allowed():
    program, budget, _ = gradient()
    options = dataclasses.replace(TUNED, max_compiles=3)
    plan = shm.plan(program, budget, target="cpu", options=options)
    assert plan.compiles == 3
    assert len(plan.timings) == 2


def test_the_smallest_and_what_fits_anyway_are_not_timed():
    program = exported(GRADIENT, *SPECS)
    assert shm.plan(program, "1GiB", target="cpu", options=TUNED).timings == ()
    assert shm.plan(program, "min", target="cpu", options=TUNED).timings == ()


def test_a_tuned_plan_is_kept_with_its_timings(tmp_path, monkeypatch):
    monkeypatch.setenv("STABLEHLO_MEM_CACHE", str(tmp_path))
    program, budget, _ = gradient()
    first, second = (shm.plan(program, budget, target="cpu", options=shm.Options(tune=True)) for _ in range(2))
    assert second.compiles == 0
    assert second.timings == first.timings
    assert second.decisions == first.decisions


@pytest.mark.parametrize("target", ["tpu:v5e", ("cpu", "tpu:v5e")])
def test_only_what_is_here_can_be_timed(target):
    pytest.importorskip("libtpu")
    program = jax.export.export(jax.jit(GRADIENT), platforms=["cpu", "tpu"] if len(target) == 2 else ["tpu"])(*SPECS)
    with pytest.raises(shm.InputError, match="on this machine's device"):
        shm.plan(program, "1MiB", target=target, options=TUNED)


def test_keys_cannot_be_drawn():
    key = jax.eval_shape(lambda: jax.random.key(0))
    program = exported(lambda k, x: (x @ x.T + jax.random.normal(k, (512, 512))).sum(), key, spec(512, 8))
    with pytest.raises(shm.InputError, match="key_data"):
        shm.plan(program, "64KiB", target="cpu", options=TUNED)
