"""recompute-residuals: same bits, lower peak, layer by layer, and the compilers keep what the barriers say."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import pytest

import stablehlo_mem as shm
from stablehlo_mem.analysis.peak_memory import find_peak
from stablehlo_mem.frontend.canonicalize import attach_rules, remove_rules
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.pass_api.candidate import Goal
from stablehlo_mem.passes.recompute_residuals import RecomputedResiduals, RecomputeResiduals, candidates_at
from stablehlo_mem.rewriting.join_barriers import join_barriers
from stablehlo_mem.rewriting.recomputation import Residuals
from stablehlo_mem.splitting.split_step import Split, split
from stablehlo_mem.targets.chips import CHIPS
from stablehlo_mem.targets.measurement import Measured
from stablehlo_mem.targets.target import named_targets
from tests.support import (
    exported,
    graph_of,
    in_f64,
    normal,
    normals,
    recomputable,
    run,
    same_bits,
    spec,
    text,
    yardstick,
)
from tests.test_targets import needs
from tests.textual import source_and_expected

H200 = CHIPS["cuda:h200"]


def block(x, w, v):
    """A layer with much more inside than it hands on."""
    return x + jnp.sin(jnp.tanh(x @ w)) @ v


def loss(layers, x):
    for w, v in layers:
        x = block(x, w, v)
    return (x**2).mean()


def gradient(*args):
    pairs = list(zip(args[:-1:2], args[1:-1:2], strict=True))
    return jax.grad(loss)(pairs, args[-1])


def specs(layers=4, rows=256, width=16, inner=128):
    return *(spec(*shape) for _ in range(layers) for shape in ((width, inner), (inner, width))), spec(rows, width)


def program_for(function, *args):
    return ingest(exported(function, *args))


def drawn(*args):
    return [normals(*a.shape, seed=i) / 8 for i, a in enumerate(args)]


def recomputed(program):
    """A program after the step that drops most, and its parameters."""
    module = normal(program)
    params = recomputable(entry_graph(module))[-1].step.params
    assert isinstance(params, RecomputedResiduals)
    RecomputeResiduals().apply(module, params)
    assert module.operation.verify()
    return module, params


@pytest.mark.parametrize("layers", [3, 4, 7])
def test_computes_the_same_with_a_lower_peak(layers):
    program = program_for(gradient, *specs(layers))
    module, params = recomputed(program)
    assert params.values >= layers - 1
    attach_rules(module)
    before, after = (find_peak(graph, H200).temp_bytes for graph in (graph_of(program), entry_graph(module)))
    assert after < (0.75 if layers > 3 else 0.9) * before
    remove_rules(module)
    join_barriers(module)
    assert module.operation.verify()
    args = drawn(*specs(layers))
    assert all(map(same_bits, run(program, module, *args), run(program, None, *args)))


def test_a_segment_is_a_layer_and_waits_for_the_gradient_of_the_next():
    graph = graph_of(program_for(gradient, *specs(6, rows=65536)))
    params = recomputable(graph)[-1].step.params
    assert isinstance(params, RecomputedResiduals)
    assert len(params.segments) >= 5
    assert len({segment.before for segment in params.segments}) == len(params.segments)
    # The matmul before a layer's tanh: no layer's output is computed again.
    dots = [sum(graph.ops[op].name == "stablehlo.dot_general" for op in segment.ops) for segment in params.segments]
    assert max(dots) == 1
    assert sum(dots) >= 4
    for segment in params.segments:
        assert segment.awaited
        assert all(params.place < graph.values[v].producer < segment.before for v in segment.awaited)


def test_of_similar_divisions_the_finest():
    """Layers that hand on much beside what they keep: two in a segment take a few bytes less, and run twice as much."""
    graph = graph_of(program_for(gradient, *specs(12, rows=4096, inner=32)))
    params = recomputable(graph)[-1].step.params
    assert len(params.segments) == 11
    dots = [sum(graph.ops[op].name == "stablehlo.dot_general" for op in segment.ops) for segment in params.segments]
    assert max(dots) == 1


def shared_gradient(*args):
    """Of layers that all read one array, in another shape and behind a barrier."""

    def shared_loss(args):
        *layers, numbers, x = args
        for w, v in zip(layers[::2], layers[1::2], strict=True):
            column = jax.lax.optimization_barrier(numbers.reshape(-1, 1))
            x = x + jnp.sin(jnp.tanh(x @ w + column)) @ v
        return (x**2).mean()

    return jax.grad(shared_loss)(args)


def test_what_writes_nothing_is_repeated_in_each_segment():
    """No segment has the others computed again for it, though it reads what all read; barriers are repeated too."""
    *layers, x = specs(6, rows=4096)
    args = *layers, spec(16, 256), x
    program = program_for(shared_gradient, *args)
    module, params = recomputed(program)
    assert params.values == 2 * len(params.segments) == 10
    assert len({segment.before for segment in params.segments}) == len(params.segments)
    assert find_peak(entry_graph(module), H200).temp_bytes < 0.7 * find_peak(graph_of(program), H200).temp_bytes
    join_barriers(module)
    assert all(map(same_bits, run(program, module, *drawn(*args)), run(program, None, *drawn(*args))))


def headed_gradient(*args):
    """Layers of two parts, the first with more inside, and a head that is larger than all of a layer."""

    def headed_loss(args):
        *layers, head, x = args
        for w, v in zip(layers[::2], layers[1::2], strict=True):
            x = block(x, w, v)
        return jnp.abs(jnp.sin(jnp.tanh(x @ head))).mean()

    return jax.grad(headed_loss)(args)


def test_segments_are_layers_whatever_is_read_at_once():
    """The head's values are alive at the place in any case: how large they are says nothing of where to divide."""
    layers = [spec(*shape) for _ in range(12) for inner in (256, 96) for shape in ((16, inner), (inner, 16))]
    graph = graph_of(program_for(headed_gradient, *layers, spec(16, 4096), spec(256, 16)))
    head = next(v for v in graph.values if v.shape == (256, 4096) and graph.title(v.producer) == "dot_general")
    residuals = Residuals(graph, head.producer + 2, H200)
    assert residuals.is_residual(head.index)
    assert head.index not in residuals.droppable
    ends = (*residuals.begins, residuals.place)
    dots = [op.index for op in graph.ops[: head.producer] if op.name == "stablehlo.dot_general"]
    assert len(dots) == 4 * 12
    per_segment = [sum(first <= dot < end for dot in dots) for first, end in itertools.pairwise((0, *ends))]
    assert max(per_segment) <= 4


def test_what_takes_the_least_time_goes_first():
    graph = graph_of(program_for(gradient, *specs(6)))
    candidates = recomputable(graph)
    saved = [one.saved_bytes for one in candidates]
    assert len(candidates) > 1
    assert saved == sorted(saved)
    per_byte = [one.added_seconds / one.saved_bytes for one in candidates]
    assert per_byte[0] <= per_byte[-1]


def test_barriers_of_a_segment_are_joined():
    module, params = recomputed(program_for(gradient, *specs(4)))
    remove_rules(module)
    split = text(module).count("optimization_barrier")
    join_barriers(module)
    joined = text(module).count("optimization_barrier")
    assert joined == len(params.segments) < split
    assert "barrier_group" not in text(module)


def test_in_a_loop_a_segment_waits_for_what_a_gradient_was_added_to():
    """A loop over rows sums up gradients: their barriers are outside, but what a step computes again waits in it."""

    def updated(*args):
        gradients = [g for pair in gradient(*args) for g in pair]
        norm = jnp.sqrt(sum((g**2).sum() for g in gradients))
        return [w - g / norm for w, g in zip(args[:-1], gradients, strict=True)]

    rows = 16384
    program = program_for(updated, *specs(4, rows=rows))
    module, params = recomputed(program)
    attach_rules(module)
    seed = min(v.index for v in entry_graph(module).values if v.shape == (rows, 128))
    split(module, Split(path=(), value=seed, dimension=0, big_bytes=rows * 16 * 4, chunk=rows // 4))
    remove_rules(module)
    join_barriers(module)
    assert module.operation.verify()
    (loop,) = (op for op in entry_graph(module).ops if op.name == "stablehlo.while")
    body = loop.blocks[1]
    barriers = [op for op in body.ops if op.name == "stablehlo.optimization_barrier"]
    assert len(barriers) == len(params.segments)
    for barrier in barriers:
        assert "stablehlo.add" in {body.producer(v).name for v in barrier.operands if body.values[v].is_computed}
        assert set(body.returned).intersection(barrier.results)
    given = drawn(*specs(4, rows=rows))
    results = (run(program, module, *given), run(program, None, *given), in_f64(updated, *given))
    assert all(yardstick(*three) is None for three in zip(*results, strict=True))


def test_a_segment_waits_for_the_gradients_of_biases():
    """They are small, and what they are sums of is as large as an activation."""

    def updated(*args):
        def total(layers):
            x = args[-1]
            for w, b, v in layers:
                x = x + jnp.sin(jnp.tanh(x @ w + b)) @ v
            return (x**2).mean()

        layers = list(zip(args[:-1:3], args[1:-1:3], args[2:-1:3], strict=True))
        gradients = jax.tree.leaves(jax.grad(total)(layers))
        norm = jnp.sqrt(sum((g**2).sum() for g in gradients))
        return [w - g / norm for w, g in zip(args[:-1], gradients, strict=True)]

    shapes = *(spec(*shape) for _ in range(4) for shape in ((16, 128), (128,), (128, 16))), spec(256, 16)
    graph = graph_of(program_for(updated, *shapes))
    params = recomputable(graph)[-1].step.params
    assert isinstance(params, RecomputedResiduals)
    # The gradients of the last layer's are computed before the first segment.
    biases = [[v for v in s.awaited if graph.values[v].shape == (128,)] for s in params.segments]
    assert sum(map(len, biases)) >= 3
    assert {graph.producer(v).name for of_segment in biases for v in of_segment} == {"stablehlo.reduce"}


def test_a_segment_is_not_computed_twice_again():
    module, _ = recomputed(program_for(gradient, *specs(4)))
    attach_rules(module)
    graph = entry_graph(module)
    barriers = {op.index for op in graph.ops if op.name == "stablehlo.optimization_barrier"}
    for one in recomputable(graph):
        assert isinstance(one.step.params, RecomputedResiduals)
        assert not barriers & {op for segment in one.step.params.segments for op in segment.ops}


def test_what_is_returned_stays():
    def returning(*args):
        y = block(args[-1], *args[:2])
        return y, gradient(*args[2:-1], y)

    graph = graph_of(program_for(returning, *specs(4)))
    params = recomputable(graph)[-1].step.params
    assert isinstance(params, RecomputedResiduals)
    assert graph.returned[0] not in {v for s in params.segments for op in s.ops for v in graph.ops[op].results}


def test_what_is_empty_frees_nothing():
    source, _ = source_and_expected("recompute_residuals")
    graph = graph_of(source.replace("64", "0"))
    place = next(op.index for op in graph.ops if op.name == "stablehlo.reduce")
    goal = Goal(H200, shm.Options(), 0)
    assert list(candidates_at(graph, (), place, find_peak(graph, H200), goal)) == []


def test_what_has_effects_stays():
    source, _ = source_and_expected("recompute_residuals")
    assert len(recomputable(graph_of(source))) > 0
    call = "stablehlo.custom_call @f(%a) {has_side_effect = true} : (tensor<64x64xf32>) -> tensor<64x64xf32>"
    assert recomputable(graph_of(source.replace("stablehlo.tanh %a : tensor<64x64xf32>", call))) == []


@pytest.mark.parametrize(
    ("chip", "layers", "offered"),
    [("cuda:h200", 12, True), ("cuda:h200", 2, True), ("tpu:v5e", 12, True), ("cpu", 12, False)],
)
def test_for_compilers_that_keep_barriers(chip, layers, offered):
    graph = graph_of(program_for(gradient, *specs(layers)))
    goal = Goal(CHIPS[chip], shm.Options(), 0)
    assert bool(list(RecomputeResiduals().propose(graph, find_peak(graph, goal.chip), goal))) == offered


@needs["cuda"]
def test_unrolled_layers_within_a_budget_on_a_gpu():
    """Twelve layers of 2 x 32 MiB."""
    program = exported(gradient, *specs(12, rows=8192, width=128, inner=1024), platform="cuda")
    before = shm.profile(program, target="cuda:h200")
    assert isinstance(before.measured, Measured)
    budget = before.peak_bytes - int(0.5 * before.measured.temp_bytes)
    options = shm.Options(numerics="exact", passes=("recompute-residuals",), cache=False)
    plan = shm.plan(program, budget, target="cuda:h200", options=options)
    assert plan.fits
    assert {step.pass_name for step in plan.steps} == {"recompute-residuals"}
    assert isinstance(plan.after.measured, Measured)
    assert before.peak_bytes > budget >= plan.after.measured.peak_bytes


@needs["cuda"]
def test_a_checkpoint_around_layers_is_kept():
    """The normal form takes its barriers apart; what is returned has them together again."""

    def remembered(*args):
        pairs = list(zip(args[:-1:2], args[1:-1:2], strict=True))

        def total(pairs, x):
            for w, v in pairs:
                x = jax.checkpoint(block)(x, w, v)
            return (x**2).mean()

        return jax.grad(total)(pairs, args[-1])

    shapes = specs(8, rows=8192, width=128, inner=1024)
    target = named_targets("cuda:h200")[0]
    program, without = (ingest(exported(f, *shapes, platform="cuda")) for f in (remembered, gradient))
    module = normal(program)
    remove_rules(module)
    join_barriers(module)
    given, ours, plain = (
        target.measure(p, m) for p, m in ((program, program.module), (program, module), (without, without.module))
    )
    assert isinstance(given, Measured)
    assert isinstance(ours, Measured)
    assert isinstance(plain, Measured)
    assert ours.temp_bytes <= 1.05 * given.temp_bytes < 0.5 * plain.temp_bytes
