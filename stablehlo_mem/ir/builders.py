"""Builds small pieces of StableHLO at the current insertion point and location, for everything that edits modules."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

from stablehlo_mem.ir.bindings import RULE, ir, stablehlo, walk_operations


@contextlib.contextmanager
def building(block_or_op: Any, location: Any) -> Generator[None]:
    """Builds at the end of a block, or before an op, with a location."""
    with location.context, location, ir.InsertionPoint(block_or_op):
        yield


def tensor(shape: Sequence[int], element: Any) -> Any:
    """The ranked tensor type of a shape and an element type."""
    return ir.RankedTensorType.get(list(shape), element)


def retype(mlir_type: Any, shape: Sequence[int]) -> Any:
    """A tensor type with another shape and the same element type."""
    return ir.RankedTensorType.get(list(shape), mlir_type.element_type)


def i32(value: int) -> Any:
    """An i32 scalar constant."""
    return splat(tensor((), ir.IntegerType.get_signless(32)), value)


def scaled(index: Any, factor: int) -> Any:
    """An i32 scalar times a number, the scalar itself if that is 1."""
    return index if factor == 1 else stablehlo.multiply(index, i32(factor))


def zeros(mlir_type: Any) -> Any:
    """A zero-filled tensor of a type (false for predicates), as a splat constant."""
    return splat(mlir_type, 0)


def ones(mlir_type: Any) -> Any:
    """A tensor of ones."""
    return splat(mlir_type, 1)


def splat(mlir_type: Any, value: float) -> Any:
    """A tensor of a type filled with a number, as a constant."""
    element = mlir_type.element_type
    if isinstance(element, ir.ComplexType):
        # The bindings' splats take no complex numbers.
        parts = tensor(mlir_type.shape, element.element_type)
        return stablehlo.complex(splat(parts, value), splat(parts, 0))
    is_integer = isinstance(element, ir.IntegerType)
    scalar = ir.IntegerAttr.get(element, value) if is_integer else ir.FloatAttr.get(element, value)
    return stablehlo.constant(ir.DenseElementsAttr.get_splat(mlir_type, scalar))


def broadcast(value: Any, mlir_type: Any, dims: Sequence[int] = ()) -> Any:
    """broadcast_in_dim of a value to a type."""
    return stablehlo.broadcast_in_dim(mlir_type, value, ir.DenseI64ArrayAttr.get(list(dims)))


def broadcast_zeros(mlir_type: Any) -> Any:
    """Zeros of a type, broadcast from a scalar: no constant of that size."""
    return broadcast(zeros(retype(mlir_type, ())), mlir_type)


def convert(value: Any, element: Any) -> Any:
    """A value converted to another element type, the value itself if it has that."""
    if value.type.element_type == element:
        return value
    return stablehlo.convert(tensor(value.type.shape, element), value)


def reshaped(value: Any, shape: Sequence[int]) -> Any:
    """A value in another shape, the value itself if it has that."""
    if list(value.type.shape) == list(shape):
        return value
    return stablehlo.reshape(retype(value.type, shape), value)


def transposed(value: Any, order: Sequence[int]) -> Any:
    """A value with its dimensions in an order, the value itself if they are."""
    if list(order) == list(range(len(order))):
        return value
    return stablehlo.transpose(value, ir.DenseI64ArrayAttr.get(list(order)))


def laid_along(value: Any, dims: Sequence[int | None], mlir_type: Any) -> Any:
    """A value broadcast to a type of the same elements, its dimensions laid along `dims` of it (None: of size 1)."""
    places = [d for d in dims if d is not None]
    value = reshaped(value, [size for d, size in zip(dims, value.type.shape, strict=True) if d is not None])
    value = transposed(value, sorted(range(len(places)), key=places.__getitem__))
    return value if len(places) == len(mlir_type.shape) else broadcast(value, mlir_type, sorted(places))


def gathered(value: Any, indices: Any, dimension: int, size: int | None = None) -> Any:
    """The elements of a value at indices along a dimension, of as many dimensions themselves.

    Args:
        size: so many elements from each index on, in a last dimension of their own.
    """
    rank = len(value.type.shape)
    others = [d for d in range(rank) if d != dimension]
    ends = ([], [dimension]) if size is None else ([rank], [])
    numbers = stablehlo.GatherDimensionNumbers.get(*ends, others, others, [dimension], rank)
    places = reshaped(indices, [*indices.type.shape, 1])
    sizes = ir.DenseI64ArrayAttr.get([(size or 1) if d == dimension else 1 for d in range(rank)])
    return stablehlo.GatherOp(value, places, numbers, sizes, indices_are_sorted=ir.BoolAttr.get(False)).result


def reduced(value: Any, dims: Sequence[int], initial: float, combine: Callable[[Any, Any], Any]) -> Any:
    """A value reduced over some dimensions from an initial number; `combine` builds the op on two scalars."""
    scalar = tensor((), value.type.element_type)
    shape = [size for d, size in enumerate(value.type.shape) if d not in dims]
    reduce = stablehlo.ReduceOp([retype(scalar, shape)], [value], [splat(scalar, initial)], sorted(dims))
    block = reduce.regions[0].blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        stablehlo.return_([combine(*block.arguments)])
    return reduce.results[0]


def sliced(value: Any, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int]) -> Any:
    """A slice of a value, the value itself if that is all of it."""
    if not any(starts) and list(limits) == list(value.type.shape) and set(strides) <= {1}:
        return value
    return stablehlo.slice(value, *(ir.DenseI64ArrayAttr.get(list(n)) for n in (starts, limits, strides)))


def sliced_along(value: Any, dimension: int, start: int, limit: int, stride: int = 1) -> Any:
    """A slice of one dimension of a value, the value itself if that is all of it."""
    shape = list(value.type.shape)
    starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[dimension], limits[dimension], strides[dimension] = start, limit, stride
    return sliced(value, starts, limits, strides)


def reversed_along(value: Any, dimension: int) -> Any:
    """A value in reverse along a dimension."""
    return stablehlo.reverse(value, ir.DenseI64ArrayAttr.get([dimension]))


def index_along(shape: Sequence[int], dimension: int, element: Any = None) -> Any:
    """The index of every element of a shape along a dimension, i32 unless another type is given."""
    number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dimension)
    return stablehlo.iota(tensor(shape, element or ir.IntegerType.get_signless(32)), number)


def _starts(value: Any, dimension: int, start: Any) -> list[Any]:
    zero = zeros(start.type)
    return [start if d == dimension else zero for d in range(len(value.type.shape))]


def slice_along(value: Any, dimension: int, start: Any, size: int) -> Any:
    """`size` elements of a dimension from a dynamic start."""
    shape = list(value.type.shape)
    shape[dimension] = size
    return stablehlo.dynamic_slice(value, _starts(value, dimension, start), ir.DenseI64ArrayAttr.get(shape))


def update_along(value: Any, update: Any, dimension: int, start: Any) -> Any:
    """`value` with `update` written at a dynamic start of a dimension."""
    return stablehlo.dynamic_update_slice(value, update, _starts(value, dimension, start))


def slice_of_parts(value: Any, dimension: int, parts: int, start: Any, size: int) -> Any:
    """`size` elements of a dimension: an equal share of each of its parts, from the same dynamic start in each."""
    if parts == 1:
        return slice_along(value, dimension, start, size)
    shape = list(value.type.shape)
    part = slice_along(_in_parts(value, dimension, parts), dimension + 1, start, size // parts)
    return reshaped(part, [*shape[:dimension], size, *shape[dimension + 1 :]])


def update_of_parts(value: Any, update: Any, dimension: int, parts: int, start: Any) -> Any:
    """`value` with an equal share of `update` written to each part of a dimension, from the same start in each."""
    if parts == 1:
        return update_along(value, update, dimension, start)
    whole, new = (_in_parts(v, dimension, parts) for v in (value, update))
    return reshaped(update_along(whole, new, dimension + 1, start), list(value.type.shape))


def _in_parts(value: Any, dimension: int, parts: int) -> Any:
    """A value whose dimension is two: the parts, and the elements of one."""
    shape = list(value.type.shape)
    return reshaped(value, [*shape[:dimension], parts, shape[dimension] // parts, *shape[dimension + 1 :]])


def clamped(index: Any, highest: int) -> Any:
    """An i32 scalar that is at least 0 and at most `highest`."""
    return stablehlo.maximum(stablehlo.minimum(index, i32(highest)), i32(0))


def padded_along(value: Any, dimension: int, low: int, high: int, padding: Any, between: int = 0) -> Any:
    """A value with elements of the scalar `padding` before, after and between its own along a dimension."""
    if not low and not high and not between:
        return value
    rank = len(value.type.shape)
    edges = ([n if d == dimension else 0 for d in range(rank)] for n in (low, high, between))
    return stablehlo.pad(value, padding, *(ir.DenseI64ArrayAttr.get(edge) for edge in edges))


def first_of(value: Any, dimension: int, count: Any, otherwise: Any) -> Any:
    """`value` where its index along a dimension is less than the i32 scalar `count`, else `otherwise`, of its type."""
    shape = value.type.shape
    index = index_along([shape[dimension]], 0)
    keep = stablehlo.compare(index, broadcast(count, index.type), stablehlo.ComparisonDirectionAttr.get("LT"))
    mask = broadcast(keep, tensor(shape, ir.IntegerType.get_signless(1)), [dimension])
    return stablehlo.select(mask, value, otherwise)


def clone_with(op: Any, operands: Sequence[Any], result_shapes: Sequence[Sequence[int]]) -> list[Any]:
    """A clone of an op at the insertion point with other operands and result shapes; its factor rule is dropped."""
    clone = op.clone().operation
    if RULE in clone.attributes:
        del clone.attributes[RULE]
    for i, operand in enumerate(operands):
        clone.operands[i] = operand
    for result, shape in zip(clone.results, result_shapes, strict=True):
        if tuple(result.type.shape) != tuple(shape):
            result.set_type(retype(result.type, shape))
    return list(clone.results)


def rebind(op: Any, values: Mapping[Any, Any]) -> None:
    """Replaces operands of an op and of the ops in its regions."""
    for user in (op, *walk_operations(op)):
        for i, operand in enumerate(user.operands):
            if operand in values:
                user.operands[i] = values[operand]


def repeat_ops(ops: Iterable[Any], values: dict[Any, Any]) -> None:
    """Clones ops at the insertion point onto other values: those that `values` maps theirs to; it gets the results."""
    for op in ops:
        clone = op.clone().operation
        rebind(clone, values)
        values.update(zip(op.results, clone.results, strict=True))


def counted_while(initial: Sequence[Any], counter: int, count: int) -> Any:
    """A while, its body to be built, that runs until the carry at position `counter` has reached `count`."""
    types = [v.type for v in initial]
    loop = stablehlo.WhileOp(types, list(initial)).operation
    condition = loop.regions[0].blocks.append(*types)
    with ir.InsertionPoint(condition):
        step = condition.arguments[counter]
        less = stablehlo.compare(step, splat(step.type, count), stablehlo.ComparisonDirectionAttr.get("LT"))
        stablehlo.return_([less])
    return loop


def while_loop(count: int, initial: Sequence[Any], body: Any) -> list[Any]:
    """`for i in range(count): carry = body(i, carry)` as a stablehlo.while with an i32 counter.

    Args:
        body: takes the i32 counter and the list of carries, returns the next carries; may use values from outside.
    """
    values = [i32(0), *initial]
    loop = counted_while(values, 0, count)
    block = loop.regions[1].blocks.append(*[v.type for v in values])
    with ir.InsertionPoint(block):
        step = block.arguments[0]
        carries = body(step, list(block.arguments)[1:])
        stablehlo.return_([stablehlo.add(step, i32(1)), *carries])
    return list(loop.results)[1:]
