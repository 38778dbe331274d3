"""The smallest programs that XLA computes wrongly, for docs/xla_bugs.md and tests/test_xla_bugs.py."""

import jax.numpy as jnp
from jax import lax


def slice_of_a_slice(x, i, j):
    part = lax.dynamic_slice_p.bind(x, i, slice_sizes=(4,))
    return lax.dynamic_slice_p.bind(part, j, slice_sizes=(1,))


def update_of_a_slice(x, i, j, update):
    part = lax.dynamic_slice_p.bind(x, i, slice_sizes=(4,))
    return lax.dynamic_update_slice_p.bind(x, lax.dynamic_update_slice_p.bind(part, update, j), i)


def update_of_one_row(x, i, j):
    part = lax.dynamic_slice_p.bind(x, i, slice_sizes=(4,))
    return part.at[j].set(-1.0, mode="drop", wrap_negative_indices=False)


def half_of_products(c, x):
    return jnp.sum(c[None] * x, axis=-1) / 2


def largest_of_rows(x):
    return jnp.max(x, axis=1)


def dot_of_three_dimensions(x, y):
    return jnp.einsum("km,knl->mnl", x, y, preferred_element_type=jnp.float32)
