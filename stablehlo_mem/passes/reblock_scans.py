"""reblock-scans: an associative scan over many elements becomes a loop over blocks, which carries the last result.

Before, `jax.lax.associative_scan` of 4,194,304 elements, a tree of 22 levels:
    %l = stablehlo.slice %x [0:4194303:2] : tensor<2097152xf32>
    %r = stablehlo.slice %x [1:4194304:2] : tensor<2097152xf32>
    %reduced = combine(%l, %r) ...
After:
    loop over blocks of, say, 65,536, carrying the last result %y:
        %b = slice of %x, its first element combined with %y
        %s = the tree of %b, of 16 levels
        write %s back

`find_scans` recognises the tree, which is outlined to a function of its own. The loop is a split along a cumulative op
(`split-into-loops`), so it contains what the elements are computed from and what is computed from the results, too. A
scan with `reverse=True` starts with the last block. Combinations are regrouped, as the user allowed by calling them
associative; those of floats round differently then.

Refuses scans whose combinations differ from level to level, depend on the position of an element, or read something
that is computed from all elements.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from stablehlo_mem.analysis.live_ranges import Live
from stablehlo_mem.analysis.peak_memory import Peak, find_peak
from stablehlo_mem.frontend.canonicalize import attach_rules, drop_identities, open_functions, remove_rules
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import clone_module, func, ir, is_constant, module_of, run_passes
from stablehlo_mem.ir.block_cse import block_cse
from stablehlo_mem.ir.builders import building, repeat_ops
from stablehlo_mem.ir.graph import Graph, entry_graph, nested_graph
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Refusal, Step, StepParams
from stablehlo_mem.pass_api.pass_protocol import Pass
from stablehlo_mem.rewriting.rewriting_pass import block_paths
from stablehlo_mem.sharding_rules import OP_RULES, rule_book
from stablehlo_mem.sharding_rules.associative_scan import attributes_of, combination, dependents
from stablehlo_mem.sharding_rules.associative_scan_matcher import AssociativeScan, find_scans, reversed_operand
from stablehlo_mem.splitting.axis import grow_axis
from stablehlo_mem.splitting.candidates import proposals_around
from stablehlo_mem.splitting.split_step import Split, split


class ReblockScans(Pass[Split]):
    """The pass: proposes the splits there would be if scans were ops."""

    name = "reblock-scans"
    params_type = Split

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
        """Candidates along the scans of the blocks around the peak."""
        if not any(_scans(nested_graph(graph, path)) for path, _ in peak.ops_around):
            return
        _, main = _with_outlined(graph)
        for candidate in proposals_around(main, _with_scans(main, find_peak(main, goal.chip)), goal):
            if isinstance(candidate, Candidate) and _runs_scan(main, candidate.step.params):
                step = Step(self.name, "", candidate.step.params)
                yield dataclasses.replace(candidate, step=step, apply_to_copy=None)

    def describe(self, params: Split) -> str:
        """What the loops look like."""
        return params.how

    def apply(self, module: ir.Module, params: Split) -> None:
        """Splits with scans as ops, in place; those that no loop has taken are as before."""
        outline(module)
        split(module, params)
        open_functions(module)
        drop_identities(module)
        # A reshape that takes over another's operand would keep a rule for the old one.
        remove_rules(module)
        block_cse(module)
        run_passes(module, "canonicalize", "symbol-dce")


@cached_analysis
def _with_outlined(graph: Graph) -> tuple[ir.Module, Graph]:
    """A copy of a function's module with its scans as ops, and the function's graph there."""
    module = clone_module(module_of(graph.handles[-1]))
    outline(module)
    return module, entry_graph(module)


def _with_scans(main: Graph, peak: Peak) -> Peak:
    """A peak at which the elements of the scans in its blocks are alive too, so that they are split in any case."""
    ops = ((path, op) for path, _ in peak.ops_around for op in nested_graph(main, path).ops)
    elements = ((path, op.operands[0]) for path, op in ops if op.name == "stablehlo.composite")
    known = {(live.path, live.value) for live in peak.live}
    added = [Live(path, value, 0) for path, value in elements if (path, value) not in known]
    return dataclasses.replace(peak, live=(*peak.live, *added))


def outline(module: ir.Module) -> None:
    """Outlines each scan to a function, and replaces it by a composite op that stands for it."""
    main = entry_graph(module)
    blocks = [nested_graph(main, path) for path in block_paths(main)]
    scans = [(graph, scan) for graph in blocks for scan in _scans(graph)]
    # Backwards: a scan may begin with results of an earlier one.
    for number, (graph, scan) in reversed(list(enumerate(scans))):
        _outline_one(module, graph, scan, f"stablehlo_mem_scan_{number}")
    dead = [graph.handles[op] for graph, scan in reversed(scans) for op in reversed(_replaced(graph, scan))]
    for op in dict.fromkeys(dead):
        if not any(list(result.uses) for result in op.results):
            op.erase()
    attach_rules(module)


@cached_analysis
def _scans(graph: Graph) -> list[AssociativeScan]:
    """The scans of a block whose combinations run on any number of pairs, and whose inputs precede their users."""
    return [
        scan
        for scan in find_scans(graph)
        if combination(rule_book(graph), scan) is not None
        and all(graph.values[v].producer < _first_use(graph, scan) for v in _inputs(graph, scan))
    ]


def _first_use(graph: Graph, scan: AssociativeScan) -> int:
    """The first op that uses a result."""
    return min(user for v in scan.results.values() for user in graph.users[v])


@cached_analysis
def _inside(graph: Graph, scan: AssociativeScan) -> list[int]:
    """The ops of a scan's tree, in program order: what depends on its elements, and what costs nothing."""
    free = {op.index for op in graph.ops if op.name in OP_RULES and OP_RULES[op.name].free}
    inside: set[int] = set()
    pending = list(scan.results.values())
    while pending:
        value = pending.pop()
        producer = None if value in scan.elements else graph.producer(value)
        if producer is None or producer.index in inside:
            continue
        if producer.index in free or producer.index in dependents(graph, scan.elements):
            inside.add(producer.index)
            pending += producer.inputs
    return sorted(inside)


def _replaced(graph: Graph, scan: AssociativeScan) -> list[int]:
    """The ops that may be dead once the scan is an op, in program order."""
    reverses = [graph.values[v].producer for v in scan.elements] if scan.reverse else []
    back = [op for v in scan.results.values() for op in _reversing_back(graph, scan, v)]
    return sorted({*reverses, *_inside(graph, scan), *back})


def _reversing_back(graph: Graph, scan: AssociativeScan, result: int) -> list[int]:
    """The ops that put a result of a reversed scan back in the order of its dimension."""
    if not scan.reverse:
        return []
    made = [(op, v) for op in graph.users[result] for v in graph.ops[op].results]
    return [op for op, v in made if reversed_operand(graph, v, scan.dimension) == result]


def _inputs(graph: Graph, scan: AssociativeScan) -> list[int]:
    """The elements, and what else the ops of the tree read from outside; constants are made inside."""
    inside = _inside(graph, scan)
    made = {v for op in inside for v in graph.ops[op].results}
    read = dict.fromkeys(v for op in inside for v in graph.ops[op].inputs)
    others = [v for v in read if v not in made and v not in scan.elements and not is_constant(graph.mlir_values[v])]
    return [*scan.inputs, *others]


def _outline_one(module: ir.Module, graph: Graph, scan: AssociativeScan, name: str) -> None:
    inputs = [graph.mlir_values[v] for v in _inputs(graph, scan)]
    results = [graph.mlir_values[v] for v in scan.results.values()]
    place = graph.handles[_first_use(graph, scan)]
    location = results[0].owner.location
    with building(module.body, location):
        types = [v.type for v in inputs], [v.type for v in results]
        body = func.FuncOp(name, types, visibility="private").add_entry_block()
    inside = dict(zip(inputs, body.arguments, strict=True))
    with building(body, location):
        # The elements are the first of the inputs.
        inside |= {
            graph.mlir_values[v]: scan.in_scan_order(a) for v, a in zip(scan.elements, body.arguments, strict=False)
        }
        for op in _inside(graph, scan):
            for constant in (v for v in map(graph.mlir_values.__getitem__, graph.ops[op].inputs) if v not in inside):
                inside[constant] = constant.owner.clone().results[0]
            repeat_ops([graph.handles[op]], inside)
        func.return_([scan.in_scan_order(inside[v]) for v in results])
    with building(place, location):
        # The scan alone reads these copies of its elements, so that a split along them splits what is inside the scan.
        count = len(scan.elements)
        elements = [ir.Operation.create("stablehlo.reshape", [v.type], [v]).result for v in inputs[:count]]
        operands = [*elements, *inputs[count:]]
        new = ir.Operation.create("stablehlo.composite", types[1], operands, attributes_of(scan, name))
        for old, result in zip(scan.results.values(), new.results, strict=True):
            for op in _reversing_back(graph, scan, old):
                graph.handles[op].results[0].replace_all_uses_with(result)
            if list(graph.mlir_values[old].uses):
                graph.mlir_values[old].replace_all_uses_with(scan.in_scan_order(result))


def _runs_scan(main: Graph, params: StepParams) -> bool:
    """Whether a split runs a scan in its loops."""
    assert isinstance(params, Split)
    graph = nested_graph(main, params.path)
    axis = grow_axis(graph, rule_book(graph), (params.value, params.dimension), params.big_bytes)
    return any(graph.ops[one.op].name == "stablehlo.composite" and one.cumulative for one in axis.split_ops)
