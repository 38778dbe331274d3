"""How good the static memory profile is: its temporaries against the compilers' own, program by program.

Writes results/calibration.json and prints the table. Executes nothing: the programs are compiled only.
`tuned` programs were looked at while the model was written, `held out` ones never were. Of ten programs first held out,
`linear_attention`, `heat` and `mixture` showed faults of the model on some target; these were mended, and the three
have counted as tuned since.
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
from tests.programs.measure import FLOOR_SHARE, compare

TARGETS = {"cpu": 1.5, "cuda:h200": 1.5, "tpu:v5e": None}
"""The targets and the upper bound of static / measured; the TPU fuses more, and may be overestimated."""

GROUPS = {
    "tuned": FORWARD,
    "tuned, split": SPLIT,
    "tuned, gradient": GRADIENTS,
    "tuned, general": DEVELOPMENT,
    "held out": HELD_OUT,
}


def main() -> None:
    rows: list[dict[str, Any]] = []
    result = {**record.header(), "floor_share": FLOOR_SHARE, "upper_bounds": TARGETS, "rows": rows}
    for group, programs in GROUPS.items():
        for name, program in programs.items():
            rows += [_row(group, name, program, target) for target in TARGETS]
            record.write(result, record.RESULTS / "calibration.json")
    Console(width=120).print(_table(rows))


def _row(group: str, name: str, program: Any, target: str) -> dict[str, Any]:
    comparison = compare(program, target)
    ratio = comparison.ratio
    return {
        "program": name,
        "group": group,
        "target": target,
        "static_bytes": comparison.static_bytes,
        "measured_bytes": comparison.measured_bytes,
        "ratio": None if ratio in (None, float("inf")) else round(ratio, 3),
        "small": comparison.is_small,
        "holds": comparison.holds(upper=TARGETS[target]),
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table("program", "group", *TARGETS, title="temporaries: static / measured MiB (ratio)")
    for row in rows[:: len(TARGETS)]:
        cells = [_cell(r) for r in rows if r["program"] == row["program"]]
        table.add_row(row["program"], row["group"], *cells)
    return table


def _cell(row: dict[str, Any]) -> str:
    static, measured = (f"{(row[k] or 0) / 2**20:.0f}" for k in ("static_bytes", "measured_bytes"))
    verdict = "small" if row["small"] else f"{row['ratio']:.2f}" if row["ratio"] is not None else "-"
    return f"{static} / {measured} ({verdict}){'' if row['holds'] else ' OUT'}"


if __name__ == "__main__":
    main()
