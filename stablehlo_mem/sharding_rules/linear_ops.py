"""Ops that are linear in some of their operands: they may run before a sum over chunks as well as after it.

`region_propagation` and `splitting/online` ask. If the operands in one of an op's groups are partial (terms of the
sum), and the others whole, its result is partial.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stablehlo_mem.sharding_rules.reductions import is_float, is_sum

Groups = tuple[tuple[int, ...], ...]


def linear_groups(op: Any) -> Groups:
    """The groups of operands in each of which an op is linear; none if it is not."""
    groups = _LINEAR.get(op.name)
    return groups(op) if groups else ()


def _in(*groups: tuple[int, ...]) -> Callable[[Any], Groups]:
    return lambda op: groups


def _in_all(op: Any) -> Groups:
    return (tuple(range(len(op.operands))),)


def _if_it_adds(groups: Callable[[Any], Groups]) -> Callable[[Any], Groups]:
    return lambda op: groups(op) if is_sum(op) else ()


def _of_floats(op: Any) -> Groups:
    """Not of integers: quotients of the terms are rounded, and do not add up."""
    return ((0,),) if is_float(op.results[0].type) else ()


_LINEAR: dict[str, Callable[[Any], Groups]] = {
    **dict.fromkeys(("stablehlo.add", "stablehlo.subtract", "stablehlo.concatenate"), _in_all),
    **{
        f"stablehlo.{name}": _in((0,))
        for name in (
            *("negate", "reshape", "transpose", "broadcast_in_dim", "slice", "reverse", "optimization_barrier"),
            *("real", "imag", "dynamic_slice", "gather"),
        )
    },
    **dict.fromkeys(("stablehlo.multiply", "stablehlo.dot_general", "stablehlo.convolution"), _in((0,), (1,))),
    **dict.fromkeys(("stablehlo.pad", "stablehlo.dynamic_update_slice", "stablehlo.complex"), _in((0, 1))),
    "stablehlo.divide": _of_floats,
    "stablehlo.select": _in((1, 2)),
    "stablehlo.reduce": _if_it_adds(_in_all),
    "stablehlo.scatter": _if_it_adds(_in((0, 2))),
}
