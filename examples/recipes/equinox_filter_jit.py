"""Equinox: a step under `eqx.filter_jit`, whose arguments are modules of arrays and of functions."""

import equinox as eqx
import jax
import optax
from comparing import compare

import stablehlo_mem as shm

tokens = jax.random.normal(jax.random.key(0), (1024, 64))


class Encoder(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    mlp: eqx.nn.MLP

    def __init__(self, key):
        self.attention = eqx.nn.MultiheadAttention(num_heads=4, query_size=64, key=key)
        self.mlp = eqx.nn.MLP(64, 64, width_size=128, depth=1, key=key)

    def __call__(self, x):
        return jax.vmap(self.mlp)(self.attention(x, x, x))


optimizer = optax.adam(1e-3)


@eqx.filter_jit
def step(model, state, x):
    loss, gradients = eqx.filter_value_and_grad(lambda model: ((model(x) - x) ** 2).mean())(model)
    updates, state = optimizer.update(gradients, state)
    return eqx.apply_updates(model, updates), state, loss


def train():
    model = Encoder(jax.random.key(1))
    state, losses = optimizer.init(eqx.filter(model, eqx.is_array)), []
    for _ in range(3):
        model, state, loss = step(model, state, tokens)
        losses.append(loss)
    return losses


plain = train()

with shm.budget("16MiB") as block:
    planned = train()

compare(plain, planned, block.plans)
