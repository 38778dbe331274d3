"""Tells which part of a value one device holds in a program that Shardy distributes: the parts of each dimension.

`mark_shards` propagates the shardings on a copy, as the compiler will, and marks the ops of the module itself with the
parts; the graph then counts bytes per device, and an axis does not pass along a dimension that several devices share.
Where results are better computed elsewhere than propagation puts them (`ir.places`) the marks say so, and
`constrain_places` says it in the finished program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from stablehlo_mem.ir.bindings import (
    RULE,
    clone_module,
    functions,
    ir,
    module_of,
    run_passes,
    sdy,
    signature_attributes,
    walk_operations,
)
from stablehlo_mem.ir.places import SHARDING, Places, axis_size, mesh_sizes

SHARDS = "shards"
"""The mark: for each result of an op, or argument of a function, the parts of each dimension."""
PLACE = "shards_place"
"""Beside it: the sharding with which an op computes its result, where propagation says another one."""
SCATTERED = "shards_scattered"
"""Beside it: the shardings that a sum over devices gets one after the other."""
_NUMBER = "shards_op"
PROPAGATION = "sdy-propagation-pipeline"
"""Shardy's passes that decide how each value lies."""

Parts = tuple[int, ...]
"""For each dimension the number of parts it is divided into; () for a value that every device has whole."""


def mark_shards(module: ir.Module) -> None:
    """Marks the ops and functions of a distributed module with the parts of their values, in place."""
    if not is_distributed(module):
        return
    meshes, ops = mesh_axes(module), list(walk_operations(module.operation))
    places, marks = Places(meshes), dict[Any, ir.Attribute | None]()
    with module.context:
        for number, op in _propagated(module, meshes):
            own = ops[number]
            rule = own.attributes.get(RULE)
            scattered, settled = places.scattered(op, rule), places.settled(op, rule)
            if scattered:
                own.attributes[SCATTERED] = sdy.TensorShardingPerValueAttr.get(scattered)
            if settled is not None:
                own.attributes[PLACE] = settled
                _set_mark(own, _mark((sharding_parts(settled, meshes),)))
                continue
            shardings = _result_shardings(op)
            if shardings is None:
                continue
            if shardings not in marks:  # most ops have the shardings of another one
                per_value = sdy.TensorShardingPerValueAttr(shardings).shardings
                marks[shardings] = _mark(tuple(sharding_parts(sharding, meshes) for sharding in per_value))
            _set_mark(own, marks[shardings])
        for op in ops:
            if op.name == "sdy.sharding_constraint":  # propagation makes another op of it
                _set_mark(op, _mark((sharding_parts(op.attributes["sharding"], meshes),)))
        for function in functions(module):
            mark = _mark(tuple(sharding_parts(a, meshes) for a in argument_shardings(function)))
            _set_mark(function.operation, mark)


def _propagated(module: ir.Module, meshes: dict[str, dict[str, int]]) -> Iterator[tuple[int, Any]]:
    """The ops of a copy in which shardings are propagated, with their numbers in the module, whose marks are removed.

    Where an op was found to compute its result is where it does so, its copies in loops too.
    """
    for op in walk_operations(module.operation):
        if PLACE in op.attributes and not _fits(op, op.attributes[PLACE], meshes):
            del op.attributes[PLACE]
    places = [(op, op.attributes[PLACE]) for op in walk_operations(module.operation) if PLACE in op.attributes]
    copy = clone_module(module)
    remove_marks(module)
    with module.context:
        for op, place in places:
            op.attributes[PLACE] = place
        yield from _propagate(copy).items()


def _propagate(copy: ir.Module) -> dict[int, Any]:
    """Propagates shardings in a copy of a module; its ops by their numbers in that, in the order of a walk."""
    # A number for each op, that survives passes.
    i64 = ir.IntegerType.get_signless(64)
    for number, op in enumerate(walk_operations(copy.operation)):
        op.attributes[_NUMBER] = ir.IntegerAttr.get(i64, number)
        if PLACE in op.attributes:
            op.attributes[SHARDING] = sdy.TensorShardingPerValueAttr.get([op.attributes[PLACE]])
    # The copy is read once and dropped; verifying it after each of the pipeline's 30 passes takes most of their time.
    run_passes(copy, PROPAGATION, verify=False)
    numbered = (op for op in walk_operations(copy.operation) if _NUMBER in op.attributes)
    return {ir.IntegerAttr(op.attributes[_NUMBER]).value: op for op in numbered}


def propagated_shardings(handle: Any, values: Iterable[Any]) -> list[Any]:
    """Where values lie as Shardy propagates it in the module of an op, None where it says nothing; edits nothing."""
    module = module_of(handle).operation
    copy = clone_module(module)
    numbers = {op: number for number, op in enumerate(walk_operations(module))}
    with module.context:
        found, places = _propagate(copy), Places(mesh_axes(copy))
        return [places.sharding(_counterpart(value, numbers, found)) for value in values]


def _counterpart(value: Any, numbers: dict[Any, int], found: dict[int, Any]) -> Any:
    """What a value is in a copy, whose ops are found by their numbers."""
    if not isinstance(value.owner, ir.Block):
        return found[numbers[value.owner.operation]].results[value.result_number]
    op = value.owner.owner.operation
    number = next(i for i, region in enumerate(op.regions) if region.blocks[0] == value.owner)
    return found[numbers[op]].regions[number].blocks[0].arguments[value.arg_number]


def _fits(op: Any, sharding: Any, meshes: dict[str, dict[str, int]]) -> bool:
    """Whether an op's result can lie so: an op may be a copy of one of another shape."""
    shape = op.results[0].type.shape if len(op.results) == 1 else ()
    parts = sharding_parts(sharding, meshes)
    return len(shape) == len(parts) and not any(size % count for size, count in zip(shape, parts, strict=True))


def constrain_places(module: ir.Module) -> None:
    """Says in a finished program where results are computed, where propagation would say something else, in place."""
    if not is_distributed(module):
        return
    with module.context:
        for op in list(walk_operations(module.operation)):
            if SCATTERED in op.attributes:
                _constrain(op, sdy.TensorShardingPerValueAttr(op.attributes[SCATTERED]).shardings)
            elif PLACE in op.attributes:
                _constrain(op, [op.attributes[PLACE]])


def _constrain(op: Any, shardings: Sequence[Any]) -> None:
    """Gives the result of an op shardings, one after the other."""
    old = op.results[0]
    with op.location, ir.InsertionPoint.after(op):
        first = last = sdy.ShardingConstraintOp(old, sdy.TensorShardingAttr(shardings[0]))
        for sharding in shardings[1:]:
            last = sdy.ShardingConstraintOp(last.result, sdy.TensorShardingAttr(sharding))
    old.replace_all_uses_except(last.result, first.operation)


def remove_marks(module: ir.Module) -> None:
    """Removes what `mark_shards` left."""
    if not is_distributed(module):
        return
    for op in walk_operations(module.operation):
        for mark in (SHARDS, PLACE, SCATTERED):
            if mark in op.attributes:
                del op.attributes[mark]


def is_distributed(module: ir.Module) -> bool:
    """Whether a module is for several devices, as Shardy says it."""
    return any(size > 1 for axes in mesh_axes(module).values() for size in axes.values())


def marked_parts(op: Any, known: dict[Any, tuple[Parts, ...]] | None = None) -> tuple[Parts, ...]:
    """For each result of an op, or argument of a function, its parts; () where it is not marked.

    Args:
        known: what marks say that were read before, and now: most ops have the mark of another one.
    """
    mark = op.attributes.get(SHARDS)
    if mark is None:
        return ()
    known = {} if known is None else known
    parts = known.get(mark)
    if parts is None:
        parts = known[mark] = tuple(tuple(ir.DenseI64ArrayAttr(a)) for a in ir.ArrayAttr(mark))
    return parts


def mesh_axes(module: ir.Module) -> dict[str, dict[str, int]]:
    """The sizes of the axes of each mesh of a module, by their names."""
    ops = module.operation.regions[0].blocks[0].operations
    meshes = (op.operation.attributes for op in ops if op.operation.name == "sdy.mesh")
    return {ir.StringAttr(mesh["sym_name"]).value: mesh_sizes(mesh["mesh"]) for mesh in meshes}


def argument_shardings(function: Any) -> list[Any]:
    """The sharding of each argument of a function, None where it says nothing."""
    return [attributes.get(SHARDING) for attributes in signature_attributes(function, "arg_attrs")]


def result_shardings(function: Any) -> list[Any]:
    """The sharding of each result of a function, None where it says nothing."""
    return [attributes.get(SHARDING) for attributes in signature_attributes(function, "res_attrs")]


def sharding_parts(sharding: Any, meshes: dict[str, dict[str, int]]) -> Parts:
    """The parts of each dimension by a sharding; () if there is none, or of none more than one."""
    if sharding is None:
        return ()
    attr = sdy.TensorShardingAttr(sharding)
    mesh = attr.mesh_or_ref
    axes = meshes.get(mesh.value, {}) if isinstance(mesh, ir.FlatSymbolRefAttr) else mesh_sizes(mesh)
    parts = [1] * len(attr.dimension_shardings)
    for i, refs in enumerate(axis_refs(attr)):
        for ref in refs:
            parts[i] *= axis_size(ref, axes)
    return tuple(parts) if max(parts, default=1) > 1 else ()


def axis_refs(sharding: Any) -> list[list[Any]]:
    """The mesh axes that each dimension is shared out over, major to minor."""
    dimensions = map(sdy.DimensionShardingAttr, sharding.dimension_shardings)
    return [[sdy.AxisRefAttr(axis) for axis in dimension.axes] for dimension in dimensions]


def part_bytes(shape: tuple[int, ...], nbytes: int, parts: Parts) -> int:
    """Bytes of a value on one device, the largest part of each dimension; `nbytes` are those of the whole."""
    for size, count in zip(shape, parts, strict=False):
        if size:
            nbytes = nbytes * -(-size // count) // size
    return nbytes


def _result_shardings(op: Any) -> Any:
    """The shardings of an op's results in one attribute; None if it has none, and for a function."""
    if op.name == "sdy.manual_computation":
        return op.attributes["out_shardings"]
    return op.attributes.get(SHARDING) if op.name != "func.func" else None


def _mark(parts: tuple[Parts, ...]) -> ir.Attribute | None:
    """The mark that says these parts, None where each device has all of each value."""
    return ir.ArrayAttr.get([ir.DenseI64ArrayAttr.get(list(p)) for p in parts]) if any(parts) else None


def _set_mark(op: Any, mark: ir.Attribute | None) -> None:
    if mark is not None:
        op.attributes[SHARDS] = mark
