"""What one device does of an op in a program that Shardy distributes, and what it exchanges with others for it.

The graph knows the parts of each dimension (`ir.shards`), not the mesh axes. A partitioner shares an op out as its
result lies, or as an operand does, or all of them, and moves what lies otherwise: operands are gathered, or change the
dimension that is shared out; results are summed over devices, gathered, or change it too. Of these ways we count the
one that leaves each device least to do and, of several, moves least. `cost_model` charges an op's arithmetic on one
device and what that receives.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import module_of
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.ir.manual_computation import MANUAL_COMPUTATION, operand_shardings
from stablehlo_mem.ir.shards import Parts, mesh_axes, sharding_parts
from stablehlo_mem.sharding_rules import rule_of
from stablehlo_mem.sharding_rules.factor_rule import Dims, FactorRule, SplitOp

_EXCHANGING = (
    "stablehlo.dot_general",
    "stablehlo.convolution",
    "stablehlo.reduce",
    "stablehlo.gather",
    "stablehlo.scatter",
)
"""Ops whose operands and results are moved: what others exchange depends on the partitioner's choices and is less."""

_PASSES = {
    **{f"stablehlo.{name}": 1 for name in ("all_gather", "all_to_all", "collective_broadcast", "collective_permute")},
    "stablehlo.all_reduce": 2,
    "stablehlo.reduce_scatter": 1,
}
"""How often the larger of what a device has before and after a collective of a `shard_map` passes it: a ring reduces,
and gathers the sums again."""

_Factors = dict[int, int]
"""By how many devices each factor of an op is shared out; those of no other are left out."""
_CACHED = 2**14
"""Kinds of ops whose ways are kept: more than the ops of a program differ in."""


@dataclasses.dataclass(frozen=True)
class _Placed:
    """What decides how an op can be shared out: its rule and how its operands and results lie."""

    rule: FactorRule
    operands: tuple[Parts, ...]
    results: tuple[Parts, ...]


@dataclasses.dataclass(frozen=True)
class _Exchange:
    """What devices exchange so that an op can run.

    Attributes:
        moved: bytes that one receives of each operand, then of each result.
        gathered: bytes of each operand as one has it then, 0 where that is as it lies.
        across: for each operand, whether it is gathered along another dimension than its first.
        partial: bytes of the results as one computes them, where they lie otherwise or are sums of those of several.
    """

    moved: tuple[float, ...] = ()
    gathered: tuple[float, ...] = ()
    across: tuple[bool, ...] = ()
    partial: float = 0.0


@cached_analysis
def sharing_devices(graph: Graph, op: Op) -> int:
    """How many devices share out the arithmetic of an op, as many as can: 1 in a program for one."""
    if not _is_distributed(graph):
        return 1
    placed = _placed(graph, op)
    if placed is None:
        return max((math.prod(graph.values[v].parts) for v in op.results), default=1)
    return _most_devices(placed, _most_parts(graph))


def exchanged_bytes(graph: Graph, op: Op) -> float:
    """Bytes that one device receives so that an op can run, shared out by as many as can, or for a collective."""
    sides = (sum(graph.values[v].nbytes for v in values) for values in (op.operands, op.results))
    return _PASSES[op.name] * max(sides) if op.name in _PASSES else sum(_exchange(graph, op).moved)


def gathered_bytes(graph: Graph, op: Op) -> dict[int, int]:
    """The operands that one device gathers so that an op can run, each with the bytes that it has of them then."""
    gathered = _exchange(graph, op).gathered
    return {v: round(nbytes) for v, nbytes in zip(op.inputs, gathered, strict=False) if nbytes}


def gathered_across(graph: Graph, op: Op) -> list[int]:
    """The operands gathered along a dimension that is not the first, so that the parts are not contiguous in memory."""
    return list(itertools.compress(op.inputs, _exchange(graph, op).across))


def partial_bytes(graph: Graph, op: Op) -> int:
    """Bytes of an op's results as one device computes them, before they are summed up or moved to where they lie."""
    return round(_exchange(graph, op).partial)


def repeated_bytes(graph: Graph, split_op: SplitOp) -> float:
    """What of these bytes every chunk of a split op moves again: those of operands and results that it has whole."""
    moved = _exchange(graph, graph.ops[split_op.op]).moved
    dimensions = (*split_op.operand_dims, *split_op.result_dims)
    return sum(nbytes for nbytes, along in zip(moved, dimensions, strict=True) if along is None) if moved else 0.0


@cached_analysis
def _exchange(graph: Graph, op: Op) -> _Exchange:
    """What devices exchange for an op, shared out by as many as can so that they exchange least."""
    if op.name == MANUAL_COMPUTATION:
        return _entering(graph, op)
    placed = _placed(graph, op) if op.name in _EXCHANGING and _is_distributed(graph) else None
    if placed is None:
        return _Exchange()
    operands, results = (tuple([graph.values[v].nbytes for v in values]) for values in (op.inputs, op.results))
    return _least_exchange(placed, sharing_devices(graph, op), operands, results)


@functools.lru_cache(maxsize=_CACHED)
def _least_exchange(placed: _Placed, devices: int, operands: tuple[int, ...], results: tuple[int, ...]) -> _Exchange:
    """The same for an op of so many bytes of operands and results, shared out by so many devices."""
    ways = (way for way in _ways(placed) if math.prod(way.values()) == devices)
    return min((_in_way(placed, way, operands, results) for way in ways), key=lambda one: sum(one.moved))


def _entering(graph: Graph, op: Op) -> _Exchange:
    """What devices exchange so that the operands of a `shard_map` lie as its specs say."""
    handle = graph.handles[op.index]
    meshes, moved, gathered = mesh_axes(module_of(handle)), list[float](), list[float]()
    for value, sharding in zip(op.operands, operand_shardings(handle), strict=True):
        sides = graph.values[value].parts, sharding_parts(sharding, meshes)
        bytes_moved, bytes_gathered = _relaid(graph.values[value].nbytes, *(dict(enumerate(parts)) for parts in sides))
        moved.append(bytes_moved)
        gathered.append(bytes_gathered)
    return _Exchange((*moved, *[0.0] * len(op.results)), tuple(gathered), (False,) * len(moved))


def _placed(graph: Graph, op: Op) -> _Placed | None:
    """An op as it is placed, None if it has no rule."""
    rule = rule_of(graph, op.index)
    if rule is None:
        return None
    operands, results = (tuple([graph.values[v].parts for v in values]) for values in (op.inputs, op.results))
    return _Placed(rule, operands, results)


@functools.lru_cache(maxsize=_CACHED)
def _most_devices(placed: _Placed, limit: int) -> int:
    """By how many devices an op can be shared out, at most `limit`; ops of a kind are alike in all candidates."""
    counts = (math.prod(way.values()) for way in _ways(placed))
    return max(count for count in counts if count <= limit)


def _ways(placed: _Placed) -> Iterator[_Factors]:
    """As the results lie, with and without the sums that all operands share out alike; as operands lie."""
    rule, results = placed.rule, dict[int, int]()
    for parts, dims in zip(placed.results, rule.results, strict=True):
        results |= _factors(parts, dims, rule)
    operands = [_factors(parts, dims, rule) for parts, dims in zip(placed.operands, rule.operands, strict=True)]
    carrying = {f: [i for i, dims in enumerate(rule.operands) if any(f in d for d in dims)] for f in rule.reduction}
    sums = {f: min((operands[i].get(f, 1) for i in carrying[f]), default=1) for f in rule.reduction}
    yield {**results, **{factor: count for factor, count in sums.items() if count > 1}}
    yield results
    yield from operands
    yield {factor: count for factors in operands for factor, count in factors.items()}
    yield {}


def _in_way(placed: _Placed, way: _Factors, operands: tuple[int, ...], results: tuple[int, ...]) -> _Exchange:
    """What devices exchange if an op is shared out in a way."""
    moved, gathered, across, partial, rule = list[float](), list[float](), list[bool](), 0.0, placed.rule
    for held, parts, dims in zip(operands, placed.operands, rule.operands, strict=True):
        lies = _factors(parts, dims, rule)
        bytes_moved, bytes_gathered = _relaid(held, lies, {f: way.get(f, 1) for d in dims for f in d})
        moved.append(bytes_moved)
        gathered.append(bytes_gathered)
        within = {f for factors in dims[1:] for f in factors}
        across.append(any(way.get(factor, 1) < count for factor, count in lies.items() if factor in within))
    sums = math.prod(way.get(factor, 1) for factor in rule.reduction)
    for held, parts, dims in zip(results, placed.results, rule.results, strict=True):
        lies = _factors(parts, dims, rule)
        missing, gained = _change({f: way.get(f, 1) for d in dims for f in d}, lies)
        nbytes = held * gained / missing
        partial += nbytes if sums > 1 or missing > 1 else 0.0
        # As it is computed it may lack parts that it is to have, and have others; a sum is in parts of its own.
        if sums > 1:
            # A ring sums up the parts; if the result does not stay in them it gathers the sums. XLA scatters sums
            # along one dimension only: those that are to lie in parts along two change one afterwards (`ir.places`).
            gaining = sum(any(lies.get(f, 1) > way.get(f, 1) for f in d) for d in dims)
            nbytes = nbytes * (1 if gained >= sums else 2) + (held if gained >= sums and gaining > 1 else 0)
        elif missing == 1:
            nbytes = 0
        moved.append(nbytes * (1 if sums > 1 or gained > 1 else missing))
    return _Exchange(tuple(moved), tuple(gathered), tuple(across), partial)


def _relaid(nbytes: int, lies: _Factors, wanted: _Factors) -> tuple[float, float]:
    """Bytes of an operand that a device receives so that it lies as wanted, and those it has then; 0 if it does."""
    missing, gained = _change(lies, wanted)
    return (nbytes * max(1.0, missing / gained), nbytes * missing / gained) if missing > 1 else (0.0, 0.0)


def _change(before: _Factors, after: _Factors) -> tuple[float, float]:
    """By how much less and by how much more of the factors a value is shared out: 8 rows as 2 x 4 give 4 and 4."""
    ratios = [before.get(f, 1) / after.get(f, 1) for f in {*before, *after}]
    return math.prod(max(1.0, r) for r in ratios), math.prod(max(1.0, 1 / r) for r in ratios)


def _factors(parts: Parts, dims: Dims, rule: FactorRule) -> _Factors:
    """The parts that a value lies in, along the major factor of each dimension."""
    pairs = zip(dims, parts, strict=False)
    majors = ((next((f for f in factors if rule.sizes[f] != 1), None), count) for factors, count in pairs)
    return {factor: count for factor, count in majors if factor is not None and count > 1}


@cached_analysis
def _most_parts(graph: Graph) -> int:
    """The most parts that any value lies in."""
    return max((math.prod(value.parts) for value in graph.values), default=1)


def _is_distributed(graph: Graph) -> bool:
    return _most_parts(graph) > 1
