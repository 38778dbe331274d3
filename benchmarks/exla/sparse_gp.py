"""Sparse GP regression, GPJax's collapsed bound and its gradient in float64: writes results/exla_sparse_gp.json.

GPJax as it is: Matern-3/2 ARD kernel, `CollapsedVariationalGaussian`, `collapsed_elbo`, `fit` with optax's Adam.
Three parts: peaks of the bound and its gradient as compiled for an H200; the same training run, split and not, where
both fit; and one in processes that are ended when their resident size passes a limit.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import argparse
import functools
import importlib.util
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
from exla.contenders import Contender, Outcome

import stablehlo_mem as shm
from stablehlo_mem.utils.units import format_bytes

PACKAGES = ("gpjax", "optax", "equinox", "lineax", "numpyro")
SHAPES = {"3droad": (278_319, 3), "houseelectric": (1_311_539, 11)}
INDUCING = (500, 1_000, 2_000, 5_000, 10_000)
TARGET = "cuda:h200"
LIMIT = 20 * 10**9
"""Bytes of one step on the accelerator: an H200 has 141e9, of which others may want the rest."""
TRAINING = {"n": 278_319, "d": 3, "m": 500, "steps": 25, "limit": 2 * 10**9, "budget": 10**9}
BOTH = {"n": 20_000, "d": 3, "m": 200, "steps": 25, "limit": contenders.MEMORY_BYTES, "budget": 10**8}
"""Training on this CPU, at 3droad's size and where the original runs too: the limit is of all resident bytes of the
process, the budget of the program alone; the rest is for Python, JAX and the allocator."""
SAME_RMSE = 1e-6
LEARNING_RATE = 0.05
SELF = "exla.sparse_gp"


@functools.cache
def data(n: int, d: int) -> tuple[jax.Array, ...]:
    """Inputs, targets, and a tenth as many of each held out: a smooth random function and noise of deviation 0.1."""
    rng = np.random.default_rng(0)
    total = n + n // 10
    x = rng.standard_normal((total, d))
    y = 0.1 * rng.standard_normal((total, 1))
    for _ in range(64):
        y[:, 0] += np.cos(x @ rng.standard_normal(d) + rng.uniform(0, 2 * np.pi)) * np.sqrt(2 / 64)
    return tuple(jnp.asarray(a) for a in (x[:n], y[:n], x[n:], y[n:]))


def variational_family(z: jax.Array) -> Any:
    """The model as GPJax's documentation writes it."""
    import gpjax as gpx

    kernel = gpx.kernels.Matern32(lengthscale=jnp.ones(z.shape[1]))
    prior = gpx.gps.Prior(mean_function=gpx.mean_functions.Constant(), kernel=kernel)
    model = prior * gpx.likelihoods.Gaussian(obs_stddev=jnp.array(0.3))
    return gpx.variational_families.CollapsedVariationalGaussian(model=model, inducing_inputs=z)


def negative_bound(family: Any, data: Any) -> jax.Array:
    import gpjax as gpx

    return -gpx.objectives.collapsed_elbo(family, data) / data.n


def bound_and_gradient(z: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
    """The objective and its gradient with respect to every parameter: what each training step takes."""
    import equinox as eqx
    import gpjax as gpx

    value, gradient = eqx.filter_value_and_grad(negative_bound)(variational_family(z), gpx.Dataset(x, y))
    return value, jax.tree.leaves(gradient)


def train(steps: int, z: jax.Array, x: jax.Array, y: jax.Array, new: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`gpx.fit`, and what the trained model predicts: the losses and the mean at new inputs."""
    import gpjax as gpx
    import optax

    data = gpx.Dataset(x, y)
    family, losses = gpx.fit(
        model=variational_family(z),
        objective=negative_bound,
        train_data=data,
        optim=optax.adam(LEARNING_RATE),
        key=jax.random.key(
            0
        ),  # made here: its default is a constant that jax 0.10.2 counts wrongly when it exports twice
        num_iters=steps,
        verbose=False,
        safe=False,  # its checks need concrete values, and it is compiled as a whole here
    )
    return losses, family.condition(data)(new, covariance="diagonal").mean


def export_step(n: int, d: int, m: int, platform: str) -> jax.export.Exported:
    return jax.export.export(jax.jit(bound_and_gradient), platforms=[platform])(*specs((m, d), (n, d), (n, 1)))


def export_training(n: int, d: int, m: int, steps: int) -> jax.export.Exported:
    arguments = specs((m, d), (n, d), (n, 1), (n // 10, d))
    return jax.export.export(jax.jit(functools.partial(train, steps)), platforms=["cpu"])(*arguments)


def specs(*shapes: tuple[int, ...]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(shape, jnp.float64) for shape in shapes]


def arguments_of(n: int, d: int, m: int) -> tuple[jax.Array, ...]:
    """The first of the points are the inducing ones to begin with."""
    x, y, new_x, _ = data(n, d)
    return x[:m], x, y, new_x


def as_written(n: int, d: int, m: int, steps: int) -> worker.Execution:
    return worker.jax_execution(functools.partial(train, steps), *arguments_of(n, d, m))


def ours(n: int, d: int, m: int, program: str) -> worker.Execution:
    return worker.exported_execution(program, *arguments_of(n, d, m))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--parts", nargs="*", default=["peaks", "both", "training"], choices=["peaks", "both", "training"]
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--quick", action="store_true", help="up to 1,000 inducing points, a tenth of the data, 3 rounds"
    )
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    result: dict[str, Any] = record.header()
    result["versions"] |= record.versions(*PACKAGES)
    path = record.RESULTS / ("exla_sparse_gp_quick.json" if arguments.quick else "exla_sparse_gp.json")
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        print(reason := f"skipped: {', '.join(missing)} not installed")
        if not path.exists():  # figures of a machine that has them stay
            record.write(result | {"status": reason}, path)
        return
    result = {key: value for key, value in record.earlier(path).items() if key != "status"} | result
    for part in arguments.parts:
        {"peaks": measure_peaks, "both": measure_both, "training": measure_training}[part](result, arguments, path)


def measure_peaks(result: dict[str, Any], arguments: argparse.Namespace, path: pathlib.Path) -> None:
    """The bound and its gradient as compiled for the accelerator."""
    result["limit_bytes"], result["target"], result["peaks"] = LIMIT, TARGET, []
    for shape, (n, d) in SHAPES.items():
        for m in INDUCING:
            if arguments.quick and m > 1_000:
                continue
            plan = shm.plan(export_step(n, d, m, TARGET.partition(":")[0]), LIMIT, target=TARGET)
            row = {"shape": shape, "n": n, "d": d, "m": m, **plan_figures(plan)}
            result["peaks"].append(row)
            record.write(result, path)
            sizes = f"{format_bytes(row['original_peak_bytes'])} → {format_bytes(row['optimised_peak_bytes'])}"
            print(f"{shape} {m} on {TARGET}: {sizes}, {'kept' if row['fits'] else 'NOT KEPT'}", flush=True)


def plan_figures(plan: shm.Plan) -> dict[str, Any]:
    return {
        "original_peak_bytes": plan.before.peak_bytes,
        "optimised_peak_bytes": plan.after.peak_bytes,
        "fits": plan.fits,
        "steps": list(plan.summaries),
        "compiles": plan.compiles,
        "planning_seconds": plan.planning_seconds,
    }


def measure_both(result: dict[str, Any], arguments: argparse.Namespace, path: pathlib.Path) -> None:
    """Ours and JAX as written where both run: errors, losses, times of a whole training run in turn."""
    sizes = BOTH | ({"n": 4_000, "steps": 10, "budget": 3 * 10**7} if arguments.quick else {})
    result["both"] = row = compare(sizes, rounds=3 if arguments.quick else arguments.rounds)
    row["same_rmse"] = abs(row["rmse"]["ours"] / row["rmse"]["JAX as written"] - 1) <= SAME_RMSE
    record.write(result, path)
    print(f"both: RMSE {row['rmse']}, {'equal' if row['same_rmse'] else 'NOT EQUAL'}; {ratio(row)} of the time")


def measure_training(result: dict[str, Any], arguments: argparse.Namespace, path: pathlib.Path) -> None:
    """A run within a limit that JAX as written exceeds."""
    quick = {"n": 30_000, "m": 300, "steps": 5, "limit": 12 * 10**8, "budget": 4 * 10**8}
    result["training"] = row = compare(TRAINING | (quick if arguments.quick else {}), rounds=0)
    record.write(result, path)
    states = {name: outcome["status"] for name, outcome in row["outcomes"].items()}
    print(f"training within {row['limit'] / 1e9:g} GB: {states}, RMSE {row['rmse']}")


def compare(sizes: dict[str, int], *, rounds: int) -> dict[str, Any]:
    """One size: planned, then trained by both, each in a process that is ended at the limit."""
    how = {"rounds": rounds, "memory_bytes": sizes["limit"], "x64": True, "timeout": 3600.0}
    n, d, m, steps = (sizes[key] for key in ("n", "d", "m", "steps"))
    plan = shm.plan(export_training(n, d, m, steps), sizes["budget"], target="cpu")
    with contenders.program_file(plan.exported) as program:
        size = {"n": n, "d": d, "m": m}
        entries = [
            Contender("ours", f"{SELF}:ours", {**size, "program": program}),
            Contender("JAX as written", f"{SELF}:as_written", {**size, "steps": steps}),
        ]
        outcomes = contenders.compare(entries, **how)
    return {
        **sizes,
        "plan": plan_figures(plan),
        "outcomes": {name: outcome.to_json() for name, outcome in outcomes.items()},
        "rmse": {name: rmse(outcome, n, d) for name, outcome in outcomes.items()},
        "losses": {name: loss_ends(outcome) for name, outcome in outcomes.items()},
    }


def rmse(outcome: Outcome, n: int, d: int) -> float | None:
    """The error on the held-out data."""
    if not outcome.outputs:
        return None
    return float(np.sqrt(np.mean((outcome.outputs[1] - np.asarray(data(n, d)[3])[:, 0]) ** 2)))


def loss_ends(outcome: Outcome) -> list[float] | None:
    """The first and the last loss."""
    return [float(outcome.outputs[0][0]), float(outcome.outputs[0][-1])] if outcome.outputs else None


def ratio(row: dict[str, Any]) -> str:
    return contenders.ratio_cell(row["outcomes"], "ours", "JAX as written")


def table(data: dict[str, Any]) -> str:
    """The peaks, then the training runs."""
    if "status" in data:
        return f"*{data['status']}*\n"
    parts = [peaks_table(data)] if "peaks" in data else []
    parts += [runs_table(data)] if "both" in data or "training" in data else []
    return "\n".join(parts)


def peaks_table(data: dict[str, Any]) -> str:
    lines = [
        [
            f"{row['shape']} {row['n']:,} x {row['d']}",
            f"{row['m']:,}",
            format_bytes(row["original_peak_bytes"]),
            format_bytes(row["optimised_peak_bytes"]) if row["steps"] else "as it was",
            "yes" if row["fits"] else "no",
        ]
        for row in data["peaks"]
    ]
    names = ["data", "inducing points", "peak before", "after", "limit kept"]
    note = (
        f"The bound and its gradient as compiled for {data['target']}, float64, limit {data['limit_bytes'] / 1e9:g} GB"
    )
    return tables.table(names, lines) + f"\n{note}; gpjax {data['versions']['gpjax']}, {tables.stamp(data)}.\n"


def runs_table(data: dict[str, Any]) -> str:
    lines = []
    for row in (data[part] for part in ("both", "training") if part in data):
        for name, outcome in row["outcomes"].items():
            rmse = row["rmse"][name]
            lines.append(
                [
                    f"{row['n']:,} x {row['d']}, {row['m']:,} points, {row['steps']} steps, {row['limit'] / 1e9:g} GB",
                    name,
                    "" if rmse is None else f"{rmse:.6f}",
                    tables.optional(outcome.get("grown_bytes") if rmse else None, format_bytes),
                    time_cell(outcome),
                ]
            )
    names = ["training run, limit", "program", "held-out RMSE", "memory added", "time"]
    note = "CPU, float64; a process whose resident size passes the limit is ended, in the smaller run 12 GB for both"
    return tables.table(names, lines) + f"\n{note}; gpjax {data['versions']['gpjax']}, {tables.stamp(data)}.\n"


def time_cell(outcome: dict[str, Any]) -> str:
    """The median of the rounds, or the only run."""
    return contenders.time_cell({"seconds": [outcome.get("first_seconds")], **outcome})


if __name__ == "__main__":
    main()
