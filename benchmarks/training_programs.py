"""Training programs as users write them: plain JAX, with optax where they would use it. Nothing here is split by hand.

`BUILDERS[name](**SIZES[name])` is a `Program`: a function, the shapes of its arguments, which of them are donated.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import optax
import programs

Spec = jax.ShapeDtypeStruct
OPTIMISER = optax.adamw(3e-4, weight_decay=0.1)


@dataclasses.dataclass(frozen=True)
class Program:
    function: Callable[..., Any]
    specs: tuple[Any, ...]
    donated: tuple[int, ...] = ()

    @property
    def jitted(self) -> Any:
        return jax.jit(self.function, donate_argnums=self.donated)

    @property
    def flat(self) -> Program:
        """The same with leaves in the place of trees, results too: optax's states cannot be written to files."""
        leaves, tree = jax.tree.flatten(self.specs)
        counts = [len(jax.tree.leaves(spec)) for spec in self.specs]
        starts = [0, *itertools.accumulate(counts)]

        def function(*leaves):
            return tuple(jax.tree.leaves(self.function(*jax.tree.unflatten(tree, leaves))))

        donated = [leaf for i in self.donated for leaf in range(starts[i], starts[i + 1])]
        return Program(function, tuple(leaves), tuple(donated))

    def export(self, platform: str) -> jax.export.Exported:
        return jax.export.export(self.jitted, platforms=[platform])(*self.specs)


def f32(*shape: int) -> Spec:
    return Spec(shape, jnp.float32)


def i32(*shape: int) -> Spec:
    return Spec(shape, jnp.int32)


def as_specs(shapes: Any) -> Any:
    """A tree of shapes as a tree of float arrays."""
    return jax.tree.map(lambda shape: f32(*shape), shapes, is_leaf=lambda s: isinstance(s, tuple))


def attention(heads: int, tokens: int, width: int) -> Program:
    """A nonlinear loss of attention, and its gradient."""

    def loss(q, k, v):
        return jnp.tanh(programs.attention(q, k, v)).sum()

    return Program(jax.value_and_grad(loss, (0, 1, 2)), (f32(heads, tokens, width),) * 3)


def head(tokens: int, width: int, vocabulary: int) -> Program:
    """A language model's head with its cross-entropy, and its gradient."""
    return Program(jax.value_and_grad(programs.head, (0, 1)), (f32(tokens, width), f32(width, vocabulary), i32(tokens)))


def mlp(tokens: int, width: int, hidden: int) -> Program:
    """The gradient of a squared loss of an MLP."""

    def loss(x, w1, w2):
        return (programs.mlp(x, w1, w2) ** 2).sum()

    return Program(jax.grad(loss, (0, 1, 2)), (f32(tokens, width), f32(width, hidden), f32(hidden, width)))


def contrastive(pairs: int, width: int) -> Program:
    """Two views, each to find the other among all: cosine similarities by broadcasting, both directions."""

    def unit(x):
        return x / jnp.linalg.norm(x, axis=-1, keepdims=True)

    def loss(a, b, log_scale):
        logits = (unit(a)[:, None, :] * unit(b)[None, :, :]).sum(-1) * jnp.exp(log_scale)
        labels = jnp.arange(len(a))
        rows = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        columns = optax.softmax_cross_entropy_with_integer_labels(logits.T, labels)
        return (rows.mean() + columns.mean()) / 2

    return Program(jax.value_and_grad(loss, (0, 1, 2)), (f32(pairs, width), f32(pairs, width), f32()))


def ntxent(pairs: int, width: int) -> Program:
    """optax's own NT-Xent, which broadcasts all embeddings against all; two of each label."""
    return Program(jax.value_and_grad(optax.losses.ntxent), (f32(2 * pairs, width), i32(2 * pairs)))


def neural_ode(batch: int, steps: int, state: int, hidden: int) -> Program:
    """A learnt vector field, integrated by classical Runge-Kutta steps in a scan; the gradient for the field."""

    def field(p, y):
        return jnp.tanh(y @ p["in"] + p["in_bias"]) @ p["out"] + p["out_bias"]

    def loss(p, start, end):
        h = 1 / steps

        def step(y, _):
            k1 = field(p, y)
            k2 = field(p, y + h / 2 * k1)
            k3 = field(p, y + h / 2 * k2)
            k4 = field(p, y + h * k3)
            return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

        return ((jax.lax.scan(step, start, length=steps)[0] - end) ** 2).mean()

    shapes = {"in": (state, hidden), "in_bias": (hidden,), "out": (hidden, state), "out_bias": (state,)}
    return Program(jax.value_and_grad(loss), (as_specs(shapes), f32(batch, state), f32(batch, state)))


def recurrent(batch: int, steps: int, inputs: int, hidden: int) -> Program:
    """A gated recurrent unit over time in a scan, its last state read out; the gradient for its weights."""

    def loss(p, x, y):
        def step(state, x):
            both = jnp.concatenate([x, state], -1)
            reset, update = jnp.split(jax.nn.sigmoid(both @ p["gates"] + p["gates_bias"]), 2, -1)
            new = jnp.tanh(jnp.concatenate([x, reset * state], -1) @ p["new"] + p["new_bias"])
            return update * state + (1 - update) * new, None

        last, _ = jax.lax.scan(step, jnp.zeros((x.shape[1], hidden)), x)
        return ((last @ p["out"] - y) ** 2).mean()

    shapes = {
        "gates": (inputs + hidden, 2 * hidden),
        "gates_bias": (2 * hidden,),
        "new": (inputs + hidden, hidden),
        "new_bias": (hidden,),
        "out": (hidden, 1),
    }
    return Program(jax.value_and_grad(loss), (as_specs(shapes), f32(steps, batch, inputs), f32(batch, 1)))


def layer_norm(p, x):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p["scale"] + p["shift"]


def self_attention(p, x, heads: int, causal: bool):
    batch, tokens, width = x.shape
    q, k, v = jnp.split(x @ p["qkv"] + p["qkv_bias"], 3, -1)
    q, k, v = (t.reshape(batch, tokens, heads, width // heads) for t in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(width // heads)
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones((tokens, tokens), bool)), scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    return mixed.reshape(x.shape) @ p["out"] + p["out_bias"]


def block(p, x, heads: int, causal: bool, attend=self_attention):
    """A transformer layer, normalised before."""
    x = x + attend(p, layer_norm(p["norm1"], x), heads, causal)
    hidden = jax.nn.gelu(layer_norm(p["norm2"], x) @ p["up"] + p["up_bias"])
    return x + hidden @ p["down"] + p["down_bias"]


def block_shapes(width: int) -> dict[str, Any]:
    norm = {"scale": (width,), "shift": (width,)}
    sizes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    return {"norm1": norm, "norm2": norm, **sizes, **{f"{name}_bias": (size[1],) for name, size in sizes.items()}}


def layer_specs(layers: int, width: int, scanned: bool) -> Any:
    """The layers' weights: a list of them, or stacked for a scan."""
    one = as_specs(block_shapes(width))
    return jax.tree.map(lambda s: f32(layers, *s.shape), one) if scanned else [one] * layers


def through_layers(layers, x, scanned: bool, heads: int, causal: bool):
    if scanned:
        return jax.lax.scan(lambda x, p: (block(p, x, heads, causal), None), x, layers)[0]
    for p in layers:
        x = block(p, x, heads, causal)
    return x


def train_step(
    loss: Callable[..., Any], parameters: Any, *batch: Spec, value_and_gradient: Callable[..., Any] | None = None
) -> Program:
    """One step of AdamW, parameters and the optimiser's state donated; the loss's gradient may be given."""

    def step(parameters, state, *batch):
        value, gradients = (value_and_gradient or jax.value_and_grad(loss))(parameters, *batch)
        updates, state = OPTIMISER.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, value

    return Program(step, (parameters, jax.eval_shape(OPTIMISER.init, parameters), *batch), (0, 1))


def gpt2(
    batch: int, tokens: int, layers: int, width: int, heads: int, vocabulary: int, *, scanned: bool = False
) -> Program:
    """A step of GPT-2, embeddings tied; its layers unrolled in Python, or in a scan."""

    def loss(p, inputs, labels):
        x = p["tokens"][inputs] + p["positions"][: inputs.shape[1]]
        x = layer_norm(p["norm"], through_layers(p["layers"], x, scanned, heads, True))
        return optax.softmax_cross_entropy_with_integer_labels(x @ p["tokens"].T, labels).mean()

    parameters = as_specs(
        {
            "tokens": (vocabulary, width),
            "positions": (tokens, width),
            "norm": {"scale": (width,), "shift": (width,)},
        }
    )
    parameters["layers"] = layer_specs(layers, width, scanned)
    return train_step(loss, parameters, i32(batch, tokens), i32(batch, tokens))


def gpt2_scanned(**sizes: int) -> Program:
    return gpt2(**sizes, scanned=True)


def vit(batch: int, side: int, patch: int, layers: int, width: int, heads: int, classes: int) -> Program:
    """A step of a vision transformer: a convolution cuts the patches, a class token is put in front."""

    def loss(p, images, labels):
        dimensions = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(images, p["patches"], (patch, patch), "VALID", dimension_numbers=dimensions)
        x = x.reshape(len(x), -1, width) + p["patches_bias"]
        x = jnp.concatenate([jnp.broadcast_to(p["class"], (len(x), 1, width)), x], 1) + p["positions"]
        x = layer_norm(p["norm"], through_layers(p["layers"], x, False, heads, False))
        logits = x[:, 0] @ p["head"] + p["head_bias"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    parameters = as_specs(
        {
            "patches": (patch, patch, 3, width),
            "patches_bias": (width,),
            "class": (1, 1, width),
            "positions": ((side // patch) ** 2 + 1, width),
            "norm": {"scale": (width,), "shift": (width,)},
            "head": (width, classes),
            "head_bias": (classes,),
        }
    )
    parameters["layers"] = layer_specs(layers, width, False)
    return train_step(loss, parameters, f32(batch, side, side, 3), i32(batch))


BUILDERS: dict[str, Callable[..., Program]] = {
    "attention": attention,
    "head": head,
    "gpt2": gpt2,
    "gpt2_scanned": gpt2_scanned,
    "vit": vit,
    "mlp": mlp,
    "contrastive": contrastive,
    "ntxent": ntxent,
    "neural_ode": neural_ode,
    "recurrent": recurrent,
}
_GPT2 = {"batch": 16, "tokens": 1024, "layers": 12, "width": 768, "heads": 12, "vocabulary": 50257}
SIZES: dict[str, dict[str, int]] = {
    "attention": {"heads": 8, "tokens": 16384, "width": 64},
    "head": {"tokens": 16384, "width": 2048, "vocabulary": 131072},
    "gpt2": _GPT2,
    "gpt2_scanned": _GPT2,
    "vit": {"batch": 64, "side": 224, "patch": 16, "layers": 12, "width": 768, "heads": 12, "classes": 1000},
    "mlp": {"tokens": 65536, "width": 1024, "hidden": 16384},
    "contrastive": {"pairs": 8192, "width": 256},
    "ntxent": {"pairs": 8192, "width": 256},
    "neural_ode": {"batch": 16384, "steps": 512, "state": 16, "hidden": 64},
    "recurrent": {"batch": 16384, "steps": 512, "inputs": 8, "hidden": 32},
}
"""The sizes that must fit: nothing is executed at these."""
SMALL: dict[str, dict[str, int]] = {
    "attention": {"heads": 2, "tokens": 96, "width": 8},
    "head": {"tokens": 64, "width": 16, "vocabulary": 160},
    "gpt2": {**_GPT2, "batch": 4, "tokens": 32, "layers": 3, "width": 32, "heads": 4, "vocabulary": 120},
    "gpt2_scanned": {**_GPT2, "batch": 4, "tokens": 32, "layers": 3, "width": 32, "heads": 4, "vocabulary": 120},
    "vit": {"batch": 4, "side": 32, "patch": 8, "layers": 2, "width": 32, "heads": 4, "classes": 10},
    "mlp": {"tokens": 128, "width": 16, "hidden": 64},
    "contrastive": {"pairs": 48, "width": 16},
    "ntxent": {"pairs": 24, "width": 16},
    "neural_ode": {"batch": 32, "steps": 8, "state": 4, "hidden": 16},
    "recurrent": {"batch": 32, "steps": 8, "inputs": 4, "hidden": 16},
}
"""The same programs in milliseconds."""


def program(name: str, sizes: dict[str, int] | None = None) -> Program:
    return BUILDERS[name](**(sizes or SIZES[name]))
