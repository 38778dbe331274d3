"""A split of unrolled layers takes in all places that are alike and at which memory would stay high."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import pytest

from stablehlo_mem.analysis.peak_memory import find_peak, memory_of_ops
from stablehlo_mem.frontend.canonicalize import attach_rules, remove_rules
from stablehlo_mem.ir.bindings import clone_module, fingerprint
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Options
from stablehlo_mem.splitting.candidates import proposals
from stablehlo_mem.splitting.like_places import is_apart, like_places
from stablehlo_mem.splitting.loops_of_seed import loops_of_seed
from stablehlo_mem.splitting.split_step import split
from stablehlo_mem.targets.chips import CHIPS
from tests.support import graph_of, in_f64, normal, normals, program_of, run, yardstick

LAYERS = 4
ROWS, WIDTH = 512, 16
GOAL = Goal(CHIPS["cuda:h200"], Options(), 500_000)


def network(x, *weights):
    """Layers that are alike."""
    for w in weights:
        scores = (x @ w) @ x.T
        x = x + jnp.sin(jnp.exp(scores - scores.max(1, keepdims=True))) @ x / ROWS
    return x


def arguments(layers=LAYERS):
    return [normals(ROWS, WIDTH) / 8, *(normals(WIDTH, WIDTH, seed=i) / 8 for i in range(layers))]


def candidates(graph, goal=GOAL):
    found = proposals(graph, (), find_peak(graph, goal.chip), goal)
    return [c for c in found if isinstance(c, Candidate)]


def along_rows(graph):
    """The candidate of the most places."""
    return max(candidates(graph), key=lambda c: len(c.step.params.places))


def is_right(program, module, layers):
    """Whether a module computes what a program does, to the limits of docs/numerics.md."""
    given = arguments(layers)
    results = (run(program, module, *given), run(program, None, *given), in_f64(network, *given))
    return all(yardstick(*three) is None for three in zip(*results, strict=True))


@pytest.mark.parametrize("layers", [2, LAYERS, 12])
def test_one_step_splits_all_layers_and_computes_the_same(layers):
    program = program_of(network, *arguments(layers))
    module = normal(program)
    graph = entry_graph(module)
    one = along_rows(graph)
    assert len(one.step.params.places) == layers - 1
    smallest = one.resized(max(one.sizes, key=lambda size: size.saved_bytes))
    copy = clone_module(module)
    smallest.apply_to_copy(copy, smallest.step.params)
    assert copy.operation.verify()
    assert str(copy).count("stablehlo.while") == layers * smallest.step.params.loops
    attach_rules(copy)
    before, after = (find_peak(g, GOAL.chip).temp_bytes for g in (graph, entry_graph(copy)))
    assert after < before / 2
    remove_rules(copy)
    assert is_right(program, copy, layers)


def test_the_step_is_repeated_from_its_data():
    module = normal(program_of(network, *arguments()))
    one = along_rows(entry_graph(module))
    for size in one.sizes:
        copies = [clone_module(module) for _ in range(2)]
        sized = one.resized(size)
        sized.apply_to_copy(copies[0], sized.step.params)
        split(copies[1], sized.step.params)
        assert fingerprint(copies[0]) == fingerprint(copies[1])


def test_a_split_of_one_layer_leaves_the_peak_where_it_is():
    module = normal(program_of(network, *arguments()))
    one = along_rows(entry_graph(module))
    alone = dataclasses.replace(one.step.params, places=())
    split(module, alone)
    attach_rules(module)
    graph = entry_graph(module)
    assert find_peak(graph, GOAL.chip).temp_bytes > ROWS * ROWS * 4
    assert len(along_rows(graph).step.params.places) == LAYERS - 2


def test_places_at_which_memory_is_low_are_left_out():
    graph = graph_of(program_of(network, *arguments()))
    one = along_rows(graph).step.params
    schedule = loops_of_seed(graph, (one.value, one.dimension), one.big_bytes, streaming=one.streaming)
    memory = memory_of_ops(graph, GOAL.chip, ())
    peak = find_peak(graph, GOAL.chip)
    assert max(memory) == peak.temp_bytes == memory[peak.op]
    assert len(like_places(graph, schedule, memory, peak.temp_bytes - 1)) < LAYERS
    assert like_places(graph, schedule, memory, peak.temp_bytes) == ()
    assert len(like_places(graph, schedule, memory, 0)) == LAYERS - 1
    half = [nbytes if op < len(memory) // 2 else 0 for op, nbytes in enumerate(memory)]
    assert 0 < len(like_places(graph, schedule, half, 0)) < LAYERS - 1


def test_places_are_apart_and_in_order():
    graph = graph_of(program_of(network, *arguments()))
    one = along_rows(graph).step.params
    schedule = loops_of_seed(graph, (one.value, one.dimension), one.big_bytes, streaming=one.streaming)
    places = like_places(graph, schedule, memory_of_ops(graph, GOAL.chip, ()), 0)
    firsts = [min(place.inner_ops) for place in places]
    assert firsts == sorted(firsts)
    assert all(is_apart(a, b) for a in (schedule, *places) for b in (schedule, *places) if a is not b)
    assert not is_apart(schedule, schedule)


def test_what_differs_is_no_like_place():
    def differing(x, *weights):
        return jnp.tanh(network(x, *weights[:2]) @ weights[2] @ x.T) @ network(x, weights[3])

    graph = graph_of(program_of(differing, *arguments()))
    values = {value.shape for value in graph.values}
    assert (ROWS, ROWS) in values
    for one in candidates(graph):
        names = {graph.ops[graph.values[v].producer].name for v, _ in one.step.params.places}
        assert names <= {graph.ops[graph.values[one.step.params.value].producer].name}
        assert len(one.step.params.places) <= 2


def test_sums_of_each_place_are_accumulated():
    program = program_of(network, *arguments())
    module = normal(program)
    found = [c for c in candidates(entry_graph(module)) if c.numerics == "reassociate" and c.step.params.places]
    assert found
    for one in found:
        copy = clone_module(module)
        one.apply_to_copy(copy, one.step.params)
        assert copy.operation.verify()
        remove_rules(copy)
        assert is_right(program, copy, LAYERS)
