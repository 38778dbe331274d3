"""A program lowered on its own, with the Python functions it calls back to, and put into another module."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import jax
import numpy as np
from jax.export import DisabledSafetyCheck, Exported

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

_ANY_CALL = DisabledSafetyCheck.custom_call("ALL")
"""Custom calls need not be understood by other versions: what is lowered here is run here."""

_FILLER = jax.ShapeDtypeStruct((), np.int32)


@dataclasses.dataclass(frozen=True)
class Lowered:
    """A program, and what JAX keeps beside its module.

    Attributes:
        exported: calls the Python functions by their number.
        callbacks: these functions.
        keepalives: what must live as long as the program.
        filler: it takes and returns one number more: JAX 0.10 cannot export ordered effects without any argument.
    """

    exported: Exported
    callbacks: tuple[Any, ...]
    keepalives: tuple[Any, ...]
    filler: bool


def lower_privately(closed: Any, name: str, donated: tuple[bool, ...], platforms: tuple[str, ...]) -> Lowered:
    """Lowers a closed jaxpr for platforms, which need not be here; tokens it takes or returns are left out."""
    given = [v.aval for v in closed.jaxpr.invars]
    arrays = [i for i, aval in enumerate(given) if not _is_token(aval)]
    filler = _needs_filler(closed.jaxpr)

    def named(*operands: Any) -> Any:
        filled: list[Any] = [jax.lax.create_token() if _is_token(aval) else None for aval in given]
        operands, extra = operands[: len(arrays)], operands[len(arrays) :]
        for i, operand in zip(arrays, operands, strict=True):
            filled[i] = operand
        outs = core.jaxpr_as_fun(closed)(*filled)
        return [*(out for out, v in zip(outs, closed.jaxpr.outvars, strict=True) if not _is_token(v.aval)), *extra]

    named.__name__ = named.__qualname__ = name
    jitted: Any = jax.jit(named, donate_argnums=tuple(k for k, i in enumerate(arrays) if donated[i]))
    parameters = lowering.LoweringParameters(
        for_export=True, hoist_constants_as_args=False, export_ignore_forward_compatibility=True
    )
    traced = jitted.trace(*[_spec(given[i]) for i in arrays], *[_FILLER] * filler)
    lowered = traced.lower(lowering_platforms=platforms, _private_parameters=parameters)
    arguments = lowered._lowering.compile_args
    callbacks, keepalives = tuple(arguments["host_callbacks"]), tuple(arguments["keepalive"] or ())
    plain = copy.copy(lowered)
    plain._lowering = copy.copy(lowered._lowering)
    plain._lowering.compile_args = {**arguments, "host_callbacks": [], "keepalive": []}
    exported = export_internals._export_lowered(plain, traced.jaxpr, name, disabled_checks=(_ANY_CALL,))
    # The vjp is one of Exporteds, which call no Python.
    exported = dataclasses.replace(exported, _get_vjp=None) if callbacks else exported
    return Lowered(exported, callbacks, keepalives, filler)


def _needs_filler(jaxpr: Any) -> bool:
    used = {id(v) for equation in jaxpr.eqns for v in equation.invars} | {id(v) for v in jaxpr.outvars}
    is_ordered = any(core.effects.ordered_effects.contains(effect) for effect in jaxpr.effects)
    return is_ordered and not any(id(v) in used for v in jaxpr.invars)


def call_lowered(ctx: Any, operands: Any, lowered: Lowered) -> Any:
    """In a lowering rule: a call of the program, whose Python functions come after those already called."""
    exported = lowered.exported
    context = ctx.module_context
    if lowered.callbacks and context.host_callbacks:
        exported = _renumbered(exported, len(context.host_callbacks))
    for one in lowered.callbacks:
        context.add_host_callback(one)
    for one in lowered.keepalives:
        context.add_keepalive(one)
    if not lowered.filler:
        return export_internals._call_exported_lowering(ctx, *operands, exported=exported)
    number = core.ShapedArray(_FILLER.shape, _FILLER.dtype)
    filled = ctx.replace(avals_in=[*ctx.avals_in, number], avals_out=[*ctx.avals_out, number])
    zero = lowering.ir_constant(np.zeros(_FILLER.shape, _FILLER.dtype))
    results = export_internals._call_exported_lowering(filled, *operands, zero, exported=exported)
    ctx.set_tokens_out(filled.tokens_out)
    return results[:-1]


def _renumbered(exported: Exported, first: int) -> Exported:
    module = parse_artifact(exported.mlir_module_serialized)
    with module.context:
        for op in walk_operations(module.operation):
            if is_callback(op):
                config = ir.DictAttr(op.attributes["mhlo.backend_config"])
                number = ir.IntegerAttr(config["index"])
                moved = ir.IntegerAttr.get(number.type, number.value + first)
                entries = {entry.name: entry.attr for entry in config}
                op.attributes["mhlo.backend_config"] = ir.DictAttr.get({**entries, "index": moved})
    return dataclasses.replace(exported, mlir_module_serialized=portable_artifact(module))


def _is_token(aval: Any) -> bool:
    return aval is core.abstract_token


def _spec(aval: Any) -> jax.ShapeDtypeStruct:
    sharding = getattr(aval, "sharding", None)
    placed = sharding if sharding is not None and not sharding.mesh.empty else None
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type, sharding=placed)
