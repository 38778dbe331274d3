"""recompute-residuals: what unrolled layers leave for their gradients is computed again there from the layers' inputs.

Before:
    %a = stablehlo.dot_general %x, %w
    %y = stablehlo.tanh %a
    ...                                        the layers after it, and their gradients, down to %d
    %g = stablehlo.multiply %d, (1 - %y * %y)
After:
    ...
    %x1, %w1, %d1 = stablehlo.optimization_barrier %x, %w, %d
    %a1 = stablehlo.dot_general %x1, %w1
    %y1 = stablehlo.tanh %a1
    %g = stablehlo.multiply %d1, (1 - %y1 * %y1)

So does `jax.checkpoint` around each layer, without a word in the program: where layers begin is found by how little is
handed on there (`rewriting.recomputation`). The barrier keeps compilers from merging the copies, and has them wait for
the gradient. Candidates drop what takes the least time per byte first, in all layers.

Refuses what has side effects or contains loops: what a scan stores is for `rematerialise`. Only for compilers that keep
barriers until kernels have an order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.fusion_classes import multiplies
from stablehlo_mem.analysis.peak_memory import Peak
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.barriers import grouped_barriers, next_group
from stablehlo_mem.ir.bindings import ir, run_passes
from stablehlo_mem.ir.graph import Graph, Path, entry_graph, nested_graph
from stablehlo_mem.ir.trip_count import block_runs
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Refusal, Step, and_others, prefix_lengths
from stablehlo_mem.pass_api.pass_protocol import Pass
from stablehlo_mem.rewriting.recomputation import Recomputation, Recomputed, Residuals, is_rearranged
from stablehlo_mem.rewriting.shard_map_pairs import PairedParams, apply_in_pair, in_pairs

_SHARES = (0.5, 0.75, 1.0)
"""Candidates drop at least so much of what can be dropped: a few for the planner to choose from."""
_LEAST_SHARE = 16
"""What frees less than the peak over this is left to other passes: with 64, descents end in many small steps."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecomputedResiduals(PairedParams):
    """What is computed again in a block.

    Attributes:
        path: of the block, from the entry function's.
        place: the op after which it is.
        segments: each with what is repeated.
        values: how many are dropped, for people.
    """

    path: Path
    place: int
    segments: tuple[Recomputed, ...]
    values: int


class RecomputeResiduals(Pass[RecomputedResiduals]):
    """The pass: finds values that wait at the peak for what comes after it."""

    name = "recompute-residuals"
    params_type = RecomputedResiduals

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
        """Candidates that drop ever more of the values that wait at the peak, in its block or in one around it."""
        if compiler_model(goal.chip).keeps_barriers:
            yield from _proposals(graph, peak, goal)
            yield from in_pairs(_proposals, graph, peak, goal)

    def describe(self, params: RecomputedResiduals) -> str:
        """How many values, in how many places."""
        places = len({segment.before for segment in params.segments})
        return f"{params.values} values in {places} place{'s' * (places > 1)}"

    def apply(self, module: ir.Module, params: RecomputedResiduals) -> None:
        """Repeats the ops of each segment, and has what comes after read the copies, in place."""
        apply_in_pair(module, params, _apply)


def _proposals(graph: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate]:
    for path, place in peak.ops_around:
        yield from candidates_at(graph, path, place, peak, goal)


def _apply(module: ir.Module, params: RecomputedResiduals) -> None:
    graph = nested_graph(entry_graph(module), params.path)
    group = next_group(module)
    latest: dict[Any, Any] = {}
    with module.context:
        for number, segment in enumerate(params.segments, group):
            _repeat(graph, segment, number, params.place, latest)
    run_passes(module, "canonicalize")


def candidates_at(main: Graph, path: Path, place: int, peak: Peak, goal: Goal) -> Iterator[Candidate]:
    """Candidates that drop ever more of the residuals around an op of a block."""
    graph = nested_graph(main, path)
    residuals = Residuals(graph, place, goal.chip)
    bytes_of = {v: graph.values[v].nbytes for v in residuals.droppable}
    alone = {v: residuals.added_seconds(residuals.ops_of([v], {v}) or ()) for v in bytes_of}
    order = sorted(bytes_of, key=lambda v: (alone[v] / bytes_of[v], v))
    if sum(bytes_of.values()) * _LEAST_SHARE < peak.temp_bytes:
        return
    sizes = (bytes_of[v] for v in order)
    for length in prefix_lengths(sizes, peak.temp_bytes - goal.temp_bytes, shares=_SHARES):
        dropped = order[:length]
        recomputation = residuals.recomputation_of(frozenset(dropped))
        if recomputation.segments:
            yield _candidate(main, path, place, dropped, recomputation)


def _candidate(main: Graph, path: Path, place: int, dropped: Sequence[int], recomputation: Recomputation) -> Candidate:
    graph = nested_graph(main, path)
    largest = max(dropped, key=lambda v: (graph.values[v].nbytes, -v))
    message = "computing it again where it is read frees nothing"
    refusal = Refusal.of_value(main, path, largest, "no-gain", message)
    params = RecomputedResiduals(path=path, place=place, segments=recomputation.segments, values=len(dropped))
    return Candidate(
        step=Step(RecomputeResiduals.name, "", params),
        saved_bytes=recomputation.nbytes - recomputation.kept_bytes,
        added_seconds=block_runs(main, path) * recomputation.seconds,
        numerics="exact",
        summary=f"compute {refusal.value}{and_others(len(dropped))} again later, instead of keeping it",
        identity=(RecomputeResiduals.name, path, largest),
        refusal_if_useless=refusal,
    )


def _repeat(graph: Graph, segment: Recomputed, group: int, place: int, latest: dict[Any, Any]) -> None:
    """Repeats the ops of a segment behind a barrier, and has what comes after read the copies.

    Args:
        latest: what to read in the place of values: earlier copies, and what was put behind barriers; it is added to.
    """
    anchor = graph.handles[segment.before]
    held = [graph.mlir_values[v] for v in dict.fromkeys((*segment.sources, *segment.awaited, *segment.gathered))]
    with builders.building(anchor, anchor.location):
        behind = grouped_barriers([latest.get(v, v) for v in held], group)
        copies = {**latest, **dict(zip(held, behind, strict=True))}
        builders.repeat_ops([graph.handles[op] for op in segment.ops], copies)
    replaced = [*(v for op in segment.ops for v in graph.ops[op].results), *segment.awaited]
    users = {user for v in replaced for user in graph.users[v]}
    users |= {user for v in segment.gathered for user in graph.users[v] if _leads_to_matmul(graph, user)}
    new = {graph.mlir_values[v]: copies[graph.mlir_values[v]] for v in (*replaced, *segment.gathered)}
    for user in sorted(users):
        if user > place and user >= segment.before:
            builders.rebind(graph.handles[user], {latest.get(v, v): copy for v, copy in new.items()})
    latest.update(new)


def _leads_to_matmul(graph: Graph, op: int) -> bool:
    """Whether an op is a matmul, or rearranges what one reads."""
    return multiplies(graph, graph.ops[op]) or is_rearranged(graph, graph.ops[op])
