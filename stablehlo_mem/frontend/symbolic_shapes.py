"""Gives the symbolic dimensions of an Exported sizes: the api calls it where a user passes `dims`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

import jax
from jax.export import Exported, export, is_symbolic_dim

from stablehlo_mem.errors import InputError
from stablehlo_mem.frontend.program import deserialize_exported, donated_arguments, symbolic_names, vjp_order
from stablehlo_mem.ir.bindings import MAGIC, dimension_size

_LARGEST = 2**31 - 1
"""Refining shapes counts in 32 bits."""


def at_sizes(module: Any, dims: Mapping[str, int]) -> Any:
    """A program with symbolic dimensions as one of concrete shapes: the same trees, platforms, donation and vjp.

    Args:
        module: a `jax.export.Exported`, or what its `serialize` gives.
        dims: a size for each of its symbolic dimensions.

    Returns:
        The same kind of thing.

    Raises:
        InputError: the input is of another kind or has no symbolic dimensions, `dims` lacks or does not know one of
            them, or the program was not exported for such sizes.
    """
    if isinstance(module, (bytes, bytearray)) and not module.startswith(MAGIC):
        original = deserialize_exported(bytes(module))
        return bytes(_concrete(original, dims).serialize(vjp_order=vjp_order(original)))
    if isinstance(module, Exported):
        return _concrete(module, dims)
    raise InputError(f"dims: give a jax.export.Exported with symbolic dimensions, not {type(module).__name__}")


def _concrete(exported: Exported, dims: Mapping[str, int]) -> Exported:
    _check(exported, dims)
    specs = [_spec(aval, dims) for aval in exported.in_avals]
    arguments, keywords = jax.tree.unflatten(exported.in_tree, specs)

    def call(*args: Any, **kwargs: Any) -> Any:
        return exported.call(*args, **kwargs)

    call.__name__ = call.__qualname__ = exported.fun_name
    donated = set(donated_arguments(exported))
    positions = jax.tree.unflatten(exported.in_tree, range(len(specs)))
    jitted = jax.jit(
        call,
        donate_argnums=[i for i, one in enumerate(positions[0]) if donated.intersection(jax.tree.leaves(one))],
        donate_argnames=[name for name, one in positions[1].items() if donated.intersection(jax.tree.leaves(one))],
    )
    try:
        with jax.enable_x64(True):  # or float64 arguments would become float32
            concrete = export(jitted, platforms=exported.platforms, disabled_checks=exported.disabled_safety_checks)(
                *arguments, **keywords
            )
    except ValueError as error:
        raise InputError(f"{exported.fun_name} was not exported for {_listed(dims)}: {error}") from error
    return concrete if exported.has_vjp() else dataclasses.replace(concrete, _get_vjp=None)


def _check(exported: Exported, dims: Any) -> None:
    name, known = exported.fun_name, symbolic_names(exported)
    if not isinstance(dims, Mapping) or not all(isinstance(key, str) for key in cast("Mapping[Any, Any]", dims)):
        raise InputError(f"dims: give names and their sizes, as {{'n': 4096}}, not {dims!r}")
    dims = cast("Mapping[str, Any]", dims)
    if not known:
        raise InputError(f"dims: {name} has no symbolic dimensions, its shapes are concrete")
    unknown = [key for key in dims if key not in known]
    if unknown:
        raise InputError(f"dims: {name} has no symbolic dimension {', '.join(unknown)}; it has {', '.join(known)}")
    missing = [key for key in known if key not in dims]
    if missing:
        raise InputError(f"dims: no size for {', '.join(missing)}: {name} has symbolic dimensions {', '.join(known)}")
    sizes = dims.items()
    wrong = [f"{key}={size!r}" for key, size in sizes if isinstance(size, bool) or not hasattr(size, "__index__")]
    if wrong:
        raise InputError(f"dims: a size is an integer, not {', '.join(wrong)}")
    if exported.nr_devices > 1:
        raise InputError(
            f"{name} is partitioned over {exported.nr_devices} devices and has symbolic dimensions: "
            "export it with concrete shapes"
        )


def _spec(aval: Any, dims: Mapping[str, int]) -> jax.ShapeDtypeStruct:
    shape = tuple(dimension_size(size, dims) if is_symbolic_dim(size) else size for size in aval.shape)
    if any(size < 0 for size in shape):
        raise InputError(f"{_listed(dims)} makes {aval} an array of shape {list(shape)}")
    if any(size > _LARGEST for size in shape):
        raise InputError(f"{_listed(dims)} makes {aval} longer than JAX refines dimensions to: {_LARGEST:,}")
    return jax.ShapeDtypeStruct(shape, aval.dtype)


def _listed(dims: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in dims.items())
