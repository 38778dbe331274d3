"""Takes the pictures of the page that the documents show: `python -m tests.screenshots docs/img`."""

from __future__ import annotations

import pathlib
import sys
import tempfile

import jax
import jax.numpy as jnp

import stablehlo_mem as shm
from tests.browser import Browser
from tests.support import exported, spec

SIZES = {"desktop": (1400, 1200), "phone": (400, 844)}
LAYERS, TOKENS, WIDTH, HIDDEN = 6, 2048, 256, 1024


def train_step(weights, x, y):
    def layer(x, w):
        with jax.named_scope("mlp"):
            x = x + jax.nn.gelu(x @ w["up"]) @ w["down"]
        with jax.named_scope("attention"):
            return x + jax.nn.softmax(x @ x.T / WIDTH**0.5, -1) @ x, None

    def loss(weights):
        return ((jax.lax.scan(layer, x, weights)[0] - y) ** 2).mean()

    value, gradient = jax.value_and_grad(loss)(weights)
    return jax.tree.map(lambda w, g: w - 1e-3 * g, weights, gradient), jnp.sqrt(value)


def main(folder: pathlib.Path) -> None:
    weights = {"up": spec(LAYERS, WIDTH, HIDDEN), "down": spec(LAYERS, HIDDEN, WIDTH)}
    x = spec(TOKENS, WIDTH)
    plan = shm.plan(exported(train_step, weights, x, x), "120MiB", target="cpu")
    print(plan)
    with tempfile.TemporaryDirectory() as scratch, Browser(pathlib.Path(scratch) / "profile") as browser:
        page = pathlib.Path(scratch) / "plan.html"
        plan.to_html(page)
        for name, (width, height) in SIZES.items():
            for dark in (False, True):
                browser.open(page, width, height, dark=dark)
                browser.value("document.querySelector('#chart-1 .largest button').click()")
                browser.screenshot(folder / f"plan-{name}-{'dark' if dark else 'light'}.png")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
