"""rematerialise: rows of a scan's stacks computed again where they are read, with the same results."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import SingleDeviceSharding

import stablehlo_mem as shm
from stablehlo_mem.frontend.canonicalize import attach_rules, remove_rules
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.ir.loop_carries import invariant_carries
from stablehlo_mem.rewriting.scan_stacks import find_readers, find_scan
from tests.support import (
    droppable,
    exported,
    graph_of,
    in_segments,
    normal,
    normals,
    program_of,
    run,
    same_bits,
    spec,
    without_stacks,
)


def mlp(h, w):
    return h + jnp.tanh(h @ w) @ w.T, None


def attention(h, w):
    q, k, v = h @ w, h @ (w * 2), h @ (w - 1)
    return h + jax.nn.softmax(q @ k.T) @ v, jnp.abs(q).mean()


def dropout(state, w):
    h, key = state
    key, mine = jax.random.split(key)
    h = jnp.where(jax.random.bernoulli(mine, 0.5, h.shape), jnp.sin(h @ w), 0.0)
    return (h, key), None


def inner_scan(h, w):
    return jax.lax.scan(lambda c, row: (jnp.tanh(c + row[None] * c), c.sum()), h, w)


def looped(layer, carry=lambda h: h, out=lambda c: c, **how):
    def loss(h, weights):
        final, outputs = jax.lax.scan(layer, carry(h), weights, **how)
        extra = 0.0 if outputs is None else (jnp.asarray(outputs) ** 2).sum()
        return (jnp.cos(out(final)) ** 2).sum() + extra

    return jax.value_and_grad(loss, (0, 1))


H, W = normals(6, 8), normals(5, 8, 8) / 4
CASES = {
    "layers": (looped(mlp), H, W),
    "with outputs": (looped(attention), H, W),
    "random numbers": (looped(dropout, lambda h: (h, jax.random.key(0)), lambda c: c[0]), H, W),
    "scan in a scan": (looped(inner_scan), H, W),
    "two a step": (looped(mlp, unroll=2), H, normals(6, 8, 8) / 4),
    "bfloat16": (looped(mlp), H.astype(jnp.bfloat16), W.astype(jnp.bfloat16)),
    "its index": (looped(lambda h, w: (jnp.tanh(h @ w), h.sum()), lambda h: h), H, W),
    "counted": (
        looped(lambda c, w: ((jnp.sin(c[0] @ w) * (c[1] + 1.0), c[1] + 1.0), None), lambda h: (h, 0.0), lambda c: c[0]),
        H,
        W,
    ),
    "batched": (jax.vmap(looped(mlp), (0, None)), normals(3, 6, 8), W),
}


@pytest.mark.parametrize("name", CASES)
def test_computes_the_same(name):
    f, *args = CASES[name]
    program = program_of(f, *args)
    module = normal(program)
    assert without_stacks(module) > 0
    remove_rules(module)
    for new, old in zip(run(program, module, *args), run(program, None, *args), strict=True):
        assert same_bits(new, old)


def carried_bytes(graph):
    loops = [op for op in graph.ops if op.name == "stablehlo.while"]
    return sum(graph.values[v].nbytes for op in loops for v in op.results)


def test_a_layer_that_is_computed_again_shares_its_weights_with_the_gradient():
    """What reads them twice would gather them twice, where they lie on several devices."""
    module = normal(program_of(*CASES["layers"]))
    assert without_stacks(module) > 0
    backward = [op.blocks[1] for op in entry_graph(module).ops if op.name == "stablehlo.while"][-1]
    slices = [op for op in backward.ops if op.name == "stablehlo.dynamic_slice"]
    assert [backward.values[op.results[0]].shape for op in slices].count((1, *W.shape[1:])) == 1


@pytest.mark.parametrize("name", CASES)
def test_leaves_nothing_of_them(name):
    module = normal(program_of(*CASES[name]))
    before = entry_graph(module)
    dropped = without_stacks(module)
    attach_rules(module)
    after = entry_graph(module)
    assert dropped
    assert carried_bytes(after) < carried_bytes(before)
    again = [find_scan(after, op) for op in after.ops]
    assert not any(droppable(after, scan) for scan in again if scan)


@pytest.mark.parametrize("name", ["layers", "with outputs", "random numbers", "scan in a scan", "counted", "batched"])
@pytest.mark.parametrize("size", [2, 3])
def test_in_segments(name, size):
    f, h, _ = CASES[name]
    args = h, normals(6, 8, 8) / 4
    program = program_of(f, *args)
    module = normal(program)
    without_stacks(module)
    attach_rules(module)
    assert in_segments(module, size) > 0
    remove_rules(module)
    for new, old in zip(run(program, module, *args), run(program, None, *args), strict=True):
        assert same_bits(new, old)


def best_path(emissions, transitions):
    """Viterbi's algorithm: of what a step stores nothing is differentiated, and the steps' inputs are as large."""

    def step(scores, emission):
        candidates = scores[:, :, None] + transitions
        return candidates.max(1) + emission, candidates.argmax(1)

    def back(state, best):
        state = jnp.take_along_axis(best, state[:, None], 1)[:, 0]
        return state, state

    scores, best = jax.lax.scan(step, emissions[:, 0], emissions.swapaxes(0, 1)[1:])
    return jax.lax.scan(back, scores.argmax(1), best, reverse=True)[1], scores


@pytest.mark.parametrize("name", ["best path", "layers", "with outputs", "random numbers", "scan in a scan"])
@pytest.mark.parametrize("size", [2, 3])
def test_all_stacks_at_once_in_segments(name, size):
    """Segments begin with the carries, whether these had a stack or not."""
    f, args = best_path, (normals(4, 7, 5), normals(5, 5))
    if name in CASES:
        f, args = CASES[name][0], (CASES[name][1], normals(6, 8, 8) / 4)
    program = program_of(f, *args)
    module = normal(program)
    before = carried_bytes(entry_graph(module))
    assert in_segments(module, size, only_inputs=False) > 0
    attach_rules(module)
    assert carried_bytes(entry_graph(module)) < before
    remove_rules(module)
    for new, old in zip(run(program, module, *args), run(program, None, *args), strict=True):
        assert same_bits(new, old)


def pendulum_gradient(angles, speeds):
    """Each step stores what its sine's and its product's gradients need of both carries."""

    def loss(angles, speeds):
        def step(state, _):
            angles, speeds = state
            speeds = speeds * 0.9 - jnp.sin(angles)
            return (angles + 0.1 * speeds * angles, speeds), None

        return jax.lax.scan(step, (angles, speeds), None, length=6)[0][0].sum()

    return jax.grad(loss, (0, 1))(angles, speeds)


@pytest.mark.parametrize("size", [2, 3])
def test_a_segment_is_computed_once_for_all_its_stacks(size):
    args = normals(5), normals(5, seed=1)
    program = program_of(pendulum_gradient, *args)
    module = normal(program)
    assert in_segments(module, size, only_inputs=False) > 1
    (backward,) = [op for op in entry_graph(module).ops if op.name == "stablehlo.while"][1:]
    assert [op.name for op in backward.blocks[1].ops].count("stablehlo.while") == 2
    remove_rules(module)
    for new, old in zip(run(program, module, *args), run(program, None, *args), strict=True):
        assert same_bits(new, old)


@pytest.mark.parametrize("share", [0.6, 0.4, 0.1])
def test_the_best_path_of_a_long_sequence(share):
    """Emissions are read as they are given, a step at a time; what is stored to go back is computed in segments."""
    program = exported(best_path, spec(64, 1025, 256), spec(256, 256), platform="cuda")
    plan = shm.plan(program, f"{share:.0%}", target="cuda:h200")
    assert plan.before.peak_bytes > plan.budget_bytes
    assert plan.fits
    assert plan.slowdown < 1.7
    assert {"recompute-in-loops"} <= {step.pass_name for step in plan.steps} <= {"recompute-in-loops", "rematerialise"}


@pytest.mark.parametrize("size", [2, 3])
def test_in_segments_in_a_loop(size):
    """What is made before the loop around it is moved meanwhile."""

    def each(hs, w):
        return jax.lax.map(lambda h: looped(mlp)(h * 2 + 1, w), hs)

    args = normals(3, 6, 8) / 4, normals(6, 8, 8) / 4
    program = program_of(each, *args)
    module = normal(program)
    assert in_segments(module, size) > 0
    remove_rules(module)
    for new, old in zip(run(program, module, *args), run(program, None, *args), strict=True):
        assert same_bits(new, old)


@pytest.mark.parametrize("size", [2, 3])
def test_segments_store_no_invariants(size):
    """Each step reads its layer of the weights: no segment stores a row of all of them, however often it is done."""
    f, h, _ = CASES["layers"]
    args = h, normals(size**3, 8, 8) / 4
    program = program_of(f, *args)
    module = normal(program)
    without_stacks(module)
    attach_rules(module)
    for _ in range(2):
        assert in_segments(module, size) == 1
        attach_rules(module)
        (loop, *_) = (op for op in entry_graph(module).ops if op.name == "stablehlo.while")
        carried = zip(invariant_carries(loop), loop.operands, strict=True)
        values = entry_graph(module).values
        assert all(values[v].shape[-3:] != (size**3, 8, 8) for invariant, v in carried if not invariant)
    remove_rules(module)
    for new, old in zip(run(program, module, *args), run(program, None, *args), strict=True):
        assert same_bits(new, old)


def test_layers_on_the_host_are_copied_again():
    """What a step computes from a layer of weights in the host's memory is computed again from a copy of that layer."""
    on = SingleDeviceSharding(jax.devices("cpu")[0])
    on_host = SingleDeviceSharding(jax.devices("cpu")[0], memory_kind="pinned_host")
    f, h, w = CASES["layers"]
    specs = (
        jax.ShapeDtypeStruct(h.shape, h.dtype, sharding=on),
        jax.ShapeDtypeStruct(w.shape, w.dtype, sharding=on_host),
    )
    program = ingest(jax.export.export(jax.jit(f))(*specs))
    module = normal(program)
    dropped = without_stacks(module)
    assert dropped == without_stacks(normal(program_of(f, h, w))) > 0
    remove_rules(module)
    for new, old in zip(run(program, module, h, w), run(program, None, h, w), strict=True):
        assert same_bits(new, old)


@settings(max_examples=13, deadline=None)
@given(data=st.data(), steps=st.integers(2, 6), name=st.sampled_from(["layers", "with outputs", "scan in a scan"]))
def test_any_of_the_stacks(data, steps, name):
    f, h, _ = CASES[name]
    args = h, normals(steps, 8, 8) / 4
    program = program_of(f, *args)
    module = normal(program)

    def some(carries):
        return data.draw(st.lists(st.sampled_from(carries), min_size=1, unique=True)) if carries else []

    assert without_stacks(module, some) > 0
    remove_rules(module)
    for new, old in zip(run(program, module, *args), run(program, None, *args), strict=True):
        assert same_bits(new, old)


@pytest.mark.parametrize(("rows", "dropped"), [(5, 1), (4, 0)])
def test_a_loop_up_to_and_with_its_last_step(rows, dropped):
    def rows_up_to_four(h, w):
        def step(carry):
            i, h, stack = carry
            row = jnp.sin(h * i)
            return i + 1, jnp.tanh(h @ w), jax.lax.dynamic_update_slice(stack, row[None], (i, 0, 0), **from_zero)

        from_zero = {"allow_negative_indices": False}
        begun = 0, h, jnp.zeros((rows, *h.shape))
        _, h, stack = jax.lax.while_loop(lambda carry: carry[0] <= 4, step, begun)
        return jax.lax.fori_loop(0, rows, lambda i, h: h * stack[i], h)

    program = program_of(rows_up_to_four, H, W[0])
    module = normal(program)
    # The last of four rows is written twice: recomputed as that of the fourth step it would be another.
    assert without_stacks(module) == dropped
    remove_rules(module)
    for new, old in zip(run(program, module, H, W[0]), run(program, None, H, W[0]), strict=True):
        assert same_bits(new, old)


def test_refuses_what_is_used_as_a_whole():
    def outputs(h, w):
        return jax.lax.scan(lambda c, row: (jnp.tanh(c @ row), jnp.sin(c)), h, w)

    graph = graph_of(program_of(outputs, H, W))
    (op,) = (op for op in graph.ops if op.name == "stablehlo.while")
    scan = find_scan(graph, op)
    assert scan is not None
    (stack,) = scan.rows
    readers = find_readers(graph, op.results[stack])
    assert isinstance(readers, Blocked)
    assert readers.code == "returned"


@pytest.mark.parametrize("target", ["cpu", "tpu:v5e", "cuda:h200"])
def test_brings_layers_within_their_budget(target):
    plugins = {"tpu": "libtpu", "cuda": "jax_plugins.xla_cuda12"}
    platform = target.partition(":")[0]
    if platform in plugins:
        pytest.importorskip(plugins[platform])

    def layer(h, w):
        return h + jax.nn.softmax(jnp.tanh(h @ w[0]), -1) @ w[1], None

    def loss(weights, h):
        return (jax.lax.scan(layer, h, weights)[0] ** 2).sum()

    weights = spec(8, 64, 512), spec(8, 512, 64)
    program = exported(jax.value_and_grad(loss), weights, spec(4096, 64), platform=platform)
    original = shm.plan(program, None, target=target, options=shm.Options(passes=())).before
    budget = original.peak_bytes - original.measured.temp_bytes // 2
    plan = shm.plan(program, budget, target=target, options=shm.Options(passes=("rematerialise",)))
    assert plan.before.peak_bytes > budget >= plan.after.peak_bytes
    assert {step.pass_name for step in plan.steps} == {"rematerialise"}
    assert "again in each step that reads it" in " ".join(str(plan).split())


def rows_of_layers(h, w):
    return jax.lax.scan(lambda c, row: (jnp.tanh(c @ row), jnp.sin(c)), h, w)[1]


def handed_on_as_another_carry(h, w):
    rows = rows_of_layers(h, w)

    def body(i, carry):
        same, _, total = carry
        return same, same, total + same[i]

    _, last, total = jax.lax.fori_loop(0, len(w), body, (rows, jnp.zeros_like(rows), jnp.zeros_like(h)))
    return last * 2, total


def returned_by_a_branch_in_a_loop(h, w):
    rows = rows_of_layers(h, w)

    def body(i, carry):
        last, total = carry
        return jax.lax.cond(i % 2 == 0, lambda: rows, lambda: last), total + rows[i]

    return jax.lax.fori_loop(0, len(w), body, (jnp.zeros_like(rows), jnp.zeros_like(h)))


@pytest.mark.parametrize("fun", [handed_on_as_another_carry, returned_by_a_branch_in_a_loop])
def test_refuses_a_stack_that_a_loop_also_hands_on_whole(fun):
    graph = graph_of(program_of(fun, H, W))
    (found,) = (
        find_readers(graph, op.results[carry])
        for op in graph.ops
        if (scan := find_scan(graph, op)) is not None
        for carry in scan.rows
    )
    assert isinstance(found, Blocked)
    assert found.code == "returned"
