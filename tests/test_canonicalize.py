"""canonicalize: the form every analysis starts from. The textual cases are in tests/ir/canonicalize_*.mlir."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

import stablehlo_mem as shm
from stablehlo_mem.frontend.canonicalize import RULE, attach_rules, canonicalize, remove_rules
from stablehlo_mem.ir.bindings import clone_module, fingerprint, parse_module, walk_operations
from tests.support import normal, program_of, run, same_bits, text


def nested_calls(x):
    inner = jax.jit(lambda y: jnp.sin(y) * 2)
    outer = jax.jit(lambda y: inner(inner(y)) + jax.checkpoint(jnp.cos)(y))
    return jax.lax.fori_loop(0, 2, lambda _, y: outer(y), x), jax.lax.top_k(inner(x), 2)


def test_is_idempotent_and_keeps_the_results():
    x = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    program = program_of(nested_calls, x)
    module = normal(program)
    again = clone_module(module)
    canonicalize(again)
    assert fingerprint(again) == fingerprint(module)
    assert not [op for op in walk_operations(module.operation) if op.name in ("func.call", "stablehlo.composite")]
    assert all(map(same_bits, run(program, module, x), run(program, None, x)))


def test_rules_are_attached_and_removed():
    module = normal("func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
                    "%y = stablehlo.sine %x : tensor<4xf32>\nreturn %y : tensor<4xf32> }")  # fmt: skip
    before = text(module)
    assert RULE in str(module)
    remove_rules(module)
    assert RULE not in str(module)
    attach_rules(module)
    assert RULE in str(module)
    assert text(module) == before


def test_locations_are_kept():
    module = normal(program_of(nested_calls, np.zeros((5, 7), np.float32)))
    located = str(module.operation.get_asm(enable_debug_info=True))
    assert "test_canonicalize.py" in located


def test_private_functions_that_are_not_called_go():
    source = """
    func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }
    func.func private @unused(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }
    """
    module = parse_module(source)
    canonicalize(module)
    assert "unused" not in text(module)


def test_a_maximum_beside_its_argmax_keeps_its_nans_in_a_loop():
    """YNNPACK would lose them, which does not compute the maximum as written."""
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(2048, 3)).astype(np.float32) for _ in "ab")
    a[3, 0] = np.nan

    def extrema(a: jax.Array, b: jax.Array) -> tuple[jax.Array, ...]:
        scores = a[:, None, 0] * b[:, 1] - a[:, None, 2]
        return scores.max(1), scores.min(0), jnp.argmax(scores, 1), scores.sum(0)

    exported = jax.export.export(jax.jit(extrema), platforms=["cpu"])(a, b)
    plan = shm.plan(exported, "25%", target="cpu", options=shm.Options(numerics="exact"))
    expected = jax.jit(extrema)(a, b)
    assert plan.fits
    assert len(plan.steps) == 1
    assert np.isnan(expected[0]).sum() == 1
    for result, original in zip(plan.exported.call(a, b), expected, strict=True):
        np.testing.assert_array_equal(result, original)
