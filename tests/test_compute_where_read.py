"""compute-where-read: what is cheaper to compute than to read is in no memory on a GPU, with the same results."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import stablehlo_mem as shm
from stablehlo_mem.ir.bindings import clone_module, run_passes
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.pass_api.candidate import Goal, Options
from stablehlo_mem.passes.compute_where_read import ComputeWhereRead
from stablehlo_mem.targets.chips import CHIPS
from tests.support import exported, first_for_gpu, in_f64, normal, normals, program_of, run, spec, text, yardstick

N = 3200  # a matrix of N x N does not stay in the L2 cache, and the compiler does not sum it by itself
GPU = CHIPS["cuda:h200"]


def kernel(x, y):
    return jnp.exp(-0.5 * ((x[:, None] - y[None]) ** 2).sum(-1))


def from_both_sides(x, y, v):
    k = kernel(x, y)
    r = k @ v
    return r, jnp.cos(r) @ k


def gradient(x, y, v):
    return jax.grad(lambda *a: jnp.sin(kernel(*a[:2]) @ a[2]).sum(), (0, 1, 2))(x, y, v)


def batched(x, v):
    """The batch dimension is in the middle of the matrix, the vector lies the other way round."""
    k = jnp.tanh(x[:, :, None] * x[:, None])
    return jnp.einsum("ibj,jb->ib", k.transpose(1, 0, 2), v.T)


def narrow(x, y, v):
    return jnp.tanh(x[:, None] * y[None]) @ v


POINTS = normals(N, 3), normals(N, 3, seed=1), normals(N)
CASES = {
    "one sum": (lambda x, y, v: kernel(x, y) @ v, POINTS, 1),
    "vector on the left": (lambda x, y, v: v @ kernel(x, y), POINTS, 1),
    "a row as a matrix": (lambda x, y, v: v[None] @ kernel(x, y), POINTS, 1),
    "from both sides": (from_both_sides, POINTS, 2),
    "gradient": (gradient, POINTS, 2),
    "batched": (batched, (normals(4, N), normals(4, N)), 1),
    "float64": (lambda x, y, v: kernel(x, y) @ v, tuple(a.astype(np.float64) for a in POINTS), 1),
    "bfloat16": (narrow, tuple(normals(N, dtype=ml_dtypes.bfloat16, seed=i) for i in range(3)), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_sums_as_well_as_before(name):
    fun, args, sums = CASES[name]
    with jax.enable_x64(args[0].dtype == np.float64):
        program = program_of(fun, *args)
        module = normal(program)
        step = first_for_gpu(entry_graph(module)).step
        assert len(step.params.sums) == sums
        ComputeWhereRead().apply(module, step.params)
        assert module.operation.verify()
        assert text(module).count("dot_general") == text(normal(program)).count("dot_general") - sums
        before, after = (run(program, m, *args) for m in (None, module))
    for new, old, exact in zip(after, before, in_f64(fun, *args), strict=True):
        assert yardstick(new, old, exact) is None


def test_narrow_floats_are_summed_in_float32():
    fun, args, _ = CASES["bfloat16"]
    module = normal(program_of(fun, *args))
    ComputeWhereRead().apply(module, first_for_gpu(entry_graph(module)).step.params)
    (total,) = [line for line in text(module).splitlines() if "stablehlo.reduce(" in line]
    assert f"-> tensor<{N}xf32>" in total


def test_other_readers_have_copies_behind_barriers():
    """Copies behind equal barriers would be merged: the second has one barrier more than the first."""
    module = normal(program_of(gradient, *POINTS))
    params = first_for_gpu(entry_graph(module)).step.params
    assert len(params.readers) == 3
    ComputeWhereRead().apply(module, params)
    assert text(module).count("stablehlo.optimization_barrier") == (1 + 2) * len(params.sources)
    run_passes(module, "cse")
    assert text(module).count("stablehlo.exponential") == 3


def test_a_gpu_compiler_keeps_three_copies_apart():
    def three_times(x, y, v):
        k = kernel(x, y)
        return k @ jnp.cos(jnp.cos(k @ v) @ k)

    points = 20_000
    program = exported(three_times, spec(points, 8), spec(points, 8), spec(points), platform="cuda")
    made = shm.plan(program, "1%", target="cuda:h200", options=Options(max_compiles=2))
    assert made.before.peak_bytes > 4 * points**2
    assert any("in 3 kernels" in decision.how for decision in made.decisions), made.decisions
    assert made.after.peak_bytes < 4 * points**2 / 50


LEFT_ALONE = {
    "a matmul reads it": (lambda x, y, v: kernel(x, y) @ jnp.stack([v, 2 * v, 3 * v], 1), POINTS),
    "a matmul reads it too": (lambda x, y, v: ((k := kernel(x, y)) @ v, k @ y), POINTS),
    "it is returned": (lambda x, y, v: ((k := kernel(x, y)) @ v, k), POINTS),
    "it is an argument": (lambda k, v: k @ v, (normals(N, N), normals(N))),
    "it takes as much to read": (lambda k, v: jnp.exp(k) @ v, (normals(N, N), normals(N))),
    "it is small": (lambda x, y, v: kernel(x, y) @ v, tuple(a[:200] for a in POINTS)),
    "integers": (lambda x, y: (x[:, None] * y[None]) @ y, (np.arange(N), np.arange(N))),
    "each element is used three times": (
        lambda x, y, v: ((k := jnp.sin(x[:, :1] - y[None, :, 0]))[..., None] * (x[:, None] - y)).sum(1) + k.max(),
        POINTS,
    ),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_leaves_alone(name):
    fun, args = LEFT_ALONE[name]
    graph = entry_graph(normal(program_of(fun, *args)))
    goal = Goal(GPU, Options(), 0)
    assert not [c for c in ComputeWhereRead().cheapen(graph, goal) if c.step.params.sums]


@pytest.mark.parametrize("chip", ["cpu", "tpu:v5e"])
def test_only_where_the_compiler_fuses_into_sums(chip):
    graph = entry_graph(normal(program_of(CASES["one sum"][0], *POINTS)))
    assert not [*ComputeWhereRead().cheapen(graph, Goal(CHIPS[chip], Options(), 0))]


def test_exact_numerics_keep_the_dot():
    graph = entry_graph(normal(program_of(CASES["one sum"][0], *POINTS)))
    assert not [*ComputeWhereRead().cheapen(graph, Goal(GPU, Options(numerics="exact"), 0))]


def test_a_copy_of_the_module_is_not_needed_twice():
    """What is computed where it is read is in no memory, so there is nothing left to do."""
    module = normal(program_of(CASES["one sum"][0], *POINTS))
    ComputeWhereRead().apply(module, first_for_gpu(entry_graph(module)).step.params)
    graph = entry_graph(clone_module(module))
    assert not [*ComputeWhereRead().cheapen(graph, Goal(GPU, Options(), 0))]


def test_nothing_of_all_pairs_is_in_memory_on_a_gpu():
    points = 20_000
    program = exported(
        lambda x, y, v: kernel(x, y) @ v, spec(points, 8), spec(points, 8), spec(points), platform="cuda"
    )
    profile = shm.profile(program, target="cuda:h200")
    assert profile.peak_bytes > 4 * points**2
    made = shm.plan(program, profile.peak_bytes // 10, target="cuda:h200")
    assert made.fits
    assert made.after.peak_bytes < 4 * points**2 / 50
    assert any("again at each place that reads it" in summary for summary in made.summaries)
    assert made.slowdown < 1
