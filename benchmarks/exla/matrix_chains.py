"""Chains of 4 to 72 matrices written left to right: writes results/exla_matrix_chains.json.

Dimensions are drawn from 1 to 5,000; some chains transpose what they have so far now and then, some end in a vector.
For each: FLOPs and peak bytes as written, in the order that the textbook's dynamic programming finds best for FLOPs
(written here anew, with nothing of the optimiser), and of the optimised program, without a budget and with one. Chains
that take seconds run on this CPU.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import argparse
import dataclasses
import functools
import itertools
import pathlib
import sys
from typing import Any

import jax
import jax.export
import numpy as np

sys.path.append(str(pathlib.Path(__file__).parent.parent))  # as `tables.py` imports this from there

import record
import tables
from exla import contenders, worker
from exla.contenders import Contender

import stablehlo_mem as shm
from stablehlo_mem.analysis.op_cost import op_flops
from stablehlo_mem.ir.graph import Graph, entry_graph
from stablehlo_mem.ir.trip_count import trip_count
from stablehlo_mem.utils.units import format_bytes

COUNTS = (4, 8, 16, 36, 72)
KINDS = ("plain", "transposed", "vector")
LARGEST = 5_000
TARGET = "cpu"
RUN_FLOPS = 1e12
"""Chains that take more, as written, are not run."""
TOLERANCE = 1e-3
SELF = "exla.matrix_chains"

Tree = "int | tuple[Tree, Tree]"
"""The order of a chain: a factor, or the product of two parts."""


@dataclasses.dataclass(frozen=True)
class Chain:
    """A chain as it is written.

    Attributes:
        shapes: of the factors, in the order in which they are multiplied to what there is.
        flips: for each factor, whether what there is is transposed before.
    """

    shapes: tuple[tuple[int, ...], ...]
    flips: tuple[bool, ...]

    def written(self, *factors: jax.Array) -> jax.Array:
        """The chain as a user writes it."""
        result = factors[0]
        for factor, flip in zip(factors[1:], self.flips[1:], strict=True):
            result = (result.T if flip else result) @ factor
        return result

    def in_order(self, tree: Any, *factors: jax.Array) -> jax.Array:
        """The chain in the order of a tree over the factors as they stand in the plain product."""
        parts = [factors[i].T if transposed else factors[i] for i, transposed in self.product()]

        def value(node: Any) -> jax.Array:
            return parts[node] if isinstance(node, int) else value(node[0]) @ value(node[1])

        return value(tree)

    def product(self) -> list[tuple[int, bool]]:
        """The chain as a plain product: factors from left to right, and which of them transposed."""
        parts: list[tuple[int, bool]] = []
        for i, flip in enumerate(self.flips):
            if flip:
                parts = [(j, not transposed) for j, transposed in reversed(parts)]
            parts.append((i, False))
        return parts

    def dims(self) -> list[int]:
        """The dimensions of the plain product's factors, shared ones once; a vector has one column."""
        shapes = [(*self.shapes[i], 1)[:2] for i, _ in self.product()]
        oriented = [s[::-1] if t else s for s, (_, t) in zip(shapes, self.product(), strict=True)]
        return [oriented[0][0], *(columns for _, columns in oriented)]

    def written_flops(self) -> int:
        """FLOPs as written."""
        result, flops = (*self.shapes[0], 1)[:2], 0
        for shape, flip in zip(self.shapes[1:], self.flips[1:], strict=True):
            rows, depth = result[::-1] if flip else result
            result = (rows, (*shape, 1)[1])
            flops += 2 * rows * depth * result[1]
        return flops


@functools.cache
def draw(kind: str, count: int) -> Chain:
    """The chain of a kind and length: the same at every call."""
    rng = np.random.default_rng([count, KINDS.index(kind)])
    flips = [kind == "transposed" and bool(rng.random() < 0.3) and i > 1 for i in range(count)]
    shapes: list[tuple[int, ...]] = []
    rows, columns = (int(n) for n in rng.integers(1, LARGEST + 1, 2))
    shapes.append((rows, columns))
    for flip in flips[1:]:
        if flip:
            rows, columns = columns, rows
        new = int(rng.integers(1, LARGEST + 1))
        shapes.append((columns, new))
        columns = new
    if kind == "vector":
        shapes[-1] = shapes[-1][:1]
    return Chain(tuple(shapes), tuple(flips))


def best_order(dims: list[int]) -> tuple[int, Any]:
    """The fewest FLOPs of a plain product and their tree: the textbook's O(n³) over intervals."""
    count = len(dims) - 1
    best: dict[tuple[int, int], tuple[int, Any]] = {(i, i + 1): (0, i) for i in range(count)}
    for length, start in itertools.product(range(2, count + 1), range(count)):
        end = start + length
        if end > count:
            continue
        best[start, end] = min(
            (
                best[start, middle][0] + best[middle, end][0] + 2 * dims[start] * dims[middle] * dims[end],
                middle,
            )
            for middle in range(start + 1, end)
        )
    return best[0, count][0], _tree(best, 0, count)


def _tree(best: dict[tuple[int, int], tuple[int, Any]], start: int, end: int) -> Any:
    middle = best[start, end][1]
    return start if end == start + 1 else (_tree(best, start, middle), _tree(best, middle, end))


@functools.cache
def data(kind: str, count: int) -> tuple[jax.Array, ...]:
    """Factors whose products stay near one."""
    rng = np.random.default_rng(0)
    shapes = draw(kind, count).shapes
    return tuple(jax.device_put(rng.standard_normal(s, dtype=np.float32) / np.float32(s[0] ** 0.5)) for s in shapes)


def as_written(kind: str, count: int) -> worker.Execution:
    return worker.jax_execution(draw(kind, count).written, *data(kind, count))


def optimal(kind: str, count: int) -> worker.Execution:
    chain = draw(kind, count)
    return worker.jax_execution(functools.partial(chain.in_order, best_order(chain.dims())[1]), *data(kind, count))


def ours(kind: str, count: int, program: str) -> worker.Execution:
    return worker.exported_execution(program, *data(kind, count))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="up to 16 matrices, 3 rounds")
    given = parser.parse_args()
    rounds = 3 if given.quick else given.rounds
    result: dict[str, Any] = {**record.header(), "rounds": rounds, "target": TARGET, "rows": []}
    path = record.RESULTS / ("exla_matrix_chains_quick.json" if given.quick else "exla_matrix_chains.json")
    for count, kind in itertools.product(COUNTS, KINDS):
        if given.quick and count > 16:
            continue
        result["rows"].append(row := measure(kind, count, rounds))
        record.write(result, path)
        print(summary(row), flush=True)


def measure(kind: str, count: int, rounds: int) -> dict[str, Any]:
    """One chain: figures of the four programs, and times where it is small enough."""
    chain = draw(kind, count)
    flops, tree = best_order(chain.dims())
    exported = export(chain, chain.written)
    tight = record.tenth_budget(shm.profile(exported, target=TARGET))
    free, tightened = (shm.plan(exported, budget, target=TARGET) for budget in (None, tight))
    ordered = shm.profile(export(chain, functools.partial(chain.in_order, tree)), target=TARGET)
    programs = {
        "JAX as written": {"flops": chain.written_flops(), "peak_bytes": free.before.peak_bytes},
        "optimal order": {"flops": flops, "peak_bytes": ordered.peak_bytes},
        "ours": plan_figures(free),
        "ours, budget": plan_figures(tightened) | {"budget_bytes": tight},
    }
    row = {"kind": kind, "count": count, "dims": chain.dims(), "programs": programs}
    return row | (execute(kind, count, free, rounds) if chain.written_flops() <= RUN_FLOPS else {})


def export(chain: Chain, function: Any) -> jax.export.Exported:
    specs = [jax.ShapeDtypeStruct(shape, np.float32) for shape in chain.shapes]
    return jax.export.export(jax.jit(function), platforms=[TARGET.partition(":")[0]])(*specs)


def plan_figures(plan: shm.Plan) -> dict[str, Any]:
    module = plan.module  # a graph's handles do not keep it
    return {
        "flops": matmul_flops(entry_graph(module)),
        "peak_bytes": plan.after.peak_bytes,
        "fits": plan.fits,
        "steps": list(plan.summaries),
        "planning_seconds": plan.planning_seconds,
    }


def matmul_flops(graph: Graph) -> int:
    """FLOPs of the matmuls of a block, those of loops as often as they run."""
    flops = 0
    for op in graph.ops:
        if op.name == "stablehlo.dot_general":
            flops += int(op_flops(graph, op))
        elif op.name == "stablehlo.while":
            flops += trip_count(graph, op) * matmul_flops(op.blocks[1])
    return flops


def execute(kind: str, count: int, plan: shm.Plan, rounds: int) -> dict[str, Any]:
    """Times of the chain as written, in the optimal order, and ours."""
    size = {"kind": kind, "count": count}
    with contenders.program_file(plan.exported) as program:
        entries = [
            Contender("ours", f"{SELF}:ours", {**size, "program": program}),
            Contender("JAX as written", f"{SELF}:as_written", size),
            Contender("optimal order", f"{SELF}:optimal", size),
        ]
        outcomes = contenders.compare(entries, rounds=rounds)
    plain = {name: outcome.to_json() for name, outcome in outcomes.items()}
    return {"outcomes": plain, "worst_error": contenders.worst_error(outcomes, "JAX as written", TOLERANCE)}


def summary(row: dict[str, Any]) -> str:
    figures = [f"{name} {flops_cell(p)} {format_bytes(p['peak_bytes'])}" for name, p in row["programs"].items()]
    times = [f"{name} {contenders.time_cell(o)}" for name, o in row.get("outcomes", {}).items()]
    return f"{row['kind']} {row['count']}: {'; '.join(figures + times)}"


def flops_cell(program: dict[str, Any]) -> str:
    return f"{program['flops'] / 1e9:.3g} GFLOP"


def table(data: dict[str, Any]) -> str:
    """One line a chain: FLOPs, peaks, times."""
    lines = []
    for row in data["rows"]:
        programs, outcomes = row["programs"], row.get("outcomes", {})
        ours_share = programs["ours"]["flops"] / programs["optimal order"]["flops"]
        lines.append(
            [
                f"{row['count']} {row['kind']}",
                *(f"{programs[name]['flops'] / 1e9:.3g}" for name in ("JAX as written", "optimal order", "ours")),
                f"{ours_share:.2f}",
                *(format_bytes(program["peak_bytes"]) for program in programs.values()),
                *(
                    contenders.time_cell(outcomes[name]) if name in outcomes else ""
                    for name in ("JAX as written", "ours")
                ),
            ]
        )
    flops = ["GFLOP as written", "optimal", "ours", "ours / optimal"]
    names = ["chain", *flops, "peak as written", "optimal", "ours", "ours, budget", "time as written", "ours"]
    note = (
        f"Dimensions 1 to {LARGEST:,}, float32, {data['target']}; budget: arguments, outputs and a tenth of the "
        f"temporaries as written; medians of {data['rounds']} runs in turn"
    )
    return tables.table(names, lines) + f"\n{note}; {tables.stamp(data)}.\n"


if __name__ == "__main__":
    main()
