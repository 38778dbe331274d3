"""Makes compilers run the last kernels that read a large value before a loop that comes after them.

Before:
    %w = stablehlo.dot_general %large, %x                     the last op that reads %large
    %r = stablehlo.while(%i = %start) { ... }                 the loop needs nothing of %w
After:
    %w1, %start1 = stablehlo.optimization_barrier %w, %start
    %r = stablehlo.while(%i = %start1) { ... }

Compilers order kernels by what depends on what. In a program for several devices they schedule what nobody waits for,
such as the gradient of a weight, as late as they can, so that it runs beside collectives: %large, the gradient of
logits say, stays while the backward loop runs. The planner calls it on a finished program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stablehlo_mem.analysis.fusion_classes import ELEMENTWISE, FUSED_OR_GENERATED, Class, classify
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.graph import Graph, Op, entry_graph, nested_graph, producers_of, reachable, readers_through
from stablehlo_mem.ir.shards import is_distributed
from stablehlo_mem.rewriting.rewriting_pass import block_paths

_LARGE_SHARE = 8
"""Values are large from one part in so many of the largest value of the program on: a guess, as for candidates."""


def finish_before_loops(module: ir.Module) -> None:
    """Adds the barriers to a program for several devices, in place; its values have the marks of their shards."""
    if not is_distributed(module):
        return
    main = entry_graph(module)
    graphs = [nested_graph(main, path) for path in block_paths(main)]
    largest = max((value.nbytes for graph in graphs for value in graph.values if value.is_computed), default=0)
    for graph in graphs:
        for loop, results in list(_finished(graph, max(1, largest // _LARGE_SHARE))):
            _tie(graph, loop, results)


def _finished(graph: Graph, least_bytes: int) -> Iterator[tuple[Op, Sequence[int]]]:
    """Loops of a block, each with results of ops before it that are to be there when it starts."""
    read = [(v, _readers(graph, v.index)) for v in graph.values if v.is_computed and v.nbytes >= least_bytes]
    previous = -1
    for loop in (op for op in graph.ops if op.name == "stablehlo.while"):
        ending = [(v.nbytes, readers) for v, readers in read if readers and previous < readers[-1] < loop.index]
        needed = reachable(producers_of(graph)[loop.index], producers_of(graph).__getitem__)
        late = {op: nbytes for nbytes, readers in ending for op in readers if op not in needed}
        results = [graph.ops[op].results[0] for op, nbytes in late.items() if _result_bytes(graph, op) < nbytes]
        yield loop, list(dict.fromkeys(_accumulated(graph, result, loop) for result in results))
        previous = loop.index


def _readers(graph: Graph, value: int) -> list[int]:
    """The kernels that read a value or what is computed of it while they read it, in program order."""
    is_fused = lambda op: classify(graph, op) in FUSED_OR_GENERATED  # noqa: E731
    return sorted(op for op in readers_through(graph, [value], is_fused) if not is_fused(graph.ops[op]))


def _result_bytes(graph: Graph, op: int) -> int:
    return sum(graph.values[result].nbytes for result in graph.ops[op].results)


def _accumulated(graph: Graph, value: int, loop: Op) -> int:
    """What elementwise ops before a loop make of a value that nothing else uses, such as a sum that it is added to."""
    while len(users := graph.users[value]) == 1 and users[0] < loop.index:
        (user,) = (graph.ops[op] for op in users)
        if classify(graph, user) not in ELEMENTWISE:
            break
        (value,) = user.results
    return value


def _tie(graph: Graph, loop: Op, results: Sequence[int]) -> None:
    """Makes a loop wait for results of ops before it."""
    computed = (v for v in loop.operands if (op := graph.producer(v)) is not None and not _is_generated(graph, op))
    start = max(computed, key=lambda v: graph.values[v].nbytes, default=None)
    if not results or start is None:
        return
    tied = list(dict.fromkeys((*results, start)))
    handle = graph.handles[loop.index]
    with builders.building(handle, handle.location):
        barrier = stablehlo.OptimizationBarrierOp([graph.mlir_values[v] for v in tied])
    for value, behind in zip(tied, barrier.results, strict=True):
        for user in (user for user in graph.users[value] if user >= loop.index):
            builders.rebind(graph.handles[user], {graph.mlir_values[value]: behind})


def _is_generated(graph: Graph, op: Op) -> bool:
    """Whether an op makes zeros or the like, which a barrier would keep apart from the kernel that reads them."""
    return classify(graph, op) is Class.GENERATE or op.name == "stablehlo.broadcast_in_dim"
