"""Recognises small pieces of a program: constants of one number, masks of a diagonal, reducers that add.

Analyses, factor rules and passes call it.
"""

from __future__ import annotations

from typing import Any

from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import dense_value, ir
from stablehlo_mem.ir.graph import FLOATS, Graph, Op
from stablehlo_mem.ir.op_attributes import comparison_direction
from stablehlo_mem.ir.view_chains import view_of

SPREADING = ("stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.transpose")


def is_alone(graph: Graph, value: int, source: int) -> bool:
    """Whether nobody else needs a value, nor anything down to the source it is a view of."""
    while True:
        users = graph.users[value]
        if len(users) != 1 or graph.ops[users[0]].operands.count(value) != 1:
            return False
        op = graph.producer(value)
        if value == source or op is None:
            return True
        value = op.operands[0]


@cached_analysis
def splat_value(graph: Graph, value: int) -> float | int | None:
    """The number that a value is filled with: see `splat_number`."""
    return splat_number(graph.mlir_values[value])


def splat_number(value: Any) -> float | int | None:
    """The number that a constant, or a view or conversion of one, is filled with; None if it is no such constant.

    Constants of enclosing blocks count: canonicalisation moves those of a loop's body there.
    """
    number = _splat_attribute(value)
    return number.value if isinstance(number, (ir.FloatAttr, ir.IntegerAttr)) else None


def splat_truth_of(value: Any) -> bool | None:
    """Whether a predicate is true everywhere, or false everywhere; None if it is no such constant."""
    truth = _splat_attribute(value)
    return truth.value if isinstance(truth, ir.BoolAttr) else None


def _splat_attribute(value: Any) -> Any:
    owner: Any = value.owner
    while not isinstance(owner, ir.Block) and (owner.operation.name in SPREADING or _keeps_numbers(owner.operation)):
        owner = owner.operation.operands[0].owner
    if isinstance(owner, ir.Block) or owner.operation.name != "stablehlo.constant":
        return None
    constant = dense_value(owner.operation)
    if constant is None or not constant.is_splat:
        return None
    return constant.get_splat_value()


def _keeps_numbers(op: Any) -> bool:
    """Whether an op converts to a wider type, or integers to floats."""
    if op.name != "stablehlo.convert":
        return False
    before, after = (value.type.element_type for value in (op.operands[0], op.results[0]))
    if isinstance(after, ir.IntegerType):
        return after.is_signless and isinstance(before, ir.IntegerType) and 1 < before.width < after.width
    if not isinstance(after, ir.FloatType):
        return False
    if isinstance(before, ir.IntegerType):
        return before.width > 1
    return isinstance(before, ir.FloatType) and before.width <= after.width


@cached_analysis
def sums_products_in_units(graph: Graph, op: Op) -> bool:
    """Whether a reduce adds up products that nobody else reads, its result with a dimension of one element."""
    if op.name != "stablehlo.reduce" or len(op.results) != 1 or not adds(op.blocks[0]):
        return False
    value = op.operands[0]
    if 1 not in graph.values[op.results[0]].shape or graph.values[value].dtype not in ("f32", "f64"):
        return False
    unsigned = below_sign(graph, value)
    product = graph.producer(unsigned)
    return product is not None and is_alone(graph, value, unsigned) and _is_product(graph, product)


def converts_floats(graph: Graph, op: Op) -> bool:
    """Whether an op converts floats to another float type."""
    return op.name == "stablehlo.convert" and {graph.values[v].dtype for v in (*op.operands, *op.results)} <= FLOATS


def below_sign(graph: Graph, value: int) -> int:
    """The value without the negations before it: every compiler moves them behind a sum."""
    return graph.under(value, lambda op: op.name == "stablehlo.negate")


def _is_product(graph: Graph, op: Op) -> bool:
    """Whether an op multiplies two different values, neither a number; to divide by what is spread is to multiply."""
    if op.name == "stablehlo.divide":
        divisor = graph.producer(op.operands[1])
        return divisor is not None and divisor.name == "stablehlo.broadcast_in_dim"
    if op.name != "stablehlo.multiply":
        return False
    left, right = op.operands
    return left != right and splat_value(graph, left) is None and splat_value(graph, right) is None


def starts_at_zero(graph: Graph, reduce: Op) -> bool:
    """Whether a reduce of one operand starts at the constant zero."""
    return splat_value(graph, reduce.operands[1]) == 0


@cached_analysis
def identity_mask_dims(graph: Graph, mask: int) -> tuple[int, int] | None:
    """The two dimensions of a mask that is true, or 1, where their indices are equal; None if it is no such mask."""
    view = view_of(graph, mask)
    op = graph.producer(view.source)
    if op is None:
        return None
    if op.name == "stablehlo.convert":
        dims: tuple[int | None, ...] = identity_mask_dims(graph, op.operands[0]) or ()
    else:
        dims = tuple(index_dim(graph, v) for v in op.operands) if is_equality(graph, op) else ()
    places = [None if d is None else view.dims[d] for d in dims]
    if len(places) != 2 or places[0] is None or places[1] is None or places[0] == places[1]:
        return None
    return places[0], places[1]


def is_equality(graph: Graph, op: Op) -> bool:
    """Whether an op compares two values for being equal."""
    return op.name == "stablehlo.compare" and direction(graph, op) == "EQ"


def direction(graph: Graph, compare: Op) -> str:
    """What a compare asks of its operands: EQ, NE, LT, LE, GT or GE."""
    return comparison_direction(graph.handles[compare.index])


def index_dim(graph: Graph, value: int) -> int | None:
    """The dimension whose index a value holds in each of its elements."""
    view = view_of(graph, value)
    op = graph.producer(view.source)
    dim = None if op is None else _index_dim_of(graph, op)
    return None if dim is None else view.dims[dim]


def _index_dim_of(graph: Graph, op: Op) -> int | None:
    """The dimension whose index the result of an op holds in each of its elements."""
    if op.name == "stablehlo.add":
        return next(
            (index_dim(graph, a) for a, b in (op.operands, op.operands[::-1]) if splat_value(graph, b) == 0), None
        )
    if op.name == "stablehlo.select" and _asks_below_zero(graph, op.operands[0], op.operands[2]):
        return index_dim(graph, op.operands[2])
    dim: int | None = None
    if op.name == "stablehlo.iota":
        dim = ir.IntegerAttr(graph.handles[op.index].attributes["iota_dimension"]).value
    elif op.name == "stablehlo.convert":
        dim = index_dim(graph, op.operands[0])
    result = graph.values[op.results[0]]
    return None if dim is None or result.shape[dim] > integers_of(result.dtype).stop else dim


def _asks_below_zero(graph: Graph, mask: int, value: int) -> bool:
    """Whether a mask is of where a value is below zero: so JAX counts negative indices from the end."""
    op = graph.producer(mask)
    if op is None or op.name != "stablehlo.compare" or direction(graph, op) != "LT":
        return False
    return op.operands[0] == value and splat_value(graph, op.operands[1]) == 0


def adds(body: Graph) -> bool:
    """Whether a reducer adds its two arguments and does nothing else."""
    add = body.ops[0]
    return (
        len(body.ops) == 2
        and add.name == "stablehlo.add"
        and set(add.operands) == set(body.arguments)
        and body.returned == add.results
    )


def integers_of(dtype: str) -> range:
    """The integers that an element type holds; none if it is none of integers."""
    digits = dtype.lstrip("ui")
    if not digits.isdigit() or dtype == "i1":
        return range(0)
    return range(2 ** int(digits)) if dtype[0] == "u" else range(-(2 ** (int(digits) - 1)), 2 ** (int(digits) - 1))
