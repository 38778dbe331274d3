"""A step of contrastive training with Optax: every image against every text of a large batch."""

import jax
import jax.numpy as jnp
import optax
from showing import show

import stablehlo_mem as shm

BATCH, WIDTH, SHARED = 4096, 256, 64
optimiser = optax.adam(1e-3)


def encode(weights, x):
    h = jax.nn.gelu(x @ weights["hidden"]) @ weights["out"]
    return h / jnp.linalg.norm(h, axis=1, keepdims=True)


def loss(weights, images, texts):
    logits = encode(weights["images"], images) @ encode(weights["texts"], texts).T / 0.07
    matching = jnp.arange(BATCH)
    losses = optax.softmax_cross_entropy_with_integer_labels
    return (losses(logits, matching) + losses(logits.T, matching)).mean()


def step(weights, state, images, texts):
    value, gradient = jax.value_and_grad(loss)(weights, images, texts)
    updates, state = optimiser.update(gradient, state)
    return optax.apply_updates(weights, updates), state, value


def tower(key):
    hidden, out = jax.random.split(key)
    shapes = {"hidden": (hidden, (WIDTH, WIDTH)), "out": (out, (WIDTH, SHARED))}
    return {name: jax.random.normal(k, shape) / WIDTH**0.5 for name, (k, shape) in shapes.items()}


keys = jax.random.split(jax.random.key(0), 4)
weights = {"images": tower(keys[0]), "texts": tower(keys[1])}
images, texts = (jax.random.normal(key, (BATCH, WIDTH)) for key in keys[2:])

small = shm.jit(step, budget="64MiB")
show(small, step, weights, optimiser.init(weights), images, texts, rtol=2e-3)
