"""recompute-in-loops: what a loop reads whole and does not change is computed in it again, there to be split.

Before, with %k of n x n elements over the budget:
    %k = stablehlo.exponential %d : tensor<nxn>
    %v = stablehlo.while(%v = %ones) { ... stablehlo.dot_general %k, %v ... }
After:
    %v = stablehlo.while(%v = %ones) { ... %k = stablehlo.exponential %d ... stablehlo.dot_general %k, %v ... }

An iteration needs all of it at once, and so do all the iterations of it together; but in the loop it is made where it
is used, and can be split with its users as anything else. By itself the step lowers nothing: it is judged by the best
few after it (`Candidate.needs_lookahead`). What large values are made of is repeated as far as small ones, and
arguments. Power and fixed-point iterations, conjugate gradients, Sinkhorn: the kernel matrix of each is needed in every
iteration.

It is made in each place that reads it: loops in the loop, and branches, too.

Refuses what is made with side effects, by many ops or by a loop (what a scan stacks is for `rematerialise`), and what a
loop's condition reads.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from stablehlo_mem.analysis.cost_model import fused_seconds
from stablehlo_mem.analysis.fusion_classes import CLASSES, Class
from stablehlo_mem.analysis.peak_memory import Peak
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import Graph, Op, Path, effects, entry_graph, nested_graph, op_id
from stablehlo_mem.ir.loop_carries import drop_dead_carries, invariant_carries, unchanged
from stablehlo_mem.ir.trip_count import block_runs
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Refusal, Step, StepParams
from stablehlo_mem.pass_api.pass_protocol import Pass

_SHARE = 8
"""Values are large if they have at least one part in so many of the goal, or of the value they are made for."""
_MOST_OPS = 200
"""Ops that are repeated for a value."""


@dataclasses.dataclass(frozen=True)
class _Site:
    """A loop's body or a branch, by its path, and the value of it that is made there again."""

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Repetition(StepParams):
    """Which values of a block are computed again in the loops and branches that read them.

    Attributes:
        path: the block, from the entry function's.
        values: in the graph of the block.
        sites: in how many loops and branches, for people.
    """

    path: Path
    values: tuple[int, ...]
    sites: int


class RecomputeInLoops(Pass[Repetition]):
    """The pass: finds values that the loops around the peak read whole and do not change."""

    name = "recompute-in-loops"
    params_type = Repetition

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
        """For each block around the peak: of what is cheapest for its bytes as much as is missing, and all there is."""
        if goal.include_small_values:
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

    def describe(self, params: Repetition) -> str:
        """How much is computed how often."""
        count = "1 value" if len(params.values) == 1 else f"{len(params.values)} values"
        return f"{count} in {'1 place' if params.sites == 1 else f'{params.sites} places'}"

    def apply(self, module: ir.Module, params: Repetition) -> None:
        """Makes the values of a step in the loops that read them, in place."""
        graph = nested_graph(entry_graph(module), params.path)
        found = {one.value: one for one in _find(graph, 0)}
        with module.context:
            for value in params.values:
                for site in found[value].sites:
                    _repeat(graph, found[value], site)
            _free_results(graph)
            drop_dead_carries(module)


def _find(graph: Graph, least_bytes: int) -> list[_Repeated]:
    """The values of a block that its loops and branches read; without ops where those cannot be repeated."""
    inside: dict[int, list[tuple[Op, int, int]]] = {}
    for op in graph.ops:
        for block, inner, outer in _read_in(op):
            value = graph.values[outer]
            if value.is_computed and graph.ops[value.producer].inputs and value.nbytes >= max(1, least_bytes):
                inside.setdefault(outer, []).append((op, block, inner))
    found: list[_Repeated] = []
    for value, readers in sorted(inside.items()):
        sites = [_sites(op, block, ((op.index, block),), inner) for op, block, inner in readers]
        ops = _made_by(graph, value) if None not in sites else ()
        together = tuple(itertools.chain.from_iterable(s or () for s in sites))
        if together or None in sites:
            found.append(_Repeated(value, graph.values[value].nbytes, ops, together))
    return found


def _read_in(op: Op) -> Iterator[tuple[int, int, int]]:
    """What an op's blocks read and do not change: the block, the value there and that around it."""
    if op.name == "stablehlo.while":
        yield from ((1, inner, outer) for inner, outer in unchanged(op, 1).items())
    elif CLASSES.get(op.name) is Class.CONTROL:
        for i, block in enumerate(op.blocks):
            yield from ((i, inner, outer) for inner, outer in zip(block.captured, block.captured_from, strict=True))


def _sites(op: Op, block: int, path: Path, value: int) -> list[_Site] | None:
    """Where a value that an op's block does not change is read: in blocks in it, in it; None: in a loop's condition."""
    if op.name == "stablehlo.while" and _is_asked(op, value):
        return None
    body = op.blocks[block]
    found: list[_Site] = []
    here = False
    for user in _readers(body, value):
        inside = [(i, inner) for i, inner, outer in _read_in(body.ops[user]) if outer == value]
        here |= not inside
        for i, inner in inside:
            deeper = _sites(body.ops[user], i, (*path, (user, i)), inner)
            if deeper is None:
                return None
            found += deeper
    return [*found, _Site(path, value)] if here else found


def _is_asked(loop: Op, value: int) -> bool:
    """Whether a loop's condition reads what a value of its body is."""
    condition, body = loop.blocks
    same = zip(condition.captured, condition.captured_from, strict=True)
    asked = [inner for inner, source in same if source == unchanged(loop, 1)[value]]
    asked += [condition.arguments[body.arguments.index(value)]] if value in body.arguments else []
    return any(condition.users[v] for v in asked)


def _readers(body: Graph, value: int) -> list[int]:
    """The ops of a block that read a value, but for the end of a loop's body, which hands it on."""
    end = len(body.ops) - 1 if value in body.arguments else -1
    return [user for user in body.users[value] if user != end]


def _made_by(graph: Graph, value: int) -> tuple[int, ...]:
    """The ops that make a value of small ones and arguments; () if they have effects, loop, or are too many."""
    large = max(1, graph.values[value].nbytes // _SHARE)
    pending, found = [graph.values[value].producer], set[int]()
    while pending:
        op = pending.pop()
        if op in found:
            continue
        if op in effects(graph) or len(found) == _MOST_OPS or graph.ops[op].name == "stablehlo.while":
            return ()
        found.add(op)
        inputs = (graph.values[v] for v in graph.ops[op].inputs)
        pending += [v.producer for v in inputs if v.is_computed and v.nbytes >= large]
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
    params = Repetition(path=path, values=tuple(sorted(one.value for one in found)), sites=sites)
    return Candidate(
        step=Step(RecomputeInLoops.name, "", params),
        saved_bytes=sum(one.nbytes for one in found),
        added_seconds=sum(one.seconds for one in found),
        numerics="exact",
        summary=f"compute {refusal.value}{more} again where loops read it",
        identity=(RecomputeInLoops.name, path, largest.value),
        refusal_if_useless=dataclasses.replace(
            refusal, code="no-gain", message="computing it again where loops read it frees nothing"
        ),
        needs_lookahead=True,
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
        message="a loop or a branch reads it, and it cannot be computed there again: "
        f"a loop's condition reads it, or what makes it is a loop, has effects or more than {_MOST_OPS} ops",
        location=graph.source(producer),
    )


def _repeat(graph: Graph, one: _Repeated, site: _Site) -> None:
    """Makes a value again where a body begins, for all its readers in the body."""
    body = nested_graph(graph, site.path)
    values: dict[Any, Any] = {}
    with builders.building(body.handles[0], body.handles[0].location):
        for op in one.ops:
            clone = graph.handles[op].clone().operation
            builders.rebind(clone, values)
            values.update(zip((graph.mlir_values[v] for v in graph.ops[op].results), clone.results, strict=True))
    old, new = body.mlir_values[site.value], values[graph.mlir_values[one.value]]
    for user in _readers(body, site.value):
        builders.rebind(body.handles[user], {old: new})


def _free_results(graph: Graph) -> None:
    """What loops hand on unchanged is what it was before them: nobody needs it of them."""
    for op in graph.ops:
        if op.name == "stablehlo.while":
            handle = graph.handles[op.index]
            for i in (i for i, same in enumerate(invariant_carries(op)) if same):
                handle.results[i].replace_all_uses_with(handle.operands[i])
        for block in op.blocks:
            _free_results(block)
