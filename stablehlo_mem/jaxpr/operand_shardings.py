"""How the operands of a budgeted program lie on devices, and in which memory, as JAX resolved it: from arguments, or by
`in_shardings`.

`jaxpr.plan_at_lowering` asks while JAX lowers, `api.jit` for a plan before that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from stablehlo_mem.ir.bindings import ir, resolve_in_shardings, sdy, signature_attributes
from stablehlo_mem.ir.host_memory import is_on_host as attributes_say_host
from stablehlo_mem.ir.host_memory import names_host
from stablehlo_mem.ir.shards import argument_shardings, axis_refs
from stablehlo_mem.jaxpr.memory_spaces import is_on_host, memory_kind

Shardings = tuple[Sharding | None, ...]
"""For each operand its sharding, None where nothing is said of it and it is on the device."""


def shardings_when_lowered(ctx: Any, operands: Sequence[Any]) -> Shardings:
    """The shardings of the operands of a lowering rule that are arguments of the function being lowered."""
    count = getattr(ctx.module_context.axis_context, "num_devices", 1)
    # JAX does not say which devices they will be. A plan does not depend on it.
    devices = jax.devices()
    pairs = list(zip(operands, ctx.avals_in, strict=True))
    shardings: list[Sharding | None] = [None] * len(pairs)
    if 1 < count <= len(devices):
        module = ctx.module_context.module
        shardings = [_sharding(_attribute(x), module, devices[:count], _axis_types(aval)) for x, aval in pairs]
    on_host = (is_on_host(aval) or _is_argument_on_host(x) for x, aval in pairs)
    return tuple(_on_host(s, count) if host else s for s, host in zip(shardings, on_host, strict=True))


def shardings_when_traced(traced: Any, equation: Any) -> Shardings:
    """The shardings of the operands of an equation that are arguments of the traced function."""
    resolved = resolve_in_shardings(traced)
    of_arguments = dict(zip(map(id, traced.jaxpr.jaxpr.invars), resolved, strict=False))
    found = [(v.aval, of_arguments.get(id(v))) for v in equation.invars]
    count = max((s.num_devices for s in of_arguments.values() if isinstance(s, Sharding)), default=1)
    shardings = (s if isinstance(s, NamedSharding) and s.mesh.size > 1 else None for _, s in found)
    on_host = (is_on_host(aval) or names_host(memory_kind(s) or "") for aval, s in found)
    return tuple(_on_host(s, count) if host else s for s, host in zip(shardings, on_host, strict=True))


def _on_host(sharding: Sharding | None, count: int) -> Sharding | None:
    """The same in the host's memory; None where nothing says how it lies on several devices."""
    if sharding is not None:
        return sharding.with_memory_kind("pinned_host")
    return SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host") if count == 1 else None


def _attribute(operand: Any) -> Any:
    """The `sdy.sharding` of an argument of a function; None of any other value."""
    function = _function_of(operand)
    return None if function is None else argument_shardings(function)[operand.arg_number]


def _is_argument_on_host(operand: Any) -> bool:
    """Whether an operand is an argument of a function that says that it is in the host's memory."""
    function = _function_of(operand)
    return function is not None and attributes_say_host(signature_attributes(function, "arg_attrs")[operand.arg_number])


def _function_of(operand: Any) -> Any:
    """The function that a value is an argument of; None of any other value."""
    if not isinstance(operand, ir.BlockArgument):
        return None
    function = operand.owner.owner
    return function if function.operation.name == "func.func" else None


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
