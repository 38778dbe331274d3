"""Models of the AutoChunk paper, written plainly, at a fifth of their temporaries: writes results/autochunk.json.

Forward passes: the prefill of a GPT-2-small (12 layers in a scan, 16,384 tokens), a ViT-L/16 at 1,024 x 1,024 pixels
(24 layers in a scan), the pair half of an Evoformer block (768 residues, 128 channels, 4 heads), its triangle attention
alone and the UNet of diffusion models at 1,024 x 1,024 (32 to 256 channels, attention at the lowest resolution, 128 x
128). The budget is arguments + outputs + 20% of the temporaries the target's compiler reports of the original, 10% for
the triangle attention, 25% for the UNet on a TPU. Executes nothing: `autochunk_runs.py` does.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import argparse
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import record
import tables

import stablehlo_mem as shm
from stablehlo_mem.utils.units import format_bytes

TARGETS = ("cpu", "cuda:h200", "tpu:v5e")
SHARE = 0.2
TRIANGLE, UNET = "Triangle attention, 768", "UNet, 1,024 x 1,024"
SHARES = {**{(TRIANGLE, target): 0.1 for target in TARGETS}, (UNET, "tpu:v5e"): 0.25}
"""Where another share is asked for."""
PATCH = 16
GROUPS = 8
NOISE = 128
UNET_HEADS = 4


def normalised(x):
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def transformer_layer(heads: int, causal: bool) -> Callable[..., Any]:
    def layer(x, w):
        z = normalised(x)
        q, k, v = (jnp.reshape(z @ w[name], (*x.shape[:-1], heads, -1)) for name in ("q", "k", "v"))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        if causal:
            scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
        x = x + jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(x.shape) @ w["out"]
        return x + jax.nn.gelu(normalised(x) @ w["up"]) @ w["down"], None

    return layer


def gpt_prefill(w, tokens):
    x = w["embedding"][tokens] + w["positions"][: tokens.shape[1]]
    x, _ = jax.lax.scan(transformer_layer(12, causal=True), x, w["layers"])
    return normalised(x)[:, -1] @ w["embedding"].T


def vit(w, images):
    b, height, width, channels = images.shape
    patches = images.reshape(b, height // PATCH, PATCH, width // PATCH, PATCH, channels).swapaxes(2, 3)
    x = patches.reshape(b, -1, PATCH * PATCH * channels) @ w["patches"] + w["positions"]
    x, _ = jax.lax.scan(transformer_layer(16, causal=False), x, w["layers"])
    return normalised(x).mean(1) @ w["head"]


def evoformer_pair(w, pair):
    z = normalised(pair)
    left, right = (jax.nn.sigmoid(z @ w[f"{side}_gate"]) * (z @ w[side]) for side in ("left", "right"))
    update = normalised(jnp.einsum("ikc,jkc->ijc", left, right)) @ w["product"]
    pair = pair + jax.nn.sigmoid(z @ w["product_gate"]) * update
    pair = triangle_attention(w, pair)
    return pair + jax.nn.relu(normalised(pair) @ w["wide"]) @ w["narrow"]


def triangle_attention(w, pair):
    z = normalised(pair)
    q, k, v = (jnp.einsum("ijc,chd->hijd", z, w[name]) for name in ("q", "k", "v"))
    bias = jnp.einsum("jkc,ch->hjk", z, w["bias"])
    weights = jax.nn.softmax(jnp.einsum("hijd,hikd->hijk", q, k) / q.shape[-1] ** 0.5 + bias[:, None])
    mixed = jnp.einsum("hijk,hikd->ijhd", weights, v).reshape(pair.shape)
    return pair + jax.nn.sigmoid(z @ w["gate"]) * (mixed @ w["out"])


def group_normalised(x):
    b, height, width, c = x.shape
    groups = x.reshape(b, height, width, GROUPS, c // GROUPS)
    mean, variance = (f(groups, (1, 2, 4), keepdims=True) for f in (jnp.mean, jnp.var))
    return ((groups - mean) * jax.lax.rsqrt(variance + 1e-5)).reshape(x.shape)


def conv(x, kernel, stride=1):
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def residual_block(x, noise, w):
    h = conv(jax.nn.silu(group_normalised(x) * w["scale"] + w["shift"]), w["first"])
    h = h + (noise @ w["noise"])[:, None, None]
    h = conv(jax.nn.silu(group_normalised(h)), w["second"])
    return h + (x if x.shape == h.shape else x @ w["through"])


def image_attention(x, w):
    b, c = x.shape[0], x.shape[-1]
    z = group_normalised(x).reshape(b, -1, c)
    q, k, v = (jnp.reshape(z @ w[name], (b, -1, UNET_HEADS, c // UNET_HEADS)) for name in ("q", "k", "v"))
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(b, -1, c)
    return x + (mixed @ w["out"]).reshape(x.shape)


def timestep_embedding(steps, width):
    angles = steps[:, None] * jnp.exp(-jnp.linspace(0, jnp.log(10_000.0), width // 2))
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)


def unet(w, data):
    images, steps = data
    noise = jax.nn.silu(timestep_embedding(steps, w["noise"].shape[0]) @ w["noise"])
    x = conv(images, w["in"])
    skips = []
    for level in w["down"]:
        x = conv(x, level["down"], stride=2) if "down" in level else x
        for block in level["blocks"]:
            x = residual_block(x, noise, block)
            skips.append(x)
    x = image_attention(residual_block(x, noise, w["middle"]), w["attention"])
    for level in w["up"]:
        for block in level["blocks"]:
            x = residual_block(jnp.concatenate([x, skips.pop()], -1), noise, block)
        x = conv(jnp.repeat(jnp.repeat(x, 2, 1), 2, 2), level["up"]) if "up" in level else x
    return conv(jax.nn.silu(group_normalised(x)), w["out"])


def layers(count: int, width: int) -> dict[str, tuple[int, ...]]:
    square = dict.fromkeys(("q", "k", "v", "out"), (count, width, width))
    return {**square, "up": (count, width, 4 * width), "down": (count, 4 * width, width)}


def evoformer_shapes(c: int, heads: int) -> dict[str, tuple[int, ...]]:
    gates = ("left", "left_gate", "right", "right_gate", "product", "product_gate")
    wide = {"wide": (c, 4 * c), "narrow": (4 * c, c)}
    return {**triangle_shapes(c, heads), **dict.fromkeys(gates, (c, c)), **wide}


def triangle_shapes(c: int, heads: int) -> dict[str, tuple[int, ...]]:
    split = dict.fromkeys(("q", "k", "v"), (c, heads, c // heads))
    return {**split, "bias": (c, heads), "gate": (c, c), "out": (c, c)}


def block_shapes(c_in: int, c: int) -> dict[str, tuple[int, ...]]:
    norm = dict.fromkeys(("scale", "shift"), (c_in,))
    return {**norm, "first": (3, 3, c_in, c), "second": (3, 3, c, c), "noise": (NOISE, c), "through": (c_in, c)}


def unet_shapes(channels: tuple[int, ...], blocks: int) -> dict[str, Any]:
    c, low = channels[0], channels[-1]
    down: list[dict[str, Any]] = []
    up: list[dict[str, Any]] = []
    for before, after in zip((c, *channels), channels, strict=False):
        resize = {"down": (3, 3, before, after)} if down else {}
        down.append({"blocks": [block_shapes(after, after)] * blocks, **resize})
        resize = {"up": (3, 3, after, before)} if up else {}
        up.insert(0, {"blocks": [block_shapes(2 * after, after)] * blocks, **resize})
    attention = dict.fromkeys(("q", "k", "v", "out"), (low, low))
    ends = {"noise": (NOISE, NOISE), "in": (3, 3, 3, c), "out": (3, 3, c, 3)}
    return {**ends, "down": down, "middle": block_shapes(low, low), "attention": attention, "up": up}


def unet_data(side: int) -> tuple[jax.ShapeDtypeStruct, ...]:
    return jax.ShapeDtypeStruct((1, side, side, 3), jnp.float32), jax.ShapeDtypeStruct((1,), jnp.float32)


GPT = {"embedding": (50_257, 768), "positions": (16_384, 768), "layers": layers(12, 768)}
VIT = {"patches": (768, 1024), "positions": (4096, 1024), "layers": layers(24, 1024), "head": (1024, 1000)}
PROGRAMS: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "GPT-2 prefill, 16,384 tokens": (gpt_prefill, GPT, jax.ShapeDtypeStruct((1, 16_384), jnp.int32)),
    "ViT-L/16, 1,024 x 1,024": (vit, VIT, jax.ShapeDtypeStruct((1, 1024, 1024, 3), jnp.float32)),
    "Evoformer pair block, 768": (
        evoformer_pair,
        evoformer_shapes(128, 4),
        jax.ShapeDtypeStruct((768, 768, 128), jnp.float32),
    ),
    TRIANGLE: (
        triangle_attention,
        triangle_shapes(128, 4),
        jax.ShapeDtypeStruct((768, 768, 128), jnp.float32),
    ),
    UNET: (unet, unet_shapes((32, 64, 128, 256), 2), unet_data(1024)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), choices=TARGETS)
    parser.add_argument("--models", nargs="+", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--quick", action="store_true", help="on CPU only")
    arguments = parser.parse_args()
    targets = ["cpu"] if arguments.quick else arguments.targets
    path = record.RESULTS / "autochunk.json"
    rows = record.earlier_rows(path, ())
    for name, target in itertools.product(arguments.models, targets):
        rows.setdefault(name, {})[target] = measure(name, target)
        record.write({**record.header(), "rows": rows}, path)


def specs(shapes: Any) -> Any:
    """Weights of some shapes."""
    is_shape = lambda s: isinstance(s, tuple)  # noqa: E731
    return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, jnp.float32), shapes, is_leaf=is_shape)


def measure(name: str, target: str) -> dict[str, Any]:
    """One model on one target."""
    fun, shapes, data = PROGRAMS[name]
    exported = jax.export.export(jax.jit(fun), platforms=[target.partition(":")[0]])(specs(shapes), data)
    share = SHARES.get((name, target), SHARE)
    before = shm.profile(exported, target=target)
    temporaries = record.temp_bytes(before)
    plan = shm.plan(exported, record.fixed_bytes(before) + int(share * temporaries), target=target)
    row = {
        "share": share,
        "temp_bytes_before": temporaries,
        "temp_bytes_after": record.temp_bytes(plan.after),
        "fits": plan.fits,
        "compiles": plan.compiles,
        "planning_seconds": plan.planning_seconds,
        "steps": list(plan.summaries),
    }
    sizes = f"{format_bytes(temporaries)} → {format_bytes(row['temp_bytes_after'])}"
    print(f"{name} on {target}: {sizes}, {'kept' if plan.fits else 'NOT KEPT'}", flush=True)
    return row


def table(data: dict[str, Any]) -> str:
    """One line a model and target."""
    lines = [
        [
            name,
            target,
            format_bytes(row["temp_bytes_before"]),
            format_bytes(row["temp_bytes_after"]),
            f"{1 - row['temp_bytes_after'] / row['temp_bytes_before']:.1%}",
            f"{1 - row['share']:.0%}",
            "yes" if row["fits"] else "no",
        ]
        for name, rows in data["rows"].items()
        for target, row in rows.items()
    ]
    note = "Temporaries as the compilers report them"
    names = ["model", "target", "temporaries", "after", "less", "asked for", "kept"]
    return tables.table(names, lines) + f"\n{note}; {tables.stamp(data)}.\n"


if __name__ == "__main__":
    main()
