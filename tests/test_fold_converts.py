"""fold-converts: dots of narrow operands, every product and sum as before."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stablehlo_mem as shm
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.passes.fold_converts import FoldConverts
from stablehlo_mem.passes.normalise import attach_rules
from stablehlo_mem.rules.rule import Blocked
from tests import textual
from tests.support import exported, normal, program_of, rewrite, run, same_bits, spec

TEXTUAL = [name for name in textual.CASES if name.startswith("fold_converts_")]
PASS = FoldConverts()
ONLY = shm.Options(passes=("fold-converts",))
WIDE = {"bfloat16": np.float32, "float16": np.float32, "int8": np.int32}


def data(seed, shape, dtype):
    rng = np.random.default_rng(seed)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    values = rng.normal(size=shape).astype(np.float32)
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-7], np.float32)
    return np.asarray(jnp.asarray(np.where(rng.random(shape) < 0.02, rng.choice(special, shape), values)).astype(dtype))


@pytest.mark.parametrize("name", TEXTUAL)
def test_textual(name):
    expected, actual = textual.expected_and_actual(name)
    assert actual == expected


@pytest.mark.parametrize("name", TEXTUAL)
def test_rewrites_its_output_no_further(name):
    expected, _ = textual.expected_and_actual(name)
    assert rewrite(normal(expected), PASS) == 0


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from(sorted(WIDE)),
    m=st.integers(1, 40),
    k=st.integers(1, 300),
    n=st.integers(1, 40),
    turned=st.booleans(),
)
def test_gives_the_same_bits(seed, dtype, m, k, n, turned):
    def f(x, w):
        x, w = x.astype(WIDE[dtype]), w.astype(WIDE[dtype])
        return (x.T if turned else x) @ w, jnp.einsum("...k,kn->...n", x.T[:, None] if turned else x[:, None], w)

    x, w = data(seed, (k, m) if turned else (m, k), jnp.dtype(dtype)), data(seed + 1, (k, n), jnp.dtype(dtype))
    program = program_of(f, x, w)
    module = normal(program)
    assert rewrite(module, PASS) >= 1
    for new, old in zip(run(program, module, x, w), run(program, None, x, w), strict=True):
        assert same_bits(new, old)
    attach_rules(module)
    assert rewrite(module, PASS) == 0


@pytest.mark.parametrize(
    ("f", "dtypes", "code"),
    [
        (lambda x, w: x.astype(np.float32) @ w, ("bfloat16", "float32"), "mixed-types"),
        (lambda x, w: x.astype(np.float32) @ w.astype(np.float32), ("bfloat16", "float16"), "mixed-types"),
        (lambda x, w: x.astype(np.float32) @ w.astype(np.float32), ("int8", "int8"), "not-widened"),
        (lambda x, w: x.astype(np.uint32) @ w.astype(np.uint32), ("uint8", "uint8"), "not-widened"),
        (lambda x, w: x @ w, ("float32", "float32"), None),
        (lambda x, w: jnp.dot(x, w, preferred_element_type=np.float32), ("bfloat16", "bfloat16"), None),
    ],
)
def test_refuses(f, dtypes, code):
    graph = entry_graph(module := normal(program_of(f, *(data(0, (8, 8), jnp.dtype(d)) for d in dtypes))))
    (root,) = (op.index for op in graph.ops if op.name == "stablehlo.dot_general")
    match = PASS.match(graph, root, bytes_first=True)
    assert (match.code if isinstance(match, Blocked) else match) == code
    assert module


def quantised(x, w):
    return x.astype(np.int32) @ w.astype(np.int32)


def test_saves_time_on_its_own():
    specs = spec(4096, 1024, dtype=np.int8), spec(1024, 4, dtype=np.int8)
    plan = shm.plan(exported(quantised, *specs), None, target="cpu", options=ONLY)
    assert [s.pass_name for s in plan.steps] == ["fold-converts"]


def test_brings_a_program_within_its_budget():
    pytest.importorskip("jax_plugins.xla_cuda12")
    specs = spec(2048, 2048, dtype=np.int8), spec(2048, 2048, dtype=np.int8)
    plan = shm.plan(exported(quantised, *specs, platform="cuda"), "28MiB", target="cuda:h200", options=ONLY)
    assert plan.before.peak_bytes > 28 * 2**20 >= plan.after.peak_bytes
    assert plan.fits
