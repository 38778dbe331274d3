"""A Flax encoder layer over a long sequence. The score matrices of all heads would be 512 MiB."""

import flax.linen as nn
import jax
from showing import show

import stablehlo_mem as shm

TOKENS, WIDTH, HEADS = 4096, 128, 8


class Encoder(nn.Module):
    """Self-attention and an MLP, each with a residual."""

    @nn.compact
    def __call__(self, x):
        x = x + nn.MultiHeadDotProductAttention(num_heads=HEADS)(nn.LayerNorm()(x))
        h = nn.gelu(nn.Dense(4 * WIDTH)(nn.LayerNorm()(x)))
        return x + nn.Dense(WIDTH)(h)


model = Encoder()
x = jax.random.normal(jax.random.key(0), (TOKENS, WIDTH))
parameters = jax.jit(model.init)(jax.random.key(1), x[:8])

small = shm.jit(model.apply, budget="64MiB")
show(small, model.apply, parameters, x)
