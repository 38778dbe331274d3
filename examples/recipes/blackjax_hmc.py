"""BlackJAX: HMC over the two hyperparameters of a kernel regression, whose density goes over all pairs of points.

A sampler compares energies with random numbers. What is compared with other floats is rounded as it was written, so a
plan of the whole step would leave the energies' arrays as they are: the density has a budget of its own. With
`Options(numerics="relaxed")` a whole step is planned, which may decide otherwise where the two are nearly equal.
"""

import blackjax
import jax
import jax.numpy as jnp
from comparing import compare

import stablehlo_mem as shm

points = jnp.linspace(0, 1, 2048)
values = jnp.sin(6 * points)
start = {"scale": jnp.float32(-2), "noise": jnp.float32(-1)}


def log_density(position):
    """Each value is predicted as the mean of all, weighted by distance."""
    scale, noise = jnp.exp(position["scale"]), jnp.exp(position["noise"])
    weights = jax.nn.softmax(-((points[:, None] - points) ** 2) / scale**2)
    residuals = values - weights @ values
    return -0.5 * ((residuals / noise) ** 2).sum() - len(points) * jnp.log(noise) - position["scale"] ** 2


def sample(log_density):
    kernel = blackjax.hmc(log_density, step_size=0.01, inverse_mass_matrix=jnp.ones(2), num_integration_steps=4)
    step, state, samples = jax.jit(kernel.step), jax.jit(kernel.init)(start), []
    for key in jax.random.split(jax.random.key(0), 5):
        state, _ = step(key, state)
        samples.append([state.position["scale"], state.position["noise"]])
    return samples


plain = sample(log_density)

small_density = shm.jit(log_density, budget="8MiB")
planned = sample(small_density)

compare(plain, planned, [small_density.plan(start)], rtol=1e-3)
