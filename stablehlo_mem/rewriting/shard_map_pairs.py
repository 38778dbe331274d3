"""A `shard_map` and its gradient as one program of each device: `rematerialise` and `recompute-residuals` rewrite it.

Before:
    %y, %residuals = shard_map(forward)(%x)                  stored for the gradient: on each device all steps of a scan
    %dx = shard_map(backward)(%x, %residuals, %dy)
The program of a pair, on local shapes, which a pass rewrites:
    %y, %residuals = forward(%x); %dx = backward(%x, %residuals, %dy)
After, what %y depends on goes into the first `shard_map`, the rest into the second:
    %y, %inputs = shard_map(forward')(%x)
    %dx = shard_map(backward')(%x, %inputs, %dy)             computes residuals again from the inputs of each step

The two cannot be one `shard_map`: %dy is computed from %y by ops on whole values.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from stablehlo_mem.analysis.peak_memory import Peak, find_peak
from stablehlo_mem.frontend.canonicalize import drop_identities
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.barriers import GROUP, group_of, next_group
from stablehlo_mem.ir.bindings import func, ir, module_of, run_passes, sdy, walk_operations
from stablehlo_mem.ir.graph import Graph, Path, effects, entry_graph, main_function, nested_graph
from stablehlo_mem.ir.manual_computation import (
    MANUAL_COMPUTATION,
    body_of,
    created,
    end_of,
    is_fully_manual,
    lies_alike,
    lying,
    operand_shardings,
    result_shardings,
)
from stablehlo_mem.ir.shards import mesh_axes
from stablehlo_mem.ir.trip_count import block_runs
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Refusal, StepParams
from stablehlo_mem.rewriting.rewriting_pass import block_paths

Propose = Callable[[Graph, Peak, Goal], Iterable[Candidate | Refusal]]


@dataclasses.dataclass(frozen=True)
class ShardMapPair:
    """Two manual computations of a block, the second of which reads what the first returns for it.

    Attributes:
        path: of the block, from the entry function's.
        first, second: their ops in it.
    """

    path: Path
    first: int
    second: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairedParams(StepParams):
    """Parameters of a step in a block of a module, or in the program of a pair in it."""

    pair: ShardMapPair | None = None


def in_pairs(propose: Propose, main: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
    """What a pass proposes for the programs of the pairs of which residuals are alive at the peak."""
    for pair in _pairs(main):
        graph = nested_graph(main, pair.path)
        live = peak.live_in(pair.path)
        if any(value in live for value, _ in _residuals(graph, pair).values()):
            inside, _ = _inside(main, pair)
            at = dataclasses.replace(find_peak(inside, goal.chip), temp_bytes=peak.temp_bytes)
            for item in propose(inside, at, goal):
                yield _of_pair(item, pair, block_runs(main, pair.path)) if isinstance(item, Candidate) else item


def _of_pair(candidate: Candidate, pair: ShardMapPair, runs: float) -> Candidate:
    params = candidate.step.params
    assert isinstance(params, PairedParams)
    return dataclasses.replace(
        candidate,
        step=dataclasses.replace(candidate.step, params=dataclasses.replace(params, pair=pair)),
        added_seconds=runs * candidate.added_seconds,
        identity=(*candidate.identity, pair),
        apply_to_copy=None,
    )


def apply_in_pair(module: ir.Module, params: Any, apply: Callable[[ir.Module, Any], None]) -> None:
    """Applies a step to a module, or to the program of a pair in it, in place.

    Raises:
        ValueError: the step was not made for this module.
    """
    if params.pair is None:
        apply(module, params)
        return
    main = entry_graph(module)
    inside = _joined(main, params.pair)
    apply(inside, dataclasses.replace(params, pair=None))
    with module.context:
        _renumber_groups(inside, next_group(module))
        _Parting(nested_graph(main, params.pair.path), params.pair, inside, mesh_axes(module)).run()
        drop_identities(module)
    run_passes(module, "canonicalize")


@cached_analysis
def _pairs(main: Graph) -> tuple[ShardMapPair, ...]:
    """The pairs of a module over all axes of their mesh, so that no sharding is said inside, and without effects."""
    pairs: dict[ShardMapPair, None] = {}
    for path in block_paths(main):
        graph = nested_graph(main, path)
        for second in graph.ops:
            for value in second.operands if second.name == MANUAL_COMPUTATION else ():
                first = graph.producer(value)
                if first is not None and first.name == MANUAL_COMPUTATION:
                    pair = ShardMapPair(path, first.index, second.index)
                    both = {first.index, second.index}
                    if both.isdisjoint(effects(graph)) and all(is_fully_manual(graph.handles[op]) for op in both):
                        pairs |= {pair: None} if _residuals(graph, pair) else {}
    return tuple(pairs)


def _residuals(graph: Graph, pair: ShardMapPair) -> dict[int, tuple[int, int]]:
    """The operands of the second that only it reads: each the value, and the result of the first that it is."""
    found: dict[int, tuple[int, int]] = {}
    second = graph.ops[pair.second]
    for position, value in enumerate(second.operands):
        data = graph.values[value]
        is_residual = data.producer == pair.first and graph.users[value] == (pair.second,)
        if is_residual and lies_alike(graph.mlir_values[value], graph.handles[pair.second], position):
            found[position] = value, data.result
    return found


def _own_and_kept(graph: Graph, pair: ShardMapPair) -> tuple[list[int], list[int]]:
    """The operands of the second and the results of the first that are no residuals."""
    residuals = _residuals(graph, pair)
    handed = {result for _, result in residuals.values()}
    own = [i for i in range(len(graph.ops[pair.second].operands)) if i not in residuals]
    return own, [i for i in range(len(graph.ops[pair.first].results)) if i not in handed]


@cached_analysis
def _inside(main: Graph, pair: ShardMapPair) -> tuple[Graph, ir.Module]:
    """The graph of the program of a pair, and the module that keeps it alive."""
    module = _joined(main, pair)
    return entry_graph(module), module


def _joined(main: Graph, pair: ShardMapPair) -> ir.Module:
    """The program of a pair: the arguments of the first and the second's own, the results of both but for residuals."""
    graph = nested_graph(main, pair.path)
    first, second = graph.handles[pair.first], graph.handles[pair.second]
    residuals, (own, kept) = _residuals(graph, pair), _own_and_kept(graph, pair)
    returned, end = end_of(first).operands, end_of(second).operands
    arguments = [*body_of(first).arguments, *(body_of(second).arguments[i] for i in own)]
    results = [*(returned[i] for i in kept), *end]
    with first.context, first.location:
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            # Collectives name meshes, of which there may be others than those of shardings.
            for op in module_of(first).regions[0].blocks[0].operations:
                if op.operation.name != "func.func":
                    op.operation.clone()
            types = [v.type for v in arguments], [v.type for v in results]
            function = func.FuncOp("main", types, visibility="public")
        block = function.add_entry_block()
        values: dict[Any, Any] = dict(zip(arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            builders.repeat_ops(_ops(first), values)
            for position, (_, result) in residuals.items():
                values[body_of(second).arguments[position]] = values[returned[result]]
            builders.repeat_ops(_ops(second), values)
            func.ReturnOp([values[v] for v in results])
    return module


def _ops(op: Any) -> list[Any]:
    return [inner.operation for inner in body_of(op).operations][:-1]


def _renumber_groups(module: ir.Module, first: int) -> None:
    """Gives the groups of barriers of a module numbers from `first` on."""
    for op in walk_operations(module.operation):
        group = group_of(op)
        if group is not None:
            op.attributes[GROUP] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), first + group)


class _Parting:
    """Builds the two manual computations of a pair anew from its rewritten program.

    Attributes:
        axes: of both, as their attribute says them.
        own, kept: the operands of the second and the results of the first that are no residuals.
        early: the ops of the program that the first's results depend on.
        constant: the ops that depend on no argument: both computations have those they read.
    """

    def __init__(self, graph: Graph, pair: ShardMapPair, program: ir.Module, meshes: dict[str, dict[str, int]]):
        self.first, self.second = graph.handles[pair.first], graph.handles[pair.second]
        self.axes = self.first.attributes["manual_axes"]
        self.own, self.kept = _own_and_kept(graph, pair)
        self.graph, self.block = entry_graph(program), main_function(program).regions[0].blocks[0]
        self.meshes = meshes
        self.given = len(body_of(self.first).arguments)
        self.early, self.constant = self.early_ops(), self.constant_ops()

    def early_ops(self) -> set[int]:
        """The ops that the first's results depend on.

        Raises:
            ValueError: they depend on the second's operands, or wait for what does.
        """
        graph = self.graph
        pending = list(graph.returned[: len(self.kept)])
        early: set[int] = set()
        while pending:
            value = pending.pop()
            if value in graph.arguments[self.given :]:
                raise ValueError("the first shard_map depends on the second")
            op = graph.producer(value)
            if op is not None and op.index not in early:
                if group_of(graph.handles[op.index]) is not None:
                    raise ValueError("the first shard_map waits for the second")
                early.add(op.index)
                pending += op.inputs
        return early

    def constant_ops(self) -> set[int]:
        graph, varying = self.graph, set(self.graph.arguments)
        constant: set[int] = set()
        for op in graph.ops[:-1]:
            if varying.intersection(op.inputs):
                varying.update(op.results)
            else:
                constant.add(op.index)
        return constant

    def run(self) -> None:
        graph = self.graph
        ours, theirs = graph.returned[: len(self.kept)], graph.returned[len(self.kept) :]
        late = {op.index for op in graph.ops[:-1]} - self.early
        read = {v for op in late for v in graph.ops[op].inputs} | set(theirs)
        handed = self.early - self.constant
        crossing = [v for v in sorted(read) if graph.values[v].is_computed and graph.values[v].producer in handed]
        arguments = [i for i, v in enumerate(graph.arguments[: self.given]) if v in read]
        first = self.build_first(sorted(self.early), ours, crossing)
        self.build_second(sorted(late | self.constant), arguments, crossing, theirs, first)
        for old, new in zip((self.first.results[i] for i in self.kept), first.results, strict=False):
            old.replace_all_uses_with(new)
        self.second.erase()
        self.first.erase()

    def build_first(self, ops: Sequence[int], ours: Sequence[int], crossing: Sequence[int]) -> Any:
        shardings = result_shardings(self.first)
        results = [(self.first.results[i].type, shardings[i]) for i in self.kept]
        operands = list(zip(self.first.operands, operand_shardings(self.first), strict=True))
        with self.first.location, ir.InsertionPoint(self.first):
            new = created(self.axes, operands, [*results, *(self.outside(v) for v in crossing)])
            block = new.regions[0].blocks.append(*(a.type for a in body_of(self.first).arguments))
        values: dict[Any, Any] = dict(zip(list(self.block.arguments)[: self.given], block.arguments, strict=True))
        with self.first.location, ir.InsertionPoint(block):
            builders.repeat_ops((self.graph.handles[op] for op in ops), values)
            local = [self.in_values(v, values) for v in (*ours, *crossing)]
            handed = [builders.reshaped(v, v.type.shape or [1]) for v in local[len(ours) :]]
            ir.Operation.create(end_of(self.first).name, [], [*local[: len(ours)], *handed])
        return new

    def build_second(
        self, ops: Sequence[int], arguments: Sequence[int], crossing: Sequence[int], theirs: Sequence[int], first: Any
    ) -> None:
        after, before = operand_shardings(self.second), operand_shardings(self.first)
        operands = [(self.second.operands[i], after[i]) for i in self.own]
        operands += [(self.first.operands[i], before[i]) for i in arguments]
        handed = list(first.results)[len(self.kept) :]
        operands += list(zip(handed, result_shardings(first)[len(self.kept) :], strict=True))
        results = [r.type for r in self.second.results]
        given = list(self.block.arguments)
        known = [*given[self.given :], *(given[i] for i in arguments)]
        types = [
            *(v.type for v in known),
            *(end_of(first).operands[len(self.kept) + i].type for i in range(len(crossing))),
        ]
        with self.second.location, ir.InsertionPoint(self.second):
            new = created(self.axes, operands, list(zip(results, result_shardings(self.second), strict=True)))
            block = new.regions[0].blocks.append(*types)
        values: dict[Any, Any] = dict(zip(known, list(block.arguments)[: len(known)], strict=True))
        with self.second.location, ir.InsertionPoint(block):
            for value, argument in zip(crossing, list(block.arguments)[len(known) :], strict=True):
                whole = self.graph.mlir_values[value]
                values[whole] = builders.reshaped(argument, whole.type.shape)
            builders.repeat_ops((self.graph.handles[op] for op in ops), values)
            ir.Operation.create(end_of(self.second).name, [], [self.in_values(v, values) for v in theirs])
        for old, result in zip(self.second.results, new.results, strict=True):
            old.replace_all_uses_with(result)

    def in_values(self, value: int, values: dict[Any, Any]) -> Any:
        return values[self.graph.mlir_values[value]]

    def outside(self, value: int) -> tuple[Any, Any]:
        """The type and the sharding of what the first hands on: the devices' parts one after the other."""
        local = self.graph.mlir_values[value].type
        shape = list(local.shape) or [1]
        mesh = [*operand_shardings(self.first), *result_shardings(self.first)][0].mesh_or_ref
        axes = self.meshes[mesh.value]
        devices = [sdy.AxisRefAttr.get(name) for name in axes]
        whole = [math.prod(axes.values()) * shape[0], *shape[1:]]
        return builders.retype(local, whole), lying(mesh, [devices, *[[]] * (len(shape) - 1)])
