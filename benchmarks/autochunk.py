"""Models of the AutoChunk paper, written plainly, at a fifth of their temporaries: writes results/autochunk.json.

Forward passes: the prefill of a GPT-2-small (12 layers in a scan, 16,384 tokens), a ViT-L/16 at 1,024 x 1,024 pixels
(24 layers in a scan) and the pair half of an Evoformer block (768 residues, 128 channels, 4 heads). The budget is
arguments + outputs + 20% of the temporaries the target's compiler reports of the original. Executes nothing.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import record
import tables

import stablehlo_mem as shm
from stablehlo_mem.wording import format_bytes

TARGETS = ("cpu", "cuda:h200", "tpu:v5e")
SHARE = 0.2
PATCH = 16


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
    z = normalised(pair)
    q, k, v = (jnp.einsum("ijc,chd->hijd", z, w[name]) for name in ("q", "k", "v"))
    bias = jnp.einsum("jkc,ch->hjk", z, w["bias"])
    weights = jax.nn.softmax(jnp.einsum("hijd,hikd->hijk", q, k) / q.shape[-1] ** 0.5 + bias[:, None])
    mixed = jnp.einsum("hijk,hikd->ijhd", weights, v).reshape(pair.shape)
    pair = pair + jax.nn.sigmoid(z @ w["gate"]) * (mixed @ w["out"])
    return pair + jax.nn.relu(normalised(pair) @ w["wide"]) @ w["narrow"]


def layers(count: int, width: int) -> dict[str, tuple[int, ...]]:
    square = dict.fromkeys(("q", "k", "v", "out"), (count, width, width))
    return {**square, "up": (count, width, 4 * width), "down": (count, 4 * width, width)}


def evoformer_shapes(c: int, heads: int) -> dict[str, tuple[int, ...]]:
    gates = ("left", "left_gate", "right", "right_gate", "product", "product_gate", "gate", "out")
    split = dict.fromkeys(("q", "k", "v"), (c, heads, c // heads))
    return {**dict.fromkeys(gates, (c, c)), **split, "bias": (c, heads), "wide": (c, 4 * c), "narrow": (4 * c, c)}


GPT = {"embedding": (50_257, 768), "positions": (16_384, 768), "layers": layers(12, 768)}
VIT = {"patches": (768, 1024), "positions": (4096, 1024), "layers": layers(24, 1024), "head": (1024, 1000)}
PROGRAMS: dict[str, tuple[Callable[..., Any], Any, jax.ShapeDtypeStruct]] = {
    "GPT-2 prefill, 16,384 tokens": (gpt_prefill, GPT, jax.ShapeDtypeStruct((1, 16_384), jnp.int32)),
    "ViT-L/16, 1,024 x 1,024": (vit, VIT, jax.ShapeDtypeStruct((1, 1024, 1024, 3), jnp.float32)),
    "Evoformer pair block, 768": (
        evoformer_pair,
        evoformer_shapes(128, 4),
        jax.ShapeDtypeStruct((768, 768, 128), jnp.float32),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), choices=TARGETS)
    parser.add_argument("--quick", action="store_true", help="on CPU only")
    arguments = parser.parse_args()
    targets = ["cpu"] if arguments.quick else arguments.targets
    rows: dict[str, Any] = {}
    for name in PROGRAMS:
        rows[name] = {target: measure(name, target) for target in targets}
        record.write({**record.header(), "share": SHARE, "rows": rows}, record.RESULTS / "autochunk.json")


def measure(name: str, target: str) -> dict[str, Any]:
    """One model on one target."""
    fun, shapes, data = PROGRAMS[name]
    is_shape = lambda s: isinstance(s, tuple)  # noqa: E731
    weights = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, jnp.float32), shapes, is_leaf=is_shape)
    exported = jax.export.export(jax.jit(fun), platforms=[target.partition(":")[0]])(weights, data)
    before = shm.profile(exported, target=target)
    temporaries = record.temp_bytes(before)
    plan = shm.plan(exported, record.fixed_bytes(before) + int(SHARE * temporaries), target=target)
    row = {
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
            "yes" if row["fits"] else "no",
        ]
        for name, rows in data["rows"].items()
        for target, row in rows.items()
    ]
    note = f"Temporaries as the compilers report them, at a limit of {data['share']:.0%} of the original's"
    names = ["model", "target", "temporaries", "after", "less", "limit kept"]
    return tables.table(names, lines) + f"\n{note}; {tables.stamp(data)}.\n"


if __name__ == "__main__":
    main()
