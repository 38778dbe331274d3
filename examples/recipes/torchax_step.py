"""A model of PyTorch as a JAX program, by torchax: one step of training under `torchax.interop.jax_jit`."""

import numpy as np
import optax
import torch
import torchax
from comparing import compare
from torchax import interop
from torchax.train import make_train_step

import stablehlo_mem as shm


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (torch.nn.Linear(64, 64) for _ in range(4))

    def forward(self, x):
        heads = [layer(x).unflatten(-1, (4, 16)).transpose(0, 1) for layer in (self.query, self.key, self.value)]
        query, key, value = heads
        weights = torch.softmax(query @ key.transpose(1, 2) / 4, dim=-1)
        return self.out((weights @ value).transpose(0, 1).flatten(1))


def train():
    torch.manual_seed(0)
    numbers = np.random.default_rng(0).normal(size=(1024, 64)).astype(np.float32)
    with torchax.default_env():
        model = interop.JittableModule(Encoder().to("jax"))
        tokens = torch.tensor(numbers, device="jax")
        optimizer = optax.adam(1e-3)
        state = interop.call_jax(optimizer.init, model.params)

        def apply(weights, buffers, x):
            return model.functional_call("forward", weights, buffers, x)

        step = interop.jax_jit(make_train_step(apply, torch.nn.functional.mse_loss, optimizer))
        weights, losses = model.params, []
        for _ in range(3):
            loss, weights, state = step(weights, model.buffers, state, tokens, tokens)
            losses.append(loss.item())
        return losses


plain = train()

with shm.budget("16MiB") as block:
    planned = train()

compare(plain, planned, block.plans)
