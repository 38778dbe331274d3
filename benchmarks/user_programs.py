"""Programs as users of JAX's libraries write them, for `user_runs.py`: whole steps, with their parameters as trees.

Each has the structure that a library gives it (jraph, Keras, blackjax, mamba, Hyena, optax, diffusers), in plain JAX.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

Tree = Any
Function = Callable[..., Any]
Made = tuple[Function, tuple[Tree, ...]]  # with arguments for it

_RNG = np.random.default_rng


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Tree:
    return scale * rng.standard_normal(shape, np.float32)


def layer(rng: np.random.Generator, *shape: int) -> dict[str, Tree]:
    """Weights of a dense layer or a convolution, and its bias."""
    return {"w": normal(rng, *shape, scale=float(np.prod(shape[:-1])) ** -0.5), "b": np.zeros(shape[-1], np.float32)}


def sgd(loss: Function, rate: float = 1e-3) -> Function:
    """A step of gradient descent on the first argument."""

    def step(params, *data):
        value, gradient = jax.value_and_grad(loss)(params, *data)
        return jax.tree.map(lambda p, g: p - rate * g, params, gradient), value

    return step


def dense(p, x):
    return x @ p["w"] + p["b"]


def mlp(layers, x):
    for p in layers[:-1]:
        x = jax.nn.relu(dense(p, x))
    return dense(layers[-1], x)


def conv(p, x, stride=1):
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, p["w"], (stride, stride), "SAME", dimension_numbers=numbers) + p["b"]


def max_pool(x, window=2, stride=2):
    sizes, strides = (1, window, window, 1), (1, stride, stride, 1)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, sizes, strides, "SAME")


def cross_entropy(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def graph_network(nodes: int = 10_000, edges: int = 100_000, width: int = 64) -> Made:
    """jraph's GraphNetwork: edges, then nodes, then the globals of a batch of graphs are updated."""
    rng, graphs = _RNG(0), 16

    def loss(params, graph, target):
        n, e, g, senders, receivers, n_node, n_edge = graph
        sent, received = jax.tree.map(lambda a: a[senders], n), jax.tree.map(lambda a: a[receivers], n)
        of_edges = jnp.repeat(g, n_edge, axis=0, total_repeat_length=edges)
        e = mlp(params["edge"], jnp.concatenate([e, sent, received, of_edges], -1))
        outgoing, incoming = jax.ops.segment_sum(e, senders, nodes), jax.ops.segment_sum(e, receivers, nodes)
        of_nodes = jnp.repeat(g, n_node, axis=0, total_repeat_length=nodes)
        n = mlp(params["node"], jnp.concatenate([n, outgoing, incoming, of_nodes], -1))
        index = jnp.arange(graphs)
        node_graph = jnp.repeat(index, n_node, axis=0, total_repeat_length=nodes)
        edge_graph = jnp.repeat(index, n_edge, axis=0, total_repeat_length=edges)
        n, e = jax.ops.segment_sum(n, node_graph, graphs), jax.ops.segment_sum(e, edge_graph, graphs)
        return ((mlp(params["global"], jnp.concatenate([n, e, g], -1)) - target) ** 2).mean()

    inputs = {"edge": 4 * width, "node": 4 * width, "global": 3 * width}
    params = {k: [layer(rng, n, 2 * width), layer(rng, 2 * width, width)] for k, n in inputs.items()}
    ends = [rng.integers(0, nodes, edges, np.int32) for _ in range(2)]
    counts = [np.full(graphs, total // graphs, np.int32) for total in (nodes, edges)]
    graph = (normal(rng, nodes, width), normal(rng, edges, width), normal(rng, graphs, width), *ends, *counts)
    return sgd(loss), (params, graph, normal(rng, graphs, width))


def keras_cnn(batch: int = 128, size: int = 32) -> Made:
    """A Keras training step: batch norm that moves its averages, dropout, Adam written out variable by variable."""
    rng, widths = _RNG(0), (3, 64, 64, 128)

    def batch_norm(p, moving, x):
        mean, variance = x.mean((0, 1, 2), keepdims=True), x.var((0, 1, 2), keepdims=True)
        moving = [0.99 * m + 0.01 * s.reshape(-1) for m, s in zip(moving, (mean, variance), strict=True)]
        scale = jax.lax.rsqrt(variance + 1e-3) * p["gamma"]
        return x * scale + (p["beta"] - mean * scale), moving

    def loss(params, moving, images, labels):
        x, new = images, []
        for p, m in zip(params["blocks"], moving, strict=True):
            x, m = batch_norm(p["norm"], m, conv(p["conv"], x))
            x = max_pool(jax.nn.relu(x))
            new.append(m)
        logits = dense(params["top"], jax.nn.relu(dense(params["hidden"], x.reshape(len(x), -1))))
        return -(jax.nn.one_hot(labels, 10) * jax.nn.log_softmax(logits)).sum(-1).mean(), new

    def step(params, moving, state, images, labels):
        (value, moving), gradient = jax.value_and_grad(loss, has_aux=True)(params, moving, images, labels)
        count, m, v = state
        rate = 1e-3 * jnp.sqrt(1 - 0.999 ** (count + 1)) / (1 - 0.9 ** (count + 1))
        m = jax.tree.map(lambda m, g: m + (g - m) * 0.1, m, gradient)
        v = jax.tree.map(lambda v, g: v + (g * g - v) * 0.001, v, gradient)
        params = jax.tree.map(lambda p, m, v: p - m * rate / (jnp.sqrt(v) + 1e-7), params, m, v)
        return params, moving, (count + 1, m, v), value

    norms = [{"gamma": np.ones(n, np.float32), "beta": np.zeros(n, np.float32)} for n in widths[1:]]
    convs = [layer(rng, 3, 3, a, b) for a, b in itertools.pairwise(widths)]
    blocks = [{"conv": c, "norm": n} for c, n in zip(convs, norms, strict=True)]
    flat = (size // 8) ** 2 * widths[-1]
    params = {"blocks": blocks, "hidden": layer(rng, flat, 256), "top": layer(rng, 256, 10)}
    moving = [[np.zeros(n, np.float32), np.ones(n, np.float32)] for n in widths[1:]]
    state = (np.float32(0), *(jax.tree.map(np.zeros_like, params) for _ in range(2)))
    return step, (params, moving, state, normal(rng, batch, size, size, 3), rng.integers(0, 10, batch, np.int32))


def hmc(chains: int = 1024, points: int = 10_000, features: int = 16) -> Made:
    """blackjax's HMC: a scan over steps, vmap over chains, in each a fori_loop of leapfrogs."""
    rng = _RNG(0)

    def inference(keys, positions, x, y):
        def log_density(w):
            logits = x @ w
            return (y * jax.nn.log_sigmoid(logits) + (1 - y) * jax.nn.log_sigmoid(-logits)).sum() - 0.5 * (w**2).sum()

        value_and_grad = jax.value_and_grad(log_density)

        def leapfrog(_, state):
            w, momentum, _, gradient = state
            momentum = momentum + 0.5 * 1e-3 * gradient
            w = w + 1e-3 * momentum
            value, gradient = value_and_grad(w)
            return w, momentum + 0.5 * 1e-3 * gradient, value, gradient

        def kernel(key, state):
            w, value, gradient = state
            draw, accept = jax.random.split(key)
            momentum = jax.random.normal(draw, w.shape)
            end = jax.lax.fori_loop(0, 5, leapfrog, (w, momentum, value, gradient))
            change = end[2] - 0.5 * (end[1] ** 2).sum() - value + 0.5 * (momentum**2).sum()
            taken = jnp.log(jax.random.uniform(accept)) < change
            return jax.tree.map(lambda new, old: jnp.where(taken, new, old), (end[0], *end[2:]), state)

        def one_step(state, key):
            state = jax.vmap(kernel)(jax.random.split(key, chains), state)
            return state, state[0]

        start = positions, *jax.vmap(value_and_grad)(positions)
        return jax.lax.scan(one_step, start, keys)

    keys = rng.integers(0, 2**32, (3, 2), np.uint32)
    labels = rng.integers(0, 2, points).astype(np.float32)
    return inference, (keys, 0.1 * normal(rng, chains, features), normal(rng, points, features), labels)


def selective_scan(way: str, batch: int = 2, length: int = 1024, width: int = 256, states: int = 16) -> Made:
    """A Mamba block and its gradient; the recurrence as an associative scan over pairs or as a scan over tokens."""
    rng = _RNG(0)

    def recurrence(decay, driven):
        if way == "associative":
            join = lambda one, two: (one[0] * two[0], two[0] * one[1] + two[1])  # noqa: E731
            return jax.lax.associative_scan(join, (decay, driven), axis=1)[1]
        first = jnp.zeros_like(driven[:, 0])
        over = jax.tree.map(lambda a: jnp.moveaxis(a, 1, 0), (decay, driven))
        each = jax.lax.scan(lambda h, now: (now[0] * h + now[1],) * 2, first, over)[1]
        return jnp.moveaxis(each, 0, 1)

    def loss(p, x, target):
        u, gate = jnp.split(dense(p["in"], x), 2, -1)
        u = jax.nn.silu(u)
        delta = jax.nn.softplus(dense(p["delta"], u))
        b, c = jnp.split(u @ p["bc"], 2, -1)
        decay = jnp.exp(delta[..., None] * -jnp.exp(p["a"]))
        driven = (delta * u)[..., None] * b[:, :, None]
        y = (recurrence(decay, driven) * c[:, :, None]).sum(-1) + u * p["d"]
        return ((dense(p["out"], y * jax.nn.silu(gate)) - target) ** 2).mean()

    params = {
        "in": layer(rng, width // 2, 2 * width),
        "delta": layer(rng, width, width),
        "bc": normal(rng, width, 2 * states, scale=width**-0.5),
        "a": np.log(np.tile(np.arange(1, states + 1, dtype=np.float32), (width, 1))),
        "d": np.ones(width, np.float32),
        "out": layer(rng, width, width // 2),
    }
    return sgd(loss), (params, *(normal(rng, batch, length, width // 2) for _ in range(2)))


def long_convolution(batch: int = 4, length: int = 16_384, width: int = 64) -> Made:
    """A Hyena operator: filters from positions, convolutions by FFT of twice the length, gates; its gradient."""
    rng = _RNG(0)

    def fft_conv(u, filters, bias):
        spectrum = jnp.fft.rfft(filters, n=2 * length, axis=-1) / (2 * length)
        y = jnp.fft.irfft(jnp.fft.rfft(u, n=2 * length, axis=-1) * spectrum, n=2 * length, norm="forward", axis=-1)
        return y[..., :length] + u * bias[:, None]

    def loss(p, x, target):
        t = jnp.linspace(0, 1, length)[:, None]
        positions = jnp.concatenate([t, jnp.sin(2 * np.pi * t * jnp.arange(1, 9)), jnp.exp(-t)], -1)
        filters = (mlp(p["filter"], positions) * jnp.exp(-4 * t)).T
        v, one, two = jnp.split(jnp.moveaxis(dense(p["in"], x), -1, -2), 3, 1)
        y = two * fft_conv(v * one, filters, p["bias"])
        return ((dense(p["out"], jnp.moveaxis(y, -1, -2)) - target) ** 2).mean()

    params = {
        "filter": [layer(rng, 10, 64), layer(rng, 64, width)],
        "in": layer(rng, width, 3 * width),
        "bias": normal(rng, width),
        "out": layer(rng, width, width),
    }
    return sgd(loss), (params, *(normal(rng, batch, length, width) for _ in range(2)))


def conjugate_gradient(points: int = 5_000, features: int = 8) -> Made:
    """A Gaussian process fitted by CG over its kernel matrix, and the gradient of its quadratic term through that."""
    rng = _RNG(0)

    def loss(params, x, y):
        apart = (x[:, None] - x[None]) / jnp.exp(params["length"])
        matrix = jnp.exp(params["scale"] - 0.5 * (apart**2).sum(-1))
        noisy = matrix + jnp.exp(params["noise"]) * jnp.eye(points)
        weights, _ = jax.scipy.sparse.linalg.cg(lambda v: noisy @ v, y, maxiter=20)
        return 0.5 * y @ weights

    params = {"length": np.zeros(features, np.float32), "scale": np.float32(0), "noise": np.float32(0)}
    return sgd(loss), (params, normal(rng, points, features), normal(rng, points))


def private_sgd(batch: int = 1024) -> Made:
    """JAX's example of differentially private SGD: gradients of each example, clipped, summed, with noise."""
    rng = _RNG(0)

    def loss(p, image, label):
        x = max_pool(jax.nn.relu(conv(p[0], image[None], 2)), 2, 1)
        x = max_pool(jax.nn.relu(conv(p[1], x, 2)), 2, 1)
        return cross_entropy(mlp(p[2:], x.reshape(1, -1)), label[None])

    def clipped(params, image, label):
        gradient = jax.grad(loss)(params, image, label)
        leaves, tree = jax.tree.flatten(gradient)
        norm = jnp.linalg.norm(jnp.array([jnp.linalg.norm(leaf.ravel()) for leaf in leaves]))
        return jax.tree.unflatten(tree, [leaf / jnp.maximum(norm, 1.0) for leaf in leaves])

    def step(params, key, images, labels):
        gradient = jax.tree.map(lambda g: g.sum(0), jax.vmap(clipped, (None, 0, 0))(params, images, labels))
        leaves, tree = jax.tree.flatten(gradient)
        keys = jax.random.split(key, len(leaves))
        noisy = [(g + 1.1 * jax.random.normal(k, g.shape)) / batch for k, g in zip(keys, leaves, strict=True)]
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.tree.unflatten(tree, noisy))

    params = [layer(rng, 8, 8, 1, 16), layer(rng, 4, 4, 16, 32), layer(rng, 7 * 7 * 32, 32), layer(rng, 32, 10)]
    key, labels = rng.integers(0, 2**32, 2, np.uint32), rng.integers(0, 10, batch, np.int32)
    return step, (params, key, normal(rng, batch, 28, 28, 1), labels)


def draws(rows: int = 4_096, columns: int = 8_192) -> Made:
    return lambda key: jax.random.normal(key, (rows, columns)).sum(1), (np.array([0, 7], np.uint32),)


def option_price(paths: int = 65_536, days: int = 512) -> Made:
    """An Asian option by Monte Carlo, and what its price changes by with the spot and the volatility."""

    def price(market, key):
        spot, volatility, rate, strike = market
        drawn = jax.random.normal(key, (paths, days))
        steps = (rate - 0.5 * volatility**2) / days + volatility * drawn / np.sqrt(days)
        along = spot * jnp.exp(jnp.cumsum(steps, 1))
        return (jnp.exp(-rate) * jnp.maximum(along.mean(1) - strike, 0)).mean()

    return jax.value_and_grad(price), (np.array([100, 0.2, 0.03, 100], np.float32), np.array([0, 7], np.uint32))


def mixture_of_experts(tokens: int = 4_096, width: int = 256, hidden: int = 512, experts: int = 8) -> Made:
    """Top-2 routing with capacities, as Mesh TensorFlow and flax write it: tokens go out and back by einsums."""
    rng, capacity = _RNG(0), 2 * tokens // experts

    def loss(p, x, target):
        gates = jax.nn.softmax(x @ p["router"])
        chosen, index = jax.lax.top_k(gates, 2)
        chosen = chosen / chosen.sum(-1, keepdims=True)
        mask = jax.nn.one_hot(index, experts, dtype=jnp.int32)
        position = jnp.cumsum(mask.swapaxes(0, 1).reshape(-1, experts), 0).reshape(2, tokens, experts).swapaxes(0, 1)
        position = position * mask - 1
        combine = jnp.einsum("tk,tkec->tec", chosen, jax.nn.one_hot(position, capacity))
        routed = jnp.einsum("tec,td->ecd", (combine > 0).astype(x.dtype), x)
        inner = jax.nn.gelu(jnp.einsum("ecd,edh->ech", routed, p["up"]))
        y = jnp.einsum("tec,ecd->td", combine, jnp.einsum("ech,ehd->ecd", inner, p["down"]))
        balance = experts * (gates.mean(0) * mask[:, 0].mean(0)).sum()
        return ((x + y - target) ** 2).mean() + 0.01 * balance

    params = {
        "router": normal(rng, width, experts, scale=width**-0.5),
        "up": normal(rng, experts, width, hidden, scale=width**-0.5),
        "down": normal(rng, experts, hidden, width, scale=hidden**-0.5),
    }
    return sgd(loss), (params, *(normal(rng, tokens, width) for _ in range(2)))


def contrastive(batch: int = 4_096, inputs: int = 512, width: int = 256) -> Made:
    """CLIP's loss of two towers, and a step of it."""
    rng = _RNG(0)

    def loss(p, images, texts):
        one, two = (mlp(p[k], x) for k, x in (("image", images), ("text", texts)))
        one, two = (x / jnp.linalg.norm(x, axis=-1, keepdims=True) for x in (one, two))
        logits = jnp.exp(p["temperature"]) * one @ two.T
        labels = jnp.arange(batch)
        return (cross_entropy(logits, labels) + cross_entropy(logits.T, labels)) / 2

    params = {k: [layer(rng, inputs, inputs), layer(rng, inputs, width)] for k in ("image", "text")}
    return sgd(loss), ({**params, "temperature": np.float32(1)}, *(normal(rng, batch, inputs) for _ in range(2)))


def unet(batch: int = 8, size: int = 64, width: int = 32) -> Made:
    """A step of a small diffusion model: down, middle, up with shortcuts, group norms and times."""
    rng = _RNG(0)

    def group_norm(x, groups=8):
        grouped = x.reshape(*x.shape[:3], groups, -1)
        mean, variance = grouped.mean((1, 2, 4), keepdims=True), grouped.var((1, 2, 4), keepdims=True)
        return ((grouped - mean) * jax.lax.rsqrt(variance + 1e-5)).reshape(x.shape)

    def block(p, x, times):
        x = conv(p["first"], x)
        x = jax.nn.silu(group_norm(x)) + dense(p["time"], times)[:, None, None]
        return x + conv(p["second"], jax.nn.silu(group_norm(x)))

    def model(p, x, times):
        times = jnp.concatenate([f(times[:, None] * 2.0 ** jnp.arange(16)) for f in (jnp.sin, jnp.cos)], -1)
        shortcuts = []
        for q in p["down"]:
            x = block(q, x, times)
            shortcuts.append(x)
            x = x.reshape(len(x), x.shape[1] // 2, 2, x.shape[2] // 2, 2, -1).mean((2, 4))
        x = block(p["middle"], x, times)
        for q, shortcut in zip(p["up"], reversed(shortcuts), strict=True):
            x = jax.image.resize(x, (*shortcut.shape[:3], x.shape[-1]), "nearest")
            x = block(q, jnp.concatenate([x, shortcut], -1), times)
        return conv(p["last"], x)

    def loss(p, images, noise, times):
        share = jnp.cos(times * np.pi / 2)[:, None, None, None]
        return ((model(p, share * images + jnp.sqrt(1 - share**2) * noise, times) - noise) ** 2).mean()

    def weights(a, b):
        return {"first": layer(rng, 3, 3, a, b), "time": layer(rng, 32, b), "second": layer(rng, 3, 3, b, b)}

    params = {
        "down": [weights(3, width), weights(width, 2 * width)],
        "middle": weights(2 * width, 4 * width),
        "up": [weights(6 * width, 2 * width), weights(3 * width, width)],
        "last": layer(rng, 3, 3, width, 3),
    }
    return sgd(loss), (params, *normal(rng, 2, batch, size, size, 3), rng.random(batch, np.float32))


def speech(batch: int = 64, frames: int = 500, tokens: int = 512, labels: int = 60) -> Made:
    """optax's CTC loss over a linear layer, and a step of it."""
    rng = _RNG(0)

    def loss(p, x, x_padding, y, y_padding):
        return optax.ctc_loss(dense(p, x), x_padding, y, y_padding).mean()

    padding = [(np.arange(n) >= rng.integers(n // 2, n, (batch, 1))).astype(np.float32) for n in (frames, labels)]
    inputs, targets = normal(rng, batch, frames, 128), rng.integers(1, tokens, (batch, labels), np.int32)
    return sgd(loss), (layer(rng, 128, tokens), inputs, padding[0], targets, padding[1])


PROGRAMS: dict[str, Callable[[], Made]] = {
    "graph network": graph_network,
    "Keras CNN": keras_cnn,
    "HMC": hmc,
    "Mamba, associative": lambda: selective_scan("associative"),
    "Mamba, scan": lambda: selective_scan("scan"),
    "FFT convolution": long_convolution,
    "CG": conjugate_gradient,
    "DP-SGD": private_sgd,
    "draws": draws,
    "option price": option_price,
    "mixture of experts": mixture_of_experts,
    "InfoNCE": contrastive,
    "UNet": unet,
    "CTC": speech,
}
