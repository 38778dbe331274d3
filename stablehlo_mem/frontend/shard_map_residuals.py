"""What a `shard_map` hands to its gradient, changed so that one loop can run both on chunks: `canonicalize` calls it.

JAX hands residuals on with the devices in their first dimension, whichever that is: [64, 512] on each of eight devices
is [512, 512] outside. An axis passes a manual computation along dimensions that lie in as many parts as the axis has.
So a residual gets the devices in the dimensions that go with those of operands that lie in parts, the others in a new
first one. What depends on no operand, such as the factor of attention's scores, is computed where it is read: as a
result it would be there after the last chunk only, and the loop would have to end between the two. So is what
elementwise ops make of other residuals, as compilers do, for which a `shard_map` is no border.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import blocks_of, entry_graph
from stablehlo_mem.ir.loop_carries import drop_dead_carries
from stablehlo_mem.ir.manual_computation import (
    COLLECTIVES,
    body_of,
    computations,
    created,
    end_of,
    is_fully_manual,
    lies_alike,
    lying,
    operand_shardings,
    result_shardings,
    set_shardings,
)
from stablehlo_mem.ir.shards import axis_refs
from stablehlo_mem.sharding_rules import OP_RULES, RuleBook
from stablehlo_mem.sharding_rules.region_edges import Region, RegionSplit
from stablehlo_mem.sharding_rules.region_propagation import split_region

_OTHERS = COLLECTIVES | frozenset(
    f"stablehlo.{name}" for name in ("create_token", "custom_call", "infeed", "recv", "rng", "rng_bit_generator")
)
"""Ops that exchange something, have an effect or are not worth repeating."""

_CHEAP = frozenset(
    f"stablehlo.{name}"
    for name in (
        *("abs", "add", "and", "broadcast_in_dim", "clamp", "compare", "constant", "convert", "iota", "maximum"),
        *("minimum", "multiply", "negate", "not", "or", "reshape", "select", "sign", "subtract", "xor"),
    )
)
"""Elementwise ops of a few instructions, which compilers repeat in every kernel that reads their results."""
_VIEWS = ("stablehlo.reshape", "stablehlo.broadcast_in_dim")


@dataclasses.dataclass(frozen=True)
class _Residual:
    """A result of a manual computation that only other ones read, each as an operand that lies as it does.

    Attributes:
        source: the manual computation; `result`: the position among its results.
        readers: the others, each with the position among its operands.
    """

    source: Any
    result: int
    readers: tuple[tuple[Any, int], ...]

    @property
    def returned(self) -> Any:
        """What the block of the source returns."""
        return end_of(self.source).operands[self.result]


@dataclasses.dataclass(frozen=True)
class _Along:
    """A dimension that goes with one of an operand that is shared out over these mesh axes, so in so many parts."""

    dimension: int
    axes: list[Any]
    parts: int


def hand_on_less(module: ir.Module) -> None:
    """Computes constants, and what elementwise ops make of other residuals, in the manual computation that reads them.

    In place, in loops too; what nothing reads then is dropped.
    """
    found = computations(module)
    changed = [reader for reader in found if _computes_itself(reader)]
    if changed:
        _drop_unread(found)
        drop_dead_carries(module)
    # The last first: what it no longer reads, those before it need not return.
    _drop_unread(reversed(computations(module)))


def _computes_itself(reader: Any) -> bool:
    """Has a manual computation compute what it is handed and can; says whether there is anything."""
    body, is_changed = body_of(reader), False
    first = body.operations[0].operation
    origins = [_origin(operand) for operand in reader.operands]
    residuals = {i: v for i, v in enumerate(origins) if isinstance(v, ir.OpResult) and lies_alike(v, reader, i)}
    for source in dict.fromkeys(value.owner for value in residuals.values()):
        known = {**_shared_arguments(source, reader, origins)}
        for position, value in residuals.items():
            if value.owner == source:
                known[end_of(source).operands[value.result_number]] = body.arguments[position]
        for op in [op.operation for op in body_of(source).operations]:
            for value in (result for result in op.results if result in known):
                ops, values = _repeated_ops(source, value, known), dict(known)
                if ops:
                    with builders.building(first, reader.location):
                        builders.repeat_ops(ops, values)
                    known[value].replace_all_uses_with(values[value])
                    known[value], is_changed = values[value], True
    return is_changed


def _shared_arguments(source: Any, reader: Any, origins: Sequence[Any]) -> dict[Any, Any]:
    """The arguments of the source's block that the reader's block has too."""
    placed, shared = operand_shardings(reader), dict[Any, Any]()
    for operand, sharding, argument in zip(
        source.operands, operand_shardings(source), body_of(source).arguments, strict=True
    ):
        for position, origin in enumerate(origins):
            if origin == _origin(operand) and placed[position] == sharding:
                shared[argument] = body_of(reader).arguments[position]
    return shared


def _origin(value: Any) -> Any:
    """What a value is that loops hand on unchanged."""
    while isinstance(value.owner, ir.Block):
        loop, number = value.owner.owner.operation, value.arg_number
        if loop.name != "stablehlo.while" or list(loop.regions[1].blocks[0].operations)[-1].operands[number] != value:
            break
        value = loop.operands[number]
    return value


def lay_residuals(module: ir.Module) -> bool:
    """Lets residuals lie along the dimensions that go with those of operands, in place; says whether any did not."""
    of_ops = {op: residuals for op in computations(module) if (residuals := _laid_by_jax(op))}
    if not of_ops:
        return False
    found: list[tuple[_Residual, Sequence[_Along]]] = []
    for graph in blocks_of(entry_graph(module)):
        for op in graph.ops:
            residuals = of_ops.get(graph.handles[op.index], ())
            if residuals:
                region = Region(RuleBook(graph, OP_RULES), op.index, as_it_lies=False)
                along = _along_operands(region, graph.handles[op.index])
                found += [(residual, along.get(residual.result, ())) for residual in residuals]
    changed: list[_Residual] = []
    for residual, of_residual in found:
        with residual.source.location:
            changed += [residual] if _lay(residual, of_residual) else []
    return bool(changed)


def _laid_by_jax(op: Any) -> list[_Residual]:
    """The residuals of a manual computation over all mesh axes that lie as JAX laid them."""
    return [one for one in _residuals(op) if _is_laid_by_jax(one)] if is_fully_manual(op) else []


def _residuals(op: Any) -> Iterator[_Residual]:
    """The results of a manual computation that only others read."""
    for number, result in enumerate(op.results):
        _skip_views(result)
        readers = [(use.owner.operation, use.operand_number) for use in result.uses]
        if readers and all(lies_alike(result, *reader) for reader in readers):
            yield _Residual(op, number, tuple(readers))


def _skip_views(value: Any) -> None:
    """Has what reads a value by way of reshapes to its own type read it: rows of stacks are computed again so."""
    for use in list(value.uses):
        views = [use.owner.operation]
        while views[-1].name in _VIEWS and len(list(views[-1].results[0].uses)) == 1:
            if views[-1].results[0].type == value.type:
                views[-1].results[0].replace_all_uses_with(value)
                for view in reversed(views):
                    view.erase()
                break
            (use,) = views[-1].results[0].uses
            views.append(use.owner.operation)


def _repeated_ops(source: Any, value: Any, known: Mapping[Any, Any]) -> list[Any]:
    """The ops of a block by which a value is computed from known ones, in order; none if it is not worth repeating.

    What depends on no argument is, and so are elementwise ops.
    """
    needed, pending, is_constant = set[Any](), [value], True
    while pending:
        one = pending.pop()
        if one is not value and one in known:
            is_constant = False
            continue
        op = one.owner
        if isinstance(op, ir.Block) or list(op.regions) or not op.name.startswith("stablehlo.") or op.name in _OTHERS:
            return []
        if op not in needed:
            needed.add(op)
            pending += op.operands
    if not is_constant and not all(op.name in _CHEAP for op in needed):
        return []
    return [op.operation for op in body_of(source).operations if op.operation in needed]


def _drop_unread(found: Iterable[Any]) -> None:
    """Builds manual computations anew without operands that their blocks do not read, and without unread results."""
    for op in found:
        read = [bool(list(argument.uses)) for argument in body_of(op).arguments]
        used = [bool(list(result.uses)) for result in op.results]
        if not all(read) or not all(used):
            _keep(op, read, used)


def _keep(op: Any, read: Sequence[bool], used: Sequence[bool]) -> None:
    body, end = body_of(op), end_of(op)
    operands = _kept(zip(op.operands, operand_shardings(op), strict=True), read)
    results = _kept(zip((r.type for r in op.results), result_shardings(op), strict=True), used)
    with op.location, ir.InsertionPoint(op):
        new = created(op.attributes["manual_axes"], operands, results)
    with end.location, ir.InsertionPoint(end):
        ir.Operation.create(end.name, [], _kept(end.operands, used))
    end.erase()
    body.append_to(new.regions[0])
    for number in reversed([i for i, is_read in enumerate(read) if not is_read]):
        body.erase_argument(number)
    for old, result in zip(_kept(op.results, used), new.results, strict=True):
        old.replace_all_uses_with(result)
    op.erase()


def _kept(items: Any, kept: Sequence[bool]) -> list[Any]:
    return [item for item, is_kept in zip(items, kept, strict=True) if is_kept]


def _along_operands(region: Region, op: Any) -> dict[int, list[_Along]]:
    """For results the dimensions that go with those of operands that lie in parts, the first operands' first."""
    found: dict[int, list[_Along]] = {}
    for number, sharding in enumerate(operand_shardings(op)):
        for dimension, axes in enumerate(axis_refs(sharding)):
            parts, extent = region.parts_of(number, dimension), region.shape(number)[dimension]
            split = split_region(region, ((number, dimension),), extent) if parts > 1 < extent else None
            for edge, form in split.dims if isinstance(split, RegionSplit) else ():
                result = region.edges[edge].result
                if result is not None:
                    found.setdefault(result, []).append(_Along(form, axes, parts))
    return found


def _is_laid_by_jax(residual: _Residual) -> bool:
    """Whether the devices have parts of a residual's first dimension, in which each has several elements, alone."""
    result, value = residual.source.results[residual.result], residual.returned
    shape, local = list(result.type.shape), list(value.type.shape)
    return shape[1:] == local[1:] and 1 < local[0] < shape[0] if shape else False


def _lay(residual: _Residual, along: Sequence[_Along]) -> bool:
    """Lets the parts of a residual lie along other dimensions; those that go with none along a new first one.

    Returns:
        Whether they lie otherwise than before.
    """
    result, value = residual.source.results[residual.result], residual.returned
    shape, local = list(result.type.shape), list(value.type.shape)
    sharding = result_shardings(residual.source)[residual.result]
    axes, parts = axis_refs(sharding)[0], shape[0] // local[0]
    placed: dict[int, _Along] = {}
    for one in along:
        if one.dimension not in placed and set(one.axes) <= set(axes):
            placed[one.dimension] = one
            axes, parts = [axis for axis in axes if axis not in one.axes], parts // one.parts
    if set(placed) == {0} and not axes:
        return False
    if axes:
        local = [1, *local]
        placed = {0: _Along(0, axes, parts)} | {d + 1: one for d, one in placed.items()}
        end = end_of(residual.source)
        with builders.building(end, end.location):
            end.operands[residual.result] = builders.reshaped(value, local)
    outside = [n * placed[d].parts if d in placed else n for d, n in enumerate(local)]
    new = lying(sharding.mesh_or_ref, [placed[d].axes if d in placed else [] for d in range(len(local))])
    result.set_type(builders.retype(result.type, outside))
    set_shardings(residual.source, results=_with(result_shardings(residual.source), residual.result, new))
    for reader, operand in residual.readers:
        set_shardings(reader, operands=_with(operand_shardings(reader), operand, new))
        _set_shape(reader, operand, local)
    return True


def _with(items: list[Any], position: int, item: Any) -> list[Any]:
    return [*items[:position], item, *items[position + 1 :]]


def _set_shape(op: Any, operand: int, shape: list[int]) -> None:
    """Gives the argument of a manual computation's block another shape: inside, it is a view of that."""
    body = body_of(op)
    argument = body.arguments[operand]
    before = list(argument.type.shape)
    if before != shape:
        argument.set_type(builders.retype(argument.type, shape))
        with builders.building(body.operations[0].operation, op.location):
            view = builders.reshaped(argument, before)
        argument.replace_all_uses_except(view, view.owner.operation)
