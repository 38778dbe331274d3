"""Training under a budget: steps that learn as the original does, right gradients, budgets kept, donation kept."""

from __future__ import annotations

import importlib
import pathlib
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stablehlo_mem as shm
from stablehlo_mem.analysis.cost_model import graph_seconds
from stablehlo_mem.frontend.canonicalize import canonicalize
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.planner import budget_loop
from stablehlo_mem.targets.chips import CHIPS
from stablehlo_mem.targets.measurement import Measured
from tests.support import UNOPTIMISED, in_f64, memory_of, normals, spec, yardstick

BENCHMARKS = pathlib.Path(__file__).parent.parent / "benchmarks"
if not BENCHMARKS.exists():
    pytest.skip("a source distribution has no benchmarks", allow_module_level=True)
pytest.importorskip("optax")
sys.path.insert(0, str(BENCHMARKS))  # first: this folder has `programs` too
programs: Any = importlib.import_module("training_programs")
sys.path.remove(str(BENCHMARKS))

STEPS = 20


def fixed_and_temporaries(exported: Any) -> tuple[int, int]:
    """Of an original, (arguments + outputs − aliased, temporaries) as compiled."""
    measured = shm.profile(exported, target="cpu").measured
    assert isinstance(measured, Measured)
    return measured.argument_bytes + measured.output_bytes - measured.alias_bytes, measured.temp_bytes


def at_share(program: Any, share: float) -> shm.Plan:
    """The plan for a share of the original's temporaries: it fits, and is not the original."""
    exported = program.export("cpu")
    fixed, temporaries = fixed_and_temporaries(exported)
    budget = fixed + int(share * temporaries)
    plan = shm.plan(exported, budget, target="cpu", options=shm.Options(max_slowdown=None))
    assert plan.fits
    assert plan.before.peak_bytes > budget >= plan.after.peak_bytes
    assert plan.result is not exported
    assert plan.steps
    return plan


def compiled(call: Any, program: Any) -> Any:
    lowered = jax.jit(call, donate_argnums=program.donated).lower(*program.specs)
    return lowered.compile(compiler_options=UNOPTIMISED)


def drawn(program: Any, labels: int) -> tuple[np.ndarray, ...]:
    """Arguments of a program of leaves: normal numbers, labels below a number."""
    return tuple(
        normals(*s.shape, seed=i)
        if s.dtype == np.float32
        else np.arange(s.size, dtype=s.dtype).reshape(s.shape) % labels
        for i, s in enumerate(program.specs)
    )


def losses(step: Any, program: Any) -> list[float]:
    """Of steps on the same few batches, in turn."""
    parameters, state, *batch = program.specs

    def draw(path: Any, s: Any) -> Any:
        name = jax.tree_util.keystr(path)
        number = abs(hash_of(name))
        return jnp.ones(s.shape) if "scale" in name else jnp.asarray(0.1 * normals(*s.shape, seed=number))

    parameters = jax.tree_util.tree_map_with_path(draw, parameters)
    state = programs.OPTIMISER.init(parameters)
    rng = np.random.default_rng(0)
    batches = [[jnp.asarray(rng.integers(0, _SHAPE["vocabulary"], s.shape, np.int32)) for s in batch] for _ in range(3)]
    found: list[float] = []
    for i in range(STEPS):
        parameters, state, value = step(parameters, state, *batches[i % len(batches)])
        found.append(float(value))
    return found


def hash_of(name: str) -> int:
    """A number for a name, the same in every process."""
    return sum(i * ord(letter) for i, letter in enumerate(name, 1))


_SHAPE = {"width": 32, "heads": 4, "vocabulary": 120}
GPT2 = {**_SHAPE, "batch": 8, "tokens": 64, "layers": 2}


def test_the_optimised_step_learns_as_the_original_and_keeps_its_donation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """A train step, its state donated, and its plan for a share of its temporaries, which jit and export replay."""
    monkeypatch.setenv("STABLEHLO_MEM_CACHE", str(tmp_path))
    program = programs.program("gpt2", GPT2)
    plan = at_share(program, 0.15)
    check_batch_is_split(plan, GPT2["batch"])
    executables = [compiled(f, program) for f in (program.function, plan.result.call)]
    check_donation(program, plan, *executables)
    original, optimised = (losses(executable, program) for executable in executables)
    assert original[18] < original[0]  # of the same batch
    np.testing.assert_allclose(optimised, original, rtol=1e-5)


def check_batch_is_split(plan: shm.Plan, batch: int) -> None:
    """Along their tokens, which many large values have, no layer goes without the one before: many loops for one."""
    first = next(step for step in plan.steps if step.pass_name == "split-into-loops")
    assert (first.params.elements, first.params.loops) == (batch, 1)


def check_donation(program: Any, plan: shm.Plan, original: Any, optimised: Any) -> None:
    """Through optimize, jit and export: every leaf of parameters and state is aliased, as in the original."""
    wanted = original.memory_analysis().alias_size_in_bytes
    leaves = jax.tree.leaves(program.specs[:2])
    assert wanted == sum(s.size * s.dtype.itemsize for s in leaves)
    unlimited = shm.Options(max_slowdown=None)
    options: dict[str, Any] = {"budget": plan.budget_bytes, "target": "cpu", "options": unlimited}
    exported = shm.export(program.jitted, **options)(*program.specs)
    marks = [exported.mlir_module().count(mark) for mark in ("tf.aliasing_output", "jax.buffer_donor")]
    assert sum(marks) == len(leaves)
    jitted = shm.jit(program.function, donate_argnums=program.donated, **options).lower(*program.specs)
    for executable in (optimised, jitted.compile(compiler_options=UNOPTIMISED)):
        assert executable.memory_analysis().alias_size_in_bytes == wanted
        assert sum(memory_of(executable)) <= plan.budget_bytes
        aliases = executable.as_text().partition("input_output_alias={")[2].partition("entry_computation_layout")[0]
        assert aliases.count("-alias)") == len(leaves)


GRADIENTS = {
    "attention": {"heads": 2, "tokens": 96, "width": 8},
    "head": {"tokens": 64, "width": 16, "vocabulary": 160},
    "mlp": {"tokens": 128, "width": 16, "hidden": 64},
    "contrastive": {"pairs": 48, "width": 16},
    "neural_ode": {"batch": 32, "steps": 8, "state": 4, "hidden": 16},
    "recurrent": {"batch": 32, "steps": 8, "inputs": 4, "hidden": 16},
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_by_the_yardstick(name: str) -> None:
    program = programs.program(name, GRADIENTS[name]).flat
    plan = at_share(program, 0.25)
    arguments = drawn(program, GRADIENTS[name].get("vocabulary", 1))
    new, old = (jax.tree.leaves(compiled(f, program)(*arguments)) for f in (plan.result.call, program.function))
    results = zip(new, old, in_f64(program.function, *arguments), strict=True)
    assert [wrong for wrong in (yardstick(*map(np.asarray, three)) for three in results) if wrong] == []


MODERATE = {
    "attention": {"heads": 2, "tokens": 1024, "width": 32},
    "head": {"tokens": 1024, "width": 64, "vocabulary": 8192},
}


@pytest.mark.parametrize("name", MODERATE)
def test_more_memory_is_never_slower(name: str) -> None:
    """From all of the temporaries to the least: budgets kept, and the time, as estimated, falls as they grow.

    What fits as it is comes back as it is, also where loops would be faster: it is left out of the comparison.
    """
    exported = programs.program(name, MODERATE[name]).export("cpu")
    fixed, temporaries = fixed_and_temporaries(exported)
    least = shm.plan(exported, "min", target="cpu")
    span = fixed + temporaries - least.after.peak_bytes
    assert span > 0.9 * temporaries
    budgets = [least.after.peak_bytes + int(span * share) for share in (1, 0.75, 0.5, 0.25, 0.1, 0)]
    options = shm.Options(max_slowdown=None)
    plans = [shm.plan(exported, budget, target="cpu", options=options) for budget in budgets]
    calls = (jax.jit(plan.result.call).lower(*exported.in_avals) for plan in plans)
    peaks = [sum(memory_of(call.compile(compiler_options=UNOPTIMISED))) for call in calls]
    assert all(plan.fits for plan in plans)
    assert [(p, b) for p, b in zip(peaks, budgets, strict=True) if p > b] == []
    assert plans[0].result is exported
    seconds = [estimate(plan) for plan in plans if plan.result is not exported]
    assert len(seconds) >= 5
    assert seconds == sorted(seconds)


def estimate(plan: shm.Plan) -> float:
    """Seconds on the CPU, by the cost model."""
    module = plan.module
    canonicalize(module)
    return graph_seconds(entry_graph(module), CHIPS["cpu"])


def attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T / 4, axis=-1) @ v


def test_the_gradient_of_a_budgeted_function_is_compiled_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward each, and so both in one program, less what is handed from one to the other."""
    plans: list[shm.Plan] = []
    real = budget_loop.keep_budget
    monkeypatch.setattr(budget_loop, "keep_budget", lambda *given: plans.append(real(*given)) or plans[-1])
    specs = [spec(1024, 16)] * 3
    budget = 2 * 2**20  # the scores alone are 4 MiB

    def gradient(fun: Any) -> Any:
        return jax.jit(jax.value_and_grad(lambda *a: jnp.tanh(fun(*a)).sum(), (0, 1, 2)))

    original, budgeted = (
        sum(memory_of(gradient(fun).lower(*specs).compile(compiler_options=UNOPTIMISED)))
        for fun in (attention, shm.jit(attention, budget=budget, target="cpu"))
    )
    handed = 2 * 1024 * 16 * 4  # the forward's output and its cotangent
    assert original > 8 * 2**20
    assert budgeted <= budget + handed
    programs = [ingest(plan.result) for plan in plans]  # a function does not keep its module alive
    assert sorted(len(program.main.type.inputs) for program in programs) == [3, 4]
    for plan in plans:
        assert plan.fits
        assert plan.before.peak_bytes > budget >= plan.after.peak_bytes
