"""Sparse Gaussian process regression with GPJax: one training step's bound and gradient, 20,000 points."""

import equinox as eqx
import gpjax as gpx
import jax
import jax.numpy as jnp
from showing import show

import stablehlo_mem as shm

POINTS, INDUCING = 20_000, 100
jax.config.update("jax_enable_x64", True)


def negative_bound(family, data):
    return -gpx.objectives.collapsed_elbo(family, data) / data.n


def bound_and_gradient(inducing, x, y):
    kernel = gpx.kernels.Matern32(lengthscale=jnp.ones(x.shape[1]))
    prior = gpx.gps.Prior(mean_function=gpx.mean_functions.Constant(), kernel=kernel)
    model = prior * gpx.likelihoods.Gaussian(obs_stddev=jnp.array(0.3))
    family = gpx.variational_families.CollapsedVariationalGaussian(model=model, inducing_inputs=inducing)
    bound, gradient = eqx.filter_value_and_grad(negative_bound)(family, gpx.Dataset(x, y))
    return bound, jax.tree.leaves(gradient)


x = jax.random.normal(jax.random.key(0), (POINTS, 3))
y = jnp.sin(x.sum(1, keepdims=True)) + 0.1 * jax.random.normal(jax.random.key(1), (POINTS, 1))

small = shm.jit(bound_and_gradient, budget="24MiB")
show(small, bound_and_gradient, x[:INDUCING], x, y, rtol=1e-6)
