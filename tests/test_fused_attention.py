"""Attention by the chips' own kernels: what is recognised, what becomes of it, and what does not qualify."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from attention_programs import FORWARD_ONLY, NEAR_MISSES, SPELLINGS, Program, gradient
from attention_reference import with_formulas
from support import graph_of, in_f64, normal, normals, program_of, rewrite, run, text, yardstick

from stablehlo_mem.attention.pattern import AttentionOp, attention_ops
from stablehlo_mem.frontend.canonicalize import remove_rules
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.passes.cudnn_attention import CudnnAttention

FORWARD = {**SPELLINGS, **FORWARD_ONLY}


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


def wrong_results(program: Program, count: int) -> list[str]:
    """What is wrong with the results after cuDNN's calls, of which there must be so many, became their formulas."""
    f, _ = program
    args = arguments(program)
    origin = program_of(f, *args)
    module = normal(origin)
    assert rewrite(module, CudnnAttention()) == count
    assert "256x256xf32" not in text(module)
    remove_rules(module)
    with_formulas(module)
    results = zip(run(origin, module, *args), run(origin, None, *args), in_f64(f, *args), strict=True)
    return [wrong for wrong in (yardstick(*three) for three in results) if wrong]


@pytest.mark.parametrize("name", FORWARD)
def test_spelling_forward(name):
    """Output only: one call, no scores, and the results of the program by the formula of the call."""
    assert wrong_results(FORWARD[name](jnp.bfloat16), 1) == []


@pytest.mark.parametrize("name", SPELLINGS)
def test_spelling_gradient(name):
    """Output and the three gradients: a forward call and a backward call."""
    assert wrong_results(gradient(SPELLINGS[name](jnp.bfloat16)), 4) == []
