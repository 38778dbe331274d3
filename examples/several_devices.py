"""A training step shared out over eight devices. Each holds its part of the batch, and all of the weights' gradients.

Eight devices of the CPU stand in for eight accelerators. The arrays say how they are shared out, as for `jax.jit`, and
the budget is that of one device: the step goes through the part of each device in micro-batches.
"""

import os

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import stablehlo_mem as shm

BATCH, WIDTH, LAYERS = 32768, 128, 16


def step(weights, x, y):
    """Gradient descent for a deep network, its layers in a scan."""

    def loss(weights):
        out, _ = jax.lax.scan(lambda h, w: (h + jnp.tanh(h @ w), None), x, weights)
        return ((out - y) ** 2).mean()

    return weights - 0.1 * jax.grad(loss)(weights)


mesh = jax.make_mesh((8,), ("data",))
whole, rows = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("data",)))
keys = jax.random.split(jax.random.key(0), 3)
weights = jax.device_put(0.1 * jax.random.normal(keys[0], (LAYERS, WIDTH, WIDTH)), whole)
x, y = (jax.device_put(jax.random.normal(key, (BATCH, WIDTH)), rows) for key in keys[1:])

small = shm.jit(step, budget="12MiB")
print(small.plan(weights, x, y))
new, plain = small(weights, x, y), jax.jit(step)(weights, x, y)
assert new.sharding.is_equivalent_to(plain.sharding, new.ndim)
worst = float(np.abs(new - plain).max() / np.abs(plain).max())
print(f"largest difference of a result: {worst:.1e} of its largest value")
assert worst <= 1e-5
