"""matmul-chain: what comes out, to the letter, in tests/ir/matmul_chain_*.mlir; here optimality,
results and the whole way."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stablehlo_mem as shm
from stablehlo_mem.collecting import collect
from stablehlo_mem.cost import op_flops
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.passes.matmul_chain import MatmulChain
from stablehlo_mem.passes.normalise import remove_rules
from stablehlo_mem.plan import Options
from stablehlo_mem.rewriting import Match
from stablehlo_mem.rules.rule import Blocked
from tests import textual
from tests.support import exported, graph_of, in_f64, normal, program_of, rewrite, run, spec, text, yardstick
from tests.test_products import exhaustive

PASS = MatmulChain()
CASES = [name for name in textual.CASES if name.startswith("matmul_chain_")]


@pytest.mark.parametrize("name", CASES)
def test_text(name):
    expected, actual = textual.expected_and_actual(name)
    assert actual == expected


@pytest.mark.parametrize("name", CASES)
def test_finds_nothing_in_what_it_made(name):
    expected, _ = textual.expected_and_actual(name)
    assert rewrite(normal(expected), PASS, bytes_first=name == "matmul_chain_bytes_first") == 0


def numbers(*shape, dtype: Any = np.float32, seed=0):
    return np.random.default_rng(seed + sum(shape)).normal(size=shape).astype(dtype)


def rewritten(fun, *args, bytes_first=False):
    """How often the pass fires, what is wrong with the results then, and the program."""
    program = program_of(fun, *args)
    module = normal(program)
    count = rewrite(module, PASS, bytes_first=bytes_first)
    assert rewrite(module, PASS, bytes_first=bytes_first) == 0
    after = entry_graph(module)
    flops = sum(op_flops(after, op) for op in after.ops)
    remove_rules(module)
    results = zip(run(program, module, *args), run(program, None, *args), in_f64(fun, *args), strict=True)
    return count, [wrong for wrong in (yardstick(*three) for three in results) if wrong], text(module), flops


@st.composite
def chains(draw):
    """Dimensions, which matrices come transposed, and in what order they are multiplied as written."""
    dims = draw(st.lists(st.integers(2, 50), min_size=3, max_size=9))
    transposed = [draw(st.booleans()) for _ in dims[1:]]
    left = list(range(len(dims) - 1))
    order = [draw(st.integers(0, n - 2)) for n in range(len(left), 1, -1)]
    return dims, transposed, order


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(chains(), st.booleans())
def test_random_chains_are_optimal(case, bytes_first):
    dims, transposed, order = case
    shapes = list(itertools.pairwise(dims))
    args = [
        numbers(*(s[::-1] if t else s), seed=i) / 5 for i, (s, t) in enumerate(zip(shapes, transposed, strict=True))
    ]

    def fun(*args):
        left = [a.T if t else a for a, t in zip(args, transposed, strict=True)]
        for i in order:
            left[i : i + 2] = [left[i] @ left[i + 1]]
        return left[0]

    _, wrong, after, flops = rewritten(fun, *args, bytes_first=bytes_first)
    assert wrong == []
    best_flops, best_peak = exhaustive(tuple(dims), bytes_first=bytes_first)
    if bytes_first:
        graph = graph_of(after)
        last = max(op.index for op in graph.ops if op.name == "stablehlo.dot_general")
        product = collect(graph, last)
        assert product is not None
        assert product.written.peak_bytes == best_peak
    else:
        assert flops == best_flops


def test_a_chain_of_72():
    dims = [int(d) for d in np.random.default_rng(0).integers(1, 60, 73)]
    args = [numbers(*shape, seed=i) / 6 for i, shape in enumerate(itertools.pairwise(dims))]
    assert rewritten(lambda *args: functools.reduce(jnp.matmul, args), *args)[0] == 1


A, B, C, V = numbers(80, 20), numbers(20, 80), numbers(80, 80), numbers(80)
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
    count, wrong, _, flops = rewritten(PROGRAMS[name], A, B, C, V)
    before = graph_of(program_of(PROGRAMS[name], A, B, C, V))
    loops = [block for op in before.ops if op.name == "stablehlo.while" for block in op.blocks]
    assert count
    assert wrong == []
    assert loops or flops < sum(op_flops(before, op) for op in before.ops)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.int32])
def test_other_element_types(dtype):
    a, b, v = (numbers(*s, dtype=dtype) for s in ((40, 8), (8, 40), (40,)))
    assert rewritten(lambda a, b, v: (a @ b) @ v, a, b, v)[:2] == (1, [])


def test_f64():
    with jax.enable_x64(True):
        args = [numbers(*s, dtype=np.float64) for s in ((40, 8), (8, 40), (40,))]
        assert rewritten(lambda a, b, v: (a @ b) @ v, *args)[:2] == (1, [])


@pytest.mark.parametrize("shapes", [((8, 0), (0, 8), (8,)), ((1, 1), (1, 1), (1,)), ((8, 1), (1, 8), (8, 1))])
def test_dimensions_of_no_and_one_element(shapes):
    assert rewritten(lambda a, b, v: (a @ b) @ v, *(numbers(*s) for s in shapes))[1] == []


def test_matmuls_into_a_wider_type_are_left_alone():
    def fun(a, b, c):
        wide = functools.partial(jnp.matmul, preferred_element_type=np.float32)
        return wide(wide(a, b).astype(jnp.bfloat16), c)

    a, b, c = (numbers(*s, dtype=ml_dtypes.bfloat16) for s in ((40, 8), (8, 40), (40, 2)))
    assert rewritten(fun, a, b, c)[:2] == (0, [])


def test_shared_intermediates_are_named():
    graph = graph_of(program_of(lambda a, b, c: ((p := a @ b) @ c, jnp.exp(p)), C, C, A))
    matches = [PASS.match(graph, op.index, bytes_first=True) for op in graph.ops if op.name in PASS.roots]
    assert [m.code for m in matches if isinstance(m, Blocked)] == ["shared-intermediate"]


def test_a_shared_intermediate_nobody_needs_any_longer_goes():
    count, wrong, after, _ = rewritten(lambda a, b, v: (p := a @ b) @ v + p.T @ v, A, B, V)
    assert (count, wrong) == (2, [])
    assert "80x80" not in after


def vector(a, b, v):
    return (a @ b) @ v


SPECS = (spec(2000, 64), spec(64, 2000), spec(2000))


@pytest.mark.parametrize("budget", [None, "2MiB", "min"])
def test_plans_take_it(budget):
    plan = shm.plan(exported(vector, *SPECS), budget)
    assert [step.pass_name for step in plan.steps] == ["matmul-chain"]
    assert plan.after.peak_bytes < 2 * 2**20
    args = [numbers(*s.shape) for s in SPECS]
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
    graph = graph_of(program_of(lambda d, a: jnp.diag(d) @ a, numbers(8), numbers(8, 8)))
    dot = next(op.index for op in graph.ops if op.name == "stablehlo.dot_general")
    match = MatmulChain().match(graph, dot, bytes_first=False)
    assert isinstance(match, Match)
    assert match.numerics == "relaxed"
    graph = graph_of(program_of(lambda a, b: jnp.trace(a @ b), numbers(8, 8), numbers(8, 8)))
    total = next(op.index for op in graph.ops if op.name == "stablehlo.reduce")
    match = MatmulChain().match(graph, total, bytes_first=False)
    assert isinstance(match, Match)
    assert match.numerics == "reassociate"
