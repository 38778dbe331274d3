"""Inference of an encoder-decoder transformer at growing sequence lengths: writes results/exla_transformer.json.

The model of the eXLA paper in plain jax.numpy: 2 layers, width 512, 8 heads, hidden 2048, vocabularies 8,500 and
8,000. Three parts: peaks at batch 64 as three compilers report them, as written and under a fixed limit; runs of a
smaller batch on this CPU; and attention alone beside `lax.map` and torch's `scaled_dot_product_attention`.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import argparse
import functools
import pathlib
import sys
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

sys.path.append(str(pathlib.Path(__file__).parent.parent))  # as `tables.py` imports this from there

import record
import tables
from exla import contenders, worker
from exla.contenders import Contender

import stablehlo_mem as shm
from stablehlo_mem.targets.measurement import Refused
from stablehlo_mem.utils.units import format_bytes

TARGETS = ("cpu", "tpu:v5e", "cuda:h200")
LENGTHS = (250, 500, 1_000, 2_000, 3_000, 5_000, 7_000)
BATCH = 64
LIMIT = 16 * 10**9
LAYERS, WIDTH, HEADS, HIDDEN = 2, 512, 8, 2048
VOCABULARIES = (8_500, 8_000)
RUNS = ((8, 1_000), (2, 2_000))
"""Batch and length of the model as run on this CPU."""
ATTENTION = ((2, 2_048), (2, 4_096))
"""Batch and length of attention alone, at the model's heads."""
TOLERANCE = 1e-4
SELF = "exla.transformer"

Tree = dict[str, Any]


def attend(p: Tree, x: jax.Array, y: jax.Array, mask: jax.Array) -> jax.Array:
    """What `x` gathers from `y` where the mask lets it."""
    q, k, v = (jnp.einsum("bsw,whd->bhsd", a, p[name]) for a, name in ((x, "q"), (y, "k"), (y, "v")))
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(WIDTH // HEADS)
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e9))
    return jnp.einsum("bhqd,hdw->bqw", jnp.einsum("bhqk,bhkd->bhqd", weights, v), p["out"])


def canonicalize(p: Tree, x: jax.Array) -> jax.Array:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 1e-6) * p["scale"] + p["shift"]


def feed_forward(p: Tree, x: jax.Array) -> jax.Array:
    return jax.nn.relu(x @ p["up"] + p["up_bias"]) @ p["down"] + p["down_bias"]


def embed(table: jax.Array, tokens: jax.Array) -> jax.Array:
    """Embeddings and sinusoidal positions."""
    angles = jnp.arange(tokens.shape[1])[:, None] / 10_000 ** (jnp.arange(0, WIDTH, 2) / WIDTH)
    return table[tokens] * np.sqrt(WIDTH) + jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)


def encoder_layer(p: Tree, x: jax.Array, padding: jax.Array) -> jax.Array:
    x = canonicalize(p["norm1"], x + attend(p["self"], x, x, padding))
    return canonicalize(p["norm2"], x + feed_forward(p["ff"], x))


def decoder_layer(p: Tree, x: jax.Array, memory: jax.Array, causal: jax.Array, padding: jax.Array) -> jax.Array:
    x = canonicalize(p["norm1"], x + attend(p["self"], x, x, causal))
    x = canonicalize(p["norm2"], x + attend(p["cross"], x, memory, padding))
    return canonicalize(p["norm3"], x + feed_forward(p["ff"], x))


def transformer(p: Tree, source: jax.Array, target: jax.Array) -> jax.Array:
    """The logits of each next token; token 0 is padding."""
    padding = (source != 0)[:, None, None, :]
    causal = jnp.tril(jnp.ones((target.shape[1],) * 2, bool)) & (target != 0)[:, None, None, :]
    x, y = embed(p["source"], source), embed(p["target"], target)
    for layer in p["encoder"]:
        x = encoder_layer(layer, x, padding)
    for layer in p["decoder"]:
        y = decoder_layer(layer, y, x, causal, padding)
    return y @ p["logits"]


def parameter_shapes() -> Tree:
    attention = {**dict.fromkeys("qkv", (WIDTH, HEADS, WIDTH // HEADS)), "out": (HEADS, WIDTH // HEADS, WIDTH)}
    norm = {"scale": (WIDTH,), "shift": (WIDTH,)}
    ff = {"up": (WIDTH, HIDDEN), "up_bias": (HIDDEN,), "down": (HIDDEN, WIDTH), "down_bias": (WIDTH,)}
    encoder = {"self": attention, "norm1": norm, "ff": ff, "norm2": norm}
    decoder = {**encoder, "cross": attention, "norm3": norm}
    source, target = VOCABULARIES
    ends = {"source": (source, WIDTH), "target": (target, WIDTH), "logits": (WIDTH, target)}
    return {**ends, "encoder": [encoder] * LAYERS, "decoder": [decoder] * LAYERS}


def specs(batch: int, length: int) -> tuple[Any, ...]:
    """The arguments' shapes."""
    shapes = parameter_shapes()
    parameters = jax.tree.map(
        lambda s: jax.ShapeDtypeStruct(s, jnp.float32), shapes, is_leaf=lambda s: isinstance(s, tuple)
    )
    tokens = jax.ShapeDtypeStruct((batch, length), jnp.int32)
    return parameters, tokens, tokens


@functools.cache
def arguments(batch: int, length: int) -> tuple[Any, ...]:
    """Weights of deviation 0.02, sentences of two thirds to all of the length."""
    rng = np.random.default_rng(0)
    parameters, tokens, _ = specs(batch, length)
    weights = jax.tree.map(lambda s: jnp.asarray(0.02 * rng.standard_normal(s.shape, dtype=np.float32)), parameters)
    ends = rng.integers(2 * length // 3, length + 1, (2, batch, 1))
    sentences = rng.integers(1, min(VOCABULARIES), (2, *tokens.shape)) * (np.arange(length) < ends)
    return weights, *(jnp.asarray(s, jnp.int32) for s in sentences)


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(q.shape[-1])
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), v)


@functools.cache
def heads(batch: int, length: int) -> tuple[jax.Array, ...]:
    rng = np.random.default_rng(0)
    shape = (batch, HEADS, length, WIDTH // HEADS)
    return tuple(jnp.asarray(rng.standard_normal(shape, dtype=np.float32)) for _ in range(3))


def as_written(program: str, batch: int, length: int) -> worker.Execution:
    function, make = PROGRAMS[program]
    return worker.jax_execution(function, *make(batch, length))


def ours(program: str, batch: int, length: int, path: str) -> worker.Execution:
    return worker.exported_execution(path, *PROGRAMS[program][1](batch, length))


def lax_map(batch: int, length: int, rows: int) -> worker.Execution:
    """Attention in blocks of queries of all heads, as one would write it by hand."""

    def function(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        def one(row: jax.Array) -> jax.Array:
            return attention(row[:, :, None], k, v)[:, :, 0]

        return jnp.moveaxis(jax.lax.map(one, jnp.moveaxis(q, 2, 0), batch_size=rows), 0, 2)

    return worker.jax_execution(function, *heads(batch, length))


def torch_attention(batch: int, length: int) -> worker.Execution:
    import torch

    torch.set_num_threads(contenders.THREADS)
    q, k, v = (torch.from_numpy(np.array(a)) for a in heads(batch, length))
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v).numpy()


PROGRAMS = {"transformer": (transformer, arguments), "attention": (attention, heads)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parts = {"peaks": measure_peaks, "runs": measure_runs, "attention": measure_attention}
    parser.add_argument("--parts", nargs="*", default=list(parts), choices=list(parts))
    parser.add_argument("--targets", nargs="*", default=list(TARGETS), choices=TARGETS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="lengths up to 1,000, the smaller of each run, 3 rounds")
    given = parser.parse_args()
    given.rounds = 3 if given.quick else given.rounds
    result: dict[str, Any] = {**record.header(), "rounds": given.rounds, "limit_bytes": LIMIT, "batch": BATCH}
    result["versions"] |= record.versions("torch")
    path = record.RESULTS / ("exla_transformer_quick.json" if given.quick else "exla_transformer.json")
    result = record.earlier(path) | result
    for part in given.parts:
        parts[part](result, given, path)


def measure_peaks(result: dict[str, Any], given: argparse.Namespace, path: pathlib.Path) -> None:
    """Every length on every target."""
    result["peaks"] = []
    for length in LENGTHS[:3] if given.quick else LENGTHS:
        for target in given.targets:
            result["peaks"].append(row := peak(length, target))
            record.write(result, path)
            print(f"{length} on {target}: {summary(row)}", flush=True)


def peak(length: int, target: str) -> dict[str, Any]:
    """One length on one target."""
    exported = jax.export.export(jax.jit(transformer), platforms=[target.partition(":")[0]])(*specs(BATCH, length))
    plan = shm.plan(exported, LIMIT, target=target)
    refusal = plan.before.measured
    return {
        "length": length,
        "target": target,
        **plan_figures(plan),
        "died": isinstance(refusal, Refused) and refusal.needed_bytes is None,
        "unchanged": plan.result is exported,
    }


def plan_figures(plan: shm.Plan) -> dict[str, Any]:
    return {
        "original_peak_bytes": plan.before.peak_bytes,
        "optimised_peak_bytes": plan.after.peak_bytes,
        "budget_bytes": plan.budget_bytes,
        "fits": plan.fits,
        "steps": list(plan.summaries),
        "compiles": plan.compiles,
        "planning_seconds": plan.planning_seconds,
    }


def summary(row: dict[str, Any]) -> str:
    sizes = f"{format_bytes(row['original_peak_bytes'])} → {format_bytes(row['optimised_peak_bytes'])}"
    return f"{sizes}, {'kept' if row['fits'] else 'NOT KEPT'}"


def measure_runs(result: dict[str, Any], given: argparse.Namespace, path: pathlib.Path) -> None:
    """The model on this CPU."""
    result["runs"] = []
    for batch, length in RUNS[:1] if given.quick else RUNS:
        result["runs"].append(row := execute("transformer", batch, length, [], given.rounds))
        record.write(result, path)
        report(row)


def measure_attention(result: dict[str, Any], given: argparse.Namespace, path: pathlib.Path) -> None:
    """Attention alone, with what else there is for it."""
    result["attention"] = []
    for batch, length in ATTENTION[:1] if given.quick else ATTENTION:
        size = {"batch": batch, "length": length}
        sweep = [
            Contender(f"lax.map {rows}", f"{SELF}:lax_map", {**size, "rows": rows})
            for rows in contenders.powers_of_two(16, 1024)
        ]
        best, swept = contenders.fastest(sweep)
        others = [best, Contender("torch SDPA", f"{SELF}:torch_attention", size)]
        row = execute("attention", batch, length, others, given.rounds)
        result["attention"].append({**row, "swept_seconds": swept})
        record.write(result, path)
        report(row)


def execute(program: str, batch: int, length: int, others: list[Contender], rounds: int) -> dict[str, Any]:
    """One program at one size: planned for a tenth of the temporaries, then run beside the others."""
    function, make = PROGRAMS[program]
    exported = jax.export.export(jax.jit(function), platforms=["cpu"])(*make(batch, length))
    plan = shm.plan(exported, record.tenth_budget(shm.profile(exported, target="cpu")), target="cpu")
    size = {"batch": batch, "length": length}
    with contenders.program_file(plan.exported) as path:
        entries = [
            Contender("ours", f"{SELF}:ours", {"program": program, **size, "path": path}),
            Contender("JAX as written", f"{SELF}:as_written", {"program": program, **size}),
            *others,
        ]
        outcomes = contenders.compare(entries, rounds=rounds)
    error = contenders.worst_error(outcomes, "JAX as written", TOLERANCE)
    plain = {name: outcome.to_json() for name, outcome in outcomes.items()}
    return {"program": program, **size, "plan": plan_figures(plan), "worst_error": error, "outcomes": plain}


def report(row: dict[str, Any]) -> None:
    times = ", ".join(f"{name} {contenders.time_cell(outcome)}" for name, outcome in row["outcomes"].items())
    print(f"{row['program']} {row['batch']} x {row['length']}: {times}", flush=True)


def table(data: dict[str, Any]) -> str:
    """Peaks, the lengths reached, the runs."""
    parts = [peaks_table(data)] if "peaks" in data else []
    parts += [runs_table(data, part) for part in ("runs", "attention") if part in data]
    return "\n".join(parts)


def peaks_table(data: dict[str, Any]) -> str:
    lines = [
        [
            f"{row['length']:,}",
            row["target"],
            format_bytes(row["original_peak_bytes"]) + (" (its compiler dies)" if row["died"] else ""),
            "as it was" if row["unchanged"] else format_bytes(row["optimised_peak_bytes"]),
            "yes" if row["fits"] else "no",
        ]
        for row in data["peaks"]
    ]
    names = ["length", "target", "peak before", "after", "limit kept"]
    note = f"Batch {data['batch']}, limit {data['limit_bytes'] / 1e9:g} GB; {tables.stamp(data)}"
    return tables.table(names, lines) + f"\n{note}. Longest within the limit: {reached(data)}.\n"


def reached(data: dict[str, Any]) -> str:
    """For each target the longest sequence of both."""
    texts = []
    for target in dict.fromkeys(row["target"] for row in data["peaks"]):
        rows = [row for row in data["peaks"] if row["target"] == target]
        before = max((row["length"] for row in rows if row["unchanged"]), default=0)
        after = max((row["length"] for row in rows if row["fits"]), default=0)
        texts.append(f"{target} {before:,} as written, {after:,} optimised")
    return "; ".join(texts)


def runs_table(data: dict[str, Any], part: str) -> str:
    """One line a size and contender."""
    lines = [
        [
            f"{row['program']} {row['batch']} x {row['length']:,}",
            name,
            tables.optional(outcome.get("grown_bytes"), format_bytes) if outcome["status"] == "ok" else "",
            contenders.time_cell(outcome),
            contenders.ratio_cell(row["outcomes"], "ours", name) if name != "ours" else "",
        ]
        for row in data[part]
        for name, outcome in row["outcomes"].items()
    ]
    names = ["batch x length", "program", "memory added", "time", "ours / it"]
    note = f"CPU, float32, {contenders.THREADS} threads; medians of {data['rounds']} runs in turn"
    return tables.table(names, lines) + f"\n{note}; {tables.stamp(data)}.\n"


if __name__ == "__main__":
    main()
