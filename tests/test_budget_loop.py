"""The budget loop: kept or refused, with figures and reasons; nothing compiled in vain."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export

import stablehlo_mem as shm
from stablehlo_mem.targets.measurement import Measured, Refused
from stablehlo_mem.targets.target import Target
from tests.support import UNOPTIMISED, exported, memory_of, spec

N = 512
SPECS = [spec(N, 16)] * 3


def attention(q, k, v):
    return jax.nn.softmax(q @ k.T / 4, axis=-1) @ v


def spectrum(q, k):
    """A transform of all the scores at once: they cannot be split."""
    return jnp.abs(jnp.fft.fft((q @ k.T).reshape(-1)))[:16]


def solution(x, y):
    """A kernel matrix that is solved with is needed whole."""
    return jnp.linalg.solve(jnp.exp(-((x[:, None] - x[None]) ** 2).sum(-1)) + jnp.eye(len(x)), y)


def peak_of(program):
    """Compiled here, not by the library."""
    return sum(memory_of(jax.jit(program.call).lower(*program.in_avals).compile(compiler_options=UNOPTIMISED)))


@pytest.fixture
def compiles(monkeypatch):
    asked = []
    real = Target.measure

    def measure(self, program, module):
        asked.append(self.name)
        return real(self, program, module)

    monkeypatch.setattr(Target, "measure", measure)
    return asked


def test_within_budget_comes_back_itself(compiles):
    original = exported(attention, *SPECS)
    assert shm.optimize(original, "1GiB", target="cpu") is original
    assert len(compiles) == 1
    text = original.mlir_module()
    assert shm.optimize(text, "1GiB", target="cpu") is text


def test_no_limit_comes_back_itself():
    original = exported(attention, *SPECS)
    assert shm.optimize(original, None, target="cpu") is original


def test_no_limit_takes_loops_that_stay_in_the_cache():
    def kernel(x, y, v):
        return jnp.exp(-((x[:, None] - y[None]) ** 2).sum(-1)) @ v

    n = 5000
    original = exported(kernel, spec(n, 3), spec(n, 3), spec(n))
    plan = shm.plan(original, None, target="cpu")
    assert "split-into-loops" in {step.pass_name for step in plan.steps}
    assert plan.after.peak_bytes < plan.before.peak_bytes / 4
    rng = np.random.default_rng(0)
    arguments = [rng.standard_normal(shape).astype(np.float32) for shape in ((n, 3), (n, 3), (n,))]
    np.testing.assert_allclose(plan.result.call(*arguments), original.call(*arguments), rtol=1e-3, atol=1e-3)


def test_no_limit_takes_no_loops_where_only_the_bandwidth_is_known():
    """Of a GPU's caches nothing is known that loops alone would gain from."""
    pytest.importorskip("jax_plugins.xla_cuda12")
    plan = shm.plan(exported(attention, *SPECS, platform="cuda"), None, target="cuda:h200")
    assert "split-into-loops" not in {step.pass_name for step in plan.steps}


def test_where_the_compiler_sees_more_of_a_beginning_than_the_profile_another_is_taken():
    """Doubles are pairs of floats on TPUs, which are not fused as the profile thinks."""
    pytest.importorskip("libtpu")
    n = 2048
    with jax.enable_x64(True):
        shapes = [jax.ShapeDtypeStruct(shape, np.float64) for shape in ((n, 3), (n, 3), (n,))]
        # libtpu takes five times as long for one with an exponential.
        kernel = jax.jit(lambda x, y, v: jnp.maximum(1 - ((x[:, None] - y[None]) ** 2).sum(-1), 0) @ v)
        original = export(kernel, platforms=["tpu"])(*shapes)
    plan = shm.plan(original, "4MB", target="tpu:v5e", options=shm.Options(max_compiles=3))
    assert plan.before.peak_bytes > 10 * plan.budget_bytes
    assert plan.fits
    assert plan.compiles > 2  # the first that was found is not within the budget


def test_where_there_is_nothing_to_split_it_says_so():
    """XLA:CPU holds more for a cumulative sum of an argument than the values of the program."""
    original = exported(lambda x: jax.lax.cumsum(x, axis=0), spec(8192, 16))
    with pytest.raises(
        shm.BudgetError, match=r"test_budget_loop.py:\d+.*no value known at the peak is worth a loop"
    ) as info:
        shm.optimize(original, 1_300_000, target="cpu")
    (refusal,) = info.value.obstacles
    assert refusal.code == "nothing-to-split"


def test_below_the_floor_is_refused_before_any_compiler(compiles):
    floor = 4 * N * 16 * 4
    with pytest.raises(shm.BudgetError, match="below the arguments and outputs") as info:
        shm.optimize(exported(attention, *SPECS), floor - 1, target="cpu")
    assert compiles == []
    assert info.value.budget_bytes == floor - 1
    assert info.value.needed_bytes == info.value.reached_bytes == floor
    assert info.value.best is None


def test_out_of_reach_says_why():
    budget = 3 * N * 16 * 4
    with pytest.raises(shm.BudgetError) as info:
        shm.optimize(exported(spectrum, *SPECS[:2]), budget, target="cpu")
    error = info.value
    assert error.budget_bytes == budget < error.reached_bytes <= error.needed_bytes
    assert error.best is not None
    assert not error.best.fits
    assert error.obstacles
    assert [o.nbytes for o in error.obstacles] == sorted((o.nbytes for o in error.obstacles), reverse=True)
    assert all("test_budget_loop.py" in o.location for o in error.obstacles)
    assert "test_budget_loop.py" in str(error)


def test_a_plan_over_budget_does_not_raise():
    plan = shm.plan(exported(spectrum, *SPECS[:2]), 3 * N * 16 * 4, target="cpu")
    assert not plan.fits
    assert plan.refusals


def test_every_budget_is_kept():
    original = exported(attention, *SPECS)
    most = peak_of(original)
    floor = 4 * N * 16 * 4
    for share in (0.9, 0.6, 0.4, 0.2, 0.1, 0.06):
        budget = floor + int(share * (most - floor))
        plan = shm.plan(original, budget, target="cpu")
        assert plan.fits
        assert plan.after.peak_bytes <= budget
        assert peak_of(plan.result) <= budget


def test_when_the_time_is_up_the_best_so_far_is_compiled_once(compiles):
    original = exported(attention, *SPECS)
    plan = shm.plan(original, "min", target="cpu", options=shm.Options(max_seconds=1e-9))
    assert plan.steps
    assert plan.compiles == len(compiles) == 2
    assert plan.after.peak_bytes < plan.before.peak_bytes
    assert "ended by max_seconds" in str(plan)
    with pytest.raises(shm.InputError, match="max_seconds"):
        shm.plan(original, "min", target="cpu", options=shm.Options(max_seconds=0))


def test_a_hopeless_budget_is_refused_after_one_program(compiles):
    """The profile and the compiler agree that it is missed by far: other first steps are not compiled."""
    with pytest.raises(shm.BudgetError):
        shm.optimize(exported(solution, *SPECS[:2]), 4 * N * 16 * 4, target="cpu")
    assert len(compiles) == 2


def test_the_smallest_is_small_and_stays_within_compiles(compiles):
    original = exported(attention, *SPECS)
    plan = shm.plan(original, "min", target="cpu", options=shm.Options(max_compiles=6))
    assert plan.fits
    assert plan.compiles == len(compiles) <= 6
    assert peak_of(plan.result) < peak_of(original) / 4


def test_the_smallest_of_a_program_whose_temporaries_only_the_compiler_sees():
    """XLA:CPU computes f16 in f32, in buffers of its own."""
    points = spec(61, 9, dtype=np.float16), spec(53, 9, dtype=np.float16)
    original = exported(lambda x, y: ((x[:, None] - y[None]) ** 2).sum(-1), *points)
    plan = shm.plan(original, "min", target="cpu")
    before, after = plan.before.measured, plan.after.measured
    assert isinstance(before, Measured)
    assert isinstance(after, Measured)
    assert plan.before.temp_bytes == 0
    assert after.temp_bytes < before.temp_bytes / 2


def test_the_smallest_where_only_slow_ones_compile(monkeypatch):
    """A compiler that refuses all that is fast enough, a little smaller each time, has not been helped."""
    original = exported(attention, *SPECS)
    memory = shm.plan(original, "min", target="cpu").after.peak_bytes - 1
    real = Target.measure

    def measure(self, program, module):
        measured = real(self, program, module)
        return measured if measured.peak_bytes <= memory else Refused("RESOURCE_EXHAUSTED", measured.peak_bytes)

    monkeypatch.setattr(Target, "measure", measure)
    assert isinstance(shm.plan(original, "min", target="cpu").after.measured, Measured)


def test_the_smallest_of_what_cannot_be_split_is_the_original():
    original = exported(spectrum, *SPECS[:2])
    assert shm.optimize(original, "min", target="cpu") is original


def test_all_targets_must_fit(compiles):
    pytest.importorskip("libtpu")
    original = export(jax.jit(attention), platforms=["cpu", "tpu"])(*SPECS)
    plan = shm.plan(original, "1600KiB", target=("cpu", "tpu:v5e"))
    assert plan.fits
    assert plan.target == ("cpu", "tpu:v5e")
    assert set(compiles) == {"cpu", "tpu:v5e"}
    assert plan.result.platforms == ("cpu", "tpu")


def test_the_same_plan_twice():
    one, other = (shm.plan(exported(attention, *SPECS), "400KiB", target="cpu") for _ in range(2))
    assert one.steps == other.steps
    assert one.bytecode == other.bytecode


def test_exact_numerics_give_the_same_maximum():
    def fun(x, y):
        return (x @ y.T).max(0)

    original = exported(fun, *SPECS[:2])
    plan = shm.plan(original, "200KiB", target="cpu", options=shm.Options(numerics="exact"))
    assert plan.fits
    assert all("exact" in summary for summary in plan.summaries)
    x, y = (np.random.default_rng(i).normal(size=(N, 16)).astype(np.float32) for i in range(2))
    np.testing.assert_allclose(plan.result.call(x, y), original.call(x, y), rtol=1e-6)


@pytest.mark.parametrize(("allowed", "fits"), [(None, True), (2**20, True), (2**20 - 1, False)])
def test_what_a_compiler_takes_of_the_host_for_itself_is_bounded_if_asked(monkeypatch, allowed, fits):
    """No pass keeps anything there unless it is allowed: the rest is the compiler's, which copies arguments."""
    original = exported(attention, *SPECS)
    real, kept = Target.measure, 3 * 4 * N * 16 + 4 * N * 16 + 2 * N * N
    monkeypatch.setattr(
        Target,
        "measure",
        lambda self, program, module: (
            real(self, program, module)
            if module is program.module
            else dataclasses.replace(real(self, program, module), host_temp_bytes=2**20)
        ),
    )
    plan = shm.plan(original, kept, target="cpu", options=shm.Options(host_memory=allowed))
    assert plan.before.peak_bytes > kept
    assert plan.fits == fits
    assert not fits or plan.after.peak_bytes <= kept
