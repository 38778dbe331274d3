"""Calls of `stablehlo_mem.jit` under `host=`: arguments are in the host's memory before the program and after it.

`placing` moves the arrays there where they are not. While the function is traced it is handed copies on the device, so
that it need not know of this; `results_on_host` says which of its results are moved back.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from stablehlo_mem.ir.bindings import core
from stablehlo_mem.jaxpr.memory_spaces import is_on_host, memory_kind

_HOST = "pinned_host"
_METHODS = ("lower", "trace", "eval_shape", "plan")
"""What a function under `jit` has beside the call; these take ShapeDtypeStructs too."""


@dataclasses.dataclass(frozen=True)
class LeafFlags:
    """For each leaf of the arguments of a call what was said of it."""

    on_host: tuple[bool, ...]
    donated: tuple[bool, ...]
    static: tuple[bool, ...]


def placing(
    fun: Callable[..., Any],
    make: Callable[[Any], Any],
    flags_of: Callable[[tuple[Any, ...], dict[str, Any]], LeafFlags],
) -> Any:
    """A function under `jit` some of whose arguments are moved to the host's memory where they are not there yet.

    Args:
        fun: what is called, for its name.
        make: puts it under `jit`, given the shardings of the results or None.
        flags_of: says what was said of the arguments.
    """
    known: dict[Any, LeafFlags] = {}
    made: dict[Any, Any] = {}
    plain = make(None)

    def placed(move: Callable[[Any], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The function under `jit` for some arguments, and these arguments in their memories."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        if tree not in known:
            known[tree] = flags_of(args, kwargs)
        flags = known[tree]
        if any(isinstance(x, Tracer) for x in leaves):  # a part of another program
            return plain, args, kwargs
        device = _single_device(leaves)
        new = [move(x) if host else x for x, host in zip(leaves, flags.on_host, strict=True)]
        if device is not None:
            new = [x if static else _committed(x, device) for x, static in zip(new, flags.static, strict=True)]
        args, kwargs = jax.tree.unflatten(tree, new)
        key = tree, device, *(_type(x, static) for x, static in zip(new, flags.static, strict=True))
        if key not in made:
            made[key] = make(None if device is None else _result_shardings(plain.trace(*args, **kwargs), device))
        if move is _array_on_host:
            _delete(leaves, new, flags)
        return made[key], args, kwargs

    @functools.wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        jitted, args, kwargs = placed(_array_on_host, args, kwargs)
        return jitted(*args, **kwargs)

    def method(name: str) -> Callable[..., Any]:
        @functools.wraps(getattr(plain, name))
        def abstract(*args: Any, **kwargs: Any) -> Any:
            jitted, args, kwargs = placed(_spec_on_host, args, kwargs)
            return getattr(jitted, name)(*args, **kwargs)

        return abstract

    call.__dict__.update({name: method(name) for name in _METHODS}, clear_cache=plain.clear_cache)
    return call


def _result_shardings(traced: Any, device: Any) -> Any:
    """The shardings of the results on one device, each in the memory that its type says.

    JAX lets donated arguments become results of another memory unless it is told the memory of each.
    """
    kinds = [core.mem_space_to_kind(aval.memory_space) for aval in traced.jaxpr.out_avals]
    shardings = [SingleDeviceSharding(device, memory_kind=kind) for kind in kinds]
    return jax.tree.unflatten(jax.tree.structure(traced.out_info), shardings)


def _single_device(leaves: Sequence[Any]) -> Any:
    """The device that a call runs on, None if there are several."""
    shardings = [getattr(x, "sharding", None) for x in leaves if getattr(x, "committed", True)]
    devices = {d for s in shardings if s is not None for d in s.device_set}
    return devices.pop() if len(devices) == 1 else None if devices else jax.devices()[0]


def _committed(x: Any, device: Any) -> Any:
    """An argument of which JAX knows the memory: it is on a device, or a ShapeDtypeStruct with a sharding."""
    if isinstance(x, jax.ShapeDtypeStruct):
        return x if x.sharding is not None else x.update(sharding=SingleDeviceSharding(device))
    return x if isinstance(x, jax.Array) and x.committed else jax.device_put(x, device)


def _type(x: Any, static: bool) -> Any:
    """What results may depend on: types and shardings of arrays, values of static arguments."""
    return x if static else (x.shape, x.dtype, x.sharding)


def _delete(leaves: Sequence[Any], moved: Sequence[Any], flags: LeafFlags) -> None:
    """Deletes what was donated and moved, as JAX donates no array to another memory."""
    of_leaves = zip(leaves, moved, flags.on_host, flags.donated, strict=True)
    given = {id(x): x for x, new, host, donated in of_leaves if host and donated and x is not new and _has_rows(x)}
    for x in given.values():
        if isinstance(x, jax.Array):
            x.delete()


def _array_on_host(x: Any) -> Any:
    """An array in the host's memory. Anything else, single numbers and tracers are left as they are."""
    if isinstance(x, Tracer) or not _has_rows(x) or memory_kind(getattr(x, "sharding", None)) == _HOST:
        return x
    sharding = getattr(x, "sharding", None) or SingleDeviceSharding(jax.devices()[0])
    return jax.device_put(x, sharding.with_memory_kind(_HOST))


def _spec_on_host(x: Any) -> Any:
    """A ShapeDtypeStruct of an array in the host's memory, whose type says so."""
    if isinstance(x, Tracer) or not _has_rows(x):
        return x
    sharding = getattr(x, "sharding", None) or SingleDeviceSharding(jax.devices()[0])
    if not isinstance(sharding, NamedSharding):  # JAX's types say nothing of others
        (device,) = sharding.device_set
        sharding = NamedSharding(Mesh(np.array([device]), ("device",)), PartitionSpec())
    weak_type = jax.typeof(x).weak_type
    return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=weak_type, sharding=sharding.with_memory_kind(_HOST))


def results_on_host(arguments: Sequence[Any], results: Any) -> list[bool]:
    """For each leaf of some results whether it is the new value of an argument in the host's memory.

    The new value of an argument is the first part of the results that has its structure, shapes and types.
    Arguments of more leaves come first: the parts of one are not taken for others.

    Args:
        arguments: trees of arrays or tracers.
        results: a tree of arrays or tracers.
    """
    leaves, tree = jax.tree.flatten(results)
    places = jax.tree.unflatten(tree, range(len(leaves)))
    on_host, taken = [False] * len(leaves), set[int]()
    for argument in sorted(arguments, key=lambda a: -len(jax.tree.leaves(a))):
        of_argument = jax.tree.leaves(argument)
        part = next((p for p in _parts_like(argument, places, leaves) if taken.isdisjoint(p)), ())
        taken.update(part)
        for i, x in zip(part, of_argument, strict=False):
            on_host[i] = is_on_host(jax.typeof(x))
    return on_host


def _parts_like(argument: Any, places: Any, leaves: Sequence[Any]) -> Iterator[list[int]]:
    """The parts of some results with an argument's structure, shapes and types, as places of leaves."""
    of_argument, structure = jax.tree.flatten(argument)

    def is_alike(part: Any) -> bool:
        return jax.tree.structure(part) == structure

    for part in jax.tree.leaves(places, is_leaf=is_alike) if of_argument else ():
        found = jax.tree.leaves(part)
        if is_alike(part) and [_shape(leaves[i]) for i in found] == [_shape(x) for x in of_argument]:
            yield found


def _shape(x: Any) -> tuple[Any, Any]:
    return getattr(x, "shape", None), getattr(x, "dtype", None)


def _has_rows(x: Any) -> bool:
    """Whether it is an array of at least one dimension: of others nothing is gained."""
    return bool(getattr(x, "shape", ())) and hasattr(x, "dtype")
