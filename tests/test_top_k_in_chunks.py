"""A top-k over an axis that is split: the same elements at the same indices, bit by bit, never all scores at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stablehlo_mem as shm
from stablehlo_mem.frontend.canonicalize import remove_rules
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.sharding_rules import rule_book
from stablehlo_mem.splitting.split_step import Split, split
from stablehlo_mem.targets.measurement import Measured
from tests.support import exported, graph_of, normal, normals, program_of, run, same_bits, spec, text
from tests.test_targets import needs

FLOATS = ["float32", "float16", "bfloat16"]
INTEGERS = ["int8", "uint8", "int32", "uint32"]
NAN_OF_ALL_ONES = np.array([0xFFFFFFFF], np.uint32).view(np.float32)
"""The least float32 of all in the total order."""


def few_numbers(rng, shape, dtype):
    """Numbers of which most occur several times: zeros, infinities and NaNs of both signs, the least and largest."""
    dtype = jnp.dtype(dtype)
    if jnp.issubdtype(dtype, jnp.integer):
        limits = jnp.iinfo(dtype)
        return rng.choice(np.array([limits.min, limits.max, 0, 1], dtype), shape)
    numbers = np.array([np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1, 2, -1], np.float32)
    numbers = np.concatenate([numbers, NAN_OF_ALL_ONES])
    return rng.choice(numbers[rng.permutation(10)[: rng.integers(1, 11)]], shape).astype(dtype)


def in_chunks(program, size):
    """The program with its negated argument split along its last dimension."""
    module = normal(program)
    value = next(op.results[0] for op in entry_graph(module).ops if op.name == "stablehlo.negate")
    dimension = len(program.original.in_avals[0].shape) - 1
    split(module, Split(path=(), value=value, dimension=dimension, big_bytes=1, chunk=size))
    remove_rules(module)
    assert module.operation.verify()
    assert text(module).count("stablehlo.while") == 1
    return module


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from(FLOATS + INTEGERS),
    lead=st.sampled_from([(), (1,), (2, 3)]),
    n=st.integers(2, 16),
    data=st.data(),
)
def test_ties_and_nans_stay_in_order(seed, dtype, lead, n, data):
    """Also where k is larger than a chunk, the last chunk is ragged, and all elements are the least of their type."""
    k, chunk = data.draw(st.integers(1, n)), data.draw(st.integers(1, n - 1))
    x = few_numbers(np.random.default_rng(seed), (*lead, n), dtype)
    program = program_of(lambda x: jax.lax.top_k(-x, k), x)
    new, old = run(program, in_chunks(program, chunk), x), run(program, None, x)
    assert all(map(same_bits, new, old))


def test_each_element_of_a_merged_axis_counts_once():
    """The axis has 6 elements of 4 indices each, three of them a step."""

    def largest(x):
        return jax.lax.top_k((-x).reshape(24), 5)

    x = np.random.default_rng(0).integers(0, 5, (6, 4)).astype(np.float32)
    program = program_of(largest, x)
    module = normal(program)
    value = next(op.results[0] for op in entry_graph(module).ops if op.name == "stablehlo.negate")
    split(module, Split(path=(), value=value, dimension=0, big_bytes=1, chunk=3))
    assert "24xf32" not in text(module)
    assert all(map(same_bits, run(program, module, x), run(program, None, x)))


def nearest(queries, points):
    distances = (queries**2).sum(1)[:, None] - 2 * queries @ points.T + (points**2).sum(1)
    return jax.lax.top_k(-distances, 10)


def nearest_by_sorting(queries, points):
    distances = (queries**2).sum(1)[:, None] - 2 * queries @ points.T + (points**2).sum(1)
    return jnp.argsort(distances, axis=1)[:, :20]


@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda:h200", marks=needs["cuda"])])
@pytest.mark.parametrize("search", [nearest, nearest_by_sorting])
def test_few_queries_find_their_neighbours_within_the_budget(search, target):
    """The distances of one query are twice what the budget has room for."""
    queries, points, size = 16, 80_000_000, 4
    program = exported(search, spec(queries, size), spec(points, size), platform=target.partition(":")[0])
    budget = 4 * (points * size + points // 2)
    plan = shm.plan(program, budget, target=target)
    assert plan.fits
    assert isinstance(plan.before.measured, Measured)
    assert plan.before.peak_bytes > budget + 4 * queries * points // 2
    (split_over_points,) = (step for step in plan.steps if isinstance(step.params, Split))
    assert split_over_points.params.elements == points  # none over the queries


def test_neighbours_of_a_plan_are_the_same():
    queries, points = normals(3, 8), normals(20_000, 8, seed=1)
    program = exported(nearest, spec(3, 8), spec(20_000, 8))
    plan = shm.plan(program, "5%", target="cpu")
    assert "while" in plan.exported.mlir_module()
    (values, indices), (expected, at) = plan.result.call(queries, points), nearest(queries, points)
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    np.testing.assert_array_equal(indices, at)


@pytest.mark.parametrize("chunk", [1, 2, 3, 4])
@pytest.mark.parametrize("dimension", [0, 1])
def test_an_approximate_top_k_is_split_along_its_batch(dimension, chunk):
    """Each row is searched as before, whichever dimension that is; also where the last chunk is ragged."""
    x = np.moveaxis(normals(6, 64), 0, dimension)

    def smallest(x):
        return jax.lax.approx_min_k(-x, 5, reduction_dimension=1 - dimension)

    program = program_of(smallest, x)
    module = normal(program)
    graph = entry_graph(module)
    value = next(op.results[0] for op in graph.ops if op.name == "stablehlo.negate")
    split(module, Split(path=(), value=value, dimension=dimension, big_bytes=1, chunk=chunk))
    remove_rules(module)
    assert module.operation.verify()
    assert text(module).count("stablehlo.while") == 1
    assert all(map(same_bits, run(program, module, x), run(program, None, x)))


def test_an_approximate_top_k_is_not_split_where_it_searches():
    graph = graph_of(program_of(lambda x: jax.lax.approx_max_k(-x, 5), normals(6, 64)))
    (search,) = (op for op in graph.ops if op.name == "stablehlo.custom_call")
    found = rule_book(graph).split(search.index, "operands", 0, 1, 64)
    assert isinstance(found, Blocked)
    assert found.code == "needs-whole-dimension"


def test_an_approximate_search_keeps_a_budget():
    """64 MiB of scores; XLA:TPU has none to begin with."""
    program = exported(lambda q, x: jax.lax.approx_max_k(q @ x.T, 10), spec(1024, 64), spec(16384, 64))
    plan = shm.plan(program, "16MiB", target="cpu")
    assert plan.before.peak_bytes > 2**26
    assert plan.fits
    assert "split-into-loops" in {step.pass_name for step in plan.steps}
