"""Haiku: a step of a transformed model under `jax.jit`, and its initialisation too: the scores are in it once."""

import haiku as hk
import jax
import optax
from comparing import compare

import stablehlo_mem as shm

tokens = jax.random.normal(jax.random.key(0), (1024, 64))


@hk.transform
def model(x):
    attention = hk.MultiHeadAttention(num_heads=4, key_size=16, w_init=hk.initializers.VarianceScaling(1.0))
    return hk.Linear(64)(attention(x, x, x))


optimizer = optax.sgd(1e-2)


@jax.jit
def step(weights, state, x):
    def loss_of(weights):
        return ((model.apply(weights, None, x) - x) ** 2).mean()

    loss, gradients = jax.value_and_grad(loss_of)(weights)
    updates, state = optimizer.update(gradients, state)
    return optax.apply_updates(weights, updates), state, loss


def train():
    weights = jax.jit(model.init)(jax.random.key(1), tokens)
    state, losses = optimizer.init(weights), []
    for _ in range(3):
        weights, state, loss = step(weights, state, tokens)
        losses.append(loss)
    return losses


plain = train()

with shm.budget("24MiB") as block:
    planned = train()

compare(plain, planned, block.plans)
