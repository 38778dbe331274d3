"""Attention by the chips' own kernels: what is recognised, what becomes of it, and what does not qualify."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_programs import FORWARD_ONLY, NEAR_MISSES, SPELLINGS, Program, gradient
from attention_reference import with_formulas
from support import graph_of, in_f64, normal, normals, program_of, rewrite, run, text, yardstick

from stablehlo_mem.attention import pallas_flash
from stablehlo_mem.attention.pattern import AttentionOp, attention_ops
from stablehlo_mem.frontend.canonicalize import remove_rules
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.passes.cudnn_attention import CudnnAttention
from stablehlo_mem.passes.pallas_attention import PallasAttention
from stablehlo_mem.rewriting.attention_pass import AttentionPass

FORWARD = {**SPELLINGS, **FORWARD_ONLY}
WITHOUT_BIAS = [name for name in FORWARD if name != "log_sum_exp"]


def arguments(program: Program) -> list[np.ndarray]:
    """Drawn arguments; lengths are at least one."""
    _, specs = program
    drawn = []
    for i, spec in enumerate(specs):
        if np.issubdtype(spec.dtype, np.integer):
            drawn.append(np.array([100, 256], spec.dtype))
        elif spec.dtype == np.bool_:
            drawn.append(normals(*spec.shape, seed=i) > -1)
        else:
            drawn.append(normals(*spec.shape, seed=i).astype(spec.dtype))
    return drawn


@pytest.fixture
def interpreted(monkeypatch):
    """Pallas' kernels are lowered for the CPU, interpreted: the arithmetic of each block, in the order of the grid."""
    from jax.experimental.pallas.ops.tpu import flash_attention

    call = flash_attention.pl.pallas_call
    monkeypatch.setattr(flash_attention.pl, "pallas_call", functools.partial(call, interpret=True))
    monkeypatch.setattr(pallas_flash, "_lowered", lambda f, _, *specs: jax.jit(f).lower(*specs).as_text())
    for text_of in (pallas_flash.forward_text, pallas_flash.backward_text):
        text_of.cache_clear()
    yield
    for text_of in (pallas_flash.forward_text, pallas_flash.backward_text):
        text_of.cache_clear()


def wrong_results(one: AttentionPass, program: Program, count: int) -> list[str]:
    """What is wrong with the results where so many parts became calls, and the calls of cuDNN their formulas."""
    f, _ = program
    args = arguments(program)
    origin = program_of(f, *args)
    module = normal(origin)
    assert rewrite(module, one) == count
    if isinstance(one, CudnnAttention):
        assert "256x256xf32" not in text(module)
        assert with_formulas(module) == (1 if count == 1 else 2)
    remove_rules(module)
    results = zip(run(origin, module, *args), run(origin, None, *args), in_f64(f, *args), strict=True)
    return [wrong for wrong in (yardstick(*three) for three in results) if wrong]


@pytest.mark.parametrize("name", FORWARD)
def test_cudnn_output(name):
    """One call, no scores, and the results of the program by the formula of the call."""
    assert wrong_results(CudnnAttention(), FORWARD[name](jnp.bfloat16), 1) == []


@pytest.mark.parametrize("name", SPELLINGS)
def test_cudnn_gradient(name):
    """Output and the three gradients: a forward call and a backward call."""
    assert wrong_results(CudnnAttention(), gradient(SPELLINGS[name](jnp.bfloat16)), 4) == []


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize("name", WITHOUT_BIAS)
def test_pallas_output(name, dtype, interpreted):
    """JAX's own kernel, interpreted: the results of the program."""
    assert wrong_results(PallasAttention(), FORWARD[name](dtype), 1) == []


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize("name", [name for name in WITHOUT_BIAS if name in SPELLINGS])
def test_pallas_gradient(name, dtype, interpreted):
    """The same of the gradients."""
    assert wrong_results(PallasAttention(), gradient(SPELLINGS[name](dtype)), 4) == []
