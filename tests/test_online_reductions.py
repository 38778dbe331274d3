"""Streaming: one loop where there were as many as barriers, right for masks, precisions and sizes of every kind."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stablehlo_mem as shm
from stablehlo_mem.analysis.peak_memory import find_peak
from stablehlo_mem.frontend.canonicalize import attach_rules
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Options
from stablehlo_mem.passes.split_into_loops import SplitIntoLoops
from stablehlo_mem.splitting.split_step import split
from stablehlo_mem.targets.chips import CHIPS
from tests.support import (
    HONEST,
    Possible,
    apply_split,
    exported,
    in_f64,
    memory_of,
    normal,
    normals,
    possible_splits,
    program_of,
    run,
    spec,
    text,
    yardstick,
)


def scores(q, k):
    return jnp.einsum("id,jd->ij", q, k)


def attention(q, k, v):
    return jax.nn.softmax(scores(q, k), -1) @ v


def divided_last(q, k, v):
    s = scores(q, k)
    e = jnp.exp(s - s.max(-1, keepdims=True))
    return (e @ v) / e.sum(-1, keepdims=True)


def reciprocal(q, k, v):
    s = scores(q, k)
    e = jnp.exp(s - s.max(-1, keepdims=True))
    return (e * (1 / e.sum(-1, keepdims=True))) @ v


def from_logarithms(q, k, v):
    return jnp.exp(jax.nn.log_softmax(scores(q, k), -1)) @ v


def causal(q, k, v, low=-jnp.inf):
    s = scores(q, k)
    seen = jnp.arange(s.shape[0])[:, None] > jnp.arange(s.shape[1])
    return jax.nn.softmax(jnp.where(seen, s, low), -1) @ v


def empty_rows_give_zeros(q, k, v):
    s = scores(q, k)
    seen = jnp.arange(s.shape[0])[:, None] > jnp.arange(s.shape[1])
    s = jnp.where(seen, s, -jnp.inf)
    m = s.max(-1, keepdims=True)
    e = jnp.where(seen, jnp.exp(s - jnp.where(jnp.isfinite(m), m, 0)), 0)
    total = e.sum(-1, keepdims=True)
    return (e @ v) / jnp.where(total == 0, 1, total)


def logsumexp(q, k):
    return jax.nn.logsumexp(scores(q, k), -1)


def unguarded_logsumexp(q, k):
    s = scores(q, k)
    m = s.max(-1)
    return m + jnp.log(jnp.exp(s - m[:, None]).sum(-1))


def cross_entropy(h, w, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(scores(h, w), -1), y[:, None], 1).mean()


def cross_entropy_of_logsumexp(h, w, y):
    logits = scores(h, w)
    return (jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, y[:, None], 1)[:, 0]).mean()


def unit_rows(q, k, v):
    s = jnp.sin(scores(q, k))
    return (s / jnp.sqrt((s * s).sum(-1, keepdims=True))) @ v


def grouped_queries(q, k, v, bias):
    return jax.nn.dot_product_attention(q, k, v, bias=bias, is_causal=True)


gradient = jax.grad(lambda *args: jnp.tanh(attention(*args)).sum(), (0, 1, 2))
gradient_of_loss = jax.value_and_grad(cross_entropy, (0, 1))


def qkv(dtype=np.float32):
    return [3 * normals(*shape, seed=3).astype(dtype) for shape in ((11, 4), (13, 4), (13, 5))]


def grouped(dtype=np.float32):
    shapes = ((2, 11, 4, 3), (2, 13, 2, 3), (2, 13, 2, 3), (2, 4, 11, 13))
    return [2 * normals(*shape, seed=5).astype(dtype) for shape in shapes]


LABELS = np.random.default_rng(0).integers(0, 13, 11).astype(np.int32)

PROGRAMS = {
    "attention": (3, 1, attention, *qkv()),
    "attention_bf16": (3, 1, attention, *qkv(jnp.bfloat16)),
    "attention_f16": (3, 1, attention, *qkv(np.float16)),
    "divided_last": (2, 1, divided_last, *qkv()),
    "reciprocal": (3, 1, reciprocal, *qkv()),
    "from_logarithms": (3, 1, from_logarithms, *qkv()),
    "causal": (3, 1, causal, *qkv()),
    "causal_lowest": (3, 1, lambda *a: causal(*a, low=jnp.finfo(jnp.float32).min), *qkv()),
    "empty_rows_give_zeros": (2, 1, empty_rows_give_zeros, *qkv()),
    "logsumexp": (2, 1, logsumexp, *qkv()[:2]),
    "unguarded_logsumexp": (2, 1, unguarded_logsumexp, *qkv()[:2]),
    "cross_entropy": (3, 1, cross_entropy, *qkv()[:2], LABELS),
    "cross_entropy_of_logsumexp": (2, 1, cross_entropy_of_logsumexp, *qkv()[:2], LABELS),
    "unit_rows": (2, 1, unit_rows, *qkv()),
    "grouped_queries": (3, 1, grouped_queries, *grouped()),
    "grouped_queries_bf16": (3, 1, grouped_queries, *grouped(jnp.bfloat16)),
    "gradient": (5, 3, gradient, *qkv()),
    "gradient_of_loss": (3, 2, gradient_of_loss, *qkv()[:2], LABELS),
}
"""Loops without streaming, loops with it, and the function with its arguments."""


def along_columns(fun, *args) -> tuple[Possible, Possible]:
    """The split of the scores along their columns that takes most loops, and the same, streaming."""
    program = program_of(fun, *args)
    module = normal(program)
    big = max(value.nbytes for value in entry_graph(module).values) // 2
    found = possible_splits(module, (big,), all_forms=True)
    plain = max((p for p in found if not p.streams), key=lambda p: p.schedule.loop_count)
    return plain, next(p for p in found if p.streams and p.axis.seed == plain.axis.seed)


def streamed(fun, *args, chunk=4) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The results of the streaming split, of the original, and in double precision."""
    program = program_of(fun, *args)
    _, streaming = along_columns(fun, *args)
    new = run(program, apply_split(normal(program), streaming, chunk), *args)
    return list(zip(new, run(program, None, *args), in_f64(fun, *args), strict=True))


def faults(fun, *args, chunk=4) -> list[str]:
    """What the yardstick finds wrong with the results of the streaming split."""
    return [fault for fault in (yardstick(*three) for three in streamed(fun, *args, chunk=chunk)) if fault]


@pytest.mark.parametrize("name", PROGRAMS)
def test_fewer_loops_and_the_same_results(name):
    before, after, fun, *args = PROGRAMS[name]
    plain, streaming = along_columns(fun, *args)
    assert (plain.schedule.loop_count, streaming.schedule.loop_count) == (before, after)
    program = text(apply_split(normal(program_of(fun, *args)), streaming, 4))
    assert program.count("stablehlo.while") == after
    assert not faults(fun, *args)


@pytest.mark.parametrize("chunk", [1, 5, 12])
def test_chunks_that_do_not_divide_the_axis(chunk):
    assert not faults(attention, *qkv(), chunk=chunk)


def test_f64():
    with jax.enable_x64(True):
        assert not faults(attention, *qkv(np.float64))


def test_scores_are_computed_once():
    plain, streaming = along_columns(attention, *qkv())
    module = normal(program_of(attention, *qkv()))
    dots = [text(apply_split(module, one, 4)).count("stablehlo.dot_general") for one in (plain, streaming)]
    assert dots == [4, 2]


INF = np.inf
ROWS = {
    "masked": [-INF] * 6,
    "masked at first": [-INF, -INF, -INF, -INF, 1.0, -200.0],
    "masked at last": [-300.0, 2.0, -INF, -INF, -INF, -INF],
    "infinite": [1.0, 2.0, 100.0, INF, 3.0, -INF],
    "no number": [1.0, np.nan, 2.0, -INF, 0.0, 0.0],
    "far apart": [-3e38, -1.0, 3e38, 0.0, -3e38, 0.0],
}


@pytest.mark.parametrize("chunk", [1, 4])
@pytest.mark.parametrize("guarded", [False, True])
def test_infinite_and_masked_rows(guarded, chunk):
    def parts(s, v):
        s = s + jnp.sin(jnp.zeros_like(s))
        m = s.max(-1, keepdims=True)
        m = jnp.where(jnp.isfinite(m), m, 0) if guarded else m
        e = jnp.exp(s - m)
        total = e.sum(-1, keepdims=True)
        return (e / total) @ v, total, jnp.log(total) + m

    results = streamed(parts, np.asarray(list(ROWS.values()), np.float32), normals(6, 2), chunk=chunk)
    wrong = [(row, yardstick(*(a[i] for a in three))) for three in results for i, row in enumerate(ROWS)]
    assert not [fault for fault in wrong if fault[1]]


def test_a_fully_masked_row_is_what_it_was():
    q, k, v = qkv()
    for low, value in ((-np.inf, np.full(5, np.nan)), (np.finfo(np.float32).min, v.mean(0))):
        ((new, _, _),) = streamed(functools.partial(causal, low=low), q, k, v)
        np.testing.assert_allclose(new[0], value, rtol=1e-5)


def selected_after_division(q, k, v):
    """An empty row is 0 here: its 0/0 are selected away one by one, not so once it is divided by its sum at the end."""
    s = scores(q, k)
    seen = jnp.arange(s.shape[0])[:, None] > jnp.arange(s.shape[1])
    e = jnp.where(seen, jnp.exp(s), 0)
    return jnp.where(seen, e / e.sum(-1, keepdims=True), 0) @ v


def maximum_of_others(q, k, v):
    """What is so far no larger than the maximum of something else may overflow."""
    s = scores(q, k)
    return jnp.exp(s - jnp.sin(s).max(-1, keepdims=True)) @ v


def maximum_of_some(q, k, v):
    s = scores(q, k)
    seen = jnp.arange(s.shape[0])[:, None] > jnp.arange(s.shape[1])
    return jax.nn.softmax(s, -1, where=seen) @ v


def deviations(q, k, v):
    """A square is not linear in what is subtracted from it."""
    s = jnp.sin(scores(q, k))
    return jnp.square(s - s.mean(-1, keepdims=True)) @ v


def quotient_of_exponentials(q, k, v):
    """A sum is no maximum: without it exponentials may overflow."""
    s = scores(q, k)
    return jnp.exp(s - s.mean(-1, keepdims=True)) @ v


@pytest.mark.parametrize(
    "fun", [selected_after_division, maximum_of_others, maximum_of_some, deviations, quotient_of_exponentials]
)
def test_what_would_not_be_the_same_takes_its_loops(fun):
    module = normal(program_of(fun, *qkv()))
    big = max(value.nbytes for value in entry_graph(module).values) // 2
    found = possible_splits(module, (big,), all_forms=True)
    assert max(p.schedule.loop_count for p in found) >= 2
    assert not any(p.streams for p in found)


def proposed(fun, *args, options=None):
    module = normal(program_of(fun, *args))
    goal = Goal(CHIPS["cpu"], options or Options(), 0)
    graph = entry_graph(module)
    found = SplitIntoLoops().propose(graph, find_peak(graph, goal.chip), goal)
    steps = [item.step.params for item in found if isinstance(item, Candidate)]
    return [params for params in steps if params.first is None]


def test_the_faster_of_both_is_proposed():
    narrow = proposed(attention, *(np.zeros(shape, np.float32) for shape in ((256, 64), (4096, 64), (4096, 64))))
    assert {(one.streaming, one.loops) for one in narrow if one.elements == 4096} == {(True, 1)}
    # Scores that cost next to nothing, and a result so wide that scaling it down at every step costs more.
    wide = proposed(attention, *(np.zeros(shape, np.float32) for shape in ((1024, 1), (512, 1), (512, 16384))))
    assert {(one.streaming, one.loops) for one in wide if one.elements == 512} == {(False, 3)}


def test_exact_numerics_do_not_stream():
    args = [np.zeros((256, 64), np.float32)] * 3
    exact, free = (proposed(attention, *args, options=Options(numerics=n)) for n in ("exact", "reassociate"))
    assert [one.streaming for one in exact] == [False, False]
    assert sorted(one.streaming for one in free) == [False, True]


def test_a_head_over_a_large_vocabulary():
    """Four tokens: only the vocabulary is long enough to be split."""
    h, w = normals(4, 16), 0.3 * normals(40_000, 16)
    labels = np.asarray([0, 39_999, 12_345, 7], np.int32)
    original = exported(cross_entropy, *(spec(*a.shape, dtype=a.dtype) for a in (h, w, labels)))
    budget = sum(a.nbytes for a in (h, w, labels)) + 64 * 1024
    plan = shm.plan(original, budget, target="cpu", options=shm.Options(max_slowdown=None))
    assert plan.before.peak_bytes > budget >= plan.after.peak_bytes
    assert plan.fits
    assert any("1 loop, streaming," in summary for summary in plan.summaries)
    compiled = jax.jit(plan.result.call).lower(h, w, labels).compile(compiler_options=HONEST)
    assert sum(memory_of(compiled)) <= budget
    new, old = np.asarray(compiled(h, w, labels)), np.asarray(original.call(h, w, labels))
    (exact,) = in_f64(cross_entropy, h, w, labels)
    assert yardstick(new, old, exact) is None


def test_steps_that_stream_apply_again():
    module = normal(program_of(attention, *qkv()))
    _, streaming = along_columns(attention, *qkv())
    decision = streaming.decision(4)
    assert decision.streaming
    assert dataclasses.replace(decision, streaming=False) != decision
    split(module, decision)
    assert text(module).count("stablehlo.while") == 1


def test_streaming_in_the_body_of_a_loop():
    """A few queries a step, and in each step a few keys at a time."""
    args = qkv()
    program = program_of(attention, *args)
    module = normal(program)
    rows = next(p for p in possible_splits(module, (11 * 13 * 2,)) if p.axis.n == 11)
    module = apply_split(module, rows, 4)
    attach_rules(module)
    found = possible_splits(module, (4 * 13 * 2,), all_forms=True)
    (columns,) = [p for p in found if p.path and p.streams and p.axis.n == 13]
    module = apply_split(module, columns, 5)
    assert text(module).count("stablehlo.while") == 2
    (new,), (old,), (exact,) = run(program, module, *args), run(program, None, *args), in_f64(attention, *args)
    assert yardstick(new, old, exact) is None
