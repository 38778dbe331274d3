"""stream-arguments: many arrays in the host's memory are read and updated one after the other, some rows at a time.

Before, with the moments %m1, %m2, ... of unstacked layers in the host's memory:
    %c1 = annotate_device_placement(%m1) "device"; %u1 = ...; %c2 = annotate_device_placement(%m2) "device"; ...
After:
    %u1 = while(...) { %c = annotate_device_placement(dynamic_slice %m1, %i) "device"; ... }
    %u2 = while(...) { ... }

Each array alone is small, so no split of one lowers the peak: all are alive at once, as compilers start copies early.
One step splits them all. It is exact: axes along which a sum would be regrouped are left alone.

Refuses nothing. Leaves alone what splits of single values do as well: a copy that alone is most of the peak.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from stablehlo_mem.analysis.fusion_classes import ELEMENTWISE, classify
from stablehlo_mem.analysis.host_link import copied_bytes, placements
from stablehlo_mem.analysis.live_ranges import Live, Peak
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import Graph, InternTable, entry_graph, producers_of, reachable
from stablehlo_mem.ir.host_memory import placed
from stablehlo_mem.pass_api.candidate import CHUNK_SHARE, Candidate, Goal, Refusal, Size, SizeParams, Step, StepParams
from stablehlo_mem.pass_api.pass_protocol import Pass
from stablehlo_mem.sharding_rules import rule_book
from stablehlo_mem.splitting.axis import grow_axis
from stablehlo_mem.splitting.emit_loops import emit_loops
from stablehlo_mem.splitting.host_slices import suits_host
from stablehlo_mem.splitting.loop_schedule import LoopSchedule
from stablehlo_mem.splitting.loop_scheduling import schedule_loops
from stablehlo_mem.splitting.regrouping import regroups
from stablehlo_mem.targets.chips import Chip
from stablehlo_mem.utils.units import format_bytes

_STEPS = (2, 8, 32)
"""Steps of the loops in which the largest array is copied: a few for the planner to choose from."""
_WHOLE = 8
"""Arguments of less than a chunk over this stay whole; others take two steps at least, however large a chunk may be
(chosen: compilers start the copies of whole arguments long before they are needed)."""
_UNNOTICED = 0.01
"""While the steps' overhead is below this share of the copying time, smaller numbers of steps are not offered: larger
chunks would gain nothing (chosen: estimates of time err by more)."""
_LEAST_COPIES = 3
"""Copies at the peak from which one step for all is proposed; splits of single values do for fewer."""


@dataclasses.dataclass(frozen=True)
class StreamSize(SizeParams):
    """The size of a step: see `StreamedArguments`."""

    chunk_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamedArguments(StepParams):
    """How arguments are streamed.

    Attributes:
        chunk_bytes: of one chunk of one of them, at most; much smaller arguments stay whole.
        arguments: how many there are, for people.
        again: whether updates of arguments that are read elsewhere too get copies of their own.
    """

    chunk_bytes: int
    arguments: int
    again: bool = False

    @property
    def size(self) -> StreamSize:
        """The size of the step."""
        return StreamSize(self.chunk_bytes)


class StreamArguments(Pass[StreamedArguments]):
    """The pass: finds programs that copy several arguments from the host as a whole."""

    name = "stream-arguments"
    params_type = StreamedArguments

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
        """Candidates in several sizes of the chunks, if what is made of several such copies is alive at the peak.

        The second one also updates what is read elsewhere too, and copies it again for that.
        """
        copies = _copies(graph)
        if len(copies) < _LEAST_COPIES:
            return
        loops, shared = _loops(graph), _updates_of_shared(graph)
        for streamed, again in ((list(loops), False), (copies, True)):
            alive = _made_of(graph, [v for v in streamed if v not in shared], peak)
            if len(alive) >= _LEAST_COPIES and bool(shared) >= again:
                yield _candidate(graph, streamed, sum(item.nbytes for item in alive), peak, goal, again=again)

    def describe(self, params: StreamedArguments) -> str:
        """How large the chunks are."""
        again = ", copied once more for their updates" if params.again else ""
        return f"{format_bytes(params.chunk_bytes)} at a time{again}"

    def apply(self, module: ir.Module, params: StreamedArguments) -> None:
        """Splits what is computed with each argument, in place."""
        skipped, interned = 0, InternTable()
        if params.again:
            _copy_for_updates(entry_graph(module, interned))
        while True:
            graph = entry_graph(module, interned)
            copies = [v for v in _copies(graph) if graph.values[v].nbytes * _WHOLE > params.chunk_bytes][skipped:]
            if not copies:
                return _merge_copies(graph)
            loop = _loop_over(graph, copies[0])
            chunk = _chunk(graph, copies[0], loop, params.chunk_bytes) if loop else None
            if loop is None or chunk is None:
                skipped += 1
                continue
            with module.context:
                emit_loops(graph, loop, chunk)


def _candidate(
    graph: Graph, streamed: list[int], alive_bytes: int, peak: Peak, goal: Goal, *, again: bool
) -> Candidate:
    """The candidate that streams some copies, of whose results so many bytes are alive at the peak."""
    loops, shared = _loops(graph), _updates_of_shared(graph) if again else {}
    largest = max(streamed, key=lambda v: (graph.values[v].nbytes, -v))
    nbytes = graph.values[largest].nbytes
    # Of what has no loop yet: each is copied to the device and, of the updated ones, to the host.
    alike = [v for v in streamed if graph.values[v].shape == graph.values[largest].shape]
    copied = _copied_bytes(graph, loops[largest]) if largest in loops else 2 * len(alike) * nbytes
    again_seconds = sum(graph.values[v].nbytes for v in shared) / (goal.chip.host_link_bytes_per_second or math.inf)
    sizes = tuple(
        Size(
            StreamSize(chunk_bytes=max(1, nbytes // steps)),
            saved_bytes=alive_bytes - copied // steps,
            added_seconds=again_seconds + len(streamed) * steps * goal.chip.step_seconds,
            moved_seconds=0.0,
        )
        for steps in _worthwhile(graph, streamed, goal.chip)
    )
    place, value = ((), graph.values[largest].producer), f"copies of {len(streamed)} arguments"
    candidate = Candidate(
        step=Step(
            StreamArguments.name, "", StreamedArguments(chunk_bytes=nbytes, arguments=len(streamed), again=again)
        ),
        saved_bytes=0,
        added_seconds=0.0,
        numerics="exact",
        summary=f"copy {len(streamed)} arguments from the host one after the other",
        identity=(StreamArguments.name, again),
        refusal_if_useless=Refusal.at(graph, place, value, nbytes, "no-gain", "streaming them frees nothing"),
        sizes=sizes,
    )
    # A step takes its share of the goal at most, whatever is at the peak afterwards: no later step makes it smaller, as
    # loops in it could write nothing to the host, and more of them cost next to nothing.
    wanted = max(peak.temp_bytes - goal.temp_bytes, alive_bytes - CHUNK_SHARE * goal.temp_bytes)
    return candidate.resized(next((s for s in sizes if s.saved_bytes >= wanted), sizes[-1]))


def _copies(graph: Graph) -> list[int]:
    """The copies of whole arguments that a function's block makes on the device."""
    found = (graph.ops[op] for op in placements(graph) if copied_bytes(graph, op, to_host=False))
    return [op.results[0] for op in found if op.operands[0] in graph.arguments]


def _worthwhile(graph: Graph, copies: list[int], chip: Chip) -> Iterator[int]:
    """The numbers of steps to choose from: the largest with an overhead below `_UNNOTICED`, and all above."""
    unnoticed = _UNNOTICED * sum(graph.values[v].nbytes for v in copies) / (chip.host_link_bytes_per_second or math.inf)
    few = [steps for steps in _STEPS if len(copies) * steps * chip.step_seconds <= unnoticed]
    return (steps for steps in _STEPS if steps >= max(few, default=0))


@cached_analysis
def _updates_of_shared(graph: Graph) -> dict[int, list[int]]:
    """The copies that elementwise updates of arguments read, and others too: each with its users among the former.

    An axis of a table that is looked up, or multiplied by, and then updated, would take the lookup along.
    """
    to_host = [op for op in placements(graph) if copied_bytes(graph, op, to_host=True)]
    updates = reachable(to_host, lambda op: [p for p in producers_of(graph)[op] if _is_elementwise(graph, p)])
    users = {value: [user for user in graph.users[value] if user in updates] for value in _copies(graph)}
    return {value: found for value, found in users.items() if 0 < len(found) < len(graph.users[value])}


def _copy_for_updates(graph: Graph) -> None:
    """Gives updates of arguments that are read elsewhere too copies of their own, in place."""
    for value, users in _updates_of_shared(graph).items():
        shared = graph.handles[graph.values[value].producer]
        with builders.building(graph.handles[min(users)], shared.location):
            own = placed(shared.operands[0], "device")
        for user in users:
            builders.rebind(graph.handles[user], {shared.results[0]: own})


def _is_elementwise(graph: Graph, op: int) -> bool:
    return classify(graph, graph.ops[op]) in ELEMENTWISE


def _merge_copies(graph: Graph) -> None:
    """Leaves one copy of each argument, in place, of those that were not split."""
    firsts: dict[int, int] = {}
    for value in _copies(graph):
        producer = graph.values[value].producer
        first = firsts.setdefault(graph.ops[producer].operands[0], value)
        if first != value:
            graph.mlir_values[value].replace_all_uses_with(graph.mlir_values[first])
            graph.handles[producer].erase()


def _made_of(graph: Graph, copies: list[int], peak: Peak) -> list[Live]:
    """The values of a function's block at the peak that are copies of arguments, or computed from some."""
    first = [graph.values[v].producer for v in copies]
    ops = reachable(first, lambda op: [user for v in graph.ops[op].results for user in graph.users[v]])
    return [item for item in peak.live if item.path == () and graph.values[item.value].producer in ops]


def _copied_bytes(graph: Graph, loop: LoopSchedule) -> int:
    """Bytes that all steps of a loop together have on the device of what they copy from the host, and to it."""
    copies = (op for op in placements(graph) if op in loop.inner_ops)
    return sum(copied_bytes(graph, op, to_host=to_host) for op in copies for to_host in (True, False))


@cached_analysis
def _loops(graph: Graph) -> dict[int, LoopSchedule]:
    """The loop of each copy that has one; those in one loop share it."""
    loops: dict[int, LoopSchedule] = {}
    copies = _copies(graph)
    for value in copies:
        loop = None if value in loops else _loop_over(graph, value)
        if loop is not None:
            loops.update((v, loop) for v in copies if graph.values[v].producer in loop.inner_ops)
    return loops


def _loop_over(graph: Graph, value: int) -> LoopSchedule | None:
    """The loop along the first dimension of a copy in which all that is made of it runs, no sum regrouped.

    The last dimension is left out: TPUs write no slices along it to the host's memory. All values of as many elements
    take part, whatever their types.
    """
    copy = graph.values[value]
    for dimension in (d for d, size in enumerate(copy.shape[:-1]) if size > 1):
        axis = grow_axis(graph, rule_book(graph), (value, dimension), min(copy.nbytes, math.prod(copy.shape)))
        schedule = schedule_loops(graph, axis)
        if schedule is not None and schedule.loop_count == 1 and not regroups(schedule):
            return schedule
    return None


def _chunk(graph: Graph, copy: int, loop: LoopSchedule, chunk_bytes: int) -> int | None:
    """The elements of the axis in one step, None if the compiler copies no part of it."""
    most = max(1, min(loop.axis.n * chunk_bytes // graph.values[copy].nbytes, loop.axis.n // 2))
    sizes = (*range(most, 0, -1), *range(most + 1, loop.axis.n))
    suits = suits_host(graph, loop.axis)
    return next((size for size in sizes if loop.axis.n % size == 0 and suits(size)), None)
