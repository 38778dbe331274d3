"""Lowers a jaxpr to an Exported of its own, and inlines an Exported into the module that JAX is lowering.

`jaxpr.plan_at_lowering` calls both, before and after planning. Python callbacks are carried along.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import jax
import numpy as np
from jax.export import DisabledSafetyCheck, Exported
from jax.sharding import SingleDeviceSharding

from stablehlo_mem.ir.bindings import (
    core,
    export_internals,
    ir,
    is_callback,
    lowering,
    parse_artifact,
    portable_artifact,
    walk_operations,
)
from stablehlo_mem.jaxpr.memory_spaces import in_memory, is_on_host, memory_kind
from stablehlo_mem.jaxpr.operand_shardings import Shardings

_ANY_CALL = DisabledSafetyCheck.custom_call("ALL")
"""No custom call needs a stability guarantee: the version that lowers the program runs it."""

_DUMMY = jax.ShapeDtypeStruct((), np.int32)


@dataclasses.dataclass(frozen=True)
class LoweredProgram:
    """A program, and what JAX stores beside its module.

    Attributes:
        exported: the program; it calls Python functions by their index.
        callbacks: these functions.
        keepalives: objects that must live as long as the program.
        has_dummy: whether it takes and returns one integer more: JAX 0.10 cannot export ordered effects of a program
            that uses no argument.
    """

    exported: Exported
    callbacks: tuple[Any, ...]
    keepalives: tuple[Any, ...]
    has_dummy: bool


def lower_program(
    closed: Any, name: str, donated: tuple[bool, ...], platforms: tuple[str, ...], shardings: Shardings
) -> LoweredProgram:
    """Lowers a closed jaxpr for platforms, present or not; the tokens it takes and returns are left out.

    Args:
        donated, shardings: of its arguments.
    """
    avals = [v.aval for v in closed.jaxpr.invars]
    arrays = [i for i, aval in enumerate(avals) if not _is_token(aval)]
    has_dummy = _needs_dummy(closed.jaxpr)

    def program(*operands: Any) -> Any:
        operands, dummy = operands[: len(arrays)], operands[len(arrays) :]
        remaining = iter(operands)
        inputs = [jax.lax.create_token() if _is_token(aval) else next(remaining) for aval in avals]
        outs = zip(core.jaxpr_as_fun(closed)(*inputs), closed.jaxpr.outvars, strict=True)
        return [*(_as_typed(out, v.aval) for out, v in outs if not _is_token(v.aval)), *dummy]

    program.__name__ = program.__qualname__ = name
    results = [v.aval for v in closed.jaxpr.outvars if not _is_token(v.aval)]
    shardings, placed = _in_memories(shardings, [*results, *[_DUMMY] * has_dummy])
    jitted: Any = jax.jit(program, donate_argnums=tuple(k for k, i in enumerate(arrays) if donated[i]), **placed)
    parameters = lowering.LoweringParameters(
        for_export=True, hoist_constants_as_args=False, export_ignore_forward_compatibility=True
    )
    traced = jitted.trace(*[_spec(avals[i], shardings[i]) for i in arrays], *[_DUMMY] * has_dummy)
    lowered = traced.lower(lowering_platforms=platforms, _private_parameters=parameters)
    arguments = lowered._lowering.compile_args
    callbacks, keepalives = tuple(arguments["host_callbacks"]), tuple(arguments["keepalive"] or ())
    # JAX exports no callbacks: they are taken off a copy.
    without_callbacks = copy.copy(lowered)
    without_callbacks._lowering = copy.copy(lowered._lowering)
    without_callbacks._lowering.compile_args = {**arguments, "host_callbacks": [], "keepalive": []}
    exported = export_internals._export_lowered(without_callbacks, traced.jaxpr, name, disabled_checks=(_ANY_CALL,))
    # Its vjp would be an Exported without the callbacks.
    exported = dataclasses.replace(exported, _get_vjp=None) if callbacks else exported
    return LoweredProgram(exported, callbacks, keepalives, has_dummy)


def _in_memories(shardings: Shardings, results: list[Any]) -> tuple[Shardings, dict[str, Any]]:
    """The shardings of arguments, and JAX's argument for those of results; given of all if one is on a device's host.

    JAX lets donated arguments become results of another memory unless it is told the memory of each.
    """
    on_host = [s for s in shardings if isinstance(s, SingleDeviceSharding) and memory_kind(s) == "pinned_host"]
    if not on_host:
        return shardings, {}
    (device,) = on_host[0].device_set
    kinds = ["pinned_host" if is_on_host(aval) else "device" for aval in results]
    of_results = [SingleDeviceSharding(device, memory_kind=kind) for kind in kinds]
    return tuple(s or SingleDeviceSharding(device) for s in shardings), {"out_shardings": of_results}


def _needs_dummy(jaxpr: Any) -> bool:
    used = {id(v) for equation in jaxpr.eqns for v in equation.invars} | {id(v) for v in jaxpr.outvars}
    is_ordered = any(core.effects.ordered_effects.contains(effect) for effect in jaxpr.effects)
    return is_ordered and not any(id(v) in used for v in jaxpr.invars)


def inline_lowered(ctx: Any, operands: Any, lowered: LoweredProgram) -> Any:
    """Inlines a program in a lowering rule; its callbacks are numbered after those of the module around."""
    exported = lowered.exported
    context = ctx.module_context
    if lowered.callbacks and context.host_callbacks:
        exported = _renumbered(exported, len(context.host_callbacks))
    for callback in lowered.callbacks:
        context.add_host_callback(callback)
    for keepalive in lowered.keepalives:
        context.add_keepalive(keepalive)
    if not lowered.has_dummy:
        return _call(ctx, operands, exported)
    dummy = core.ShapedArray(_DUMMY.shape, _DUMMY.dtype)
    with_dummy = ctx.replace(avals_in=[*ctx.avals_in, dummy], avals_out=[*ctx.avals_out, dummy])
    zero = lowering.ir_constant(np.zeros(_DUMMY.shape, _DUMMY.dtype))
    results = _call(with_dummy, [*operands, zero], exported)
    ctx.set_tokens_out(with_dummy.tokens_out)
    return results[:-1]


def _call(ctx: Any, operands: Any, exported: Exported) -> Any:
    """Lowers a call. JAX leaves each token in a tuple of one, which a second call in the same function cannot take."""
    inner = ctx.replace(tokens_out=None)
    results = export_internals._call_exported_lowering(inner, *operands, exported=exported)
    if inner.tokens_out is not None:
        tokens = {effect: t[0] if isinstance(t, tuple) else t for effect, t in inner.tokens_out.items()}
        ctx.set_tokens_out(lowering.TokenSet(tokens))
    return results


def _renumbered(exported: Exported, first: int) -> Exported:
    module = parse_artifact(exported.mlir_module_serialized)
    with module.context:
        for op in walk_operations(module.operation):
            if is_callback(op):
                config = ir.DictAttr(op.attributes["mhlo.backend_config"])
                index = ir.IntegerAttr(config["index"])
                shifted = ir.IntegerAttr.get(index.type, index.value + first)
                entries = {entry.name: entry.attr for entry in config}
                op.attributes["mhlo.backend_config"] = ir.DictAttr.get({**entries, "index": shifted})
    return dataclasses.replace(exported, mlir_module_serialized=portable_artifact(module))


def _as_typed(x: Any, aval: Any) -> Any:
    """A result in the host's memory if its type says so: the types of the program's operands do not, shardings do."""
    return in_memory(x, "pinned_host") if is_on_host(aval) else x


def _is_token(aval: Any) -> bool:
    return aval is core.abstract_token


def _spec(aval: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    of_type = getattr(aval, "sharding", None)
    if sharding is None and of_type is not None and not of_type.mesh.empty:
        sharding = of_type
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type, sharding=sharding)
