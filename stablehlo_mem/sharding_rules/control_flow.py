"""Rows of the ops with blocks that run: an axis passes through them as it passes through what is in them.

A while is split along its batch as a whole: the loop over chunks contains all of its steps, on sliced carries.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import RULE, ir, stablehlo
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Op
from stablehlo_mem.sharding_rules.chunk_emitter import ChunkEmitter
from stablehlo_mem.sharding_rules.factor_rule import Dims, Rule
from stablehlo_mem.sharding_rules.op_rule import EmitContext, OpRule, Reduction, RegionEdge
from stablehlo_mem.sharding_rules.reductions import is_float
from stablehlo_mem.sharding_rules.region_edges import PARTIAL, WHOLE, Flow, Form, Passage, Table, Version
from stablehlo_mem.sharding_rules.region_propagation import find_passage, finest_passage


def _loop_slots(op: Op) -> tuple[RegionEdge, ...]:
    """Carries and captures of a while."""
    condition, body = op.blocks
    edges = zip(condition.arguments, body.arguments, body.returned, strict=True)
    carries = [
        RegionEdge(i, i, ((0, tested), (1, begun)), ((1, ended),)) for i, (tested, begun, ended) in enumerate(edges)
    ]
    return (*carries, *_captures(op))


def _branch_slots(op: Op) -> tuple[RegionEdge, ...]:
    """Results and captures of a case or if."""
    results = [
        RegionEdge(None, i, (), tuple((b, block.returned[i]) for b, block in enumerate(op.blocks)))
        for i in range(len(op.results))
    ]
    return (*results, *_captures(op))


def _captures(op: Op) -> list[RegionEdge]:
    edges: list[RegionEdge] = []
    for position, value in enumerate(op.captures, start=len(op.operands)):
        pairs = (
            (b, inner)
            for b, block in enumerate(op.blocks)
            for inner, outer in zip(block.captured, block.captured_from, strict=True)
            if outer == value
        )
        edges.append(RegionEdge(position, None, tuple(pairs), ()))
    return edges


def rule_along(flow: Flow, edge: int, dimension: int, n: int) -> tuple[Rule, Mapping[int, int]]:
    """The factor rule of an op with blocks for an axis of `n` elements along a dimension of a slot.

    It says what moves with that dimension only. With another `n` other slots may.

    Returns:
        The rule, and the slots from whose dimension it would be the same one.
    """
    passage = finest_passage(flow, edge, dimension, n)
    if isinstance(passage, Passage):
        # What has nothing to do with the slot may go with another of its dimensions as well: it is asked for by itself.
        own = find_passage(flow, {edge: dimension}, n)
        same = own.dims if isinstance(own, Passage) and passage.n == n else {}
        return _RuleOfPassage(flow).of_passage(passage), same
    return _RuleOfPassage(flow).of_none(edge, dimension, passage), {}


class _RuleOfPassage:
    """Every dimension of every slot has a number for its factor, and one more for the inner part if it is merged."""

    def __init__(self, flow: Flow):
        self.flow = flow
        ranks = [len(flow.shape(edge)) for edge in range(len(flow.edges))]
        self.first = list(itertools.accumulate(ranks, initial=0))
        self.sizes = [1] * (2 * self.first[-1])

    def of_none(self, edge: int, dimension: int, blocked: Blocked) -> Rule:
        """The dimension alone has a factor, for the reason why it cannot be split."""
        factor = self.first[edge] + dimension
        self.sizes[factor] = self.flow.shape(edge)[dimension]
        return self.rule({(edge, dimension): (factor,)}).block({factor}, blocked.message)

    def of_passage(self, passage: Passage) -> Rule:
        """All that moves together has the number of its first dimension, from wherever it was found."""
        split = list(passage.dims.items())
        factor = self.first[split[0][0]] + split[0][1]
        self.sizes[factor] = passage.n
        factors: dict[tuple[int, int], tuple[int, ...]] = {}
        for edge, dimension in split:
            minor = self.first[-1] + self.first[edge] + dimension
            self.sizes[minor] = self.flow.shape(edge)[dimension] // passage.n
            factors[edge, dimension] = (factor, minor) if self.sizes[minor] > 1 else (factor,)
        edges = list(zip(self.flow.edges, passage.forms, strict=True))
        return dataclasses.replace(
            self.rule(factors),
            reduction=frozenset({factor} if PARTIAL in passage.forms else ()),
            apart=tuple((factor, s.result) for s, form in edges if form == WHOLE and s.result is not None),
            addends=tuple((factor, s.operand) for s, form in edges if form == PARTIAL and s.operand is not None),
        )

    def rule(self, factors: Mapping[tuple[int, int], tuple[int, ...]]) -> Rule:
        """Slots without any of the factors are whole."""
        flow = self.flow
        operands: list[Dims] = [((),) * len(flow.graph.values[v].shape) for v in flow.op.inputs]
        results: list[Dims] = [((),) * len(flow.graph.values[v].shape) for v in flow.op.results]
        for number, edge in enumerate(flow.edges):
            dims = tuple(factors.get((number, d), ()) for d in range(len(flow.shape(number))))
            if edge.operand is not None:
                operands[edge.operand] = dims
            if edge.result is not None:
                results[edge.result] = dims
        return Rule(tuple(self.sizes), tuple(operands), tuple(results), frozenset(), ())


def _emit(rows: Mapping[str, OpRule], table: Table, site: EmitContext) -> list[Any]:
    """The op anew, its blocks on the chunk."""
    op = site.graph.ops[site.split_op.op]
    flow = Flow(site.graph, site.split_op.op, rows[op.name], table)
    passage = _passage_of(flow, site)
    types = [builders.retype(r.type, shape) for r, shape in zip(site.op.results, site.result_shapes, strict=True)]
    attributes = {name: site.op.attributes[name] for name in site.op.attributes if name != RULE}
    new = ir.Operation.create(op.name, types, list(site.operands), attributes, regions=len(op.blocks))
    for number, block in enumerate(op.blocks):
        arguments = [v.type for v in site.operands] if block.arguments else []
        locations = [site.op.location] * len(arguments)
        target = new.regions[number].blocks.append(*arguments, arg_locs=locations)
        with ir.InsertionPoint(target):
            _Block(rows, flow, passage, number, site, target).run()
    return list(new.results)


def _passage_of(flow: Flow, site: EmitContext) -> Passage:
    """The passage the split op was made of: found again from its dimensions."""
    dims: dict[int, int] = {}
    for number, edge in enumerate(flow.edges):
        operand = None if edge.operand is None else site.split_op.operand_dims[edge.operand]
        dimension = operand if edge.result is None else site.split_op.result_dims[edge.result]
        if dimension is not None:
            dims[number] = dimension
    passage = find_passage(flow, dims, site.split_op.n)
    assert isinstance(passage, Passage)
    return passage


class _Block(ChunkEmitter):
    """One block of an op on one chunk: the versions of its ops that are needed, in program order."""

    def __init__(
        self, rows: Mapping[str, OpRule], flow: Flow, passage: Passage, number: int, site: EmitContext, target: Any
    ):
        super().__init__(rows, flow.op.blocks[number], passage.n, site.chunk)
        self.target, self.versions = target, passage.versions[number]
        # One value may be returned as several results, in another form for each; what a condition returns is none.
        edges = {edge.result: s for s, edge in enumerate(flow.edges) if flow.returning[number]}
        self.forms = [passage.forms[edges[r]] if edges else WHOLE for r in range(len(self.graph.returned))]
        self.present: dict[tuple[int, Form], Any] = {}
        inputs = (*site.operands, *site.captures)
        for value, edge in flow.entering[number].items():
            operand = flow.edges[edge].operand
            assert operand is not None
            inside = value in self.graph.arguments
            given = target.arguments[self.graph.arguments.index(value)] if inside else inputs[operand]
            self.present[value, passage.forms[edge]] = given

    def run(self) -> None:
        for version in self.needed():
            handle = self.graph.handles[version.op]
            with handle.location:
                results = self.results(version)
            op = self.graph.ops[version.op]
            self.present.update(zip(zip(op.results, version.results, strict=True), results, strict=True))
        with self.graph.handles[-1].location:
            stablehlo.return_([self.had(v, f) for v, f in zip(self.graph.returned, self.forms, strict=True)])
        self.rebind()

    def needed(self) -> list[Version]:
        """The versions that what is returned is made of."""
        wanted: dict[int, set[Form]] = {}
        _want(wanted, self.graph.returned, self.forms)
        found: list[Version] = []
        for op, versions in zip(reversed(self.graph.ops[:-1]), reversed(self.versions), strict=True):
            needed: dict[Version, None] = {}
            for position, value in enumerate(op.results):
                for form in wanted.get(value, ()):
                    offers = [v for v in versions if v.results[position] == form]
                    needed[(offers or [v for v in versions if v.results[position] == WHOLE])[0]] = None
            for version in needed:
                _want(wanted, op.inputs, version.inputs)
            found += needed
        return found[::-1]

    def results(self, version: Version) -> list[Any]:
        op, handle = self.graph.ops[version.op], self.graph.handles[version.op]
        if version.split_op is not None:
            return self.accumulated(version, self.emit(version.split_op))
        operands = [self.had(v, f) for v, f in zip(op.operands, version.inputs, strict=False)]
        for value, form in zip(op.captures, version.inputs[len(operands) :], strict=True):
            self.had(value, form)
        return builders.clone_with(handle, operands, [r.type.shape for r in handle.results])

    def accumulated(self, version: Version, results: list[Any]) -> list[Any]:
        """Partial results with the operands they start from, where the op itself does not see to that."""
        split_op, op = version.split_op, self.graph.ops[version.op]
        assert split_op is not None
        reduction = self.rows[op.name].reduction
        if split_op.addends or reduction is None or PARTIAL not in version.inputs:
            return results
        handle = self.graph.handles[version.op]
        operands = [self.had(v, f) for v, f in zip(op.operands, version.inputs, strict=False)]
        return reduction.combine(handle, reduction.initial(handle, operands), results)

    def had(self, value: int, form: Form) -> Any:
        """A value in a form: made in it, or made of the whole."""
        if (value, form) not in self.present:
            whole = self.present[value, WHOLE]
            self.present[value, form] = self.in_first_chunk(whole) if form == PARTIAL else self.slice(whole, form)
        return self.present[value, form]

    def whole(self, value: int) -> Any:
        """What there is of a value outside the axis; in a reduction's own operands it may be partial."""
        return self.present.get((value, WHOLE), self.present.get((value, PARTIAL)))

    def addend(self, value: int) -> Any:
        """A value's part in this chunk."""
        return self.had(value, PARTIAL)

    def chunk_of(self, value: int, dimension: int) -> Any:
        """The chunk of a value."""
        return self.had(value, dimension)

    def rebind(self) -> None:
        """Blocks within the new ops still name the original values."""
        new = {self.graph.mlir_values[v]: one for (v, form), one in self.present.items() if form == WHOLE}
        for op in self.target.operations:
            builders.rebind(op.operation, new)


def _want(wanted: dict[int, set[Form]], values: Sequence[int], forms: Sequence[Form]) -> None:
    for value, form in zip(values, forms, strict=True):
        wanted.setdefault(value, set()).add(form)


SUMS = Reduction(
    initial=lambda op, operands: [builders.zeros(r.type) for r in op.results],
    combine=lambda op, carries, partials: [stablehlo.add(c, p) for c, p in zip(carries, partials, strict=True)],
    # What is masked is masked inside.
    identity=lambda op, position, operands: None,
    regroups=lambda op: any(is_float(r.type) for r in op.results),
    addends=lambda op: (),
)


def rows(table: Mapping[str, OpRule], ask: Table) -> dict[str, OpRule]:
    """The rows of control flow, which ask for those of all other ops, and of control flow again."""
    kinds = {"stablehlo.while": _loop_slots, "stablehlo.case": _branch_slots, "stablehlo.if": _branch_slots}
    return {
        name: OpRule(emit=lambda site: _emit(table, ask, site), reduction=SUMS, edges=edges)
        for name, edges in kinds.items()
    }
