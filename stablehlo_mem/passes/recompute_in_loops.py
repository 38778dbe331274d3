"""recompute-in-loops: a large value that a loop reads and does not change is computed again in the loop.

Before, with %k of n x n elements over the budget:
    %k = stablehlo.exponential %d : tensor<nxn>
    %v = stablehlo.while(%v = %ones) { ... stablehlo.dot_general %k, %v ... }
After:
    %v = stablehlo.while(%v = %ones) { ... %k = stablehlo.exponential %d ... stablehlo.dot_general %k, %v ... }

%k is alive as long as the loop runs. Computed in the loop, where it is used, it can be split together with its users.
The step alone lowers nothing: it is judged by the best few steps after it (`Candidate.needs_lookahead`). Large
producers of the value are repeated too, down to small values and arguments. A value that several loops or branches read
is computed again in each of them. Examples are power and fixed-point iterations, conjugate gradients and Sinkhorn: each
needs its kernel matrix in every iteration.

Refuses values that a loop's condition reads, and those whose producers have side effects, are too many, or contain a
loop (what a scan stacks is for `rematerialise`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from stablehlo_mem.analysis.cost_model import fused_seconds
from stablehlo_mem.analysis.fusion_classes import CLASSES, Class
from stablehlo_mem.analysis.peak_memory import Peak
from stablehlo_mem.analysis.used_bytes import used_share
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph, Op, Path, effects, entry_graph, nested_graph
from stablehlo_mem.ir.loop_carries import drop_dead_carries, invariant_carries, readers_in, unchanged
from stablehlo_mem.ir.trip_count import block_runs
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Refusal, Step, StepParams, and_others
from stablehlo_mem.pass_api.pass_protocol import Pass

_LARGE_SHARE = 8
"""Values are large if they have one part in so many of the goal, or of the value computed from them: a guess."""
_MAX_OPS = 200
"""Ops that are repeated for a value: a guess, to bound the size of the module."""


@dataclasses.dataclass(frozen=True)
class _Recomputed:
    """A value of a block that its loops and branches read, and can compute again.

    Attributes:
        value, nbytes: the value and its size.
        ops: those that compute it again, in program order.
        readers: the blocks that read it, by their paths from the block of the value, each with its name there.
        seconds: what all the recomputations add.
    """

    value: int
    nbytes: int
    ops: tuple[int, ...]
    readers: tuple[tuple[Path, int], ...]
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecomputedValues(StepParams):
    """Which values of a block are computed again in the loops and branches that read them.

    Attributes:
        path: the block, from the entry function's.
        values: in the graph of the block.
        readers: in how many loops and branches, for people.
    """

    path: Path
    values: tuple[int, ...]
    readers: int


class RecomputeInLoops(Pass[RecomputedValues]):
    """The pass: finds values that the loops around the peak read whole and do not change."""

    name = "recompute-in-loops"
    params_type = RecomputedValues

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
        """For each block around the peak two: enough of the values that are cheapest per byte, and all of them."""
        missing = peak.temp_bytes - goal.temp_bytes
        for path, _ in peak.ops_around:
            values = _read_in_blocks(nested_graph(graph, path), goal.temp_bytes // _LARGE_SHARE)
            kept = {value: one for value, one in values.items() if isinstance(one, Blocked)}
            yield from (Refusal.of_value(graph, path, value, why.code, why.message) for value, why in kept.items())
            able = [_timed(graph, path, one, goal) for one in values.values() if isinstance(one, _Recomputed)]
            able.sort(key=lambda one: (one.seconds / one.nbytes, one.value))
            reached = itertools.accumulate(one.nbytes for one in able)
            enough = 1 + next((i for i, nbytes in enumerate(reached) if nbytes >= missing), len(able) - 1)
            for count in sorted({enough, len(able)} if able else ()):
                yield _candidate(graph, path, able[:count])

    def describe(self, params: RecomputedValues) -> str:
        """How much is computed how often."""
        count = "1 value" if len(params.values) == 1 else f"{len(params.values)} values"
        return f"{count} in {'1 place' if params.readers == 1 else f'{params.readers} places'}"

    def apply(self, module: ir.Module, params: RecomputedValues) -> None:
        """Computes the values of a step in the blocks that read them, in place."""
        graph = nested_graph(entry_graph(module), params.path)
        read = _read_in_blocks(graph, 0)
        with module.context:
            for one in (read[value] for value in params.values):
                assert isinstance(one, _Recomputed)
                for path, value in one.readers:
                    _recompute(graph, one, nested_graph(graph, path), value)
            _bypass_invariant_results(graph)
            drop_dead_carries(module)


def _read_in_blocks(graph: Graph, least_bytes: int) -> dict[int, _Recomputed | Blocked]:
    """The values of at least so many bytes that a block computes and its loops and branches read; why some stay."""
    uses: dict[int, list[tuple[Op, int, int]]] = {}
    for op in graph.ops:
        for block, inner, outer in _invariant_values(op):
            value = graph.values[outer]
            if value.is_computed and graph.ops[value.producer].inputs and value.nbytes >= max(1, least_bytes):
                uses.setdefault(outer, []).append((op, block, inner))
    recomputed: dict[int, _Recomputed | Blocked] = {}
    for value, readers in sorted(uses.items()):
        paths = [_reading_blocks(op, block, ((op.index, block),), inner) for op, block, inner in readers]
        known = tuple(itertools.chain.from_iterable(p for p in paths if p is not None))
        ops = _producers(graph, value) if None not in paths else _not_repeated("a loop's condition reads it")
        if isinstance(ops, Blocked):
            recomputed[value] = ops
        elif known:
            recomputed[value] = _Recomputed(value, graph.values[value].nbytes, ops, known)
    return recomputed


def _invariant_values(op: Op) -> Iterator[tuple[int, int, int]]:
    """The values that an op's blocks read and do not change: the block, the name there, and the one around it."""
    if op.name == "stablehlo.while":
        yield from ((1, inner, outer) for inner, outer in unchanged(op, 1).items())
    elif CLASSES.get(op.name) is Class.CONTROL:
        for i, block in enumerate(op.blocks):
            yield from ((i, inner, outer) for inner, outer in zip(block.captured, block.captured_from, strict=True))


def _reading_blocks(op: Op, block: int, path: Path, value: int) -> list[tuple[Path, int]] | None:
    """The blocks in an op's block, and itself, that read an invariant value of it; None: a loop's condition does."""
    if op.name == "stablehlo.while" and _is_in_condition(op, value):
        return None
    body = op.blocks[block]
    reading: list[tuple[Path, int]] = []
    here = False
    for user in readers_in(body, value):
        inside = [(i, inner) for i, inner, outer in _invariant_values(body.ops[user]) if outer == value]
        here |= not inside
        for i, inner in inside:
            deeper = _reading_blocks(body.ops[user], i, (*path, (user, i)), inner)
            if deeper is None:
                return None
            reading += deeper
    return [*reading, (path, value)] if here else reading


def _is_in_condition(loop: Op, value: int) -> bool:
    """Whether a loop's condition reads an invariant value of its body."""
    condition, body = loop.blocks
    outer = unchanged(loop, 1)[value]
    names = [
        inner for inner, source in zip(condition.captured, condition.captured_from, strict=True) if source == outer
    ]
    names += [condition.arguments[body.arguments.index(value)]] if value in body.arguments else []
    return any(condition.users[v] for v in names)


def _not_repeated(why: str) -> Blocked:
    return Blocked("not-repeated", f"a loop or a branch reads it, and it cannot be computed there again: {why}")


def _producers(graph: Graph, value: int) -> tuple[int, ...] | Blocked:
    """The ops that compute a value from small ones and arguments, or why they cannot be repeated."""
    large = max(1, graph.values[value].nbytes // _LARGE_SHARE)
    pending, producers = [graph.values[value].producer], set[int]()
    while pending:
        op = pending.pop()
        if op in producers:
            continue
        if graph.ops[op].name == "stablehlo.while":
            return _not_repeated("a loop makes it")
        if op in effects(graph):
            return _not_repeated("what makes it has effects")
        if len(producers) == _MAX_OPS:
            return _not_repeated(f"more than {_MAX_OPS} ops make it")
        producers.add(op)
        inputs = (graph.values[v] for v in graph.ops[op].inputs)
        pending += [v.producer for v in inputs if v.is_computed and v.nbytes >= large]
    return tuple(sorted(producers))


def _timed(main: Graph, path: Path, one: _Recomputed, goal: Goal) -> _Recomputed:
    """The same with its time: that of all recomputations, less that of the original.

    Where a block reads slices of the value, `narrow` computes no more than these.
    """
    graph = nested_graph(main, path)
    seconds = fused_seconds(graph, goal.chip)
    runs = sum(
        block_runs(main, (*path, *reader)) * used_share(nested_graph(graph, reader), v, goal.chip)
        for reader, v in one.readers
    )
    added = max(0.0, runs - block_runs(main, path)) * sum(seconds[op] for op in one.ops)
    return dataclasses.replace(one, seconds=added)


def _candidate(main: Graph, path: Path, values: Sequence[_Recomputed]) -> Candidate:
    largest = max(values, key=lambda one: one.nbytes)
    message = "computing it again where loops read it frees nothing"
    refusal = Refusal.of_value(main, path, largest.value, "no-gain", message)
    more = and_others(len(values))
    readers = len({reader for one in values for reader, _ in one.readers})
    params = RecomputedValues(path=path, values=tuple(sorted(one.value for one in values)), readers=readers)
    return Candidate(
        step=Step(RecomputeInLoops.name, "", params),
        saved_bytes=sum(one.nbytes for one in values),
        added_seconds=sum(one.seconds for one in values),
        numerics="exact",
        summary=f"compute {refusal.value}{more} again inside the loops that read it, instead of keeping it",
        identity=(RecomputeInLoops.name, path, largest.value),
        refusal_if_useless=refusal,
        needs_lookahead=True,
    )


def _recompute(graph: Graph, one: _Recomputed, body: Graph, value: int) -> None:
    """Computes a value again where a block that reads it begins, for all its readers in the block."""
    values: dict[Any, Any] = {}
    with builders.building(body.handles[0], body.handles[0].location):
        builders.repeat_ops([graph.handles[op] for op in one.ops], values)
    for user in readers_in(body, value):
        builders.rebind(body.handles[user], {body.mlir_values[value]: values[graph.mlir_values[one.value]]})


def _bypass_invariant_results(graph: Graph) -> None:
    """Replaces the results of invariant carries by what the loops were given, so that the carries are dead."""
    for op in graph.ops:
        if op.name == "stablehlo.while":
            handle = graph.handles[op.index]
            for i in (i for i, is_invariant in enumerate(invariant_carries(op)) if is_invariant):
                handle.results[i].replace_all_uses_with(handle.operands[i])
        for block in op.blocks:
            _bypass_invariant_results(block)
