"""Flax NNX: a step under `nnx.jit`, which updates the model and the optimiser in place."""

import jax
import optax
from comparing import compare
from flax import nnx

import stablehlo_mem as shm

tokens = jax.random.normal(jax.random.key(0), (1, 1024, 64))


class Encoder(nnx.Module):
    def __init__(self, rngs):
        self.attention = nnx.MultiHeadAttention(num_heads=4, in_features=64, decode=False, rngs=rngs)
        self.dense = nnx.Linear(64, 64, rngs=rngs)

    def __call__(self, x):
        return self.dense(self.attention(x))


@nnx.jit
def step(model, optimizer, x):
    loss, gradients = nnx.value_and_grad(lambda model: ((model(x) - x) ** 2).mean())(model)
    optimizer.update(model, gradients)
    return loss


def train():
    model = Encoder(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    return [step(model, optimizer, tokens) for _ in range(3)]


plain = train()

with shm.budget("16MiB") as block:
    planned = train()

compare(plain, planned, block.plans)
