"""sink-converts: slices of the weights of layers are converted in the loop over the layers."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import stablehlo_mem as shm
from stablehlo_mem.ir.bindings import clone_module
from stablehlo_mem.ir.graph import entry_graph, nested_graph
from stablehlo_mem.passes.sink_converts import SinkConverts
from tests.support import exported, graph_of, normal, normals, offered, program_of, run, same_bits, spec

LAYERS, WIDTH = 16, 256
ARGUMENTS = normals(64, WIDTH), normals(LAYERS, WIDTH, 4 * WIDTH, seed=1), normals(LAYERS, 4 * WIDTH, WIDTH, seed=2)
WEIGHTS = 2 * 4 * LAYERS * WIDTH * 4 * WIDTH


def layer(h: Any, w: Any) -> tuple[Any, None]:
    up, down = w
    return h + jnp.tanh(h @ up * 0.01) @ down * 0.01, None


def layers(x: Any, up: Any, down: Any) -> Any:
    return jax.lax.scan(layer, x, (up, down))[0]


def in_microbatches(x: Any, up: Any, down: Any) -> Any:
    """A loop around the loop over the layers."""
    return jax.lax.map(lambda h: layers(h, up, down), x.reshape(4, -1, x.shape[-1])).reshape(x.shape)


def every_other_twice(x: Any, up: Any, down: Any) -> Any:
    """The inner loop counts down; one stack is read in two places."""

    def step(i: Any, h: Any) -> Any:
        h, _ = layer(h, (up[LAYERS - 1 - i], down[i]))
        return jax.lax.cond(i % 2 == 0, lambda: h, lambda: jnp.tanh(h)) @ down[i].T @ up[i].T

    return jax.lax.fori_loop(0, LAYERS, step, x)


@pytest.mark.parametrize("f", [layers, in_microbatches, every_other_twice])
def test_gives_the_same_bits_and_no_copies(f: Callable[..., Any]):
    program = program_of(f, *ARGUMENTS)
    before = normal(program)
    candidate = offered(entry_graph(before))[0]
    assert candidate.saved_bytes == WEIGHTS // 2
    after = clone_module(before)
    SinkConverts().apply(after, candidate.step.params)
    assert after.operation.verify()
    assert offered(entry_graph(after)) == []
    assert all(
        same_bits(a, b) for a, b in zip(run(program, after, *ARGUMENTS), run(program, before, *ARGUMENTS), strict=True)
    )


def test_the_slices_of_inner_loops_are_found_where_they_are():
    graph = graph_of(program_of(in_microbatches, *ARGUMENTS))
    slices = offered(graph)[0].step.params.slices
    assert len(slices) == 2
    for path, op in slices:
        assert len(path) == 2
        assert nested_graph(graph, path).ops[op].name == "stablehlo.dynamic_slice"


def always_the_first_layer(x: Any, up: Any, down: Any) -> Any:
    return jax.lax.fori_loop(0, LAYERS, lambda i, h: h @ up[0] @ down[0], x)


def narrow_layers(*arguments: Any) -> Any:
    return layers(*(a.astype(jnp.bfloat16) for a in arguments))


def sums_of_weights(x: Any, up: Any, down: Any) -> Any:
    return jax.lax.scan(lambda h, w: (h + w[0].sum() - w[1].sum(), None), x, (up, down))[0]


@pytest.mark.parametrize(
    ("f", "chip"),
    [
        (always_the_first_layer, "tpu:v5e"),
        (narrow_layers, "tpu:v5e"),
        (sums_of_weights, "tpu:v5e"),
        (layers, "cuda:h200"),
        (layers, "cpu"),
    ],
)
def test_leaves_alone_what_is_not_copied_or_read_as_a_whole(f: Callable[..., Any], chip: str):
    assert offered(graph_of(program_of(f, *ARGUMENTS)), chip) == []


@pytest.mark.parametrize("f", [layers, in_microbatches])
def test_keeps_the_budget_where_the_copies_are_what_is_in_the_way(f: Callable[..., Any]):
    pytest.importorskip("libtpu")
    specs = spec(4096, 1024), spec(24, 1024, 4096), spec(24, 4096, 1024)
    program = exported(f, *specs, platform="tpu")
    original = shm.plan(program, None, target="tpu:v5e", options=shm.Options(passes=())).before
    budget = original.peak_bytes - original.measured.temp_bytes // 2
    plan = shm.plan(program, budget, target="tpu:v5e")
    assert plan.before.peak_bytes > budget >= plan.after.peak_bytes
    assert "sink-converts" in {step.pass_name for step in plan.steps}
