"""Programs that step through time, or through layers, with a batch in every state: plain, and differentiated."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.ode import odeint


def rnn(xs, w, u):
    """The last states, and for each sequence the sum over all of its states."""

    def step(h, x):
        h = jnp.tanh(h @ w + x @ u)
        return h, jnp.exp(h)

    h, hs = jax.lax.scan(step, jnp.zeros((xs.shape[1], w.shape[0]), xs.dtype), xs)
    return h, hs.sum((0, 2))


def rnn_loss(xs, w, u):
    h, s = rnn(xs, w, u)
    return (h**2).mean() + jnp.log(s).mean()


def rnn_of_one(xs, w, u):
    """A sequence by itself; the last of its states and the sum of all."""

    def step(h, x):
        h = jnp.tanh(w.T @ h + x @ u)
        return h, h * h

    h, hs = jax.lax.scan(step, jnp.zeros(w.shape[0], xs.dtype), xs)
    return h, hs.sum()


def lstm_loss(xs, w, u, b):
    def step(carry, x):
        h, c = carry
        i, f, g, o = jnp.split(h @ w + x @ u + b, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((xs.shape[1], w.shape[0]), xs.dtype)
    return (jax.lax.scan(step, (zeros, zeros), xs)[1] ** 2).mean()


def runge_kutta(y, a):
    """Five steps of the classical method for y' = tanh(y a)."""

    def slope(y):
        return jnp.tanh(y @ a)

    def step(_, y):
        k1 = slope(y)
        k2 = slope(y + 0.05 * k1)
        k3 = slope(y + 0.05 * k2)
        k4 = slope(y + 0.1 * k3)
        return y + 0.1 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    return (jax.lax.fori_loop(0, 5, step, jnp.sin(y)) ** 2).sum(1)


def counted_while(y, count):
    """As many steps for every element of the batch."""
    step = lambda c: (c[0] + 1, jnp.sin(c[1]) * 2)  # noqa: E731
    return jax.lax.while_loop(lambda c: c[0] < count, step, (0, jnp.exp(y)))[1].sum(1)


def solve_each(y, a):
    """A fixed point for each element, in as many steps as it takes, and how many those were."""

    def solve(y):
        def step(state):
            x, count, _ = state
            new = jnp.tanh(a @ x) / 2 + y
            return new, count + 1, jnp.abs(new - x).max()

        return jax.lax.while_loop(lambda state: state[2] > 1e-3 * jnp.abs(y[0]), step, (y, 0, jnp.inf))[:2]

    x, count = jax.vmap(solve)(jnp.exp(y))
    return (x * x).sum(1), count


def adaptive_ode(y, a):
    """Each element has steps of its own between the times that are asked for."""
    times = jnp.linspace(0.0, 2.0, 3, dtype=y.dtype)
    states = jax.vmap(lambda y: odeint(lambda y, t: jnp.tanh(a @ y) - t, y, times))(jnp.sin(y))
    return (states**2).sum((1, 2))


def gamma_samples(alpha, data):
    """Rejection sampling: how often is drawn differs from element to element."""
    key = jax.random.wrap_key_data(data)
    return jax.random.gamma(key, jnp.exp(alpha), dtype=np.float32).astype(alpha.dtype).sum(1)


def hmm(observed, transition, emission):
    """The forward pass in logarithms: how likely each sequence is."""

    def step(alpha, o):
        alpha = jax.nn.logsumexp(alpha[:, :, None] + transition[None], 1) + emission[:, o].T
        return alpha, None

    alpha, _ = jax.lax.scan(step, emission[:, observed[0]].T, observed[1:])
    return jax.nn.logsumexp(alpha, 1)


def sums_over_the_batch(xs, w):
    """The mean of the states at each step is an output: nothing else depends on it."""

    def step(h, x):
        h = jnp.tanh(h @ w + x)
        return h, h.mean(0)

    h, means = jax.lax.scan(step, jnp.zeros_like(xs[0]), jnp.sin(xs))
    return means, (h * h).sum(1)


def embedding_loss(table, ids, w):
    def step(h, i):
        h = jnp.tanh(h @ w + table[i])
        return h, h

    return (jax.lax.scan(step, jnp.zeros((ids.shape[1], w.shape[0]), table.dtype), ids)[1] ** 2).mean()


def noisy(xs, data):
    """Random numbers drawn anew in every step, of a key that the loop carries."""

    def step(carry, x):
        h, key = carry
        key, one = jax.random.split(key)
        h = h + x * jax.random.uniform(one, h.shape, np.float32).astype(xs.dtype)
        return (h, key), jnp.exp(h)

    key = jax.random.wrap_key_data(data)
    (_, key), hs = jax.lax.scan(step, (jnp.zeros_like(xs[0]), key), xs)
    return hs.sum((0, 2)), jax.random.key_data(key)


def layers_loss(x, ws, bs):
    def layer(h, wb):
        w, b = wb
        return jnp.tanh(h @ w + b), None

    return (jax.lax.scan(layer, x, (ws, bs))[0] ** 2).mean()


_RNG = np.random.default_rng(2)
_BATCH = 7
_IDS = _RNG.integers(0, 9, (4, _BATCH)).astype(np.int32)
_RNN = ((5, _BATCH, 3), (4, 4), (3, 4))

PROGRAMS = {
    "rnn": (rnn, *_RNN),
    "rnn_vmapped": (jax.vmap(rnn_of_one, (0, None, None)), (_BATCH, 5, 3), (4, 4), (3, 4)),
    "rnn_grad": (jax.grad(rnn_loss, (0, 1, 2)), *_RNN),
    "lstm_grad": (jax.grad(lstm_loss, (1, 2, 3)), (5, _BATCH, 3), (4, 16), (3, 16), (16,)),
    "ode": (runge_kutta, (_BATCH, 4), (4, 4)),
    "ode_grad": (jax.grad(lambda *a: runge_kutta(*a).sum(), 1), (_BATCH, 4), (4, 4)),
    "counted_while": (counted_while, (_BATCH, 4), np.asarray(4, np.int32)),
    "solve_each": (solve_each, (_BATCH, 4), (4, 4)),
    "adaptive_ode": (adaptive_ode, (_BATCH, 4), (4, 4)),
    "adaptive_ode_grad": (jax.grad(lambda *a: adaptive_ode(*a).sum(), 1), (_BATCH, 4), (4, 4)),
    "gamma_samples": (gamma_samples, (_BATCH, 4), np.array([1, 2], np.uint32)),
    "hmm": (hmm, _IDS, (5, 5), (5, 9)),
    "hmm_grad": (jax.grad(lambda *a: hmm(*a).sum(), (1, 2)), _IDS, (5, 5), (5, 9)),
    "sums_over_the_batch": (sums_over_the_batch, (5, _BATCH, 4), (4, 4)),
    "embedding_grad": (jax.grad(embedding_loss, (0, 2)), (9, 4), _IDS, (4, 4)),
    "noisy": (noisy, (5, _BATCH, 4), np.array([1, 2], np.uint32)),
    "layers_grad": (jax.grad(layers_loss, (1, 2)), (_BATCH, 4), (3, 4, 4), (3, 4)),
}
"""Each with arrays, or shapes of random ones, in which the batch is 7 and nothing else is."""
