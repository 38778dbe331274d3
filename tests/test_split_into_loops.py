"""split-into-loops: what comes out, to the letter, in tests/ir/*.mlir; here what is proposed and what is refused."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stablehlo_mem.analysis.peak_memory import find_peak
from stablehlo_mem.ir.bindings import clone_module
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Options, Refusal
from stablehlo_mem.passes.split_into_loops import SplitIntoLoops
from stablehlo_mem.splitting.split_step import Split, split
from stablehlo_mem.targets.chips import CHIPS
from stablehlo_mem.utils.plain_data import plain_data, restored
from tests.support import apply_split, normal, possible_splits, program_of, spec, text

PASS = SplitIntoLoops()


def proposals(fun, *args, goal_bytes=0):
    module = normal(program_of(fun, *args))
    graph = entry_graph(module)
    goal = Goal(CHIPS["cpu"], Options(), goal_bytes)
    found = list(PASS.propose(graph, find_peak(graph, goal.chip), goal))
    candidates = [item for item in found if isinstance(item, Candidate)]
    return module, candidates, [item for item in found if isinstance(item, Refusal)]


def scores(x, y, v):
    return jnp.exp(jnp.einsum("id,jd->ij", x, y)) @ v


ARGS = (np.ones((64, 8), np.float32), np.ones((128, 8), np.float32), np.ones(128, np.float32))


def test_proposals_say_what_they_do():
    module, candidates, refusals = proposals(scores, *ARGS)
    assert {(c.step.params.dimension, c.numerics) for c in candidates} == {(0, "exact"), (1, "reassociate")}
    assert not refusals
    for candidate in candidates:
        assert candidate.saved_bytes > 0
        assert "dot_general f32[64,128] along dimension" in candidate.summary
        assert "test_split_into_loops.py" in candidate.refusal_if_useless.location
        assert text(module) == text(normal(program_of(scores, *ARGS)))


def test_steps_are_json_and_apply():
    module, candidates, _ = proposals(scores, *ARGS)
    for candidate in candidates:
        params = candidate.step.params
        back = restored(Split, json.loads(json.dumps(plain_data(params))))
        assert back == params
        one, other = clone_module(module), clone_module(module)
        PASS.apply(one, params)
        PASS.apply(other, back)
        assert text(one) == text(other)
        assert "stablehlo.while" in text(one)


def test_sizes_are_all_chunks_the_fastest_first():
    _, candidates, _ = proposals(scores, *ARGS)
    for candidate in candidates:
        sizes = candidate.sizes
        own = [s for s in sizes if candidate.resized(s) == candidate]
        assert len(own) == 1
        assert [s.added_seconds for s in sizes] == sorted(s.added_seconds for s in sizes)
        smaller = sorted(sizes, key=lambda s: -s.params.chunk)
        assert smaller[-1].params.chunk == 1
        assert [s.saved_bytes for s in smaller] == sorted(s.saved_bytes for s in sizes)


def test_a_smaller_goal_gets_smaller_chunks():
    whole = 64 * 128 * 4
    sizes = []
    for goal in (whole // 2, whole // 8, whole // 32):
        _, candidates, _ = proposals(scores, *ARGS, goal_bytes=goal)
        sizes.append(max(c.step.params.chunk for c in candidates if c.step.params.dimension == 0))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]


def sorted_scores(x, y):
    return jnp.sort(jnp.einsum("id,jd->ij", x, y), axis=0)[:3]


def test_what_needs_a_whole_dimension_is_refused_with_its_line():
    _, candidates, refusals = proposals(sorted_scores, *ARGS[:2])
    assert all(c.step.params.dimension == 1 for c in candidates)
    refusal = next(r for r in refusals if r.dimension == 0)
    assert refusal.code == "needs-whole-dimension"
    assert "stablehlo.sort" in refusal.message
    assert "ordered" in refusal.message
    assert "test_split_into_loops.py" in refusal.location
    assert refusal.nbytes == 64 * 128 * 4


def test_an_argument_or_a_result_is_no_candidate():
    def product(x):
        return jnp.einsum("id,jd->ij", x, x)

    _, candidates, refusals = proposals(product, ARGS[0])
    assert not candidates
    assert not refusals
    module, candidates, refusals = proposals(lambda x: jnp.sin(product(x)), ARGS[0])
    graph = entry_graph(module)
    (seed,) = {c.step.params.value for c in candidates}
    assert seed not in (*graph.arguments, *graph.returned)
    assert not refusals


def test_a_step_for_another_module_is_an_error():
    module = normal(program_of(lambda x: jnp.sin(x), ARGS[0]))
    value = next(v.index for v in entry_graph(module).values if v.is_computed)
    with pytest.raises(ValueError, match="nothing to split"):
        split(module, Split(path=(), value=value, dimension=0, big_bytes=1, chunk=2))


def test_loops_keep_the_lines_they_come_from():
    module = normal(program_of(scores, *ARGS))
    located = str(apply_split(module, possible_splits(module)[0], 5).operation.get_asm(enable_debug_info=True))
    body = located[located.index("stablehlo.while") :]
    assert "test_split_into_loops.py" in body
    assert "loc(unknown)" not in body[: body.index("return %")]


def test_shapes_types_and_attributes_of_main_are_kept():
    program = program_of(jax.jit(scores, donate_argnums=(2,)), *ARGS)
    module = normal(program)
    signature = next(line for line in text(module).splitlines() if "@main" in line)
    for possible in possible_splits(module):
        assert signature in text(apply_split(module, possible, 7))


def test_indices_beyond_32_bits_are_refused():
    n = 2**31 + 8
    program = jax.export.export(jax.jit(lambda x: (jnp.exp(x) * 2).sum()), platforms=["cpu"])
    with jax.enable_x64(True):
        from stablehlo_mem.frontend.program import ingest

        module = normal(ingest(program(spec(n))))
    graph = entry_graph(module)
    goal = Goal(CHIPS["cpu"], Options(), 0)
    assert not [c for c in PASS.propose(graph, find_peak(graph, goal.chip), goal) if isinstance(c, Candidate)]
