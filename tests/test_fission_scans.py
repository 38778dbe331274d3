"""fission-scans: what a scan only accumulates gets a loop of its own, which can be split."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import stablehlo_mem as shm
from stablehlo_mem.frontend.canonicalize import canonicalize
from stablehlo_mem.ir.bindings import parse_module
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.pass_api.candidate import Candidate, Refusal
from stablehlo_mem.passes import PASSES
from stablehlo_mem.passes.fission_scans import FissionScans
from tests.support import accumulated, exported, normal, normals, program_of, run, spec
from tests.textual import source_and_expected

N, STEPS = 32, 4
X, V, Y = normals(N, 4), normals(N), normals(N, 2)


def kernel(x):
    return jnp.exp(-0.1 * ((x[:, None] - x[None]) ** 2).sum(-1))


def power_iterations(x, v):
    k = kernel(x)

    def step(v, _):
        w = k @ v
        return w / jnp.linalg.norm(w), None

    u, _ = lax.scan(step, v, None, length=STEPS)
    return u @ (k @ u)


def conjugate_gradients(x, v):
    k = kernel(x) + 0.1 * jnp.eye(x.shape[0])

    def step(carry, _):
        a, r, p, rr = carry
        kp = k @ p
        alpha = rr / (p @ kp)
        a, r = a + alpha * p, r - alpha * kp
        return (a, r, r + (r @ r) / rr * p, r @ r), None

    (a, r, *_), _ = lax.scan(step, (jnp.zeros_like(v), v, v, v @ v), None, length=STEPS)
    return v @ a + r @ r


def label_propagation(x, v):
    w = kernel(x)
    w = w / w.sum(1, keepdims=True)
    f, _ = lax.scan(lambda f, _: (0.9 * (w @ f) + v, None), v, None, length=STEPS)
    return ((f - v) ** 2).sum()


def moments(x, v):
    """Accumulated besides a recurrence, forward, with what each step computes of both."""

    def step(carry, row):
        h, second, largest = carry
        h = jnp.tanh(h * row[0] + v)
        return (h, second + jnp.outer(jnp.sin(h), h), jnp.maximum(largest, h[:, None] - h)), h.sum()

    start = v, jnp.zeros((N, N)), jnp.full((N, N), -jnp.inf)
    return lax.scan(step, start, x[:STEPS])


def fissioned(program):
    """A program's module with all that its scans accumulate in loops of their own, and how many carries these are."""
    module, carries = normal(program), 0
    while found := [one for one in accumulated(entry_graph(module)) if isinstance(one, Candidate)]:
        carries += len(found[0].step.params.carries)
        FissionScans().apply(module, found[0].step.params)
        assert module.operation.verify()
    return module, carries


@pytest.mark.parametrize("fun", [power_iterations, conjugate_gradients])
def test_gradients_have_the_same_bits(fun):
    program = program_of(jax.grad(fun), X, V)
    module, carries = fissioned(program)
    assert carries == 1
    for got, want in zip(run(program, module, X, V), run(program, None, X, V), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_sum_of_matmuls_is_as_near_to_float64():
    """XLA:CPU rounds a sum of matmuls otherwise in a loop with other operations."""
    program = program_of(jax.grad(label_propagation), X, Y)
    module, carries = fissioned(program)
    assert carries == 1
    with jax.enable_x64(True):
        exact = np.asarray(jax.grad(label_propagation)(X.astype(np.float64), Y.astype(np.float64)))
    (got,), (want,) = run(program, module, X, Y), run(program, None, X, Y)
    assert np.abs(got - exact).max() <= 2 * np.abs(want - exact).max()


def test_several_carries_share_a_loop():
    program = program_of(moments, X, V)
    module, carries = fissioned(program)
    assert carries == 2
    assert sum(op.name == "stablehlo.while" for op in entry_graph(module).ops) == 2
    for got, want in zip(run(program, module, X, V), run(program, None, X, V), strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_other_carries_need_stays():
    def fun(x, v):
        def step(carry, row):
            h, seen = carry
            return (jnp.tanh(h + seen @ h), seen + jnp.outer(h, h)), None

        return lax.scan(step, (v, jnp.zeros((N, N))), x[:STEPS])

    assert not accumulated(entry_graph(normal(program_of(fun, X, V))))


def test_a_loop_that_only_accumulates_stays():
    def fun(x, v):
        return lax.scan(lambda s, row: (s + jnp.outer(v, v) * row[0], None), jnp.zeros((N, N)), x)[0]

    assert not accumulated(entry_graph(normal(program_of(fun, X, V))))


def test_stacks_as_large_as_the_sum_are_refused():
    def fun(x, v):
        def step(carry, row):
            h, total = carry
            h = jnp.tanh(h * row[0] + v)
            return (h, total + h), None

        return lax.scan(step, (v, jnp.zeros_like(v)), x)

    module = normal(program_of(fun, X, V))
    found = accumulated(entry_graph(module))
    assert found
    assert all(isinstance(one, Refusal) and one.code == "no-gain" for one in found)


def test_carries_without_elements_are_refused():
    def fun(x, v):
        def step(carry, row):
            h, empty, total = carry
            h = jnp.tanh(h * row[0] + v)
            return (h, empty * 2, total + jnp.outer(h, h) + empty.sum()), None

        return lax.scan(step, (v, jnp.zeros((0, 3)), jnp.zeros((N, N))), x[:STEPS])

    module = normal(program_of(fun, X, V))
    found = accumulated(entry_graph(module))
    assert all(isinstance(one, Refusal) for one in found)
    assert "no-size" in {one.code for one in found}


def test_what_effects_read_stays():
    source, _ = source_and_expected("fission_scans")
    note = "    stablehlo.custom_call @note(%4) {has_side_effect = true} : (tensor<6x6xf32>) -> ()\n"
    before, after = source.split("    %5 =")
    module = parse_module(f"{before}{note}    %5 ={after}")
    canonicalize(module)
    (refusal,) = accumulated(entry_graph(module))
    assert isinstance(refusal, Refusal)
    assert refusal.code == "effects"


@pytest.mark.parametrize("target", ["cpu", "cuda:h200"])
def test_a_plan_goes_below_the_gradient_of_the_matrix(target):
    """Without the pass it stays whole: 16 MiB."""
    program = exported(jax.grad(power_iterations), spec(2048, 4), spec(2048), platform=target.partition(":")[0])
    budget = 10 * 2**20
    without = tuple(one.name for one in PASSES if one.name != "fission-scans")
    plans = [
        shm.plan(program, budget, target=target, options=shm.Options(max_slowdown=None, passes=passes))
        for passes in (None, without)
    ]
    figures = plans[0].figures[0]
    assert figures.after.peak_bytes <= budget < figures.before.peak_bytes
    assert "fission-scans" in [step.pass_name for step in plans[0].steps]
    assert plans[0].fits
    assert not plans[1].fits
