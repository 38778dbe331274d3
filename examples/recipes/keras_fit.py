"""Keras 3 on JAX: `model.fit`, `evaluate` and `predict` of a model with attention over 1,024 tokens."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
from comparing import compare

import stablehlo_mem as shm

tokens = np.random.default_rng(0).normal(size=(8, 1024, 64)).astype(np.float32)


def train():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((1024, 64))
    attended = keras.layers.MultiHeadAttention(num_heads=4, key_dim=16)(inputs, inputs)
    model = keras.Model(inputs, keras.layers.Dense(64)(attended))
    model.compile(optimizer="adam", loss="mse")
    history = model.fit(tokens, tokens, batch_size=4, epochs=2, verbose=0)
    return history.history["loss"]


plain = train()

with shm.budget("96MiB") as block:
    planned = train()

compare(plain, planned, block.plans)
