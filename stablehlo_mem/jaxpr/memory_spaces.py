"""In which memory the values of a jaxpr are, as their types say, and moves between the memories.

JAX's types of arrays in the host's memory say so. An array that comes in another way, such as a NumPy array under
`in_shardings`, is there without its type saying it: `operand_shardings` asks the function that is lowered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import PartitionSpec

from stablehlo_mem.ir.bindings import core, linear_util, pe
from stablehlo_mem.ir.host_memory import names_host

HOST: Any = jax.memory.Space.Host
DEVICE: Any = jax.memory.Space.Device


def is_on_host(aval: Any) -> bool:
    """Whether a type says that its value is in the host's memory."""
    return getattr(aval, "memory_space", DEVICE) == HOST


def memory_kind(sharding: Any) -> str | None:
    """The memory that a sharding, or a format around one, names; None where it names none.

    JAX takes a PartitionSpec for one on the device.
    """
    if isinstance(sharding, PartitionSpec):
        return "device"
    return getattr(getattr(sharding, "sharding", sharding), "memory_kind", None)


def in_memory(x: Any, kind: str | None) -> Any:
    """A value in the memory of a kind, None for the one that it is in; moved if need be."""
    if kind is None or names_host(kind) == is_on_host(core.typeof(x)):
        return x
    return jax.device_put(x, HOST if names_host(kind) else DEVICE)


def with_results_in(jaxpr: Any, kinds: Sequence[str | None]) -> Any:
    """A jaxpr without constants whose results are in the memories of some kinds."""
    avals = [v.aval for v in jaxpr.outvars]
    if all(kind is None or names_host(kind) == is_on_host(aval) for kind, aval in zip(kinds, avals, strict=True)):
        return jaxpr

    def flat(*operands: Any) -> list[Any]:
        return [in_memory(x, k) for x, k in zip(core.eval_jaxpr(jaxpr, (), *operands), kinds, strict=True)]

    wrapped = linear_util.wrap_init(flat, debug_info=jaxpr.debug_info)
    moved, _, constants = pe.trace_to_jaxpr_dynamic(wrapped, [v.aval for v in jaxpr.invars])
    assert not constants  # there are none in the jaxpr
    return moved
