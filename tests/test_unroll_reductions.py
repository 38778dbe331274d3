"""unroll-reductions: short reduced dimensions one element at a time, with the same results."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stablehlo_mem as shm
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.passes.unroll_reductions import UnrollReductions
from stablehlo_mem.rules.rule import Blocked
from tests import textual
from tests.support import exported, normal, program_of, rewrite, run, same_bits, spec

TEXTUAL = [name for name in textual.CASES if name.startswith("unroll_reductions")]
PASS = UnrollReductions()
ONLY = shm.Options(passes=("unroll-reductions",))


def drawn(*shape, dtype=np.float32):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(dtype)


SPECIALS = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1], np.float32)
EXACT = {
    "maximum": (lambda x, y: (x[:, None] * y[None]).max(-1), drawn(8, 5), drawn(9, 5)),
    "maximum of specials": (lambda x, y: (x[:, None] - y[None]).max(-1), np.resize(SPECIALS, (8, 5)), drawn(9, 5)),
    "argmin": (lambda x, y: jnp.argmin(jnp.abs(x[:, None] - y[None]), 1), drawn(40, 5), drawn(9, 5)),
    "argmax with ties": (lambda x, y: jnp.argmax(x[:, None] > y[None], -1), drawn(40, 5), drawn(9, 5)),
    "any": (lambda x, y: (x[:, None] > y[None]).any(-1), drawn(8, 5), drawn(9, 5)),
    "integers": (lambda x, y: (x[:, None] * y[None]).sum(-1), np.arange(40).reshape(8, 5), np.arange(45).reshape(9, 5)),
    "iota": (lambda x: (x[:, None] + jnp.arange(7.0)[:, None]).max(1), drawn(8, 9)),
}
SUMS = {
    "L1": (lambda x, y: jnp.abs(x[:, None] - y[None]).sum(-1), drawn(8, 20), drawn(9, 20)),
    "in the middle": (
        lambda x, y: jnp.exp(-((x[:, :, None] - y[:, None]) ** 2)).sum(1),
        drawn(3, 33, 4),
        drawn(3, 6, 4),
    ),
    "in front": (lambda x, y: jnp.abs(x[:, :, None] - y[:, None, :]).sum(0), drawn(5, 20), drawn(5, 20)),
    "product": (lambda x, y: (1 + x[:, None] * y[None] / 9).prod(-1), drawn(8, 20), drawn(9, 20)),
    "float64": (lambda x, y: jnp.abs(x[:, None] - y[None]).sum(-1), drawn(8, 4, dtype=np.float64), drawn(9, 4)),
    "nested": (
        lambda x, y: jnp.sin(jnp.abs(x[:, None] - y[None]).sum(-1))[..., None].sum(-1),
        drawn(8, 4),
        drawn(9, 4),
    ),
    "bfloat16": (
        lambda x, y: jax.lax.reduce(jnp.abs(x[:, None] - y[None]), jnp.bfloat16(0), jax.lax.add, (2,)),
        drawn(8, 40, dtype=ml_dtypes.bfloat16),
        drawn(9, 40, dtype=ml_dtypes.bfloat16),
    ),
}


@pytest.mark.parametrize("name", TEXTUAL)
def test_textual(name):
    expected, actual = textual.expected_and_actual(name)
    assert actual == expected
    assert rewrite(normal(expected), PASS) == 0


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("bytes_first", [False, True])
def test_gives_the_same_bits(name, bytes_first):
    f, *args = EXACT[name]
    program = program_of(f, *args)
    module = normal(program)
    assert rewrite(module, PASS, bytes_first=bytes_first) == 1
    for new, old in zip(run(program, module, *args), run(program, None, *args), strict=True):
        assert same_bits(new, old)


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("bytes_first", [False, True])
def test_sums_as_well_as_before(name, bytes_first):
    f, *args = SUMS[name]
    program = program_of(f, *args)
    module = normal(program)
    assert rewrite(module, PASS, bytes_first=bytes_first) == 1
    (new,), (old,) = run(program, module, *args), run(program, None, *args)
    with jax.enable_x64(True):
        exact = np.asarray(f(*(np.asarray(a, np.float64) for a in args)) if name != "bfloat16" else _l1(*args))
    error, before = (np.abs(np.asarray(v, np.float64) - exact).max() for v in (new, old))
    assert new.dtype == old.dtype
    assert error <= 2 * before + 1e-6 * np.abs(exact).max()


def _l1(x, y):
    x, y = (np.asarray(a, np.float64) for a in (x, y))
    return np.abs(x[:, None] - y[None]).sum(-1)


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.tuples(st.integers(9, 20), st.integers(9, 20), st.integers(2, 40)),
    order=st.permutations(range(3)),
    dtype=st.sampled_from([np.float32, np.int32, jnp.bfloat16]),
)
def test_at_any_size_and_order(sizes, order, dtype):
    rows, columns, depth = sizes

    def f(x, y):
        values = jnp.where(x[:, None] > y[None], x[:, None] - y[None], y[None] * 2)
        return jnp.max(values.transpose(order), order.index(2))

    rng = np.random.default_rng(0)
    args = [np.asarray(jnp.asarray(rng.integers(-9, 9, (n, depth))).astype(dtype)) for n in (rows, columns)]
    program = program_of(f, *args)
    module = normal(program)
    assert rewrite(module, PASS) == 1
    for new, old in zip(run(program, module, *args), run(program, None, *args), strict=True):
        assert same_bits(new, old)


@pytest.mark.parametrize(
    ("f", "code"),
    [
        (lambda x: jnp.abs(x[:, None] - x[None, :2]).max(1), None),  # reads half as much as it reduces
        (lambda x: jnp.abs(x).sum(1), None),
        (lambda x: (y := jnp.abs(x[:, None] - x[None])).sum(-1) + y[..., 0], None),
        (lambda x: jnp.sort(x[:, None] - x[None], -1).sum(-1), None),
        (lambda x: jnp.abs(x[:, None, :, None] - x[None, :, None]).sum((2, 3)), None),
        (lambda x: jnp.abs(x.T[:, None] - x.T[None]).sum(-1), "too-long"),
        (lambda x: jnp.abs(x.T[:, None, :40] - x.T[None, :, :40]).sum(-1).sum(-1), "reduced-again"),
    ],
)
def test_refuses(f, code):
    graph = entry_graph(module := normal(program_of(f, drawn(200, 12))))
    root = next(op.index for op in graph.ops if op.name == "stablehlo.reduce")
    match = PASS.match(graph, root, bytes_first=True)
    assert (match.code if isinstance(match, Blocked) else match) == code
    assert rewrite(module, PASS) == 0


def l1_neighbours(x, q):
    return jax.lax.top_k(-jnp.abs(q[:, None] - x[None]).sum(-1), 10)


@pytest.mark.parametrize(("depth", "chunked"), [(3, False), (100, True)])
def test_brings_a_program_within_its_budget(depth, chunked):
    """Without YNN fusions XLA:CPU writes out what it reduces over more than 32 elements."""
    program = exported(l1_neighbours, spec(4000, depth), spec(500, depth))
    options = shm.Options() if chunked else ONLY
    budget = 4 * 4500 * depth + 80 * 500 + (2 if chunked else 9) * 10**6
    plan = shm.plan(program, budget, target="cpu", options=options)
    if chunked:
        assert plan.before.peak_bytes > budget >= plan.after.peak_bytes
    fastest = shm.plan(program, None, target="cpu", options=ONLY)
    assert "unroll-reductions" in {s.pass_name for s in (plan if chunked else fastest).steps}


def test_is_not_for_numerics_exact():
    program = exported(l1_neighbours, spec(4000, 8), spec(500, 8))
    options = shm.Options(numerics="exact", passes=("unroll-reductions",))
    assert shm.plan(program, None, target="cpu", options=options).steps == ()
    assert shm.plan(program, None, target="cpu", options=ONLY).steps != ()
