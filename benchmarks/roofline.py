"""Would an optimised program be slower on a GPU or TPU? Counted without either from the compilers' own HLO.

For each program, target and share of the temporaries both programs are compiled and counted (`hlo_cost`), and the ratio
of their times is set beside the one that the library predicts (`Plan.slowdown`): results/roofline.json.
`--programs`, `--targets` and `--shares` measure a part anew; `--kernels` prints what the programs are made of.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import math
import statistics
from collections.abc import Iterable
from typing import Any

import hlo_cost
import jax
import record
import suite_programs
import tables

import stablehlo_mem as shm
from stablehlo_mem.targets.target import named_targets

PATH = record.RESULTS / "roofline.json"
TARGETS = ("cuda:h200", "tpu:v5e")
SHARES = (0.5, 0.25, 0.1, 0.05)
NEAR = 1.3
"""A prediction is near if it is within this factor of the count."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", nargs="*", default=list(suite_programs.CASES), metavar="PROGRAM")
    parser.add_argument("--targets", nargs="*", default=list(TARGETS))
    parser.add_argument("--shares", nargs="*", type=float, default=list(SHARES))
    parser.add_argument("--kernels", action="store_true", help="print them")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    given = parser.parse_args()
    rows = record.earlier(PATH).get("rows", {})
    for target in given.targets:
        for name in given.programs:
            for label, row in measure(name, target, given.shares, show=given.kernels):
                rows[label] = row
                print(f"{label}: {line(row)}", flush=True)
            if not given.dry:
                record.write({**record.header(), "rows": dict(sorted(rows.items()))}, PATH)
    for target in given.targets:
        print(summary(target, [row for label, row in rows.items() if label.startswith(target)]))


def measure(name: str, target: str, shares: Iterable[float], *, show: bool) -> Iterable[tuple[str, dict[str, Any]]]:
    """A program as written, and at each share of its temporaries."""
    case, platform = suite_programs.CASES[name], target.partition(":")[0]
    exported = jax.export.export(jax.jit(case.function), platforms=[platform])(*case.specs())
    before = counted(exported, target, show=show)
    profile = shm.profile(exported, target=target)
    for share in shares:
        try:
            plan = shm.plan(exported, record.budget(profile, share), target=target)
        except shm.StableHLOMemError as error:
            yield f"{target}, {name}, {share:.0%}", {"error": str(error).splitlines()[0]}
            continue
        after = counted(plan.result, target, show=show)
        yield (
            f"{target}, {name}, {share:.0%}",
            {
                "fits": plan.fits,
                "steps": list(plan.summaries),
                "predicted": round(plan.slowdown, 4),
                "counted": round(after.seconds / before.seconds, 4),
                "before": figures(before, plan.cost_before),
                "after": figures(after, plan.cost_after),
            },
        )


def counted(exported: jax.export.Exported, target: str, *, show: bool) -> hlo_cost.Cost:
    (found,) = named_targets((target,))
    sharding = jax.sharding.SingleDeviceSharding(found.devices()[0])
    arguments = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in exported.in_avals]
    text = jax.jit(exported.call).lower(*arguments).compile().as_text()
    if show:
        for kernel in hlo_cost.kernels_of(text, hlo_cost.RATES[target]):
            print(f"  {kernel.times} x {1e6 * kernel.seconds(hlo_cost.RATES[target]):.1f} us {kernel}")
    return hlo_cost.cost(text, target)


def figures(cost: hlo_cost.Cost, predicted: Any) -> dict[str, Any]:
    return {
        "launches": cost.launches,
        "gigabytes": round(cost.nbytes / 1e9, 4),
        "teraflops": round(cost.flops / 1e12, 5),
        "milliseconds": round(1e3 * cost.seconds, 5),
        "predicted_milliseconds": round(1e3 * predicted.seconds, 5),
    }


def is_near(row: dict[str, Any]) -> bool:
    return abs(math.log(row["predicted"] / row["counted"])) <= math.log(NEAR)


def line(row: dict[str, Any]) -> str:
    if "error" in row:
        return row["error"]
    before, after = row["before"], row["after"]
    times = ", ".join(f"{one['milliseconds']:.3f} ({one['predicted_milliseconds']:.3f}) ms" for one in (before, after))
    counts = f"{before['launches']} -> {after['launches']} launches"
    near = "" if is_near(row) else " FAR"
    ratios = f"{row['counted']:.2f}, predicted {row['predicted']:.2f}{near}"
    return f"{'' if row['fits'] else 'not kept, '}{ratios}; {times}; {counts}"


def summary(target: str, rows: list[dict[str, Any]]) -> str:
    planned = [row for row in rows if "error" not in row]
    if not planned:
        return f"{target}: nothing planned"
    mean = statistics.geometric_mean(row["counted"] for row in planned)
    near = sum(map(is_near, planned))
    return f"{target}: geometric mean {mean:.2f}; predicted within {NEAR} in {near} of {len(planned)} plans"


def table(data: dict[str, Any]) -> str:
    """One line a program: its time as written on each target, and at two shares counted and predicted ratios."""
    shares = [f"{share:.0%}" for share in (0.25, 0.1)]
    lines: list[list[str]] = []
    for name in suite_programs.CASES:
        cells = [name]
        for target in TARGETS:
            rows = [data["rows"].get(f"{target}, {name}, {share}", {}) for share in shares]
            before = next((row["before"] for row in rows if "before" in row), None)
            cells.append(f"{before['milliseconds']:.2f} ms" if before else "not counted")
            cells += [_ratios(row) for row in rows]
        lines.append(cells)
    names = ["program"]
    for target in TARGETS:
        names += [target, *(f"at {share}: counted (predicted)" for share in shares)]
    notes = [summary(t, [row for label, row in data["rows"].items() if label.startswith(t)]) for t in TARGETS]
    budgets = ", ".join(f"{share:.0%}" for share in SHARES)
    return tables.table(names, lines) + f"\nAll budgets ({budgets}): {'; '.join(notes)}; {tables.stamp(data)}.\n"


def _ratios(row: dict[str, Any]) -> str:
    if "counted" not in row:
        return "no plan"
    return f"{row['counted']:.2f} ({row['predicted']:.2f})" + ("" if row["fits"] else " not kept")


if __name__ == "__main__":
    main()
