"""The states of the search: a module with its graph and peak, and the steps applied so far.

The searches of `planner/` go from state to state by `apply` and `with_decision`; the plan cache replays by `take`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.cost_model import graph_flops, graph_seconds
from stablehlo_mem.analysis.peak_memory import Peak, find_peak
from stablehlo_mem.errors import PassError
from stablehlo_mem.frontend.canonicalize import attach_rules, canonicalize, remove_rules
from stablehlo_mem.frontend.program import Program
from stablehlo_mem.ir.bindings import clone_module, fingerprint, ir
from stablehlo_mem.ir.graph import Graph, InternTable, entry_graph, len_ops
from stablehlo_mem.ir.shards import constrain_places
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Identity, Step
from stablehlo_mem.passes import pass_named
from stablehlo_mem.results.decision import Decision
from stablehlo_mem.rewriting.finish_before_loops import finish_before_loops
from stablehlo_mem.rewriting.hold_copies import hold_copies
from stablehlo_mem.rewriting.join_barriers import join_barriers
from stablehlo_mem.rewriting.order_dots import order_dots
from stablehlo_mem.rewriting.slice_as_integers import slice_as_integers
from stablehlo_mem.rewriting.write_over_arguments import write_over_arguments
from stablehlo_mem.targets.chips import Chip
from stablehlo_mem.targets.target import Target
from stablehlo_mem.utils import gc_pause

_MAX_CACHED_OPS = 200_000
"""Ops of all the modules in a `SuccessorCache`: 0.5 GB, as an op of GPT-2's step takes 2.4 KB with module and graph."""


class SuccessorCache:
    """The states after candidates that were tried in one search; those used least recently are dropped."""

    def __init__(self) -> None:
        self._states: OrderedDict[Hashable, SearchState] = OrderedDict()
        self._ops = 0

    def get(self, key: Hashable, compute: Callable[[], SearchState]) -> SearchState:
        """The state of a key, computed if it is not here or was dropped."""
        if key in self._states:
            self._states.move_to_end(key)
            return self._states[key]
        state = self._states[key] = compute()
        self._ops += len_ops(state.graph)
        while self._ops > _MAX_CACHED_OPS and len(self._states) > 1:
            _, dropped = self._states.popitem(last=False)
            self._ops -= len_ops(dropped.graph)
        return state


@dataclasses.dataclass(frozen=True)
class SearchState:
    """A module with its graph and static peak, and the steps that led to it.

    Attributes:
        tried: the candidate of the last step, of which `with_decision` makes a decision.
        first: the identity of the first candidate that was taken.
        added_seconds, moved_seconds: the sums of the candidates' estimates.
        successors: the states tried in this search.
    """

    module: ir.Module
    graph: Graph
    peak: Peak
    chip: Chip
    steps: tuple[Step, ...] = ()
    tried: Candidate | None = None
    decisions: tuple[Decision, ...] = ()
    first: Identity | None = None
    added_seconds: float = 0.0
    moved_seconds: float = 0.0
    successors: SuccessorCache = dataclasses.field(default_factory=SuccessorCache, repr=False, compare=False)

    @property
    def fingerprint(self) -> str:
        """The module's fingerprint, cached as many candidates are tried on one module."""
        return self.graph.cache.get("fingerprint", (), lambda: fingerprint(self.module))

    @functools.cached_property
    def flops(self) -> float:
        """Arithmetic of one execution."""
        return graph_flops(self.graph, self.chip)

    @functools.cached_property
    def seconds(self) -> float:
        """The estimated time of one execution."""
        return graph_seconds(self.graph, self.chip) + self.moved_seconds

    @property
    def regroups(self) -> bool:
        """Whether a decision regroups sums."""
        return any(decision.numerics != "exact" for decision in self.decisions)


@gc_pause.kept()
def start(module: ir.Module, goal: Goal, interned: InternTable | None = None) -> SearchState:
    """The state of a canonical module before any step; it is not edited. `interned` is shared with earlier graphs."""
    graph = entry_graph(module, interned)
    return SearchState(module, graph, find_peak(graph, goal.chip), goal.chip)


def start_of(program: Program, goal: Goal) -> SearchState:
    """The state of an unchanged program in canonical form; the program's own module is not edited."""
    module = clone_module(program.module)
    canonicalize(module)
    return start(module, goal)


def apply(state: SearchState, candidate: Candidate, goal: Goal) -> SearchState:
    """The state after a candidate's step, on a clone.

    Raises:
        PassError: the pass left an invalid module: a bug.
    """
    step = dataclasses.replace(candidate.step, input_fingerprint=state.fingerprint)
    return dataclasses.replace(
        _after_step(state, dataclasses.replace(candidate, step=step), goal),
        steps=(*state.steps, step),
        tried=dataclasses.replace(candidate, step=step, apply_to_copy=None),
        decisions=state.decisions,
        first=state.first or candidate.identity,
        added_seconds=state.added_seconds + candidate.added_seconds,
        moved_seconds=state.moved_seconds + candidate.moved_seconds,
        successors=state.successors,
    )


def _after_step(state: SearchState, candidate: Candidate, goal: Goal) -> SearchState:
    """The state of the module after a candidate's step, without its history."""
    key = state.fingerprint, goal.chip, candidate.step.pass_name, *_effect(candidate)
    return state.successors.get(key, lambda: _changed(state, candidate, goal))


@gc_pause.kept()
def _changed(state: SearchState, candidate: Candidate, goal: Goal) -> SearchState:
    module = clone_module(state.module)
    take(module, candidate.step, state.steps, candidate.apply_to_copy)
    return start(module, goal, state.graph.interned)


def _effect(candidate: Candidate) -> tuple[Hashable, Hashable]:
    """The identity of a candidate's effect: its `dedup_key` and size, or its whole decision without a key."""
    params = candidate.step.params
    return candidate.dedup_key, params if candidate.dedup_key is None else params.size


def take(
    module: ir.Module, step: Step, before: Iterable[Step], edit: Callable[[ir.Module, Any], None] | None = None
) -> None:
    """Applies a step to a module in place.

    Args:
        before: the steps applied earlier, for the error.
        edit: see `Candidate.apply_to_copy`.

    Raises:
        PassError: the step is for another module, or the pass left an invalid one: a bug.
    """
    try:
        (edit or pass_named(step.pass_name).apply)(module, step.params)
        module.operation.verify()
    except Exception as error:
        raise PassError(step.pass_name, str(error), tuple(s.pass_name for s in before)) from error
    attach_rules(module)


def as_returned(module: ir.Module, targets: Iterable[Target]) -> ir.Module:
    """A copy of a state's module in the form in which it is compiled for some targets and returned."""
    clone = clone_module(module)
    compilers = [compiler_model(target.chip) for target in targets]
    join_barriers(clone)
    write_over_arguments(clone, delayed=any(compiler.needs_delayed_writes for compiler in compilers))
    hold_copies(clone)
    finish_before_loops(clone)
    slice_as_integers(clone, frozenset().union(*(compiler.widens_slices for compiler in compilers)))
    constrain_places(clone)  # of the dots as they are in normal form
    order_dots(clone, frozenset().union(*(compiler.ordered_dots for compiler in compilers)))
    remove_rules(clone)
    return clone


def with_decision(before: SearchState, after: SearchState) -> SearchState:
    """The state after a step that is taken and not only tried: with its decision and what that changed."""
    assert after.tried is not None
    step = after.tried.step
    decision = Decision(
        pass_name=step.pass_name,
        what=after.tried.summary,
        how=pass_named(step.pass_name).describe(step.params),
        location=after.tried.refusal_if_useless.location,
        numerics=after.tried.numerics,
        saved_bytes=before.peak.temp_bytes - after.peak.temp_bytes,
        added_seconds=after.seconds - before.seconds,
        added_flops=after.flops - before.flops,
    )
    return dataclasses.replace(after, decisions=(*before.decisions, decision))
