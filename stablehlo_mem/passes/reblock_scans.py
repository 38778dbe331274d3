"""reblock-scans: an associative scan over many elements goes on from block to block in a loop.

Before, `jax.lax.associative_scan` of 4,194,304 elements, a tree of 22 levels:
    %l = stablehlo.slice %x [0:4194303:2] : tensor<2097152xf32>
    %r = stablehlo.slice %x [1:4194304:2] : tensor<2097152xf32>
    %reduced = combine(%l, %r) ...
After:
    loop over blocks of, say, 65,536, carrying the last result %y:
        %b = slice of %x, its first element combined with %y
        %s = the tree of %b, of 16 levels
        write %s back

The tree is put in a function of its own, `find_scans` says what it is, and the loop is a split along a cumulative op
(`split-into-loops`): what the elements are computed from, and what is computed from the results, is in the loop too.
A scan with `reverse=True` goes back from the last block. Combinations are regrouped, as the user allowed by calling
them associative; of floats that rounds otherwise.

Refuses scans whose combinations differ from level to level, depend on where an element is, or read what is made of all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from stablehlo_mem.analysis.live_ranges import Live
from stablehlo_mem.analysis.peak_memory import Peak, find_peak
from stablehlo_mem.frontend.canonicalize import attach_rules, drop_identities, open_functions, remove_rules
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import clone_module, func, ir, is_constant, module_of, run_passes
from stablehlo_mem.ir.builders import building, rebind
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
        paths = [peak.path[:depth] for depth in range(len(peak.path) + 1)]
        if goal.include_small_values or not any(_scans(nested_graph(graph, path)) for path in paths):
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
        run_passes(module, "cse", "canonicalize", "symbol-dce")


@cached_analysis
def _with_outlined(graph: Graph) -> tuple[ir.Module, Graph]:
    """A function with its scans as ops, and the module of its own that it lives in."""
    module = clone_module(module_of(graph.handles[-1]))
    outline(module)
    return module, entry_graph(module)


def _with_scans(main: Graph, peak: Peak) -> Peak:
    """A peak with what the scans in its blocks begin with as alive there, to be split along them in any case."""
    paths = [peak.path[:depth] for depth in range(len(peak.path) + 1)]
    ops = ((path, op) for path in paths for op in nested_graph(main, path).ops if op.name == "stablehlo.composite")
    known = {(live.path, live.value) for live in peak.live}
    added = [Live(path, op.operands[0], 0) for path, op in ops if (path, op.operands[0]) not in known]
    return dataclasses.replace(peak, live=(*peak.live, *added))


def outline(module: ir.Module) -> None:
    """Puts each scan in a function of its own and an op that stands for it in its place."""
    main = entry_graph(module)
    found = [(graph, s) for path in block_paths(main) for graph in [nested_graph(main, path)] for s in _scans(graph)]
    # Backwards: what one scan gives may be what a later one begins with.
    for number, (graph, scan) in reversed(list(enumerate(found))):
        _outline_one(module, graph, scan, f"stablehlo_mem_scan_{number}")
    dead = [graph.handles[op] for graph, scan in reversed(found) for op in reversed(_replaced(graph, scan))]
    for op in dict.fromkeys(dead):
        if not any(list(result.uses) for result in op.results):
            op.erase()
    attach_rules(module)


@cached_analysis
def _scans(graph: Graph) -> list[AssociativeScan]:
    """The scans of a block whose combinations run on any number of pairs, and that can be in one place."""
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
    found: set[int] = set()
    pending = list(scan.results.values())
    while pending:
        value = pending.pop()
        producer = None if value in scan.elements else graph.producer(value)
        if producer is not None and producer.index not in found and _belongs(graph, scan, producer.index):
            found.add(producer.index)
            pending += producer.inputs
    return sorted(found)


def _replaced(graph: Graph, scan: AssociativeScan) -> list[int]:
    """The ops that nobody needs once the scan is an op, in program order, those aside that others need as well."""
    turns = [graph.values[v].producer for v in scan.elements] if scan.reverse else []
    back = [op for v in scan.results.values() for op in _turning_back(graph, scan, v)]
    return sorted({*turns, *_inside(graph, scan), *back})


def _turning_back(graph: Graph, scan: AssociativeScan, result: int) -> list[int]:
    """The ops that put a result of a scan that runs back in the order of its dimension."""
    if not scan.reverse:
        return []
    made = [(op, v) for op in graph.users[result] for v in graph.ops[op].results]
    return [op for op, v in made if reversed_operand(graph, v, scan.dimension) == result]


def _belongs(graph: Graph, scan: AssociativeScan, op: int) -> bool:
    row = OP_RULES.get(graph.ops[op].name)
    return op in dependents(graph, scan.elements) or (row is not None and row.free)


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
        body = _function(name, [v.type for v in inputs], [v.type for v in results])
    inside = dict(zip(inputs, body.arguments, strict=True))
    with building(body, location):
        # The elements are the first of the inputs.
        inside |= {
            graph.mlir_values[v]: scan.in_scan_order(a) for v, a in zip(scan.elements, body.arguments, strict=False)
        }
        for op in _inside(graph, scan):
            handle = graph.handles[op]
            for constant in (v for v in map(graph.mlir_values.__getitem__, graph.ops[op].inputs) if v not in inside):
                inside[constant] = constant.owner.clone().results[0]
            copy = handle.clone()
            rebind(copy, inside)
            inside.update(zip(handle.results, copy.results, strict=True))
        func.return_([scan.in_scan_order(inside[v]) for v in results])
    with building(place, location):
        # What is scanned has a name of its own, by chunk only: a loop spares the inside of a scan as well.
        count = len(scan.elements)
        elements = [ir.Operation.create("stablehlo.reshape", [v.type], [v]).result for v in inputs[:count]]
        types, attributes = [v.type for v in results], attributes_of(scan, name)
        new = ir.Operation.create("stablehlo.composite", types, [*elements, *inputs[count:]], attributes)
        for old, result in zip(scan.results.values(), new.results, strict=True):
            for op in _turning_back(graph, scan, old):
                graph.handles[op].results[0].replace_all_uses_with(result)
            if list(graph.mlir_values[old].uses):
                graph.mlir_values[old].replace_all_uses_with(scan.in_scan_order(result))


def _function(name: str, inputs: Sequence[Any], results: Sequence[Any]) -> Any:
    """The empty block of a new private function."""
    function = func.FuncOp(name, (list(inputs), list(results)), visibility="private")
    return function.add_entry_block()


def _runs_scan(main: Graph, params: StepParams) -> bool:
    """Whether a split runs a scan in its loops."""
    assert isinstance(params, Split)
    graph = nested_graph(main, params.path)
    axis = grow_axis(graph, rule_book(graph), (params.value, params.dimension), params.big_bytes)
    return any(graph.ops[node.op].name == "stablehlo.composite" and node.cumulative for node in axis.split_ops)
