"""Runs distances that do not fit in the address space it leaves itself, with and without `rescue`.

tests/test_rescue.py starts it.

Arguments: "plain", "rescue" or "donated".
"""

from __future__ import annotations

import pathlib
import resource
import sys

import jax
import jax.numpy as jnp
import numpy as np

import stablehlo_mem as shm

ROOM = 700 * 2**20
"""Less than the original's gigabyte, more than what XLA needs to compile."""


def nearest(points: jax.Array, queries: jax.Array) -> jax.Array:
    """For each query its sorted distances' sum of the nearest four: 1 GiB of distances."""
    distances = jnp.abs(points[None, :, 0] - queries[:, None, 0])
    return jnp.sort(distances, axis=1)[:, :4].sum(1)


def main(mode: str) -> None:
    points = jnp.asarray(np.random.default_rng(0).normal(size=(16384, 1)), jnp.float32)
    rescued = shm.rescue(nearest, "100MiB", donate_argnums=(0,) if mode == "donated" else ())
    function = jax.jit(nearest) if mode == "plain" else rescued
    small = np.asarray(function(jnp.copy(points[:64]), points[:64]))
    assert small.shape == (64,)
    used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
    try:
        first = np.asarray(function(jnp.copy(points), points))
        again = np.asarray(function(jnp.copy(points), points))
    except jax.errors.JaxRuntimeError as error:
        print("error:", str(error).splitlines()[0])
        print(*getattr(error, "__notes__", ()), sep="\n")
        return
    expected = np.sort(np.abs(np.asarray(points)[None, :, 0] - np.asarray(points)[:8, None, 0]), axis=1)[:, :4].sum(1)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(first[:8], expected, rtol=1e-6)
    print("result", first.shape)


main(sys.argv[1])
