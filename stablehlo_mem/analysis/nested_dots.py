"""Dots that XLA:TPU computes in the kernel of the next one, so that their results are not written. `xla_tpu` asks.

The kernel walks over one dimension that both share: the next dot has to contract all that one operand brings to the
first one's result.
"""

from __future__ import annotations

from stablehlo_mem.analysis.fusion_classes import ELEMENTWISE, Class, classify
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.ir.op_attributes import asks_full_precision, dot_labels, dot_numbers, dot_sizes
from stablehlo_mem.ir.view_chains import places_in_result

_MAX_DEPTH = 384
"""Elements of the contraction of a dot that is nested (seen in compiled programs: 384 are, 512 are not)."""


def is_in_next_dot(graph: Graph, dot: Op) -> bool:
    """Whether a dot is computed in the next one's kernel.

    Its contraction is short. The next dot alone uses what elementwise ops make of its result and of rows, columns and
    scalars, and contracts the one dimension that an operand brings to the result. In compiled programs more than one
    was nested from the left operand and not from the right: they are counted as written.
    """
    if dot.name == "stablehlo.convolution" or dot_sizes(graph, dot)[3] > _MAX_DEPTH or asks_full_precision(graph, dot):
        return False
    path = _path_to_next_dot(graph, dot)
    return bool(path) and not asks_full_precision(graph, path[-1]) and _contracts_one_side(graph, dot, path)


def _path_to_next_dot(graph: Graph, dot: Op) -> list[Op]:
    """The ops from a dot to the only one that uses its result, that one last; none if others need it too."""
    made, between, after = dict.fromkeys(dot.results), dict[int, Op](), set[int]()
    pending = [*made]
    while pending:
        for op in (graph.ops[user] for user in graph.users[pending.pop()]):
            if classify(graph, op) is Class.DOT:
                after.add(op.index)
            elif not _keeps_elements(graph, op):
                return []
            elif op.index not in between:
                between[op.index] = op
                made.update(dict.fromkeys(op.results))
                pending += op.results
    others = (v for op in between.values() for v in op.operands if v not in made)
    if len(after) != 1 or not all(_is_repeated(graph, v) for v in others):
        return []
    return [between[op] for op in sorted(between)] + [graph.ops[after.pop()]]


def _keeps_elements(graph: Graph, op: Op) -> bool:
    """Whether the elements of an op's one result are made of those of its operands, wherever these lie."""
    is_one = classify(graph, op) in ELEMENTWISE | {Class.VIEW} or op.name == "stablehlo.transpose"
    return is_one and len(op.results) == 1


def _is_repeated(graph: Graph, value: int) -> bool:
    """Whether a value is a scalar, or repeats the elements of a smaller one."""
    producer = graph.producer(value)
    repeats = producer is not None and producer.name in ("stablehlo.broadcast_in_dim", "stablehlo.constant")
    return repeats or not graph.values[value].shape


def _contracts_one_side(graph: Graph, dot: Op, path: list[Op]) -> bool:
    """Whether the last op of a path contracts the one dimension that an operand of the first dot brings, and no other.

    Batch dimensions may be contracted too.
    """
    *between, outer = path
    places: dict[int, tuple[int | None, ...]] = {dot.results[0]: tuple(range(len(graph.values[dot.results[0]].shape)))}
    for op in between:
        source = next(v for v in op.operands if v in places)
        places[op.results[0]] = _moved(graph, op, places[source])
    position = next(p for p, v in enumerate(outer.operands) if v in places)
    summed = dot_numbers(graph, outer).contracting[position]
    contracted = {label for label, place in enumerate(places[outer.operands[position]]) if place in summed}
    left, right, sizes, rank = dot_labels(graph, dot)
    brought = [{label for label in side if label < rank and sizes[label] > 1} for side in (left, right)]
    batch = brought[0] & brought[1]
    return any(len(side - batch) == 1 and contracted - batch == side - batch for side in brought)


def _moved(graph: Graph, op: Op, places: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """Where an op puts the dimensions that its operand has in these places; None where it joins or divides them."""
    if op.name == "stablehlo.reshape":
        before, after = (_strides(graph.values[v].shape) for v in (op.operands[0], op.results[0]))
        moves = tuple(after.index(dim) if dim in after else None for dim in before)
    else:
        moves = places_in_result(graph, op)
    return places if moves is None else tuple(None if place is None else moves[place] for place in places)


def _strides(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """The elements of each dimension, and those of all after it."""
    strides: list[tuple[int, int]] = []
    after = 1
    for size in reversed(shape):
        strides.insert(0, (size, after))
        after *= size
    return strides
