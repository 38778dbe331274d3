"""Training steps run on eight CPU devices at shares of their temporaries: writes results/sharded_steps.json.

The steps are those of `sharded_programs`, small enough for eight devices on one machine. Results of one step are
compared with the original's by the limits of docs/numerics.md, with the program in float64 on one device between; then
losses of 20 steps.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"

import argparse
from typing import Any

import jax
import numpy as np
import record
import sharded_programs
import tables
import training_programs

import stablehlo_mem as shm
from stablehlo_mem.checking.comparison import compare
from stablehlo_mem.utils.units import format_bytes

PATH = record.RESULTS / "sharded_steps.json"
SIZES = {"batch": 32, "tokens": 128, "layers": 4, "width": 128, "heads": 4, "vocabulary": 2048}
"""As structured as GPT-2 small, and a second a step on two cores."""
SHARES = (0.25, 0.1)
STEPS = 20
BATCHES = 4
"""Batches that the steps take in turn ..."""
USED = 64
"""... with so few of the tokens of the vocabulary that the loss falls at once."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layouts", nargs="*", default=list(sharded_programs.LAYOUTS))
    parser.add_argument("--forms", nargs="*", default=["scanned", "unrolled"])
    parser.add_argument("--shares", nargs="*", type=float, default=list(SHARES))
    parser.add_argument("--anew", action="store_true", help="rows that there are already too")
    given = parser.parse_args()
    data = {**record.earlier(PATH), **record.header(), "sizes": SIZES, "steps": STEPS}
    rows: dict[str, Any] = data.setdefault("rows", {})
    for form in given.forms:
        for layout in given.layouts:
            names = {f"{layout}, {form}, {share:.0%}": share for share in given.shares}
            missing = {name: share for name, share in names.items() if given.anew or name not in rows}
            if missing:
                step = Step(layout, form == "scanned")
                for name, share in missing.items():
                    rows[name] = step.planned(share)
                    record.write(data, PATH)
                    print(name, {**rows[name], "steps": len(rows[name]["steps"])}, flush=True)


class Step:
    """A step of a layout, and what it computes as written.

    Attributes:
        drawn: its arguments, as on one device.
        once: its results, from these arguments.
        exact: the same in float64, on one device.
        losses: those of `STEPS` steps.
    """

    def __init__(self, layout: str, scanned: bool) -> None:
        self.step = sharded_programs.distributed(layout, scanned=scanned, **SIZES)
        self.exported = self.step.export("cpu")
        self.profile = shm.profile(self.exported, target="cpu")
        self.drawn = drawn(self.step.program.specs)
        compiled = self.compiled(self.step.program.function)
        self.once, self.losses = self.results(compiled), self.trained(compiled)
        self.exact = in_float64(self.drawn, scanned)

    def planned(self, share: float) -> dict[str, Any]:
        """What the plan for a share of the temporaries comes to, on each device, and what it computes."""
        budget = record.budget(self.profile, share)
        plan = shm.plan(self.exported, budget, target="cpu", options=shm.Options(cache=False, max_slowdown=None))
        assert plan.exported is not None
        compiled = self.compiled(plan.exported.call)
        compared = [
            compare(str(i), *three)
            for i, three in enumerate(zip(self.results(compiled), self.once, self.exact, strict=True))
        ]
        losses = self.trained(compiled)
        return {
            "fits": plan.fits,
            "asked": int(share * record.temp_bytes(self.profile)),
            "temporaries": record.temp_bytes(plan.after),
            "before": record.temp_bytes(self.profile),
            "static before": self.profile.temp_bytes,
            "static": plan.after.temp_bytes,
            "wrong": [f"{one.path}: {one.fault}" for one in compared if not one.ok],
            "share of limit": max(one.share for one in compared),
            "losses": losses,
            "losses as written": self.losses,
            "loss difference": max(abs(a - b) for a, b in zip(losses, self.losses, strict=True)),
            "planning_seconds": round(plan.planning_seconds, 1),
            "steps": list(plan.summaries),
        }

    def compiled(self, function: Any) -> Any:
        return self.step.jitted(function).lower(*self.step.program.specs).compile()

    def placed(self, arguments: list[np.ndarray]) -> list[Any]:
        return [jax.device_put(a, s.sharding) for a, s in zip(arguments, self.step.program.specs, strict=True)]

    def results(self, compiled: Any) -> list[np.ndarray]:
        """What one step returns."""
        return [np.asarray(r) for r in compiled(*self.placed(self.drawn))]

    def trained(self, compiled: Any) -> list[float]:
        """The losses of `STEPS` steps."""
        *state, _, _ = self.placed(self.drawn)
        batches = [self.placed([*self.drawn[:-2], *batch])[-2:] for batch in (tokens(i) for i in range(BATCHES))]
        losses: list[float] = []
        for i in range(STEPS):
            *state, loss = compiled(*state, *batches[i % BATCHES])
            losses.append(float(loss))
        return losses


def drawn(specs: tuple[Any, ...]) -> list[np.ndarray]:
    """Arguments: normal parameters, a state of zeros, a batch."""
    # Parameters, the count of steps, both moments, inputs and labels.
    parameters = (len(specs) - 3) // 3
    rng = np.random.default_rng(0)
    scales = [0.02 if len(spec.shape) > 1 else 0.1 for spec in specs[:parameters]]
    values = [(scale * rng.standard_normal(s.shape)).astype(s.dtype) for s, scale in zip(specs, scales, strict=False)]
    return [*values, *(np.zeros(s.shape, s.dtype) for s in specs[parameters:-2]), *tokens(0)]


def tokens(seed: int) -> list[np.ndarray]:
    """Inputs, and the next tokens as labels."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, USED, (SIZES["batch"], SIZES["tokens"] + 1), np.int32)
    return [drawn[:, :-1], drawn[:, 1:]]


def in_float64(arguments: list[np.ndarray], scanned: bool) -> list[np.ndarray]:
    """What the step returns in float64, on one device."""
    program = training_programs.gpt2(**SIZES, scanned=scanned).flat
    with jax.enable_x64(True):
        wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in arguments]
        return [np.asarray(r) for r in jax.jit(program.function)(*wide)]


def table(data: dict[str, Any]) -> str:
    """One line a layout and share: temporaries of one device, errors of a step and of the losses."""
    lines = [
        [
            *name.rsplit(", ", 1),
            format_bytes(row["before"]),
            format_bytes(row["temporaries"]) + ("" if row["fits"] else " (not kept)"),
            f"{row['share of limit']:.2f}" + ("" if not row["wrong"] else " (wrong)"),
            f"{row['loss difference']:.1e}",
        ]
        for name, row in data["rows"].items()
    ]
    names = ["step", "budget", "as written", "then", "error / limit", "loss difference"]
    sizes = f"batch {data['sizes']['batch']} x {data['sizes']['tokens']} tokens, {data['sizes']['layers']} layers, " + (
        f"width {data['sizes']['width']}, vocabulary {data['sizes']['vocabulary']}"
    )
    note = (
        f"Run on 8 forced CPU devices: {sizes}. Temporaries of one device as compiled; the largest error of a result "
        f"of one step over its [limit](numerics.md); the largest difference of the losses of {data['steps']} steps;"
    )
    return tables.table(names, lines) + f"\n{note} {tables.stamp(data)}.\n"


if __name__ == "__main__":
    main()
