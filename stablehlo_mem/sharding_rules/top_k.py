"""Rule of a top-k: along the dimension in which it searches, chunks are searched in order and the results merged.

A loop carries the k largest elements so far and their indices. Each step finds the k largest of its chunk, puts them
after the carried ones, and keeps the first k of a stable sort: of equal elements the one of the lowest index comes
first, as in a top-k of all. The order is the total order of floats, NaNs included. `registry` joins the rule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import chlo, ir, stablehlo
from stablehlo_mem.sharding_rules.factor_rule import FactorRule
from stablehlo_mem.sharding_rules.op_rule import EmitContext, OpRule, Reduction, clone_on_chunk

_NONE = -1
"""The index of a carried element that does not count: there is none yet, or the chunk has it too."""


def _top_k_rule(op: Any) -> FactorRule:
    """Every dimension passes through except the last: it is reduced in order, and has another size in the results."""
    shape = tuple(op.operands[0].type.shape)
    last = len(shape) - 1
    dims = tuple((d,) for d in range(last))
    sizes = (*shape, op.results[0].type.shape[-1])
    operands, results = ((*dims, (last,)),), ((*dims, (last + 1,)),) * 2
    rule = FactorRule(sizes, operands, results, reduction=frozenset({last}), directions=((last, 1),))
    return rule.block({last + 1}, "the largest elements are ordered along it")


def approximate_top_k_rule(op: Any) -> FactorRule | None:
    """That of JAX's `approx_max_k`, a custom call ApproxTopK: every dimension passes through but the one it searches.

    Operands are n arrays, then a scalar for each. None for other custom calls.
    """
    if ir.StringAttr(op.attributes["call_target_name"]).value != "ApproxTopK":
        return None
    searched = ir.IntegerAttr(ir.DictAttr(op.attributes["mhlo.backend_config"])["reduction_dim"]).value
    shape, count = tuple(op.operands[0].type.shape), len(op.results)
    found = tuple((len(shape),) if d == searched else (d,) for d in range(len(shape)))
    operands = (tuple((d,) for d in range(len(shape))),) * count + ((),) * count
    rule = FactorRule((*shape, op.results[0].type.shape[searched]), operands, (found,) * count)
    return rule.block({searched, len(shape)}, "how it searches depends on how long it is")


def _emit(context: EmitContext) -> list[Any]:
    """The top-k of a chunk; of a part of the searched dimension with indices in all of it.

    Where the chunk repeats elements of the one before, its first index too.
    """
    if not context.split_op.reducing:
        return clone_on_chunk(context)
    (x,) = context.operands
    size = x.type.shape[-1]
    values, indices = chlo.TopKOp(x, min(size, context.result_shapes[0][-1])).results
    start = context.chunk.start_in(size)
    results = [values, stablehlo.add(indices, builders.broadcast(start, indices.type))]
    return results if context.chunk.repeated is None else [*results, start]


def _initial(op: Any, operands: Sequence[Any]) -> list[Any]:
    """Elements that do not count."""
    values, indices = (result.type for result in op.results)
    return [builders.zeros(values), builders.splat(indices, _NONE)]


def _merged(op: Any, carries: Sequence[Any], partials: Sequence[Any]) -> list[Any]:
    """The k largest of the carried elements and those of a chunk."""
    values, indices = carries
    for start in partials[2:]:
        # A ragged last chunk starts early: what it repeats counts in it only.
        before = stablehlo.compare(indices, builders.broadcast(start, indices.type), _direction("LT"))
        indices = stablehlo.select(before, indices, builders.splat(indices.type, _NONE))
    dimension = len(values.type.shape) - 1
    pairs = (values, partials[0]), (indices, partials[1])
    ordered = _sorted([stablehlo.concatenate(pair, dimension) for pair in pairs], dimension)
    return [builders.sliced_along(v, dimension, 0, values.type.shape[-1]) for v in ordered]


def _sorted(operands: Sequence[Any], dimension: int) -> list[Any]:
    """Elements and indices, the largest first, those that do not count last; equal ones in the order they are in."""
    sort = stablehlo.SortOp([v.type for v in operands], list(operands), dimension=dimension, is_stable=True).operation
    scalars = [builders.retype(v.type, ()) for v in operands for _ in range(2)]
    block = sort.regions[0].blocks.append(*scalars)
    with ir.InsertionPoint(block):
        left, right, *indices = block.arguments
        counts = [stablehlo.compare(i, builders.splat(i.type, 0), _direction("GE")) for i in indices]
        larger = stablehlo.compare(left, right, _direction("GT"), compare_type=_order(left.type.element_type))
        alike = stablehlo.compare(counts[0], counts[1], _direction("EQ"))
        stablehlo.return_([stablehlo.select(alike, larger, counts[0])])
    return list(sort.results)


def _direction(name: str) -> Any:
    return stablehlo.ComparisonDirectionAttr.get(name)


def _order(element: Any) -> Any:
    """How a top-k compares elements of a type."""
    if not isinstance(element, ir.IntegerType):
        return stablehlo.ComparisonTypeAttr.get("TOTALORDER")
    return stablehlo.ComparisonTypeAttr.get("UNSIGNED" if element.is_unsigned else "SIGNED")


def _merging_flops(op: Any) -> float:
    """The comparisons of a merge: a sort of 2k elements a row."""
    count = math.prod(op.results[0].type.shape)
    return 2 * count * math.log2(2 * max(1, op.results[0].type.shape[-1]))


_LARGEST = Reduction(
    initial=_initial,
    combine=_merged,
    identity=lambda op, position, operands: None,
    regroups=lambda op: False,
    flops=_merging_flops,
)

OP_RULES = {"chlo.top_k": OpRule(rule=_top_k_rule, emit=_emit, reduction=_LARGEST)}
