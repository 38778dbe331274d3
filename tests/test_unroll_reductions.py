"""unroll-reductions: short reduced dimensions one element at a time, with the same results."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stablehlo_mem as shm
from stablehlo_mem.passes import PASSES
from stablehlo_mem.passes.unroll_reductions import UnrollReductions
from stablehlo_mem.rewriting.rewriting_pass import Match
from stablehlo_mem.targets.chips import CHIPS
from tests.support import exported, normals, refusals, rewritten, spec

PASS = UnrollReductions()
ONLY = shm.Options(passes=("unroll-reductions",))

SPECIALS = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1], np.float32)
EXACT = {
    "maximum": (lambda x, y: (x[:, None] * y[None]).max(-1), normals(8, 5), normals(9, 5)),
    "maximum of specials": (lambda x, y: (x[:, None] - y[None]).max(-1), np.resize(SPECIALS, (8, 5)), normals(9, 5)),
    "argmin": (lambda x, y: jnp.argmin(jnp.abs(x[:, None] - y[None]), 1), normals(40, 5), normals(9, 5)),
    "argmax with ties": (lambda x, y: jnp.argmax(x[:, None] > y[None], -1), normals(40, 5), normals(9, 5)),
    "any": (lambda x, y: (x[:, None] > y[None]).any(-1), normals(8, 5), normals(9, 5)),
    "integers": (lambda x, y: (x[:, None] * y[None]).sum(-1), np.arange(40).reshape(8, 5), np.arange(45).reshape(9, 5)),
    "a reducer with a constant": (
        lambda x, y: jax.lax.reduce(x[:, None] - y[None], -9.0, lambda a, b: jnp.maximum(jnp.maximum(a, b), 0.5), (2,)),
        normals(8, 5),
        normals(9, 5),
    ),
    "iota": (lambda x: (x[:, None] + jnp.arange(7.0)[:, None]).max(1), normals(8, 9)),
}
SUMS = {
    "L1": (lambda x, y: jnp.abs(x[:, None] - y[None]).sum(-1), normals(8, 20), normals(9, 20)),
    "in the middle": (
        lambda x, y: jnp.exp(-((x[:, :, None] - y[:, None]) ** 2)).sum(1),
        normals(3, 33, 4),
        normals(3, 6, 4),
    ),
    "in front": (lambda x, y: jnp.abs(x[:, :, None] - y[:, None, :]).sum(0), normals(5, 20), normals(5, 20)),
    "product": (lambda x, y: (1 + x[:, None] * y[None] / 9).prod(-1), normals(8, 20), normals(9, 20)),
    "float64": (lambda x, y: jnp.abs(x[:, None] - y[None]).sum(-1), normals(8, 4, dtype=np.float64), normals(9, 4)),
    "nested": (
        lambda x, y: jnp.sin(jnp.abs(x[:, None] - y[None]).sum(-1))[..., None].sum(-1),
        normals(8, 4),
        normals(9, 4),
    ),
    "bfloat16": (
        lambda x, y: jax.lax.reduce(jnp.abs(x[:, None] - y[None]), jnp.zeros((), x.dtype), jax.lax.add, (2,)),
        normals(8, 40, dtype=ml_dtypes.bfloat16),
        normals(9, 40, dtype=ml_dtypes.bfloat16),
    ),
}


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("prefer_memory", [False, True])
def test_gives_the_same_bits(name, prefer_memory):
    after = rewritten(PASS, *EXACT[name], prefer_memory=prefer_memory)
    assert after.count == 1
    assert after.same_bits


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("prefer_memory", [False, True])
def test_sums_as_well_as_before(name, prefer_memory):
    after = rewritten(PASS, *SUMS[name], prefer_memory=prefer_memory)
    assert after.count == 1
    assert not after.wrong


@settings(max_examples=16, deadline=None)
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
    after = rewritten(PASS, f, *args)
    assert after.count == 1
    assert after.same_bits


def many_times(x):
    for _ in range(90):
        x = jnp.sqrt(x)
    return x


@pytest.mark.parametrize(
    ("f", "code"),
    [
        (lambda x: jnp.abs(x[:, None] - x[None, :2]).max(1), None),  # reads half as much as it reduces
        (lambda x: jnp.abs(x).sum(1), None),
        (lambda x: (y := jnp.abs(x[:, None] - x[None])).sum(-1) + y[..., 0], None),
        (lambda x: jnp.sort(x[:, None] - x[None], -1).sum(-1), None),
        (lambda x: jnp.abs(x[:, None, :, None] - x[None, :, None]).sum((2, 3)), None),
        (lambda x: jnp.abs(x.T[:, None] - x.T[None]).sum(-1), None),  # of 200 elements
        (lambda x: many_times(jnp.abs(x.T[:, None, :48] - x.T[None, :, :48])).sum(-1), "too-many"),
        (lambda x: jnp.argmin(jnp.abs(x.T[:, None, :40] - x.T[None, :, :40]).sum(-1), -1), "reduced-again"),
    ],
)
def test_refuses(f, code):
    assert refusals(PASS, f, normals(200, 12))[0] == code


def softmax_rows(d):
    return jax.nn.softmax(d, -1).sum(0)


@pytest.mark.parametrize(
    ("after", "depth", "code"),
    [
        (lambda d: d.min(-1), 12, None),
        (lambda d: d.min(-1), 16, "reduced-again"),
        (lambda d: jnp.exp(-d).sum(), 16, "reduced-again"),
        (softmax_rows, 16, "reduced-again"),
        (lambda d: (d.min(-1), d.min(0)), 16, None),  # two fusions read it
        (lambda d: jnp.where(d > 1, d, 0.0).sum(-1), 16, None),  # YNNPACK has no select
        (lambda d: jnp.argmin(d, -1), 16, None),  # nor this
        (lambda d: d @ d, 16, None),
        (lambda d: d, 16, None),
    ],
)
def test_refuses_more_than_ynnpack_takes_into_one_fusion(after, depth, code):
    """XLA:CPU gives a reduction and all it is made of to YNNPACK, up to 100 ops; what is left over goes to memory."""
    program = (lambda x, y: after(((x[:, None] - y[None]) ** 2).sum(-1)), *[normals(50, depth)] * 2)
    found = refusals(PASS, *program)
    assert found[0] == code if code else isinstance(found[0], Match)
    assert isinstance(refusals(PASS, *program, chip="cuda:h200")[0], Match)


def laplacian_product(x, f):
    """A normalised graph Laplacian of RBF weights, times features: weights are read twice, degrees come between."""
    weights = jnp.exp(-((x[:, None] - x[None]) ** 2).sum(-1))
    degrees = weights.sum(1)
    return (jnp.eye(len(x)) - weights / jnp.sqrt(degrees[:, None] * degrees[None])) @ f


def test_xla_gpu_computes_unrolled_reductions_where_they_are_read():
    """Distances of 16 features are a reduction, which is written; XLA fuses only shorter ones by itself."""
    program = exported(laplacian_product, spec(32768, 16), spec(32768, 8), platform="cuda")
    plan = shm.plan(program, "25%", target="cuda:h200")
    assert plan.fits
    assert plan.before.peak_bytes > plan.budget_bytes
    assert "unroll-reductions" in {step.pass_name for step in plan.steps}
    others = tuple(one.name for one in PASSES if one.name != PASS.name)
    without = shm.plan(program, "25%", target="cuda:h200", options=shm.Options(passes=others))
    assert plan.cost_after.seconds < without.cost_after.seconds


def l1_neighbours(x, q):
    return jax.lax.top_k(-jnp.abs(q[:, None] - x[None]).sum(-1), 10)


def test_saves_memory_and_leaves_loops_to_save_more():
    """Without YNN fusions XLA:CPU writes out what it reduces over more than 32 elements."""
    program = exported(l1_neighbours, spec(4000, 48), spec(500, 48))
    budget = 4 * 4500 * 48 + 80 * 500 + 4 * 10**6
    plan = shm.plan(program, budget, target="cpu")
    assert plan.before.peak_bytes > budget >= plan.after.peak_bytes
    assert [s.pass_name for s in plan.steps] == ["unroll-reductions", "split-into-loops"]


def l1_quantiles(x, q):
    """A sort of which elements far apart are used needs a whole row of distances."""
    return jnp.sort(jnp.abs(q[:, None] - x[None]).sum(-1))[:, ::10_000]


def test_reads_operands_as_they_lie_where_there_is_no_room_for_their_transposes():
    specs = spec(100_000, 48), spec(100, 48)
    budget = 4 * 100_100 * 48 + 40 * 100 + 10**7
    options = shm.Options(passes=("unroll-reductions", "split-into-loops"))
    plan = shm.plan(exported(l1_quantiles, *specs), budget, target="cpu", options=options)
    assert plan.before.peak_bytes > budget >= plan.after.peak_bytes
    (unrolled,) = (step for step in plan.steps if step.pass_name == "unroll-reductions")
    assert unrolled.params.prefer_memory


def test_is_not_for_numerics_exact():
    program = exported(l1_neighbours, spec(4000, 8), spec(500, 8))
    options = shm.Options(numerics="exact", passes=("unroll-reductions",))
    assert shm.plan(program, None, target="cpu", options=options).steps == ()
    assert shm.plan(program, None, target="cpu", options=ONLY).steps != ()


@pytest.mark.parametrize("depth", [64, 300])
def test_chunks_are_not_made_for_what_ynnpack_reduces_as_it_makes_it(depth):
    """Only the compiler's report has those 64 elements a result; rows of 300 are more than it holds at a time."""
    program = exported(lambda x, y: ((x[:, None] - y[None]) ** 2).sum(-1).min(1), spec(1000, depth), spec(1000, depth))
    before = shm.profile(program, target="cpu")
    budget = before.peak_bytes - before.measured.temp_bytes * 3 // 4
    plan = shm.plan(program, budget, target="cpu", options=shm.Options(passes=("split-into-loops",)))
    assert before.peak_bytes > budget >= plan.after.peak_bytes
    chunk_bytes = plan.steps[0].params.chunk * 1000 * depth * 4
    assert (chunk_bytes > CHIPS["cpu"].cache_bytes) is (depth == 64)


@pytest.mark.parametrize("trips", [2, 50])
def test_in_a_loop_that_does_not_change_it_too(trips):
    """XLA takes the old form out of the loop, and the new one as well."""

    def f(x, v):
        def step(_, carry):
            return jnp.tanh(jnp.exp(-jnp.abs(x[:, None] - x[None]).sum(-1)) @ carry)

        return jax.lax.fori_loop(0, trips, step, v)

    plan = shm.plan(exported(f, spec(1000, 4), spec(1000, 3)), None, target="cpu", options=ONLY)
    assert [s.pass_name for s in plan.steps] == ["unroll-reductions"]
