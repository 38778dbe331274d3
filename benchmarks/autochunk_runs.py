"""Models of the AutoChunk paper run on this CPU, as written and planned: writes results/autochunk_runs.json.

The models of `autochunk.py` at sizes that run in some seconds, at the same shares of the temporaries their compiler
reports, the UNet at a half too. Memory of each alone in a fresh process; times in one process, in turn.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import argparse
import functools
from collections.abc import Callable
from typing import Any

import autochunk
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import record
import tables
from exla import contenders, worker
from exla.contenders import Contender

import stablehlo_mem as shm
from stablehlo_mem.utils.units import format_bytes

PATH = record.RESULTS / "autochunk_runs.json"
SELF = "autochunk_runs"
WRITTEN, OURS = "as written", "ours"
TOLERANCE = 1e-3
"""Of a result's largest value: beyond it, no rounding explains a difference."""
_IMAGE = (1, 512, 512, 3)
_PAIR = jax.ShapeDtypeStruct((256, 256, 128), jnp.float32)
_GPT = {"embedding": (50_257, 768), "positions": (4096, 768), "layers": autochunk.layers(2, 768)}
_VIT = {"patches": (768, 1024), "positions": (1024, 1024), "layers": autochunk.layers(6, 1024), "head": (1024, 1000)}
_UNET = autochunk.unet_shapes((32, 64, 128, 256), 2)
Program = tuple[Callable[..., Any], Any, Any, float]
PROGRAMS: dict[str, Program] = {
    "GPT-2 prefill, 2 layers, 4,096 tokens": (
        autochunk.gpt_prefill,
        _GPT,
        jax.ShapeDtypeStruct((1, 4096), jnp.int32),
        autochunk.SHARE,
    ),
    "ViT-L/16, 6 layers, 512 x 512": (autochunk.vit, _VIT, jax.ShapeDtypeStruct(_IMAGE, jnp.float32), autochunk.SHARE),
    "Evoformer pair block, 256": (autochunk.evoformer_pair, autochunk.evoformer_shapes(128, 4), _PAIR, autochunk.SHARE),
    "Triangle attention, 256": (autochunk.triangle_attention, autochunk.triangle_shapes(128, 4), _PAIR, 0.1),
    # At this size images are most of the temporaries, at 1,024 x 1,024 attention is: a fifth is not reached here.
    "UNet, 512 x 512": (autochunk.unet, _UNET, autochunk.unet_data(512), 0.5),
    "UNet, 512 x 512, at a fifth": (autochunk.unet, _UNET, autochunk.unet_data(512), autochunk.SHARE),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="*", default=list(PROGRAMS), choices=list(PROGRAMS), metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    for name in given.rows:
        row = measure(name, given.rounds)
        rows = record.earlier_rows(PATH, [name]) | {name: row}
        ordered = {name: rows[name] for name in PROGRAMS if name in rows}
        record.write({**record.header(), "rows": ordered}, PATH)
        print(f"{name}: {contenders.ratio_cell(row['outcomes'], OURS, WRITTEN)} of the time", flush=True)


def measure(name: str, rounds: int) -> dict[str, Any]:
    """One model: its plan, and both run."""
    fun, shapes, data, share = PROGRAMS[name]
    exported = jax.export.export(jax.jit(fun), platforms=["cpu"])(autochunk.specs(shapes), data)
    before = shm.profile(exported, target="cpu")
    temporaries = record.temp_bytes(before)
    plan = shm.plan(exported, record.fixed_bytes(before) + int(share * temporaries), target="cpu")
    with contenders.program_file(plan.exported) as path:
        entries = [
            Contender(WRITTEN, f"{SELF}:as_written", {"name": name}),
            Contender(OURS, f"{SELF}:planned", {"name": name, "path": path}),
        ]
        outcomes = contenders.compare(entries, rounds=rounds)
    contenders.worst_error(outcomes, WRITTEN, TOLERANCE)
    return {
        "share": share,
        "temp_bytes_before": temporaries,
        "temp_bytes_after": record.temp_bytes(plan.after),
        "fits": plan.fits,
        "steps": list(plan.summaries),
        "outcomes": {key: outcome.to_json() for key, outcome in outcomes.items()},
    }


def as_written(name: str) -> worker.Execution:
    return worker.jax_execution(PROGRAMS[name][0], *drawn(name))


def planned(name: str, path: str) -> worker.Execution:
    return worker.exported_execution(path, *drawn(name))


@functools.cache
def drawn(name: str) -> tuple[Any, Any]:
    """Weights of deviation 0.02 and data of 1; tokens among the first thousand."""
    _, shapes, data, _ = PROGRAMS[name]
    rng = np.random.default_rng(0)

    def draw(spec: Any, deviation: float) -> jax.Array:
        if spec.dtype == jnp.int32:
            return jnp.asarray(rng.integers(0, 1000, spec.shape, np.int32))
        return jnp.asarray(np.float32(deviation) * rng.standard_normal(spec.shape, np.float32))

    weights = jax.tree.map(lambda s: draw(s, 0.02), autochunk.specs(shapes))
    return weights, jax.tree.map(lambda s: draw(s, 1.0), data)


def table(data: dict[str, Any]) -> str:
    """One line a model."""
    lines = [
        [
            name,
            *(format_bytes(row[f"temp_bytes_{when}"]) for when in ("before", "after")),
            f"{row['share']:.0%}",
            "yes" if row["fits"] else "no",
            *(contenders.time_cell(row["outcomes"][key]) for key in (WRITTEN, OURS)),
            contenders.ratio_cell(row["outcomes"], OURS, WRITTEN),
        ]
        for name, row in data["rows"].items()
    ]
    names = ["model", "temporaries", "after", "limit", "kept", "as written", "ours", "ours / as written"]
    return tables.table(names, lines) + f"\nTimes are {tables.medians(data['rows'].values())}; {tables.stamp(data)}.\n"


if __name__ == "__main__":
    main()
