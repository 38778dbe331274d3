"""Rows of the ops with blocks that run: an axis passes through them as it passes through what is in them.

A while is split along its batch as a whole: the loop over chunks contains all of its steps, on sliced carries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stablehlo_mem.ir import build
from stablehlo_mem.ir.bindings import RULE, ir, stablehlo, walk_operations
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.rules.flow import PARTIAL, WHOLE, Flow, Form, Passage, Table, Version
from stablehlo_mem.rules.on_chunk import OnChunk
from stablehlo_mem.rules.reductions import is_float
from stablehlo_mem.rules.row import Reduction, Row, Site, Slot
from stablehlo_mem.rules.rule import Blocked, Rule


def _loop_slots(op: Op) -> tuple[Slot, ...]:
    """Carries and captures of a while."""
    condition, body = op.blocks
    edges = zip(condition.arguments, body.arguments, body.returned, strict=True)
    carries = [Slot(i, i, ((0, tested), (1, begun)), ((1, ended),)) for i, (tested, begun, ended) in enumerate(edges)]
    return (*carries, *_captures(op))


def _branch_slots(op: Op) -> tuple[Slot, ...]:
    """Results and captures of a case or if."""
    results = [
        Slot(None, i, (), tuple((b, block.returned[i]) for b, block in enumerate(op.blocks)))
        for i in range(len(op.results))
    ]
    return (*results, *_captures(op))


def _captures(op: Op) -> list[Slot]:
    slots: list[Slot] = []
    for position, value in enumerate(op.captures, start=len(op.operands)):
        pairs = (
            (b, inner)
            for b, block in enumerate(op.blocks)
            for inner, outer in zip(block.captured, block.captured_from, strict=True)
            if outer == value
        )
        slots.append(Slot(position, None, tuple(pairs), ()))
    return slots


def flow_rule(graph: Graph, op: int, slots: Sequence[Slot], table: Table) -> Rule:
    """The factor rule of an op with blocks: each dimension of a slot and all that moves with it is a factor."""
    return _RuleOfFlow(Flow(graph, op, slots, table)).run()


class _RuleOfFlow:
    """Factors, found from one dimension of a slot after the other."""

    def __init__(self, flow: Flow):
        self.flow = flow
        self.sizes: list[int] = []
        self.factors: dict[tuple[int, int], tuple[int, ...]] = {}
        self.reduction: set[int] = set()
        self.blocked: list[tuple[int, str]] = []
        self.apart: list[tuple[int, int]] = []
        self.addends: list[tuple[int, int]] = []

    def run(self) -> Rule:
        for slot in range(len(self.flow.slots)):
            for dimension, size in enumerate(self.flow.shape(slot)):
                if (slot, dimension) not in self.factors:
                    self.add(slot, dimension, size)
        op, graph = self.flow.op, self.flow.graph
        operands: list[tuple[tuple[int, ...], ...]] = [((),) * len(graph.values[v].shape) for v in op.inputs]
        results: list[tuple[tuple[int, ...], ...]] = [((),) * len(graph.values[v].shape) for v in op.results]
        for number, slot in enumerate(self.flow.slots):
            dims = tuple(self.factors[number, d] for d in range(len(self.flow.shape(number))))
            if slot.operand is not None:
                operands[slot.operand] = dims
            if slot.result is not None:
                results[slot.result] = dims
        return Rule(
            sizes=tuple(self.sizes),
            operands=tuple(operands),
            results=tuple(results),
            reduction=frozenset(self.reduction),
            blocked=tuple(self.blocked),
            apart=tuple(self.apart),
            addends=tuple(self.addends),
        )

    def add(self, slot: int, dimension: int, size: int) -> None:
        """The factor of a dimension, whatever it moves with, or why there is none."""
        passage = Blocked("unit", "") if size < 2 else self.flow.coarsest(slot, dimension)
        if isinstance(passage, Passage) and any(
            form >= 0 and (s, form) in self.factors for s, form in enumerate(passage.forms)
        ):
            passage = Blocked("entangled", "it moves with a dimension that does not move with it")
        if isinstance(passage, Passage):
            self.add_passage(passage)
        else:
            self.factors[slot, dimension] = (self.new(size, passage.message),)

    def add_passage(self, passage: Passage) -> None:
        factor = self.new(passage.n)
        for number, (slot, form) in enumerate(zip(self.flow.slots, passage.forms, strict=True)):
            if form >= 0:
                inner = self.flow.shape(number)[form] // passage.n
                minor = () if inner == 1 else (self.new(inner, "it is the inner part of a merged dimension"),)
                self.factors[number, form] = (factor, *minor)
            elif form == WHOLE and slot.result is not None:
                self.apart.append((factor, slot.result))
            elif form == PARTIAL:
                self.reduction.add(factor)
                if slot.operand is not None:
                    self.addends.append((factor, slot.operand))

    def new(self, size: int, reason: str = "") -> int:
        if reason:
            self.blocked.append((len(self.sizes), reason))
        self.sizes.append(size)
        return len(self.sizes) - 1


def _emit(rows: Mapping[str, Row], table: Table, site: Site) -> list[Any]:
    """The op anew, its blocks on the chunk."""
    op = site.graph.ops[site.node.op]
    slots_of = rows[op.name].slots
    assert slots_of is not None
    flow = Flow(site.graph, site.node.op, slots_of(op), table)
    passage = _passage_of(flow, site)
    types = [build.retype(r.type, shape) for r, shape in zip(site.op.results, site.result_shapes, strict=True)]
    attributes = {name: site.op.attributes[name] for name in site.op.attributes if name != RULE}
    new = ir.Operation.create(op.name, types, list(site.operands), attributes, regions=len(op.blocks))
    for number, block in enumerate(op.blocks):
        arguments = [v.type for v in site.operands] if block.arguments else []
        locations = [site.op.location] * len(arguments)
        target = new.regions[number].blocks.append(*arguments, arg_locs=locations)
        with ir.InsertionPoint(target):
            _Block(rows, flow, passage, number, site, target).run()
    return list(new.results)


def _passage_of(flow: Flow, site: Site) -> Passage:
    """The passage the node was made of: found again from any of its dimensions."""
    for number, slot in enumerate(flow.slots):
        operand = None if slot.operand is None else site.node.operand_dims[slot.operand]
        dimension = operand if slot.result is None else site.node.result_dims[slot.result]
        if dimension is not None:
            passage = flow.passage(number, dimension, site.node.n)
            assert isinstance(passage, Passage)
            return passage
    raise AssertionError("a node carries its axis somewhere")


class _Block(OnChunk):
    """One block of an op on one chunk: the versions of its ops that are needed, in program order."""

    def __init__(self, rows: Mapping[str, Row], flow: Flow, passage: Passage, number: int, site: Site, target: Any):
        super().__init__(rows, flow.op.blocks[number], passage.n, site.chunk)
        self.target, self.versions = target, passage.versions[number]
        self.forms = [
            next((passage.forms[s] for s in flow.returning[number].get(v, ())), WHOLE) for v in self.graph.returned
        ]
        self.present: dict[tuple[int, Form], Any] = {}
        inputs = (*site.operands, *site.captures)
        for value, slot in flow.entering[number].items():
            operand = flow.slots[slot].operand
            assert operand is not None
            inside = value in self.graph.arguments
            given = target.arguments[self.graph.arguments.index(value)] if inside else inputs[operand]
            self.present[value, passage.forms[slot]] = given

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
        wanted = set(zip(self.graph.returned, self.forms, strict=True))
        found: list[Version] = []
        for op in reversed(self.graph.ops[:-1]):
            versions = [v for v in self.versions if v.op == op.index]
            for position, value in enumerate(op.results):
                for form in [f for v, f in wanted if v == value]:
                    offers = [v for v in versions if v.results[position] == form]
                    version = (offers or [v for v in versions if v.results[position] == WHOLE])[0]
                    if version not in found:
                        found.append(version)
                        wanted.update(zip(op.inputs, version.inputs, strict=True))
        return found[::-1]

    def results(self, version: Version) -> list[Any]:
        op, handle = self.graph.ops[version.op], self.graph.handles[version.op]
        if version.node is not None:
            return self.accumulated(version, self.emit(version.node))
        operands = [self.had(v, f) for v, f in zip(op.operands, version.inputs, strict=False)]
        for value, form in zip(op.captures, version.inputs[len(operands) :], strict=True):
            self.had(value, form)
        return build.clone_with(handle, operands, [r.type.shape for r in handle.results])

    def accumulated(self, version: Version, results: list[Any]) -> list[Any]:
        """Partial results with the operands they start from, where the op itself does not see to that."""
        node, op = version.node, self.graph.ops[version.op]
        assert node is not None
        reduction = self.rows[op.name].reduction
        if node.addends or reduction is None or PARTIAL not in version.inputs:
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
        for op in [inner for one in self.target.operations for inner in (one.operation, *walk_operations(one))]:
            for i, operand in enumerate(op.operands):
                if operand in new:
                    op.operands[i] = new[operand]


SUMS = Reduction(
    initial=lambda op, operands: [build.zeros(r.type) for r in op.results],
    combine=lambda op, carries, partials: [stablehlo.add(c, p) for c, p in zip(carries, partials, strict=True)],
    # What is masked is masked inside.
    identity=lambda op, position, operands: None,
    regroups=lambda op: any(is_float(r.type) for r in op.results),
    addends=lambda op: (),
)


def rows(table: Mapping[str, Row], ask: Table) -> dict[str, Row]:
    """The rows of control flow, which ask for those of all other ops, and of control flow again."""
    kinds = {"stablehlo.while": _loop_slots, "stablehlo.case": _branch_slots, "stablehlo.if": _branch_slots}
    return {
        name: Row(emit=lambda site: _emit(table, ask, site), reduction=SUMS, slots=slots)
        for name, slots in kinds.items()
    }
