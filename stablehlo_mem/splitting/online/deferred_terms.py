"""How chunks depend on row statistics that are pending in a loop: not at all, or by terms that can be deferred.

A term says that a value is `x op statistic`: softmax's `exp(x - m) / l` has the terms exp(0 - m) and `divide l`.
Linear ops pass terms on, so that they can be applied to what is accumulated, after the loop. A value that depends on
pending statistics in any other way must wait for a later loop. Used by `online_reductions`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from stablehlo_mem.ir.graph import FLOATS, Graph, Op, dtype_bytes
from stablehlo_mem.ir.matchers import converts_floats, splat_value
from stablehlo_mem.sharding_rules import rule_of
from stablehlo_mem.sharding_rules.factor_rule import FactorRule, SplitOp
from stablehlo_mem.sharding_rules.halo import Use
from stablehlo_mem.sharding_rules.linear_ops import linear_groups
from stablehlo_mem.splitting.online.running_max import RowDims, RunningMaxima, RunningStatistic
from stablehlo_mem.splitting.partial_schedule import PartialSchedule

_TERM_OPS = ("stablehlo.add", "stablehlo.subtract", "stablehlo.multiply", "stablehlo.divide")
_VIEWS = ("stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.transpose", "stablehlo.optimization_barrier")
_WITH_REDUCERS = ("stablehlo.reduce", "stablehlo.scatter")
_ADDING = ("stablehlo.add", "stablehlo.subtract", "stablehlo.reduce")
"""Ops that add their operands up: a zero operand stays without effect whatever the term is."""


@dataclasses.dataclass(frozen=True, slots=True)
class DeferredTerm:
    """That a value is `x op statistic`, or `x · exp(0 op statistic)`, for an x that does not depend on the statistic.

    Attributes:
        op: add, subtract, multiply or divide.
        statistic: a pending value without the axis.
        dims: where its dimensions lie in the value.
        running: how it follows a running maximum that is no smaller than any x; None: the term can only be left out.
        exponential: the second kind.
    """

    op: str
    statistic: int
    dims: RowDims
    running: RunningStatistic | None = None
    exponential: bool = False

    @property
    def is_additive(self) -> bool:
        """Whether the term is added, not multiplied."""
        return self.op in ("add", "subtract") and not self.exponential

    @property
    def rescales(self) -> bool:
        """Whether the loop computes the term from the running maximum, and rescales accumulators as that grows."""
        return self.exponential and self.running is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Dependence:
    """How a value depends on pending statistics: it is one, broadcast along these dimensions, or it has terms."""

    broadcast: tuple[int, RowDims] | None = None
    terms: tuple[DeferredTerm, ...] = ()

    @property
    def has_two_versions(self) -> bool:
        """Whether it exists in the loop with running maxima and without any term."""
        return self.broadcast is not None or any(term.is_additive for term in self.terms)


@dataclasses.dataclass(frozen=True, slots=True)
class TermOp:
    """An op that brings in a term: the position of the operand x, and whether the term has a running version."""

    position: int
    running: bool


_INDEPENDENT = Dependence()


class DeferredTerms:
    """The dependences of split ops on what is pending in one loop."""

    def __init__(self, graph: Graph, schedule: PartialSchedule, loop: int):
        self.graph, self.schedule = graph, schedule
        self.dependences: dict[SplitOp, Dependence | None] = {}
        self.term_ops: dict[SplitOp, TermOp] = {}
        self.maxima = RunningMaxima(graph, schedule, loop)

    def of_reduction(self, split_op: SplitOp) -> tuple[DeferredTerm, ...]:
        """The terms to apply to what a reduction accumulates in this loop; () if it cannot run in it."""
        dependence = self.of(split_op)
        if dependence is None or dependence.broadcast is not None:
            return ()
        picks = self.graph.ops[split_op.op].name == "stablehlo.gather"
        if not picks and any(term.is_additive for term in dependence.terms):
            return ()
        ready = all(self.maxima.ops_from_outputs(term.statistic) is not None for term in dependence.terms)
        return dependence.terms if ready else ()

    def with_two_versions(self) -> Iterator[SplitOp]:
        """The split ops that exist with running maxima and without."""
        return (split_op for split_op, d in self.dependences.items() if d is not None and d.has_two_versions)

    def of(self, split_op: SplitOp) -> Dependence | None:
        """How a split op's result depends on pending statistics; None if not by terms alone."""
        if split_op not in self.dependences:
            # What runs in this loop or before it as the program is written needs nothing pending.
            early = self.schedule.first_loop.get(split_op, math.inf) <= self.maxima.loop
            self.dependences[split_op] = _INDEPENDENT if early else self._derive(split_op)
        return self.dependences[split_op]

    def _derive(self, split_op: SplitOp) -> Dependence | None:
        op = self.graph.ops[split_op.op]
        operands: list[Dependence] = []
        for value, use in zip(op.inputs, split_op.uses(op.inputs), strict=True):
            dependence = self._of_operand(value, use)
            if dependence is None:
                return None
            operands.append(dependence)
        if all(d == _INDEPENDENT for d in operands):
            # A scan against the loop's direction runs later though all it needs is there.
            return None if split_op in self.schedule.first_loop else _INDEPENDENT
        if not split_op.is_local or len(op.results) != 1 or (op.blocks and op.name not in _WITH_REDUCERS):
            return None
        dependent = (v for v, d in zip(op.inputs, operands, strict=True) if d != _INDEPENDENT)
        if any(self.graph.values[v].dtype not in FLOATS for v in dependent):
            return None
        return self._through(split_op, op, operands)

    def _of_operand(self, value: int, use: Use | None) -> Dependence | None:
        if use is None:
            rank = len(self.graph.values[value].shape)
            return Dependence((value, tuple(range(rank)))) if self.maxima.is_pending(value) else _INDEPENDENT
        source = self.schedule.producers.get(use)
        if source is None:
            return None if self.maxima.is_pending(value) else _INDEPENDENT
        return self.of(source)

    def _through(self, split_op: SplitOp, op: Op, operands: list[Dependence]) -> Dependence | None:
        """The dependence of an op's result from those of its operands."""
        broadcasts = [position for position, d in enumerate(operands) if d.broadcast]
        if broadcasts and op.name in _TERM_OPS:
            return self._new_term(split_op, op, operands, broadcasts)
        if op.name == "stablehlo.exponential":
            return _exponential(operands[0])
        if broadcasts:
            return self._moved_broadcast(op, operands[0]) if op.name in _VIEWS and broadcasts == [0] else None
        if any(d.has_two_versions for d in operands):
            return self._additive(op, operands)
        return self._linear(op, operands)

    def _new_term(self, split_op: SplitOp, op: Op, operands: list[Dependence], at: list[int]) -> Dependence | None:
        """`x op statistic`, where the operands at some positions are broadcast statistics."""
        name = op.name.removeprefix("stablehlo.")
        if len(at) != 1 or (at == [0] and name in ("subtract", "divide")):
            return None
        position = 1 - at[0]
        x, broadcast = operands[position], operands[at[0]].broadcast
        assert broadcast is not None
        term = DeferredTerm(name, *broadcast)
        if term.is_additive != x.has_two_versions and x.terms:
            return None
        if not term.is_additive and not self._stays_in_range(op, x.terms):
            return None
        if name == "subtract" and not x.terms:
            term = dataclasses.replace(term, running=self.maxima.subtracted_from(op.operands[0], *broadcast))
        self.term_ops[split_op] = TermOp(position, term.running is not None)
        return Dependence(terms=(*x.terms, term))

    def _stays_in_range(self, op: Op, terms: tuple[DeferredTerm, ...]) -> bool:
        """Whether a value does not overflow without the terms that are left out: f16 may."""
        return self.graph.values[op.results[0]].dtype != "f16" or any(term.rescales for term in terms)

    def _moved_broadcast(self, op: Op, dependence: Dependence) -> Dependence | None:
        assert dependence.broadcast is not None
        statistic, dims = dependence.broadcast
        moved = self._moved(op, 0, dims)
        return None if moved is None else Dependence((statistic, moved))

    def _additive(self, op: Op, operands: list[Dependence]) -> Dependence | None:
        """Ops that pass additive terms on: views, widening converts, gathers, and more that is added.

        Narrowed before the sum, x and the statistic would lose what cancels.
        """
        if op.name in ("stablehlo.add", "stablehlo.subtract"):
            first, second = operands
            if second.terms and (first.terms or op.name == "stablehlo.subtract"):
                return None
            terms = first.terms or second.terms
            return Dependence(terms=tuple(dataclasses.replace(term, running=None) for term in terms))
        if not operands[0].terms or any(d.terms for d in operands[1:]):
            return None
        if op.name not in (*_VIEWS, "stablehlo.gather") and not self._widens(op):
            return None
        return self._moved_terms(op, 0, operands[0].terms)

    def _widens(self, op: Op) -> bool:
        before, after = (dtype_bytes(self.graph.values[v].dtype) for v in (op.inputs[0], op.results[0]))
        return converts_floats(self.graph, op) and before <= after

    def _linear(self, op: Op, operands: list[Dependence]) -> Dependence | None:
        """What is linear in a group of operands has the terms they share; of several groups it has all."""
        if converts_floats(self.graph, op):
            return operands[0] if self._stays_in_range(op, operands[0].terms) else None
        groups = linear_groups(self.graph.handles[op.index])
        if any(operands[p].terms for p in range(len(operands)) if not any(p in group for group in groups)):
            return None
        terms: tuple[DeferredTerm, ...] = ()
        for group in groups:
            of_group = self._common_terms(op, operands, group)
            if of_group is None:
                return None
            terms += of_group
        return Dependence(terms=terms) if self._stays_in_range(op, terms) else None

    def _common_terms(
        self, op: Op, operands: list[Dependence], group: tuple[int, ...]
    ) -> tuple[DeferredTerm, ...] | None:
        """The terms that all of a group's operands have, zeros aside, as they lie in the result; None: they differ."""
        if not any(operands[p].terms for p in group):
            return ()
        zeros = [p for p in group if not operands[p].terms and splat_value(self.graph, op.operands[p]) == 0]
        moved = {self._moved_terms(op, p, operands[p].terms) for p in group if p not in zeros}
        common = moved.pop()
        if moved or common is None or not common.terms:
            return None
        # In the program a zero stays zero, also where 0 · term would be NaN.
        finite = all(t.rescales and t.running is not None and t.running.finite for t in common.terms)
        return common.terms if not zeros or op.name in _ADDING or finite else None

    def _moved_terms(self, op: Op, position: int, terms: tuple[DeferredTerm, ...]) -> Dependence | None:
        moved: list[DeferredTerm] = []
        for term in terms:
            dims = self._moved(op, position, term.dims)
            if dims is None:
                return None
            moved.append(dataclasses.replace(term, dims=dims))
        return Dependence(terms=tuple(moved))

    def _moved(self, op: Op, position: int, dims: RowDims) -> RowDims | None:
        """Where the dimensions of an operand lie in the result; None if one is not there as a whole."""
        rule = rule_of(self.graph, op.index)
        if rule is None:
            return None
        before, after = (self.graph.values[v].shape for v in (op.inputs[position], op.results[0]))
        places: list[int | None] = []
        for dim in dims:
            if dim is None or before[dim] == 1:
                places.append(None)
                continue
            factors = _factors(rule, rule.operands[position][dim])
            to = [d for d, f in enumerate(rule.results[0]) if _factors(rule, f) == factors and after[d] == before[dim]]
            if len(to) != 1 or any(rule.reason(f) for f in factors):
                return None
            places.append(to[0])
        return tuple(places)


def _exponential(x: Dependence) -> Dependence | None:
    """exp(x ± a ± b) is exp(x) · exp(±a) · exp(±b). exp(x) alone may overflow: one of the terms must be running."""
    if x.broadcast or not all(term.is_additive for term in x.terms) or not any(term.running for term in x.terms):
        return None
    return Dependence(terms=tuple(dataclasses.replace(term, exponential=True) for term in x.terms))


def _factors(rule: FactorRule, factors: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(f for f in factors if rule.sizes[f] != 1)
