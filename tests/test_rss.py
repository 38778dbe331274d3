"""Proof on CPU: what executing adds to a fresh process, under XLA's default options, keeps the budget.

XLA:CPU's report leaves out the scratch of its fused kernels, so a plan made on the report is judged here by resident
size. One file, one xdist group: the originals take gigabytes, and no two of them should run at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import stablehlo_mem as shm
from stablehlo_mem.targets.fresh_process import FreshRun, run_fresh

pytestmark = pytest.mark.xdist_group("resident-size")

GIB = 2**30
SLACK = 1.15


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / np.sqrt(q.shape[-1])
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, -1), v)


def knn(x: jax.Array, q: jax.Array) -> Any:
    distances = (q**2).sum(-1)[:, None] + (x**2).sum(-1)[None] - 2 * q @ x.T
    return jax.lax.top_k(-distances, 10)


def kmeans(x: jax.Array, c: jax.Array) -> jax.Array:
    return jnp.argmin(((x[:, None] - c[None]) ** 2).sum(-1), 1)


CASES = {
    "attention": (attention, [f32(8, 8192, 16)] * 3),
    "knn": (knn, [f32(25_000, 32), f32(25_000, 32)]),
    "kmeans": (kmeans, [f32(600_000, 16), f32(1024, 16)]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_fresh_process_stays_within_the_budget_its_original_exceeds(name: str) -> None:
    function, specs = CASES[name]
    exported = export(function, specs)
    original = run_fresh(exported.serialize(), keep_outputs=True)
    # From jax 0.11 on, fused attention takes 0.8 GiB.
    assert original.grown_bytes >= (GIB // 2 if jax.__version_info__ >= (0, 11) else 2 * GIB)

    temporaries = original.grown_bytes - original.output_bytes
    budget = original.argument_bytes + original.output_bytes + temporaries // 10
    optimised = run_fresh(shm.optimize(exported, budget, target="cpu").serialize(), keep_outputs=True)

    allowed = SLACK * (budget - optimised.argument_bytes)
    assert optimised.grown_bytes <= allowed < original.grown_bytes
    assert_same(original, optimised)


def export(function: Callable[..., Any], specs: Sequence[jax.ShapeDtypeStruct]) -> jax.export.Exported:
    return jax.export.export(jax.jit(function), platforms=["cpu"])(*specs)


def assert_same(original: FreshRun, optimised: FreshRun) -> None:
    """Floats to rounding; of indices, nearly all: equal distances may come in another order."""
    for old, new in zip(original.outputs, optimised.outputs, strict=True):
        if old.dtype.kind in "iu":
            assert (old != new).mean() < 1e-3
        else:
            np.testing.assert_allclose(new, old, rtol=0, atol=2e-5 * np.abs(old).max())
