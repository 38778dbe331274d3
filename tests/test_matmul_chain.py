"""matmul-chain: what comes out, to the letter, in tests/ir/matmul_chain_*.mlir; here optimality,
results and the whole way."""

import functools
import itertools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stablehlo_mem as shm
from stablehlo_mem.analysis.op_cost import op_flops
from stablehlo_mem.einsum.matcher import collect
from stablehlo_mem.pass_api.candidate import Options
from stablehlo_mem.passes.matmul_chain import MatmulChain
from stablehlo_mem.rewriting.rewriting_pass import Match
from tests.support import exported, graph_of, in_f64, matches, normals, program_of, refusals, rewritten, spec, yardstick
from tests.test_contraction_order import exhaustive

PASS = MatmulChain()


def vector(a, b, v):
    return (a @ b) @ v


def flops(graph):
    return sum(op_flops(graph, op) for op in graph.ops)


@st.composite
def chains(draw):
    """Dimensions, which matrices come transposed, and in what order they are multiplied as written."""
    dims = draw(st.lists(st.integers(2, 50), min_size=3, max_size=9))
    transposed = [draw(st.booleans()) for _ in dims[1:]]
    left = list(range(len(dims) - 1))
    order = [draw(st.integers(0, n - 2)) for n in range(len(left), 1, -1)]
    return dims, transposed, order


@settings(deadline=None, max_examples=16, suppress_health_check=[HealthCheck.too_slow])
@given(chains(), st.booleans())
def test_random_chains_are_optimal(case, prefer_memory):
    dims, transposed, order = case
    shapes = list(itertools.pairwise(dims))
    args = [
        normals(*(s[::-1] if t else s), seed=i) / 5 for i, (s, t) in enumerate(zip(shapes, transposed, strict=True))
    ]

    def fun(*args):
        left = [a.T if t else a for a, t in zip(args, transposed, strict=True)]
        for i in order:
            left[i : i + 2] = [left[i] @ left[i + 1]]
        return left[0]

    after = rewritten(PASS, fun, *args, prefer_memory=prefer_memory)
    assert after.wrong == []
    graph = graph_of(after.text)
    best_flops, best_peak = exhaustive(tuple(dims), prefer_memory=prefer_memory)
    if prefer_memory:
        last = max(op.index for op in graph.ops if op.name == "stablehlo.dot_general")
        product = collect(graph, last)
        assert product is not None
        assert product.written.peak_bytes == best_peak
    else:
        assert flops(graph) == best_flops


def test_a_chain_of_72():
    dims = [int(d) for d in np.random.default_rng(0).integers(1, 60, 73)]
    args = [normals(*shape, seed=i) / 6 for i, shape in enumerate(itertools.pairwise(dims))]
    assert rewritten(PASS, lambda *args: functools.reduce(jnp.matmul, args), *args).count == 1


A, B, C, V = normals(80, 20), normals(20, 80), normals(80, 80), normals(80)
PROGRAMS = {
    "vector at the end": lambda a, b, c, v: (a @ b) @ v,
    "vectors at both ends": lambda a, b, c, v: v @ (a @ b) @ v,
    "a square": lambda a, b, c, v: (c @ c) @ v,
    "a Gram matrix": lambda a, b, c, v: (a @ a.T) @ v,
    "transposes": lambda a, b, c, v: (a @ b).T @ (v @ c),
    "sum of all": lambda a, b, c, v: (a @ b).sum(),
    "sum of columns": lambda a, b, c, v: (a @ b @ c).sum(0),
    "mean": lambda a, b, c, v: (a @ b @ c).mean(1),
    "trace": lambda a, b, c, v: jnp.trace(a @ b @ c),
    "weights on a diagonal": lambda a, b, c, v: ((a * v[:, None]) @ b) @ v,
    "diagonal matrix": lambda a, b, c, v: jnp.diag(v) @ c,
    "ones": lambda a, b, c, v: (a @ b) @ jnp.ones(80),
    "outer product": lambda a, b, c, v: jnp.outer(v, v) @ a,
    "scalings": lambda a, b, c, v: (-(a @ b) * v[0] / 3) @ v,
    "addition": lambda a, b, c, v: (a @ b + c) @ v,
    "additions": lambda a, b, c, v: (2 * (a @ b) - (c + b.T @ a.T)) @ v,
    "rank one update": lambda a, b, c, v: (c - jnp.outer(v, v @ c)) @ v,
    "multi_dot": lambda a, b, c, v: jnp.linalg.multi_dot([a, b, c]) @ v,
    "in a loop": lambda a, b, c, v: jax.lax.fori_loop(0, 3, lambda _, v: (a @ b) @ v / 80, v),
    "gradient": jax.grad(lambda a, b, c, v: (((a @ b) @ v) ** 2).sum(), argnums=(0, 1, 3)),
    "batch": lambda a, b, c, v: jax.vmap(lambda s: (s * a @ b) @ v)(v),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results(name):
    after = rewritten(PASS, PROGRAMS[name], A, B, C, V)
    before = graph_of(program_of(PROGRAMS[name], A, B, C, V))
    loops = [block for op in before.ops if op.name == "stablehlo.while" for block in op.blocks]
    assert after.count
    assert after.wrong == []
    assert loops or flops(graph_of(after.text)) < flops(before)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.int32])
def test_other_element_types(dtype):
    a, b, v = (normals(*s, dtype=dtype) for s in ((40, 8), (8, 40), (40,)))
    after = rewritten(PASS, vector, a, b, v)
    assert (after.count, after.wrong) == (1, [])


def test_f64():
    with jax.enable_x64(True):
        args = [normals(*s, dtype=np.float64) for s in ((40, 8), (8, 40), (40,))]
        after = rewritten(PASS, vector, *args)
        assert (after.count, after.wrong) == (1, [])


@pytest.mark.parametrize(
    ("shapes", "count"),
    [(((8, 0), (0, 8), (8,)), 0), (((1, 1), (1, 1), (1,)), 0), (((8, 1), (1, 8), (8, 1)), 1)],
)
def test_dimensions_of_no_and_one_element(shapes, count):
    after = rewritten(PASS, vector, *(normals(*s) for s in shapes))
    assert (after.count, after.wrong) == (count, [])


def test_matmuls_into_a_wider_type_are_left_alone():
    def fun(a, b, c):
        wide = functools.partial(jnp.matmul, preferred_element_type=np.float32)
        return wide(wide(a, b).astype(jnp.bfloat16), c)

    a, b, c = (normals(*s, dtype=ml_dtypes.bfloat16) for s in ((40, 8), (8, 40), (40, 2)))
    assert rewritten(PASS, fun, a, b, c).count == 0


@pytest.mark.parametrize(("prefer_memory", "code"), [(False, None), (True, "shared-intermediate")])
def test_shared_intermediates_stay_and_are_named_if_bytes_matter(prefer_memory, code):
    found = refusals(PASS, lambda a, b, c: ((p := a @ b) @ c, jnp.exp(p)), C, C, A, prefer_memory=prefer_memory)
    assert found == [None, code]


def test_a_shared_intermediate_nobody_needs_any_longer_goes():
    after = rewritten(PASS, lambda a, b, v: (p := a @ b) @ v + p.T @ v, A, B, V)
    assert (after.count, after.wrong) == (2, [])
    assert "80x80" not in after.text


SPECS = (spec(2000, 64), spec(64, 2000), spec(2000))


@pytest.mark.parametrize("budget", [None, "2MiB", "min"])
def test_plans_take_it(budget):
    plan = shm.plan(exported(vector, *SPECS), budget)
    assert [step.pass_name for step in plan.steps] == ["matmul-chain"]
    assert plan.after.peak_bytes < 2 * 2**20
    args = [normals(*s.shape) for s in SPECS]
    np.testing.assert_allclose(plan.result.call(*args), args[0] @ (args[1] @ args[2]), rtol=1e-3, atol=1e-2)


def test_reaches_a_budget_no_split_does():
    program = exported(vector, *SPECS)
    budget = (2 * 2000 * 64 + 2 * 2000 + 2 * 64) * 4
    assert "2000x2000" not in shm.optimize(program, budget).mlir_module()
    with pytest.raises(shm.BudgetError):
        shm.optimize(program, budget, options=Options(passes=("split-into-loops",)))


@pytest.mark.parametrize("options", [Options(numerics="exact"), Options(passes=("split-into-loops",))])
def test_options_switch_it_off(options):
    assert shm.plan(exported(vector, *SPECS), None, options=options).steps == ()


ONLY = Options(passes=("matmul-chain",))


def test_takes_more_time_for_less_memory_under_a_budget_only():
    program = exported(lambda a, b, c: a @ (b @ c), spec(300, 200), spec(200, 1000), spec(1000, 5000))
    arguments_and_outputs = 4 * (300 * 200 + 200 * 1000 + 1000 * 5000 + 300 * 5000)
    assert shm.plan(program, None, options=ONLY).steps == ()
    plan = shm.plan(program, arguments_and_outputs + 1_300_000, options=ONLY)
    assert plan.fits
    assert plan.after.peak_bytes == arguments_and_outputs + 300 * 1000 * 4


def test_says_what_stands_in_the_way():
    program = exported(lambda a, b: ((p := a @ b) @ b[:, :2], jnp.exp(p).sum()), spec(1000, 1000), spec(1000, 1000))
    plan = shm.plan(program, 10_000_000, options=ONLY)
    assert not plan.fits
    assert "shared-intermediate" in [refusal.code for refusal in plan.refusals]


def test_gradients_never_build_the_product():
    grad = jax.grad(lambda a, b, v: (vector(a, b, v) ** 2).sum(), argnums=(0, 1, 2))
    plan = shm.plan(exported(grad, *SPECS), "4MiB")
    assert plan.fits
    assert "2000x2000" not in str(plan.module)
    assert "while" not in str(plan.module)


def test_zeros_off_a_diagonal_that_are_multiplied_count():
    """0 * inf is NaN: what jnp.diag puts off the diagonal may be left out where it is summed, not in a product."""
    for fun, args, numerics in (
        (lambda d, a: jnp.diag(d) @ a, (normals(8), normals(8, 8)), "relaxed"),
        (lambda a, b: jnp.trace(a @ b), (normals(8, 8), normals(8, 8)), "reassociate"),
    ):
        found = matches(PASS, fun, *args, prefer_memory=False)
        assert [match.numerics for match in found if isinstance(match, Match)] == [numerics]


@pytest.mark.parametrize("budget", [None, "min"])
def test_what_is_left_of_data_less_its_mean_is_not_rounded_like_the_mean(budget):
    def centred(x, w):
        return (x - x.mean(0)) @ w

    args = normals(1024, 64) + 1e4, normals(64, 4)
    program = exported(centred, *args)
    plan = shm.plan(program, budget, target="cpu")
    assert "matmul-chain" not in {step.pass_name for step in plan.steps}
    new, old, (exact,) = plan.result.call(*args), program.call(*args), in_f64(centred, *args)
    assert yardstick(np.asarray(new), np.asarray(old), exact) is None
    assert not any(matches(PASS, centred, *args, prefer_memory=False))
