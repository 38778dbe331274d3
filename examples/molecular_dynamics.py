"""Forces of a Lennard-Jones fluid with JAX MD, every particle with every other: the gradient of the energy."""

import jax
import jax.numpy as jnp
from jax_md import energy, space
from showing import show

import stablehlo_mem as shm

PARTICLES = 3000

side = PARTICLES ** (1 / 3) * 1.2
displacement, _ = space.periodic(side)
total_energy = energy.lennard_jones_pair(displacement)


def forces(positions):
    return -jax.grad(total_energy)(positions)


per_side = round(PARTICLES ** (1 / 3) + 0.5)
lattice = jnp.stack(jnp.meshgrid(*[jnp.arange(per_side)] * 3), -1).reshape(-1, 3)[:PARTICLES]
jitter = 0.05 * jax.random.normal(jax.random.key(0), (PARTICLES, 3))
positions = (lattice * side / per_side + jitter) % side

small = shm.jit(forces, budget="12MiB")
show(small, forces, positions, rtol=1e-3)
