"""How the operands of a budgeted program lie on devices, and in which memory, as JAX resolved it: from arguments, or by
`in_shardings`.

`jaxpr.plan_at_lowering` asks while JAX lowers, `api.jit` for a plan before that.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from stablehlo_mem.ir.bindings import ir, resolve_in_shardings, run_passes, sdy, signature_attributes
from stablehlo_mem.ir.graph import main_function
from stablehlo_mem.ir.host_memory import attributes_say_host, names_host
from stablehlo_mem.ir.program_slice import program_slice
from stablehlo_mem.ir.shards import PROPAGATION, argument_shardings, axis_refs, result_shardings
from stablehlo_mem.jaxpr.memory_spaces import is_on_host, memory_kind

_log = logging.getLogger(__name__)

Shardings = tuple[Sharding | None, ...]
"""For each operand its sharding, None where nothing is said of it and it is on the device."""


def shardings_when_lowered(ctx: Any, operands: Sequence[Any]) -> Shardings:
    """The shardings of the operands of a lowering rule, as they follow from those of the function being lowered.

    JAX lowers control flow, and a `jax.jit` that another one calls, as functions of their own, which say nothing of
    their arguments: then they follow from constraints inside.
    """
    count = getattr(ctx.module_context.axis_context, "num_devices", 1)
    pairs = list(zip(operands, ctx.avals_in, strict=True))
    shardings: list[Sharding | None] = [None] * len(pairs)
    if count > 1:
        module, attributes = _propagated(ctx.module_context.module, operands)
        shardings = [_sharding(a, module, count, aval) for a, aval in zip(attributes, ctx.avals_in, strict=True)]
    on_host = (is_on_host(aval) or _is_argument_on_host(x) for x, aval in pairs)
    return tuple(_on_host(s, count) if host else s for s, host in zip(shardings, on_host, strict=True))


def _propagated(module: Any, operands: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """What some values of a module are computed by, and the sharding of each that follows from it, None if none does.

    An argument's also says that it is whole on all devices.
    """
    computing = program_slice(module, operands)
    try:
        run_passes(computing, PROPAGATION)
    except ir.MLIRError as error:  # an op refers to what a slice leaves out
        _log.debug("shardings are not known: %s", error)
        return computing, [None] * len(operands)
    function = main_function(computing)
    of_arguments = argument_shardings(function)
    returned = function.regions[0].blocks[0].operations[-1].operands
    pairs = zip(returned, result_shardings(function), strict=True)
    found = [of_arguments[v.arg_number] if isinstance(v, ir.BlockArgument) else sharding for v, sharding in pairs]
    return computing, found


def shardings_when_traced(traced: Any, equation: Any) -> Shardings:
    """The shardings of the operands of an equation that are arguments of the traced function."""
    resolved = resolve_in_shardings(traced)
    of_arguments = dict(zip(map(id, traced.jaxpr.jaxpr.invars), resolved, strict=False))
    found = [(v.aval, of_arguments.get(id(v))) for v in equation.invars]
    count = max((s.num_devices for s in of_arguments.values() if isinstance(s, Sharding)), default=1)
    shardings = (_of_rank(s, aval) if isinstance(s, NamedSharding) and s.mesh.size > 1 else None for aval, s in found)
    on_host = (is_on_host(aval) or names_host(memory_kind(s) or "") for aval, s in found)
    return tuple(_on_host(s, count) if host else s for s, host in zip(shardings, on_host, strict=True))


def _of_rank(sharding: NamedSharding, aval: Any) -> NamedSharding:
    """The same with an entry for every dimension, as when it is lowered: JAX takes P("x") and P("x", None) for two."""
    spec = sharding.spec
    missing = len(aval.shape) - len(spec)
    if not missing or spec.unreduced or spec.reduced:
        return sharding
    return NamedSharding(sharding.mesh, PartitionSpec(*spec, *[None] * missing), memory_kind=sharding.memory_kind)


def platforms_of_devices(shardings: Shardings) -> tuple[str, ...] | None:
    """The platforms of the devices that operands lie on, as JAX names them; None where no sharding names any."""
    meshes = (s.mesh for s in shardings if isinstance(s, NamedSharding) and isinstance(s.mesh, Mesh))
    return tuple(sorted({device.platform for mesh in meshes for device in mesh.devices.flat})) or None


def _on_host(sharding: Sharding | None, count: int) -> Sharding | None:
    """The same in the host's memory; None where nothing says how it lies on several devices."""
    if sharding is not None:
        return sharding.with_memory_kind("pinned_host")
    return SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host") if count == 1 else None


def _is_argument_on_host(operand: Any) -> bool:
    """Whether an operand is an argument of a function that says that it is in the host's memory."""
    if not isinstance(operand, ir.BlockArgument):
        return False
    function = operand.owner.owner
    if function.operation.name != "func.func":
        return False
    return attributes_say_host(signature_attributes(function, "arg_attrs")[operand.arg_number])


def _axis_types(aval: Any) -> tuple[Any, ...] | None:
    """The types of the mesh axes of an operand's type, None where it has no mesh: then they are `Auto`."""
    sharding = getattr(aval, "sharding", None)
    return None if sharding is None or sharding.mesh.empty else sharding.mesh.axis_types


def _sharding(attribute: Any, module: Any, count: int, aval: Any) -> NamedSharding | None:
    """A sharding as JAX writes it; None if it divides mesh axes, which JAX has no notation for.

    The words of random keys are dimensions of the module's arrays, after those of JAX's.
    """
    if attribute is None:
        return None
    sharding = sdy.TensorShardingAttr(attribute)
    mesh = _mesh(_mesh_attribute(sharding.mesh_or_ref, module), count, _axis_types(aval))
    dimensions = axis_refs(sharding)[: len(aval.shape)]
    if mesh is None or any(axis.sub_axis_info is not None for axes in dimensions for axis in axes):
        return None
    return NamedSharding(mesh, PartitionSpec(*(tuple(axis.name for axis in axes) or None for axes in dimensions)))


def _mesh_attribute(mesh_or_name: Any, module: Any) -> Any:
    """The mesh of a sharding, which may name one of the module's."""
    if isinstance(mesh_or_name, ir.FlatSymbolRefAttr):
        symbols = ir.SymbolTable(module.operation)
        return sdy.MeshAttr(symbols[mesh_or_name.value].attributes["mesh"])
    return sdy.MeshAttr(mesh_or_name)


def _mesh(mesh: Any, count: int, axis_types: tuple[Any, ...] | None) -> Mesh | AbstractMesh | None:
    """A mesh over so many devices, None if it has more or fewer.

    JAX does not say which devices they will be, and a plan does not depend on it: it is those that are here or, where a
    program is compiled for more devices than these, none.
    """
    axes = [sdy.MeshAxisAttr(axis) for axis in mesh.axes]
    sizes, names = tuple(axis.size for axis in axes), tuple(axis.name for axis in axes)
    if math.prod(sizes) != count:
        return None
    devices = jax.devices()
    if count > len(devices):
        return AbstractMesh(sizes, names, axis_types=axis_types)
    order = list(mesh.device_ids) or range(count)
    return Mesh(np.array([devices[i] for i in order]).reshape(sizes), names, axis_types=axis_types)
