"""Splits along the dimensions that windows slide over, and along cumulative ones: what is cut, and the results.

The numbers are small integers, so that sums in any order have the same bits.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stablehlo_mem as shm
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.sharding_rules import rule_book
from stablehlo_mem.sharding_rules.halo import Use, Window
from stablehlo_mem.splitting.axis import cheapest_cut, grow_axis
from stablehlo_mem.targets.measurement import Measured
from tests.support import (
    apply_split,
    exported,
    graph_of,
    in_f64,
    normal,
    possible_splits,
    program_of,
    run,
    same_bits,
    spec,
    yardstick,
)

DIMS = ("NHWC", "HWIO", "NHWC")


def conv(x, kernel, strides=(1, 1), padding="SAME", **settings):
    return jax.lax.conv_general_dilated(x, kernel, strides, padding, dimension_numbers=DIMS, **settings)


def backwards(x):
    return jax.lax.cumsum(x, 0, reverse=True)


def pooled(x, size, strides, padding):
    return jax.lax.reduce_window(x, np.array(-np.inf, x.dtype), jax.lax.max, size, strides, padding)


def integers(*shape, dtype=np.float32):
    return np.random.default_rng(list(shape)).integers(-4, 5, shape).astype(dtype)


IMAGE, KERNEL = integers(1, 12, 11, 2), integers(3, 3, 2, 2)

SLIDING = {
    # a program, its arguments, how many of its ops slide in a loop
    "same": (lambda x, k: conv(x * x, k), (IMAGE, KERNEL), 1),
    "valid": (lambda x, k: conv(x * x, k, padding="VALID") * 2, (IMAGE, KERNEL), 1),
    "strided": (lambda x, k: conv(x * x, k, (2, 1)) * 2, (IMAGE, KERNEL), 1),
    "dilated": (lambda x, k: conv(x * x, k, rhs_dilation=(2, 1)), (IMAGE, KERNEL), 1),
    "cropped": (lambda x, k: conv(x * x, k, padding=[(-2, 3), (0, -1)]) * 2, (IMAGE, KERNEL), 1),
    "two": (lambda x, k: conv(jnp.maximum(conv(x * x, k), 0), k) * 2, (IMAGE, KERNEL), 1),
    "pooled": (lambda x: pooled(x * x, (1, 3, 2, 1), (1, 2, 1, 1), "SAME") * 2, (IMAGE,), 1),
    "of sums": (lambda x: pooled(jnp.abs(x).sum(-1), (1, 3, 2), (1, 1, 1), "SAME") * 2, (IMAGE,), 1),
    "by groups": (lambda x, k: conv(x * x, k, feature_group_count=2) * 2, (IMAGE, KERNEL[:, :, :1]), 1),
    "of integers": (
        lambda x: jax.lax.reduce_window(x * x, np.int32(0), jax.lax.add, (4,), (1,), [(2, 1)]) * 2,
        (integers(13, dtype=np.int32),),
        1,
    ),
}


def spatial(module, count):
    """The splits in which so many ops slide over the axis."""
    found = possible_splits(module)
    return [
        p for p in found if len({n.op for n in p.axis.split_ops if n.windows and n.op in p.schedule.inner_ops}) == count
    ]


@pytest.mark.parametrize("name", SLIDING)
def test_chunks_of_what_slides_have_the_same_bits(name):
    fun, args, count = SLIDING[name]
    program = program_of(fun, *args)
    module = normal(program)
    old = run(program, None, *args)
    found = spatial(module, count)
    assert found
    for number, possible in enumerate(found):
        chunk = possible.chunks[number % len(possible.chunks)]
        new = run(program, apply_split(module, possible, chunk), *args)
        assert all(map(same_bits, new, old)), f"{possible}, chunk {chunk}"


ROWS = integers(13, 5)

SHIFTED = {
    # a program, its argument, how many of its slices read from elsewhere in the same loop
    "shifts": (lambda x: sum(jnp.sin(i + x[i : i + 9]) for i in range(5)), ROWS, 5),
    "one of each end": (lambda x: jnp.abs(x[1:]) * jnp.abs(x[:-1]), ROWS, 2),
    "strides": (lambda x: jnp.abs(x[::2][:6] + 2 * x[1::2]), ROWS, 2),
    "two dimensions": (lambda x: jnp.abs(x[2:12, 1:4]) * 2, ROWS, 1),
    "of what is padded": (lambda x: (lambda p: jnp.abs(p[4:] - p[:-4]))(jnp.pad(x * x, ((2, 2), (0, 0)))), ROWS, 2),
    "summed": (lambda x: (jnp.abs(x[2:]) * x[:-2]).sum(0), ROWS, 2),
}


@pytest.mark.parametrize("name", SHIFTED)
def test_chunks_of_slices_begin_elsewhere(name):
    fun, x, count = SHIFTED[name]
    program = program_of(fun, x)
    module = normal(program)
    old = run(program, None, x)
    found = [p for p in spatial(module, count) if p.axis.seed[1] == 0]
    assert found
    for possible in found:
        for chunk in (1, 2, 5):
            new = run(program, apply_split(module, possible, chunk), x)
            assert all(map(same_bits, new, old))


def test_shifted_copies_fit():
    """A bilateral filter: 25 copies of an image, each moved by some pixels, of which none need be there whole."""

    def smooth(x):
        p = jnp.pad(x, ((2, 2), (2, 2), (0, 0)), mode="edge")
        shifted = jnp.stack([p[i : i + 256, j : j + 256] for i in range(5) for j in range(5)])
        w = jnp.exp(-((shifted - x) ** 2).sum(-1, keepdims=True))
        return (w * shifted).sum(0) / w.sum(0)

    for target, budget in (("cpu", "10%"), ("cuda:h200", "30%")):
        plan = shm.plan(exported(smooth, spec(256, 256, 3), platform=target.partition(":")[0]), budget, target=target)
        assert isinstance(plan.before.measured, Measured)
        assert plan.before.measured.peak_bytes > plan.budget_bytes
        assert plan.fits
        assert "split-into-loops" in {step.pass_name for step in plan.steps}


def test_windows_of_one_element_are_no_windows():
    program = program_of(lambda x, k: conv(x * x, k) * 2, IMAGE, KERNEL[:1, :1])
    module = normal(program)
    old = run(program, None, IMAGE, KERNEL[:1, :1])
    found = [p for p in possible_splits(module) if p.axis.n in (12, 11)]
    assert {p.axis.n for p in found} == {12, 11}
    for possible in found:
        assert not any(node.windows for node in possible.axis.split_ops)
        new = run(program, apply_split(module, possible, 5), IMAGE, KERNEL[:1, :1])
        assert all(map(same_bits, new, old))


def pooling_gradient(x):
    return jax.grad(lambda x: (pooled(x, (1, 3, 2, 1), (1, 2, 2, 1), "SAME") ** 2).sum())(x * x) * 2


def gradients_by_example(x, kernel):
    """The gradients of a kernel for each example: a convolution with as many groups."""
    return jax.vmap(jax.grad(lambda k, x: (conv(x[None], k) ** 2).sum()), (None, 0))(kernel, x * x)


BATCH, SLIDES = integers(6, 5, 5, 8), ("stablehlo.convolution", "stablehlo.select_and_scatter")
BESIDE = {
    # a program, its arguments, how many elements the dimensions have along which its last sliding op is split
    "groups, batch": (lambda x, k: conv(x * x, k, feature_group_count=4) * 2, (BATCH, integers(3, 3, 2, 12)), {4, 6}),
    "groups of it": (lambda x, k: conv(x * x, k, batch_group_count=3) * 2, (BATCH, integers(3, 3, 8, 12)), {3}),
    "by example": (lambda x, k: gradients_by_example(x, k) * 2, (BATCH, integers(3, 3, 8, 7)), {6, 8}),
    "pooled gradient": (pooling_gradient, (BATCH,), {6, 8}),
}


@pytest.mark.parametrize("name", BESIDE)
def test_chunks_beside_what_slides_have_the_same_bits(name):
    fun, args, sizes = BESIDE[name]
    program = program_of(fun, *args)
    module = normal(program)
    last = max(op.index for op in entry_graph(module).ops if op.name in SLIDES)
    old = run(program, None, *args)
    found = [p for p in possible_splits(module) if last in p.schedule.inner_ops]
    assert {p.axis.n for p in found} == sizes
    for possible in found:
        for chunk in possible.chunks:
            new = run(program, apply_split(module, possible, chunk), *args)
            assert all(map(same_bits, new, old)), f"{possible}, chunk {chunk}"


def test_convolutions_in_loops_have_features_last():
    """XLA:CPU computes other forms element by element there; the gradients of kernel and image have other forms."""

    def gradients(x, kernel):
        return jax.grad(lambda x, k: (conv(jnp.sin(x), k) ** 2).sum(), (0, 1))(x * x, kernel)

    module = normal(program_of(gradients, BATCH, integers(3, 3, 8, 7)))
    found = max((p for p in possible_splits(module) if p.axis.n == 6), key=lambda p: len(p.schedule.inner_ops))
    convolutions = [line for line in str(apply_split(module, found, 2)).splitlines() if "stablehlo.convolution" in line]
    assert len(convolutions) >= 3
    assert all("[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]" in line for line in convolutions)


def kernel_gradient(size=3, groups=1, **settings):
    """A program whose last convolution is the gradient of a convolution's kernel: it sums over the image."""
    kernel = np.zeros((size, size, 2 // groups, 2), np.float32)
    settings["feature_group_count"] = groups

    def fun(x, y):
        y = conv(y, kernel, **settings) if settings.get("strides") else y  # of the size of the result
        _, transposed = jax.vjp(lambda k: conv(x * x, k, **settings), kernel)
        return transposed(jnp.abs(y))[0] * 2

    return fun


TALL = integers(2, 13, 11, 2)
KERNELS = {
    # a program, its arguments, how many elements the dimensions have along which its windows slide
    "same": (kernel_gradient(), (TALL, integers(2, 13, 11, 2, dtype=np.float32) + 1), {13, 11}),
    "valid": (kernel_gradient(padding="VALID"), (TALL, TALL[:, 1:-1, 1:-1]), {11, 9}),
    "strided": (kernel_gradient(strides=(2, 1)), (TALL, TALL), {7, 11}),
    "dilated": (kernel_gradient(rhs_dilation=(2, 1)), (TALL, TALL), {13, 11}),
    "cropped": (kernel_gradient(padding=[(-1, 2), (3, 0)]), (TALL, integers(2, 12, 12, 2)), {12}),
    "large": (kernel_gradient(5), (TALL, TALL), {13, 11}),
    "by groups": (kernel_gradient(groups=2), (TALL, TALL), {13, 11}),
}


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_of_kernels_sum_over_chunks_of_the_image(name):
    """A chunk of the result's gradient is multiplied with a window of the image; small integers sum exactly."""
    fun, args, sizes = KERNELS[name]
    program = program_of(fun, *args)
    module = normal(program)
    old = run(program, None, *args)
    found = [p for p in possible_splits(module) if any(n.windows and n.reducing for n in p.axis.split_ops)]
    assert {p.axis.n for p in found} == sizes
    for possible in found:
        for chunk in possible.chunks:
            new = run(program, apply_split(module, possible, chunk), *args)
            assert all(map(same_bits, new, old)), f"{possible}, chunk {chunk}"


def test_the_gradient_of_a_kernel_of_one_element_reads_chunks():
    fun, args = kernel_gradient(1), (TALL, TALL)
    program = program_of(fun, *args)
    module = normal(program)
    old = run(program, None, *args)
    found = [p for p in possible_splits(module) if p.axis.n in (13, 11)]
    assert {p.axis.n for p in found} == {13, 11}
    for possible in found:
        assert not any(node.windows for node in possible.axis.split_ops)
        new = run(program, apply_split(module, possible, 5), *args)
        assert all(map(same_bits, new, old))


def test_the_gradient_of_a_convolution_fits_on_one_image():
    """With no batch to split, rows of the image are; the gradients keep their precision."""

    def loss(first, second, x):
        hidden = jax.nn.silu(conv(jnp.concatenate([jnp.sin(x), jnp.cos(x)], -1), first))
        return (conv(hidden, second) ** 2).mean()

    args = spec(3, 3, 16, 16), spec(3, 3, 16, 8), spec(1, 192, 192, 8)
    step = jax.value_and_grad(loss, (0, 1))
    original = shm.profile(step, *args, target="cpu")
    assert isinstance(original.measured, Measured)
    fixed = original.measured.argument_bytes + original.measured.output_bytes
    budget = fixed + original.measured.temp_bytes // 3
    exported = jax.export.export(jax.jit(step), platforms=["cpu"])(*args)
    options = shm.Options(max_slowdown=None, passes=("split-into-loops",))
    plan = shm.plan(exported, budget, target="cpu", options=options)
    assert plan.fits
    assert original.measured.peak_bytes > budget
    assert plan.steps
    rng = np.random.default_rng(0)
    drawn = [rng.standard_normal(a.shape, np.float32) for a in args]
    new, old = (jax.tree.leaves(jax.jit(call)(*drawn)) for call in (plan.exported.call, step))
    results = zip(new, old, in_f64(step, *drawn), strict=True)
    assert [wrong for wrong in (yardstick(*map(np.asarray, three)) for three in results) if wrong] == []


REFUSED = {
    "spread apart": (lambda x, k: conv(x * x, k, padding=[(0, 0), (0, 0)], lhs_dilation=(2, 2)), (IMAGE, KERNEL)),
    "most of it": (lambda x, k: conv(x * x, k), (integers(1, 5, 5, 2), KERNEL)),
    "counted padding": (
        lambda x: jax.lax.reduce_window(x * x, np.int32(3), jax.lax.add, (4,), (1,), [(2, 1)]),
        (integers(13, dtype=np.int32),),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_window_of_its_operand_needs_it_whole(name):
    fun, args = REFUSED[name]
    module = normal(program_of(fun, *args))
    assert not [p for p in possible_splits(module) if any(n.windows or n.cumulative for n in p.axis.split_ops)]


def test_a_window_is_cut_from_what_takes_the_fewest_bytes():
    def fun(x, y, a, k):
        z = jnp.tanh((x + y) * a)
        return conv(z * jnp.cos(z), k)

    graph = graph_of(program_of(fun, IMAGE, IMAGE, np.ones(2, np.float32), KERNEL))
    convolution = next(op for op in graph.ops if op.name == "stablehlo.convolution")
    use = Use(convolution.operands[0], 1, Window(12, 1, 1, 3))
    cut = cheapest_cut(graph, rule_book(graph), use)
    names = {graph.ops[node.op].name.removeprefix("stablehlo.") for node in cut.values()}
    assert names == {"multiply", "tanh", "cosine", "broadcast_in_dim"}
    assert {node.window for node in cut.values()} == {use.window}


def test_a_window_of_sums_is_cut_from_what_is_summed():
    """Sums are as cheap as elementwise ops, matmuls are not."""

    def fun(x, k):
        return conv(jnp.stack([(x - jnp.roll(x, i, 2)).sum(-1) for i in range(4)], -1) @ k[0, 0], k)

    graph = graph_of(program_of(fun, IMAGE, integers(3, 3, 4, 4)))
    dot = next(op for op in graph.ops if op.name == "stablehlo.dot_general")
    for value, expected in (dot.operands[0], {"reduce", "subtract", "slice"}), (dot.results[0], set[str]()):
        cut = cheapest_cut(graph, rule_book(graph), Use(value, 1, Window(12, 1, 1, 3)))
        names = {graph.ops[node.op].name.removeprefix("stablehlo.") for node in cut.values()}
        assert names >= expected
        assert bool(names) == bool(expected)


def test_what_an_op_slides_over_is_stored_and_not_computed_again():
    """Of three convolutions with sums between them every one runs once, in a loop of its own."""

    def fun(x, k):
        for _ in range(3):
            x = x + conv(jnp.maximum(x - x.max((1, 2), keepdims=True), -3), k)
        return x.sum((1, 2))

    graph = graph_of(program_of(fun, IMAGE, KERNEL))
    seed = next(op for op in reversed(graph.ops) if op.name == "stablehlo.maximum").results[0]
    axis = grow_axis(graph, rule_book(graph), (seed, 1), graph.values[seed].nbytes)
    (found,) = [p for p in spatial(normal(program_of(fun, IMAGE, KERNEL)), 3) if p.axis.n == axis.n == 12][:1]
    runs = [n.op for phase in range(found.schedule.loop_count) for n in found.schedule.split_ops[phase] if n.windows]
    assert len(runs) == len(set(runs)) == 3


CUMULATIVE = {
    "sum": (lambda x: (jnp.cumsum(x * x, 0) * 2).sum(1), integers(13, 5)),
    "sum along columns": (lambda x: (jnp.cumsum(x * x, 1) * 2).sum(0), integers(5, 12)),
    "product": (lambda x: jax.lax.cumprod(x * x, 0).sum(1), integers(13, 5, dtype=np.int32)),
    "maximum": (lambda x: jax.lax.cummax(x * x, 0) + x, integers(13, 5)),
    "of bf16": (lambda x: (jnp.cumsum(x * x, 0, dtype=x.dtype) * 2).max(1), integers(13, 5, dtype=jnp.bfloat16)),
    "merged": (lambda x: (jnp.cumsum((x * x).reshape(-1), 0) * 2).reshape(x.shape).sum(1), integers(13, 4)),
    "of a sum": (lambda x: (jnp.cumsum(x - x.sum(0), 0) * 2).sum(1), integers(13, 5)),
    "backwards": (lambda x: (backwards(x * x) * 2).sum(1), integers(13, 5)),
    "backwards, merged": (lambda x: (backwards((x * x).reshape(-1)) * 2).reshape(x.shape).sum(1), integers(13, 4)),
    "both ways": (lambda x: backwards(x * x).sum(1) + jnp.cumsum(x + 1, 0).max(1), integers(13, 5)),
    "there and back": (lambda x: backwards(jnp.abs(jnp.cumsum(x * x, 0))).sum(1), integers(13, 5)),
    "back and there": (lambda x: jnp.cumsum(jnp.abs(backwards(x * x)), 0).sum(1), integers(13, 5)),
    "there, back, there": (lambda x: jnp.cumsum(backwards(jnp.cumsum(x * x, 0) % 5) % 7, 0).max(1), integers(13, 5)),
    "gradient": (lambda x: jax.grad(lambda y: (jnp.cumsum(y * 2, 0) ** 2).sum())(x).sum(1), integers(13, 5)),
    "first of the greatest": (lambda x: jnp.argmax(backwards(x * x) % 5, 0), integers(13, 5)),
}


@pytest.mark.parametrize("name", CUMULATIVE)
def test_cumulative_ops_go_on_from_chunk_to_chunk(name):
    fun, x = CUMULATIVE[name]
    program = program_of(fun, x)
    module = normal(program)
    old = run(program, None, x)
    found = [p for p in possible_splits(module) if any(n.cumulative for n in p.schedule.first_loop)]
    assert found
    assert all(p.regroups is (name not in ("product", "maximum")) for p in found)
    for possible, chunk in ((p, c) for p in found for c in p.chunks):
        new = run(program, apply_split(module, possible, chunk), x)
        assert all(map(same_bits, new, old)), f"{possible}, chunk {chunk}"


def test_loops_run_the_way_cumulative_sums_do():
    """Where a loop needs a sum that runs the other way, it goes on from what an earlier loop saved."""

    def ways(name):
        module = normal(program_of(*CUMULATIVE[name]))
        (found,) = [p for p in possible_splits(module) if any(n.cumulative for n in p.schedule.first_loop)]
        return found.schedule.directions, [
            len(found.schedule.checkpointed_scans(phase)) for phase in range(found.schedule.loop_count)
        ]

    assert ways("backwards") == ((-1,), [0])
    assert ways("gradient") == ((1, -1), [1, 0])
    assert ways("there, back, there") == ((1, -1, 1), [1, 1, 0])
    assert ways("first of the greatest") == ((-1, 1), [1, 0])


def test_what_streams_waits_for_sums_that_run_the_other_way():
    def fun(x, y):
        return (jax.nn.softmax(jnp.cumsum(x, 0), 0) * backwards(y)).sum(0)

    args = integers(13, 5), integers(13, 5) + 1
    program = program_of(fun, *args)
    module = normal(program)
    (old,) = run(program, None, *args)
    found = [p for p in possible_splits(module, all_forms=True) if p.schedule.is_online]
    assert [p.schedule.directions for p in found] == [(1, -1)]
    for chunk in found[0].chunks:
        (new,) = run(program, apply_split(module, found[0], chunk), *args)
        assert yardstick(new, old, *in_f64(fun, *args)) is None


def test_the_gradient_of_a_cumulative_sum_fits():
    """Of a softmax over columns of sums along the rows: no row is had without those before it."""

    def loss(w, x):
        return jax.nn.softmax(jnp.cumsum(jnp.tanh(x @ w), 0) * 1e-2)[:, 0].sum()

    args = spec(16, 512), spec(4096, 16)
    step = jax.value_and_grad(loss, (0, 1))
    original = shm.profile(step, *args, target="cpu")
    assert isinstance(original.measured, Measured)
    fixed = original.measured.argument_bytes + original.measured.output_bytes
    budget = fixed + original.measured.temp_bytes // 8
    assert original.measured.peak_bytes > budget
    plan = shm.plan(jax.export.export(jax.jit(step), platforms=["cpu"])(*args), budget, target="cpu")
    assert plan.fits
    assert [step.params.elements for step in plan.steps if step.pass_name == "split-into-loops"] == [4096]
    rng = np.random.default_rng(0)
    drawn = [rng.standard_normal(a.shape, np.float32) for a in args]
    new, old = (jax.tree.leaves(jax.jit(call)(*drawn)) for call in (plan.exported.call, step))
    results = zip(new, old, in_f64(step, *drawn), strict=True)
    assert [wrong for wrong in (yardstick(*map(np.asarray, three)) for three in results) if wrong] == []


def test_a_residual_block_fits():
    """Its normalised input need not be there: each convolution makes what it slides over."""

    def block(x, first, second):
        h = conv(jax.nn.silu(jnp.concatenate([x, x * 2], -1)), first)
        return x + conv(jax.nn.silu(h - h.mean((1, 2), keepdims=True)), second)

    args = spec(1, 192, 192, 8), spec(3, 3, 16, 8), spec(3, 3, 8, 8)
    whole = 192 * 192 * 8 * 4
    original = shm.profile(block, *args, target="cpu")
    assert isinstance(original.measured, Measured)
    fixed = original.measured.argument_bytes + original.measured.output_bytes
    budget = fixed + whole * 3 // 2
    assert original.measured.peak_bytes > budget
    exported = jax.export.export(jax.jit(block), platforms=["cpu"])(*args)
    plan = shm.plan(exported, budget, target="cpu")
    assert plan.fits
    assert any(step.pass_name == "split-into-loops" for step in plan.steps)


def test_costs_of_many_shifts_that_are_smoothed_fit():
    """Of a stereo pair's cost volume each chunk of rows is computed with the rows around it that are averaged."""

    def disparity(left, right):
        costs = jnp.stack([jnp.abs(left - jnp.roll(right, d, -1)).sum(0) for d in range(16)], -1)
        sums = jax.lax.reduce_window(costs, 0.0, jax.lax.add, (7, 7, 1), (1, 1, 1), "SAME")
        return jax.nn.softmax(-sums / 49, -1) @ jnp.arange(16.0)

    args = [jnp.asarray(np.random.default_rng(i).normal(size=(3, 256, 256)), jnp.float32) for i in range(2)]
    original = shm.profile(disparity, *args, target="cpu")
    assert isinstance(original.measured, Measured)
    budget = original.peak_bytes - int(0.8 * original.measured.temp_bytes)
    plan = shm.plan(jax.export.export(jax.jit(disparity), platforms=["cpu"])(*args), budget, target="cpu")
    assert original.peak_bytes > budget >= plan.after.peak_bytes
    assert any(step.pass_name == "split-into-loops" for step in plan.steps)
    new, old = (np.asarray(f(*args)) for f in (plan.result.call, disparity))
    assert not yardstick(new, old, *in_f64(disparity, *args))
