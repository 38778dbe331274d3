"""pairwise-distance: what comes out, to the letter, in tests/ir/pairwise_distance_*.mlir; here what is refused, errors,
gradients, and how it goes together with the loops."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stablehlo_mem as shm
from stablehlo_mem.analysis.peak_memory import find_peak
from stablehlo_mem.frontend.canonicalize import attach_rules
from stablehlo_mem.frontend.program import emit, ingest
from stablehlo_mem.ir.graph import entry_graph, nested_graph
from stablehlo_mem.pass_api.candidate import Goal, Options, Refusal
from stablehlo_mem.passes.pairwise_distance import PairwiseDistance
from stablehlo_mem.planner.greedy_search import propose
from stablehlo_mem.planner.search_state import start_of
from stablehlo_mem.rewriting.rewriting_pass import Match, block_paths
from stablehlo_mem.targets.chips import CHIPS
from tests.support import (
    HONEST,
    OPTIMISED,
    apply_split,
    exported,
    in_f64,
    matches,
    normal,
    possible_splits,
    program_of,
    refusals,
    rewrite,
    run,
    spec,
    text,
    yardstick,
)

PASS = PairwiseDistance()
RELAXED = Options(numerics="relaxed", passes=("pairwise-distance", "split-into-loops"))
EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52, "bfloat16": 2.0**-8}


# Forms as users write them.


def squared(x, y):
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def by_vmap(x, y):
    return jax.vmap(lambda a: jax.vmap(lambda b: jnp.sum((a - b) ** 2))(y))(x)


def by_dot(x, y):
    return jax.vmap(lambda a: jax.vmap(lambda b: (a - b) @ (a - b))(y))(x)


def by_norm(x, y):
    return jnp.linalg.norm(x[:, None] - y[None], axis=-1)


def weighted_before(x, y):
    return jnp.sum(jnp.square(jnp.abs(0.5 * (x[:, None] - y[None]) * jnp.arange(1.0, 1 + x.shape[1]))), -1)


def einsum(x, y):
    d = x[:, None] - y[None]
    return jnp.einsum("ijk,ijk->ij", d, d)


def in_a_scan(x, y):
    return jax.lax.map(lambda a: squared(a[None] + x, y).max(), x)


def gpjax_matern(x, y, lengthscale):
    """Matern-3/2 as GPJax has it: one pair at a time, vmapped twice."""

    def kernel(a, b):
        tau = jnp.sqrt(jnp.maximum(jnp.sum((a / lengthscale - b / lengthscale) ** 2), 1e-36))
        return (1 + np.float32(np.sqrt(3)) * tau) * jnp.exp(-np.float32(np.sqrt(3)) * tau)

    return jax.vmap(lambda a: jax.vmap(lambda b: kernel(a, b))(y))(x)


def ard(x, y, lengthscale):
    return jnp.exp(-0.5 * (((x[:, None] - y[None]) / lengthscale) ** 2).sum(-1))


RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def same_numbers_in_any_order():
    RNG.bit_generator.state = np.random.default_rng(1).bit_generator.state


def real(*shape, dtype: Any = np.float32):
    return RNG.normal(size=shape).astype(dtype)


X, Y, SCALE = real(23, 5), real(17, 5), np.exp(real(5))
FORMS = {
    "squared": (squared, X, Y),
    "by_vmap": (by_vmap, X, Y),
    "by_dot": (by_dot, X, Y),
    "by_norm": (by_norm, X, Y),
    "weighted_before": (weighted_before, X, Y),
    "einsum": (einsum, X, Y),
    "with itself": (lambda x: squared(x, x), X),
    "in a scan": (in_a_scan, X, Y),
    "gpjax_matern": (gpjax_matern, X, Y, SCALE),
    "ard": (ard, X, Y, SCALE),
    "root of weights": (lambda x, y: (((x[:, None] - y[None]) * x[:, None, :1]) ** 2).sum(-1), X, Y),
    "batched": (jax.vmap(squared), real(3, 23, 5), real(3, 17, 5)),
    "batched in one": (jax.vmap(squared, (0, None)), real(3, 23, 5), Y),
    "batched scales": (jax.vmap(ard, (None, None, 0)), X, Y, np.exp(real(3, 5))),
    "sum of all": (lambda x, y: ((x[:, None] - y[None]) ** 2).sum(), X, Y),
    "narrow": (squared, X.astype(ml_dtypes.bfloat16), Y.astype(ml_dtypes.bfloat16)),
    "half": (squared, X.astype(np.float16), Y.astype(np.float16)),
}


def biggest(graph):
    return max(int(np.prod(v.shape)) for path in block_paths(graph) for v in nested_graph(graph, path).values)


@pytest.mark.parametrize("name", FORMS)
def test_forms(name):
    fun, *args = FORMS[name]
    program = program_of(fun, *args)
    module = normal(program)
    before = biggest(entry_graph(module))
    assert rewrite(module, PASS) == 1
    assert biggest(entry_graph(module)) * 4 < before
    assert rewrite(module, PASS) == 0
    (new,), (old,) = (run(program, one, *args, options=OPTIMISED) for one in (module, None))
    (exact,) = in_f64(fun, *args)
    assert new.dtype == old.dtype
    assert new.shape == old.shape
    error = np.abs(new.astype(np.float64) - exact).max() / np.abs(exact).max()
    assert error < (2e-6 if old.dtype == np.float32 else 2.0**-8)


def test_is_norms_and_a_matmul():
    """Compiled, nothing of points by points by coordinates remains: what norms and a matmul by hand compile to."""
    program = program_of(squared, X, Y)
    module = normal(program)
    rewrite(module, PASS)
    names = [op.name for op in entry_graph(module).ops]
    assert names.count("stablehlo.dot_general") == 1
    call = emit(program, module)
    compiled = jax.jit(call.call).lower(X, Y).compile(compiler_options=HONEST).as_text()
    assert compiled is not None
    assert "[23,17,5]" not in compiled
    assert "dot(" in compiled


# What is refused.


def cubed(x, y):
    return (jnp.abs(x[:, None] - y[None]) ** 3).sum(-1)


def nearly_squared(x, y):
    return (jnp.abs(x[:, None] - y[None]) ** np.float32(2.0000005)).sum(-1)


def from_one(x, y):
    d = x[:, None] - y[None]
    return jax.lax.reduce(d * d, np.float32(1), jax.lax.add, (2,))


REFUSED = {
    "L1": (lambda x, y: jnp.abs(x[:, None] - y[None]).sum(-1), "not-quadratic"),
    "cubed": (cubed, "not-quadratic"),
    "nearly squared": (nearly_squared, "not-quadratic"),
    "signed": (lambda x, y: (jnp.abs(x[:, None] - y[None]) * (x[:, None] - y[None])).sum(-1), "not-quadratic"),
    "largest": (lambda x, y: ((x[:, None] - y[None]) ** 2).max(-1), "not-a-sum"),
    "product": (lambda x, y: ((x[:, None] - y[None]) ** 2).prod(-1), "not-a-sum"),
    "from one": (from_one, "not-from-zero"),
    "weighted": (lambda x, y: ((x[:, None] - y[None]) ** 2 * x[0]).sum(-1), "weighted"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_and_says_why(name):
    fun, code = REFUSED[name]
    assert [item for item in refusals(PASS, fun, X, Y) if item is not None] == [code]


NONE = {
    "one side has no points of its own": lambda x, y: ((x - y[0]) ** 2).sum(-1),
    "one coordinate": lambda x, y: ((x[:, None, :1] - y[None, :, :1]) ** 2).sum(-1),
    "a sum": lambda x, y: ((x[:, None] + y[None]) ** 2).sum(-1),
    "of whole numbers": lambda x, y: ((x.astype(int)[:, None] - y.astype(int)[None]) ** 2).sum(-1),
    "different differences": lambda x, y: ((x[:, None] - y[None]) * (y[0] - x[:, None] * y[None])).sum(-1),
    "matmul": lambda x, y: x @ y.T,
    "softmax": lambda x, y: jax.nn.softmax(x @ y.T),
    "weights as big as the sum": lambda x, y: ((x[:, None] - y[None]) * jnp.sin(x[:, None] * y[None])).sum(1),
}


@pytest.mark.parametrize("name", NONE)
def test_is_not_its_business(name):
    assert set(refusals(PASS, NONE[name], X, Y)) == {None}


def test_refusals_are_reported_at_the_peak():
    graph = entry_graph(module := normal(program_of(REFUSED["L1"][0], X, Y)))
    goal = Goal(CHIPS["cpu"], RELAXED, 0)
    codes = {item.code for item in PASS.propose(graph, find_peak(graph, goal.chip), goal) if isinstance(item, Refusal)}
    assert codes == {"not-quadratic"}
    assert module


# On only when asked for.


@functools.cache
def gradient_of_ard():
    return exported(
        jax.grad(lambda x, y, s, v: (ard(x, y, s) @ v).sum(), (0, 1, 2)),
        *(spec(200, 8), spec(300, 8), spec(8), spec(300)),
    )


def test_is_off_by_default():
    plan = shm.plan(gradient_of_ard(), None, target="cpu")
    assert "pairwise-distance" not in {step.pass_name for step in plan.steps}


def test_relaxed_turns_it_on():
    plan = shm.plan(gradient_of_ard(), None, target="cpu", options=RELAXED)
    assert [step.pass_name for step in plan.steps] == ["pairwise-distance"]
    assert len(plan.steps[0].params.roots) == 4
    assert "200x300x8" not in text(plan.module)


def test_says_that_it_could():
    goal = Goal(CHIPS["cpu"], Options(passes=(PASS.name,)), 0)
    candidates, refusals = propose(start_of(ingest(gradient_of_ard()), goal), goal)
    assert not candidates
    assert {refusal.code for refusal in refusals} == {"needs-relaxed"}
    assert all("Options(numerics='relaxed')" in refusal.message for refusal in refusals)


def test_places_of_a_gradient_count_together():
    """With three coordinates the sums of a gradient pay only if all of them go: what they share is big."""
    fun = jax.grad(lambda x, y, s: ard(x, y, s).sum(), (0, 1, 2))
    graph = entry_graph(module := normal(program_of(fun, real(2000, 3), real(3000, 3), SCALE[:3])))
    candidate, *_ = PASS.cheapen(graph, Goal(CHIPS["cpu"], RELAXED, 0))
    assert len(candidate.step.params.roots) == 4
    assert candidate.added_seconds < 0
    assert module


# Errors. docs/passes/pairwise_distance.md states what is measured here.


def rewritten(fun, *args):
    """The results of the rewritten function, of the original and in double precision or better."""
    with jax.enable_x64(True):
        program = program_of(fun, *args)
        module = normal(program)
        assert rewrite(module, PASS)
        return run(program, module, *args), run(program, None, *args)


def exact_squares(x, y):
    wide = [np.asarray(a).astype(np.longdouble) for a in (x, y)]
    return ((wide[0][:, None] - wide[1][None]) ** 2).sum(-1)


def spread(x, y):
    """|x - m|² + |y - m|² for the mean m of x; a little more, as the mean of a sample is near it only."""
    wide = [np.asarray(a).astype(np.longdouble) for a in (x, y)]
    x, y = (a - wide[0].mean(0) for a in wide)
    total = (x**2).sum(-1)[:, None] + (y**2).sum(-1)[None]
    return total + total.mean() / 64


DTYPES = [np.float32, np.float64, ml_dtypes.bfloat16]
WORST = {"float32": 2e-6, "float64": 5e-15, "bfloat16": 2.0**-8}
"""Relative error of distances of at least a tenth of the spread."""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [2, 3, 32, 1000])
def test_error_on_spread_data(dtype, d):
    x, y = real(200, d).astype(dtype), real(207, d).astype(dtype)
    ((new,), _), exact = rewritten(squared, x, y), exact_squares(x, y)
    far = exact > 0.1 * spread(x, y)
    relative = (np.abs(new.astype(np.longdouble) - exact) / exact)[far].max()
    assert relative <= WORST[np.dtype(dtype).name]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [2, 3, 32, 300])
@pytest.mark.parametrize(("n", "width"), [(50, 1e-6), (50, 1e-3), (1000, 1e-6), (1000, 1e-3)])
def test_error_on_near_duplicates_far_from_the_origin(dtype, d, n, width):
    """Points around 1e4, no wider apart than a thousandth or a millionth of that, and nearly one of them again.

    The squared distances are within a few eps of the spread, whatever they are; so the distances are within its root.
    """
    x, y = near_duplicates(dtype, n, 40, d, width)
    ((new,), _), exact = rewritten(squared, x, y), exact_squares(x, y)
    epsilon = 2.0**-52 if dtype == np.float64 else 2.0**-23
    allowed = (4 + np.sqrt(d)) * epsilon * spread(x, y) + (2.0**-8 * exact if dtype == ml_dtypes.bfloat16 else 0)
    error = np.abs(new.astype(np.longdouble) - exact)
    assert (error <= allowed).all()
    assert (new >= 0).all()
    assert (np.abs(np.sqrt(new.astype(np.longdouble)) - np.sqrt(exact)) <= np.sqrt(allowed)).all()


def near_duplicates(dtype, n, m, d, width, rng=RNG):
    """n points of a width (bf16 has no finer than 2⁻⁵) around 1e4, and m of them moved by a millionth of it."""
    width = max(width, 2.0**-5) if dtype == ml_dtypes.bfloat16 else width
    x = (1e4 * (1 + width * rng.normal(size=(n, d)))).astype(dtype)
    y = x[rng.permutation(n)[:m]].astype(np.float64) + 1e4 * width * 1e-6 * rng.normal(size=(m, d))
    return x, y.astype(dtype)


def test_error_with_an_outlier():
    """The mean of a sample: one point far away moves it little, wherever it is."""
    for place in (0, 1, 777):
        x = real(1000, 3)
        x[place] = 1e3
        ((new,), _), exact = rewritten(squared, x, x + np.float32(1e-3)), exact_squares(x, x + np.float32(1e-3))
        rest = np.delete(np.delete(np.abs(new - exact), place, 0), place, 1)
        assert rest.max() < 1e-4


def test_points_that_are_not_finite_spoil_only_themselves():
    x, y = X.copy(), Y.copy()
    x[0, 1], x[4, 0], y[3, 2] = np.nan, np.inf, -np.inf
    (new,), (old,) = rewritten(squared, x, y)
    assert np.array_equal(np.isnan(new), np.isnan(old))
    assert np.array_equal(np.isinf(new), np.isinf(old))
    finite = np.isfinite(old)
    assert np.allclose(new[finite], old[finite], rtol=1e-5, atol=1e-5)


def guarded(shape, x, lengthscale):
    """Kernels with a huge slope at 0, of points and themselves, written in several ways."""
    d = x[:, None] / lengthscale - x[None] / lengthscale if shape == "views" else (x[:, None] - x[None]) / lengthscale
    return jnp.exp(-jnp.sqrt((d**2).sum(-1) + 1e-12))


@pytest.mark.parametrize("shape", ["views", "difference"])
def test_a_point_and_itself_need_not_cancel(shape):
    x, lengthscale = RNG.normal(size=(60, 4)).astype(np.float32), np.full(4, 1.5, np.float32)
    kernel = functools.partial(guarded, shape)
    loss = jax.grad(lambda x, s: jnp.sin(kernel(x, s)).sum(), (0, 1))
    for fun in (kernel, loss):
        got, _ = rewritten(fun, x, lengthscale)
        with jax.enable_x64(True):
            exact = jax.tree.leaves(jax.jit(fun)(x.astype(np.float64), lengthscale.astype(np.float64)))
        for one, other in zip(got, exact, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-4 * np.abs(other).max())


def test_a_point_is_at_0_from_itself():
    x = real(50, 3)
    (new,), _ = rewritten(lambda x: squared(x, x), x)
    assert not np.diag(new).any()
    (new,), _ = rewritten(lambda x: jax.vmap(lambda x: squared(x, x))(x), real(3, 50, 4))
    assert not np.diagonal(new, axis1=1, axis2=2).any()


@st.composite
def shaped(draw):
    """Sizes of batch, summed and own dimensions, and the order of the axes in x, y and their difference."""
    kinds = [*"b" * draw(st.integers(0, 1)), *"k" * draw(st.integers(1, 2)), *"x" * draw(st.integers(1, 2))]
    kinds += [*"y" * draw(st.integers(1, 2))]
    axes = [(kind, draw(st.integers(2, 4))) for kind in draw(st.permutations(kinds))]
    orders = [draw(st.permutations([i for i, (kind, _) in enumerate(axes) if kind != other])) for other in "yx"]
    return axes, orders, draw(st.sampled_from(DTYPES)), draw(st.sampled_from(["power", "multiply", "dot"]))


def laid_out(value, order, rank):
    """A value whose axes have their places in `order`, spread out to all axes."""
    value = value.transpose(np.argsort(order))
    return jnp.expand_dims(value, [i for i in range(rank) if i not in order])


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shaped())
def test_any_order_of_any_axes(case):
    axes, orders, dtype, form = case
    over = tuple(i for i, (kind, _) in enumerate(axes) if kind == "k")

    def fun(x, y):
        d = laid_out(x, orders[0], len(axes)) - laid_out(y, orders[1], len(axes))
        if form == "dot":
            kept = tuple(i for i in range(len(axes)) if i not in over)
            return jax.lax.dot_general(d, d, ((over, over), (kept, kept)))
        return (d**2.0 if form == "power" else d * d).sum(over)

    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=[axes[i][1] for i in order]).astype(dtype) for order in orders)
    ((new,), (old,)), (exact,) = rewritten(fun, x, y), in_f64(fun, x, y)
    assert new.shape == old.shape
    error = np.abs(new.astype(np.float64) - exact).max() / np.abs(exact).max()
    assert error <= 20 * EPSILON[np.dtype(dtype).name]


# Gradients.


def matern12(d2):
    return jnp.exp(-jnp.sqrt(jnp.where(d2 > 0, d2, 1.0)) * (d2 > 0))


def safe_norm(d2):
    return jnp.where(d2 == 0, 0.0, jnp.sqrt(jnp.where(d2 == 0, 1.0, d2)))


KERNELS = {
    "gaussian": lambda d2: jnp.exp(-d2 / 2),
    "matern12": matern12,
    "gpjax": lambda d2: jnp.exp(-jnp.sqrt(jnp.maximum(d2, 1e-36))),
    "safe_norm": safe_norm,
    "log": lambda d2: jnp.log(d2 + 1e-12),
    "inverse": lambda d2: 1 / (d2 + 1e-6),
    "power": lambda d2: (d2 + 1e-6) ** 0.75,
    "multiquadric": lambda d2: jax.lax.rsqrt(1 + d2),
}


def points(dtype, kind):
    x = real(30, 3, dtype=np.float64).astype(dtype)
    if kind == "spread":
        return x, real(20, 3).astype(dtype)
    y = x[:20].copy()
    if kind == "near":
        y += (1e-6 * real(20, 3, dtype=np.float64)).astype(dtype)
    return x, y


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["spread", "near", "same"])
@pytest.mark.parametrize("name", KERNELS)
def test_gradients_are_finite(name, kind, dtype):
    x, y = points(dtype, kind)
    fun = jax.grad(lambda x, y: KERNELS[name](squared(x, y)).sum(), (0, 1))
    new, old = rewritten(fun, x, y)
    for one, other in zip(new, old, strict=True):
        assert np.isfinite(other).all()
        assert np.isfinite(one).all()
        if kind == "spread" or name in ("gaussian", "multiquadric"):
            assert np.abs(one - other).max() <= 2e-4 * np.abs(other).max()
        elif name in ("matern12", "gpjax", "safe_norm"):
            # One pair in a sum of 20 or 30: its unit vector is lost at most, near the point itself.
            assert np.abs(one - other).max() <= 2.5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients_among_the_points_themselves(dtype):
    x = real(30, 3).astype(dtype)
    x[7] = x[3]
    x[9] = x[4] + dtype(1e-6)
    for kernel in KERNELS.values():
        fun = jax.grad(lambda x, kernel=kernel: kernel(squared(x, x)).sum())
        (new,), (old,) = rewritten(fun, x)
        assert np.isfinite(old).all()
        assert np.isfinite(new).all()


def test_gradient_of_a_norm():
    """Unguarded: finite as long as no two points are the same, and for what is nearly so too."""
    x, y = points(np.float32, "near")
    (new,), (old,) = rewritten(jax.grad(lambda x, y: by_norm(x, y).sum()), x, y)
    assert np.isfinite(old).all()
    assert np.isfinite(new).all()
    assert np.abs(new - old).max() <= 2.5


def gradient(kernel):
    return jax.grad(lambda x, y, s, v: ((kernel(x, y, s) @ v) ** 2).sum(), (0, 1, 2))


@pytest.mark.parametrize("kernel", [ard, gpjax_matern])
def test_gradients_leave_nothing_of_the_size_of_all(kernel):
    args = (X, Y, SCALE, real(17))
    program = program_of(gradient(kernel), *args)
    module = normal(program)
    assert rewrite(module, PASS) == (4 if kernel is ard else 3)
    assert biggest(entry_graph(module)) == X.shape[0] * Y.shape[0]
    assert rewrite(module, PASS) == 0
    for new, exact in zip(run(program, module, *args), in_f64(gradient(kernel), *args), strict=True):
        assert np.abs(new - exact).max() <= 5e-5 * np.abs(exact).max()


def test_gradient_of_the_dot_form():
    fun = jax.grad(lambda x, y: jnp.exp(-by_dot(x, y)).sum(), (0, 1))
    program = program_of(fun, X, Y)
    module = normal(program)
    assert rewrite(module, PASS) == 3
    assert biggest(entry_graph(module)) == X.shape[0] * Y.shape[0]
    for new, exact in zip(run(program, module, X, Y), in_f64(fun, X, Y), strict=True):
        assert np.abs(new - exact).max() <= 1e-5 * np.abs(exact).max()


# With the loops.


def matvec(x, y, v):
    return jnp.exp(-0.5 * squared(x, y) / x.shape[1]) @ v


def test_what_it_makes_can_be_split():
    x, y, v = real(11, 4), real(13, 4), real(13)
    program = program_of(matvec, x, y, v)
    module = normal(program)
    rewrite(module, PASS)
    attach_rules(module)
    (whole,) = run(program, module, x, y, v)
    splits = possible_splits(module)
    assert any(s.axis.n == 11 for s in splits)
    assert any(s.axis.n == 13 for s in splits)
    for possible in splits:
        (new,) = run(program, apply_split(module, possible, possible.chunks[0]), x, y, v)
        assert np.allclose(new, whole, rtol=1e-5, atol=1e-6)


def test_within_a_budget():
    """A kernel matvec of 16 MB of distances: rewritten, then in loops of a few hundred KB."""
    x, y, v = real(2000, 64), real(2000, 64), real(2000)
    ex = exported(matvec, *(spec(*a.shape) for a in (x, y, v)))
    plan = shm.plan(ex, "4MB", target="cpu", options=RELAXED)
    assert plan.fits
    assert [step.pass_name for step in plan.steps][:2] == ["pairwise-distance", "split-into-loops"]
    assert plan.exported is not None
    new, old = (np.asarray(jax.jit(e.call)(x, y, v)) for e in (plan.exported, ex))
    assert yardstick(new, old, *in_f64(matvec, x, y, v)) is None


def test_match_says_what_it_costs():
    (match,) = matches(PASS, squared, X, Y)
    assert isinstance(match, Match)
    assert match.summary == "compute squared distances f32[23,17] with a matmul"
    assert match.numerics == "relaxed"
    assert [k.flops for k in match.kernels if k.matmul] == [2 * 23 * 17 * 5]
    assert match.new_bytes == 4 * (23 + 17) * 5


def measure():
    """The table of docs/passes/pairwise_distance.md: worst of five draws."""
    for dtype in DTYPES:
        for d in (2, 3, 32, 1000):
            rows = np.max([_errors(dtype, d, np.random.default_rng(seed)) for seed in range(5)], axis=0)
            print(f"| {np.dtype(dtype).name} | {d} | " + " | ".join(f"{error:.1e}" for error in rows) + " |")


def _errors(dtype, d, rng):
    """Relative error of far pairs, new and original; of near duplicates: squares by the spread, new and original,
    and new distances by its root."""
    x, y = (rng.normal(size=(200, d)).astype(dtype) for _ in range(2))
    exact, far = exact_squares(x, y), exact_squares(x, y) > 0.1 * spread(x, y)
    relative = [
        (np.abs(values[0].astype(np.longdouble) - exact) / exact)[far].max() for values in rewritten(squared, x, y)
    ]
    x, y = near_duplicates(dtype, 200, 200, d, 1e-3, rng)
    exact, scale = exact_squares(x, y), spread(x, y)
    new, old = (values[0].astype(np.longdouble) for values in rewritten(squared, x, y))
    absolute = [(np.abs(values - exact) / scale).max() for values in (new, old)]
    return [*relative, *absolute, (np.abs(np.sqrt(new) - np.sqrt(exact)) / np.sqrt(scale)).max()]


if __name__ == "__main__":
    measure()
