"""Ops that are linear in some of their operands: they may run before a sum over chunks as well as after it.

`region_propagation` and `splitting/online` ask. If the operands in one of an op's groups are partial (terms of the
sum), and the others whole, its result is partial.
"""

from __future__ import annotations

from typing import Any

from stablehlo_mem.sharding_rules.reductions import is_float, is_sum

Groups = tuple[tuple[int, ...], ...]


def linear_groups(op: Any) -> Groups:
    """The groups of operands in each of which an op is linear; none if it is not."""
    if op.name in _SUMS or (op.name in _REDUCING and is_sum(op)):
        return (tuple(range(len(op.operands))),)
    if op.name == "stablehlo.divide" and not is_float(op.results[0].type):
        return ()  # quotients of integers are rounded, and do not add up
    if op.name == "stablehlo.scatter" and not is_sum(op):
        return ()
    return _LINEAR.get(op.name, ())


_SUMS = frozenset({"stablehlo.add", "stablehlo.subtract", "stablehlo.concatenate"})
_REDUCING = frozenset({"stablehlo.reduce", "stablehlo.all_reduce", "stablehlo.reduce_scatter"})
_OF_ONE = (
    *("negate", "reshape", "transpose", "broadcast_in_dim", "slice", "reverse", "optimization_barrier"),
    *("real", "imag", "dynamic_slice", "gather", "divide"),
    *("all_gather", "all_to_all", "collective_broadcast", "collective_permute"),
)
_LINEAR: dict[str, Groups] = {
    **{f"stablehlo.{name}": ((0,),) for name in _OF_ONE},
    **dict.fromkeys(("stablehlo.multiply", "stablehlo.dot_general", "stablehlo.convolution"), ((0,), (1,))),
    **dict.fromkeys(("stablehlo.pad", "stablehlo.dynamic_update_slice", "stablehlo.complex"), ((0, 1),)),
    "stablehlo.select": ((1, 2),),
    "stablehlo.scatter": ((0, 2),),
    "sdy.sharding_constraint": ((0,),),
}
