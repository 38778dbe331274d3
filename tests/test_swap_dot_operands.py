"""swap-dot-operands: a dot that is transposed after is made so at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stablehlo_mem as shm
from stablehlo_mem.pass_api.candidate import Goal, Options
from stablehlo_mem.passes.swap_dot_operands import SwapDotOperands
from stablehlo_mem.planner.greedy_search import cheapen
from stablehlo_mem.planner.search_state import start
from stablehlo_mem.targets.chips import CHIPS
from tests.support import exported, normal, normals, program_of, rewritten, spec

PASS = SwapDotOperands()


def gradient(w, x):
    """The gradient of a matrix of weights, as JAX writes it: the transpose of a dot."""
    return jax.grad(lambda w: jnp.tanh(x @ w).sum())(w)


def scores(q, k):
    return jnp.einsum("bqd,bkd->bqk", q, k).transpose(0, 2, 1)


@pytest.mark.parametrize("f", [gradient, scores])
def test_makes_a_dot_transposed_where_bytes_go_first(f):
    arguments = (normals(16, 8), normals(32, 16, seed=1)) if f is gradient else (normals(2, 8, 4), normals(2, 6, 4))
    after = rewritten(PASS, f, *arguments, prefer_memory=True)
    assert after.count == 1
    assert "stablehlo.transpose" not in after.text
    assert after.same_bits


def small_times_large(x, g):
    """The gradient of a head's weights: few features, many words."""
    return jnp.einsum("tv,td->vd", g, x).T


def large_times_small(x, g):
    return jnp.einsum("td,tv->dv", x, g).T


@pytest.mark.parametrize(
    ("target", "f", "words", "swaps"),
    [
        ("cpu", small_times_large, 4096, True),
        ("cpu", small_times_large, 16, False),
        ("cpu", large_times_small, 4096, False),
        ("cuda:h200", small_times_large, 4096, True),
        ("cuda:h200", large_times_small, 4096, True),
        ("tpu:v5e", small_times_large, 4096, False),
    ],
)
def test_operands_are_swapped_at_once_where_that_is_faster_or_stacks_would_be_transposed(target, f, words, swaps):
    """XLA:CPU packs the left operand transposed; the larger one takes longer. On a GPU one order costs what the other
    does, and stacks would be transposed."""
    arguments = np.ones((64, 128), np.float32), np.ones((64, words), np.float32)
    goal = Goal(CHIPS[target], Options(), 0)
    module = normal(program_of(f, *arguments))
    quick = cheapen(start(module, goal), goal, any_peak=False)
    assert [s.pass_name for s in quick.steps] == ["swap-dot-operands"] * swaps


def heads_inside(p, v):
    """The end of attention as einsum writes it where heads lie inside: both operands are read transposed."""
    return jnp.einsum("bhqk,bhkd->bqhd", p, v)


def several_free(p, v):
    return jnp.einsum("xyk,kz->zyx", p, v)


@pytest.mark.parametrize("prefer_memory", [False, True])
@pytest.mark.parametrize(
    ("f", "arguments", "dot"),
    [
        (heads_inside, (normals(2, 3, 8, 6), normals(2, 3, 6, 5)), "tensor<2x3x8x5xf32>"),
        (several_free, (normals(4, 2, 6), normals(6, 5)), "tensor<4x2x5xf32>"),
    ],
)
def test_operands_that_both_lie_transposed_are_swapped_and_the_result_is_permuted_otherwise(
    f, arguments, dot, prefer_memory
):
    after = rewritten(PASS, f, *arguments, prefer_memory=prefer_memory)
    assert after.count == 1
    assert f"-> {dot}" in after.text
    assert after.text.count("stablehlo.transpose") == 1
    assert after.same_bits


@pytest.mark.parametrize(("target", "swaps"), [("cpu", True), ("cuda:h200", False), ("tpu:v5e", False)])
def test_attention_with_its_heads_inside_is_swapped_where_packing_costs(target, swaps):
    goal = Goal(CHIPS[target], Options(), 0)
    arguments = np.ones((1, 4, 512, 512), np.float32), np.ones((1, 4, 512, 64), np.float32)
    start_state = start(normal(program_of(heads_inside, *arguments)), goal)
    quick = cheapen(start_state, goal, any_peak=False)
    assert [s.pass_name for s in quick.steps] == ["swap-dot-operands"] * swaps
    assert not swaps or quick.seconds < 0.7 * start_state.seconds


def test_swaps_precisions_with_the_operands():
    def f(x, y):
        precision = jax.lax.Precision.HIGHEST, jax.lax.Precision.DEFAULT
        return jax.lax.dot_general(x, y, (((1,), (0,)), ((), ())), precision=precision).T

    after = rewritten(PASS, f, normals(4, 8), normals(8, 6), prefer_memory=True)
    assert "precision = [DEFAULT, HIGHEST]" in after.text


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: jnp.einsum("bik,bkj->bij", x, y).transpose(1, 0, 2),
        lambda x, y: jnp.einsum("bik,bkj->bij", x, y).transpose(2, 1, 0),
        lambda x, y: jnp.einsum("abk,kc->abc", x, y[0]).transpose(2, 0, 1),
        lambda x, y: (lambda d: d.transpose(0, 2, 1) + d)(x @ y),
        lambda x, y: jax.lax.dot(x[0], y[0], precision="BF16_BF16_F32_X3").T,
    ],
)
def test_leaves_the_dot_where_its_operands_swapped_will_not_do(f):
    after = rewritten(PASS, f, normals(8, 8, 8), normals(8, 8, 8, seed=1), prefer_memory=True)
    assert after.count == 0
    assert "stablehlo.transpose" in after.text


def test_a_split_adds_up_gradients_where_they_go():
    """Few rows and more hidden units: a copy of a gradient that is transposed in the end is more than all the rest."""

    def loss(x, w, v):
        return ((jax.nn.gelu(x @ w) @ v) ** 2).sum()

    program = exported(jax.grad(loss, (0, 1, 2)), spec(74, 254), spec(254, 99), spec(99, 254))
    plan = shm.plan(program, "min", target="cpu", options=shm.Options(max_slowdown=None))
    assert [s.pass_name for s in plan.steps] == ["swap-dot-operands", "split-into-loops"]
    assert plan.after.temp_bytes < plan.before.temp_bytes / 4
