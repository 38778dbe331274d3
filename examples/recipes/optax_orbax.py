"""A loop of one's own with Optax, donated arguments, and checkpoints by Orbax."""

import pathlib
import tempfile

import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp
from comparing import compare

import stablehlo_mem as shm

images, texts = jax.random.normal(jax.random.key(0), (2, 2048, 64))
optimizer = optax.adamw(1e-3)


def loss_of(weights, images, texts):
    """Contrastive: every image against every text."""
    logits = (images @ weights["images"]) @ (texts @ weights["texts"]).T
    labels = jnp.arange(len(images))
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def step(weights, state, images, texts):
    loss, gradients = jax.value_and_grad(loss_of)(weights, images, texts)
    updates, state = optimizer.update(gradients, state, weights)
    return optax.apply_updates(weights, updates), state, loss


def train():
    compiled = jax.jit(step, donate_argnums=(0, 1))
    weights = {name: 0.1 * jnp.eye(64, 32) for name in ("images", "texts")}
    state, losses = optimizer.init(weights), []
    folder = pathlib.Path(tempfile.mkdtemp())
    with ocp.StandardCheckpointer() as checkpointer:
        for i in range(3):
            weights, state, loss = compiled(weights, state, images, texts)
            checkpointer.save(folder / f"step_{i}", weights)
            losses.append(loss)
        checkpointer.wait_until_finished()
        weights = checkpointer.restore(folder / "step_1", weights)
    losses.append(compiled(weights, state, images, texts)[2])
    return losses


plain = train()

with shm.budget("16MiB") as block:
    planned = train()

compare(plain, planned, block.plans)
