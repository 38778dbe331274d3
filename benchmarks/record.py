"""What every benchmark does alike: say where and with what it ran, and write its JSON."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
from collections.abc import Collection, Iterator
from typing import Any
from unittest import mock

from jax.export import Exported

import stablehlo_mem as shm
from stablehlo_mem.ir.bindings import module_bytes
from stablehlo_mem.results.memory_profile import MemoryProfile
from stablehlo_mem.targets.calibration import processor
from stablehlo_mem.targets.measurement import Measured, Refused
from stablehlo_mem.targets.target import Target

RESULTS = pathlib.Path(__file__).parent / "results"


def header() -> dict[str, Any]:
    """Date, hardware and versions."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "hardware": {"cpu": processor(), "cores": len(os.sched_getaffinity(0)), "memory_bytes": memory_bytes()},
        "versions": versions("jax", "jaxlib", "numpy", "libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin"),
        "python": platform.python_version(),
    }


def versions(*packages: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def write(data: dict[str, Any], path: pathlib.Path) -> None:
    """Writes a result; benchmarks call it after every program, so that one that is stopped leaves the rest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n")


def earlier(path: pathlib.Path) -> dict[str, Any]:
    """What a result says already, nothing if there is none: long benchmarks are run in pieces."""
    return json.loads(path.read_text()) if path.exists() else {}


def earlier_rows(path: pathlib.Path, names: Collection[str]) -> dict[str, Any]:
    """The rows that a result has already, but for those to be measured anew."""
    return {name: row for name, row in earlier(path).get("rows", {}).items() if name not in names}


def fixed_bytes(profile: MemoryProfile) -> int:
    """Arguments + outputs − aliased: what no rewriting takes away."""
    source = profile.measured if isinstance(profile.measured, Measured) else profile
    return source.argument_bytes + source.output_bytes - source.alias_bytes


def temp_bytes(profile: MemoryProfile) -> int:
    """The compiler's temporaries; where it refused, what its message says beyond arguments and outputs."""
    if isinstance(profile.measured, Measured):
        return profile.measured.temp_bytes
    if isinstance(profile.measured, Refused) and profile.measured.needed_bytes is not None:
        return profile.measured.needed_bytes - fixed_bytes(profile)
    raise shm.TargetError("the compiler gave no figure for the original")


def tenth_budget(profile: MemoryProfile) -> int:
    """Arguments + outputs + 10% of the original's temporaries."""
    return fixed_bytes(profile) + temp_bytes(profile) // 10


def budget(profile: MemoryProfile, share: float) -> int:
    """Arguments + outputs + a share of the original's temporaries."""
    return fixed_bytes(profile) + int(share * temp_bytes(profile))


@contextlib.contextmanager
def compiled_once() -> Iterator[None]:
    """Within it no module is compiled twice for a target, which may take minutes and is not what is measured."""
    known: dict[tuple[str, bytes], Measured | Refused] = {}
    compiled = Target.measure

    def measure(target: Target, program: Any, module: Any) -> Measured | Refused:
        key = target.name, module_bytes(module)
        if key not in known:
            known[key] = compiled(target, program, module)
        return known[key]

    with mock.patch.object(Target, "measure", measure):
        yield


def fastest_within(exported: Exported, made: shm.Plan, limit: int) -> shm.Plan:
    """A plan; where the program keeps the limit as it is, the one without a limit if that keeps it too."""
    if made.result is not exported:
        return made
    free = shm.plan(exported, None, target="cpu")
    return free if free.after.peak_bytes <= limit else made
