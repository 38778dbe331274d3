"""Writes the tables of README.md and docs/ from benchmarks/results/*.json; --check only tells whether they are stale.

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`. Only figures of a committed file are shown.
"""

from __future__ import annotations

import importlib
import json
import pathlib
import re
import statistics
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stablehlo_mem.utils.units import format_bytes

ROOT = pathlib.Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENTS = (
    "README.md",
    "docs/index.md",
    "docs/experiments.md",
    "docs/training.md",
    "docs/host_memory.md",
    "docs/several_devices.md",
    "docs/memory.md",
    "docs/numerics.md",
    "docs/limits.md",
    "docs/comparisons.md",
    "docs/design.md",
)
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def cpu_speed(data: dict[str, Any]) -> str:
    rows = [
        [
            f"{name} {sizes(row)}",
            format_bytes(row["original_grown_bytes"]),
            format_bytes(row["optimised_grown_bytes"]),
            seconds(row["original_seconds"]),
            seconds(row["optimised_seconds"]),
            f"{row['ratio']:.2f}",
        ]
        for name, row in data["programs"].items()
    ]
    names = ["program", "memory before", "after", "time before", "after", "after / before"]
    cores = f"{data['hardware']['cores']} cores of {data['hardware']['cpu']}"
    note = f"Peak RSS that executing adds in a fresh process; median of {data['rounds']} runs in turn. {cores}"
    return table(names, rows) + f"\n{note}, {stamp(data)}.\n"


def peaks(data: dict[str, Any]) -> str:
    rows: list[list[str]] = []
    for name, program in data["programs"].items():
        for target, row in program["targets"].items():
            kept = format_bytes(row["budget_bytes"]) + ("" if row["fits"] else " (not kept)")
            figures = [format_bytes(row[f"{kind}_peak_bytes"]) for kind in ("original", "optimised")]
            rows.append([f"{name} {sizes(program)}", target, *figures, kept])
    names = ["program", "target", "peak before", "after", "budget"]
    return table(names, rows) + f"\nArguments, outputs and temporaries as the compilers report them, {stamp(data)}.\n"


def gpu(data: dict[str, Any]) -> str:
    """Memory and time of the contenders that ran; a program whose original did not is left to the JSON."""
    kinds = ("original", "optimised", "by_hand", "kernel")
    rows: list[list[str]] = []
    for name, row in data["programs"].items():
        times = {kind: row[f"{kind}_seconds"] for kind in kinds if row.get(f"{kind}_seconds")}
        if "original" not in times:
            continue
        middle = {kind: statistics.median(found) for kind, found in times.items()}
        cells = [
            f"{_device_memory(row, kind)}, {1000 * middle[kind]:.2f} ms" if kind in middle else "" for kind in kinds
        ]
        ratios = {kind: middle[kind] / middle["original"] for kind in middle}
        rows.append(
            [name, format_bytes(row["budget_bytes"]), *cells, f"{ratios['optimised']:.2f}", f"{row['predicted']:.2f}"]
        )
    names = ["program", "budget", "as written", "ours", "by hand", "cuDNN by hand", "ours / as written", "predicted"]
    note = (
        "The allocator's high-water mark (or what the compiler there reported), arguments included, and the median time"
        " of a call. The allocator hands out free blocks up to 128 MiB larger than what is asked for. By hand: the"
        " largest chunk of `lax.map` (GPT: micro-batches with `jax.checkpoint`) within the budget by the compiler"
        " with autotuning off; what it then takes may be more, where dots are autotuned."
        f" {data['device']}, {stamp(data)}"
    )
    return f"{table(names, rows)}\n{textwrap.fill(note, 120)}.\n"


def _device_memory(row: dict[str, Any], kind: str) -> str:
    mark = row.get(f"{kind}_device_peak_bytes")
    return format_bytes(mark) if mark is not None else f"{format_bytes(row[f'{kind}_peak_bytes'])} reported"


def calibration(data: dict[str, Any]) -> str:
    """One line a group and one for every comparison out of bounds: static / measured temporaries.

    Cases in which both are too small to matter have no ratio.
    """
    bounds = data["upper_bounds"]
    groups = dict.fromkeys(row["group"] for row in data["rows"])
    lines = [[group, *(cell for target in bounds for cell in _within(data, group, target))] for group in groups]
    out = [row for row in data["rows"] if not row["holds"]]
    missed = [[_case(row), row["target"], *_figures(row)] for row in out]
    limits = ", ".join(f"{target} {f'0.9 to {upper}' if upper else 'at least 0.9'}" for target, upper in bounds.items())
    close = ", ".join(f"{_close(data, target)} on {target}" for target in bounds)
    note = f"Ratios are static / measured temporaries. Bounds: {limits}. Ratios from 0.9 to 1.1: {close}"
    names = [name for target in bounds for name in (f"{target}, in bounds", "ratios")]
    text = table(["programs", *names], lines) + f"\n{note}. {stamp(data)}.\n"
    return text + "\nOut of bounds:\n\n" + table(["program", "target", "static", "measured"], missed) if out else text


def _within(data: dict[str, Any], group: str, target: str) -> tuple[str, str]:
    """How many cases of a group are within the bounds, and the lowest and the highest ratio."""
    rows = [row for row in data["rows"] if row["group"] == group and row["target"] == target]
    ratios = _ratios(rows)
    spread = f"{min(ratios):.2f} to {max(ratios):,.2f}" if ratios else ""
    return f"{sum(row['holds'] for row in rows)} of {len(rows)}", spread


def _close(data: dict[str, Any], target: str) -> str:
    ratios = _ratios([row for row in data["rows"] if row["target"] == target])
    return f"{sum(0.9 <= ratio <= 1.1 for ratio in ratios)} of {len(ratios)}"


def _ratios(rows: list[dict[str, Any]]) -> list[float]:
    return [row["ratio"] for row in rows if row["ratio"] is not None and not row["small"]]


def _case(row: dict[str, Any]) -> str:
    share = row.get("share")
    return row["program"] + (f" at {share if share == 'min' else format(share, '.0%')}" if share else "")


def _figures(row: dict[str, Any]) -> list[str]:
    return [optional(row[f"{kind}_bytes"], format_bytes) for kind in ("static", "measured")]


def others_matvec(data: dict[str, Any]) -> str:
    """Kernel times vector under the smallest limit that the program as written does not keep."""
    lines: list[list[str]] = []
    for row in data["rows"].values():
        points = [p for p in row["points"] if "ratio" in p and not p["unchanged"]]
        if points:
            first = min(points, key=lambda p: p["limit_bytes"])
            title = f"{row['n']:,} x {row['d']}, {first['limit']}"
            lines.append([title, *side_by_side(row, first["program"], ("KeOps",))])
    return table(["n x d, limit", *SIDES, "KeOps", "ours / lax.map", "ours / KeOps"], lines) + _beside(data, "float64")


def others_knn(data: dict[str, Any]) -> str:
    """Nearest neighbours in squared distance, where the program as written does not keep the limit."""
    rows = {k.removesuffix(", L2"): row for k, row in data["rows"].items() if k.endswith(", L2")}
    lines = [
        [name, *side_by_side(row, "ours", ("FAISS", "KeOps"))] for name, row in rows.items() if not row["unchanged"]
    ]
    ratios = [f"ours / {who}" for who in ("lax.map", "FAISS", "KeOps")]
    return table(["points", *SIDES, "FAISS", "KeOps", *ratios], lines) + _beside(data, f"float32, k = {data['k']}")


SIDES = ("as written", "best lax.map", "ours")


def side_by_side(row: dict[str, Any], mine: str, others: tuple[str, ...]) -> list[str]:
    """Memory and time of each way, then the ratios of our time to the others' that are not as written."""
    best = f"lax.map {row['batch']}"
    cells = [_both(row["outcomes"].get(who)) for who in ("JAX as written", best, mine, *others)]
    return cells + [_ratio(row["outcomes"], mine, who) for who in (best, *others)]


def _both(outcome: dict[str, Any] | None) -> str:
    if outcome is None:
        return "not tried"
    if outcome["status"] != "ok" or not outcome.get("seconds"):
        return outcome["status"]
    return f"{optional(outcome.get('grown_bytes'), format_bytes)}, {seconds(outcome['seconds'])}"


def _ratio(outcomes: dict[str, Any], one: str, other: str) -> str:
    both = [outcomes.get(who, {}).get("seconds") for who in (one, other)]
    return f"{statistics.median(both[0]) / statistics.median(both[1]):.2f}" if all(both) else ""


def _beside(data: dict[str, Any], how: str) -> str:
    note = f"Memory that executing adds, and median time of {data['rounds']} runs in turn. CPU, {how}"
    return f"\n{note}, {stamp(data)}.\n"


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "cpu_speed": cpu_speed,
    "peaks": peaks,
    "gpu": gpu,
    "calibration": calibration,
    "others_matvec": others_matvec,
    "others_knn": others_knn,
}
SOURCES = {"others_matvec": "exla_kernel_matvec", "others_knn": "exla_knn"}
"""The results that a table is made of, where its name is not theirs."""


def maker(name: str) -> Callable[[dict[str, Any]], str]:
    """What makes the table of a name: one of those here, or that of the script it is measured by."""
    if name in TABLES:
        return TABLES[name]
    sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "exla")]
    return importlib.import_module(name.removeprefix("exla_")).table


def sizes(row: dict[str, Any]) -> str:
    return " x ".join(f"{size:,}" for size in row["sizes"])


def seconds(times: list[float]) -> str:
    median = statistics.median(times)
    return f"{median:.2f} s" if median >= 1 else f"{1000 * median:.0f} ms"


def medians(rows: Iterable[Mapping[str, Any]]) -> str:
    """Of how many executions the times of some rows are medians: rows may be measured in different runs."""
    counts = {len(o["seconds"]) for row in rows for o in row["outcomes"].values() if o.get("seconds")}
    return f"medians of {' to '.join(str(n) for n in sorted({min(counts), max(counts)}))}" if counts else "no times"


def optional(value: Any, form: Callable[[Any], str]) -> str:
    return "does not run" if value is None else form(value)


def stamp(data: dict[str, Any]) -> str:
    return f"jax {data['versions']['jax']}, {data['date']}"


def table(names: list[str], rows: list[list[str]]) -> str:
    alignment = ["---"] + ["---:"] * (len(names) - 1)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [names, alignment, *rows])


def render(match: re.Match[str]) -> str:
    path = RESULTS / f"{SOURCES.get(match[2], match[2])}.json"
    body = maker(match[2])(json.loads(path.read_text())) if path.exists() else ""  # not measured yet
    return f"{match[1]}\n{wrapped(body)}\n{match[3]}"


def wrapped(body: str) -> str:
    """Lines of at most 120 characters, but for rows of tables: Markdown has these in one line."""
    lines = [[line] if line.startswith("|") else textwrap.wrap(line, 120) or [""] for line in body.split("\n")]
    return "\n".join(part for parts in lines for part in parts)


def main() -> int:
    stale: list[str] = []
    for name in DOCUMENTS:
        document = ROOT / name
        old = document.read_text()
        new = BLOCK.sub(render, old)
        if new != old:
            stale.append(name)
            if "--check" not in sys.argv:
                document.write_text(new)
    print("stale: " + ", ".join(stale) if stale else "every table is up to date")
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
