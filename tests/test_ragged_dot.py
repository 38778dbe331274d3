"""Matmuls of groups of rows (`lax.ragged_dot`), as JAX exports them for GPU and TPU, on chunks of every dimension."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stablehlo_mem as shm
from stablehlo_mem.frontend.inline import inlined
from stablehlo_mem.ir.bindings import chlo, ir, walk_operations
from tests.support import apply_split, exported, normal, normals, possible_splits, program_of, run, spec

GROUPS, ROWS, WIDTH, COLUMNS = 3, 20, 8, 6
ATTRIBUTES = "precision_config = [#chlo<precision DEFAULT>, #chlo<precision DEFAULT>], ragged_dot_dimension_numbers"
SIZES = np.array([9, 0, 7], np.int32)
"""Four rows are in no group."""


def module_of(shapes, result, numbers):
    left, right = (f"tensor<{'x'.join(map(str, shape))}xf32>" for shape in shapes)
    result = f"tensor<{'x'.join(map(str, result))}xf32>"
    return f"""
    func.func public @main(%x: {left}, %w: {right}, %s: tensor<{GROUPS}xi32>) -> {result} {{
      %a = stablehlo.exponential %x : {left}
      %b = stablehlo.exponential %w : {right}
      %y = "chlo.ragged_dot"(%a, %b, %s) <{{{ATTRIBUTES} = #chlo.ragged_dot<{numbers}>}}>
        : ({left}, {right}, tensor<{GROUPS}xi32>) -> {result}
      %z = stablehlo.negate %y : {result}
      return %z : {result}
    }}"""


OF_ROWS = (
    (GROUPS, WIDTH, COLUMNS),
    (ROWS, COLUMNS),
    "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1],"
    " lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]",
)
OF_GROUPS = (
    (ROWS, COLUMNS),
    (GROUPS, WIDTH, COLUMNS),
    "lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0], lhs_ragged_dimensions = [0]",
)


def as_jax_lowers_for_cpu(module):
    """XLA:CPU has no ragged dots: JAX masks the rows of every group for it."""
    names = "lhs_contracting", "rhs_contracting", "lhs_batching", "rhs_batching"
    for op in [op for op in walk_operations(module.operation) if op.name == "chlo.ragged_dot"]:
        numbers = chlo.RaggedDotDimensionNumbers(op.attributes["ragged_dot_dimension_numbers"])
        dims = [list(getattr(numbers, f"{name}_dimensions")) for name in names]
        ragged = jax.lax.RaggedDotDimensionNumbers(
            (dims[:2], dims[2:]), numbers.lhs_ragged_dimensions, numbers.rhs_group_dimensions
        )
        specs = [spec(*v.type.shape, dtype=np.int32 if i == 2 else np.float32) for i, v in enumerate(op.operands)]
        lowered = exported(functools.partial(jax.lax.ragged_dot_general, ragged_dot_dimension_numbers=ragged), *specs)
        with module.context, op.location, ir.InsertionPoint(op):
            (result,) = inlined(lowered.mlir_module(), list(op.operands))
        op.results[0].replace_all_uses_with(result)
        op.erase()


def expected(x, w, sizes):
    ends = np.cumsum(sizes)
    parts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    if w.ndim == 2:
        return -np.stack([np.exp(x[part]).T @ np.exp(w[part]) for part in parts])
    result = np.zeros((len(x), w.shape[-1]))
    for part, weights in zip(parts, w, strict=True):
        result[part] = np.exp(x[part]) @ np.exp(weights)
    return -result


@pytest.mark.parametrize(("right", "result", "numbers"), [OF_ROWS, OF_GROUPS])
@pytest.mark.parametrize("chunk", [2, 3])
def test_chunks_of_every_dimension_but_that_of_the_groups(right, result, numbers, chunk):
    args = normals(ROWS, WIDTH), normals(*right, seed=1), SIZES
    program = program_of(lambda *args: jnp.zeros(result) + sum(arg.sum() for arg in args), *args)
    module = normal(module_of([(ROWS, WIDTH), right], result, numbers))
    true = expected(*(a.astype(np.float64) for a in args[:2]), SIZES)
    found = possible_splits(module)
    assert {possible.axis.n for possible in found} == {ROWS, WIDTH, COLUMNS}
    for possible in found:
        after = apply_split(module, possible, chunk)
        assert "stablehlo.while" in str(after)
        as_jax_lowers_for_cpu(after)
        np.testing.assert_allclose(run(program, after, *args)[0], true, rtol=1e-5)


def experts(x, up, down, sizes):
    def loss(up, down):
        return (jax.lax.ragged_dot(jax.nn.silu(jax.lax.ragged_dot(x, up, sizes)), down, sizes) ** 2).mean()

    return jax.grad(loss, (0, 1))(up, down)


def test_experts_exported_for_a_gpu_are_split_along_tokens():
    """XLA:GPU masks the rows for each expert: the masked ones are eight times as large."""
    specs = spec(8192, 128), spec(8, 128, 256), spec(8, 256, 128), spec(8, dtype=np.int32)
    plan = shm.plan(exported(experts, *specs, platform="cuda"), "20%", target="cuda:h200")
    assert plan.fits
    assert plan.before.peak_bytes > plan.budget_bytes >= plan.after.peak_bytes
    assert any(step.pass_name == "split-into-loops" and step.params.elements == 8192 for step in plan.steps)
    assert "chlo.ragged_dot" in plan.exported.mlir_module()
