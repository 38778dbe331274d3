"""How the operands of a budgeted program lie on devices, as JAX resolved it: from arguments, or by `in_shardings`.

`jaxpr.plan_at_lowering` asks while JAX lowers, `api.jit` for a plan before that.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from stablehlo_mem.ir.bindings import ir, resolve_in_shardings, run_passes, sdy
from stablehlo_mem.ir.graph import main_function
from stablehlo_mem.ir.program_slice import program_slice
from stablehlo_mem.ir.shards import PROPAGATION, argument_shardings, axis_refs, result_shardings

_log = logging.getLogger(__name__)

Shardings = tuple[NamedSharding | None, ...]
"""For each operand its sharding, None where nothing is said of it."""


def shardings_when_lowered(ctx: Any, operands: Sequence[Any]) -> Shardings:
    """The shardings of the operands of a lowering rule, as they follow from those of the function being lowered.

    JAX lowers control flow, and a `jax.jit` that another one calls, as functions of their own, which say nothing of
    their arguments: then they follow from constraints inside.
    """
    count = getattr(ctx.module_context.axis_context, "num_devices", 1)
    # JAX does not say which devices they will be. A plan does not depend on it.
    devices = jax.devices()
    if not 1 < count <= len(devices):
        return (None,) * len(operands)
    module = program_slice(ctx.module_context.module, operands)
    try:
        run_passes(module, PROPAGATION)
    except ir.MLIRError as error:  # an op refers to what a slice leaves out
        _log.debug("shardings are not known: %s", error)
        return (None,) * len(operands)
    attributes = _of_returned(main_function(module))
    pairs = zip(attributes, ctx.avals_in, strict=True)
    return tuple(_sharding(attribute, module, devices[:count], _axis_types(aval)) for attribute, aval in pairs)


def _of_returned(function: Any) -> list[Any]:
    """The sharding of each value that a function returns: an argument's also says that it is whole on all devices."""
    of_arguments = argument_shardings(function)
    returned = function.regions[0].blocks[0].operations[-1].operands
    pairs = zip(returned, result_shardings(function), strict=True)
    return [of_arguments[v.arg_number] if isinstance(v, ir.BlockArgument) else found for v, found in pairs]


def shardings_when_traced(traced: Any, equation: Any) -> Shardings:
    """The shardings of the operands of an equation that are arguments of the traced function."""
    resolved = resolve_in_shardings(traced)
    of_arguments = dict(zip(map(id, traced.jaxpr.jaxpr.invars), resolved, strict=False))
    found = (of_arguments.get(id(v)) for v in equation.invars)
    return tuple(s if isinstance(s, NamedSharding) and s.mesh.size > 1 else None for s in found)


def _axis_types(aval: Any) -> tuple[Any, ...] | None:
    """The types of the mesh axes of an operand's type, None where it has no mesh: then they are `Auto`."""
    sharding = getattr(aval, "sharding", None)
    return None if sharding is None or sharding.mesh.empty else sharding.mesh.axis_types


def _sharding(
    attribute: Any, module: Any, devices: Sequence[Any], axis_types: tuple[Any, ...] | None
) -> NamedSharding | None:
    """A sharding as JAX writes it; None if it divides mesh axes, which JAX has no notation for."""
    if attribute is None:
        return None
    sharding = sdy.TensorShardingAttr(attribute)
    mesh = _mesh(_mesh_attribute(sharding.mesh_or_ref, module), devices, axis_types)
    dimensions = axis_refs(sharding)
    if mesh is None or any(axis.sub_axis_info is not None for axes in dimensions for axis in axes):
        return None
    return NamedSharding(mesh, PartitionSpec(*(tuple(axis.name for axis in axes) or None for axes in dimensions)))


def _mesh_attribute(mesh_or_name: Any, module: Any) -> Any:
    """The mesh of a sharding, which may name one of the module's."""
    if isinstance(mesh_or_name, ir.FlatSymbolRefAttr):
        symbols = ir.SymbolTable(module.operation)
        return sdy.MeshAttr(symbols[mesh_or_name.value].attributes["mesh"])
    return sdy.MeshAttr(mesh_or_name)


def _mesh(mesh: Any, devices: Sequence[Any], axis_types: tuple[Any, ...] | None) -> Mesh | None:
    """A mesh over some devices, None if it has more or fewer."""
    axes = [sdy.MeshAxisAttr(axis) for axis in mesh.axes]
    order = list(mesh.device_ids) or range(len(devices))
    sizes = [axis.size for axis in axes]
    if math.prod(sizes) != len(devices):
        return None
    array = np.array([devices[i] for i in order]).reshape(sizes)
    return Mesh(array, [axis.name for axis in axes], axis_types=axis_types)
