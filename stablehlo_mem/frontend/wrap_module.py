"""Wraps a raw module in an Exported, so that JAX's public interface compiles and calls it; `program.py` calls it."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.export import Exported, export

from stablehlo_mem.errors import InputError
from stablehlo_mem.ir.bindings import dtypes_by_name, ir, portable_artifact
from stablehlo_mem.ir.graph import tensor_type


def wrap_module(module: ir.Module, main: Any, platform: str) -> Exported:
    """An Exported for one platform that runs `module`: main's arguments and results as flat tuples.

    Exported has private fields that change from one JAX to the next, so JAX makes it: a function of the same
    signature is exported and its module exchanged.

    Raises:
        InputError: main has an argument or result that is no array, or the module is for several devices.
    """
    _check_one_device(module)
    inputs = [_spec(t, "argument", i) for i, t in enumerate(main.type.inputs)]
    outputs = [_spec(t, "result", i) for i, t in enumerate(main.type.results)]

    def stand_in(*_: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(jnp.zeros(o.shape, o.dtype) for o in outputs)

    with jax.enable_x64(True):
        template = export(jax.jit(stand_in), platforms=(platform,))(*inputs)
    return dataclasses.replace(
        template,
        fun_name="main",
        mlir_module_serialized=portable_artifact(module),
        module_kept_var_idx=tuple(range(len(inputs))),
        _get_vjp=None,
    )


def _spec(mlir_type: Any, role: str, index: int) -> jax.ShapeDtypeStruct:
    shape, dtype, _ = tensor_type(mlir_type)
    if dtype not in dtypes_by_name():
        raise InputError(f"{role} {index} of main has type {mlir_type}, which is no array JAX knows")
    return jax.ShapeDtypeStruct(shape, dtypes_by_name()[dtype])


def _check_one_device(module: ir.Module) -> None:
    attributes = module.operation.attributes
    if "mhlo.num_partitions" not in attributes:
        return
    count = ir.IntegerAttr(attributes["mhlo.num_partitions"]).value
    if count > 1:
        raise InputError(
            f"the module is partitioned over {count} devices, which a raw module does not say enough about: "
            "give the jax.export.Exported"
        )
