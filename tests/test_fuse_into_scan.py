"""fuse-into-scan: what reads a scan's stack row by row runs in the scan's loop."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import stablehlo_mem as shm
from stablehlo_mem.analysis.peak_memory import find_peak
from stablehlo_mem.frontend.canonicalize import attach_rules, canonicalize
from stablehlo_mem.ir.bindings import clone_module, parse_module
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Refusal
from stablehlo_mem.passes.fuse_into_scan import FuseIntoScan
from stablehlo_mem.passes.rematerialise import Rematerialise
from stablehlo_mem.rewriting.scan_stacks import find_scan
from stablehlo_mem.splitting.split_step import Split, split
from stablehlo_mem.targets.chips import CHIPS
from tests.support import exported, fusable, normal, normals, program_of, run, spec
from tests.textual import source_and_expected

STEPS, ROWS, WIDTH = 32, 8, 16
X, W, T = normals(STEPS, ROWS, WIDTH), normals(WIDTH, WIDTH), normals(STEPS, ROWS, WIDTH)


def states(x, w):
    """The last state of a recurrence, and all of them."""

    def step(h, row):
        h = jnp.tanh(row @ w + h)
        return h, h

    return lax.scan(step, jnp.zeros((ROWS, WIDTH), x.dtype), x)


def stacks_left(module):
    graph = entry_graph(module)
    return [scan.rows for op in graph.ops if (scan := find_scan(graph, op, backwards=True)) is not None]


def squares(x, w, t):
    last, ys = states(x, w)
    return ((ys - jnp.sin(t)) ** 2).sum(), last


def largest_and_products(x, w, t):
    _, ys = states(x, w)
    return ys.max(0), jnp.einsum("tbi,tbj->ij", ys, t), (ys > 0).any((1, 2))


def written_anew(x, w, t):
    """A stack of what is computed of the rows takes the place of the stack."""
    _, ys = states(x, w)
    return jnp.cos(ys) * t


def two_stacks(x, w, t):
    def step(h, row):
        h = jnp.tanh(row @ w + h)
        return h, (h, jnp.exp(h))

    _, (a, b) = lax.scan(step, jnp.zeros((ROWS, WIDTH), x.dtype), x)
    return (a * b).sum() + t.sum()


def counted(x, w, t):
    """The rows' numbers matter."""
    _, ys = states(x, w)
    return (ys * jnp.arange(STEPS, dtype=ys.dtype)[:, None, None] + t).sum(0)


def from_the_last(x, w, t):
    """A reversed scan writes its last row first."""

    def step(h, row):
        h = jnp.tanh(row @ w + h)
        return h, h

    _, ys = lax.scan(step, jnp.zeros((ROWS, WIDTH), x.dtype), x, reverse=True)
    return (ys * jnp.arange(STEPS, dtype=ys.dtype)[:, None, None] * t).sum((0, 1)), jnp.cos(ys) * t


def both_ways(x, w, t):
    """Rows of one stack come in another order than those of the other, which is read as it lies."""
    return (states(x, w)[1] * from_the_last(x, w, t)[1]).sum()


@pytest.mark.parametrize("fun", [squares, largest_and_products, written_anew, two_stacks, counted, from_the_last])
def test_results_are_the_same(fun):
    program = program_of(fun, X, W, T)
    module = normal(program)
    before = stacks_left(module)
    candidate = next(one for one in fusable(entry_graph(module)) if isinstance(one, Candidate))
    FuseIntoScan().apply(module, candidate.step.params)
    assert module.operation.verify()
    assert stacks_left(module) != before
    assert len([op for op in entry_graph(module).ops if op.name == "stablehlo.while"]) == 1
    for got, want in zip(run(program, module, X, W, T), run(program, None, X, W, T), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


def returned(x, w, t):
    _, ys = states(x, w)
    return ys, (ys * t).sum()


def of_all_rows(x, w, t):
    """A softmax over the steps needs their maximum first."""
    _, ys = states(x, w)
    return (jax.nn.softmax(ys, 0) * t).sum(0)


def of_the_last_state(x, w, t):
    last, ys = states(x, w)
    return (ys * last).sum() + t.sum()


def in_reverse(x, w, t):
    _, ys = states(x, w)
    return lax.cumsum(ys[::-1], 0)[0] + t[0]


def test_a_stack_that_is_returned_stays():
    module = normal(program_of(returned, X, W, T))
    assert not fusable(entry_graph(module))


@pytest.mark.parametrize("fun", [of_all_rows, of_the_last_state, in_reverse])
def test_what_needs_more_than_a_row_is_refused(fun):
    module = normal(program_of(fun, X, W, T))
    found = fusable(entry_graph(module))
    assert found
    assert all(isinstance(one, Refusal) and one.code == "used-whole" for one in found)
    assert all("needs more than a row of it at a time" in one.message for one in found)


def test_nothing_moves_past_effects():
    source, _ = source_and_expected("fuse_into_scan")
    note = "  stablehlo.custom_call @note(%t) {has_side_effect = true} : (tensor<3x8x4xf32>) -> ()\n"
    before, after = source.split("  %8 =")
    for text, fuses in ((source, True), (f"{before}{note}  %8 ={after}", False)):
        module = parse_module(text)
        canonicalize(module)
        (found,) = fusable(entry_graph(module))
        assert isinstance(found, Candidate) == fuses


def test_a_loop_that_reads_some_rows_at_a_time_stays():
    """One that an earlier split made of another reader."""

    def fun(x, w, t):
        _, ys = states(x, w)
        return (jnp.exp(ys) * t).sum((0, 1)), (jnp.cos(ys) * t).sum()

    program = program_of(fun, X, W, T)
    module = normal(program)
    graph = entry_graph(module)
    (value,) = (op.results[0] for op in graph.ops if op.name == "stablehlo.exponential")
    split(module, Split(path=(), value=value, dimension=0, big_bytes=STEPS * ROWS * WIDTH * 4, chunk=4))
    attach_rules(module)
    candidate = next(one for one in fusable(entry_graph(module)) if isinstance(one, Candidate))
    FuseIntoScan().apply(module, candidate.step.params)
    assert module.operation.verify()
    assert len([op for op in entry_graph(module).ops if op.name == "stablehlo.while"]) == 2
    for got, want in zip(run(program, module, X, W, T), run(program, None, X, W, T), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


def test_of_two_scans_one_takes_in_the_readers():
    program = program_of(both_ways, X, W, T)
    module = normal(program)
    candidates = [one for one in fusable(entry_graph(module)) if isinstance(one, Candidate)]
    assert candidates
    for candidate in candidates:
        copy = clone_module(module)
        FuseIntoScan().apply(copy, candidate.step.params)
        assert copy.operation.verify()
        (got,), (want,) = run(program, copy, X, W, T), run(program, None, X, W, T)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


def recurrent_loss(x, wi, wh):
    """The mean square of a recurrence's states, and its gradient: all states are read whole, twice."""

    def loss(wi, wh):
        def step(h, row):
            gate, new = jnp.split(row @ wi + h @ wh, 2, 1)
            h = h + jax.nn.sigmoid(gate) * (jnp.tanh(new) - h)
            return h, h

        return (lax.scan(step, jnp.zeros((64, 128), x.dtype), x)[1] ** 2).mean()

    return jax.value_and_grad(loss, (0, 1))(wi, wh)


@pytest.mark.parametrize(
    ("options", "segments"),
    [
        (shm.Options(), False),
        (shm.Options(numerics="exact"), True),
        (shm.Options(passes=("rematerialise",)), True),
    ],
)
def test_segments_wait_for_the_readers(options, segments):
    """In segments a loop has no rows of steps any more, so readers join it before; unless options forbid that."""
    args = normals(64, 64, 32), normals(32, 256), normals(128, 256)
    module = normal(program_of(recurrent_loss, *args))
    graph = entry_graph(module)
    goal = Goal(CHIPS["cuda:h200"], options, 0)
    found = Rematerialise().propose(graph, find_peak(graph, goal.chip), goal)
    steps = [one.step.params for one in found if isinstance(one, Candidate)]
    assert steps
    assert any(step.segment > 1 for step in steps) == segments


def test_a_recurrent_step_in_a_tenth_of_its_temporaries():
    """What a step stores is computed again in segments once nothing reads the states whole."""
    args = spec(64, 64, 32), spec(32, 256), spec(128, 256)
    program = exported(recurrent_loss, *args, platform="cuda")
    before = shm.profile(program, target="cuda:h200")
    budget = before.peak_bytes - before.temp_bytes + before.temp_bytes // 10
    assert before.peak_bytes > budget
    passes = "rematerialise", "recompute-in-loops", "narrow"
    without, plan = (
        shm.plan(program, budget, target="cuda:h200", options=shm.Options(cache=False, passes=names))
        for names in (passes, (*passes, "fuse-into-scan"))
    )
    assert not without.fits
    assert plan.fits
    assert plan.after.peak_bytes <= budget
    assert "fuse-into-scan" in [step.pass_name for step in plan.steps]
