"""How values depend on reductions over the axis that are not finished: not at all, or by *terms*.

A term is a value without the axis, the same for all of a row, that the rest is added to, multiplied with and so on.
Linear ops pass terms on; what depends on the unfinished in any other way has no form.
"""

from __future__ import annotations

import dataclasses
import math

from stablehlo_mem.ir.graph import FLOATS, Graph, Op, dtype_bytes
from stablehlo_mem.ir.matchers import splat_value
from stablehlo_mem.sharding_rules import rule_of
from stablehlo_mem.sharding_rules.factor_rule import Rule, SplitOp
from stablehlo_mem.sharding_rules.halo import Use
from stablehlo_mem.sharding_rules.linear_ops import linear_groups
from stablehlo_mem.splitting.online.running_max import Dims, Levels, Maxima, Running, converts_floats


@dataclasses.dataclass(frozen=True, slots=True)
class DeferredTerm:
    """That a value is `x op whole`, or `x · exp(0 op whole)`, for an x that does not depend on `whole`.

    Attributes:
        op: add, subtract, multiply or divide.
        whole: a value without the axis.
        dims: where its dimensions lie in the value.
        running: how it follows a maximum that is no smaller than any x; None where the term can only be left out.
        exponential: the second form.
    """

    op: str
    whole: int
    dims: Dims
    running: Running | None = None
    exponential: bool = False

    @property
    def shifts(self) -> bool:
        """Whether the term is added, not multiplied."""
        return self.op in ("add", "subtract") and not self.exponential

    @property
    def scales_down(self) -> bool:
        """Whether the term is kept in the loop, and what was summed up before is scaled down as it grows."""
        return self.exponential and self.running is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """How a value depends on what is not finished: it shows a `spread` whole value, or has terms."""

    spread: tuple[int, Dims] | None = None
    terms: tuple[DeferredTerm, ...] = ()

    @property
    def shifted(self) -> bool:
        """Whether it exists in two versions in the loop: with what runs, and without any term."""
        return self.spread is not None or any(term.shifts for term in self.terms)


@dataclasses.dataclass(frozen=True, slots=True)
class Adjusting:
    """An op that brings in a term: the operand it is done to, and whether the term is one that runs."""

    position: int
    runs: bool


_CLOSED = Form()


class DeferredTerms:
    """The forms of split ops in one loop: what is there before it begins is closed, the rest is open."""

    def __init__(self, graph: Graph, levels: Levels, loop: int):
        self.graph, self.levels = graph, levels
        self.forms: dict[SplitOp, Form | None] = {}
        self.adjusting: dict[SplitOp, Adjusting] = {}
        self.maxima = Maxima(graph, levels, loop)
        self.rules: dict[int, Rule | None] = {}

    def of(self, split_op: SplitOp) -> Form | None:
        """The form of a split op's result, None if it depends on open values in any other way."""
        if split_op not in self.forms:
            # What runs in this loop or before it without streaming depends on nothing open: its operands are not asked.
            closed = self.levels.phase_of.get(split_op, math.inf) <= self.maxima.loop
            self.forms[split_op] = _CLOSED if closed else self._derive(split_op)
        return self.forms[split_op]

    def _derive(self, split_op: SplitOp) -> Form | None:
        op = self.graph.ops[split_op.op]
        operands: list[Form] = []
        for value, use in zip(op.inputs, split_op.uses(op.inputs), strict=True):
            form = self._operand(value, use)
            if form is None:
                return None
            operands.append(form)
        if all(form == _CLOSED for form in operands):
            # What runs the other way has been put off, though all it needs is there.
            return None if split_op in self.levels.phase_of else _CLOSED
        if not split_op.is_local or len(op.results) != 1 or (op.blocks and op.name not in _WITH_REDUCERS):
            return None
        of_open = (v for v, form in zip(op.inputs, operands, strict=True) if form != _CLOSED)
        if any(self.graph.values[v].dtype not in FLOATS for v in of_open):
            return None
        return self._formed(split_op, op, operands)

    def _operand(self, value: int, use: Use | None) -> Form | None:
        if use is None:
            rank = len(self.graph.values[value].shape)
            return Form(spread=(value, tuple(range(rank)))) if self.maxima.is_open(value) else _CLOSED
        source = self.levels.source(use)
        if source is None:
            return None if self.maxima.is_open(value) else _CLOSED
        return self.of(source)

    def _formed(self, split_op: SplitOp, op: Op, operands: list[Form]) -> Form | None:
        spreads = [position for position, form in enumerate(operands) if form.spread]
        if spreads and op.name in _ADJUSTING:
            return self.adjusted(split_op, op, operands, spreads)
        if op.name == "stablehlo.exponential":
            return _exponential(operands[0])
        if spreads:
            return self._moved_spread(op, operands[0]) if op.name in _VIEWS and spreads == [0] else None
        if any(form.shifted for form in operands):
            return self.shifted(op, operands)
        return self.scaled(op, operands)

    def adjusted(self, split_op: SplitOp, op: Op, operands: list[Form], spreads: list[int]) -> Form | None:
        """A value that is added to, subtracted from, multiplied with or divided by a spread whole value."""
        name = op.name.removeprefix("stablehlo.")
        if len(spreads) != 1 or (spreads == [0] and name in ("subtract", "divide")):
            return None
        position = 1 - spreads[0]
        form, spread = operands[position], operands[spreads[0]].spread
        assert spread is not None
        term = DeferredTerm(name, *spread)
        if term.shifts != form.shifted and form.terms:
            return None
        if not term.shifts and not self.stays_in_range(op, form.terms):
            return None
        if name == "subtract" and not form.terms:
            term = dataclasses.replace(term, running=self.maxima.dominating(op.operands[0], *spread))
        self.adjusting[split_op] = Adjusting(position, term.running is not None)
        return Form(terms=(*form.terms, term))

    def stays_in_range(self, op: Op, terms: tuple[DeferredTerm, ...]) -> bool:
        """Whether a value is not too large without the terms that are left out: f16 is narrow."""
        return self.graph.values[op.results[0]].dtype != "f16" or any(term.scales_down for term in terms)

    def _moved_spread(self, op: Op, form: Form) -> Form | None:
        assert form.spread is not None
        whole, dims = form.spread
        moved = self.moved(op, 0, dims)
        return None if moved is None else Form(spread=(whole, moved))

    def shifted(self, op: Op, operands: list[Form]) -> Form | None:
        """What keeps sums with a whole value: views, widening and picking elements; more may be added to them.

        Narrowed first and summed then they would lose what cancels.
        """
        if op.name in ("stablehlo.add", "stablehlo.subtract"):
            first, second = operands
            if second.terms and (first.terms or op.name == "stablehlo.subtract"):
                return None
            return Form(terms=tuple(dataclasses.replace(t, running=None) for t in first.terms or second.terms))
        if not operands[0].terms or any(form.terms for form in operands[1:]):
            return None
        if op.name not in (*_VIEWS, "stablehlo.gather") and not self._widens(op):
            return None
        return self._moved_terms(op, 0, operands[0].terms)

    def _widens(self, op: Op) -> bool:
        before, after = (dtype_bytes(self.graph.values[v].dtype) for v in (op.inputs[0], op.results[0]))
        return converts_floats(self.graph, op) and before <= after

    def scaled(self, op: Op, operands: list[Form]) -> Form | None:
        """What is linear in operands of the same terms has these terms; of several such groups it has all."""
        if converts_floats(self.graph, op):
            return operands[0] if self.stays_in_range(op, operands[0].terms) else None
        groups = linear_groups(self.graph.handles[op.index])
        if any(operands[p].terms for p in range(len(operands)) if not any(p in group for group in groups)):
            return None
        terms: tuple[DeferredTerm, ...] = ()
        for group in groups:
            of_group = self.common_terms(op, operands, group)
            if of_group is None:
                return None
            terms += of_group
        return Form(terms=terms) if self.stays_in_range(op, terms) else None

    def common_terms(self, op: Op, operands: list[Form], group: tuple[int, ...]) -> tuple[DeferredTerm, ...] | None:
        """The terms that all of a group's operands have but those of zeros, as they lie in the result."""
        if not any(operands[p].terms for p in group):
            return ()
        zeros = [p for p in group if not operands[p].terms and splat_value(self.graph, op.operands[p]) == 0]
        found = {self._moved_terms(op, p, operands[p].terms) for p in group if p not in zeros}
        form = found.pop()
        if found or form is None or not form.terms:
            return None
        # A zero among them stays zero in the program whatever the term is, also where 0 · term would be NaN.
        harmless = not zeros or op.name in _ADDING or all(t.scales_down and _is_finite(t) for t in form.terms)
        return form.terms if harmless else None

    def _moved_terms(self, op: Op, position: int, terms: tuple[DeferredTerm, ...]) -> Form | None:
        moved: list[DeferredTerm] = []
        for term in terms:
            dims = self.moved(op, position, term.dims)
            if dims is None:
                return None
            moved.append(dataclasses.replace(term, dims=dims))
        return Form(terms=tuple(moved))

    def moved(self, op: Op, position: int, dims: Dims) -> Dims | None:
        """Where the dimensions of an operand lie in the result; None if one is not there as a whole."""
        if op.index not in self.rules:
            self.rules[op.index] = rule_of(self.graph, op.index)
        rule = self.rules[op.index]
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

    def can_follow(self, split_op: SplitOp, terms: tuple[DeferredTerm, ...]) -> bool:
        """Whether a reduction may run in this loop: its terms are there after it, and do no harm before."""
        picks = self.graph.ops[split_op.op].name == "stablehlo.gather"
        if not terms or (any(term.shifts for term in terms) and not picks):
            return False
        return all(self.maxima.chain(term.whole) is not None for term in terms)


def _exponential(form: Form) -> Form | None:
    """exp(x ± a ± b) is exp(x) · exp(±a) · exp(±b): without all of them it may overflow, so one must run."""
    if form.spread or not all(term.shifts for term in form.terms) or not any(t.running for t in form.terms):
        return None
    return Form(terms=tuple(dataclasses.replace(term, exponential=True) for term in form.terms))


def _is_finite(term: DeferredTerm) -> bool:
    return term.running is not None and term.running.finite


def _factors(rule: Rule, factors: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(f for f in factors if rule.sizes[f] != 1)


_ADJUSTING = ("stablehlo.add", "stablehlo.subtract", "stablehlo.multiply", "stablehlo.divide")
_VIEWS = ("stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.transpose", "stablehlo.optimization_barrier")
_WITH_REDUCERS = ("stablehlo.reduce", "stablehlo.scatter")
_ADDING = ("stablehlo.add", "stablehlo.subtract", "stablehlo.reduce")
"""Ops in which a zero operand is added, and not put where there would be something else."""
