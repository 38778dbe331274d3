"""fission-scans: what a scan only accumulates is accumulated by a loop of its own, after the scan.

Before, with %k and its gradient %dk of n x n elements:
    %v, %dk = while(%i, %v, %dk) { ...; %w = dot(%k, %v); %dk += outer(%w, %v) }
After, with a row of n elements a step in each of the stacks:
    %v, %ws, %vs = while(%i, %v, %ws, %vs) { ...; %w = dot(%k, %v); %ws[%i] = %w; %vs[%i] = %v }
    %dk = while(%i, %dk) { %dk += outer(%ws[%i], %vs[%i]) }

This is loop fission, or distribution (Kennedy and McKinley, "Maximizing Loop Parallelism and Improving Data Locality
via Loop Fusion and Distribution", 1993). The second loop needs no step's whole result, so it can be split along any
dimension of what it accumulates. Examples are gradients of power and fixed-point iterations, conjugate gradients and
Sinkhorn. The step is judged by the best few steps after it (`Candidate.needs_lookahead`).

The second loop reads a value of each step from a stack if the value is no larger than what it is computed from, and
computes it again otherwise. Refuses steps with side effects, and stacks that are as large as what is accumulated.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from stablehlo_mem.analysis.cost_model import fused_seconds
from stablehlo_mem.analysis.fusion_classes import CLASSES, Class
from stablehlo_mem.analysis.peak_memory import Peak
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph, Op, Path, effects, entry_graph, nested_graph, reachable
from stablehlo_mem.ir.loop_carries import (
    arguments_read,
    drop_dead_carries,
    invariant_carries,
    unchanged,
    update_in_place,
    with_stacks,
)
from stablehlo_mem.ir.trip_count import Counter, block_runs, counted
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Refusal, Step, StepParams, and_others
from stablehlo_mem.pass_api.pass_protocol import Pass


@dataclasses.dataclass(frozen=True, kw_only=True)
class FissionedScan(StepParams):
    """Which carries of a scan get a loop of their own.

    Attributes:
        path, loop: the scan's block, from the entry function's, and its loop in it.
        carries: the positions of the carries.
        stacks, steps: the values that the scan stores for the second loop in every step, and the steps; for people.
    """

    path: Path
    loop: int
    carries: tuple[int, ...]
    stacks: int
    steps: int


class FissionScans(Pass[FissionedScan]):
    """The pass: finds what the scans around the peak only accumulate."""

    name = "fission-scans"
    params_type = FissionedScan

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
        """A candidate for each scan with accumulated carries at the peak, or why there is none."""
        for path, _ in peak.ops_around:
            block, live = nested_graph(graph, path), peak.live_in(path)
            for op in block.ops:
                counter = counted(block, op)
                if counter is not None and counter.steps > 1:
                    at_peak = [i for i, v in enumerate(op.results) if v in live or op.operands[i] in live]
                    yield from _proposals(graph, path, op, counter, at_peak, goal)

    def describe(self, params: FissionedScan) -> str:
        """How many values are accumulated, and from what."""
        carries = "1 value" if len(params.carries) == 1 else f"{len(params.carries)} values"
        return f"{carries}, from {params.stacks} stored in each of {params.steps} steps"

    def apply(self, module: ir.Module, params: FissionedScan) -> None:
        """Gives the carries of a step a loop of their own, in place."""
        graph = nested_graph(entry_graph(module), params.path)
        loop = graph.ops[params.loop]
        counter = counted(graph, loop)
        if counter is None:
            raise ValueError(f"{self.name}: there is no such scan")
        second = _SecondLoop(loop, counter, frozenset(params.carries))
        with module.context:
            _emit(graph, second)
            drop_dead_carries(module)


class _SecondLoop:
    """The loop that some carries of a scan get: what it computes, and what the scan stores for it."""

    def __init__(self, loop: Op, counter: Counter, carries: frozenset[int]):
        self.loop, self.counter, self.carries = loop, counter, carries
        self.body = loop.blocks[1]
        invariant = invariant_carries(loop)
        self.changed = frozenset(
            v for i, v in enumerate(self.body.arguments) if i != counter.carry and not invariant[i]
        )

    @functools.cached_property
    def ops(self) -> tuple[int, ...]:
        """The ops of the second loop, in program order."""
        producers = (self.body.producer(v) for v in self._needed if v not in self.stored)
        return tuple(sorted({op.index for op in producers if op is not None}))

    @functools.cached_property
    def stored(self) -> frozenset[int]:
        """The values of the body that the scan stores in every step."""
        return frozenset(v for v in self._needed if self._is_stored(v))

    @functools.cached_property
    def stored_bytes(self) -> int:
        """What the stacks take."""
        return self.counter.steps * sum(self.body.values[v].nbytes for v in self.stored)

    @functools.cached_property
    def repeated(self) -> frozenset[int]:
        """The ops of the second loop that the scan has too."""
        others = (v for i, v in enumerate(self.body.returned) if i not in self.carries)
        kept = reachable([*others, *self.stored], self._inputs)
        return frozenset(op for op in self.ops if any(v in kept for v in self.body.ops[op].results))

    def why_not(self) -> Blocked | None:
        """Why the second loop cannot be, or would free nothing."""
        values = self.body.values
        end = self.body.ops[-1]
        if any(self._depends(self.body.ops[op].inputs) for op in effects(self.body) if op != end.index):
            return Blocked("effects", "an op with effects reads it in the loop")
        if any(op in effects(self.body) for op in self.ops):
            return Blocked("effects", "what is accumulated is computed by an op with effects")
        if any(values[v].host_bytes for v in self._needed):
            return Blocked("in-host-memory", "it is computed from values in the host's memory")
        if any(v in self.changed and not values[v].nbytes for v in self._needed):
            return Blocked("no-size", "it is computed from values without a size")
        if self.stored_bytes >= sum(values[self.body.arguments[i]].nbytes for i in self.carries):
            return Blocked("no-gain", "what it is accumulated from takes as much memory for all steps of the loop")
        return None

    @functools.cached_property
    def _needed(self) -> dict[int, None]:
        """The values of the body that the second loop reads or computes."""
        start = [self.body.returned[i] for i in self.carries]
        return reachable(start, lambda v: () if self._is_stored(v) else self._inputs(v))

    def _inputs(self, value: int) -> tuple[int, ...]:
        producer = self.body.producer(value)
        return producer.inputs if producer is not None else ()

    def _depends(self, values: Sequence[int]) -> bool:
        return any(arguments_read(self.body)[v] & self.carries for v in values)

    def _is_stored(self, value: int) -> bool:
        """Whether the scan stores a value for the second loop: it is no larger than what it is computed from."""
        least = _step_bytes(self.body, self.changed)[value]
        return 0 < least == self.body.values[value].nbytes and not self._depends([value])


@cached_analysis
def _step_bytes(body: Graph, changed: frozenset[int]) -> tuple[int, ...]:
    """For each value of a body the least that a step stores for a second loop to have it.

    Args:
        changed: its arguments that the loop changes; what is computed from others alone can be computed again.
    """
    nbytes = [0] * len(body.values)
    for argument in changed:
        nbytes[argument] = body.values[argument].nbytes
    for op in body.ops:
        read = sum(nbytes[v] for v in op.inputs)
        for v in op.results:
            is_whole = CLASSES.get(op.name) is Class.CONTROL
            nbytes[v] = body.values[v].nbytes if is_whole else min(read, body.values[v].nbytes)
    return tuple(nbytes)


def _proposals(
    main: Graph, path: Path, loop: Op, counter: Counter, at_peak: Sequence[int], goal: Goal
) -> Iterator[Candidate | Refusal]:
    """A candidate for what a scan accumulates, and why it is not for others."""
    moved = set[int]()
    for carry in sorted(_accumulated(loop, counter).intersection(at_peak)):
        second = _SecondLoop(loop, counter, frozenset({carry}))
        if not second.stored:
            continue  # it is computed from nothing else that the scan carries
        blocked = second.why_not()
        if blocked is None:
            moved.add(carry)
        else:
            yield _refusal(main, path, loop, carry, blocked)
    if moved:
        yield _candidate(main, path, _SecondLoop(loop, counter, frozenset(moved)), goal)


def _accumulated(loop: Op, counter: Counter) -> set[int]:
    """The carries of a loop from which nothing but themselves is computed in it, and that are no stacks."""
    condition, body = loop.blocks
    read = [arguments_read(body)[v] for v in body.returned]
    readers = collections.Counter(itertools.chain.from_iterable(read))
    alone = {i for i, inputs in enumerate(read) if i in inputs and readers[i] == 1}
    alone -= {counter.carry, *(i for i, v in enumerate(condition.arguments) if condition.users[v])}
    invariant = invariant_carries(loop)
    return {i for i in alone if not invariant[i] and update_in_place(body, i) is None}


def _candidate(main: Graph, path: Path, second: _SecondLoop, goal: Goal) -> Candidate:
    loop, body = second.loop, second.body
    values = {i: body.values[body.arguments[i]] for i in sorted(second.carries)}
    largest = max(values, key=lambda i: values[i].nbytes)
    saved = sum(v.nbytes for v in values.values()) - second.stored_bytes
    seconds = fused_seconds(body, goal.chip)
    params = FissionedScan(
        path=path,
        loop=loop.index,
        carries=tuple(sorted(second.carries)),
        stacks=len(second.stored),
        steps=second.counter.steps,
    )
    return Candidate(
        step=Step(FissionScans.name, "", params),
        saved_bytes=saved,
        added_seconds=block_runs(main, path) * second.counter.steps * sum(seconds[op] for op in second.repeated),
        numerics="exact",
        summary=f"accumulate {values[largest]}{and_others(len(values))} in a loop of its own, "
        "after the loop that does it now",
        identity=(FissionScans.name, path, loop.index),
        refusal_if_useless=_refusal(
            main, path, loop, largest, Blocked("no-gain", "a loop of its own for it frees nothing")
        ),
        needs_lookahead=True,
    )


def _refusal(main: Graph, path: Path, loop: Op, carry: int, blocked: Blocked) -> Refusal:
    value = nested_graph(main, path).values[loop.results[carry]]
    where = path, loop.index
    return Refusal.at(main, where, f"accumulated {value}", value.nbytes, blocked.code, blocked.message)


def _emit(graph: Graph, second: _SecondLoop) -> None:
    """Builds the second loop after the scan, which stores what it needs."""
    body, carries = second.body, sorted(second.carries)
    stored = sorted(second.stored)
    invariants = unchanged(second.loop, 1).items()
    outside = {body.mlir_values[inner]: graph.mlir_values[outer] for inner, outer in invariants}
    initial = [graph.handles[second.loop.index].operands[i] for i in carries]
    ops = [body.handles[op] for op in second.ops]
    count = second.counter
    rows = [body.mlir_values[v] for v in stored]
    scan = with_stacks(graph.handles[second.loop.index], rows, count.carry, count.steps)
    stacks = list(scan.results)[len(second.loop.results) :]
    returned = [body.mlir_values[body.returned[i]] for i in carries]
    counter = body.mlir_values[body.arguments[count.carry]]

    def step(index: Any, accumulated: Sequence[Any]) -> list[Any]:
        values = {**outside, counter: builders.convert(index, counter.type.element_type)}
        values.update(zip((body.mlir_values[body.arguments[i]] for i in carries), accumulated, strict=True))
        for row, stack in zip(rows, stacks, strict=True):
            values[row] = builders.reshaped(builders.slice_along(stack, 0, index, 1), list(row.type.shape))
        builders.repeat_ops(ops, values)
        return [values.get(v, v) for v in returned]

    with builders.building(graph.handles[second.loop.index + 1], scan.location):
        results = builders.while_loop(count.steps, initial, step)
    for i, result in zip(carries, results, strict=True):
        scan.results[i].replace_all_uses_with(result)
