"""Rules of while, case and if, whose regions run. An axis passes them as it passes the ops inside.

A while is split along its batch as a whole: the loop over chunks contains all of its steps, on sliced carries. Here are
its edges and how it is emitted; its factor rule is made by `region_rule`.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import RULE, ir
from stablehlo_mem.ir.graph import Op
from stablehlo_mem.sharding_rules.chunk_emitter import ChunkEmitter
from stablehlo_mem.sharding_rules.op_rule import Chunk, EmitContext, OpRule, RegionEdge
from stablehlo_mem.sharding_rules.reductions import SUM
from stablehlo_mem.sharding_rules.region_edges import PARTIAL, WHOLE, ChunkForm, OpVariant, Region, RegionSplit
from stablehlo_mem.sharding_rules.region_propagation import split_of


def _while_edges(op: Op) -> tuple[RegionEdge, ...]:
    """Carries and captures of a while."""
    condition, body = op.blocks
    carries = zip(condition.arguments, body.arguments, body.returned, strict=True)
    edges = [
        RegionEdge(i, i, ((0, tested), (1, before)), ((1, after),)) for i, (tested, before, after) in enumerate(carries)
    ]
    return (*edges, *_capture_edges(op))


def _branch_edges(op: Op) -> tuple[RegionEdge, ...]:
    """Results and captures of a case or if."""
    edges = [
        RegionEdge(None, i, (), tuple((b, block.returned[i]) for b, block in enumerate(op.blocks)))
        for i in range(len(op.results))
    ]
    return (*edges, *_capture_edges(op))


def _capture_edges(op: Op) -> list[RegionEdge]:
    enters: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, block in enumerate(op.blocks):
        for inner, outer in zip(block.captured, block.captured_from, strict=True):
            enters[outer].append((number, inner))
    return [RegionEdge(p, None, tuple(enters[v]), ()) for p, v in enumerate(op.captures, start=len(op.operands))]


def _emit(context: EmitContext) -> list[Any]:
    """The op with its blocks on the chunk."""
    region = Region(context.rules, context.split_op.op)
    split, op = split_of(region, context.split_op), context.op
    types = [builders.retype(r.type, shape) for r, shape in zip(op.results, context.result_shapes, strict=True)]
    attributes = {name: op.attributes[name] for name in op.attributes if name != RULE}
    new = ir.Operation.create(op.name, types, list(context.operands), attributes, regions=len(region.blocks))
    for number, block in enumerate(region.blocks):
        arguments = [v.type for v in context.operands] if block.arguments else []
        target = new.regions[number].blocks.append(*arguments, arg_locs=[op.location] * len(arguments))
        with ir.InsertionPoint(target):
            emit_block(region, split, number, context, target, context.chunk)
    return list(new.results)


def emit_block(
    region: Region, split: RegionSplit, number: int, context: EmitContext, target: Any, chunk: Chunk
) -> None:
    """Emits one block of a region on one chunk into a block that has its arguments."""
    _BlockEmitter(region, split, number, context, target, chunk).run()


class _BlockEmitter(ChunkEmitter):
    """One block of a region on one chunk: the variants of its ops that are needed, in program order."""

    def __init__(
        self, region: Region, split: RegionSplit, number: int, context: EmitContext, target: Any, chunk: Chunk
    ):
        super().__init__(region.rules[number], split.n, chunk)
        self.target = target
        self.forms, self.needed = region.returned_forms(split, number), region.needed(split, number)
        self.emitted: dict[tuple[int, ChunkForm], Any] = {}
        inputs = (*context.operands, *context.captures)
        for value, edge in region.entering[number].items():
            operand = region.edges[edge].operand
            assert operand is not None
            is_argument = value in self.graph.arguments
            outer = target.arguments[self.graph.arguments.index(value)] if is_argument else inputs[operand]
            self.emitted[value, split.forms[edge]] = outer

    def run(self) -> None:
        for variant in self.needed:
            with self.graph.handles[variant.op].location:
                results = self.results(variant)
            op = self.graph.ops[variant.op]
            self.emitted.update(zip(zip(op.results, variant.results, strict=True), results, strict=True))
        end = self.graph.handles[-1]
        with end.location:
            returned = [self.in_form(v, f) for v, f in zip(self.graph.returned, self.forms, strict=True)]
            ir.Operation.create(end.name, [], returned)
        self.rebind()

    def results(self, variant: OpVariant) -> list[Any]:
        op, handle = self.graph.ops[variant.op], self.graph.handles[variant.op]
        if variant.split_op is not None:
            return self.accumulated(variant, self.emit(variant.split_op))
        inputs = [self.in_form(v, f) for v, f in zip(op.inputs, variant.inputs, strict=True)]
        return builders.clone_with(handle, inputs[: len(op.operands)], [r.type.shape for r in handle.results])

    def accumulated(self, variant: OpVariant, results: list[Any]) -> list[Any]:
        """Partial results added to the operands they start from, where the op itself does not do that."""
        split_op, op = variant.split_op, self.graph.ops[variant.op]
        assert split_op is not None
        reduction = self.rules.op_rules[op.name].reduction
        if split_op.init_operands or reduction is None or PARTIAL not in variant.inputs:
            return results
        handle = self.graph.handles[variant.op]
        operands = [self.in_form(v, f) for v, f in zip(op.operands, variant.inputs, strict=False)]
        return reduction.combine(handle, reduction.initial(handle, operands), results)

    def in_form(self, value: int, form: ChunkForm) -> Any:
        """A value in a form: as it was emitted, or made of the whole value."""
        if (value, form) not in self.emitted:
            whole = self.emitted[value, WHOLE]
            self.emitted[value, form] = self.slice(whole, form) if isinstance(form, int) else self.in_first_chunk(whole)
        return self.emitted[value, form]

    def whole(self, value: int) -> Any:
        """A whole value; a reduction's init operand may be partial."""
        return self.emitted.get((value, WHOLE), self.emitted.get((value, PARTIAL)))

    def init_operand(self, value: int) -> Any:
        return self.in_form(value, PARTIAL)

    def chunk_of(self, value: int, dimension: int) -> Any:
        return self.in_form(value, dimension)

    def rebind(self) -> None:
        """Replaces the original values in the blocks of the new ops."""
        new = {self.graph.mlir_values[v]: value for (v, form), value in self.emitted.items() if form == WHOLE}
        for op in self.target.operations:
            builders.rebind(op.operation, new)


SUMS_OF_BLOCKS = dataclasses.replace(SUM, identity=lambda op, position, operands: None)
"""How partial results of blocks combine: repeated elements are masked inside."""

OP_RULES = {
    "stablehlo.while": OpRule(emit=_emit, reduction=SUMS_OF_BLOCKS, edges=_while_edges),
    "stablehlo.case": OpRule(emit=_emit, reduction=SUMS_OF_BLOCKS, edges=_branch_edges),
    "stablehlo.if": OpRule(emit=_emit, reduction=SUMS_OF_BLOCKS, edges=_branch_edges),
}
