"""NumPyro: variational inference of a Gaussian process' kernel, whose covariance is of all pairs of points."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from comparing import compare
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import stablehlo_mem as shm

points = jax.random.uniform(jax.random.key(0), (2048, 2))
values = jnp.sin(6 * points).sum(1)


def model(points, values):
    """Each value as the mean of all, weighted by distance: the scale of distances and the noise are found."""
    scale = numpyro.sample("scale", dist.LogNormal(-1.0, 1.0))
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 1.0))
    squares = ((points[:, None] - points) ** 2).sum(-1)
    weights = jax.nn.softmax(-squares / scale**2)
    numpyro.sample("values", dist.Normal(weights @ values, noise), obs=values)


svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(0.01), Trace_ELBO())
state = svi.init(jax.random.key(1), points, values)  # runs the model outside of jit: not in the block


def infer():
    return svi.run(None, 5, points, values, progress_bar=False, init_state=state).losses


plain = infer()

with shm.budget("8MiB") as block:
    planned = infer()

compare(plain, planned, block.plans)
