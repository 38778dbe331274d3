"""recompute-in-loops: what a loop reads whole and does not change is computed in it again, there to be split.

Before, with %k of n x n elements over the budget:
    %k = stablehlo.exponential %d : tensor<nxn>
    %v = stablehlo.while(%v = %ones) { ... stablehlo.dot_general %k, %v ... }
After:
    %v = stablehlo.while(%v = %ones) { ... %k = stablehlo.exponential %d ... stablehlo.dot_general %k, %v ... }

An iteration needs all of it at once, and so do all the iterations of it together; but in the loop it is made where it
is used, and can be split with its users as anything else. By itself the step lowers nothing: it is judged by the best
one after it (`Candidate.opens`). What large values are made of is repeated as far as small ones, and arguments. Power
and fixed-point iterations, conjugate gradients, Sinkhorn: the kernel matrix of each is needed in every iteration.

Refuses what is made with side effects or by many ops, and what a loop's condition reads.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from stablehlo_mem.cost import block_runs, fused_seconds
from stablehlo_mem.hoisting import unchanged
from stablehlo_mem.ir import build
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.carries import drop_dead_carries
from stablehlo_mem.ir.graph import Graph, Op, Path, effects, entry_graph, nested_graph, op_id
from stablehlo_mem.memory import Peak
from stablehlo_mem.op_classes import invariant_carries
from stablehlo_mem.plan import Candidate, Goal, Refusal, Step

_SHARE = 8
"""Values are large if they have at least one part in so many of the goal, or of the value they are made for."""
_MOST_OPS = 200
"""Ops that are repeated for a value."""


@dataclasses.dataclass(frozen=True)
class _Site:
    """A loop's body, by its path, and the value of it that is made there again."""

    path: Path
    value: int


@dataclasses.dataclass(frozen=True)
class _Repeated:
    """A value of a block, the ops it is made again by, in program order, and where; `seconds` are added."""

    value: int
    nbytes: int
    ops: tuple[int, ...]
    sites: tuple[_Site, ...]
    seconds: float = 0.0


class RecomputeInLoops:
    """The pass."""

    name = "recompute-in-loops"

    def cheapen(self, graph: Graph, goal: Goal) -> Iterator[Candidate]:
        """Nothing: computing it once takes less time."""
        yield from ()

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
        """For each block around the peak: what is cheapest for its bytes, as much as is missing, then all there is."""
        if goal.far:
            return
        missing = peak.temp_bytes - goal.temp_bytes
        for depth in range(len(peak.path) + 1):
            path = peak.path[:depth]
            block = nested_graph(graph, path)
            found = [_timed(graph, path, one, goal) for one in _find(block, goal.temp_bytes // _SHARE)]
            able = [one for one in found if one.ops]
            yield from (_refusal(graph, path, one) for one in found if not one.ops)
            able.sort(key=lambda one: (one.seconds / one.nbytes, one.value))
            reached = itertools.accumulate(one.nbytes for one in able)
            enough = 1 + next((i for i, nbytes in enumerate(reached) if nbytes >= missing), len(able) - 1)
            for count in sorted({enough, len(able)} if able else ()):
                yield _candidate(graph, path, able[:count])

    def describe(self, step: Step) -> str:
        """How much is computed how often."""
        values, sites = step.params["values"], step.params["sites"]
        count = "1 value" if len(values) == 1 else f"{len(values)} values"
        return f"{count} in {'1 loop' if sites == 1 else f'{sites} loops'}"

    def apply(self, module: ir.Module, step: Step) -> None:
        """Makes the values of a step in the loops that read them, in place."""
        path = tuple((op, block) for op, block in step.params["path"])
        graph = nested_graph(entry_graph(module), path)
        found = {one.value: one for one in _find(graph, 0)}
        with module.context:
            for value in step.params["values"]:
                for site in found[value].sites:
                    _repeat(graph, found[value], site)
            _free_results(graph)
            drop_dead_carries(module)


def _find(graph: Graph, least_bytes: int) -> list[_Repeated]:
    """The values of a block that its loops read whole and do not change; without ops where those cannot be repeated."""
    inside: dict[int, list[tuple[Op, int]]] = {}
    for op in graph.ops:
        if op.name == "stablehlo.while":
            for inner, outer in unchanged(op).items():
                if graph.values[outer].producer >= 0 and graph.values[outer].nbytes >= max(1, least_bytes):
                    inside.setdefault(outer, []).append((op, inner))
    found: list[_Repeated] = []
    for value, loops in sorted(inside.items()):
        sites = [_sites(op, ((op.index, 1),), inner) for op, inner in loops]
        ops = _made_by(graph, value) if None not in sites else ()
        together = tuple(itertools.chain.from_iterable(s or () for s in sites))
        if len(graph.ops[graph.values[value].producer].inputs) and (together or None in sites):
            found.append(_Repeated(value, graph.values[value].nbytes, ops, together))
    return found


def _sites(loop: Op, path: Path, value: int) -> list[_Site] | None:
    """Where a value that a loop does not change is read: in its body, or in loops there; None: in a condition."""
    condition, body = loop.blocks
    same = dict(zip(condition.captured, condition.captured_from, strict=True))
    asked = [condition.arguments[body.arguments.index(value)]] if value in body.arguments else []
    outer = unchanged(loop)[value]
    asked += [inner for inner, source in same.items() if source == outer]
    if any(condition.users[v] for v in asked):
        return None
    users = [body.ops[user] for user in body.users[value] if user != len(body.ops) - 1]
    deeper = [(op, inner) for op in users if op.name == "stablehlo.while" for inner in _same(op, value)]
    if not users or len(deeper) < len(users):
        return [_Site(path, value)] if users else []
    found = [_sites(op, (*path, (op.index, 1)), inner) for op, inner in deeper]
    return None if None in found else list(itertools.chain.from_iterable(s or () for s in found))


def _same(loop: Op, value: int) -> list[int]:
    """What a value around a loop is in its body, if that does not change it."""
    return [inner for inner, outer in unchanged(loop).items() if outer == value]


def _made_by(graph: Graph, value: int) -> tuple[int, ...]:
    """The ops that make a value of small ones and arguments; () if they have effects or are too many."""
    large = max(1, graph.values[value].nbytes // _SHARE)
    pending, found = [graph.values[value].producer], set[int]()
    while pending:
        op = pending.pop()
        if op in found:
            continue
        if op in effects(graph) or len(found) == _MOST_OPS:
            return ()
        found.add(op)
        inputs = (graph.values[v] for v in graph.ops[op].inputs)
        pending += [v.producer for v in inputs if v.producer >= 0 and v.nbytes >= large]
    return tuple(sorted(found))


def _timed(main: Graph, path: Path, one: _Repeated, goal: Goal) -> _Repeated:
    """The same, with the time that all iterations take for it, less what it takes once."""
    seconds = fused_seconds(nested_graph(main, path), goal.chip)
    once = sum(seconds[op] for op in one.ops)
    runs = [block_runs(main, (*path, *site.path)) for site in one.sites]
    return dataclasses.replace(one, seconds=max(0, sum(runs) - block_runs(main, path)) * once)


def _candidate(main: Graph, path: Path, found: Sequence[_Repeated]) -> Candidate:
    largest = max(found, key=lambda one: one.nbytes)
    refusal = _refusal(main, path, largest)
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    sites = len({site.path for one in found for site in one.sites})
    params = {"path": path, "values": sorted(one.value for one in found), "sites": sites}
    return Candidate(
        step=Step(RecomputeInLoops.name, "", params),
        saved_bytes=sum(one.nbytes for one in found),
        added_seconds=sum(one.seconds for one in found),
        numerics="exact",
        summary=f"compute {refusal.value}{more} again in the loop that reads it",
        otherwise=dataclasses.replace(
            refusal, code="no-gain", message="computing it again in the loop that reads it frees nothing"
        ),
        opens=True,
    )


def _refusal(main: Graph, path: Path, one: _Repeated) -> Refusal:
    graph = nested_graph(main, path)
    producer = graph.values[one.value].producer
    return Refusal(
        op=op_id(main, path, producer),
        value=f"{graph.title(producer)} {graph.values[one.value]}",
        nbytes=one.nbytes,
        dimension=-1,
        code="not-repeated",
        message="a loop reads it in every iteration, and it cannot be computed there again: "
        f"the condition reads it, or what makes it has effects or more than {_MOST_OPS} ops",
        location=graph.source(producer),
    )


def _repeat(graph: Graph, one: _Repeated, site: _Site) -> None:
    """Makes a value again where a body begins, for all its readers in the body."""
    body = nested_graph(graph, site.path)
    values: dict[Any, Any] = {}
    with build.building(body.handles[0], body.handles[0].location):
        for op in one.ops:
            clone = graph.handles[op].clone().operation
            build.rebind(clone, values)
            values.update(zip((graph.mlir_values[v] for v in graph.ops[op].results), clone.results, strict=True))
    old, new = body.mlir_values[site.value], values[graph.mlir_values[one.value]]
    for user in body.users[site.value]:
        if user != len(body.ops) - 1:
            build.rebind(body.handles[user], {old: new})


def _free_results(graph: Graph) -> None:
    """What loops hand on unchanged is what it was before them: nobody needs it of them."""
    for op in graph.ops:
        if op.name == "stablehlo.while":
            handle = graph.handles[op.index]
            for i in (i for i, same in enumerate(invariant_carries(op)) if same):
                handle.results[i].replace_all_uses_with(handle.operands[i])
            _free_results(op.blocks[1])
