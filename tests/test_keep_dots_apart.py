"""keep-dots-apart: on CUDA, gradients of weights that are summed chunk by chunk are not merged into one dot."""

import jax
import jax.numpy as jnp
import pytest

import stablehlo_mem as shm
from stablehlo_mem.analysis.dot_merging import alike_dots, merged_dots
from stablehlo_mem.passes import PASSES
from stablehlo_mem.passes.keep_dots_apart import KeepDotsApart
from tests.support import exported, graph_of, normals, rewritten, spec


def sums(x, u, v, w, a, b, c):
    return a + u.T @ x, b + v.T @ x, w.T @ x + c


def loss(weights, x):
    """A gated layer: gradients of its two first matrices are dots of one activation."""
    gate, up, down = weights
    return jnp.square(((jax.nn.silu(x @ gate) * (x @ up)) @ down).astype(jnp.float32)).mean()


def test_adds_the_same():
    factors, terms = ([normals(*shape, seed=i) for i in (1, 2, 3)] for shape in ((64, 24), (24, 16)))
    after = rewritten(KeepDotsApart(), sums, normals(64, 16), *factors, *terms)
    assert after.count == 2
    assert after.text.count("optimization_barrier") == 2
    assert after.same_bits


def test_keeps_a_budget_on_cuda_that_merged_dots_exceed():
    weights = [spec(*shape, dtype="bfloat16") for shape in ((1024, 4096), (1024, 4096), (4096, 1024))]
    program = exported(jax.grad(loss), weights, spec(32_768, 1024, dtype="bfloat16"), platform="cuda")
    before = shm.profile(program, target="cuda:h200").measured
    budget = before.peak_bytes - before.temp_bytes * 11 // 12
    plan = shm.plan(program, budget, target="cuda:h200")
    others = [p.name for p in PASSES if p.name != "keep-dots-apart"]
    without = shm.plan(program, budget, target="cuda:h200", options=shm.Options(passes=tuple(others)))
    assert before.peak_bytes > budget
    assert plan.fits
    assert plan.slowdown < 2
    assert "keep-dots-apart" in [step.pass_name for step in plan.steps]
    assert plan.slowdown < without.slowdown or not without.fits


@pytest.mark.parametrize(("depth", "merged"), [(1024, 2), (2048, 0)])
def test_small_dots_are_merged(depth, merged):
    """59 and 74 MiB of operands and result each, as seen in compiled programs."""
    graph = graph_of(f"""func.func public @main(%x: tensor<{depth}x2048xbf16>, %u: tensor<{depth}x5632xbf16>,
        %v: tensor<{depth}x5632xbf16>) -> (tensor<5632x2048xf32>, tensor<5632x2048xf32>) {{
      %a = stablehlo.dot_general %u, %x, contracting_dims = [0] x [0]
        : (tensor<{depth}x5632xbf16>, tensor<{depth}x2048xbf16>) -> tensor<5632x2048xf32>
      %b = stablehlo.dot_general %v, %x, contracting_dims = [0] x [0]
        : (tensor<{depth}x5632xbf16>, tensor<{depth}x2048xbf16>) -> tensor<5632x2048xf32>
      return %a, %b : tensor<5632x2048xf32>, tensor<5632x2048xf32>
    }}""")
    assert len(merged_dots(graph, 64 * 2**20)) == merged


def test_dots_of_which_one_needs_the_other_are_not_merged():
    graph = graph_of("""func.func public @main(%x: tensor<16x16xf32>, %u: tensor<16x16xf32>) -> tensor<16x16xf32> {
      %a = stablehlo.dot_general %x, %u, contracting_dims = [1] x [0]
        : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
      %t = stablehlo.tanh %a : tensor<16x16xf32>
      %b = stablehlo.dot_general %x, %t, contracting_dims = [1] x [0]
        : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
      return %b : tensor<16x16xf32>
    }""")
    assert [alike.dots for alike in alike_dots(graph)]
    assert not merged_dots(graph, 64 * 2**20)
