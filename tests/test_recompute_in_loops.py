"""recompute-in-loops: what a loop reads whole in every iteration is made in it, and split there."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stablehlo_mem as shm
from stablehlo_mem.analysis.peak_memory import find_peak
from stablehlo_mem.frontend.program import Program, ingest
from stablehlo_mem.ir.bindings import clone_module, run_passes
from stablehlo_mem.ir.block_cse import block_cse
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Options, Refusal
from stablehlo_mem.passes.recompute_in_loops import RecomputeInLoops
from stablehlo_mem.planner.discrepancy_search import search
from stablehlo_mem.planner.greedy_search import cheapen
from stablehlo_mem.planner.search_state import start_of
from stablehlo_mem.targets.chips import CHIPS
from tests.support import exported, graph_of, normal, normals, program_of, repeated, run, same_bits, spec, text

N, STEPS = 512, 6
X, Y = normals(N, 3), normals(N, 3, seed=1)


def kernel(x: Any, y: Any) -> Any:
    return jnp.exp(-jnp.sum((x[:, None] - y[None]) ** 2, -1))


def power(x: Any, y: Any) -> Any:
    k = kernel(x, y)
    return jax.lax.fori_loop(0, STEPS, lambda _, v: k @ v / jnp.linalg.norm(v), jnp.ones(N))


def sinkhorn(x: Any, y: Any) -> Any:
    k = kernel(x, y)

    def step(_: Any, scalings: Any) -> Any:
        u = 1 / (k @ scalings[1])
        return u, 1 / (k.T @ u)

    return jax.lax.fori_loop(0, STEPS, step, (jnp.ones(N), jnp.ones(N)))


def conjugate_gradients(x: Any, y: Any) -> Any:
    """The matrix is used before the loop, too; the loop ends where it may."""
    k = kernel(x, x) + N * jnp.eye(N)
    return jax.scipy.sparse.linalg.cg(lambda v: k @ v, y[:, 0], maxiter=STEPS, tol=0.0)[0]


def fixed_point(x: Any, y: Any) -> Any:
    """A normalised matrix: its row sums are small, and stay outside."""
    k = kernel(x, y)
    k = k / k.sum(1, keepdims=True)

    def step(state: Any) -> Any:
        v, _, i = state
        new = k @ v
        return new, jnp.abs(new - v).max(), i + 1

    return jax.lax.while_loop(lambda s: (s[1] > 0) & (s[2] < STEPS), step, (y[:, 0], jnp.ones((), y.dtype), 0))[0]


def nested(x: Any, y: Any) -> Any:
    """The inner loop reads it, for the outer one."""
    k = kernel(x, y)

    def inner(_: Any, v: Any) -> Any:
        return jnp.tanh(k @ v)

    return jax.lax.scan(lambda v, _: (jax.lax.fori_loop(0, 2, inner, v), None), jnp.ones(N), None, length=3)[0]


DRAWN = """
func.func public @main(%v: tensor<8xf32>) -> tensor<8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %six = stablehlo.constant dense<6> : tensor<i32>
  %k = stablehlo.custom_call @draw(%v) {has_side_effect = true} : (tensor<8xf32>) -> tensor<8x8xf32>
  %0:3 = stablehlo.while(%i = %zero, %m = %k, %y = %v) : tensor<i32>, tensor<8x8xf32>, tensor<8xf32>
  cond {
    %c = stablehlo.compare LT, %i, %six : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %1 = stablehlo.dot_general %m, %y, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8xf32>
    %2 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %2, %m, %1 : tensor<i32>, tensor<8x8xf32>, tensor<8xf32>
  }
  return %0#2 : tensor<8xf32>
}
"""
UNIFORM = DRAWN.replace(
    "stablehlo.custom_call @draw(%v) {has_side_effect = true} : (tensor<8xf32>)",
    "stablehlo.rng %low, %high, %shape, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<2xi64>)",
).replace(
    "  %k =",
    """  %low = stablehlo.constant dense<0.0> : tensor<f32>
  %high = stablehlo.constant dense<1.0> : tensor<f32>
  %shape = stablehlo.constant dense<8> : tensor<2xi64>
  %k =""",
)
PROGRAMS = {f.__name__: f for f in (power, sinkhorn, conjugate_gradients, fixed_point, nested)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gives_the_same_bits(name: str):
    program = program_of(PROGRAMS[name], X, Y)
    before = normal(program)
    after = clone_module(before)
    RecomputeInLoops().apply(after, repeated(entry_graph(before))[-1].step.params)
    assert after.operation.verify()
    assert all(one.saved_bytes < 4 * N * N for one in repeated(entry_graph(after)))
    results = zip(run(program, after, X, Y), run(program, before, X, Y), strict=True)
    assert all(same_bits(a, b) for a, b in results)


def test_later_passes_leave_the_copies_alone():
    """The matrix is read before the loop too: MLIR's CSE would merge the two."""
    module = normal(program_of(conjugate_gradients, X, Y))
    RecomputeInLoops().apply(module, repeated(entry_graph(module))[-1].step.params)
    count = text(module).count("stablehlo.exponential")
    assert count == 2
    block_cse(module)
    assert text(module).count("stablehlo.exponential") == count
    run_passes(module, "cse")
    assert text(module).count("stablehlo.exponential") == 1


@pytest.mark.parametrize("share", [0.5, 0.1])
@pytest.mark.parametrize("name", PROGRAMS)
def test_iterations_keep_a_budget_below_the_matrix(name: str, share: float):
    f = PROGRAMS[name]
    original = exported(f, X, Y)
    before = shm.profile(original, target="cpu")
    budget = budget_of(before, share)
    assert before.measured.temp_bytes >= 4 * N * N
    options = shm.Options(max_slowdown=None)
    plan = shm.plan(original, budget, target="cpu", options=options)
    assert plan.fits
    assert "recompute-in-loops" in [d.pass_name for d in plan.decisions]
    for a, b in zip(jax.tree.leaves(plan.result.call(X, Y)), reference(f), strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), b, rtol=2e-4, atol=1e-6)


def budget_of(profile: Any, share: float) -> int:
    """Arguments, outputs and a share of the temporaries."""
    measured = profile.measured
    return measured.argument_bytes + measured.output_bytes + round(share * measured.temp_bytes)


def reference(f: Callable[..., Any]) -> list[Any]:
    with jax.enable_x64(True):
        return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(f)(X.astype(np.float64), Y.astype(np.float64)))]


def test_it_is_no_step_where_a_split_is_enough():
    """Rows that do not know of each other are split with their iterations."""

    def rows(x: Any, y: Any) -> Any:
        k = kernel(x, y)
        return jax.lax.fori_loop(0, STEPS, lambda _, m: jnp.tanh(m * k), k)[:, 0]

    original = exported(rows, X, Y)
    before = shm.profile(original, target="cpu")
    plan = shm.plan(original, budget_of(before, 0.25), target="cpu")
    assert plan.fits
    assert [d.pass_name for d in plan.decisions if d.pass_name != "unroll-reductions"] == ["split-into-loops"]


AGAIN = "a loop or a branch reads it, and it cannot be computed there again: "


def test_what_the_condition_reads_stays():
    def until(x: Any, y: Any) -> Any:
        k = kernel(x, y)
        return jax.lax.while_loop(lambda v: (k @ v).max() < 9, lambda v: k @ v + 1, jnp.ones(N))

    assert AGAIN + "a loop's condition reads it" in refused(program_of(until, X, Y))


@pytest.mark.parametrize("drawn", [DRAWN, UNIFORM])
def test_what_is_made_with_effects_stays(drawn: str):
    assert AGAIN + "what makes it has effects" in refused(drawn)


def test_rows_that_a_loop_takes_are_made_in_it():
    """A row a step: nothing is computed twice."""

    def rows(x: Any, y: Any) -> Any:
        return jax.lax.scan(lambda v, row: (v + jnp.tanh(row), row @ v), y[:, 0], jnp.sin(x[:, :1] * y[:, 1]))

    original = exported(rows, X, Y)
    plan = shm.plan(original, budget_of(shm.profile(original, target="cpu"), 0.1), target="cpu")
    assert plan.fits
    assert [d.pass_name for d in plan.decisions] == ["recompute-in-loops", "narrow"]
    assert sum(d.added_flops for d in plan.decisions) <= 4 * N * N


def test_in_branches_and_in_loops_in_loops_it_is_made_in_each_place():
    def branches(x: Any, y: Any) -> Any:
        k = kernel(x, y)

        def step(i: Any, v: Any) -> Any:
            v = jax.lax.fori_loop(0, 2, lambda _, u: jnp.tanh(k @ u), v)
            return jax.lax.cond(i % 2 == 0, lambda: jnp.tanh(k @ v), lambda: jnp.tanh(k.T @ v))

        return jax.lax.fori_loop(0, STEPS, step, jnp.ones(N))

    original = exported(branches, X, Y)
    budget = budget_of(shm.profile(original, target="cpu"), 0.5)
    plan = shm.plan(original, budget, target="cpu", options=shm.Options(max_slowdown=None))
    assert plan.fits
    assert [d.how for d in plan.decisions if d.pass_name == "recompute-in-loops"] == ["1 value in 3 places"]


def refused(program: Program | str) -> set[str]:
    """Why the values of a program that are its largest are not made in its loops."""
    graph = graph_of(program)
    peak = find_peak(graph, CHIPS["cpu"])
    found = list(RecomputeInLoops().propose(graph, peak, Goal(CHIPS["cpu"], Options(), peak.temp_bytes)))
    assert not any(isinstance(one, Candidate) and one.saved_bytes > peak.temp_bytes // 2 for one in found)
    return {one.message for one in found if isinstance(one, Refusal)}


def lstm_gradient(x: Any, wi: Any, wh: Any) -> Any:
    """An LSTM whose inputs are projected before the loop, a matmul for all steps."""

    def loss(wi: Any, wh: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            h, c = carry
            i, f, o, n = jnp.split(row + h @ wh, 4, 1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(n)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        start = jnp.zeros((x.shape[1], wh.shape[0]))
        return jax.lax.scan(step, (start, start), x @ wi)[0][0].sum()

    return jax.grad(loss, (0, 1))(wi, wh)


@pytest.mark.parametrize("share", [0.2, 0.25])
def test_rows_that_a_loop_reads_are_computed_in_it_one_by_one(share: float) -> None:
    """To compute all of them in each step would take too long: the step is judged with the slices moved up.

    A quarter can be kept by a step less, which takes longer.
    """
    args = spec(256, 128, 128), spec(128, 1024), spec(256, 1024)
    chip = CHIPS["cuda:h200"]
    program = ingest(exported(lstm_gradient, *args, platform="cuda"))
    begun = start_of(program, Goal(chip, Options(), 0))
    begun = cheapen(begun, Goal(chip, Options(), 0), any_peak=False)
    goal = Goal(chip, Options(), int(share * begun.peak.temp_bytes), max_seconds=2 * begun.seconds)
    found, _ = search(begun, goal)
    assert begun.peak.temp_bytes > goal.temp_bytes
    assert found.peak.temp_bytes <= goal.temp_bytes
    assert found.seconds < begun.seconds
    names = [step.pass_name for step in found.steps]
    assert {"recompute-in-loops", "narrow"} <= {*names}
