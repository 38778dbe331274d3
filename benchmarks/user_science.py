"""More programs as users write them, for `user_runs.py`: scientific ones, and recurrences over long sequences."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from user_programs import Made, Tree, dense, layer, mlp, normal, sgd


def per_example_jacobian(batch: int = 4_096, inputs: int = 64, width: int = 256, outputs: int = 32) -> Made:
    """Equinox's way: an MLP of one example, its Jacobian by jacrev, vmap over the batch; the penalty of its norm."""
    rng = np.random.default_rng(0)

    def network(p, x):
        for q in p[:-1]:
            x = jnp.tanh(dense(q, x))
        return dense(p[-1], x)

    def loss(p, x, y):
        jacobians = jax.vmap(jax.jacrev(network, 1), (None, 0))(p, x)
        outputs = jax.vmap(network, (None, 0))(p, x)
        return ((outputs - y) ** 2).mean() + 1e-2 * (jacobians**2).sum((1, 2)).mean()

    params = [layer(rng, inputs, width), layer(rng, width, width), layer(rng, width, outputs)]
    return sgd(loss), (params, normal(rng, batch, inputs), normal(rng, batch, outputs))


def gaussian_process(points: int = 2_048, features: int = 8) -> Made:
    """The marginal likelihood of a Gaussian process by Cholesky, a Matern kernel with length scales; its gradient."""
    rng = np.random.default_rng(0)

    def loss(p, x, y):
        scaled = x / jnp.exp(p["length"])
        apart = jnp.sqrt(((scaled[:, None] - scaled[None]) ** 2).sum(-1) + 1e-12)
        matrix = jnp.exp(p["scale"]) * (1 + jnp.sqrt(5.0) * apart + 5 / 3 * apart**2) * jnp.exp(-jnp.sqrt(5.0) * apart)
        lower = jnp.linalg.cholesky(matrix + jnp.exp(p["noise"]) * jnp.eye(points))
        weights = jax.scipy.linalg.cho_solve((lower, True), y)
        return 0.5 * y @ weights + jnp.log(jnp.diag(lower)).sum()

    params = {"length": np.zeros(features, np.float32), "scale": np.float32(0), "noise": np.float32(0)}
    return sgd(loss), (params, normal(rng, points, features), normal(rng, points))


def lstm(batch: int = 32, steps: int = 1_024, inputs: int = 64, width: int = 128) -> Made:
    """Two layers of LSTM over a long sequence, as flax and equinox scan them, and a step of training."""
    rng = np.random.default_rng(0)

    def run(p, sequence):
        def cell(state, x):
            h, c = state
            i, f, g, o = jnp.split(x @ p["input"]["w"] + h @ p["hidden"] + p["input"]["b"], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((sequence.shape[1], width))
        return jax.lax.scan(cell, (zeros, zeros), sequence)[1]

    def loss(p, x, y):
        hidden = jnp.moveaxis(x, 1, 0)
        for q in p["layers"]:
            hidden = run(q, hidden)
        return ((dense(p["top"], jnp.moveaxis(hidden, 0, 1)) - y) ** 2).mean()

    def weights(n: int) -> Tree:
        return {"input": layer(rng, n, 4 * width), "hidden": normal(rng, width, 4 * width, scale=width**-0.5)}

    params = {"layers": [weights(inputs), weights(width)], "top": layer(rng, width, 1)}
    return sgd(loss), (params, normal(rng, batch, steps, inputs), normal(rng, batch, steps, 1))


def informed_network(points: int = 16_384, width: int = 128) -> Made:
    """A physics-informed network of Burgers' equation: second derivatives by nested jvp, vmap over the points."""
    rng = np.random.default_rng(0)

    def value(p, t, x):
        h = jnp.stack([t, x])
        for q in p[:-1]:
            h = jnp.tanh(dense(q, h))
        return dense(p[-1], h)[0]

    def residual(p, t, x):
        u, u_t = value(p, t, x), jax.grad(value, 1)(p, t, x)
        u_x = jax.grad(value, 2)
        return u_t + u * u_x(p, t, x) - 0.01 / np.pi * jax.grad(u_x, 2)(p, t, x)

    def loss(p, t, x, initial):
        inside = jax.vmap(residual, (None, 0, 0))(p, t, x)
        at_start = jax.vmap(value, (None, None, 0))(p, 0.0, initial) + jnp.sin(np.pi * initial)
        return (inside**2).mean() + (at_start**2).mean()

    params = [layer(rng, 2, width), *(layer(rng, width, width) for _ in range(3)), layer(rng, width, 1)]
    return sgd(loss), (params, rng.random(points, np.float32), normal(rng, points), normal(rng, points // 8))


def neural_ode(batch: int = 2_048, size: int = 64, width: int = 256, steps: int = 64) -> Made:
    """A neural ODE by Runge-Kutta of fourth order over a batch, differentiated through its steps."""
    rng = np.random.default_rng(0)

    def loss(p, start, target):
        def field(y, t):
            return mlp(p, jnp.concatenate([y, jnp.broadcast_to(t, (*y.shape[:-1], 1))], -1))

        def step(y, t):
            h = 1 / steps
            one = field(y, t)
            two = field(y + h / 2 * one, t + h / 2)
            three = field(y + h / 2 * two, t + h / 2)
            four = field(y + h * three, t + h)
            return y + h / 6 * (one + 2 * two + 2 * three + four), None

        end = jax.lax.scan(step, start, jnp.linspace(0, 1, steps, endpoint=False))[0]
        return ((end - target) ** 2).mean()

    params = [layer(rng, size + 1, width), layer(rng, width, size)]
    return sgd(loss), (params, normal(rng, batch, size), normal(rng, batch, size))


PROGRAMS = {
    "Jacobians": per_example_jacobian,
    "GP, Cholesky": gaussian_process,
    "LSTM": lstm,
    "PINN": informed_network,
    "neural ODE": neural_ode,
}
