"""`stablehlo_mem.flattened`: an Exported over flat arguments and results, which serialises whatever its trees are."""

from __future__ import annotations

import dataclasses
from typing import Any

from jax.export import Exported

from stablehlo_mem.errors import InputError
from stablehlo_mem.targets import compile as compiling


def flattened(exported: Exported) -> Exported:
    """The same program with the leaves of its arguments and results in place of their trees.

    An Exported whose arguments or results have nodes of classes (`equinox.Module`, `flax.struct`, optax's states)
    serialises only after `jax.export.register_pytree_node_serialization` of each class, and is read only where these
    classes can be imported. One of leaves always serialises, and runs where there is only JAX. It is called with
    `*jax.tree.leaves((args, kwargs))`, and `jax.tree.unflatten(exported.out_tree, leaves)` makes a tree of what it
    returns.

    Args:
        exported: any; its derivatives remain.

    Returns:
        An Exported whose positional arguments are the leaves of the arguments, and then those of the keyword arguments
        in the order of their names; its result is a tuple of leaves.

    Raises:
        InputError: it is no Exported.
    """
    given: Any = exported
    if not isinstance(given, Exported):
        raise InputError(
            f"flattened takes an Exported, not a {type(given).__name__}: export the function first, by shm.export or "
            "jax.export.export"
        )
    # JAX exports the derivative over leaves, from the function and its trees.
    get_vjp = (lambda _: exported.vjp()) if exported.has_vjp() else None
    return dataclasses.replace(compiling.flattened(exported), _get_vjp=get_vjp)


__all__ = ["flattened"]
