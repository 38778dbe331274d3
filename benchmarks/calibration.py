"""How good the static memory profile is: its temporaries against the compilers' own, program by program.

Writes results/calibration.json and prints the table. Executes nothing: the programs are compiled only.
`tuned` programs were looked at while the model was written, `held out` ones never were. Of ten programs first held out,
`linear_attention`, `heat`, `mixture`, `local_attention` and `swiglu` showed faults of the model on some target; these
were mended, and the five have counted as tuned since. A `planned` program is what the planner returns for a budget of
arguments + outputs + a share of the original's temporaries, so that the loops are the ones it really writes.
"""

from __future__ import annotations

import os
import pathlib
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from typing import Any

import record
from rich.console import Console
from rich.table import Table

from tests.programs.forward import FORWARD, GRADIENTS, SPLIT
from tests.programs.general import DEVELOPMENT, HELD_OUT
from tests.programs.measure import FLOOR_SHARE, Comparison, Share, compare, compare_planned
from tests.programs.unseen import UNSEEN

TARGETS = {"cpu": 1.5, "cuda:h200": 1.5, "tpu:v5e": None}
"""The targets and the upper bound of static / measured; the TPU fuses more, and may be overestimated."""

GROUPS = {
    "tuned": FORWARD,
    "tuned, by hand": SPLIT,
    "tuned, gradient": GRADIENTS,
    "tuned, general": DEVELOPMENT,
    "held out": {**HELD_OUT, **UNSEEN},
}
SHARES: tuple[Share, ...] = (0.5, 0.25, 0.1, 0.03, "min")
"""Budgets of the planned programs: arguments + outputs + this share of the original's temporaries."""
LOOKED_AT = (
    "gpt_block",
    "norm_mlp",
    "mixture",
    "pairwise_l1",
    "gp_predict",
    "embed_classify",
    "linear_attention",
    "swiglu",
)
PLANNED: dict[str, tuple[dict[str, Any], tuple[Share, ...]]] = {
    "tuned, planned": ({**FORWARD, **GRADIENTS}, SHARES),
    "tuned, general, planned": ({name: DEVELOPMENT[name] for name in LOOKED_AT}, (0.1,)),
    "held out, planned": (
        {name: {**HELD_OUT, **UNSEEN}[name] for name in ("contrastive", *UNSEEN)},
        (0.25, 0.1, 0.03),
    ),
}
"""Programs as the planner returns them, and for which shares."""


def main() -> None:
    rows: list[dict[str, Any]] = []
    result = {**record.header(), "floor_share": FLOOR_SHARE, "upper_bounds": TARGETS, "rows": rows}
    for group, programs in GROUPS.items():
        for name, program in programs.items():
            rows += [_row(group, name, None, target, compare(program, target)) for target in TARGETS]
            record.write(result, record.RESULTS / "calibration.json")
    for group, (programs, shares) in PLANNED.items():
        for name, program in programs.items():
            for share in shares:
                rows += [_row(group, name, share, t, compare_planned(program, t, share)) for t in TARGETS]
            record.write(result, record.RESULTS / "calibration.json")
    Console(width=120).print(_table(rows))


def _row(group: str, name: str, share: Share | None, target: str, comparison: Comparison) -> dict[str, Any]:
    ratio = comparison.ratio
    return {
        "program": name,
        "group": group,
        "share": share,
        "target": target,
        "static_bytes": comparison.static_bytes,
        "measured_bytes": comparison.measured_bytes,
        "ratio": None if ratio in (None, float("inf")) else round(ratio, 3),
        "small": comparison.is_small,
        "holds": comparison.holds(upper=TARGETS[target]),
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table("program", "group", "share", *TARGETS, title="temporaries: static / measured MiB (ratio)")
    for i in range(0, len(rows), len(TARGETS)):
        row = rows[i]
        table.add_row(row["program"], row["group"], str(row["share"] or ""), *map(_cell, rows[i : i + len(TARGETS)]))
    return table


def _cell(row: dict[str, Any]) -> str:
    static, measured = (f"{(row[k] or 0) / 2**20:.0f}" for k in ("static_bytes", "measured_bytes"))
    verdict = "small" if row["small"] else f"{row['ratio']:.2f}" if row["ratio"] is not None else "-"
    return f"{static} / {measured} ({verdict}){'' if row['holds'] else ' OUT'}"


if __name__ == "__main__":
    main()
