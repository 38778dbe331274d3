"""Axes through control flow: loops over time whose states carry a batch are split over the batch as a whole.

Every axis that passes gives the right results; the programs of the last part keep a tenth of their temporaries.
"""

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stablehlo_mem as shm
from stablehlo_mem.analysis.peak_memory import find_peak
from stablehlo_mem.frontend.canonicalize import canonicalize
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.ir.bindings import parse_module
from stablehlo_mem.ir.graph import entry_graph, nested_graph
from stablehlo_mem.pass_api.candidate import Goal, Options
from stablehlo_mem.passes import PASSES
from stablehlo_mem.planner.discrepancy_search import search
from stablehlo_mem.planner.greedy_search import cheapen, propose
from stablehlo_mem.planner.search_state import start
from stablehlo_mem.rewriting.rewriting_pass import block_paths
from stablehlo_mem.sharding_rules import rule_book
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.sharding_rules.region_propagation import split_of
from stablehlo_mem.splitting.axis import grow_axis
from stablehlo_mem.targets.chips import CHIPS
from tests import support
from tests.programs.over_time import PROGRAMS, adaptive_ode, hmm, rnn, rnn_loss, solve_each
from tests.support import (
    OPTIMISED,
    UNOPTIMISED,
    apply_split,
    exported,
    in_f64,
    memory_of,
    normal,
    possible_splits,
    program_of,
    run,
    same_bits,
    spec,
    yardstick,
)
from tests.test_numerics import check as check_numerics

RNG = np.random.default_rng(0)
BATCH = 7


@pytest.fixture(autouse=True)
def same_numbers_in_any_order():
    RNG.bit_generator.state = np.random.default_rng(1).bit_generator.state


def real(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def through(possibles, n=BATCH):
    """The splits of the function's block along an axis of n elements that run a whole loop in each chunk."""
    return [
        p
        for p in possibles
        if not p.path and p.axis.n == n and any(p.graph.ops[o].name == "stablehlo.while" for o in p.schedule.inner_ops)
    ]


check = functools.partial(check_numerics, options=OPTIMISED)
"""Nearly all multiply matrices in loops: without LLVM's optimisations the bits of their sums go by the shape."""

OTHER_BITS = {"hmm_grad"}
"""XLA:CPU sums a vector of another length in another order."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_axis(name):
    fun, *shapes = PROGRAMS[name]
    args = [a if isinstance(a, np.ndarray) else real(*a) for a in shapes]
    possibles = check(fun, *args, splits=3, bitwise=name not in OTHER_BITS)
    (split,) = through(possibles)
    if name.endswith("_grad"):
        assert any(item.accumulated for item in split.schedule.outputs)
    else:
        assert not split.regroups or name == "sums_over_the_batch"


def state_sums(init):
    """Sums over the batch in every form a carry can hold them, from initial values that are not zero."""

    def fun(xs, w, ids):
        def step(carry, xi):
            h, total, stack, table, t = carry
            x, i = xi
            h = jnp.tanh(h @ w + x)
            part = 2 * (x.T @ h).T - w
            total = total + part / 3 + w
            stack = jax.lax.dynamic_update_slice(stack, h.sum(0)[None] * 2, (t, 0 * t))
            table = table.at[i].add(h)
            return (h, total, stack, table, t + 1), jnp.concatenate([h.sum(0), part[0]])

        start = (jnp.zeros_like(xs[0]), init + w, init + jnp.ones((9, 4)), init + jnp.ones((5, 4)), 1)
        (h, total, stack, table, t), ys = jax.lax.scan(step, start, (jnp.exp(xs), ids))
        return total, stack, table, ys, t, h.sum(1)

    return fun


@pytest.mark.parametrize("init", [0.0, 3.0])
def test_sums_over_the_batch_are_added_up(init):
    ids = RNG.integers(0, 5, (5, BATCH)).astype(np.int32)
    args = real(5, BATCH, 4), real(4, 4), ids
    possibles = check(state_sums(init), *args, splits=8)
    (split,) = through(possibles)
    assert sum(item.accumulated for item in split.schedule.outputs) >= 4


def test_sums_in_loops_in_loops_and_branches():
    def fun(xs, w):
        def outer(carry, x):
            def inner(i, carry):
                h, total = carry
                h = jnp.tanh(h @ w + x)
                more = jax.lax.cond(i % 2 == 0, lambda: h.T @ x, lambda: w)
                return h, total + more

            return jax.lax.fori_loop(0, 3, inner, carry), carry[0].sum(1)

        (h, total), ys = jax.lax.scan(outer, (jnp.zeros_like(xs[0]), w), jnp.sin(xs))
        return h.sum(1), total, ys.sum(0)

    possibles = check(fun, real(5, BATCH, 4), real(4, 4), splits=8)
    (split,) = through(possibles)
    assert split.reducing


def test_what_does_not_depend_on_the_axis_leaves_too():
    """The counter and a key that the loop carries are equal in every chunk."""

    def fun(xs, w):
        def step(carry):
            i, w, h = carry
            return i + 2, w @ w / 3, jnp.tanh(h @ w + xs[i])

        i, w, h = jax.lax.while_loop(lambda c: c[0] < 5, step, (0, w, jnp.sin(xs[0])))
        return i, w * 2, (h * h).sum(1)

    # XLA:CPU may contract a multiplication and an addition or not, by the shape: see OTHER_BITS in test_numerics.
    possibles = check(fun, real(7, BATCH, 4), real(4, 4), bitwise=False)
    (split,) = through(possibles)
    left = {split.graph.values[item.value].shape for item in split.schedule.outputs}
    assert {(), (4, 4), (BATCH,)} <= left
    assert not split.reducing


def test_merged_dimensions_in_the_body():
    """Heads and batch are one dimension inside: the axis is the batch alone."""

    def fun(x, w):
        def step(i, h):
            flat = jnp.tanh(h.reshape(BATCH * 3, 4) @ w)
            return flat.reshape(BATCH, 3, 4)

        return jax.lax.fori_loop(0, 4, step, jnp.exp(x)).sum((1, 2))

    possibles = check(fun, real(BATCH, 3, 4), real(4, 4))
    assert len(through(possibles)) == 1


def test_a_carry_merged_more_finely_gives_a_coarser_axis():
    def fun(x, w):
        def step(i, h):
            return jnp.tanh(h.reshape(BATCH, 3, 4) @ w).reshape(BATCH * 3, 4)

        return jnp.log(1 + jax.lax.fori_loop(0, 4, step, jnp.exp(x)) ** 2).sum(1)

    possibles = check(fun, real(BATCH * 3, 4), real(4, 4))
    assert through(possibles)


@given(batch=st.integers(2, 13), chunk=st.integers(1, 12), gradient=st.booleans())
@settings(max_examples=8, deadline=None, derandomize=True, database=None)
def test_ragged_batches(batch, chunk, gradient):
    fun = jax.grad(rnn_loss, (0, 1, 2)) if gradient else rnn
    args = real(4, batch, 17), real(15, 15), real(17, 15)
    program = program_of(fun, *args)
    module = normal(program)
    (split,) = through(possible_splits(module, big_bytes=(1,)), batch)
    changed = apply_split(module, split, min(chunk, batch))
    results, olds = (run(program, one, *args, options=OPTIMISED) for one in (changed, module))
    for new, old, exact in zip(results, olds, in_f64(fun, *args), strict=True):
        assert yardstick(new, old, exact) is None
        assert gradient or same_bits(new, old)


REFUSED = {
    # a step of a scan over h and x of 7 x 4: what the refusal names
    "sort": (lambda h, x: (jnp.sort(h + x, 0), h), "stablehlo.sort", "elements are ordered along it"),
    "cumsum": (lambda h, x: (jnp.cumsum(h, 0) + x, h), "stablehlo.reduce_window", "it goes on from chunk to chunk"),
    "batch_norm": (lambda h, x: (h - h.mean(0) + x, h), "stablehlo.", "which is there after the last chunk only"),
    "maximum": (lambda h, x: (h + x, h.max(0)), "stablehlo.reduce", "cannot be added up chunk by chunk"),
    "two_dimensions": (lambda h, x: (h @ h.T @ x, h), "stablehlo.dot_general", ""),
    "narrow_sums": (
        lambda h, x: (h + x, h.astype(jnp.bfloat16).sum(0, dtype=jnp.bfloat16)),
        "stablehlo.reduce",
        "cannot be added up chunk by chunk",
    ),
}


def refusals(fun, *shapes):
    state = start(normal(program_of(fun, *(np.zeros(s, np.float32) for s in shapes))), Goal(CHIPS["cpu"], Options(), 0))
    return [r for r in propose(state, Goal(CHIPS["cpu"], Options(), 0))[1] if r.message.startswith("stablehlo.while")]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_in_the_way_inside_is_named_with_its_line(name):
    step, op, reason = REFUSED[name]

    def fun(xs):
        h, ys = jax.lax.scan(step, jnp.zeros_like(xs[0]), jnp.exp(xs))
        return h.sum(0), ys.sum(0)

    found = [r for r in refusals(fun, (40, 700, 4)) if r.dimension == 1 and "700" in r.value]
    assert found
    for refusal in found:
        assert f"in it {op}" in refusal.message
        assert "test_region_propagation.py" in refusal.message
        assert reason in refusal.message
        assert "test_region_propagation.py" in refusal.location


def keep_all(y):
    """Nothing is as before where it would stop."""
    return jax.lax.while_loop(lambda c: (c > 1).any(), lambda c: c / 2, y)


def keep_some(y):
    """A count goes on for all."""

    def step(state):
        c, count = state
        return jnp.where((c > 1).any(1, keepdims=True), c / 2, c), count + 1

    c, count = jax.lax.while_loop(lambda s: (s[0] > 1).any(), step, (y, 0))
    return c * count


def keep_others(y):
    """Kept is what something else decides than whether to go on."""
    return jax.lax.while_loop(lambda c: (c > 1).any(), lambda c: jnp.where(c > 0.5, c / 2, c), y)


@pytest.mark.parametrize("fun", [keep_all, keep_some, keep_others])
def test_a_condition_on_the_whole_batch_is_refused(fun):
    """Chunks would stop at other steps, and leave other elements behind."""
    found = [r for r in refusals(lambda y: fun(jnp.exp(y)).sum(1), (700, 4)) if r.dimension == 0]
    assert found
    assert "stablehlo.reduce" in found[0].message
    assert "the condition of the loop depends on the dimension" in found[0].message


def test_what_is_apart_in_a_loop_is_split_too():
    """Two states that never meet, each with the batch: no chunk steps through all of the other."""

    def fun(x, y):
        step = lambda i, c: (jnp.sin(c[0]) * 2, jnp.cos(c[1]) + i)  # noqa: E731
        x, y = jax.lax.fori_loop(0, 4, step, (jnp.exp(x), jnp.exp(y)))
        return x.sum(1), y.sum(1)

    possibles = check(fun, real(BATCH, 4), real(BATCH, 5))
    (split,) = through(possibles)
    loop = next(op for op in split.graph.ops if op.name == "stablehlo.while")
    (node,) = (node for node in split.axis.split_ops if node.op == loop.index)
    assert sorted(split.graph.values[loop.results[i]].shape for i, d in enumerate(node.result_dims) if d == 0) == [
        (BATCH, 4),
        (BATCH, 5),
    ]


def test_empty_states_are_split_along():
    def fun(x, nothing):
        step = lambda i, c: (jnp.sin(c[0]) * 2, c[1] * 2)  # noqa: E731
        x, nothing = jax.lax.fori_loop(0, 4, step, (jnp.exp(x), nothing))
        return x.sum(1), nothing

    plan = shm.plan(exported(fun, spec(65536, 64), spec(65536, 0)), "min", target="cpu")
    assert plan.before.peak_bytes > plan.after.peak_bytes
    assert plan.steps


def test_effects_in_a_body_are_not_repeated():
    body = """
      func.func public @main(%x: tensor<6x3xf32>) -> tensor<6x3xf32> {
        %e = stablehlo.exponential %x : tensor<6x3xf32>
        %zero = stablehlo.constant dense<0> : tensor<i32>
        %r:2 = stablehlo.while(%i = %zero, %c = %e) : tensor<i32>, tensor<6x3xf32>
        cond {
          %n = stablehlo.constant dense<5> : tensor<i32>
          %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %more : tensor<i1>
        } do {
          %j = stablehlo.custom_call @count(%i) {has_side_effect = true} : (tensor<i32>) -> tensor<i32>
          %s = stablehlo.sine %c : tensor<6x3xf32>
          stablehlo.return %j, %s : tensor<i32>, tensor<6x3xf32>
        }
        return %r#1 : tensor<6x3xf32>
      }"""
    graph = support.graph_of(body)
    seed = next(v.index for v in graph.values if v.shape == (6, 3) and v.is_computed)
    (obstacle,) = grow_axis(graph, rule_book(graph), (seed, 0), 1).obstacles
    assert "@count" in obstacle.blocked.message or "stablehlo.custom_call" in obstacle.blocked.message
    assert "side effects" in obstacle.blocked.message


BIG = {
    "rnn": (rnn, spec(48, 2048, 64), spec(64, 64), spec(64, 64)),
    "rnn_grad": (jax.grad(rnn_loss, (1, 2)), spec(48, 2048, 64), spec(64, 64), spec(64, 64)),
    "ode": (PROGRAMS["ode"][0], spec(65536, 32), spec(32, 32)),
    "ode_grad": (PROGRAMS["ode_grad"][0], spec(20_000, 16), spec(16, 16)),
    "solve_each": (solve_each, spec(65536, 32), spec(32, 32)),
    "adaptive_ode": (adaptive_ode, spec(20_000, 16), spec(16, 16)),
    "counted_while": (lambda y: PROGRAMS["counted_while"][0](y, 4), spec(65536, 64)),
    "hmm": (hmm, spec(32, 2048, dtype=np.int32), spec(64, 64), spec(64, 50)),
    "hmm_grad": (PROGRAMS["hmm_grad"][0], spec(12, 512, dtype=np.int32), spec(32, 32), spec(32, 50)),
    "layers_grad": (PROGRAMS["layers_grad"][0], spec(16384, 64), spec(8, 64, 64), spec(8, 64)),
}
APART = {"rnn", "rnn_grad"}
"""With larger weights their states run apart where XLA:CPU's dots round by their shapes (seen with AVX2)."""
INSIDE = {"hmm"}
"""What is big there lives in one step: the loop over chunks may be inside as well."""


@pytest.mark.parametrize("name", BIG)
def test_the_budget_is_kept(name):
    fun, *specs = BIG[name]
    fixed, temporaries = memory_of(jax.jit(fun).lower(*specs).compile(compiler_options=UNOPTIMISED))
    budget = fixed + temporaries // 10
    # A loop that is split, rather than one that takes in what reads its states.
    options = shm.Options(passes=tuple(one.name for one in PASSES if one.name != "fuse-into-scan"))
    plan = shm.plan(exported(fun, *specs), budget, target="cpu", options=options)
    assert plan.before.peak_bytes > budget
    assert plan.fits
    compiled = jax.jit(plan.result.call).lower(*specs).compile(compiler_options=OPTIMISED)
    assert sum(memory_of(compiled)) <= budget
    first = next(step for step in plan.steps if step.pass_name == "split-into-loops")
    assert name in INSIDE or first.params.path == ()
    # The static profile sees the chunks' loops too.
    assert plan.after.temp_bytes <= 2 * temporaries // 10
    scale = 0.1 if name in APART else 0.3
    args = [scale * real(*s.shape) if s.dtype == np.float32 else np.zeros(s.shape, s.dtype) + 3 for s in specs]
    whole = jax.jit(fun).lower(*specs).compile(compiler_options=OPTIMISED)
    pairs = zip(jax.tree.leaves(compiled(*args)), jax.tree.leaves(whole(*args)), strict=True)
    for new, old in pairs:
        np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-4 * float(np.abs(old).max()))


def test_an_inner_loop_is_counted_in_the_profile():
    """What one chunk's loop over time holds is at the peak of the split program."""
    fun, *specs = BIG["rnn"]
    plan = shm.plan(exported(fun, *specs), "32MiB", target="cpu")
    peak = find_peak(support.graph_of(support.ingest(plan.result)), CHIPS["cpu"])
    assert peak.path
    assert any(live.path for live in peak.live)


def network_with_a_branch(x, w):
    """Layers of which one is chosen at run time: its gradient can be split along either dimension of the weights."""
    y = x[:, ::-1]
    y = y + jax.lax.cond(y.sum() > 0, jnp.sin, lambda y: y @ w, y)
    y = jnp.sort(y, -1)
    weights = jnp.broadcast_to(w, (3, 3, 32, 32))
    y = jax.lax.conv_general_dilated(y, weights, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    pooled = jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    y = jax.image.resize(pooled, y.shape, "nearest")
    y = y + y.reshape(8, 8, 2, 8, 2, 32).transpose(0, 1, 3, 2, 4, 5).reshape(8, 16, 16, 32)
    return jnp.square(y).mean()


def test_a_split_is_the_same_from_whichever_edge_it_is_found():
    module = exported(jax.grad(network_with_a_branch, (0, 1)), spec(8, 16, 16, 32), spec(32, 32), platform="cuda")
    begun = start(normal(ingest(module)), Goal(CHIPS["cuda:h200"], Options(), 0))
    goal = Goal(CHIPS["cuda:h200"], Options(), begun.peak.temp_bytes // 5)
    found, _ = search(cheapen(begun, goal, any_peak=False), goal)
    assert found.peak.temp_bytes < begun.peak.temp_bytes


def test_splits_in_loops_in_loops_are_found_again():
    module = parse_module((pathlib.Path(__file__).parent / "programs" / "loops_in_loops.mlir").read_text())
    canonicalize(module)
    main, found = entry_graph(module), 0
    for path in block_paths(main):
        graph = nested_graph(main, path)
        for op in (op for op in graph.ops if op.name == "stablehlo.while"):
            for position, value in enumerate(op.inputs):
                for dimension, n in enumerate(graph.values[value].shape):
                    split_op = rule_book(graph).split(op.index, "operands", position, dimension, n)
                    if isinstance(split_op, SplitOp):
                        assert split_of(rule_book(graph).region(op.index), split_op).n == n
                        found += 1
    assert found >= 10
