"""Equinox: a step under `eqx.filter_jit`, whose arguments are modules of arrays and of functions."""

from collections.abc import Callable

import equinox as eqx
import jax
import optax
from comparing import compare

import stablehlo_mem as shm

tokens = jax.random.normal(jax.random.key(0), (1024, 64))


class Encoder(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    activation: Callable = jax.nn.gelu

    def __call__(self, x):
        return self.activation(self.attention(x, x, x))


optimizer = optax.sgd(1e-2)


@eqx.filter_jit
def step(model, state, x):
    loss, gradients = eqx.filter_value_and_grad(lambda model: ((model(x) - x) ** 2).mean())(model)
    updates, state = optimizer.update(gradients, state)
    return eqx.apply_updates(model, updates), state, loss


def train():
    model = Encoder(eqx.nn.MultiheadAttention(num_heads=4, query_size=64, key=jax.random.key(1)))
    state, losses = optimizer.init(eqx.filter(model, eqx.is_array)), []
    for _ in range(3):
        model, state, loss = step(model, state, tokens)
        losses.append(loss)
    return losses


plain = train()

with shm.budget("16MiB") as block:
    planned = train()

compare(plain, planned, block.plans)
