"""Training steps over eight devices: GPT-2 as `training_programs` has it, distributed in the ways that users do it.

`LAYOUTS[name](devices)` places its arguments; `export(name, platform, **sizes)` is the step. For processes with eight
devices of any platform: nothing is executed.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.export
import numpy as np
import training_programs
from jax.sharding import Mesh, NamedSharding, PartitionSpec

DEVICES = 8
SIZES = {"batch": 32, "tokens": 1024, "layers": 12, "width": 768, "heads": 12, "vocabulary": 50304}
"""GPT-2 small, its vocabulary rounded up so that it can be shared out."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a step is distributed.

    Attributes:
        mesh: sizes of the axes "data" and "model".
        sequence: whether the tokens of a sequence are shared out over "model".
        features: whether embeddings are shared out over their features, else over the vocabulary.
    """

    mesh: tuple[int, int]
    sequence: bool = False
    features: bool = False


LAYOUTS = {
    "fsdp": Layout((8, 1)),
    "fsdp, embedding over features": Layout((8, 1), features=True),
    "fsdp 4 x tensor 2": Layout((4, 2)),
    "fsdp 4 x tensor 2, sequence": Layout((4, 2), sequence=True),
}


def export(layout: str, platform: str, *, scanned: bool = True, **sizes: int) -> jax.export.Exported:
    """The step of a layout for a platform."""
    one = LAYOUTS[layout]
    program = training_programs.gpt2(**{**SIZES, **sizes}, scanned=scanned)
    mesh = Mesh(np.array(jax.devices()[:DEVICES]).reshape(one.mesh), ("data", "model"))
    specs = jax.tree.map_with_path(lambda path, spec: _placed(path, spec, one, mesh, scanned), program.specs)
    flat = dataclasses.replace(program, specs=specs).flat
    results = jax.eval_shape(flat.function, *flat.specs)
    # The new parameters and states lie where the old ones do.
    old = {i: flat.specs[i].sharding for i in flat.donated}
    out = [old.get(i, NamedSharding(mesh, PartitionSpec())) for i in range(len(results))]
    assert all(results[i].shape == flat.specs[i].shape for i in flat.donated)
    jitted = jax.jit(flat.function, donate_argnums=flat.donated, out_shardings=tuple(out))
    return jax.export.export(jitted, platforms=[platform])(*flat.specs)


def _placed(path: Any, spec: Any, layout: Layout, mesh: Mesh, scanned: bool) -> Any:
    names = [str(getattr(key, "key", getattr(key, "name", ""))) for key in path]
    if spec.dtype == np.int32 and len(spec.shape) == 2:
        where: tuple[Any, ...] = ("data", "model" if layout.sequence else None)
    else:
        where = _of_parameter(names, spec.shape, layout, scanned)
    return jax.ShapeDtypeStruct(spec.shape, spec.dtype, sharding=NamedSharding(mesh, PartitionSpec(*where)))


def _of_parameter(names: list[str], shape: tuple[int, ...], layout: Layout, scanned: bool) -> tuple[Any, ...]:
    """Matrices are shared out over "data" along their inputs, over "model" along their outputs."""
    stacked = scanned and "layers" in names
    rank = len(shape) - stacked
    if rank < 2:
        return ()
    if "tokens" in names:
        return (("model", "data"), None)[:: -1 if layout.features else 1]
    return (*([None] if stacked else []), "data", "model")
