"""Tells which part of a value one device holds in a program that Shardy distributes: the parts of each dimension.

`mark_shards` propagates the shardings on a copy, as the compiler will, and marks the ops of the module itself with the
parts; the graph then counts bytes per device, and an axis does not pass along a dimension that several devices share.
"""

from __future__ import annotations

from typing import Any

from stablehlo_mem.ir.bindings import (
    clone_module,
    functions,
    ir,
    run_passes,
    sdy,
    signature_attributes,
    walk_operations,
)

SHARDS = "shards"
"""The mark: for each result of an op, or argument of a function, the parts of each dimension."""
_NUMBER = "shards_op"
PROPAGATION = "sdy-propagation-pipeline"
"""Shardy's passes that decide how each value lies."""

Parts = tuple[int, ...]
"""For each dimension the number of parts it is divided into; () for a value that every device has whole."""


def mark_shards(module: ir.Module) -> None:
    """Marks the ops and functions of a distributed module with the parts of their values, in place."""
    if not is_distributed(module):
        return
    meshes = mesh_axes(module)
    remove_marks(module)
    copy, ops = clone_module(module), list(walk_operations(module.operation))
    with module.context:
        # A number for each op, that survives passes.
        i64 = ir.IntegerType.get_signless(64)
        for number, op in enumerate(walk_operations(copy.operation)):
            op.attributes[_NUMBER] = ir.IntegerAttr.get(i64, number)
    # The copy is read once and dropped; verifying it after each of the pipeline's 30 passes takes most of their time.
    run_passes(copy, PROPAGATION, verify=False)
    marks: dict[Any, ir.Attribute | None] = {}
    with module.context:
        for op in walk_operations(copy.operation):
            shardings = _result_shardings(op) if _NUMBER in op.attributes else None
            if shardings is None:
                continue
            if shardings not in marks:  # most ops have the shardings of another one
                per_value = sdy.TensorShardingPerValueAttr(shardings).shardings
                marks[shardings] = _mark(tuple(sharding_parts(sharding, meshes) for sharding in per_value))
            _set_mark(ops[ir.IntegerAttr(op.attributes[_NUMBER]).value], marks[shardings])
        for op in ops:
            if op.name == "sdy.sharding_constraint":  # propagation makes another op of it
                _set_mark(op, _mark((sharding_parts(op.attributes["sharding"], meshes),)))
        for function in functions(module):
            mark = _mark(tuple(sharding_parts(a, meshes) for a in argument_shardings(function)))
            _set_mark(function.operation, mark)


def remove_marks(module: ir.Module) -> None:
    """Removes what `mark_shards` left."""
    if not is_distributed(module):
        return
    for op in walk_operations(module.operation):
        if SHARDS in op.attributes:
            del op.attributes[SHARDS]


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
    meshes = (op.operation.attributes for op in module.body.operations if op.operation.name == "sdy.mesh")
    return {ir.StringAttr(mesh["sym_name"]).value: _sizes(mesh["mesh"]) for mesh in meshes}


def argument_shardings(function: Any) -> list[Any]:
    """The sharding of each argument of a function, None where it says nothing."""
    return [attributes.get("sdy.sharding") for attributes in signature_attributes(function, "arg_attrs")]


def result_shardings(function: Any) -> list[Any]:
    """The sharding of each result of a function, None where it says nothing."""
    return [attributes.get("sdy.sharding") for attributes in signature_attributes(function, "res_attrs")]


def sharding_parts(sharding: Any, meshes: dict[str, dict[str, int]]) -> Parts:
    """The parts of each dimension by a sharding; () if there is none, or of none more than one."""
    if sharding is None:
        return ()
    attr = sdy.TensorShardingAttr(sharding)
    mesh = attr.mesh_or_ref
    axes = meshes.get(mesh.value, {}) if isinstance(mesh, ir.FlatSymbolRefAttr) else _sizes(mesh)
    parts = [1] * len(attr.dimension_shardings)
    for i, refs in enumerate(axis_refs(attr)):
        for ref in refs:
            sub = ref.sub_axis_info
            parts[i] *= axes.get(ref.name, 1) if sub is None else sdy.SubAxisInfoAttr(sub).size
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
    return op.attributes.get("sdy.sharding") if op.name != "func.func" else None


def _mark(parts: tuple[Parts, ...]) -> ir.Attribute | None:
    """The mark that says these parts, None where each device has all of each value."""
    return ir.ArrayAttr.get([ir.DenseI64ArrayAttr.get(list(p)) for p in parts]) if any(parts) else None


def _set_mark(op: Any, mark: ir.Attribute | None) -> None:
    if mark is not None:
        op.attributes[SHARDS] = mark


def _sizes(mesh: Any) -> dict[str, int]:
    return {axis.name: axis.size for axis in map(sdy.MeshAxisAttr, sdy.MeshAttr(mesh).axes)}
