"""Programs of `mesh_programs` at a tenth of their temporaries: writes results/mesh_runs.json.

Compiled for eight CUDA or TPU devices, without any; nothing is executed. Figures are those of one device.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"

import argparse
from typing import Any

import collectives
import jax
import mesh_programs
import record
import sharded
import tables

import stablehlo_mem as shm
from stablehlo_mem.utils.units import format_bytes

PATH = record.RESULTS / "mesh_runs.json"
SHARE = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", nargs="*", default=["cuda:h200"])
    parser.add_argument("--programs", nargs="*", default=list(mesh_programs.PROGRAMS))
    given = parser.parse_args()
    data = {"rows": {}, **record.earlier(PATH), **record.header()}
    for target in given.targets:
        for name in given.programs:
            function, specs = mesh_programs.PROGRAMS[name]()
            exported = jax.export.export(function, platforms=[target.partition(":")[0]])(*specs)
            profile, exchanged = shm.profile(exported, target=target), collectives.exchanged_bytes(exported, target)
            row = sharded.planned(exported, profile, target, SHARE, exchanged)
            data["rows"][f"{target}, {name}"] = row
            record.write(data, PATH)
            print(f"{target}, {name}:", {key: value for key, value in row.items() if key != "steps"}, flush=True)


def table(data: dict[str, Any]) -> str:
    """One line a program."""
    lines = [
        [
            *name.split(", ", 1),
            format_bytes(row["before"]),
            format_bytes(row["temporaries"]) + ("" if row["fits"] else " (not kept)"),
            f"{row['slowdown']:.2f}",
            f"{row['exchanged']:.2f}",
        ]
        for name, row in data["rows"].items()
    ]
    note = f"Temporaries, time and bytes of collectives as in the table above, at 10%; {tables.stamp(data)}."
    return tables.table(["target", "program", "as written", "then", "time", "exchanged"], lines) + f"\n{note}\n"


if __name__ == "__main__":
    main()
